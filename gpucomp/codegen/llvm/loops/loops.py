"""The loops family on the CPU: one axis is vectorized, the others are loops. Windows of pools are unrolled here too."""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.printer import LaneValue
from gpucomp.codegen.llvm.loops.blocks import blocks_of
from gpucomp.codegen.llvm.loops.nest import (
    Entry,
    FlatStore,
    Flattener,
    cut,
    lane_index,
    lower,
    merge_axes,
    narrowed,
    offsets,
    operations,
    vector_score,
)
from gpucomp.device.target import Target
from gpucomp.expr.core import Expr, Var, reduce, substitute, var
from gpucomp.expr.simplify import coefficient, simplify
from gpucomp.ir.size import Size, is_one
from gpucomp.kernel import Kernel, Loops, Window
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule

PARTS = (16, 8, 4)  # elements of a cache line, of those that divide an axis
MOST_STEP = 16  # from lane to lane; farther ones are in other cache lines


def emit_loops(
    kernel: Kernel, domain: Sequence[Var], values: dict[Expr, Expr], schedule: Schedule, name: str, target: Target
) -> Emitted:
    """The function's text and its number of tasks. ``values`` replaces holes."""
    flat = Flattener(kernel.params)
    stores = flat.stores(kernel, values)
    count = len(stores)
    axes, exprs = merge_axes(domain, [s.offset for s in stores] + [s.value for s in stores])
    stores = [FlatStore(s.target, exprs[i], exprs[count + i]) for i, s in enumerate(stores)]
    entry = Entry(kernel, name, target)
    code, width = entry.code, schedule["lanes"]
    where, reads = exprs[:count], offsets(exprs)
    vector: Var | None = None
    if width and axes:
        vector = max(reversed(axes), key=lambda a: vector_score(a, where, reads, width))
        if vector_score(vector, where, reads, width) <= 0:
            vector = None
    width = narrowed(width, vector)
    axes, exprs, tile = _tiled(axes, exprs, vector, where, reads)
    stores = [FlatStore(s.target, exprs[i], exprs[count + i]) for i, s in enumerate(stores)]
    outer = [a for a in axes if a is not vector and a not in tile]
    extent = vector.extent if vector is not None else 1
    work = operations(exprs) / max(width, 1)
    tasks = cut(outer, extent, width, schedule["tasks"], work)
    program = lower([e for s in stores for e in (s.offset, s.value)], axes, schedule["unroll"])
    bound: dict[Expr, LaneValue] = {}

    blocks = blocks_of(exprs, vector, tile, MOST_STEP, axes)

    def stored(mask: Value | None, loaded: dict[Expr, Value] | None = None) -> None:
        printer = entry.printer(program, bound, width, mask, loaded)
        for i, store in enumerate(stores):
            printer.store(store.target, program.results[2 * i], program.results[2 * i + 1])

    def point(position: Value, mask: Value | None) -> None:
        if vector is not None:
            bound[vector] = lane_index(position, width)
        if blocks is None or mask is not None:
            with entry.nested(tile, bound):
                stored(mask)
            return
        filled = blocks.filled(entry, bound, position, width)
        with code.loop(0, blocks.inner.extent) as step:
            bound[blocks.inner] = step
            stored(None, blocks.loaded(entry, filled, step, width))

    with code.loop(entry.first, entry.last) as task:
        parts = entry.decompose(task, [*(a.extent for a in tasks.axes), tasks.blocks])
        bound.update(zip(tasks.axes, parts, strict=False))
        with entry.nested(tasks.inner, bound):
            if vector is None:
                point(code.integer(0), None)
            elif is_one(tasks.blocks):
                entry.chunks(0, extent, width, point, extent)
            else:
                start = parts[-1] * tasks.block
                entry.chunks(start, code.minimum(start + tasks.block, extent), width, point, extent)
    return entry.emitted(tasks.count)


def _tiled(
    axes: Sequence[Var], exprs: Sequence[Expr], vector: Var | None, stores: Sequence[Expr], reads: Sequence[Expr]
) -> tuple[list[Var], list[Expr], list[Var]]:
    """Axes and expressions with the axis along which a transposed operand is contiguous in two, and its inner part.

    Lanes then read a cache line of the operand in each lane's row, and the loop over the inner part, which is inside the loop
    over lanes, the rest of these lines. In the loop over whole rows they would be read again, once for each of their elements.
    """
    axes, exprs = list(axes), list(exprs)
    for axis in reversed(axes):
        across = [offset for offset in reads if is_one(coefficient(offset, axis))]
        if vector is None or axis is vector or not across or isinstance(axis.extent, Size):
            continue
        if all((step := coefficient(offset, vector)) is None or abs(step) <= MOST_STEP for offset in across):
            continue
        part = next((n for n in PARTS if axis.extent % n == 0), 0)
        if not part or part == axis.extent:
            continue
        outer, inner = var(f"{axis.name}_outer", axis.extent // part), var(f"{axis.name}_inner", part)
        exprs = [simplify(substitute(e, {axis: outer * part + inner})) for e in exprs]
        axes[axes.index(axis) : axes.index(axis) + 1] = [outer, inner]
        return axes, exprs, [inner]
    return axes, exprs, []


def emit_elementwise(kernel: Kernel[Loops], schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    return emit_loops(kernel, kernel.body.domain, {}, schedule, name, target)


def emit_pool(kernel: Kernel[Window], schedule: Schedule, name: str, target: Target) -> Emitted:
    """A pool as loops; its window is a reduction within each of its stores."""
    window = kernel.body
    values: dict[Expr, Expr] = {window.acc: reduce(window.op, window.window, window.value)}
    return emit_loops(kernel, window.domain, values, schedule, name, target)
