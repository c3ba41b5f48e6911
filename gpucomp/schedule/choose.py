"""Which schedule a kernel gets: the first tier that answers. No search lives here.

    1 record      the exact problem on this device          (tuning records)
    2 sibling     the same problem on a sibling device      (tuning records)
    3 nearest     the nearest problem on this device        (tuning records)
    4 portfolio   the short list of the family              (tuning records)
    5 analytic    ranked by a model of the device
    6 default     the family's rule of thumb, legal everywhere

A tier is a function ``(kernel, family, problem, limits) -> schedule or None``. ``TIERS`` lists those that need no
records, ``recorded`` those that do. Every answer is checked for legality on the target before it is used. Within a tier
the engines are asked in the order of preference, and the first with a legal answer wins; the analytic tier asks all
engines that estimate their time and takes the fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from gpucomp.kernel import Kernel
from gpucomp.schedule.records import Pick, Picks, template_hash
from gpucomp.schedule.space import Family, Limits, Packing, Problem, Schedule
from gpucomp.targets.target import Target

Tier = Callable[[Kernel, Family, Problem, Limits], Schedule | None]


@dataclass(frozen=True)
class Choice:
    """A schedule, the tier that gave it, the engine it is for, and how that wants a constant operand packed."""

    schedule: Mapping[str, int]
    tier: str
    family: Family
    packing: Packing | None = None


def _default(kernel: Kernel, family: Family, problem: Problem, limits: Limits) -> Schedule:
    return family.default(SimpleNamespace(**problem), limits)


def recorded(picks: Picks, target: Target) -> tuple[tuple[str, Tier], ...]:
    """The tiers that ask ``picks``. A pick of a template that has changed since answers for its own kernel alone.

    Whether it still does is for who renders to see: its source has to be the one that was measured.
    """

    def tier(find: Callable[[Kernel, Family, Problem], Pick | None], *, exact: bool) -> Tier:
        def answer(kernel: Kernel, family: Family, problem: Problem, limits: Limits) -> Schedule | None:
            pick = find(kernel, family, problem)
            if pick is None or pick.engine != family.title:
                return None
            return pick.schedule if exact or pick.template == template_hash(family.template) else None

        return answer

    return (
        ("record", tier(lambda kernel, family, problem: picks.exact(kernel.digest, target), exact=True)),
        ("sibling", tier(lambda kernel, family, problem: picks.sibling(kernel.digest, target), exact=False)),
        ("nearest", tier(lambda kernel, family, problem: picks.nearest(problem, family.title, target), exact=False)),
    )


TIERS: tuple[tuple[str, Tier], ...] = (("default", _default),)


def _analytic(problems: Sequence[tuple[Family, Problem]], limits: Limits) -> tuple[Family, Problem, Schedule] | None:
    """The engine that estimates the least time for its default; ``None`` where the first choice estimates nothing.

    An engine's default is the best of its own short list by its own model, so this compares the engines alone.
    """
    rivals = [(family, problem) for family, problem in problems if family.estimate is not None]
    if len(rivals) < 2 or rivals[0][0] is not problems[0][0]:
        return None
    found = []
    for family, problem in rivals:
        p = SimpleNamespace(**problem)
        schedule = family.default(p, limits)
        if family.estimate is not None and not family.reasons(schedule, problem, limits):
            found.append((family.estimate(SimpleNamespace(**schedule), p, limits), family, problem, schedule))
    if len(found) < 2:
        return None  # nothing to compare
    _, family, problem, schedule = min(found, key=lambda candidate: candidate[0])
    return family, problem, schedule


def choose(
    kernel: Kernel,
    families: Sequence[Family],
    limits: Limits,
    *,
    tiers: tuple[tuple[str, Tier], ...] = TIERS,
) -> Choice:
    """The schedule of the first tier that answers, for the first of ``families`` that can run it.

    Raises ``ScheduleError`` when not even the last family's default can run.
    """
    problems = [(family, family.problem(kernel)) for family in families]
    for name, tier in tiers:
        if name == "default" and (best := _analytic(problems, limits)) is not None:
            return _choice(kernel, "analytic", *best)
        for family, problem in problems:
            schedule = tier(kernel, family, problem, limits)
            if schedule is not None and not family.reasons(schedule, problem, limits):
                return _choice(kernel, name, family, problem, schedule)
    family, problem = problems[-1]
    family.require(_default(kernel, family, problem, limits), problem, limits)
    raise AssertionError("the last tier always answers")


def _choice(kernel: Kernel, tier: str, family: Family, problem: Problem, schedule: Schedule) -> Choice:
    packing = family.packing(kernel, SimpleNamespace(**schedule), SimpleNamespace(**problem))
    return Choice(dict(schedule), tier, family, packing)
