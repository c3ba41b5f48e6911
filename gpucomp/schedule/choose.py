"""Which schedule a kernel gets: the first tier that answers. No search lives here.

    1 record      the exact problem on this device          (tuning records)
    2 sibling     the same problem on a sibling device      (tuning records)
    3 nearest     the nearest problem on this device        (tuning records)
    4 portfolio   the short list of the family              (tuning records)
    5 analytic    ranked by a model of the device
    6 default     the family's rule of thumb, legal everywhere

A tier is a function ``(kernel, family, problem, limits) -> schedule or None``. ``TIERS`` lists those that are there:
the default alone, until there are records to look up and a model to rank by. Every answer is checked for legality on
the target before it is used. Within a tier the engines are asked in the order of preference, and the first with a
legal answer wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from gpucomp.kernel import Kernel
from gpucomp.schedule.space import Family, Limits, Packing, Problem, Schedule

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


TIERS: tuple[tuple[str, Tier], ...] = (("default", _default),)


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
        for family, problem in problems:
            schedule = tier(kernel, family, problem, limits)
            if schedule is not None and not family.reasons(schedule, problem, limits):
                s, p = SimpleNamespace(**schedule), SimpleNamespace(**problem)
                return Choice(dict(schedule), name, family, family.packing(kernel, s, p))
    family, problem = problems[-1]
    family.require(_default(kernel, family, problem, limits), problem, limits)
    raise AssertionError("the last tier always answers")
