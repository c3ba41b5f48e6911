"""Statements of the row statistics behind a contraction's stores: ``kernels_templates/contraction/tail.j2`` has the loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.access import Rewriter, vector_loads
from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.emit import LANE, Emitter, flat_stores, lane_loop, lanes_of
from gpucomp.codegen.fences import add_fences
from gpucomp.codegen.operand import ACCESS_BYTES, WIDTHS, count, places
from gpucomp.expr.core import Expr, Load, Select, Var, hole, identity_of, index, loads, substitute, var, walk
from gpucomp.ir.types import F16, U32
from gpucomp.kernel import Contraction, Kernel, Tail
from gpucomp.schedule.lockstep import gcd, least, most
from gpucomp.schedule.space import REGISTER_FILE

SHUFFLED = 32  # threads of a CUDA warp
LANES = 32  # work-items that share a row: a warp, where the work-group has one
KEPT = 96  # registers of elements that a work-item keeps of its rows, at most
OTHER_REGISTERS = 40  # addresses, statistics, counters of the loops
AT_ONCE = 4  # rows of a work-item whose elements are under way together


def no_tail(kernel: Kernel) -> str:
    """Why an engine that stores and ends cannot compute ``kernel``; empty where nothing follows the stores."""
    followed = isinstance(kernel.body, Contraction) and kernel.body.tail is not None
    return "it ends with its stores, and row statistics follow them" if followed else ""


def tail_of(kernel: Kernel) -> Tail | None:
    return kernel.body.tail if isinstance(kernel.body, Contraction) else None


def read_again(kernel: Kernel) -> frozenset[int]:
    """The outputs that row statistics read back: other work-groups wrote parts of them."""
    tail = tail_of(kernel)
    found = {ld.source for e in tail.expressions() for ld in loads(e)} if tail else set()
    return frozenset(source for source in found if source >= kernel.inputs)


def tail_reads(kernel: Kernel) -> list[Load]:
    """What statistics read of each element of a row, whatever any condition says; each once."""
    body, tail = kernel.body, tail_of(kernel)
    assert isinstance(body, Contraction)
    if tail is None:
        return []
    return reads_of([s.value for s in tail.statistics], frozenset(body.n))


def reads_of(values: Sequence[Expr], columns: frozenset[Var]) -> list[Load]:
    guarded = {ld for e in values for n in walk(e) if isinstance(n, Select) for ld in loads(n)}
    found = dict.fromkeys(ld for e in values for ld in loads(e) if ld.free & columns)
    return [ld for ld in found if ld not in guarded]


def tail_width(kernel: Kernel) -> int:
    """Columns that every read of a row may take at once: side by side, aligned, at most 16 bytes."""
    body, reads = kernel.body, tail_reads(kernel)
    assert isinstance(body, Contraction)
    columns = count(body.n)
    for width in WIDTHS:
        if columns % width or not reads:
            continue
        lane = var(LANE, width)
        _, at = columns_of(body, width, lane)
        flat = [Rewriter(kernel.params, at)(ld) for ld in reads]
        wide = {f.load for f in vector_loads(flat, lane, width)}
        if all(ld in wide and width * ld.dtype.nbytes <= ACCESS_BYTES for ld in flat):
            return width
    return 1


def columns_of(body: Contraction, width: int, lane: Var) -> tuple[Var, dict[Expr, Expr]]:
    """The number of an access of ``width`` columns, and the contraction's columns by it and by the lane."""
    columns = count(body.n)
    col, flat = var("col", max(1, columns // width)), var("flat_column", max(1, columns))
    return col, {v: substitute(e, lanes_of(flat, col, lane, width)) for v, e in places(body.n, flat).items()}


def tail_problem(kernel: Kernel) -> dict[str, int]:
    """Sizes of the row statistics; none where a kernel has no such.

    tail_wide         columns that an access of a row may take
    tail_reads        values read of each element; ``tail_bytes`` of them
    tail_statistics   of a row
    """
    tail = tail_of(kernel)
    if tail is None:
        return {}
    reads = tail_reads(kernel)
    return {
        "tail_wide": tail_width(kernel),
        "tail_reads": len(reads),
        "tail_bytes": sum(kernel.params[ld.source].dtype.nbytes for ld in reads),
        "tail_statistics": len(tail.statistics),
    }


def has_tail(p: SimpleNamespace) -> bool:
    return hasattr(p, "tail_wide")


def tail_sizes(threads: Any, rows: Any, p: SimpleNamespace, wide: int = 0) -> SimpleNamespace:
    """How ``threads`` work-items read ``rows`` rows back, by accesses of ``wide`` columns; 0: as wide as memory allows.

    lanes      work-items of a row; ``together`` rows are read side by side
    steps      accesses of a lane in a row; ``words`` registers that hold what they bring
    keep       1: of rows that fit, elements stay in registers from one statistic to the next
    at_once    rows of a lane under way together; ``passes`` over them
    """
    wide = wide or p.tail_wide
    lanes = gcd(threads, LANES)
    together = threads // lanes
    steps = -(-(p.n // wide) // lanes)
    words = steps * wide * p.tail_reads
    room = most(0, least(KEPT, REGISTER_FILE // threads - OTHER_REGISTERS - 4 * p.tail_statistics - 8))
    room = room * (threads > 1)  # who is alone walks along whole rows, which are not written out
    keep = (words <= room) * 1
    at_once = least(most(1, room // most(1, words)), least(AT_ONCE, -(-rows // together)))
    return SimpleNamespace(
        wide=wide, lanes=lanes, together=together, steps=steps, words=words, keep=keep, at_once=at_once,
        passes=-(-rows // (together * at_once)),
    )  # fmt: skip


def tail_hooks(
    kernel: Kernel, printer: CPrinter, p: SimpleNamespace, threads: int, rows: int, sharers: int
) -> Mapping[str, Any]:
    """``tail`` for the template, ``None`` where there is none: of work-groups of ``threads`` that store ``rows`` rows each.

    sharers      work-groups that store parts of the same rows
    read         statements of an access: they leave its elements in ``kept``, (name, type, count) each
    statistics   name, type, identity, body: the statements of an access, combined: with what another lane has;
                 reads_row: whether those statements do
    stores       once a row
    shuffles     lanes exchange values by shuffles
    """
    body, tail = kernel.body, tail_of(kernel)
    assert isinstance(body, Contraction)
    if tail is None:
        return {"tail": None}
    # OpenCL's vectors do not go through pointers to what other work-groups change
    z = tail_sizes(threads, rows, p, 0 if printer.dialect.name == "cuda" else 1)
    width, batch = z.wide, var("batch", p.batch) if p.batch > 1 else index(0)
    row, lane = var("row", max(1, count(body.m))), var(LANE, width)
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
        name, dtype = f"s{number}", statistic.hole.dtype
        emitter = Emitter(printer, in_column, prefix="t")
        value = substitute(value, held)
        if width > 1:
            head, lines, (text,) = emitter.lanes([value], lane, width)
        else:
            head, (lines, (text,)) = [], emitter.values([value])
        ctype = printer.dialect.value_type(dtype)
        op, at = statistic.op, f"{name}[r]"
        inner = [*lines, f"const {ctype} term = {text};", f"{at} = {printer.combine(op, dtype, at, 'term')};"]
        statistics.append({
            "name": name,
            "type": ctype,
            "identity": printer.dialect.literal(identity_of(op, dtype), dtype),
            "body": [*head, *(lane_loop(inner, width) if width > 1 else inner)],
            "reads_row": bool(value.free & frozenset(known)),
            "combined": printer.combine(op, dtype, at, "other"),
        })  # fmt: skip
        known[statistic.hole] = in_column[statistic.hole] = at
    once = Emitter(printer, known, prefix="o").store(flat_stores(tail.stores, rewriter))
    words = z.steps * width if z.keep else width
    types = [printer.dialect.value_type(ld.dtype) for ld in reads]
    return {
        "tail": SimpleNamespace(
            read=read,
            kept=[(f"kept{i}", ctype, words) for i, ctype in enumerate(types)],
            statistics=statistics,
            stores=once,
            shuffles=printer.dialect.name == "cuda" and threads % SHUFFLED == 0,
            threads=threads,
            rows=rows,
            sharers=sharers,
            accesses=count(body.n) // width,
            **{k: v for k, v in vars(z).items() if k not in ("wide", "words")},
        )
    }


def tail_scratch(printer: CPrinter, hooks: Mapping[str, Any]) -> list[dict[str, str]]:
    """The parameter by which work-groups count each other where only rows make them meet."""
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
    """Statements that leave an access of each of ``reads`` in its place of ``kept``."""
    if printer.dialect.name == "cuda":
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
    """An element that another work-group of the launch may have written, as a value, in OpenCL."""
    name, dtype = printer.params[ld.source]
    if dtype is F16:
        printer.helpers.setdefault("half_from_others", HALF_FROM_OTHERS)
        return f"half_from_others((volatile __global const ushort*){name} + {at})"
    return printer.widened(f"((volatile __global const {printer.dialect.storage_type(dtype)}*){name})[{at}]", dtype)
