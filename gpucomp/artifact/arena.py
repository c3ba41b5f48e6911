"""Places every temporary tensor in the arena: offsets from lifetimes. No memory is allocated here.

Step ``k`` is the model's k-th launch. A buffer lives from the step that writes it (``first``) to the last one that
reads it (``last``), both included. Two buffers that live in the same step must not overlap, with one exception: a result
can be placed exactly on an operand that dies in the step that makes the result, if the caller says that the kernel reads
each element before it writes to its place (``inplace``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from gpucomp.lazy_dataclass import dataclass

REPAIRS = 24  # orders tried after the fixed ones; each first places the blocks that were too high before
MOVES = 400  # orders tried after that, each with one block moved forward
PLACEMENTS = 20_000  # blocks placed in all these tries; limits the time for large models


@dataclass(frozen=True, slots=True)
class Lifetime:
    """One buffer. ``inplace`` has the positions of the buffers whose memory it can take over in step ``first``."""

    nbytes: int
    first: int
    last: int
    inplace: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """``offsets`` in bytes, one for each lifetime. No plan under the same rules is smaller than ``live_bytes``."""

    offsets: tuple[int, ...]
    arena_bytes: int
    live_bytes: int


@dataclass(slots=True)
class _Segment:
    size: int
    first: int
    last: int


@dataclass(slots=True)
class _Block:
    """Buffers that share one offset, each taking over from the previous one; ``segments`` are in order of time."""

    members: list[int]
    segments: list[_Segment]

    @property
    def size(self) -> int:
        return max(s.size for s in self.segments)

    @property
    def first(self) -> int:
        return self.segments[0].first

    @property
    def last(self) -> int:
        return self.segments[-1].last


def plan_arena(lifetimes: Sequence[Lifetime], alignment: int) -> ArenaPlan:
    """Offsets, multiples of ``alignment`` bytes, at which no two buffers that live together overlap.

    Greedy: blocks are placed one by one into the gap that fits best. Several orders are tried, the best one is improved
    by moves, and the smallest arena wins. The result is deterministic. Raises ``ValueError`` for a lifetime that ends
    before it begins and for a negative size.
    """
    for k, life in enumerate(lifetimes):
        if life.nbytes < 0 or life.first > life.last:
            raise ValueError(f"buffer {k}: {life.nbytes} bytes from step {life.first} to step {life.last}")
    if alignment < 1:
        raise ValueError(f"alignment {alignment}: expected at least 1")
    sizes = [-(-life.nbytes // alignment) * alignment for life in lifetimes]
    taken = _takeovers(lifetimes, sizes)
    live = _largest_live_set(lifetimes, sizes, taken)
    blocks = _blocks(lifetimes, sizes, taken)
    arena, placed = _search(blocks, live)
    offsets = [0] * len(lifetimes)
    for offset, block in zip(placed, blocks, strict=True):
        for member in block.members:
            offsets[member] = offset
    return ArenaPlan(tuple(offsets), arena, live)


def _takeovers(lifetimes: Sequence[Lifetime], sizes: Sequence[int]) -> dict[int, int]:
    """For each buffer that is placed on a dying one, that dying buffer: a matching that saves the most bytes in every step.

    The largest results choose first and can push a smaller one on to another operand. This is the greedy algorithm on a
    transversal matroid, which is optimal. Steps do not interact: a buffer is made once and dies once.
    """
    owner: dict[int, int] = {}  # dying buffer -> the result that takes over its memory

    def candidates(k: int) -> list[int]:
        fitting = [
            d
            for d in lifetimes[k].inplace
            if d != k and lifetimes[d].last == lifetimes[k].first and sizes[d] >= sizes[k]
        ]
        return sorted((d for d in fitting if lifetimes[d].first < lifetimes[k].first), key=lambda d: sizes[d])

    def claim(k: int, tried: set[int]) -> bool:
        for d in candidates(k):
            if d in tried:
                continue
            tried.add(d)
            if d not in owner or claim(owner[d], tried):
                owner[d] = k
                return True
        return False

    for k in sorted(range(len(sizes)), key=lambda k: -sizes[k]):
        if sizes[k] and lifetimes[k].inplace:
            claim(k, set())
    return {result: dying for dying, result in owner.items()}


def _largest_live_set(lifetimes: Sequence[Lifetime], sizes: Sequence[int], taken: dict[int, int]) -> int:
    change: dict[int, int] = {}
    for k, life in enumerate(lifetimes):
        begin = life.first + (k in taken)  # in its first step it shares the operand's memory, which is already counted
        if begin <= life.last:
            change[begin] = change.get(begin, 0) + sizes[k]
            change[life.last + 1] = change.get(life.last + 1, 0) - sizes[k]
    live = largest = 0
    for step in sorted(change):
        live += change[step]
        largest = max(largest, live)
    return largest


def _blocks(lifetimes: Sequence[Lifetime], sizes: Sequence[int], taken: dict[int, int]) -> list[_Block]:
    blocks: list[_Block] = []
    of: dict[int, _Block] = {}
    for k in sorted(range(len(sizes)), key=lambda k: (lifetimes[k].first, k)):
        life = lifetimes[k]
        if k not in taken:
            of[k] = _Block([k], [_Segment(sizes[k], life.first, life.last)])
            blocks.append(of[k])
            continue
        block = of[k] = of[taken[k]]
        block.members.append(k)
        tail = block.segments[-1]
        if tail.size == sizes[k]:
            tail.last = max(tail.last, life.last)
        elif life.last > life.first:
            block.segments.append(_Segment(sizes[k], life.first + 1, life.last))
    return blocks


_ORDERS: tuple[Callable[[_Block], tuple[int, ...]], ...] = (
    lambda b: (-b.size, b.first),
    lambda b: (-b.size * (b.last - b.first + 1), b.first),
    lambda b: (b.first - b.last, -b.size),
    lambda b: (b.first, -b.size),
)


def _search(blocks: list[_Block], live: int) -> tuple[int, list[int]]:
    """The smallest arena found, and the blocks' offsets in it; stops early when it is as small as the live set."""
    budget = PLACEMENTS // max(len(blocks), 1)
    best: _Attempt | None = None

    def attempt(order: list[int]) -> _Attempt:
        nonlocal best
        made = _Attempt(order, _place(blocks, order), blocks, live)
        if best is None or made.cost <= best.cost:  # an equal one too, so that the search can cross a plateau
            best = made
        return made

    for key in _ORDERS:
        attempt(sorted(range(len(blocks)), key=lambda k: key(blocks[k])))
    assert best is not None
    last = best
    for _ in range(min(REPAIRS, budget)):  # blocks that reach above the live set are placed first
        if not best.high:
            break
        high = set(last.high)
        last = attempt([*last.high, *(k for k in last.order if k not in high)])
        if not last.high:
            break
    rng = random.Random(0)
    for _ in range(min(MOVES, budget)):
        if not best.high:
            break
        attempt(_moved(best, blocks, rng))
    return best.top, best.offsets


class _Attempt:
    """An order of placement and its result; ``high`` are the blocks that reach above the live set, in order."""

    def __init__(self, order: list[int], offsets: list[int], blocks: list[_Block], live: int) -> None:
        self.order, self.offsets = order, offsets
        tops = [o + b.size for o, b in zip(offsets, blocks, strict=True)]
        self.top = max(tops, default=0)
        self.high = [k for k in order if tops[k] > live]
        self.highest = [k for k in self.high if tops[k] == self.top]
        # several parts of a model may be equally high: the sum shows that one of them got better
        self.cost = (self.top, sum(tops[k] - live for k in self.high))


def _moved(attempt: _Attempt, blocks: list[_Block], rng: random.Random) -> list[int]:
    """Move one block in the order: a highest block, or one alive with it, goes before another block alive with it."""
    worst = blocks[rng.choice(attempt.highest)]
    near = [k for k in attempt.order if blocks[k].first <= worst.last and blocks[k].last >= worst.first]
    mover, before = rng.choice(near), rng.choice(near)
    order = [k for k in attempt.order if k != mover]
    order.insert(order.index(before) if before != mover else 0, mover)
    return order


def _place(blocks: list[_Block], order: Sequence[int]) -> list[int]:
    """Place each block in turn at the offset whose gap leaves the least room over, or on top if no gap is large enough."""
    count = sum(len(b.segments) for b in blocks)
    sizes, firsts, lasts, starts = (np.zeros(count, np.int64) for _ in range(4))
    filled = 0
    offsets = [0] * len(blocks)
    for k in order:
        block = blocks[k]
        if not block.size:
            continue
        low, high = [], []  # the block must not start in low < offset < high
        for own in block.segments:
            together = (firsts[:filled] <= own.last) & (lasts[:filled] >= own.first)
            start = starts[:filled][together]
            low.append(start - own.size)
            high.append(start + sizes[:filled][together])
        offsets[k] = _best_gap(np.concatenate(low), np.concatenate(high))
        for own in block.segments:
            sizes[filled], firsts[filled], lasts[filled], starts[filled] = own.size, own.first, own.last, offsets[k]
            filled += 1
    return offsets


def _best_gap(low: np.ndarray, high: np.ndarray) -> int:
    """The offset of the tightest gap: at least 0, and inside no open interval (low, high)."""
    if not len(low):
        return 0
    by_low = np.argsort(low, kind="stable")
    low = low[by_low]
    reach = np.maximum.accumulate(np.concatenate(([0], high[by_low])))
    room = low - reach[:-1]  # how far an offset can move up from reach before it meets the next interval
    fits = room >= 0
    if not fits.any():
        return int(reach[-1])
    return int(reach[:-1][fits][np.argmin(room[fits])])
