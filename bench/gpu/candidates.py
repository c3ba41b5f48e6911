"""The schedules of a kernel that are worth measuring: sampled, improved step by step, ranked by the model."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.kernel import Kernel
from gpucomp.kernel.passes.pack_weights import Packed, pack
from gpucomp.kernel.sizes import Sizes
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule import rank
from gpucomp.schedule.analytic import demand
from gpucomp.schedule.model import terms
from gpucomp.schedule.space import Family

WHOLE_SPACE = 4096  # a space of at most so many points is enumerated instead of sampled
DRAWS = 3000
KEPT = 12  # schedules whose neighbours are tried
ROUNDS = 3
POOL = 12  # candidates for each place on the list
LIKENESS = 0.5  # penalty for being equal to a schedule on the list, as a share of the time
GUESSED_REGISTERS = 64  # of a work-item, before it is compiled


@dataclass(frozen=True)
class Candidate:
    """An engine and its schedule for a kernel. ``estimate_us`` is the model's."""

    family: Family
    schedule: dict[str, int]
    estimate_us: float = math.nan

    @property
    def title(self) -> str:
        return f"{self.family.title} {' '.join(f'{k}={v}' for k, v in self.schedule.items())}"


def default(kernel: Kernel, family: Family, limits: Limits) -> Candidate:
    return Candidate(family, dict(family.default(family.problem(kernel), limits).numbers))


def drawn(family: Family, problem: Sizes, limits: Limits, count: int, seed: int = 0) -> Iterator[dict[str, int]]:
    """At most ``count`` different legal schedules, always the same; all legal ones of a small space."""
    if math.prod(len(p.choices) for p in family.params) <= WHOLE_SPACE:
        found = list(family.legal(problem, limits))
        random.Random(seed).shuffle(found)
        yield from found[:count]
        return
    draw, seen = random.Random(seed), set()
    for _ in range(DRAWS):
        if len(seen) == count:
            return
        schedule = {p.name: draw.choice(p.choices) for p in family.params}
        key = tuple(schedule.values())
        if key not in seen and not family.reasons(schedule, problem, limits):
            seen.add(key)
            yield schedule


def neighbours(family: Family, schedule: dict[str, int]) -> Iterator[dict[str, int]]:
    """Schedules with one parameter a step up or down; they may be illegal."""
    for p in family.params:
        at = p.choices.index(schedule[p.name])
        for other in (at - 1, at + 1):
            if 0 <= other < len(p.choices):
                yield {**schedule, p.name: p.choices[other]}


def estimate_us(kernel: Kernel, family: Family, schedule: dict[str, int], problem: Sizes, target: Target) -> float:
    """Microseconds by the analytic model; for an engine that it does not know, as if the work were spread evenly."""
    if target.device is None:
        return math.nan
    if rank.can_rank(family):
        return rank.predicted(family, problem, schedule, target.device, demand(kernel, target.device)).us
    geometry = family.geometry(family.schedule(schedule), problem)
    shared = geometry.dynamic_shared_bytes
    return terms(kernel, target.device, geometry, registers=GUESSED_REGISTERS, shared_bytes=shared).total_us


def ranked(kernel: Kernel, family: Family, target: Target, count: int, seed: int = 0) -> list[Candidate]:
    """The engine's default, then ``count - 1`` different schedules that the model expects to be fast."""
    problem, limits = family.problem(kernel), target.limits
    first = default(kernel, family, limits)
    first = Candidate(family, first.schedule, estimate_us(kernel, family, first.schedule, problem, target))
    others = _searched if target.device is None or not rank.can_rank(family) else _modelled
    found = [c for c in others(kernel, family, problem, target, POOL * count, seed) if c.schedule != first.schedule]
    return diverse(first, found, count)


def _modelled(kernel: Kernel, family: Family, problem: Sizes, target: Target, count: int, seed: int) -> list[Candidate]:
    """The fastest schedules of the whole space, in the model's order."""
    assert target.device is not None
    ranking = rank.ranking(family, problem, target.limits, target.device, demand(kernel, target.device))
    return [Candidate(family, dict(r.schedule), r.us) for r in itertools.islice(ranking.best(), count)]


def _searched(kernel: Kernel, family: Family, problem: Sizes, target: Target, count: int, seed: int) -> list[Candidate]:
    """The fastest of a sample and of its neighbours, if the model cannot rank the whole space."""

    def judged(schedule: dict[str, int]) -> Candidate:
        return Candidate(family, schedule, estimate_us(kernel, family, schedule, problem, target))

    found = {tuple(s.values()): judged(s) for s in drawn(family, problem, target.limits, DRAWS // 10, seed)}
    for _ in range(ROUNDS):
        for candidate in sorted(found.values(), key=_order)[:KEPT]:
            for schedule in neighbours(family, candidate.schedule):
                key = tuple(schedule.values())
                if key not in found and not family.reasons(schedule, problem, target.limits):
                    found[key] = judged(schedule)
    return sorted(found.values(), key=_order)[:count]


def diverse(first: Candidate, others: Sequence[Candidate], count: int) -> list[Candidate]:
    """``first`` and ``count - 1`` of ``others``, fast and unlike each other: the model gives similar schedules equal times."""
    chosen, left = [first], list(others)
    nearest = [_likeness(first, c) for c in left]  # to the most similar chosen one
    while left and len(chosen) < count:
        costs = [_time(c) * (1 + LIKENESS * near) for c, near in zip(left, nearest, strict=True)]
        at = costs.index(min(costs))
        chosen.append(left.pop(at))
        nearest.pop(at)
        nearest = [max(near, _likeness(chosen[-1], c)) for c, near in zip(left, nearest, strict=True)]
    return chosen


def _likeness(a: Candidate, b: Candidate) -> float:
    """The share of parameters in which two schedules agree."""
    return sum(a.schedule[k] == b.schedule[k] for k in a.schedule) / max(1, len(a.schedule))


def _time(candidate: Candidate) -> float:
    return 1.0 if math.isnan(candidate.estimate_us) else candidate.estimate_us


def _order(candidate: Candidate) -> tuple[float, tuple[int, ...]]:
    time = candidate.estimate_us
    return (math.inf if math.isnan(time) else time, tuple(candidate.schedule.values()))


def shortlist(kernel: Kernel, target: Target, count: int, seed: int = 0) -> list[Candidate]:
    """``count`` candidates from all engines that can compute the kernel; each engine's default is its first."""
    engines = engines_of(kernel, target.features)
    lists = [ranked(kernel, family, target, max(1, count), seed) for family in engines]
    firsts = [found.pop(0) for found in lists]
    # every engine has its own share, because the models of different engines are not comparable to the microsecond
    rest: list[Candidate] = []
    while any(lists) and len(firsts) + len(rest) < count:
        rest += [found.pop(0) for found in lists if found]
    return [*firsts, *rest][: max(count, len(firsts))]


def rendered(kernel: Kernel, candidate: Candidate, target: Target, name: str) -> tuple[KernelSource, Packed | None]:
    """The source, and the packing of a constant operand."""
    s, p = candidate.family.schedule(candidate.schedule), candidate.family.problem(kernel)
    packing = candidate.family.packing(kernel, s, p)
    packed = pack(kernel, packing) if packing else None
    subject = packed.kernel if packed else kernel
    return render(subject, candidate.schedule, target, name, candidate.family), packed


def spread(kernel: Kernel, family: Family, target: Target, count: int, seed: int) -> Sequence[Candidate]:
    """The engine's default and up to ``count`` others from its whole space."""
    problem = family.problem(kernel)
    others = drawn(family, problem, target.limits, count, seed)
    return [default(kernel, family, target.limits), *(Candidate(family, s) for s in others)]
