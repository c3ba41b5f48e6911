"""The rowwise family on the CPU (softmax, norms, reductions): row statistics, then stores.

Lanes run over columns, or over rows if rows are contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpucomp.codegen.llvm.core_space import COSTLY, LINE, is_costly
from gpucomp.codegen.llvm.ir import arithmetic, storage
from gpucomp.codegen.llvm.ir.builder import Slot, Value
from gpucomp.codegen.llvm.ir.printer import LaneValue, Printer
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.codegen.llvm.loops.nest import (
    Entry,
    FlatStore,
    Flattener,
    Program,
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
from gpucomp.expr.core import REDUCTIONS, Call, Expr, Hole, Var, hole, identity_of, substitute, walk
from gpucomp.expr.lower import Operand
from gpucomp.ir.size import at_most, bounds, hint, is_one, is_zero
from gpucomp.ir.types import F32, DType
from gpucomp.kernel import Kernel, Rowwise, Statistic
from gpucomp.kernel.forms.totals import at_least_one, by_reciprocals, powers_of_totals
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule

SHORT = 24  # most operations of statistics that are written several times
COLUMNS = 4  # that are added in one step: of a maximum, two share the comparison that finds NaN
FAR = 1000  # lanes of a row: beyond, columns are pages apart, and four at once take up to a third longer than two
KEPT_ELEMENTS = 65_536  # most elements of a row that are kept on the stack: 256 KiB


def across(value: Value, op: str, dtype: DType) -> Value:
    """Reduces the lanes of ``value`` by ``op``, half of them at a time."""
    code, lanes = value.code, value.type.lanes
    while lanes > 1:
        half = lanes // 2
        low = code.shuffle(value, value, range(half))
        high = code.shuffle(value, value, range(half, lanes))
        value, lanes = arithmetic.apply(REDUCTIONS[op], dtype, [low, high]), half
    return code.extract(value, 0)


class _Rows:
    """One kernel's axes and expressions after merging, and the values bound so far."""

    def __init__(self, kernel: Kernel, body: Rowwise, schedule: Schedule, name: str, target: Target) -> None:
        self.entry = Entry(kernel, name, target)
        self.code = self.entry.code
        flat = Flattener(kernel.params)
        stores = flat.stores(kernel)
        values = [flat(s.value) for s in body.statistics]
        exprs = values + [s.offset for s in stores] + [s.value for s in stores]
        self.rows, exprs = merge_axes(body.rows, exprs)
        self.cols, exprs = merge_axes(body.cols, exprs)
        n, m = len(values), len(stores)
        self.statistics = [Statistic(s.hole, s.op, exprs[i]) for i, s in enumerate(body.statistics)]
        renewed = [FlatStore(s.target, exprs[n + i], exprs[n + m + i]) for i, s in enumerate(stores)]
        self.row_stores = [s for i, s in enumerate(renewed) if i in body.row_stores]
        self.stores = [s for i, s in enumerate(renewed) if i not in body.row_stores]
        self.exprs, self.schedule = exprs, schedule
        self.empty = any(is_zero(a.extent) for a in body.cols)
        self.bound: dict[Expr, LaneValue] = {}
        self.entry.below_zero = {power for _, power in powers_of_totals(self.statistics)}

    @property
    def holes(self) -> list[Hole]:
        return [s.hole for s in self.statistics]

    def program(self, exprs: Sequence[Expr], axes: Sequence[Expr], holes: Sequence[Hole]) -> Program:
        return lower(exprs, [*axes, *holes], self.schedule["unroll"])

    def store(self, stores: Sequence[FlatStore], program: Program, width: int, mask: Value | None) -> None:
        _write(self.entry.printer(program, self.bound, width, mask), stores, program.results)

    def identity(self, statistic: Statistic, width: int) -> Value:
        dtype = statistic.hole.dtype
        return arithmetic.constant(self.code, identity_of(statistic.op, dtype), dtype, width)


def _spelled(stores: Sequence[FlatStore]) -> list[Expr]:
    """The offset and the value of each store, in the order in which ``_write`` takes their results."""
    return [e for s in stores for e in (s.offset, s.value)]


def _write(printer: Printer, stores: Sequence[FlatStore], results: Sequence[Operand]) -> None:
    for store, offset, value in zip(stores, results[::2], results[1::2], strict=True):
        printer.store(store.target, offset, value)


def _store_program(work: _Rows, stores: Sequence[FlatStore], axes: Sequence[Expr]) -> Program:
    return work.program(_spelled(stores), axes, work.holes)


@dataclass(frozen=True)
class _Kept:
    """The elements of a statistic's value, which stores read instead of computing them again; ``hole`` is one element."""

    statistic: int
    hole: Hole
    room: Value

    def address(self, at: Value) -> Value:
        return at.code.gep(self.room, at, "float")


def _keep(work: _Rows, width: int) -> _Kept | None:
    """Space for the value of the last statistic that is costly and used by the stores, if a row fits the stack."""
    if len(work.cols) != 1 or not at_most(work.cols[0].extent, KEPT_ELEMENTS):
        return None
    used = {node for store in work.stores for node in walk(store.value)}
    for number in reversed(range(len(work.statistics))):
        value = work.statistics[number].value
        if isinstance(value, Call) and value.fn in COSTLY and value.dtype is F32 and value in used:
            kept = hole("kept", F32)
            work.stores = [FlatStore(s.target, s.offset, substitute(s.value, {value: kept})) for s in work.stores]
            room = work.code.stack(f"[{bounds(work.cols[0].extent)[1] + width} x float]", 64)
            return _Kept(number, kept, room)
    return None


def _multiplied(work: _Rows) -> dict[Hole, Hole]:
    """Replaces divisions by a total of at least 1 in the stores by products with its reciprocal, computed once per row."""
    totals = at_least_one(work.statistics)
    reciprocal = {total: hole(f"{total.name}_reciprocal", total.dtype) for total in totals}
    work.stores = [FlatStore(s.target, s.offset, by_reciprocals(s.value, reciprocal)) for s in work.stores]
    return reciprocal


def _independent(statistics: Sequence[Statistic]) -> list[list[int]]:
    """Positions of statistics that follow each other and that one pass over a row computes: none reads another."""
    groups: list[list[int]] = []
    for position, statistic in enumerate(statistics):
        if groups and not _uses([statistic.value], [statistics[k].hole for k in groups[-1]]):
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def _uses(exprs: Sequence[Expr], holes: Sequence[Hole]) -> bool:
    return any(node in holes for e in exprs for node in walk(e))


class _Total:
    """One statistic's accumulators."""

    def __init__(self, work: _Rows, statistic: Statistic, width: int, copies: int) -> None:
        self.code, self.statistic, self.dtype = work.code, statistic, statistic.hole.dtype
        self.slots = [self.code.slot(Type(storage.register_scalar(self.dtype), width)) for _ in range(copies)]
        self.neutral = work.identity(statistic, width)
        for slot in self.slots:
            slot.set(self.neutral)

    def add(self, copy: int, value: Value, mask: Value | None) -> None:
        if mask is not None:
            value = self.code.select(mask, value, self.neutral)
        slot = self.slots[copy]
        slot.set(self._both(slot.get(), value))

    def value(self) -> Value:
        total = self.slots[0].get()
        for slot in self.slots[1:]:
            total = self._both(total, slot.get())
        return across(total, self.statistic.op, self.dtype)

    def _both(self, a: Value, b: Value) -> Value:
        return arithmetic.apply(REDUCTIONS[self.statistic.op], self.dtype, [a, b])


class _Columns:
    """Lanes run over the last column axis. Each statistic has several accumulators, which hide the operation's latency."""

    def __init__(self, work: _Rows, width: int) -> None:
        self.work, self.entry, self.code, self.bound = work, work.entry, work.code, work.bound
        *self.outer, self.inner = work.cols
        self.width = narrowed(width, self.inner)
        self.copies = max(1, min(work.schedule["copies"], int(hint(self.inner.extent)) // self.width))
        axes = [*work.rows, *work.cols]
        self.groups = _independent(work.statistics)
        self.reciprocals = _multiplied(work)
        together = len(self.groups) == 1 and not _uses(_spelled(work.stores), work.holes)
        self.early = work.stores if together else []  # in the pass of the statistics
        self.kept = None if self.early else _keep(work, self.width)
        self.later = [] if self.early else work.stores
        more = [*self.reciprocals.values(), *([self.kept.hole] if self.kept else [])]
        self.programs = [
            work.program(
                [*(work.statistics[k].value for k in group), *_spelled(self.early)], axes, work.holes[: group[0]]
            )
            for group in self.groups
        ]
        self.elements = _store_program(work, self.later, [*axes, *more])
        self.once = _store_program(work, work.row_stores, work.rows)

    def emit(self) -> int:
        """Writes the loops and returns the number of tasks."""
        work = self.work
        columns = math.prod(hint(axis.extent) for axis in self.outer) * max(1, hint(self.inner.extent))
        effort = float(operations(work.exprs) * columns / self.width)
        tasks = cut(work.rows, 1, 1, work.schedule["tasks"], effort)
        with self.code.loop(self.entry.first, self.entry.last) as task:
            parts = self.entry.decompose(task, [a.extent for a in tasks.axes])
            self.bound.update(zip(tasks.axes, parts, strict=True))
            with self.entry.nested(tasks.inner, self.bound):
                self._row()
        return tasks.count

    def _row(self) -> None:
        """Writes the statistics of a row, then its stores."""
        work = self.work
        for group, program in zip(self.groups, self.programs, strict=True):
            for position, total in zip(group, self._statistics(group, program), strict=True):
                stat = work.statistics[position]
                self.bound[stat.hole] = total
                if stat.hole in self.reciprocals:
                    self.bound[self.reciprocals[stat.hole]] = self.code.const(1.0, total.type) / total
        if work.row_stores:
            work.store(work.row_stores, self.once, 0, None)
        if self.later:
            with self.entry.nested(self.outer, self.bound):
                self.entry.chunks(0, self.inner.extent, self.width, self._element, self.inner.extent)

    def _statistics(self, group: Sequence[int], program: Program) -> list[Value]:
        """The statistics of ``group``, in one pass over the row, which writes the stores too if they wait for nothing."""
        code, width, extent, copies = self.code, self.width, self.inner.extent, self._copies(group)
        totals = [_Total(self.work, self.work.statistics[k], width, copies) for k in group]

        def add(copy: int, at: Value, mask: Value | None) -> None:
            for total, value in zip(totals, self._terms(group, program, at, mask), strict=True):
                total.add(copy, value, mask)

        with self.entry.nested(self.outer, self.bound):
            several = extent - extent % (width * copies) if copies > 1 else 0
            if not is_zero(several):
                with code.loop(0, several, width * copies) as at:
                    for copy in range(copies):
                        add(copy, at + copy * width, None)
            self.entry.chunks(several, extent, width, lambda at, mask: add(0, at, mask), extent)
        return [total.value() for total in totals]

    def _copies(self, group: Sequence[int]) -> int:
        """How many accumulators. Where two registers are abreast for a costly function, one: no more would fit the registers."""
        abreast = 4 * self.width > self.entry.target.limits.vector_bytes
        return 1 if abreast and is_costly(self.work.statistics[k].value for k in group) else self.copies

    def _terms(self, group: Sequence[int], program: Program, at: Value, mask: Value | None) -> list[Value]:
        """What the columns from ``at`` on contribute to each statistic. It is kept if the stores need it."""
        self.bound[self.inner] = lane_index(at, self.width)
        printer = self.entry.printer(program, self.bound, self.width, mask)
        values = [printer.lanes(result) for result in program.results[: len(group)]]
        if self.kept and self.kept.statistic in group:
            self.code.store(values[group.index(self.kept.statistic)], self.kept.address(at), 4)
        _write(printer, self.early, program.results[len(group) :])
        return values

    def _element(self, at: Value, mask: Value | None) -> None:
        self.bound[self.inner] = lane_index(at, self.width)
        if self.kept:
            self.bound[self.kept.hole] = self.code.load(self.kept.address(at), Type("float", self.width), 4)
        self.work.store(self.later, self.elements, self.width, mask)


class _Side:
    """Rows in the lanes: one vector of them, or a cache line at a time. Several columns are added in one step."""

    def __init__(self, work: _Rows, lanes: Var | None, width: int) -> None:
        self.work, self.lanes, self.width = work, lanes, width
        axes = [*work.rows, *work.cols]
        self.programs = [work.program([s.value], axes, work.holes[:i]) for i, s in enumerate(work.statistics)]
        self.elements = _store_program(work, work.stores, axes)
        self.once = _store_program(work, work.row_stores, work.rows)
        self.together, self.columns = 1, 1
        if lanes is not None and operations([s.value for s in work.statistics]) <= SHORT:
            line = LINE // (width * max((s.hole.dtype.nbytes for s in work.statistics), default=LINE))
            self.together = max(1, min(work.schedule["copies"], line, int(hint(lanes.extent)) // width))
            self.columns = COLUMNS if hint(lanes.extent) <= FAR else 2

    def row(self, vectors: Sequence[tuple[Value, Value | None]]) -> None:
        """The statistics and the stores of the rows that each of ``vectors`` begins with, in the lanes of its mask."""
        work, bound = self.work, self.work.bound
        known: list[dict[Hole, Value]] = [{} for _ in vectors]

        def select(number: int) -> Value | None:
            at, mask = vectors[number]
            if self.lanes is not None:
                bound[self.lanes] = lane_index(at, self.width)
            for name, value in known[number].items():
                bound[name] = value
            return mask

        for stat, program in zip(work.statistics, self.programs, strict=True):
            totals = self._totals(stat, program, len(vectors), select)
            for holes, total in zip(known, totals, strict=True):
                holes[stat.hole] = total.get()
        for number in range(len(vectors)):
            mask = select(number)
            if work.row_stores:
                work.store(work.row_stores, self.once, self.width, mask)
        if work.stores and not work.empty:
            with work.entry.nested(work.cols, bound):
                for number in range(len(vectors)):
                    work.store(work.stores, self.elements, self.width, select(number))

    def _totals(
        self, stat: Statistic, program: Program, count: int, select: Callable[[int], Value | None]
    ) -> list[Slot]:
        """One statistic of ``count`` vectors of rows."""
        work, code, dtype = self.work, self.work.code, stat.hole.dtype
        totals = [code.slot(Type(storage.register_scalar(dtype), self.width)) for _ in range(count)]
        for total in totals:
            total.set(work.identity(stat, self.width))
        if work.empty or not work.cols:
            return self._added(totals, stat, program, select, [None]) if not work.empty else totals
        *outer, inner = work.cols
        several = inner.extent - inner.extent % self.columns
        with work.entry.nested(outer, work.bound):
            with code.loop(0, several, self.columns) as column:
                self._added(totals, stat, program, select, [column + k for k in range(self.columns)])
            if not is_zero(inner.extent - several):
                with code.loop(several, inner.extent) as column:
                    self._added(totals, stat, program, select, [column])
        return totals

    def _added(
        self,
        totals: list[Slot],
        stat: Statistic,
        program: Program,
        select: Callable[[int], Value | None],
        columns: Sequence[Value | None],
    ) -> list[Slot]:
        """``totals`` after some of the columns were added to each."""
        work, dtype = self.work, stat.hole.dtype
        for number, total in enumerate(totals):
            mask = select(number)
            values = [total.get()]
            for column in columns:
                if column is not None:
                    work.bound[work.cols[-1]] = column
                values.append(work.entry.printer(program, work.bound, self.width, mask).lanes(program.results[0]))
            total.set(arithmetic.reduced(REDUCTIONS[stat.op], dtype, values))
        return totals


def _over_rows(work: _Rows, lanes: Var | None, width: int) -> int:
    """Lanes run over a row axis, or there are none; columns are loops."""
    entry, code, bound = work.entry, work.code, work.bound
    width = narrowed(width, lanes)
    outer = [a for a in work.rows if a is not lanes]
    extent = lanes.extent if lanes is not None else 1
    columns = float(math.prod(hint(axis.extent) for axis in work.cols))
    tasks = cut(outer, extent, width, work.schedule["tasks"], operations(work.exprs) * columns / max(width, 1))
    side = _Side(work, lanes, width)

    def wide(start: Value | int, stop: Value | int) -> None:
        """A few vectors at a time as long as there are so many, then one at a time."""
        together = side.together * width
        if side.together > 1:
            first = start if isinstance(start, Value) else code.integer(start)
            last = stop if isinstance(stop, Value) else code.integer(stop)
            start = first + (last - first).integer_op("udiv", together) * together
            with code.loop(first, start, together) as at:
                side.row([(at + k * width, None) for k in range(side.together)])
            start = start if start.text.startswith("%") else int(start.text)
        entry.chunks(start, stop, width, lambda at, mask: side.row([(at, mask)]), extent)

    with code.loop(entry.first, entry.last) as task:
        parts = entry.decompose(task, [*(a.extent for a in tasks.axes), tasks.blocks])
        bound.update(zip(tasks.axes, parts, strict=False))
        with entry.nested(tasks.inner, bound):
            if lanes is None:
                side.row([(code.integer(0), None)])
            elif is_one(tasks.blocks):
                wide(0, extent)
            else:
                start = parts[-1] * tasks.block
                wide(start, code.minimum(start + tasks.block, extent))
    return tasks.count


def emit_rowwise(kernel: Kernel[Rowwise], schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    return emit_rows(kernel, kernel.body, schedule, name, target)


def emit_rows(kernel: Kernel, body: Rowwise, schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    work = _Rows(kernel, body, schedule, name, target)
    width = schedule["lanes"]
    reads = offsets(work.exprs)
    element_stores = [s.offset for s in work.stores]
    row_stores = [s.offset for s in work.row_stores]
    columns = rows = -1.0
    if width and work.cols and not work.empty:
        columns = vector_score(work.cols[-1], element_stores, reads, width)
    if width and work.rows:
        # a row's stores count only if columns cannot be the lanes or are few; otherwise its loads dominate
        few = columns <= 0 or math.prod(hint(a.extent) for a in work.cols) < width
        rows = vector_score(work.rows[-1], element_stores + (row_stores if few else []), reads, width)
    if columns > 0 and columns >= rows:
        count = _Columns(work, width).emit()
    else:
        count = _over_rows(work, work.rows[-1] if rows > 0 else None, width)
    return work.entry.emitted(count)
