"""The scatter family on the CPU: a task owns some lines and a part of their places; it copies them, then changes them.

It looks at all updates of its lines, in order, and makes those that fall into its part, so nobody else writes there.
Lanes run over lines that lie side by side in memory, whether they share their updates' places or have places of their own,
which are then gathered and scattered: no two lanes meet. Without such lines they run over places, in the copy alone.
"""

from __future__ import annotations

import math

from gpucomp.codegen.llvm.ir.builder import I1, Value
from gpucomp.codegen.llvm.ir.printer import LaneValue
from gpucomp.codegen.llvm.loops.nest import (
    SMALLEST_TASK,
    Entry,
    FlatStore,
    Flattener,
    Program,
    cut,
    lane_index,
    lower,
    merge_axes,
    operations,
)
from gpucomp.device.target import Target
from gpucomp.expr.core import Const, Expr, Var, both, load, substitute, var
from gpucomp.expr.simplify import coefficient, flatten
from gpucomp.kernel import Kernel, Scatter
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.scatter import copied_in_place, inside_of
from gpucomp.schedule.space import Schedule

READERS = 4  # tasks that may look at an update of a line whatever the number of its places


class _Walk:
    """A kernel's expressions over its merged lines, one flat place and one flat number of an update."""

    def __init__(self, kernel: Kernel, body: Scatter, schedule: Schedule, name: str, target: Target) -> None:
        self.entry, self.body = Entry(kernel, name, target), body
        self.code = self.entry.code
        self.place = var("place", math.prod(v.extent for v in body.places))
        self.number = var("number", math.prod(v.extent for v in body.updates))
        flat = Flattener(kernel.params)
        at = places(body.places, self.place) | places(body.updates, self.number)
        found = flatten(body.found, tuple(v.extent for v in body.places))
        parts = [body.guard, both([body.where, inside_of(body)]), found, body.after, body.initial]
        parts += [flatten(s.index, kernel.params[s.target].shape) for s in kernel.stores]
        lines, exprs = merge_axes(body.lines, [flat(substitute(e, at)) for e in parts], flat.simplify)
        self.guard, self.hit, self.found, self.after, self.initial, *self.offsets = exprs
        self.targets = [s.target for s in kernel.stores]
        self.width = schedule["lanes"]
        self.fast: Var | None = None
        if self.width and lines and all(coefficient(e, lines[-1]) == 1 for e in self.offsets):
            self.fast = lines.pop()
            while self.width > 2 and self.fast.extent <= self.width // 2:
                self.width //= 2
        self.outer, self.axes = lines, [*lines, *([self.fast] if self.fast else [])]
        self.bound: dict[Expr, LaneValue] = {}

    @property
    def slices(self) -> bool:
        """Whether the lines that lanes run over share the places of their updates."""
        return self.fast is not None and not any(self.fast in e.free for e in (self.guard, self.hit, self.found))

    def changed(self, position: int) -> FlatStore:
        """Store ``position`` of what an update makes of the element that is there."""
        target, offset = self.targets[position], self.offsets[position]
        there = load(target, (offset,), self.body.acc.dtype)
        return FlatStore(target, offset, substitute(self.after, {self.body.acc: there}))

    def program(self, exprs: list[Expr], *more: Var) -> Program:
        return lower(exprs, [*self.axes, *more])

    def scalar(self, program: Program) -> list[Value]:
        printer = self.entry.printer(program, self.bound, 0, None)
        return [printer.value(result) for result in program.results]


def emit_scatter(kernel: Kernel, schedule: Schedule, name: str, target: Target) -> tuple[str, int]:
    """The function's text and its number of tasks."""
    body = kernel.body
    assert isinstance(body, Scatter)
    w = _Walk(kernel, body, schedule, name, target)
    entry, code, bound = w.entry, w.code, w.bound
    extent = w.fast.extent if w.fast is not None else 1
    width = w.width if w.fast is not None else 0
    points, looks = w.place.extent, w.number.extent
    work = points * operations([w.initial]) / max(w.width, 1) + looks * operations([w.hit, w.after]) / max(width, 1)
    tasks = cut(w.outer, extent, width, schedule["tasks"], work)
    lines = extent * math.prod(v.extent for v in w.outer)
    wanted = min(schedule["tasks"], int(lines * work / SMALLEST_TASK)) // tasks.count
    parts = max(1, min(wanted, points, max(READERS, points // max(1, looks))))
    step = max(w.width, 1)
    part = -(-points // (parts * step)) * step
    parts = -(-points // part)

    stores = [FlatStore(t, o, w.initial) for t, o in zip(w.targets, w.offsets, strict=True)]
    copying = w.program([e for s in stores for e in (s.offset, s.value)], w.place)
    changes = [w.changed(k) for k in range(len(stores))]
    changing = w.program([e for s in changes for e in (s.offset, s.value)], w.place, w.number)
    looking, guarding = w.program([w.hit, w.found], w.number), w.program([w.guard])
    along = all(coefficient(s.offset, w.place) == 1 for s in stores) and w.fast is None

    def store(program: Program, lanes: int, mask: Value | None) -> None:
        printer = entry.printer(program, bound, lanes, mask)
        for k, one in enumerate(stores):
            printer.store(one.target, program.results[2 * k], program.results[2 * k + 1])

    def copy(first: Value | int, stop: Value | int, begin: Value, end: Value) -> None:
        def element(variable: Var, lanes: int, at: Value, mask: Value | None) -> None:
            bound[variable] = lane_index(at, lanes)
            store(copying, lanes, mask)

        if w.fast is not None:
            fast = w.fast
            with code.loop(begin, end) as place:
                bound[w.place] = place
                entry.chunks(first, stop, width, lambda at, mask: element(fast, width, at, mask), extent)
        elif along and w.width:
            entry.chunks(begin, end, w.width, lambda at, mask: element(w.place, w.width, at, mask), points)
        else:
            with code.loop(begin, end) as place:
                element(w.place, 0, place, None)

    def change(first: Value | int, stop: Value | int, begin: Value, end: Value) -> None:
        def together(at: Value, mask: Value | None) -> None:
            assert w.fast is not None
            bound[w.fast] = lane_index(at, width)
            store(changing, width, mask)

        def apart(at: Value, mask: Value | None) -> None:
            assert w.fast is not None
            bound[w.fast] = lane_index(at, width)
            allowed = mask
            if not isinstance(w.guard, Const):  # where it does not hold there is nothing to read
                holds = entry.printer(guarding, bound, width, mask).lanes(guarding.results[0])
                allowed = holds if mask is None else holds & mask
            printer = entry.printer(looking, bound, width, allowed)
            hit, found = (printer.lanes(result) for result in looking.results)
            active = hit & (found >= begin) & (found < end)
            active = active if allowed is None else active & allowed
            with code.when(code.any(active)):
                bound[w.place] = found
                store(changing, width, active)

        with code.loop(0, looks) as number:
            bound[w.number] = number
            if w.fast is not None and not w.slices:
                entry.chunks(first, stop, width, apart, extent)
                return
            hit, found = w.scalar(looking)
            with code.when(hit & (found >= begin) & (found < end)):
                bound[w.place] = found
                if w.slices:
                    entry.chunks(first, stop, width, together, extent)
                else:
                    store(changing, 0, None)

    def guarded(first: Value | int, stop: Value | int, begin: Value, end: Value) -> None:
        if isinstance(w.guard, Const) or (w.fast is not None and not w.slices):
            change(first, stop, begin, end)
            return
        (allowed,) = w.scalar(guarding)
        with code.when(allowed):
            change(first, stop, begin, end)

    data = copied_in_place(kernel)
    fresh: Value | None = None
    if data is not None:
        fresh = code.let(f"icmp ne ptr {entry.params[w.targets[0]].text}, {entry.params[data].text}", I1)
    with code.loop(entry.first, entry.last) as task:
        *axes, block, number = entry.decompose(task, [*(a.extent for a in tasks.axes), tasks.blocks, parts])
        bound.update(zip(tasks.axes, axes, strict=True))
        begin = number * part
        end = code.minimum(begin + part, points)
        first: Value | int = block * tasks.block if tasks.blocks > 1 else 0
        stop: Value | int = extent
        if isinstance(first, Value):
            stop = code.minimum(first + tasks.block, extent)
        with entry.nested(tasks.inner, bound):
            if fresh is None:
                copy(first, stop, begin, end)
            else:
                with code.when(fresh):
                    copy(first, stop, begin, end)
            guarded(first, stop, begin, end)
    return entry.text(), tasks.count * parts
