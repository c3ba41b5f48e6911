"""What every contraction engine does with its sums: the stores of a kernel, a run of columns of one row at a time."""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.codegen.access import Rewriter, is_aligned, parts_within, regroup, split
from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.emit import LANE, Emitter, FlatStore, flat_stores, lanes_of
from gpucomp.codegen.operand import ACCESS_BYTES, count, places
from gpucomp.expr.core import Expr, Var, substitute, var
from gpucomp.kernel import Attention, Contraction, Kernel

WIDTHS = (16, 8, 4, 2)


def store_width(kernel: Kernel) -> int:
    """Columns that every store of the result may take at once: side by side, aligned, at most 16 bytes."""
    body = kernel.body
    assert isinstance(body, (Contraction, Attention))
    axes = body.n if isinstance(body, Contraction) else body.values
    columns = count(axes)
    for width in WIDTHS:
        fits = all(width * kernel.params[s.target].dtype.nbytes <= ACCESS_BYTES for s in kernel.stores)
        if columns % width or not fits:
            continue
        quotient, lane = var("quotient", columns // width), var(LANE, width)
        at = lanes_of(var("flat", columns), quotient, lane, width)
        flat = next(iter(at))
        assert isinstance(flat, Var)
        rewrite = Rewriter(kernel.params, {v: substitute(e, at) for v, e in places(axes, flat).items()})
        if all(is_aligned(rewrite.offset(s.target, s.index), lane, width) for s in kernel.stores):
            return width
    return 1


def epilogue(
    kernel: Kernel, printer: CPrinter, batch: Var, rows: int, columns: int, width: int
) -> tuple[list[str], list[str]]:
    """(lines once a row, lines once a run of ``width`` columns) of the stores.

    They read ``batch``, ``row``, ``col``, which counts runs, and the sums: ``sums[lane]``, or ``sum`` when ``width``
    is 1.
    """
    body = kernel.body
    assert isinstance(body, Contraction)
    row, col, lane = var("row", max(1, rows)), var("col", max(1, columns // width)), var(LANE, width)
    flat = var("flat", max(1, columns))
    at = {v: substitute(e, lanes_of(flat, col, lane, width)) for v, e in places(body.n, flat).items()}
    rewriter = Rewriter(kernel.params, places(body.m, row) | at | places(body.batch, batch))
    groups: Sequence[frozenset[Var]] = (frozenset({row, batch}), frozenset({col}))
    stores = [
        FlatStore(t.target, split(t.offset, groups), regroup(t.value, groups))
        for t in flat_stores(kernel.stores, rewriter)
    ]
    exprs = [e for t in stores for e in (t.offset, t.value)]
    known: dict[Expr, str] = {batch: "batch", row: "row"}
    row_lines, names = Emitter(printer, known, prefix="r").named(parts_within(exprs, groups[0]))
    known |= names | {col: "col", body.acc: "sum" if width == 1 else f"sums[{LANE}]"}
    if width > 1:
        known[lane] = LANE
    return row_lines, Emitter(printer, known).store(stores, lane, width)
