"""Several schedules for one kernel whose sizes each run decides, such that none is far from the best at any size.

The schedules are those that are chosen for some examples. Of these, as few as possible are kept so that the largest ratio to
the best known schedule, the regret, is small: greedily, each time the one that lessens it most (T. F. Gonzalez, "Clustering to
minimize the maximum intercluster distance", 1985). Times are those of the engine's model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from gpucomp.device.limits import Limits
from gpucomp.ir.size import Size, exemplified, hint
from gpucomp.kernel import Kernel
from gpucomp.kernel.example import example_of, has_sizes
from gpucomp.schedule.choose import Choice
from gpucomp.schedule.space import Family, Schedule

MOST = 4  # schedules of a kernel
SMALL_REGRET = 1.05
Sizes = Mapping[str, int]
Numbers = tuple[tuple[str, int], ...]  # of a schedule
Times = Mapping[Numbers, float]


@dataclass(frozen=True)
class Variant:
    """A schedule, and the example that it was chosen for. It is used from ``start`` points of the kernel on."""

    schedule: Schedule
    example: Sizes
    start: int


@dataclass(frozen=True)
class Variants:
    """The schedules of a kernel by rising ``start``; the first starts at 0. ``points`` is the size that decides among them.

    ``regrets`` has for each example the predicted ratio to the best schedule that is known for it.
    """

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
    schedules: dict[Numbers, Sizes] = {}
    best: list[float] = []
    for sizes in examples:
        with exemplified(sizes):
            other = choose()
            if other.family is family and (fit := _packed_alike(kernel, other.schedule, first, limits)) is not None:
                schedules.setdefault(tuple(fit.items()), sizes)
            best.append(_estimate(other.family, kernel, other.schedule, limits))
    schedules.setdefault(tuple(first.schedule.items()), examples[0])
    times: list[Times] = []
    for number, sizes in enumerate(examples):
        with exemplified(sizes):
            times.append({s: _estimate(family, kernel, dict(s), limits) for s in schedules})
        best[number] = min(best[number], *times[number].values())
    kept = _fewest(list(schedules), times, best)
    regrets = tuple((e, min(t[s] for s in kept) / b) for e, t, b in zip(examples, times, best, strict=True))
    return Variants(points, _table(points, kept, schedules, examples, times), regrets)


def _estimate(family: Family, kernel: Kernel, schedule: Schedule, limits: Limits) -> float:
    """Microseconds by the engine's model; infinite if the schedule is not legal."""
    problem = family.problem(example_of(kernel))
    if family.estimate is None or family.reasons(schedule, problem, limits):
        return math.inf
    return family.estimate(family.schedule(schedule), problem, limits)


def _packed_alike(kernel: Kernel, schedule: Schedule, first: Choice, limits: Limits) -> Schedule | None:
    """``schedule``, with one parameter as in ``first`` if constants would be packed in another way; ``None`` if that fails."""
    family, example = first.family, example_of(kernel)
    problem = family.problem(example)

    def fits(one: Schedule) -> bool:
        alike = family.packing(example, family.schedule(one), problem) == first.packing
        return alike and not family.reasons(one, problem, limits)

    if fits(schedule):
        return dict(schedule)
    changed = [{**schedule, name: value} for name, value in first.schedule.items() if schedule[name] != value]
    able = [one for one in changed if fits(one)]
    return min(able, key=lambda one: _estimate(family, kernel, one, limits), default=None)


def _fewest(schedules: Sequence[Numbers], times: Sequence[Times], best: Sequence[float]) -> list[Numbers]:
    kept: list[Numbers] = []

    def regret(some: Sequence[Numbers]) -> float:
        return max(min(t[s] for s in some) / b for t, b in zip(times, best, strict=True))

    while len(kept) < min(MOST, len(schedules)):
        further = min((s for s in schedules if s not in kept), key=lambda s: regret([*kept, s]))
        if kept and (regret(kept) <= SMALL_REGRET or regret([*kept, further]) >= regret(kept)):
            break
        kept.append(further)
    return kept


def _table(
    points: Size,
    kept: Sequence[Numbers],
    schedules: Mapping[Numbers, Sizes],
    examples: Sequence[Sizes],
    times: Sequence[Times],
) -> tuple[Variant, ...]:
    rows = []
    for sizes, known in zip(examples, times, strict=True):
        with exemplified(sizes):
            rows.append((int(hint(points)), min(kept, key=known.__getitem__)))
    rows.sort(key=lambda row: row[0])
    variants: list[Variant] = []
    before = 0
    for count, schedule in rows:
        if not variants or tuple(variants[-1].schedule.items()) != schedule:
            start = math.isqrt(max(before, 1) * count) + 1 if variants else 0
            variants.append(Variant(dict(schedule), schedules[schedule], start))
        before = count
    return tuple(variants)
