"""Several schedules for one kernel whose sizes each run decides, such that none is far from the best at any size.

The schedules are those that are chosen for some examples. Of these, as few as possible are kept so that the largest ratio to
the best known schedule, the regret, is small: greedily, each time the one that lessens it most (T. F. Gonzalez, "Clustering to
minimize the maximum intercluster distance", 1985). Times are those of the engine's model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from gpucomp.device.limits import Limits
from gpucomp.ir.example import exemplified
from gpucomp.ir.size import Size, hint
from gpucomp.kernel import Kernel
from gpucomp.kernel.example import example_of, has_sizes
from gpucomp.schedule.choose import Choice
from gpucomp.schedule.space import Family, Schedule

MOST = 2  # schedules of a kernel
SMALL_REGRET = 1.2
Sizes = Mapping[str, int]


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A schedule, written for ``example``, where the engine's problem is ``own``."""

    schedule: Schedule
    example: Sizes
    own: Any

    def at(self, family: Family, problem: Any) -> float:
        """How many times as long as estimated its source takes at ``problem``."""
        return family.elsewhere(family.schedule(self.schedule), self.own, problem)


Times = Mapping[_Candidate, float]


@dataclass(frozen=True)
class Variant:
    """A schedule, and the example that it was chosen for. It is used from ``start`` points of the kernel on."""

    schedule: Schedule
    example: Sizes
    start: int


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
    kernel: Kernel, first: Choice, choose: Callable[[], Choice], examples: Sequence[Sizes], limits: Limits
) -> Variants | None:
    """The variants of ``kernel``; ``None`` if it has one engine without a model, which has nothing to tell them by.

    ``choose`` gives the choice for the sizes of the innermost ``exemplified`` block. All variants read constants that are
    packed in the way of ``first``.
    """
    family, points = first.family, points_of(kernel)
    if family.estimate is None or not has_sizes(kernel) or not isinstance(points, Size):
        return None
    found: list[_Candidate] = []
    best: list[float] = []
    problems = []
    for sizes in examples:
        with exemplified(sizes):
            example, other = example_of(kernel), choose()
            problem = family.problem(example)
            problems.append(problem)
            if other.family is family:
                alike = partial(_is_packed_alike, example, first, problem, limits)
                fit = _fitting(family, other, first, alike, problem, limits)
                best.append(_estimate(family, other.schedule, problem, limits))
            else:
                fit = None
                best.append(_estimate(other.family, other.schedule, other.family.problem(example), limits))
            found.append(_Candidate(first.schedule if fit is None else fit, sizes, problem))
    candidates: list[_Candidate] = []
    for one in found:
        if not any(one.schedule == kept.schedule and one.at(family, kept.own) == 1 for kept in candidates):
            candidates.append(one)
    times: list[Times] = []
    for number, problem in enumerate(problems):
        alone = {one: _estimate(family, one.schedule, problem, limits) for one in candidates}
        times.append({one: us * one.at(family, problem) for one, us in alone.items()})
        best[number] = min(best[number], *times[number].values())
    kept = _fewest(candidates, times, best)
    regrets = tuple((e, min(t[one] for one in kept) / b) for e, t, b in zip(examples, times, best, strict=True))
    return Variants(kernel, points, _table(points, kept, examples, times), regrets)


def _estimate(family: Family, schedule: Schedule, problem: Any, limits: Limits) -> float:
    """Microseconds by the engine's model; infinite if the schedule is not legal or there is no model."""
    if family.estimate is None or family.reasons(schedule, problem, limits):
        return math.inf
    return family.estimate(family.schedule(schedule), problem, limits)


def _is_packed_alike(example: Kernel, first: Choice, problem: Any, limits: Limits, schedule: Schedule) -> bool:
    """Whether constants are packed for ``schedule`` as they are for ``first``."""
    family = first.family
    alike = family.packing(example, family.schedule(schedule), problem) == first.packing
    return alike and not family.reasons(schedule, problem, limits)


def _fitting(
    family: Family, other: Choice, first: Choice, alike: Callable[[Schedule], bool], problem: Any, limits: Limits
) -> Schedule | None:
    """The schedule of ``other``, with one parameter as in ``first`` if it is not ``alike``; ``None`` if that fails."""
    schedule = other.schedule
    if alike(schedule):
        return dict(schedule)
    changed = [{**schedule, name: value} for name, value in first.schedule.items() if schedule[name] != value]
    return min(filter(alike, changed), key=lambda one: _estimate(family, one, problem, limits), default=None)


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
    points: Size, kept: Sequence[_Candidate], examples: Sequence[Sizes], times: Sequence[Times]
) -> tuple[Variant, ...]:
    rows = []
    for sizes, known in zip(examples, times, strict=True):
        with exemplified(sizes):
            rows.append((int(hint(points)), min(kept, key=known.__getitem__)))
    rows.sort(key=lambda row: row[0])
    variants: list[Variant] = []
    last: tuple[int, _Candidate] | None = None
    for count, one in rows:
        if last is None or one is not last[1]:
            start = 0 if last is None else math.isqrt(max(last[0], 1) * count) + 1
            variants.append(Variant(one.schedule, one.example, start))
        last = count, one
    return tuple(variants)
