"""Which schedule a kernel gets: the first tier that answers. No search lives here.

    1 record      the exact problem on this device          (tuning records)
    2 sibling     the same problem on a sibling device      (tuning records)
    3 nearest     the nearest problem on this device        (tuning records)
    4 portfolio   the short list of the family              (tuning records)
    5 analytic    ranked by a model of the device
    6 default     the family's rule of thumb, legal everywhere

A tier is a function ``(kernel, family, problem, limits) -> schedule or None``. ``TIERS`` lists those that are there:
the default alone, until there are records to look up and a model to rank by. Every answer is checked for legality on
the target before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace

from gpucomp.kernel import Kernel
from gpucomp.schedule.space import Family, Limits, Problem, Schedule

Tier = Callable[[Kernel, Family, Problem, Limits], Schedule | None]


@dataclass(frozen=True)
class Choice:
    """A schedule and the tier that gave it."""

    schedule: Mapping[str, int]
    tier: str


def _default(kernel: Kernel, family: Family, problem: Problem, limits: Limits) -> Schedule:
    return family.default(SimpleNamespace(**problem), limits)


TIERS: tuple[tuple[str, Tier], ...] = (("default", _default),)


def choose(kernel: Kernel, family: Family, limits: Limits, *, tiers: tuple[tuple[str, Tier], ...] = TIERS) -> Choice:
    """The schedule of the first tier that answers. Raises ``ScheduleError`` when that answer cannot run."""
    problem = family.problem(kernel)
    for name, tier in tiers:
        schedule = tier(kernel, family, problem, limits)
        if schedule is None:
            continue
        if name != tiers[-1][0] and family.reasons(schedule, problem, limits):
            continue  # a record of another device that this one cannot run
        family.require(schedule, problem, limits)
        return Choice(dict(schedule), name)
    raise AssertionError("the last tier always answers")
