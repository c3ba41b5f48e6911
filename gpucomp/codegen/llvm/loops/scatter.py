"""The scatter family on the CPU. A task owns some lines and a part of the places in each; it copies, then updates them.

A task reads all updates of its lines, in order, and applies those within its part, so no other task writes there. Lanes
run over lines that are adjacent in memory. Such lines may share the places of their updates; otherwise each lane has a
place of its own, which is gathered and scattered, and no two lanes collide. Without such lines, lanes run over places,
in the copy only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.printer import LaneValue
from gpucomp.codegen.llvm.ir.types import I1
from gpucomp.codegen.llvm.loops.nest import (
    SMALLEST_TASK,
    Entry,
    FlatStore,
    Flattener,
    Program,
    Tasks,
    cut,
    lane_index,
    lower,
    merge_axes,
    narrowed,
    operations,
)
from gpucomp.device.target import Target
from gpucomp.expr.core import Const, Expr, Var, both, load, substitute, var
from gpucomp.expr.simplify import coefficient, flatten
from gpucomp.ir.extremes import largest
from gpucomp.ir.size import Size, hint, is_one
from gpucomp.kernel import Kernel, Scatter
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.scatter import copied_in_place, inside_of
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule

READERS = 4  # tasks that may share a line however few its places are; each reads all updates of the line


class _Walk:
    """A kernel's expressions in terms of its merged lines, one flat place and one flat number of an update."""

    def __init__(self, kernel: Kernel[Scatter], schedule: Schedule, name: str, target: Target) -> None:
        self.entry = Entry(kernel, name, target)
        body = self.body = kernel.body
        self.code = self.entry.code
        self.place = var("place", math.prod(v.extent for v in body.places))
        self.number = var("number", math.prod(v.extent for v in body.updates))
        flat = Flattener(kernel.params)
        at = places(body.places, self.place) | places(body.updates, self.number)
        found = flatten(body.found, tuple(v.extent for v in body.places))
        parts = [body.guard, both([body.where, inside_of(body)]), found, body.after, body.initial]
        parts += [flatten(s.index, kernel.params[s.target].shape) for s in kernel.stores]
        lines, exprs = merge_axes(body.lines, [flat(substitute(e, at)) for e in parts])
        self.guard, self.hit, self.found, self.after, self.initial, *self.offsets = exprs
        self.targets = [s.target for s in kernel.stores]
        self.width = schedule["lanes"]
        self.fast: Var | None = None
        if self.width and lines and all(is_one(coefficient(e, lines[-1])) for e in self.offsets):
            self.fast = lines.pop()
            self.width = narrowed(self.width, self.fast)
        self.outer, self.axes = lines, [*lines, *([self.fast] if self.fast else [])]
        self.bound: dict[Expr, LaneValue] = {}

    @property
    def extent(self) -> Any:
        """The extent of the axis of lines that lanes run over; 1 without such an axis."""
        return self.fast.extent if self.fast is not None else 1

    @property
    def lanes(self) -> int:
        """The number of lanes that run over lines."""
        return self.width if self.fast is not None else 0

    @property
    def slices(self) -> bool:
        """Whether the lines that lanes run over share the places of their updates."""
        return self.fast is not None and not any(self.fast in e.free for e in (self.guard, self.hit, self.found))

    def changed(self, position: int) -> FlatStore:
        """Store ``position``, with an update applied to the element."""
        target, offset = self.targets[position], self.offsets[position]
        there = load(target, (offset,), self.body.acc.dtype)
        return FlatStore(target, offset, substitute(self.after, {self.body.acc: there}))

    def program(self, exprs: list[Expr], *more: Var) -> Program:
        return lower(exprs, [*self.axes, *more])

    def scalar(self, program: Program) -> list[Value]:
        printer = self.entry.printer(program, self.bound, 0, None)
        return [printer.value(result) for result in program.results]


@dataclass(frozen=True, slots=True)
class _Share:
    """The part of a task: lines ``first .. stop`` on the axis of lanes, and places ``begin .. end`` of each."""

    first: Value | int
    stop: Value | int
    begin: Value
    end: Value


@dataclass(frozen=True, slots=True)
class _Split:
    """Divides lines into ``tasks``, and the places of a line into ``parts`` of ``part`` places, whole vectors.

    How often sizes are divided is decided for the example.
    """

    tasks: Tasks
    parts: Any
    part: Any

    @property
    def count(self) -> Any:
        return self.tasks.count * self.parts

    @staticmethod
    def of(w: _Walk, wanted: int) -> _Split:
        points, looks = int(hint(w.place.extent)), int(hint(w.number.extent))
        copied, changed = operations([w.initial]), operations([w.hit, w.after])
        work = points * copied / max(w.width, 1) + looks * changed / max(w.lanes, 1)
        tasks = cut(w.outer, w.extent, w.lanes, wanted, work)
        lines = int(hint(w.extent * math.prod(v.extent for v in w.outer)))
        more = min(wanted, int(lines * work / SMALLEST_TASK)) // max(1, int(hint(tasks.count)))
        parts = max(1, min(more, points, max(READERS, points // max(1, looks))))
        step = max(w.width, 1)
        part = -(-w.place.extent // (parts * step)) * step
        if isinstance(part, Size):
            part = largest(part, step)
        return _Split(tasks, 1 if parts == 1 else -(-w.place.extent // part), part)

    def share(self, w: _Walk, block: Value, number: Value) -> _Share:
        """Part ``number`` of the places, of block ``block`` of the lines."""
        begin = number * self.part
        if isinstance(w.place.extent, Size) and is_one(self.parts):
            end = w.code.integer(w.place.extent)
        else:
            end = w.code.minimum(begin + self.part, w.place.extent)
        if is_one(self.tasks.blocks):
            return _Share(0, w.extent, begin, end)
        first = block * self.tasks.block
        return _Share(first, w.code.minimum(first + self.tasks.block, w.extent), begin, end)


class _Phases:
    """The two phases of a task: it copies its places, then applies the updates within them."""

    def __init__(self, w: _Walk) -> None:
        self.w, self.entry, self.code = w, w.entry, w.code
        stores = [FlatStore(t, o, w.initial) for t, o in zip(w.targets, w.offsets, strict=True)]
        changes = [w.changed(k) for k in range(len(stores))]
        self.copying = w.program([e for s in stores for e in (s.offset, s.value)], w.place)
        self.changing = w.program([e for s in changes for e in (s.offset, s.value)], w.place, w.number)
        self.looking, self.guarding = w.program([w.hit, w.found], w.number), w.program([w.guard])
        self.along = all(is_one(coefficient(s.offset, w.place)) for s in stores) and w.fast is None

    def store(self, program: Program, lanes: int, mask: Value | None) -> None:
        printer = self.entry.printer(program, self.w.bound, lanes, mask)
        for k, target in enumerate(self.w.targets):
            printer.store(target, program.results[2 * k], program.results[2 * k + 1])

    def copy(self, share: _Share) -> None:
        w = self.w

        def element(variable: Var, lanes: int, at: Value, mask: Value | None) -> None:
            w.bound[variable] = lane_index(at, lanes)
            self.store(self.copying, lanes, mask)

        if (fast := w.fast) is not None:
            with self.code.loop(share.begin, share.end) as place:
                w.bound[w.place] = place
                self._lines(share, lambda at, mask: element(fast, w.width, at, mask))
        elif self.along and w.width:
            extent = w.place.extent
            self.entry.chunks(
                share.begin, share.end, w.width, lambda at, mask: element(w.place, w.width, at, mask), extent
            )
        else:
            with self.code.loop(share.begin, share.end) as place:
                element(w.place, 0, place, None)

    def update(self, share: _Share) -> None:
        """Applies every update of the lines if the guard holds; otherwise there is nothing to read."""
        w = self.w
        if w.fast is not None and not w.slices:
            with self.code.loop(0, w.number.extent) as number:
                w.bound[w.number] = number
                self._lines(share, lambda at, mask: self._apart(share, at, mask))
        elif isinstance(w.guard, Const):
            self._together(share)
        else:
            (allowed,) = w.scalar(self.guarding)
            with self.code.when(allowed):
                self._together(share)

    def _lines(self, share: _Share, body: Callable[[Value, Value | None], None]) -> None:
        self.entry.chunks(share.first, share.stop, self.w.lanes, body, self.w.extent)

    def _together(self, share: _Share) -> None:
        """All lines of an update change the same place."""
        w = self.w

        def line(at: Value, mask: Value | None) -> None:
            assert w.fast is not None
            w.bound[w.fast] = lane_index(at, w.width)
            self.store(self.changing, w.width, mask)

        with self.code.loop(0, w.number.extent) as number:
            w.bound[w.number] = number
            hit, found = w.scalar(self.looking)
            with self.code.when(hit & (found >= share.begin) & (found < share.end)):
                w.bound[w.place] = found
                if w.slices:
                    self._lines(share, line)
                else:
                    self.store(self.changing, 0, None)

    def _apart(self, share: _Share, at: Value, mask: Value | None) -> None:
        """Each lane changes a place of its own, which is looked up if the guard holds."""
        w, width = self.w, self.w.width
        assert w.fast is not None
        w.bound[w.fast] = lane_index(at, width)
        allowed = mask
        if not isinstance(w.guard, Const):
            holds = self.entry.printer(self.guarding, w.bound, width, mask).lanes(self.guarding.results[0])
            allowed = holds if mask is None else holds & mask
        printer = self.entry.printer(self.looking, w.bound, width, allowed)
        hit, found = (printer.lanes(result) for result in self.looking.results)
        active = hit & (found >= share.begin) & (found < share.end)
        active = active if allowed is None else active & allowed
        with self.code.when(self.code.any(active)):
            w.bound[w.place] = found
            self.store(self.changing, width, active)


def emit_scatter(kernel: Kernel[Scatter], schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    w = _Walk(kernel, schedule, name, target)
    entry, code = w.entry, w.code
    split, phases = _Split.of(w, schedule["tasks"]), _Phases(w)
    tasks = split.tasks
    data = copied_in_place(kernel)
    fresh: Value | None = None
    if data is not None:
        fresh = code.let(f"icmp ne ptr {entry.params[w.targets[0]].text}, {entry.params[data].text}", I1)
    with code.loop(entry.first, entry.last) as task:
        *axes, block, number = entry.decompose(task, [*(a.extent for a in tasks.axes), tasks.blocks, split.parts])
        w.bound.update(zip(tasks.axes, axes, strict=True))
        share = split.share(w, block, number)
        with entry.nested(tasks.inner, w.bound):
            if fresh is None:
                phases.copy(share)
            else:
                with code.when(fresh):
                    phases.copy(share)
            phases.update(share)
    return entry.emitted(split.count)
