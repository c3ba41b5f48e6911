"""Plans for every size: temporaries that live together never overlap, and the arena grows with what is in it."""

import random

import pytest

from gpucomp.artifact.arena import Lifetime, plan_arena
from gpucomp.artifact.open_plan import stacks_of
from gpucomp.ir.dim import Dim
from gpucomp.ir.size import hint, size_of, value_at

ALIGNMENT = 64
DIMS = {"n": Dim("n", 1, 40), "w": Dim("w", 1, 300)}
EXAMPLE = {"n": 6, "w": 70}
N, W = (size_of(DIMS[name], EXAMPLE[name]) for name in "nw")


def placed(stacks, sizes):
    """Offsets as ``OpenPlan`` computes them, and the bytes of the arena."""
    ends, offsets = [], {}
    for stack in stacks:
        start = max([ends[k] for k in stack.above], default=0)
        offsets |= dict.fromkeys(stack.buffers, start)
        ends.append(-(-(start + max(sizes[b] for b in stack.buffers)) // ALIGNMENT) * ALIGNMENT)
    return offsets, max(ends, default=0)


def drawn(rng, count):
    lives, sizes, over = {}, {}, {}
    for b in range(count):
        first = rng.randrange(2 * count)
        lives[b] = [first, first + rng.randrange(1, 8)]
        sizes[b] = rng.choice([4 * N * W, 16 * N * W, 4 * W * W, 256 * N, 1024, 4 * N * ((W + 1) // 2), 64 * W])
        dying = [d for d in range(b) if lives[d][1] == first and sizes[d] is sizes[b] and lives[d][0] < first]
        if dying and rng.random() < 0.7:
            over[b] = dying
    return lives, sizes, over


def example_offsets(lives, sizes, over):
    plan = plan_arena([Lifetime(int(hint(sizes[b])), *lives[b], tuple(over.get(b, ()))) for b in lives], ALIGNMENT)
    return dict(zip(lives, plan.offsets, strict=True)), plan.arena_bytes


@pytest.mark.parametrize("seed", range(60))
def test_buffers_that_live_together_are_apart_at_every_size(seed):
    rng = random.Random(seed)
    lives, sizes, over = drawn(rng, rng.randrange(1, 40))
    offsets, arena = example_offsets(lives, sizes, over)
    stacks = stacks_of(offsets, lives, over)

    assert sorted(b for stack in stacks for b in stack.buffers) == sorted(lives)
    assert placed(stacks, {b: value_at(s, EXAMPLE) for b, s in sizes.items()})[1] <= arena
    taken = {(d, b) for b, dying in over.items() for d in dying}
    for _ in range(20):
        at = {name: rng.randint(dim.low, dim.high) for name, dim in DIMS.items()}
        numbers = {b: value_at(s, at) for b, s in sizes.items()}
        where, top = placed(stacks, numbers)
        for a in lives:
            assert where[a] + numbers[a] <= top
            for b in lives:
                together = a < b and lives[a][0] <= lives[b][1] and lives[b][0] <= lives[a][1]
                apart = where[a] + numbers[a] <= where[b] or where[b] + numbers[b] <= where[a]
                if together and not apart:
                    assert where[a] == where[b], f"{a} and {b} at {at}"
                    assert (a, b) in taken or (b, a) in taken


def test_the_arena_grows_with_a_size_that_all_buffers_share():
    lives = {0: [0, 1], 1: [1, 2], 2: [2, 3], 3: [1, 3]}
    sizes = {0: 64 * N, 1: 128 * N, 2: 64 * N, 3: 192 * N}
    offsets, arena = example_offsets(lives, sizes, {})
    stacks = stacks_of(offsets, lives, {})

    for n in (1, 7, 40):
        assert placed(stacks, {b: value_at(s, {"n": n}) for b, s in sizes.items()})[1] == arena // 6 * n
