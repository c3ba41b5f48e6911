"""A plan for every size in a range: where a plan has a number that each run decides, this has the place of a formula.

``OpenPlan.at`` makes the plan of one set of sizes. It does arithmetic only: nothing is compiled and no memory is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

from gpucomp.artifact.formulas import Formulas
from gpucomp.artifact.plan import Buffer, Plan
from gpucomp.ir.types import NAMED
from gpucomp.kernel.run_sizes import number_of

RELATIONS = ("==", "<", "<=")  # of a number to 0


@dataclass(frozen=True, slots=True)
class Place:
    """Stands for a whole number of a plan: the one at this place among ``OpenPlan.formulas``."""

    number: int


@dataclass(frozen=True, slots=True)
class Stack:
    """Temporary buffers of one size that share one offset, one after the other. They lie above all stacks ``above``."""

    buffers: tuple[int, ...]
    above: tuple[int, ...]  # positions of earlier stacks


@dataclass(frozen=True)
class OpenPlan:
    """A plan with formulas, which is right for sizes that meet ``conditions``.

    plan        shapes and bytes of buffers, task counts of kernels and their ``numbers`` can be a ``Place``. A number of a
                kernel is a pair of its kind and a place, see ``gpucomp.kernel.run_sizes``
    conditions  (place, relation, truth): whether the number at the place is in this relation to 0
    stacks      how temporaries lie in the arena, in an order in which their offsets can be computed. Any two that live at
                the same time are in a fixed order there, whatever their sizes
    alignment   of the offsets, in bytes
    """

    plan: Plan
    formulas: Formulas
    conditions: tuple[tuple[int, str, bool], ...]
    stacks: tuple[Stack, ...]
    alignment: int

    def numbers(self, sizes: Mapping[str, int]) -> list[int] | None:
        """What the formulas give at ``sizes``; ``None`` if the plan is not for these sizes."""
        try:
            numbers = self.formulas.at(sizes)
        except ArithmeticError:  # only sizes that meet the conditions have all numbers
            return None
        for place, relation, truth in self.conditions:
            value = numbers[place]
            if (value == 0 if relation == "==" else value < 0 if relation == "<" else value <= 0) != truth:
                return None
        return numbers

    def at(self, sizes: Mapping[str, int]) -> Plan | None:
        """The plan for ``sizes``; ``None`` if this plan is not for them.."""
        numbers = self.numbers(sizes)
        if numbers is None:
            return None
        plan = self.plan
        buffers = list(plan.buffers)
        for position in self._open_buffers:
            buffer = buffers[position]
            shape = tuple(numbers[n.number] if isinstance(n, Place) else n for n in buffer.shape)
            nbytes = math.prod(shape) * NAMED[buffer.dtype].nbytes
            told = tuple(numbers[n.number] if isinstance(n, Place) else n for n in buffer.numbers)
            buffers[position] = Buffer(buffer.kind, buffer.name, buffer.dtype, shape, nbytes, buffer.offset, told)
        top = self._place(buffers)
        kernels = list(plan.kernels)
        for position in self._open_kernels:
            kernel = kernels[position]
            tasks = kernel.groups[0]
            if isinstance(tasks, Place):
                tasks = numbers[tasks.number]
            given = cast(tuple[tuple[str, int], ...], kernel.numbers)
            kernels[position] = replace(
                kernel,
                groups=(tasks, *kernel.groups[1:]),
                numbers=tuple(number_of(kind, numbers[where]) for kind, where in given),
            )
        return replace(plan, buffers=tuple(buffers), kernels=tuple(kernels), arena_bytes=top)

    @cached_property
    def _open_buffers(self) -> list[int]:
        found = enumerate(self.plan.buffers)
        return [k for k, b in found if any(isinstance(n, Place) for n in (*b.shape, *b.numbers))]

    @cached_property
    def _open_kernels(self) -> list[int]:
        found = enumerate(self.plan.kernels)
        return [k for k, one in found if one.numbers or any(isinstance(n, Place) for n in one.groups)]

    def _place(self, buffers: list[Buffer]) -> int:
        """Give the temporaries of ``buffers`` their offsets. Returns the bytes of the arena."""
        ends: list[int] = []
        for stack in self.stacks:
            start = max([ends[below] for below in stack.above], default=0)
            most = 0
            for position in stack.buffers:
                b = buffers[position]
                most = max(most, b.nbytes)
                buffers[position] = Buffer(b.kind, b.name, b.dtype, b.shape, b.nbytes, start)
            ends.append((start + most + self.alignment - 1) // self.alignment * self.alignment)
        return max(ends, default=0)


def stacks_of(
    offsets: Mapping[int, int], lives: Mapping[int, Sequence[int]], takes_over: Mapping[int, Sequence[int]]
) -> tuple[Stack, ...]:
    """The order in which temporary buffers lie above each other in an arena, from the ``offsets`` of an example.

    ``lives`` has the first and the last step of each buffer, ``takes_over`` the dying buffers of its size whose memory it
    may use. At other sizes, a stack starts where the highest of those below it ends that live at the same time. At the
    example's sizes that is at most as high as there, and if all sizes grow alike, the arena does too.
    """
    stacks: dict[int, list[int]] = {}
    of: dict[int, list[int]] = {}
    for b in sorted(lives, key=lambda b: (lives[b][0], b)):
        dying = (d for d in takes_over.get(b, ()) if offsets[d] == offsets[b] and lives[d][1] == lives[b][0] and d != b)
        before = next(dying, None)
        if before is not None and of[before][-1] == before:
            of[b] = of[before]
            of[b].append(b)
        else:
            of[b] = stacks[b] = [b]
    order = sorted(stacks.values(), key=lambda members: (offsets[members[0]], lives[members[0]][0], members[0]))
    found: list[Stack] = []
    reached: list[set[int]] = []  # for each stack, all stacks that are below it for sure
    for number, members in enumerate(order):
        first, last = lives[members[0]][0], lives[members[-1]][1]
        together = [n for n in range(number) if lives[order[n][0]][0] <= last and lives[order[n][-1]][1] >= first]
        implied = set().union(*(reached[n] for n in together))
        found.append(Stack(tuple(members), tuple(n for n in together if n not in implied)))
        reached.append(implied | set(together))
    return tuple(found)
