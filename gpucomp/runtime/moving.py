"""Runs of an open program on the CPU at sizes that come and go: programs that native code moves from one to another.

An executable of its own for each set of sizes takes some tenths of a millisecond to make, longer than a small model runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from struct import Struct
from typing import Any

import numpy as np

from gpucomp.ir.dims import OpenShapes
from gpucomp.runtime.cpu import EPOCHS, SMALLEST_SHARED_NS, CpuProgram
from gpucomp.runtime.inputs import TensorSpec
from gpucomp.runtime.lanes import Lane
from gpucomp.runtime.launches import Segment
from gpucomp.runtime.native import HOST_ALIGNMENT, address_of
from gpucomp.runtime.open_program import OpenProgram
from gpucomp.runtime.options import Options
from gpucomp.runtime.size_steps import SizeSteps, steps_of

KEPT = 4  # programs of a lane; the least recently used one is moved
Shapes = tuple[tuple[int, ...], ...]  # of all inputs


class MovingProgram(CpuProgram):
    """A program for one set of sizes that can be moved to others of the same plan."""

    def __init__(self, program: CpuProgram, steps: SizeSteps) -> None:
        """``program`` is not used by others: this one takes over what it has. It runs once it has been moved."""
        vars(self).update(vars(program))
        assert self._runner is not None
        assert self._runner.sizes is not None, "a program that moves"
        self._steps, self._do = steps, self._runner.sizes
        self._words = steps.words.copy()
        self._read_words = self._words.data  # faster than the array, for one word
        self._extents = Struct(f"{sum(steps.ranks)}q")
        own = {one.position: one for one in self._written}
        base = address_of(self._words)
        for place, record in steps.pointers:
            self._words[place] = base + 8 * record
        self._launches.table.loops = base + 8 * steps.loops if steps.pointers else 0
        self._late = [(one, steps.late[one.position]) for one in self._used if one.position in steps.late]
        self._varying = [(own[k], *where) for k, where in steps.outputs.items() if k in own]
        self._moved_in = self._epoch
        self._words[steps.numbers_at] = base + 8 * steps.numbers
        self._call = address_of(steps.steps), len(steps.steps), base, self._launches.table.address

    def move(self, shapes: Shapes) -> bool:
        """Go to the sizes of ``shapes``; whether that was possible. If not, it cannot run before it is moved again."""
        steps, words = self._steps, self._read_words
        if tuple(map(len, shapes)) != steps.ranks:
            return False
        self._extents.pack_into(words, 0, *chain.from_iterable(shapes))
        if self._epoch != self._moved_in:  # threads ran it: one that is late finds another epoch, not other tasks
            self._epoch = self._moved_in = (self._epoch + 1) % EPOCHS
            self._launches.table.leave(self._epoch)
        if not self._fill(self._arena.memory):
            return False
        for one, extents, nbytes in self._varying:
            one.shape = tuple([words[place] for place in extents])
            one.nbytes = words[nbytes] + HOST_ALIGNMENT
        for one, places in self._late:
            late = [words[place] for place in places]
            one.late = late if any(late) else None
        self._launches.table.written()
        shared_ns = float(words[steps.shared_ns])
        segment = self._launches.segments[0]  # all launches
        if (segment.shared_ns < SMALLEST_SHARED_NS) != (shared_ns < SMALLEST_SHARED_NS):
            self._launches.segments = [Segment(segment.first, segment.last, None, shared_ns)]
        self._expect(shared_ns)
        return True

    def _bind_arena(self) -> None:
        memory = self._arena.of(self._read_words[self._steps.arena_bytes])
        if memory is not self._bound_to:
            self._fill(memory)

    def _fill(self, memory: np.ndarray) -> bool:
        """Write all numbers of the sizes, with temporaries in ``memory``, which may still be too small for them."""
        self._read_words[self._steps.arena_at] = address_of(memory)
        self._bound_to = memory
        return not self._do(*self._call)


class Moving:
    """Runs ``program`` at any sizes, in lanes that each have a few programs for it, as far as ``size_steps`` has the numbers.

    ``inputs`` are those of a run, in their order.
    """

    def __init__(self, program: OpenProgram, shapes: OpenShapes, inputs: tuple[TensorSpec, ...]) -> None:
        self._program, self._shapes, self._inputs = program, shapes, inputs
        self._able = program.open_plan.plan.kind == "cpu" and not shapes.unlisted
        self._steps: SizeSteps | None = None

    def run(self, arrays: Mapping[str, np.ndarray], shapes: Shapes, how: Options) -> dict[str, Any] | None:
        """The outputs; ``None`` if these sizes, or these wishes, are for others to run or to refuse.

        ``arrays`` are complete, contiguous and of the right types.
        """
        if not self._able or how.outputs:
            return None
        lanes, context = self._program.lanes, how.context
        lane = lanes.take(how.stop) if context is None else context.lane(lanes)
        try:
            program = lane.moving.get(shapes) or self._at(lane, shapes)
            if program is None:
                return None
            lane.moving.move_to_end(shapes)
            return program.run(arrays, how)
        except MemoryError:  # others say how much is needed
            return None
        finally:
            if context is None:
                lanes.give(lane)

    def _at(self, lane: Lane, shapes: Shapes) -> MovingProgram | None:
        """A program for ``shapes``, which the lane keeps."""
        if not lane.moving and not lane.spare:
            lane.spare += self._made(lane, shapes)
        program: MovingProgram
        if lane.spare:
            program = lane.spare.pop()
        elif lane.moving:
            _, program = lane.moving.popitem(last=False)
        else:
            return None
        if program.move(shapes):
            lane.moving[shapes] = program
            return program
        lane.spare.append(program)
        return None

    def _made(self, lane: Lane, shapes: Shapes) -> list[MovingProgram]:
        """Programs that can be moved, to ``shapes`` too unless the plan is for others: all at once, when a lane is new."""
        if any(len(shape) != len(spec.shape) for spec, shape in zip(self._inputs, shapes, strict=True)):
            return []
        given = {spec.name: shape for spec, shape in zip(self._inputs, shapes, strict=True)}
        sizes = self._shapes.sizes(given)
        found: list[MovingProgram] = []
        while len(found) < KEPT and (program := self._program.opened(lane, sizes)) is not None:
            if self._steps is None:
                self._steps = steps_of(self._program.open_plan, self._inputs, program.rows) if program.moves else None
            if self._steps is None:
                self._able = False
                return []
            found.append(MovingProgram(program, self._steps))
        return found
