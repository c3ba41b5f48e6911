"""Statements of the row statistics after a contraction's stores. The loops are in ``contraction/row_statistics.j2``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucomp.codegen.c.arguments import plain
from gpucomp.codegen.c.emit import Emitter, flat_stores, lane_loop
from gpucomp.codegen.c.fences import add_fences
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Expr, Load, Var, hole, identity_of, index, substitute, var
from gpucomp.ir.extremes import largest
from gpucomp.ir.types import F16, U32
from gpucomp.kernel import Contraction, Kernel, Statistic
from gpucomp.kernel.forms.access import Rewriter
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.forms.operand import count, places
from gpucomp.kernel.forms.row_statistics import TailProblem, columns_of, reads_of, tail_of, tail_sizes

SHUFFLED = 32  # threads of a CUDA warp


@dataclass(frozen=True)
class StatisticText:
    """One statistic of a row, as text."""

    name: str
    type: str
    identity: str
    body: list[str]  # statements for one access
    reads_row: bool  # whether these statements read ``row``
    combined: str  # the statistic combined with another lane's


@dataclass(frozen=True)
class TailText:
    """What ``contraction/row_statistics.j2`` reads. ``lanes`` to ``at_once`` are those of ``TailSizes``."""

    read: list[str]  # statements for one access: they load its elements into ``kept``
    kept: list[tuple[str, str, int]]  # name, type, count
    statistics: list[StatisticText]
    stores: list[str]  # statements that run once per row
    shuffles: bool  # lanes exchange values by shuffles
    threads: int  # work-items of a work-group, which stores ``rows`` rows
    rows: int
    sharers: int  # work-groups that store parts of the same rows
    accesses: int  # accesses per row
    lanes: int
    together: int
    steps: int
    keep: int
    at_once: int


def emit_tail(
    kernel: Kernel[Contraction], printer: CPrinter, p: TailProblem, threads: int, rows: int, sharers: int
) -> Mapping[str, Any]:
    """``tail``: a ``TailText`` for work-groups of ``threads`` that store ``rows`` rows, or ``None`` without statistics."""
    body, tail = kernel.body, tail_of(kernel)
    if tail is None:
        return {"tail": None}
    # in OpenCL, data of other work-groups is loaded element by element, through volatile pointers
    z = tail_sizes(threads, rows, p, 0 if printer.dialect.volatiles else 1)
    width, batch = z.wide, var("batch", plain(p.batch)) if p.batch > 1 else index(0)
    row, lane = var("row", largest(1, count(body.m))), var(LANE, width)
    col, columns = columns_of(body, width, lane)
    rewriter = Rewriter(kernel.params, places(body.m, row) | columns | places(body.batch, batch))
    values = [rewriter(s.value) for s in tail.statistics]
    known: dict[Expr, str] = {row: "row", **dict.fromkeys(batch.free, "batch")}
    in_column: dict[Expr, str] = {**known, col: "col"}
    if width > 1:
        in_column[lane] = LANE

    reads = reads_of(values, frozenset({col, lane}))
    step = f"step * {width} + {LANE}" if width > 1 else "step"
    kept = [f"kept{i}[r][{step if z.keep else LANE if width > 1 else 0}]" for i in range(len(reads))]
    read = _read(kernel, printer, reads, kept, in_column, lane, width)
    held: dict[Expr, Expr] = {ld: hole(f"kept{i}", ld.dtype) for i, ld in enumerate(reads)}
    in_column |= {held[ld]: text for ld, text in zip(reads, kept, strict=True)}

    statistics = []
    for number, (statistic, value) in enumerate(zip(tail.statistics, values, strict=True)):
        emitter = Emitter(printer, in_column, prefix="t")
        value = substitute(value, held)
        reads_row = bool(value.free & frozenset(known))
        text = _statistic(emitter, f"s{number}", statistic, value, lane, reads_row=reads_row)
        statistics.append(text)
        known[statistic.hole] = in_column[statistic.hole] = f"{text.name}[r]"
    once = Emitter(printer, known, prefix="o").store(flat_stores(tail.stores, rewriter))
    words = z.steps * width if z.keep else width
    types = [printer.dialect.value_type(ld.dtype) for ld in reads]
    return {
        "tail": TailText(
            read=read,
            kept=[(f"kept{i}", ctype, words) for i, ctype in enumerate(types)],
            statistics=statistics,
            stores=once,
            shuffles=printer.dialect.shuffles and threads % SHUFFLED == 0,
            threads=threads,
            rows=rows,
            sharers=sharers,
            accesses=count(body.n) // width,
            lanes=z.lanes,
            together=z.together,
            steps=z.steps,
            keep=z.keep,
            at_once=z.at_once,
        )
    }


def _statistic(
    emitter: Emitter, name: str, statistic: Statistic, value: Expr, lane: Var, *, reads_row: bool
) -> StatisticText:
    """The statements that add ``value``, for one access, to the statistic ``name`` of row ``r``."""
    printer, op, dtype = emitter.printer, statistic.op, statistic.hole.dtype
    width = lane.extent
    if width > 1:
        head, lines, (text,) = emitter.lanes([value], lane, width)
    else:
        head, (lines, (text,)) = [], emitter.values([value])
    ctype, at = printer.dialect.value_type(dtype), f"{name}[r]"
    inner = [*lines, f"const {ctype} term = {text};", f"{at} = {printer.combine(op, dtype, at, 'term')};"]
    return StatisticText(
        name=name,
        type=ctype,
        identity=printer.dialect.literal(identity_of(op, dtype), dtype),
        body=[*head, *(lane_loop(inner, width) if width > 1 else inner)],
        reads_row=reads_row,
        combined=printer.combine(op, dtype, at, "other"),
    )


def tail_scratch(printer: CPrinter, hooks: Mapping[str, Any]) -> list[dict[str, str]]:
    """The counters by which work-groups wait for each other if they share rows and nothing else."""
    tail = hooks["tail"]
    if tail is None or tail.sharers == 1:
        return []
    add_fences(printer)
    return [{"name": "counters", "type": printer.dialect.values[U32], "access": "written"}]


def _read(
    kernel: Kernel,
    printer: CPrinter,
    reads: Sequence[Load],
    kept: Sequence[str],
    known: Mapping[Expr, str],
    lane: Var,
    width: int,
) -> list[str]:
    """Statements that load each of ``reads``, one access, into its element of ``kept``."""
    if printer.dialect.volatiles:
        emitter = Emitter(printer, known, prefix="y")
        head: list[str] = []
        if width > 1:
            head, lines, texts = emitter.lanes(list(reads), lane, width)
        else:
            lines, texts = emitter.values(list(reads))
        body = [*lines, *(f"{to} = {text};" for to, text in zip(kept, texts, strict=True))]
        return [*head, *(lane_loop(body, width) if width > 1 else body)]
    found: list[str] = []
    for number, (ld, to) in enumerate(zip(reads, kept, strict=True)):
        if ld.source < kernel.inputs:
            lines, (text,) = Emitter(printer, known, prefix=f"y{number}_").values([ld])
        else:
            lines, (at,) = Emitter(printer, known, prefix=f"y{number}_").values([ld.index[0]])
            text = _from_others(printer, ld, at)
        found += [*lines, f"{to} = {text};"]
    return found


HALF_FROM_OTHERS = """float half_from_others(volatile __global const ushort* at) {
  const ushort bits = *at;
  return vload_half(0, (const half*)&bits);
}
"""


def _from_others(printer: CPrinter, ld: Load, at: str) -> str:
    """In OpenCL, the text of an element, as a value, that another work-group of the launch may have written."""
    name, dtype = printer.params[ld.source]
    if dtype is F16:
        printer.helpers.setdefault("half_from_others", HALF_FROM_OTHERS)
        return f"half_from_others((volatile __global const ushort*){name} + {at})"
    return printer.widened(f"((volatile __global const {printer.dialect.storage_type(dtype)}*){name})[{at}]", dtype)
