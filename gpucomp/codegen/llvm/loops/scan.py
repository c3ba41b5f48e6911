"""The scan family on the CPU: one running value a row. Lanes run over rows where those are contiguous.

Rows side by side are taken in blocks whose running values stay in the first cache, so that memory is walked in order.
A sum is that of adding one by one: off by at most ``(n - 1) * 2**-24 * sum |x|`` in f32, to first order.
"""

from __future__ import annotations

from gpucomp.codegen.llvm.ir import arithmetic, storage
from gpucomp.codegen.llvm.ir.builder import Type, Value
from gpucomp.codegen.llvm.ir.printer import LaneValue
from gpucomp.codegen.llvm.loops.nest import (
    Entry,
    FlatStore,
    Flattener,
    cut,
    lane_index,
    lower,
    merge_axes,
    offsets,
    operations,
    vector_score,
)
from gpucomp.device.target import Target
from gpucomp.expr.core import REDUCTIONS, Expr, identity_of
from gpucomp.kernel import Kernel, Scan
from gpucomp.schedule.space import Schedule

BLOCK = 1024  # rows side by side whose running values are kept: 4 KiB of f32


def emit_scan(kernel: Kernel, schedule: Schedule, name: str, target: Target) -> tuple[str, int]:
    """The function's text and its number of tasks."""
    body = kernel.body
    assert isinstance(body, Scan)
    entry = Entry(kernel, name, target)
    code, width = entry.code, schedule["lanes"]
    flat = Flattener(kernel.params)
    stores = flat.stores(kernel)
    exprs = [flat(body.value), *(s.offset for s in stores), *(s.value for s in stores)]
    rows, exprs = merge_axes(body.rows, exprs, flat.simplify)
    count = len(stores)
    stores = [FlatStore(s.target, exprs[1 + i], exprs[1 + count + i]) for i, s in enumerate(stores)]
    where, reads = exprs[1 : 1 + count], offsets(exprs)
    vector = max(rows, key=lambda a: vector_score(a, where, reads, width), default=None) if width else None
    if vector is not None and (
        vector_score(vector, where, reads, width) <= max(0.0, vector_score(body.axis, where, reads, width))
    ):
        vector = None
    width = width if vector is not None else 0
    while width > 2 and vector is not None and vector.extent <= width // 2:
        width //= 2
    outer = [a for a in rows if a is not vector]
    extent = vector.extent if vector is not None else 1
    work = operations(exprs) * body.axis.extent / max(width, 1)
    tasks = cut(outer, extent, width, schedule["tasks"], work)
    value = lower([exprs[0]], [*rows, body.axis], schedule["unroll"])
    stored = lower([e for s in stores for e in (s.offset, s.value)], [*rows, body.axis, body.acc], schedule["unroll"])
    bound: dict[Expr, LaneValue] = {}
    dtype = body.acc.dtype
    type, fn = Type(storage.register_scalar(dtype), width), REDUCTIONS[body.op]
    neutral = arithmetic.constant(code, identity_of(body.op, dtype), dtype, width)
    block = min(BLOCK, -(-extent // max(width, 1)) * max(width, 1))
    running, align = code.stack(f"[{block} x {type.scalar}]", 64), type.bits // 8

    def step(at: Value, mask: Value | None, first: Value | int) -> None:
        """One element of each lane's row: ``at`` is the first lane's row, ``first`` that of the block."""
        if vector is not None:
            bound[vector] = lane_index(at, width)
        address = code.gep(running, at - first, type.scalar)
        before = code.load(address, type, align)
        element = entry.printer(value, bound, width, mask).lanes(value.results[0])
        after = arithmetic.apply(fn, dtype, [before, element])
        code.store(after, address, align)
        bound[body.acc] = before if body.exclusive else after
        printer = entry.printer(stored, bound, width, mask)
        for i, store in enumerate(stores):
            printer.store(store.target, stored.results[2 * i], stored.results[2 * i + 1])

    def rows_of(first: Value | int, stop: Value | int) -> None:
        """All of the rows ``first .. stop``, at most ``block`` of them."""
        with code.loop(0, block, max(width, 1)) as at:
            code.store(neutral, code.gep(running, at, type.scalar), align)
        with code.loop(0, body.axis.extent) as i:
            bound[body.axis] = code.integer(body.axis.extent - 1) - i if body.reverse else i
            if vector is None:
                step(code.integer(0), None, 0)
            else:
                entry.chunks(first, stop, width, lambda at, mask: step(at, mask, first), extent)

    with code.loop(entry.first, entry.last) as task:
        parts = entry.decompose(task, [*(a.extent for a in tasks.axes), tasks.blocks])
        bound.update(zip(tasks.axes, parts, strict=False))
        with entry.nested(tasks.inner, bound):
            if tasks.blocks == 1 and extent <= block:
                rows_of(0, extent)
            else:
                start = parts[-1] * tasks.block if tasks.blocks > 1 else code.integer(0)
                with code.loop(start, code.minimum(start + tasks.block, extent), block) as first:
                    rows_of(first, code.minimum(code.minimum(first + block, start + tasks.block), extent))
    return entry.text(), tasks.count
