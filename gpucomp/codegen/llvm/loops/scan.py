"""The scan family on the CPU: one running value per row. Lanes run over rows if these are contiguous.

Adjacent rows are processed in blocks whose running values stay in the first-level cache, so that memory is read in
order. Sums are added one by one; in f32 the error is at most ``(n - 1) * 2**-24 * sum |x|``, to first order.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.codegen.llvm.ir import arithmetic, storage
from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.printer import LaneValue
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.codegen.llvm.loops.nest import (
    Entry,
    FlatStore,
    Flattener,
    Tasks,
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
from gpucomp.expr.core import REDUCTIONS, Expr, Var, identity_of
from gpucomp.ir.size import Size, at_most, bounds, hint, is_one
from gpucomp.kernel import Kernel, Scan
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule

BLOCK = 1024  # adjacent rows whose running values are kept: 4 KiB of f32


class _Scan:
    """One kernel's rows and expressions after merging, the axis of rows that lanes run over, and the running values."""

    def __init__(self, kernel: Kernel[Scan], schedule: Schedule, name: str, target: Target) -> None:
        self.entry = Entry(kernel, name, target)
        body = self.body = kernel.body
        code = self.code = self.entry.code
        flat = Flattener(kernel.params)
        stores = flat.stores(kernel)
        exprs = [flat(body.value), *(s.offset for s in stores), *(s.value for s in stores)]
        self.rows, exprs = merge_axes(body.rows, exprs)
        count = len(stores)
        self.stores = [FlatStore(s.target, exprs[1 + i], exprs[1 + count + i]) for i, s in enumerate(stores)]
        self.vector = self._vector(exprs, schedule["lanes"])
        self.width = narrowed(schedule["lanes"], self.vector)
        self.extent = self.vector.extent if self.vector is not None else 1
        self.exprs = exprs
        axes, unroll = [*self.rows, body.axis], schedule["unroll"]
        self.value = lower([exprs[0]], axes, unroll)
        self.stored = lower([e for s in self.stores for e in (s.offset, s.value)], [*axes, body.acc], unroll)
        self.bound: dict[Expr, LaneValue] = {}
        self.type = Type(storage.register_scalar(body.acc.dtype), self.width)
        step = max(self.width, 1)
        self.block = min(BLOCK, -(-int(bounds(self.extent)[1]) // step) * step)
        self.neutral = arithmetic.constant(code, identity_of(body.op, body.acc.dtype), body.acc.dtype, self.width)
        self.running = code.stack(f"[{self.block} x {self.type.scalar}]", 64)

    def _vector(self, exprs: Sequence[Expr], width: int) -> Var | None:
        """The axis of rows that lanes run over: memory is more contiguous along it than along the scan."""
        if not width:
            return None
        where, reads = [s.offset for s in self.stores], offsets(exprs)

        def score(axis: Var) -> float:
            return vector_score(axis, where, reads, width)

        best = max(self.rows, key=score, default=None)
        return best if best is not None and score(best) > max(0.0, score(self.body.axis)) else None

    def tasks(self, wanted: int) -> Tasks:
        outer = [a for a in self.rows if a is not self.vector]
        work = float(operations(self.exprs) * hint(self.body.axis.extent) / max(self.width, 1))
        return cut(outer, self.extent, self.width, wanted, work)

    def rows_of(self, first: Value | int, stop: Value | int) -> None:
        """Scans the rows ``first .. stop``, at most ``block`` of them."""
        code, axis = self.code, self.body.axis
        rows = (
            (stop if isinstance(stop, Value) else code.integer(stop)) - first
            if isinstance(self.extent, Size)
            else self.block
        )
        with code.loop(0, rows, max(self.width, 1)) as at:
            code.store(self.neutral, self._place(at), self.type.bits // 8)
        with code.loop(0, axis.extent) as i:
            self.bound[axis] = code.integer(axis.extent - 1) - i if self.body.reverse else i
            if self.vector is None:
                self._step(code.integer(0), None, 0)
            else:
                self.entry.chunks(first, stop, self.width, lambda at, mask: self._step(at, mask, first), self.extent)

    def _place(self, row: Value) -> Value:
        """The address of a row's running value within the block."""
        return self.code.gep(self.running, row, self.type.scalar)

    def _step(self, at: Value, mask: Value | None, first: Value | int) -> None:
        """One element of each lane's row. ``at`` is the row of lane 0, ``first`` the first row of the block."""
        entry, code, body = self.entry, self.code, self.body
        if self.vector is not None:
            self.bound[self.vector] = lane_index(at, self.width)
        address, align = self._place(at - first), self.type.bits // 8
        before = code.load(address, self.type, align)
        element = entry.printer(self.value, self.bound, self.width, mask).lanes(self.value.results[0])
        after = arithmetic.apply(REDUCTIONS[body.op], body.acc.dtype, [before, element])
        code.store(after, address, align)
        self.bound[body.acc] = before if body.exclusive else after
        printer = entry.printer(self.stored, self.bound, self.width, mask)
        for i, store in enumerate(self.stores):
            printer.store(store.target, self.stored.results[2 * i], self.stored.results[2 * i + 1])


def emit_scan(kernel: Kernel[Scan], schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    scan = _Scan(kernel, schedule, name, target)
    entry, code, extent = scan.entry, scan.code, scan.extent
    tasks = scan.tasks(schedule["tasks"])
    with code.loop(entry.first, entry.last) as task:
        parts = entry.decompose(task, [*(a.extent for a in tasks.axes), tasks.blocks])
        scan.bound.update(zip(tasks.axes, parts, strict=False))
        with entry.nested(tasks.inner, scan.bound):
            if is_one(tasks.blocks) and at_most(extent, scan.block):
                scan.rows_of(0, extent)
            else:
                start = code.integer(0) if is_one(tasks.blocks) else parts[-1] * tasks.block
                with code.loop(start, code.minimum(start + tasks.block, extent), scan.block) as first:
                    scan.rows_of(first, code.minimum(code.minimum(first + scan.block, start + tasks.block), extent))
    return entry.emitted(tasks.count)
