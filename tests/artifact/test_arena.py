"""The arena plan: nothing that lives together overlaps, and little is wasted."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucomp.artifact.arena import Lifetime, plan_arena


def overlapping(lifetimes, offsets):
    """Pairs of buffers that share a byte in a step, except a result that lies on a dying operand it may take."""
    found = []
    order = sorted(range(len(lifetimes)), key=lambda k: lifetimes[k].first)
    for position, i in enumerate(order):
        for j in order[position + 1 :]:
            a, b = lifetimes[i], lifetimes[j]
            if b.first > a.last:
                break
            shared = min(offsets[i] + a.nbytes, offsets[j] + b.nbytes) > max(offsets[i], offsets[j])
            takes = (
                i in b.inplace and a.last == b.first and a.first < b.first and offsets[i] == offsets[j]
            ) and b.nbytes <= -(-a.nbytes // 64) * 64
            if shared and a.nbytes and b.nbytes and not takes:
                found.append((i, j))
    return found


def brute_force_live(lifetimes, alignment):
    """The largest live set by definition: in each step the best assignment of results to dying operands."""
    size = [-(-life.nbytes // alignment) * alignment for life in lifetimes]

    def saving(results, free):
        if not results:
            return 0
        k, rest = results[0], results[1:]
        options = [saving(rest, free)]
        options += [size[k] + saving(rest, free - {d}) for d in free & set(lifetimes[k].inplace) if size[d] >= size[k]]
        return max(options)

    largest = 0
    for step in range(max((life.last for life in lifetimes), default=-1) + 1):
        alive = [k for k, life in enumerate(lifetimes) if life.first <= step <= life.last]
        results = [k for k in alive if lifetimes[k].first == step]
        dying = frozenset(k for k in alive if lifetimes[k].last == step and lifetimes[k].first < step)
        largest = max(largest, sum(size[k] for k in alive) - saving(results, dying))
    return largest


@st.composite
def random_lifetimes(draw):
    count = draw(st.integers(0, 14))
    lives = []
    for k in range(count):
        first = draw(st.integers(0, 9))
        last = first + draw(st.integers(0, 5))
        inplace = draw(st.sets(st.integers(0, max(count - 1, 0)), max_size=3))
        lives.append(Lifetime(draw(st.integers(0, 700)), first, last, tuple(sorted(inplace - {k}))))
    return lives


@settings(max_examples=400, deadline=None)
@given(random_lifetimes())
def test_no_two_buffers_that_live_together_overlap(lifetimes):
    plan = plan_arena(lifetimes, 64)

    assert overlapping(lifetimes, plan.offsets) == []
    assert all(offset >= 0 and offset % 64 == 0 for offset in plan.offsets)
    assert plan.arena_bytes >= max((o + b.nbytes for o, b in zip(plan.offsets, lifetimes, strict=True)), default=0)


@settings(max_examples=300, deadline=None)
@given(random_lifetimes())
def test_live_bytes_is_the_largest_live_set(lifetimes):
    plan = plan_arena(lifetimes, 64)

    assert plan.live_bytes == brute_force_live(lifetimes, 64)
    assert plan.live_bytes <= plan.arena_bytes


def lifetimes_of(steps, *, elementwise=frozenset()):
    """``steps``: per step (bytes of its result, steps it reads). The last result lives on to the end."""
    last = list(range(len(steps)))
    for k, (_, reads) in enumerate(steps):
        for r in reads:
            last[r] = max(last[r], k)
    last[-1] = len(steps)
    return [
        Lifetime(nbytes, k, last[k], tuple(reads) if k in elementwise else ())
        for k, (nbytes, reads) in enumerate(steps)
    ]


def chain(rng, count):
    return lifetimes_of([(rng.randrange(1, 1 << 22), (k - 1,) if k else ()) for k in range(count)])


def residual(rng, count):
    """Bottlenecks as in ResNet-50: three convolutions, the last adds the block's input, in place where it dies."""
    steps, adds = [(4 << 20, ())], set()
    for block in range(count):
        wide = (4 << 20) >> min(block // 4, 4)
        at = len(steps) - 1
        projected = at
        if block % 4 == 0:
            steps.append((wide, (at,)))
            projected = len(steps) - 1
        steps.append((wide // 4 + 64 * rng.randrange(9), (at,)))
        steps.append((wide // 4, (len(steps) - 1,)))
        steps.append((wide, (len(steps) - 1, projected)))
        adds.add(len(steps) - 1)
    lives = lifetimes_of(steps)
    return [Lifetime(b.nbytes, b.first, b.last, (steps[k][1][1],) if k in adds else ()) for k, b in enumerate(lives)]


def densenet(rng, count):
    """Every layer reads all results of its block."""
    steps = [(1 << 20, ())]
    members = [0]
    for k in range(count):
        steps.append(((1 << 19) + 64 * rng.randrange(50), tuple(members)))
        steps.append((1 << 17, (len(steps) - 1,)))
        members.append(len(steps) - 1)
        if k % 12 == 11:
            steps.append((1 << 19, tuple(members)))
            members = [len(steps) - 1]
    return lifetimes_of(steps)


def unet(rng, levels):
    """Results of the way down are kept for the way up."""
    steps, skips = [(3 << 16, ())], []
    for level in range(levels):
        size = (1 << 22) >> level
        steps.append((size, (len(steps) - 1,)))
        steps.append((size, (len(steps) - 1,)))
        skips.append(len(steps) - 1)
        steps.append((size // 4, (len(steps) - 1,)))
    for level in reversed(range(levels)):
        size = (1 << 22) >> level
        steps.append((size, (len(steps) - 1,)))
        steps.append((size + 64 * rng.randrange(5), (len(steps) - 1, skips[level])))
        steps.append((size, (len(steps) - 1,)))
    return lifetimes_of(steps)


def branches(rng, count):
    """Inception: four branches of different depth from one input, then a concatenation."""
    steps = [(1 << 20, ())]
    for _ in range(count):
        root, ends = len(steps) - 1, []
        for depth in (1, 2, 3, 2):
            at = root
            for _ in range(depth):
                steps.append((4 * 35 * 35 * rng.choice((32, 48, 64, 96, 128, 192)), (at,)))
                at = len(steps) - 1
            ends.append(at)
        steps.append((1 << 20, tuple(ends)))
    return lifetimes_of(steps)


NETWORKS = {
    "chain": (chain, (1, 2, 97)),
    "residual": (residual, (1, 16, 50)),
    "densenet": (densenet, (5, 58, 98)),
    "unet": (unet, (1, 4, 7)),
    "branches": (branches, (1, 11, 37)),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("network", "count"), [(n, c) for n, (_, counts) in NETWORKS.items() for c in counts])
def test_the_arena_is_at_most_a_tenth_larger_than_the_live_set(network, count, seed):
    lifetimes = NETWORKS[network][0](random.Random(seed), count)

    plan = plan_arena(lifetimes, 64)

    assert overlapping(lifetimes, plan.offsets) == []
    assert plan.live_bytes <= plan.arena_bytes <= 1.1 * plan.live_bytes


def test_an_elementwise_chain_stays_in_one_place():
    lifetimes = lifetimes_of([(1009, (k - 1,) if k else ()) for k in range(7)], elementwise=range(1, 7))

    plan = plan_arena(lifetimes, 64)

    assert set(plan.offsets) == {0}
    assert plan.arena_bytes == plan.live_bytes == 1024


def test_the_same_chain_without_leave_needs_two_places():
    lifetimes = lifetimes_of([(1009, (k - 1,) if k else ()) for k in range(7)])

    plan = plan_arena(lifetimes, 64)

    assert all(a != b for a, b in pairwise(plan.offsets))
    assert plan.arena_bytes == 2048


def test_a_result_does_not_take_an_operand_that_is_read_again():
    lifetimes = [Lifetime(640, 0, 2), Lifetime(640, 1, 2, inplace=(0,))]

    plan = plan_arena(lifetimes, 64)

    assert plan.offsets[0] != plan.offsets[1]
    assert plan.arena_bytes == plan.live_bytes == 1280


def test_a_result_does_not_take_an_operand_that_is_too_small():
    lifetimes = [Lifetime(64, 0, 1), Lifetime(65, 1, 2, inplace=(0,))]

    plan = plan_arena(lifetimes, 64)

    assert overlapping(lifetimes, plan.offsets) == []
    assert plan.arena_bytes == 192


def test_two_results_do_not_take_one_operand():
    lifetimes = [Lifetime(640, 0, 1), Lifetime(640, 1, 2, inplace=(0,)), Lifetime(640, 1, 2, inplace=(0,))]

    plan = plan_arena(lifetimes, 64)

    assert plan.offsets[1] != plan.offsets[2]
    assert plan.arena_bytes == 1280


def test_a_large_result_pushes_a_small_one_to_another_operand():
    lifetimes = [
        Lifetime(640, 0, 1),
        Lifetime(320, 0, 1),
        Lifetime(320, 1, 2, inplace=(0, 1)),
        Lifetime(640, 1, 2, inplace=(0,)),
    ]

    plan = plan_arena(lifetimes, 64)

    assert plan.offsets[3] == plan.offsets[0]
    assert plan.offsets[2] == plan.offsets[1]
    assert plan.arena_bytes == 960


def test_nothing_needs_no_arena():
    plan = plan_arena([], 64)

    assert (plan.offsets, plan.arena_bytes, plan.live_bytes) == ((), 0, 0)


def test_empty_buffers_take_no_room():
    plan = plan_arena([Lifetime(0, 0, 3), Lifetime(7, 0, 3), Lifetime(0, 1, 1)], 256)

    assert plan.arena_bytes == 256


@pytest.mark.parametrize(
    ("life", "message"),
    [
        (Lifetime(8, 3, 2), "buffer 0: 8 bytes from step 3 to step 2"),
        (Lifetime(-8, 0, 0), "buffer 0: -8 bytes"),
    ],
)
def test_an_impossible_lifetime_is_refused(life, message):
    with pytest.raises(ValueError, match=message):
        plan_arena([life], 64)


def test_the_plan_is_the_same_every_time():
    lifetimes = branches(random.Random(7), 23)

    assert plan_arena(lifetimes, 64) == plan_arena(lifetimes, 64)


def test_ten_thousand_buffers_are_planned():
    lifetimes = branches(random.Random(3), 1112)
    assert len(lifetimes) > 10_000

    plan = plan_arena(lifetimes, 64)

    assert plan.arena_bytes <= 1.1 * plan.live_bytes
