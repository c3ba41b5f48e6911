"""Schedules of attention on the CPU: tiles of rows in vectors, blocks of keys, and a default by a cost model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from gpucomp.codegen.llvm.attention.parts import AttentionExtents, parts_of, varies
from gpucomp.codegen.llvm.core_space import (
    BLOCK,
    FAR_BYTE,
    STACK_BYTES,
    TASK,
    THREADS,
    microseconds,
    span,
    step,
)
from gpucomp.device.limits import Limits
from gpucomp.ir.extremes import largest
from gpucomp.ir.size import Size, bounds
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.schedule.space import can_run, remembered, too_wide


class AttentionSchedule(Tunables):
    lanes: int = tunable((4, 8, 16), "rows of a vector")
    vectors: int = tunable((1, 2, 3, 4, 6), "vectors of rows of a task")
    keys: int = tunable((1, 2, 3, 4, 6, 8, 10, 12, 14), "keys of the register block, and columns of the values")
    tile_n: int = tunable(
        (16, 32, 64, 96, 128, 192, 256, 384, 512), "keys whose weights are kept at a time, rounded up to whole blocks"
    )


class AttentionProblem(AttentionExtents):
    causal: int  # see ``kernel.forms.causal``
    last_rows: int  # extent of the axis of rows that ``causal`` refers to
    copied_k: int  # 1: keys are copied before they are read
    copied_v: int  # 1: values are copied before they are read
    turned: int  # loads of the scores that run along columns


class AttentionSizes(Sizes):
    """What follows from a schedule and a problem. Tiles, ``base``, ``wider`` and blocks can be sizes that each run decides."""

    tiles: int  # tiles of rows: the first ``wider`` have ``base + 1`` vectors, the others ``base``
    base: int
    wider: int
    widest: int  # vectors of the largest tile
    block_keys: int  # keys of the register block
    columns: int  # columns of values of the register block
    tile_n: int  # keys of a block
    blocks: int
    head: int  # elements of ``depth``, rounded up to vectors
    means: int  # elements of ``values``, rounded up to vectors


def accepts(kernel: Kernel[Attention], features: frozenset[str]) -> str:
    """Why the engine cannot compute the kernel; empty if it can."""
    return varies(kernel)


def problem(kernel: Kernel) -> AttentionProblem:
    parts = parts_of(kernel)
    return AttentionProblem(
        **parts.extents.numbers,
        causal=parts.causal,
        last_rows=parts.last_rows,
        copied_k=int(parts.key_rows is None),
        copied_v=int(parts.value_rows is None),
        turned=len(parts.turned),
    )


@remembered
def derive(s: AttentionSchedule, p: AttentionProblem) -> AttentionSizes:
    count = -(-p.m // s.lanes)
    tiles = -(-count // s.vectors)
    base, wider = divmod(count, largest(tiles, 1) if isinstance(tiles, Size) else tiles)
    keys = min(s.keys, _most(p.n))
    tile_n = -(-min(s.tile_n, _most(p.n)) // keys) * keys
    head, means = (-(-size // s.lanes) * s.lanes for size in (p.depth, p.values))
    return AttentionSizes(
        tiles=tiles,
        base=base,
        wider=wider,
        widest=min(s.vectors, _most(count)) if isinstance(count, Size) else base + (wider > 0),
        block_keys=keys,
        columns=min(s.keys, p.values),
        tile_n=tile_n,
        blocks=-(-p.n // tile_n),
        head=head,
        means=means,
    )


def widths_of(s: AttentionSchedule, p: AttentionProblem) -> list[int]:
    """The numbers of vectors of tiles, the widest first, in any run."""
    d = derive(s, p)
    if not isinstance(d.base, Size):
        return [d.base + 1] * (d.wider > 0) + [d.base] * (d.base > 0)
    least, most = (int(end) for end in bounds(-(-p.m // s.lanes)))
    found = set()
    for count in range(max(least, 1), min(most, max(least, 1) + s.vectors * s.vectors) + 1):  # then they repeat
        base, wider = divmod(count, -(-count // s.vectors))
        found |= {base, base + (wider > 0)}
    return sorted(found, reverse=True)


def _most(size: Any) -> int:
    return int(bounds(size)[1]) if isinstance(size, Size) else int(size)


def fitted(s: AttentionSchedule, p: AttentionProblem) -> AttentionSchedule:
    """``s`` with smaller tiles if those of the greatest sizes do not fit the stack. It fits for the example's."""
    numbers = {name: _most(number) for name, number in p.numbers.items()}
    if any(isinstance(number, Size) for number in p.numbers.values()):
        p = AttentionProblem(**numbers)
        while scratch_bytes(s, p) > STACK_BYTES and s.tile_n > 16:
            s = s.replace(tile_n=s.tile_n // 2)
        while scratch_bytes(s, p) > STACK_BYTES and s.vectors > 1:
            s = s.replace(vectors=s.vectors - 1)
    return s


def scratch_bytes(s: AttentionSchedule, p: AttentionProblem) -> int:
    """The size of the emitter's stack frame."""
    d = derive(s, p)
    rows = d.widest * s.lanes
    found = rows * (d.head + d.means + max(d.tile_n, d.means))
    found += d.tile_n * (d.head * p.copied_k + d.means * p.copied_v)
    found += p.turned * (d.tile_n + s.lanes) * rows
    return 4 * (found + 8 * rows)


def objections(s: AttentionSchedule, p: AttentionProblem, limits: Limits) -> Iterator[str]:
    yield from too_wide(s.lanes, 4, limits)
    if (used := s.vectors * s.keys + s.vectors + 1) > limits.registers:
        yield f"{used} registers, the processor has {limits.registers}"
    if (scratch := scratch_bytes(s, p)) > STACK_BYTES:
        yield f"{scratch} bytes of scratch, {STACK_BYTES} are allowed"


# The model of a core, in cycles, measured on Sapphire Rapids
EXP = {16: 9.0, 8: 13.0, 4: 16.0}  # per vector of weights: its difference, exponential and sum
SCORE = 2.5  # per vector of sums: its scale, the maximum, its store
LONE = 1.15  # factor on products in which every multiply-add waits for a load
TURN = 5.0  # to transpose a vector
RENEW = 2.0  # to rescale a vector of means when the maximum changes
COPY = 2.0  # to copy a vector of keys or values
FIRST_BYTES = 48 << 10  # bytes of the first-level cache
PAST_FIRST = 1.1  # factor on products whose queries and sums do not fit into the first-level cache
NEAR = 32 << 10  # bytes of the first-level cache that are left for the weights of a block
SPILLED = 0.6  # to read a vector of weights from the second-level cache


def _tile(vectors: int, cols: float, s: AttentionSchedule, p: AttentionProblem, limits: Limits) -> float:
    """Cycles of a tile of ``vectors`` vectors of rows that attends to ``cols`` columns."""
    d = derive(s, p)
    blocks = max(1.0, cols / d.tile_n)
    products = cols / d.block_keys * (step(d.block_keys, vectors, limits) * p.depth + BLOCK)
    whole, rest = divmod(p.values, d.columns)
    passes = whole + (rest > 0)
    product = whole * step(d.columns, vectors, limits) + (step(rest, vectors, limits) if rest else 0.0)
    products += product * cols + passes * blocks * BLOCK
    products *= LONE if vectors == 1 else 1.0
    products *= PAST_FIRST if 4 * vectors * s.lanes * (d.head + d.means) > FIRST_BYTES else 1.0
    weights = cols * vectors * (EXP[s.lanes] + SCORE + TURN * p.turned)
    ends = vectors * (TURN * d.head + (TURN + 4) * d.means)
    if blocks > 1:
        weights += blocks * vectors * p.values * RENEW
    if 4 * d.tile_n * vectors * s.lanes > NEAR:
        weights += cols * vectors * SPILLED * (2 + passes)
    copies = cols / s.lanes * COPY * (d.head * p.copied_k + d.means * p.copied_v)
    return products + weights + ends + copies + TASK


def _seen(p: AttentionProblem, rows: int) -> float:
    """Columns that a tile of ``rows`` rows attends to, on average."""
    if p.causal < 0:
        return float(p.n)
    return min(float(p.n), max(1.0, (p.last_rows + rows) / 2 + p.causal))


def cycles(s: AttentionSchedule, p: AttentionProblem, limits: Limits, threads: int) -> float:
    """About how many cycles the busiest of ``threads`` takes."""
    d = derive(s, p)
    cols = _seen(p, d.widest * s.lanes)
    wide = _tile(d.base + 1, cols, s, p, limits) if d.wider else 0.0
    one = (d.wider * wide + (d.tiles - d.wider) * _tile(d.base, cols, s, p, limits)) / d.tiles
    if 4 * p.n * (p.depth + p.values) > limits.cache_bytes // 2:
        one += 4 * cols * (p.depth + p.values) * FAR_BYTE
    return span(p.batch * d.tiles, threads) * one


def estimate(s: AttentionSchedule, p: AttentionProblem, limits: Limits) -> float:
    """About how many microseconds two threads take."""
    return microseconds(cycles(s, p, limits, 2))


def default(p: AttentionProblem, limits: Limits, threads: Sequence[int] = THREADS) -> AttentionSchedule:
    """The legal schedule that the cost model finds fastest on ``threads``."""
    smallest = AttentionSchedule(lanes=4, vectors=1, keys=1, tile_n=16)

    def cost(s: AttentionSchedule) -> float:
        return sum(cycles(s, p, limits, count) * count for count in threads)

    legal = (s for s in _candidates(p, limits.vector_bytes // 4) if can_run(s, objections, p, limits))
    return min(legal, key=cost, default=smallest)


def _candidates(p: AttentionProblem, lanes: int) -> Iterator[AttentionSchedule]:
    """Every schedule with vectors of ``lanes`` lanes and blocks of less than twice the kernel's keys."""
    tiles = [n for n in AttentionSchedule.choices("tile_n") if n <= 16 or n < 2 * p.n]
    choices = (AttentionSchedule.choices("vectors"), AttentionSchedule.choices("keys"), tiles)
    for vectors, keys, tile_n in itertools.product(*choices):
        yield AttentionSchedule(lanes=lanes, vectors=vectors, keys=keys, tile_n=tile_n)
