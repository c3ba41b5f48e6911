"""The stores of contractions and attention: what is done with the sums of a row, for a run of columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucomp.codegen.c.emit import Emitter, FlatStore, flat_stores
from gpucomp.codegen.c.fences import add_fences
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Expr, Var, hole, substitute, var
from gpucomp.ir.extremes import largest
from gpucomp.ir.types import U32, DType
from gpucomp.kernel import Attention, Contraction, Kernel
from gpucomp.kernel.forms.access import Rewriter, parts_within, regroup, split, vector_loads
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import ACCESS_BYTES, count, places


def split_scratch(printer: CPrinter, ctype: str, splits: int) -> list[dict[str, str]]:
    """Extra parameters of work-groups that share a sum: partial results and arrival counters; otherwise none."""
    if splits == 1:
        return []
    add_fences(printer)
    return [
        {"name": "workspace", "type": ctype, "access": "shared"},
        {"name": "counters", "type": printer.dialect.values[U32], "access": "written"},
    ]


def left_sums(printer: CPrinter, dtype: DType, splits: int, run: int) -> dict[str, Any]:
    """How ``run`` neighbouring partial sums are moved to the workspace and back: ``left_at_once`` is four or one.

    With one access per sum, clang 19 keeps the uniform part of every address in scalar registers; for 64 addresses an
    AMD GPU does not have enough of them.
    """
    whole = splits > 1 and dtype.nbytes == 4 and run % 4 == 0
    return {"left_at_once": 4 if whole else 1, "leave": printer.dialect.leave, "found": printer.dialect.found}


@dataclass(frozen=True)
class Epilogue:
    """The statements of a kernel's stores.

    row_lines  statements that run once per row
    store      statements that run once per run of columns
    col        the number of the run
    exprs      offsets and values of the stores
    row_parts  the subexpressions of these that ``row_lines`` computes
    early      statements that fetch, ahead of time, what the stores read besides the sums: ``early_count`` times 16
               bytes, into ``early[0]``, ...
    """

    row_lines: list[str]
    store: list[str]
    col: Var
    exprs: list[Expr]
    row_parts: list[Expr]
    early: list[str]
    early_count: int


def epilogue(
    kernel: Kernel[Contraction | Attention],
    printer: CPrinter,
    batch: Expr,
    width: int,
    acc: str,
    column: Callable[[Var, int], Mapping[Expr, str]] | None = None,
    into: str = "",
    fetched_early: bool = False,
) -> Epilogue:
    """The stores of a contraction or an attention, for a run of ``width`` columns of a row.

    They read ``batch`` (if it is a variable), ``row``, ``col`` (the number of the run) and the result. The result's
    text is ``acc``, for one ``lane`` if a run has several. ``column(col, width)`` gives other texts for the position of
    the run. ``into`` is an array of ``width`` elements that receives the values of the only store, instead of memory.
    With ``fetched_early`` the stores use what ``early`` fetched, such as residuals; the template decides when to fetch
    it.
    """
    body = kernel.body
    row_axes, column_axes = (body.m, body.n) if isinstance(body, Contraction) else (body.rows, body.values)
    rows, columns = count(row_axes), count(column_axes)
    row, col, lane = var("row", largest(1, rows)), var("col", largest(1, columns // width)), var(LANE, width)
    flat = var("flat", largest(1, columns))
    at = {v: substitute(e, lanes_of(flat, col, lane, width)) for v, e in places(column_axes, flat).items()}
    rewriter = Rewriter(kernel.params, places(row_axes, row) | at | places(body.batch, batch))
    groups: Sequence[frozenset[Var]] = (batch.free | {row}, frozenset({col}))
    stores = [
        FlatStore(t.target, split(t.offset, groups), regroup(t.value, groups))
        for t in flat_stores(kernel.stores, rewriter)
    ]
    exprs = [e for t in stores for e in ((t.value,) if into else (t.offset, t.value))]
    known: dict[Expr, str] = {row: "row"}
    known.update(dict.fromkeys(batch.free, "batch"))
    row_lines, names = Emitter(printer, known, prefix="r").named(parts_within(exprs, groups[0]))
    known.update(names)
    known.update(column(col, width) if column else {col: "col"})
    known[body.acc] = acc
    if width > 1:
        known[lane] = LANE
    early, taken = list[str](), list[str]()
    if fetched_early and width > 1:
        early, taken, known, stores = _fetched_early(printer, stores, known, row, lane, width)
    if into:
        (only,) = stores
        written = Emitter(printer, known).kept(only.target, only.value, into, lane, width)
    else:
        written = Emitter(printer, known).store(stores, lane, width)
    return Epilogue(row_lines, [*taken, *written], col, exprs, list(names), early, len(taken) // 2)


def _fetched_early(
    printer: CPrinter, stores: Sequence[FlatStore], known: Mapping[Expr, str], row: Var, lane: Var, width: int
) -> tuple[list[str], list[str], dict[Expr, str], list[FlatStore]]:
    """Loads that can be fetched ahead of the stores.

    Returns the statements that fetch, the statements that unpack before the stores, the known values after these, and
    the stores that read them. Only loads of 16 bytes that depend on the row are fetched early: what all rows read, such
    as a bias, is in the cache.
    """
    emitter = Emitter(printer, known, prefix="p")
    early, taken, held = list[str](), list[str](), dict[Expr, str]()
    replaced: dict[Expr, Expr] = {}
    for found in vector_loads([t.value for t in stores], lane, width):
        _, dtype = printer.params[found.load.source]
        if found.guards or row not in found.load.index[0].free or width * dtype.nbytes != ACCESS_BYTES:
            continue
        name, number = f"early{len(replaced)}", len(replaced)
        lines, place = emitter.place(found.load, lane)
        early += [*lines, f"early[{number}] = *reinterpret_cast<const uint4*>({place});"]
        array = printer.dialect.aligned_array(printer.dialect.moved_type(dtype), name, width)
        taken += [array, f"*reinterpret_cast<uint4*>({name}) = early[{number}];"]
        stand_in = hole(name, found.load.dtype)
        held[stand_in] = printer.fetched(f"{name}[{LANE}]", dtype)
        replaced[found.load] = stand_in
    changed = [FlatStore(t.target, t.offset, substitute(t.value, replaced)) for t in stores]
    return early, taken, {**known, **held}, changed
