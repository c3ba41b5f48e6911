"""Whether an engine says of many schedules at once, in lockstep, what it says of each of them."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from gpucomp.device.lockstep import lockstep
from gpucomp.device.target import Target
from gpucomp.kernel import Kernel
from gpucomp.schedule import points
from gpucomp.schedule.rank import can_rank, facts_of
from gpucomp.schedule.space import Family

DRAWN = 60  # schedules of an engine


def assert_agrees(kernel: Kernel, family: Family, target: Target) -> None:
    """Legality of random schedules and the default, and what the analytic model asks of the legal ones."""
    draw, problem = random.Random(0), family.problem(kernel)
    drawn = [{p.name: draw.choice(p.choices) for p in family.params} for _ in range(DRAWN)]
    drawn.append(dict(family.default(problem, target.limits).numbers))
    values = np.array([[s[q.name] for q in family.params] for s in drawn], np.int64)
    p, good = problem, np.zeros(len(drawn), bool)

    for rows, reason in lockstep(
        lambda point: next(iter(family.objections(family.schedule(point), p, target.limits)), None),
        points.columns(family, values),
    ):
        good[rows] = reason is None
    assert good.tolist() == [not family.reasons(s, problem, target.limits) for s in drawn]

    if can_rank(family):
        facts = facts_of(family, problem, values, target.limits)
        assert facts.known.tolist() == good.tolist()
        for row in np.flatnonzero(good):
            s = family.schedule(drawn[row])
            work, geometry = family.work(s, p), family.geometry(s, p)
            assert facts.numbers["keeps"][row] == family.registers(s, p)
            assert facts.numbers["threads"][row] == math.prod(geometry.items)
            assert facts.numbers["groups"][row] == math.prod(geometry.groups)
            for name in (
                "macs",
                "instructions",
                "shared_traffic",
                "steps",
                "splits",
                "joined_bytes",
                "tail_bytes",
                "tail_trips",
                "tail_instructions",
                "tail_sharers",
            ):
                assert facts.numbers[name][row] == pytest.approx(getattr(work, name), rel=1e-12), name
