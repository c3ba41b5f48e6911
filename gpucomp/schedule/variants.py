"""Several schedules for one kernel whose sizes each run decides, such that none is far from the best at any size.

The schedules are those that are chosen for some examples. Of these, as few as possible are kept so that the largest ratio to
the best known schedule, the regret, is small: greedily, each time the one that lessens it most (T. F. Gonzalez, "Clustering to
minimize the maximum intercluster distance", 1985). Times are those of the engine's model; but a schedule that was measured to
be the best for an example is the best there, by as much as its record says.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from gpucomp.device.device import typical
from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.ir.example import exemplified
from gpucomp.ir.size import Size, hint, is_zero
from gpucomp.kernel import Kernel
from gpucomp.kernel.example import example_of, has_sizes
from gpucomp.lazy_dataclass import dataclass
from gpucomp.schedule import rank
from gpucomp.schedule.analytic import demand
from gpucomp.schedule.choose import Choice
from gpucomp.schedule.records import Pick
from gpucomp.schedule.space import Family, Schedule

MOST = 3  # schedules of a kernel
SMALL_REGRET = 1.1
FEW_POINTS = 32  # where the number of rows in a block of registers decides
STEPS_BETWEEN = 6  # of sizes that are tried between two examples
MEASURED = 0.99  # of the least estimate: what was measured to be the best is the best
Sizes = Mapping[str, int]
Between = Callable[
    [Sizes, Sizes, float], Sizes | None
]  # sizes of the range that are this part of the way from one to another


def _nothing_between(low: Sizes, high: Sizes, part: float) -> Sizes | None:
    return None


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A schedule, written for ``example``, where the engine's problem is ``own``. ``choice`` says who chose it."""

    choice: Choice
    example: Sizes
    own: Any

    @property
    def schedule(self) -> Schedule:
        return self.choice.schedule

    def at(self, family: Family, problem: Any) -> float:
        """How many times as long as estimated its source takes at ``problem``."""
        return family.elsewhere(family.schedule(self.schedule), self.own, problem)


Times = Mapping[_Candidate, float]


@dataclass(frozen=True)
class Variant:
    """A schedule, and the example that it was chosen for. It is used from ``start`` points of the kernel on."""

    choice: Choice
    example: Sizes
    start: int

    @property
    def schedule(self) -> Schedule:
        return self.choice.schedule


@dataclass(frozen=True)
class Variants:
    """The schedules of ``kernel`` by rising ``start``; the first starts at 0. ``points`` is the size that decides among them.

    ``regrets`` has for each example the predicted ratio to the best schedule that is known for it.
    """

    kernel: Kernel
    points: Size
    variants: tuple[Variant, ...]
    regrets: tuple[tuple[Sizes, float], ...]


def points_of(kernel: Kernel) -> Size | int:
    """The product of the extents of a kernel that each run decides."""
    body = kernel.body
    axes = dict.fromkeys(chain(body.domain, *body.reduced()))
    return math.prod(axis.extent for axis in axes if isinstance(axis.extent, Size))


def variants_of(
    kernel: Kernel,
    first: Choice,
    choose: Callable[[], Choice],
    examples: Sequence[Sizes],
    target: Target,
    between: Between = _nothing_between,
) -> Variants | None:
    """The variants of ``kernel``; ``None`` if no model can compare the schedules of its engine.

    ``between`` gives sizes at which two variants are compared, to decide where the second takes over from the first.
    ``choose`` gives the choice for the sizes of the innermost ``exemplified`` block. All variants read constants that are
    packed in the way of ``first``.
    """
    family, points, limits = first.family, points_of(kernel), target.limits
    if not (family.estimate or rank.can_rank(family)) or not has_sizes(kernel) or not isinstance(points, Size):
        return None
    found: list[_Candidate] = []
    best: list[float] = []
    records: list[Pick | None] = []
    problems = []
    examples = [sizes for sizes in examples if _is_of_engine(kernel, family, sizes, target)]
    for sizes in examples:
        with exemplified(sizes):
            example, other = example_of(kernel), choose()
            problem = family.problem(kernel)
            problems.append((problem, _model(example, target)))
            us = problems[-1][1]
            if other.family is family:
                alike = partial(_is_called_alike, example, first, problem, limits)
                fit = _fitting(other, first, alike, partial(us, family, problem))
                best.append(us(family, problem, other.schedule))
            else:
                fit = None
                best.append(us(other.family, other.family.problem(kernel), other.schedule))
            found.append(_Candidate(_adapted(other, first, fit), sizes, problem))
            records.append(other.pick if fit == other.schedule and _is_of(other, problem) else None)
    candidates: list[_Candidate] = []
    own: list[_Candidate] = []  # of each example
    for one in found:
        equal = (kept for kept in candidates if one.schedule == kept.schedule and one.at(family, kept.own) == 1)
        own.append(next(equal, one))
        if own[-1] is one:
            candidates.append(one)
    times: list[Times] = []
    for number, (problem, us) in enumerate(problems):
        times.append({one: us(family, problem, one.schedule) * one.at(family, problem) for one in candidates})
        best[number] = min(best[number], *times[number].values())
        if (pick := records[number]) is not None:
            default = us(family, problem, family.default(problem, limits).numbers)
            best[number] = min(pick.ratio * default, MEASURED * best[number])
            times[number] = {**times[number], own[number]: best[number]}
    if not examples or not all(map(math.isfinite, best)):
        return None
    kept = _fewest(candidates, times, best)
    ratios = partial(_ratios, kernel, family, kept, target)
    variants, used = _table(points, kept, examples, times, best, between, ratios)
    regrets = tuple((e, t[one] / b) for e, t, one, b in zip(examples, times, used, best, strict=True))
    return Variants(kernel, points, variants, regrets)


def _ratios(
    kernel: Kernel, family: Family, kept: Sequence[_Candidate], target: Target, sizes: Sizes
) -> Sequence[float]:
    """Of each of ``kept``, the predicted time at ``sizes`` over the least of theirs."""
    with exemplified(sizes):
        problem, us = family.problem(kernel), _model(example_of(kernel), target)
        taken = [us(family, problem, one.schedule) * one.at(family, problem) for one in kept]
    least = min(taken)
    return [one / least if math.isfinite(least) else 1.0 for one in taken]


def _is_of_engine(kernel: Kernel, family: Family, sizes: Sizes, target: Target) -> bool:
    """Whether the engine computes the kernel of these sizes alone: where one result is left, a step is not seen any more."""
    with exemplified(sizes):
        return not family.accepts(example_of(kernel), target.features)


def engine_for_all(
    kernel: Kernel,
    first: Choice,
    choose: Callable[[], Choice],
    of_engine: Callable[[Family], Choice],
    examples: Sequence[Sizes],
    target: Target,
) -> Choice:
    """``first``, or the choice of another engine that some examples prefer, if its variants lose less where they lose most.

    All variants of a kernel are of one engine. ``of_engine`` gives the choice for the sizes of ``first`` among an engine's
    schedules. What a record says stays, and so does the engine on a processor.
    """
    made = (
        None if target.limits.is_cpu or first.pick is not None else variants_of(kernel, first, choose, examples, target)
    )
    if made is None or _worst(made) <= SMALL_REGRET:
        return first
    least, found, rivals = _worst(made), first, dict[Family, None]()
    for sizes in examples:
        with exemplified(sizes):
            rivals[choose().family] = None
    for family in (one for one in rivals if one is not first.family):
        other = of_engine(family)
        made = variants_of(kernel, other, choose, examples, target)
        if made is not None and _worst(made) < least:
            least, found = _worst(made), other
    return found


def _worst(made: Variants) -> float:
    return max(ratio for _, ratio in made.regrets)


def _adapted(other: Choice, first: Choice, fit: Schedule | None) -> Choice:
    """The choice of ``fit``, which is ``other`` or a change of it; without one it is ``first``."""
    if fit is None:
        return first
    if fit == other.schedule:
        return replace(other, packing=first.packing)
    return replace(other, schedule=fit, tier="analytic", packing=first.packing, pick=None)


def _is_of(choice: Choice, problem: Any) -> bool:
    """Whether a record of this very problem says that the choice is the best."""
    return choice.pick is not None and dict(choice.pick.problem) == dict(problem.numbers)


def _model(example: Kernel, target: Target) -> Callable[[Family, Any, Schedule], float]:
    """Microseconds of an engine's schedule for ``example``; infinite if it is not legal, or no model compares it.

    A GPU that is not described is compared as a typical one.
    """
    limits = target.limits
    device = None if limits.is_cpu else target.device or typical(limits.units, dots=limits.dots)
    wanted = demand(example, device) if device else None
    empty = 0 in [param.size for param in example.params[example.inputs :]]

    def us(family: Family, problem: Any, schedule: Schedule) -> float:
        if family.reasons(schedule, problem, limits):
            return math.inf
        if family.estimate is not None:
            return family.estimate(family.schedule(schedule), problem, limits)
        if empty:
            return 1.0  # there is nothing to compute, whatever the schedule
        if device is None or wanted is None or not rank.can_rank(family):
            return math.inf
        return rank.predicted(family, problem, schedule, device, wanted).us

    return us


def _is_called_alike(example: Kernel, first: Choice, problem: Any, limits: Limits, schedule: Schedule) -> bool:
    """Whether the source of ``schedule`` can take the place of that of ``first``: constants are packed in the same way, and
    neither has arguments beside the kernel's own.
    """
    family = first.family
    if family.reasons(schedule, problem, limits):
        return False
    if schedule == first.schedule:
        return True
    used = [family.geometry(family.schedule(each), problem) for each in (first.schedule, schedule)]
    alone = all(is_zero(own.workspace_bytes) and is_zero(own.counter_bytes) for own in used)
    return alone and family.packing(example, family.schedule(schedule), problem) == first.packing


def _fitting(
    other: Choice, first: Choice, alike: Callable[[Schedule], bool], us: Callable[[Schedule], float]
) -> Schedule | None:
    """The schedule of ``other``, with as few parameters as in ``first`` as make it ``alike``; ``None`` if that fails.

    One is changed first. Others follow one by one, as long as each makes it faster: with its neighbour changed, a parameter may
    be wrong.
    """
    if alike(other.schedule):
        return dict(other.schedule)
    found, least = other.schedule, math.inf
    while True:
        changed = [{**found, name: value} for name, value in first.schedule.items() if found[name] != value]
        best = min(filter(alike, changed), key=us, default=None)
        if best is None or us(best) >= least:
            return found if least < math.inf else None
        found, least = best, us(best)


def _fewest(candidates: Sequence[_Candidate], times: Sequence[Times], best: Sequence[float]) -> list[_Candidate]:
    kept = [candidates[0]]  # its source is there already

    def regret(some: Sequence[_Candidate]) -> float:
        return max(min(t[one] for one in some) / b for t, b in zip(times, best, strict=True))

    while len(kept) < min(MOST, len(candidates)):
        further = min((one for one in candidates if one not in kept), key=lambda one: regret([*kept, one]))
        if regret(kept) <= SMALL_REGRET or regret([*kept, further]) >= regret(kept):
            break
        kept.append(further)
    return kept


def _table(
    points: Size,
    kept: Sequence[_Candidate],
    examples: Sequence[Sizes],
    times: Sequence[Times],
    best: Sequence[float],
    between: Between,
    ratios: Callable[[Sizes], Sequence[float]],
) -> tuple[tuple[Variant, ...], list[_Candidate]]:
    """The variants, and which of ``kept`` each example uses: one for all that have as many points.

    ``ratios`` gives for other sizes the predicted time of each of ``kept`` over the least.
    """
    groups: dict[int, list[int]] = {}
    for number, sizes in enumerate(examples):
        with exemplified(sizes):
            groups.setdefault(int(hint(points)), []).append(number)
    used = [kept[0]] * len(examples)
    variants: list[Variant] = []
    last: tuple[int, _Candidate, Sizes] | None = None
    for count, group in sorted(groups.items()):
        worst = {one: max(times[number][one] / best[number] for number in group) for one in kept}
        one = min(kept, key=worst.__getitem__)
        for number in group:
            used[number] = one
        if last is None or one is not last[1]:
            start = 0
            if last is not None:
                before, after = kept.index(last[1]), kept.index(one)
                some = _some_between(points, last[2], examples[group[0]], between) if last[0] < FEW_POINTS else {}
                inside = [(at, sizes) for at, sizes in some.items() if last[0] < at < count]
                start = _start(last[0], count, _by_halves(inside, ratios, before, after))
            variants.append(Variant(one.choice, one.example, start))
        last = count, one, examples[group[0]]
    return tuple(variants), used


def _by_halves(
    some: Sequence[tuple[int, Sizes]], ratios: Callable[[Sizes], Sequence[float]], before: int, after: int
) -> dict[int, tuple[float, float]]:
    """By points, the ratios of two schedules on both sides of where the second takes over, at those of ``some`` that tell it."""
    found: dict[int, tuple[float, float]] = {}

    def second_is_faster(one: tuple[int, Sizes]) -> bool:
        every = ratios(one[1])
        found[one[0]] = every[before], every[after]
        return every[before] > every[after]

    bisect_left(some, True, key=second_is_faster)
    return found


def _some_between(points: Size, low: Sizes, high: Sizes, between: Between) -> dict[int, Sizes]:
    """Some sizes between two, by the points that they have."""
    found: dict[int, Sizes] = {}
    for step in range(1, STEPS_BETWEEN):
        if (sizes := between(low, high, step / STEPS_BETWEEN)) is not None:
            with exemplified(sizes):
                found.setdefault(int(hint(points)), sizes)
    return dict(sorted(found.items()))


def _start(low: int, high: int, ratios: Mapping[int, tuple[float, float]]) -> int:
    """From how many points on the second of two schedules is used, the first one for ``low`` and the second for ``high``.

    ``ratios`` has for some points between them how much longer each takes than the faster: the largest that counts is to be
    small. Where nothing tells, it is the middle.
    """
    middle = min(math.isqrt(max(low, 1) * high) + 1, high)
    if not ratios:
        return middle

    def worst(start: int) -> tuple[float, float]:
        used = [after if at >= start else before for at, (before, after) in ratios.items()]
        return max(used), abs(math.log(start / middle))

    return min((*ratios, high, middle), key=worst)
