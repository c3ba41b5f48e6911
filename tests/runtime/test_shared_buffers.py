"""Buffers shared by lifetime: nothing that lives together shares one, but what the plan lays in place."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucomp.artifact.arena import Lifetime, plan_arena
from gpucomp.artifact.plan import OUTPUT, TEMP, Buffer, Launch, Plan
from gpucomp.errors import ArtifactError
from gpucomp.runtime.shared_buffers import share

ALIGNMENT = 512


def plan_of(buffers, launches, outputs=()):
    return Plan("opencl:pocl", "opencl", "pocl", tuple(buffers), (), tuple(launches), (), outputs, (), 0)


def temporary(nbytes, offset, name="t"):
    return Buffer(TEMP, name, "i8", (nbytes,), nbytes, offset)


def launches_of(lifetimes):
    """A launch a step, of the buffers that are written or read in it."""
    steps = max(life.last for life in lifetimes) + 1
    return [
        Launch(0, tuple(k for k, life in enumerate(lifetimes) if life.first <= step <= life.last))
        for step in range(steps)
    ]


@st.composite
def planned(draw):
    """A plan of some temporaries, some of which may lie on one that dies where they are made."""
    rng = random.Random(draw(st.integers(0, 10**6)))
    lifetimes = []
    for _ in range(draw(st.integers(1, 25))):
        first = rng.randrange(12)
        dying = tuple(k for k, life in enumerate(lifetimes) if life.last == first and rng.random() < 0.7)
        lifetimes.append(Lifetime(rng.choice([0, 1, 500, 4096, 9000]), first, first + rng.randrange(5), dying))
    arena = plan_arena(lifetimes, ALIGNMENT)
    buffers = [temporary(life.nbytes, at) for life, at in zip(lifetimes, arena.offsets, strict=True)]
    return lifetimes, plan_of(buffers, launches_of(lifetimes))


@given(planned())
@settings(max_examples=200, deadline=None)
def test_what_lives_together_shares_nothing_but_what_lies_in_place(made):
    lifetimes, plan = made

    found = share(plan)

    for a, one in enumerate(lifetimes):
        if one.nbytes:
            assert found.sizes[found.of[a]] >= one.nbytes
        for b, other in enumerate(lifetimes[:a]):
            if not one.nbytes or not other.nbytes or one.first > other.last or other.first > one.last:
                continue
            x, y = plan.buffers[a], plan.buffers[b]
            on_each_other = x.offset < y.offset + y.nbytes and y.offset < x.offset + x.nbytes
            assert (found.of[a] == found.of[b]) == on_each_other
    assert max(found.sizes, default=0) == max(life.nbytes for life in lifetimes)


def test_a_chain_needs_two_buffers():
    sizes = [700, 900, 300, 800, 100]
    lifetimes = [Lifetime(n, k, k + 1) for k, n in enumerate(sizes)]

    found = share(plan_of([temporary(n, 4096 * k) for k, n in enumerate(sizes)], launches_of(lifetimes)))

    assert sorted(found.sizes) == [700, 900]


def test_each_goes_into_the_smallest_buffer_that_is_free():
    lifetimes = [Lifetime(1000, 0, 1), Lifetime(100, 0, 1), Lifetime(90, 2, 3)]
    buffers = [temporary(life.nbytes, 2048 * k) for k, life in enumerate(lifetimes)]

    found = share(plan_of(buffers, launches_of(lifetimes)))

    assert found.sizes == (1000, 100)
    assert found.of == {0: 0, 1: 1, 2: 1}


def test_what_the_plan_gives_back_lives_to_the_end():
    buffers = [temporary(64, 0), Buffer(OUTPUT, "y", "i8", (64,), 64), temporary(64, 512)]

    found = share(plan_of(buffers, [Launch(0, (0,)), Launch(0, (2, 1))], outputs=(0,)))

    assert found.of[0] != found.of[2]


def test_a_small_result_in_place_lends_the_rest_of_its_place():
    """Behind it in the arena lies what is made later: not on the operand, which is dead by then."""
    buffers = [temporary(2048, 0), temporary(512, 0), temporary(1024, 1024)]
    launches = [Launch(0, (0,)), Launch(0, (0, 1)), Launch(0, (1, 2)), Launch(0, (1, 2))]

    found = share(plan_of(buffers, launches))

    assert found.of[0] == found.of[1] != found.of[2]


def test_a_plan_of_parts_within_parts_is_refused():
    buffers = [temporary(2048, 0, "whole"), temporary(512, 512, "part")]

    with pytest.raises(ArtifactError, match="buffer part begins inside whole"):
        share(plan_of(buffers, [Launch(0, (0, 1))]))
