"""Runs of an open program on the CPU at sizes that come and go, by programs that native code moves from one to another.

An executable of its own for each set of sizes takes some tenths of a millisecond to make, longer than a small model runs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import accumulate
from struct import Struct
from typing import Any

import numpy as np

from gpucomp.ir.dims import OpenShapes
from gpucomp.runtime.cpu import EPOCHS, SMALLEST_SHARED_NS, CpuProgram
from gpucomp.runtime.inputs import TensorSpec, fits
from gpucomp.runtime.lanes import Lane
from gpucomp.runtime.launches import Segment
from gpucomp.runtime.native import HOST_ALIGNMENT, address_of
from gpucomp.runtime.open_program import OpenProgram
from gpucomp.runtime.options import Options
from gpucomp.runtime.size_steps import SizeSteps, layout, steps_of

KEPT = 4  # programs of a new lane; the least recently used one is moved
MOST = 32  # programs of a lane, where sizes come again that one was moved away from
MOST_LEFT = 4 * MOST  # shapes that programs of a lane were moved away from
Shapes = tuple[tuple[int, ...], ...]  # of all inputs


class MovingProgram(CpuProgram):
    """A program for one set of sizes that can be moved to others of the same plan.

    It is given inputs of the right types, and of the shapes that it was moved to. Its lock, arena, context and counters are those
    of the lane's first program, which makes them anew after a fork.
    """

    knows_inputs = True

    def __init__(self, program: CpuProgram, steps: SizeSteps) -> None:
        """``program`` is not used by others: this one takes over what it has. It runs once it has been moved."""
        vars(self).update(vars(program))
        runner = self._runner
        assert runner is not None
        assert runner.sizes is not None, "a program that can be moved"
        self._steps, self._native, self._begin = steps, runner.sizes, runner.begin
        self._words = steps.words.copy()
        self._read_words = self._words.data  # faster than the array, for one word
        self._use([copy.copy(argument) for argument in self._used])  # others may share those of a fixed shape
        outputs = {argument.position: argument for argument in self._written}
        begins = accumulate((1 + rank for _, rank in steps.outputs), initial=steps.results + 1)
        self._varying = [
            (outputs[k], begin, Struct(f"{rank}q").unpack_from, 8 * (begin + 1))
            for (k, rank), begin in zip(steps.outputs, begins, strict=False)
            if k in outputs
        ]
        self._ranks, self._shared_at = steps.ranks, steps.results
        self._late = [(a, steps.late[a.position]) for a in self._used if a.position in steps.late]
        base = address_of(self._words)
        for place, record in steps.pointers:
            self._words[place] = base + 8 * record
        self._words[steps.numbers_at] = base + 8 * steps.numbers
        self._launches.table.loops = base + 8 * steps.loops if steps.pointers else 0
        self._call = address_of(steps.steps), len(steps.steps), base, self._launches.table.address
        self._moved_in = self._epoch
        self._lies_in: np.ndarray | None = None  # the arena whose address is among the words

    def move(self, shapes: Shapes) -> bool:
        """Go to the sizes of ``shapes``; whether that was possible. If not, it cannot run before it is moved again."""
        words, ranks, place = self._read_words, self._ranks, 0
        for k, shape in enumerate(shapes):
            if len(shape) != ranks[k]:
                return False
            for extent in shape:  # half as long as ``struct`` and ``zip``, whose code is in no cache between runs
                words[place] = extent
                place += 1
        if self._epoch != self._moved_in:  # threads ran it: one that is late finds another epoch, not other tasks
            self._epoch = self._moved_in = (self._epoch + 1) % EPOCHS
            self._begin(self._launches.table, 0, len(self._launches.table), self._epoch, 1)
        if not self._fill(self._arena.memory):
            return False
        for argument, nbytes, unpack, at in self._varying:
            argument.nbytes, argument.shape = words[nbytes] + HOST_ALIGNMENT, unpack(words, at)
        for argument, places in self._late:
            late = [words[place] for place in places]
            argument.late = late if any(late) else None
        shared_ns = words[self._shared_at]
        (segment,) = self._launches.segments  # all launches
        if (segment.shared_ns < SMALLEST_SHARED_NS) != (shared_ns < SMALLEST_SHARED_NS):
            self._launches.segments = [Segment(segment.first, segment.last, None, shared_ns)]
        self._expect(shared_ns)
        return True

    def _bind_arena(self) -> None:
        memory = self._arena.of(self._read_words[self._steps.arena_bytes])
        if memory is not self._bound_to:
            same_sizes = self._fill(memory)
            assert same_sizes, "these sizes had numbers before"

    def _fill(self, memory: np.ndarray) -> bool:
        """Write all numbers of the sizes, with temporaries in ``memory``, which may still be too small for them."""
        if memory is not self._lies_in:
            self._read_words[self._steps.arena_at] = address_of(memory)
            self._lies_in = memory
        self._bound_to = None
        if self._native(*self._call):
            return False
        self._bound_to = memory
        return True


class MovingPrograms:
    """Runs an open program at any sizes for which ``size_steps`` can find the numbers. Each lane has its own moving programs.

    ``inputs`` are those of a run, in their order.
    """

    def __init__(self, program: OpenProgram, shapes: OpenShapes, inputs: tuple[TensorSpec, ...]) -> None:
        self._program, self._shapes, self._inputs = program, shapes, inputs
        plan = program.open_plan.plan
        self._able = not plan.input_containers and not plan.output_containers
        self._steps: SizeSteps | None = None

    def run(self, arrays: Mapping[str, np.ndarray], shapes: Shapes, how: Options) -> dict[str, Any] | None:
        """The outputs; ``None`` if an executable for these sizes has to run, or to say what is wrong with them or with arrays
        that results are to be written into.

        ``arrays`` are complete, contiguous and of the right types.
        """
        if not self._able:
            return None
        lanes, context = self._program.lanes, how.context
        lane = lanes.take(how.stop) if context is None else context.lane(lanes)
        try:
            program = lane.moving.get(shapes)
            if program is not None:
                lane.moving.move_to_end(shapes)
            elif (program := self._program_for(shapes, lane)) is None:
                return None
            bound = program.bound(arrays, how.outputs)
            if how.outputs and bound is None:
                return None
            return program.run(arrays, how, bound)
        except MemoryError:  # the executable says how much is needed
            return None
        finally:
            if context is None:
                lanes.give(lane)

    def _program_for(self, shapes: Shapes, lane: Lane) -> MovingProgram | None:
        """A program that was moved to ``shapes``, if that was possible. The lane keeps it."""
        if not lane.moving and not lane.spare:
            lane.spare += self._new_programs(lane, shapes, KEPT)
        elif shapes in lane.left and not lane.spare and len(lane.moving) < MOST:
            lane.spare += self._new_programs(lane, shapes, 1)
        if lane.spare:
            program = lane.spare.pop()
        elif lane.moving:
            before, program = lane.moving.popitem(last=False)
            if len(lane.left) >= MOST_LEFT:
                lane.left.clear()  # all: the oldest would take longer to find
            lane.left.add(before)
        else:
            return None
        if not program.move(shapes):
            lane.spare.append(program)
            return None
        lane.moving[shapes] = program
        return program  # type: ignore[no-any-return]

    def _new_programs(self, lane: Lane, shapes: Shapes, count: int) -> list[MovingProgram]:
        """``count`` programs, opened at ``shapes``; none if the plan is not for these.

        If they cannot be moved, that is noted for all later runs.
        """
        pairs = list(zip(self._inputs, shapes, strict=True))
        if not all(fits(shape, spec.shape) for spec, shape in pairs):
            return []
        sizes = self._shapes.sizes({spec.name: shape for spec, shape in pairs})
        found: list[MovingProgram] = []
        while len(found) < count and (program := self._program.opened(lane, sizes)) is not None:
            if self._steps is None and program.can_move:
                self._steps = steps_of(self._program.open_plan, self._inputs, program.rows)
            if self._steps is None or self._steps.table != layout(program.rows):
                self._able = False
                return []
            found.append(MovingProgram(program, self._steps))
        return found
