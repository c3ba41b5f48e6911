"""A plan for every size in a range: where a plan has a number that each run decides, this has the place of a formula.

``OpenPlan.at`` computes the plan of one set of sizes. It does arithmetic only: nothing is compiled, no memory is allocated.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, TypeVar, cast

from gpucomp.artifact.formulas import Formulas, damaged
from gpucomp.artifact.plan import Buffer, CompiledKernel, Plan, Repeat
from gpucomp.artifact.tensor_map import TensorMap
from gpucomp.ir.run_numbers import SIZE, number_of
from gpucomp.ir.types import NAMED
from gpucomp.lazy_dataclass import dataclass

OPPOSITES = {"==": "!=", "<": ">=", "<=": ">"}  # relations of a number to 0
MOST_BYTES = 1 << 48  # of a buffer, and of the arena
MOST_GROUPS = MOST_STEPS = (1 << 31) - 1
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Place:
    """Stands for a whole number of a plan: the one at this place among ``OpenPlan.formulas``."""

    number: int


@dataclass(frozen=True, slots=True)
class Stack:
    """Temporary buffers of one size that share one offset, one after the other. They lie above all stacks ``above``."""

    buffers: tuple[int, ...]
    above: tuple[int, ...]  # positions of earlier stacks


Stacks = tuple[Stack, ...]


@dataclass(frozen=True, slots=True)
class Choices:
    """Kernels for parts of the range: each run launches one of ``kernels`` where the plan says ``kernel``.

    Nothing else launches ``kernels``. It is the last whose start is at most the number at place ``points``. ``starts`` rise
    from 0. ``regrets`` are for people: at some sizes of the dimensions, the predicted ratio to the fastest schedule that is
    known for them.
    """

    kernel: int
    points: int
    starts: tuple[int, ...]
    kernels: tuple[int, ...]
    regrets: tuple[tuple[tuple[int, ...], float], ...] = ()


@dataclass(frozen=True)
class OpenPlan:
    """A plan with formulas, which is right for sizes that meet ``conditions``.

    plan        shapes and bytes of buffers, work-groups of kernels, numbers of their tensor maps, their ``numbers`` and the
                rows of states can be a ``Place``. A number of a kernel is a pair of its kind and a place, see
                ``gpucomp.kernel.run_sizes``
    conditions  (place, relation, truth): whether the number at the place is in this relation to 0
    orders      how temporaries may lie in the arena: of each the stacks, in an order in which offsets can be computed. In one
                of them, any two that live at the same time are in a fixed order, whatever their sizes. A plan takes the
                smallest
    alignment   of the offsets, in bytes
    choices     kernels that have variants. All of them are in the plan
    """

    plan: Plan
    formulas: Formulas
    conditions: tuple[tuple[int, str, bool], ...]
    orders: tuple[Stacks, ...]
    alignment: int
    choices: tuple[Choices, ...] = ()

    def numbers(self, sizes: Mapping[str, int]) -> list[int] | None:
        """What the formulas give at ``sizes``; ``None`` if the plan is not for these sizes."""
        try:
            numbers = self.formulas.at(sizes)
        except ArithmeticError:  # only sizes that meet the conditions have all numbers
            return None
        return numbers if self._broken(numbers) is None else None

    def _broken(self, numbers: Sequence[int]) -> tuple[int, str, bool] | None:
        """The first condition that does not hold."""
        for condition in self.conditions:
            place, relation, truth = condition
            value = numbers[place]
            if (value == 0 if relation == "==" else value < 0 if relation == "<" else value <= 0) != truth:
                return condition
        return None

    def objection(self, sizes: Mapping[str, int]) -> tuple[str, tuple[str, ...]] | None:
        """The first condition that ``sizes`` do not meet, for people, and the dimensions in it; ``None`` if all are met."""
        try:
            broken = self._broken(self.formulas.at(sizes))
        except ArithmeticError as error:
            return f"other sizes ({error})", self.formulas.dims
        return None if broken is None else (self.condition_text(*broken), self.formulas.dims_in(broken[0]))

    def condition_text(self, place: int, relation: str, truth: bool) -> str:
        return self.formulas.comparison(place, relation if truth else OPPOSITES[relation])

    def at(self, sizes: Mapping[str, int]) -> Sized | None:
        """The plan for ``sizes``; ``None`` if this plan is not for them. Raises ``ArtifactError`` for absurd numbers."""
        numbers = self.numbers(sizes)
        if numbers is None:
            return None
        t = self._template
        if min(itemgetter(*t.extents)(numbers)) < 0:
            raise damaged(f"an extent below 0 at {dict(sizes)}")
        values = numbers + t.constants
        shapes = [shape(values) for shape in t.shapes]
        bytes_of = [math.prod(shape) * nbytes for shape, nbytes in zip(shapes, t.itemsizes, strict=True)]
        nbytes = t.nbytes.copy()
        for position, which in t.open_buffers:
            nbytes[position] = bytes_of[which]
        offsets, arena = self._placed(bytes_of, nbytes)
        if max(bytes_of, default=0) > MOST_BYTES or arena > MOST_BYTES:
            raise damaged(f"more than {MOST_BYTES} bytes at {dict(sizes)}")
        if max(itemgetter(*t.groups)(values)) > MOST_GROUPS:
            raise damaged(f"more than {MOST_GROUPS} groups at {dict(sizes)}")
        repeats = tuple(self._loop(repeat, numbers, nbytes, sizes) for repeat in self.plan.repeats)
        sized = Sized(self, values, shapes, nbytes, offsets, arena, repeats)
        for number in t.mapped:
            launch = self.plan.launches[number]
            for one in t.maps_of(self.plan.kernels[sized.chosen[launch.kernel]], values):
                if fault := one.fault(nbytes[launch.args[one.parameter]]):
                    raise damaged(f"{fault} at {dict(sizes)}")
        return sized

    def _placed(self, bytes_of: Sequence[int], nbytes: Sequence[int]) -> tuple[list[int], int]:
        """The offsets, and the bytes of the arena, in the order that takes the fewest. ``bytes_of`` decide all ``nbytes``."""
        units = [-(-n // self.alignment) for n in bytes_of]
        for known, there in self._latest[:1]:  # another thread may replace it meanwhile
            if known == units:  # as for most of a decoder's tokens
                return there
        found = min((placed(order, nbytes, self.alignment) for order in self.orders), key=itemgetter(1))
        self._latest[:] = [(units, found)]
        return found

    @cached_property
    def _latest(self) -> list[tuple[list[int], tuple[list[int], int]]]:
        """The sizes that were placed last, in units of the alignment, and where."""
        return []

    def _loop(self, repeat: Repeat, numbers: Sequence[int], nbytes: Sequence[int], sizes: Mapping[str, int]) -> Repeat:
        """The loop at ``sizes``. Raises ``ArtifactError`` if it would leave a buffer."""

        def plain(n: Any) -> Any:
            return numbers[n.number] if isinstance(n, Place) else n

        count, after = plain(repeat.count), plain(repeat.after)
        advances = tuple(tuple(map(plain, row)) for row in repeat.advances)
        if not (0 <= count <= MOST_STEPS and 0 <= after <= MOST_STEPS):
            raise damaged(f"{count} steps of a loop and {after} after it at {dict(sizes)}")
        steps = repeat.before + count + after
        for launch, row in zip(self.plan.launches[repeat.first : repeat.last], advances, strict=True):
            for position, advance in zip(launch.args, row, strict=True):
                if steps * abs(advance) > nbytes[position]:
                    name = self.plan.buffers[position].name
                    raise damaged(f"a loop of {steps} steps leaves buffer {name!r} at {dict(sizes)}")
        return Repeat(repeat.first, repeat.last, count, advances, repeat.before, after)

    @cached_property
    def _template(self) -> _Template:
        return _Template(self.plan, len(self.formulas))


class Sized:
    """An open plan at some sizes, as numbers, which is all that a program needs that was opened for others.

    ``plan`` is the whole plan, made when it is first asked for: that takes longer than all the rest.

    form               the plan with places: for fields that are alike at all sizes, such as names and launches
    nbytes, offsets    of each buffer; the offset is -1 if it is not in the arena
    chosen             for each kernel, the one that is launched where the plan says this one
    """

    def __init__(
        self,
        source: OpenPlan,
        values: Sequence[int],
        shapes: Sequence[tuple[int, ...]],
        nbytes: list[int],
        offsets: list[int],
        arena_bytes: int,
        repeats: tuple[Repeat, ...],
    ) -> None:
        self.form, self.choices = source.plan, source.choices
        self._source, self._values, self._shapes = source, values, shapes
        self.nbytes, self.offsets, self.arena_bytes, self.repeats = nbytes, offsets, arena_bytes, repeats
        self.chosen = list(range(len(source.plan.kernels)))
        for choice in source.choices:
            position = max(bisect_right(choice.starts, values[choice.points]) - 1, 0)
            self.chosen[choice.kernel] = choice.kernels[position]

    def at(self, sizes: Mapping[str, int]) -> Sized | None:
        """The same plan at other sizes, see ``OpenPlan.at``."""
        return self._source.at(sizes)

    def first_groups(self, kernels: Sequence[int]) -> list[int]:
        """The number of work-groups of each of ``kernels`` along the first axis."""
        first, values = self._source._template.first_groups, self._values
        return [values[first[kernel]] for kernel in kernels]

    def numbers(self) -> tuple[int, ...]:
        """The numbers of all kernels, one after the other."""
        return self._source._template.numbers(self._given())

    @property
    def number_starts(self) -> list[int]:
        """Where those of each kernel begin, at all sizes."""
        return self._source._template.number_starts

    def _given(self) -> list[int]:
        t, values = self._source._template, self._values
        return [*t.sizes(values), *(number_of(kind, values[place]) for kind, place in t.divisors)]

    def buffer(self, position: int) -> Buffer:
        """The buffer at ``position`` of the plan."""
        t, buffer = self._source._template, self.form.buffers[position]
        which, told, offset = t.shape_of.get(position), t.numbered.get(position), self.offsets[position]
        if which is None and told is None and offset < 0:
            return buffer
        fields = vars(buffer).copy()
        if which is not None:
            fields["shape"], fields["nbytes"] = self._shapes[which], self.nbytes[position]
        if told is not None:
            fields["numbers"] = told(self._values)
        fields["offset"] = offset
        return _made(Buffer, fields)

    def varies(self, position: int) -> bool:
        """Whether the buffer at ``position`` is another one at other sizes."""
        t = self._source._template
        return position in t.shape_of or position in t.numbered or self.offsets[position] >= 0

    def appended(self) -> dict[str, int]:
        """How many rows a run appends to each state that grows, by its input."""
        values = self._values
        return {
            one.input: values[one.rows.number] if isinstance(one.rows, Place) else one.rows
            for one in self.form.states
            if one.grows
        }

    @property
    def varying(self) -> frozenset[str]:
        """The kernels whose sizes each run decides. Their operations and traffic in ``plan`` are those of another size."""
        t = self._source._template
        return frozenset(kernel.name for kernel in self.form.kernels if id(kernel) in t.open_kernels)

    @cached_property
    def plan(self) -> Plan:
        form, t, given = self.form, self._source._template, self._given()
        kernels = list(form.kernels)
        # all kernels stay: a program opens them once, for later plans too
        for position, which in enumerate(self.chosen):
            if which != position:
                kernels[position], kernels[which] = form.kernels[which], form.kernels[position]
        made: dict[int, CompiledKernel] = {}
        for position, kernel in enumerate(kernels):
            one = made.get(id(kernel))
            if one is None and (how := t.open_kernels.get(id(kernel))) is not None:
                fields = vars(kernel).copy()
                fields["groups"], fields["numbers"] = how[0](self._values), how[1](given)
                fields["tensor_maps"] = t.maps_of(kernel, self._values)
                one = made[id(kernel)] = _made(CompiledKernel, fields)
            kernels[position] = one or kernel
        appended = self.appended()
        changed = {
            "buffers": tuple(map(self.buffer, range(len(form.buffers)))),
            "kernels": tuple(kernels),
            "arena_bytes": self.arena_bytes,
            "repeats": self.repeats,
            "states": tuple(replace(one, rows=appended.get(one.input, 0)) for one in form.states),
        }
        return _made(Plan, vars(form) | changed)


def placed(stacks: Stacks, nbytes: Sequence[int], alignment: int) -> tuple[list[int], int]:
    """The offsets of buffers of these bytes, -1 for those that are not in the arena, and the bytes of the arena."""
    ends: list[int] = []
    offsets = [-1] * len(nbytes)
    for stack in stacks:
        start, most = 0, 0
        for below in stack.above:
            if ends[below] > start:
                start = ends[below]
        for position in stack.buffers:
            offsets[position] = start
            if nbytes[position] > most:
                most = nbytes[position]
        ends.append((start + most + alignment - 1) // alignment * alignment)
    return offsets, max(ends, default=0)


class _Template:
    """The parts of a plan that change from one set of sizes to another. ``OpenPlan.at`` changes nothing else.

    A number is found by its position among those of the formulas, with ``constants`` behind them.
    """

    def __init__(self, plan: Plan, count: int) -> None:
        places: dict[int, int] = {}  # of constants

        def where(n: Any) -> int:
            return n.number if isinstance(n, Place) else places.setdefault(n, count + len(places))

        def getter(items: Sequence[Any]) -> Callable[[Sequence[int]], tuple[int, ...]]:
            return _getter([where(n) for n in items])

        shapes: dict[tuple[Any, ...], int] = {}
        self.open_buffers: list[tuple[int, int]] = []  # position, and that of its shape
        for position, b in enumerate(plan.buffers):
            if any(isinstance(n, Place) for n in b.shape):
                self.open_buffers.append((position, shapes.setdefault((NAMED[b.dtype].nbytes, *b.shape), len(shapes))))
        self.shape_of = dict(self.open_buffers)
        self.numbered = {
            position: getter(b.numbers)
            for position, b in enumerate(plan.buffers)
            if any(isinstance(n, Place) for n in b.numbers)
        }
        self.shapes = [getter(shape) for _, *shape in shapes]
        self.itemsizes = [itemsize for itemsize, *_ in shapes]
        self.nbytes = [b.nbytes for b in plan.buffers]
        pairs = dict.fromkeys(pair for one in plan.kernels for pair in cast(tuple[Any, ...], one.numbers))
        plain, self.divisors = ([p for p in pairs if (p[0] == SIZE) == which] for which in (True, False))
        self.sizes = _getter([place for _, place in plain])
        given = {pair: number for number, pair in enumerate([*plain, *self.divisors])}
        self.open_kernels = {  # by the kernels' identities, which last as long as the plan
            id(one): (
                getter(one.groups),
                _getter([given[pair] for pair in cast(tuple[Any, ...], one.numbers)]),
            )
            for one in plan.kernels
            if one.numbers or one.tensor_maps or any(isinstance(n, Place) for n in one.groups)
        }
        self._maps = {id(one): [(m, getter(m.numbers)) for m in one.tensor_maps] for one in plan.kernels}
        with_maps = any(self._maps.values())
        self.mapped = [n for n, launch in enumerate(plan.launches) if launch.kernel >= 0 and with_maps]
        self.first_groups = [where(kernel.groups[0]) for kernel in plan.kernels]
        told = [[given[pair] for pair in cast(tuple[Any, ...], kernel.numbers)] for kernel in plan.kernels]
        self.numbers = _getter(list(chain(*told)))
        self.number_starts = [0, *accumulate(map(len, told))][:-1]
        extents: Iterator[Any] = chain(*(b.shape for b in plan.buffers), *(k.groups for k in plan.kernels))
        self.extents = _at_least_two({n.number for n in extents if isinstance(n, Place)})
        counts: Iterator[Any] = chain(*(k.groups for k in plan.kernels))
        self.groups = _at_least_two({n.number for n in counts if isinstance(n, Place)})
        self.constants = list(places)

    def maps_of(self, kernel: CompiledKernel, values: Sequence[int]) -> tuple[TensorMap, ...]:
        """The tensor maps of a kernel of the plan."""
        return tuple(one.with_numbers(numbers(values)) for one, numbers in self._maps[id(kernel)])


def _at_least_two(places: set[int]) -> tuple[int, ...]:
    """``places`` for ``itemgetter``, which gives a tuple of several only."""
    return tuple(sorted(places)) if len(places) > 1 else (*places, *places) or (0, 0)


def _getter(positions: Sequence[int]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """The numbers at ``positions``, as a tuple of any length."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda numbers: tuple(numbers[k] for k in positions)


def _made(kind: type[Made], fields: dict[str, Any]) -> Made:
    """An object of a frozen dataclass with these ``fields``, in a fifth of the time of its constructor."""
    made = object.__new__(kind)
    object.__setattr__(made, "__dict__", fields)
    return made


def stacks_of(
    offsets: Mapping[int, int], lives: Mapping[int, Sequence[int]], takes_over: Mapping[int, Sequence[int]]
) -> Stacks:
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
