"""Schedules of attention with few rows of queries on the CPU, and a default by a cost model of one core."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from gpucomp.codegen.llvm.attention.parts import AttentionExtents, parts_of, varies
from gpucomp.codegen.llvm.core_space import STACK_BYTES, TASK, THREADS, microseconds, span
from gpucomp.device.limits import Limits
from gpucomp.expr.core import loads
from gpucomp.ir.extremes import smallest
from gpucomp.ir.size import Size, bounds
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.schedule.space import too_wide

MOST_ROWS = 8
LEAST_KEYS = 256  # of a task that shares a batch: a multiple of vectors, as ``tile_n`` is
MOST_COUNTERS = 4096  # batches whose keys can be divided: each has a counter
MOST_WORKSPACE = 16 << 20  # bytes of what tasks leave, at the most batches
LINE_FLOATS = 16  # of a cache line, and the most lanes


class DecodeSchedule(Tunables):
    lanes: int = tunable((4, 8, 16), "elements of a vector")
    tile_n: int = tunable((16, 32, 64, 128, 256, 512), "keys whose weights are kept at a time")
    wide: int = tunable((1, 2, 4, 8, 16), "vectors of values whose sums are in registers, for every row")
    splits: int = tunable((1, 2, 4, 8, 16), "most tasks that divide the keys of a batch among them")


class DecodeProblem(AttentionExtents):
    key_bytes: int  # bytes of a key and its value in memory


class DecodeSizes(Sizes):
    """What follows from a schedule and a problem."""

    head: int  # elements of ``depth``, rounded up to vectors
    means: int  # elements of ``values``, rounded up to vectors
    tile_n: int
    pitch: int  # floats from one row of weights to the next
    wide: int  # vectors of values whose sums are in registers


def accepts(kernel: Kernel[Attention], features: frozenset[str]) -> str:
    """Why the engine cannot compute the kernel; empty if it can."""
    body = kernel.body
    rows = math.prod(v.extent for v in body.rows)
    if isinstance(rows, Size):
        return "the number of rows differs from run to run"
    return varies(kernel) if rows <= MOST_ROWS else f"{rows} rows, more than {MOST_ROWS}"


def problem(kernel: Kernel) -> DecodeProblem:
    parts = parts_of(kernel)
    width = sum(
        max((ld.dtype.nbytes for ld in loads(e)), default=4) * inner.extent
        for e, inner in ((parts.k, parts.depth), (parts.v, parts.values))
    )
    return DecodeProblem(**parts.extents.numbers, key_bytes=width)


def derive(s: DecodeSchedule, p: DecodeProblem) -> DecodeSizes:
    tile_n = max(s.tile_n, s.lanes)
    head, means = (-(-size // s.lanes) * s.lanes for size in (p.depth, p.values))
    wide = min(s.wide, means // s.lanes)
    return DecodeSizes(head=head, means=means, tile_n=tile_n, pitch=tile_n + s.lanes, wide=wide)


def objections(s: DecodeSchedule, p: DecodeProblem, limits: Limits) -> Iterator[str]:
    yield from too_wide(s.lanes, 4, limits)
    d = derive(s, p)
    if (used := p.m * d.wide + d.wide + 1) > limits.registers:
        yield f"{used} registers, the processor has {limits.registers}"
    if (scratch := 4 * p.m * (d.head + d.means + d.pitch + 2)) > STACK_BYTES:
        yield f"{scratch} bytes of scratch, {STACK_BYTES} are allowed"
    if s.splits > 1 and p.n <= LEAST_KEYS * (s.splits // 2):
        yield f"{p.n} keys, of which {s.splits} tasks have too few: more than {LEAST_KEYS * (s.splits // 2)} are expected"
    if s.splits > 1 and s.splits > most_splits(p.batch, p.m, p.values):
        yield f"{p.batch} batches are too many to divide"


def part_floats(rows: int, values: int) -> int:
    """The floats that a task leaves where keys are divided: for all rows the sums of values, a maximum and a total.

    It is the same for all schedules, because schedules for several ranges of sizes share their memory.
    """
    means = -(-values // LINE_FLOATS) * LINE_FLOATS
    return -(-rows * (means + 2) // LINE_FLOATS) * LINE_FLOATS


def most_splits(batches: int, rows: int, values: int) -> int:
    """The most tasks that may divide the keys of a batch, by the memory that they take; 1: none may."""
    if batches > MOST_COUNTERS:
        return 1
    return max(
        1, min(DecodeSchedule.choices("splits")[-1], MOST_WORKSPACE // max(batches * part_floats(rows, values) * 4, 1))
    )


def parts_of_keys(n: Any, splits: int) -> Any:
    """Among how many tasks ``n`` keys are divided."""
    return smallest(splits, (n + (LEAST_KEYS - 1)) // LEAST_KEYS) if splits > 1 else 1


# The model of a core, in cycles
EXP = 20.0  # per vector of weights
ACROSS = 25.0  # to add a vector of products across lanes
READ = 0.75  # per vector of keys or values that a row is multiplied by
SECOND_BYTE = 1 / 30  # per byte from the second-level cache
FAR_BYTE = 0.12  # per byte from beyond it
ARRIVAL = 300.0  # of a task that shares a batch, to say that it is done
OVERLAP = 0.3  # part of the shorter of arithmetic and reading that does not overlap with the longer


def cycles(s: DecodeSchedule, p: DecodeProblem, limits: Limits, threads: int) -> float:
    """About how many cycles the busiest of ``threads`` takes."""
    d = derive(s, p)
    keys = max(LEAST_KEYS, -(-p.n // s.splits)) if s.splits > 1 else max(p.n, 1)
    keys = -(-keys // d.tile_n) * d.tile_n if s.splits > 1 else keys
    parts = max(1, -(-p.n // keys))
    vectors = -(-keys // s.lanes)
    work = p.m * (vectors * (EXP + ACROSS) + keys * READ * (d.head + d.means) / s.lanes)
    work += keys * 2.0 * -(-d.means // (d.wide * s.lanes)) + -(-keys // d.tile_n) * p.m * (60 + d.means / s.lanes)
    if parts > 1:  # sums are written, and read and added up by the last
        work += ARRIVAL + p.m * (EXP + 3.0 * d.means / s.lanes)
    near = p.batch * p.n * p.key_bytes <= limits.cache_bytes * threads
    memory = keys * p.key_bytes * (SECOND_BYTE if near else FAR_BYTE)
    return span(p.batch * parts, threads) * (max(work, memory) + OVERLAP * min(work, memory) + TASK)


def estimate(s: DecodeSchedule, p: DecodeProblem, limits: Limits) -> float:
    """About how many microseconds two threads take."""
    return microseconds(cycles(s, p, limits, 2))


def default(p: DecodeProblem, limits: Limits) -> DecodeSchedule:
    """As many vectors of values as the registers hold, and the block of keys that is fastest by the cost model."""
    lanes = limits.vector_bytes // 4
    wide = max((w for w in DecodeSchedule.choices("wide") if p.m * w + w + 1 <= limits.registers - 2), default=1)

    def cost(s: DecodeSchedule) -> float:
        return sum(cycles(s, p, limits, count) * count for count in THREADS)

    tiles = [t for t in DecodeSchedule.choices("tile_n") if t == 16 or (t < 2 * p.n and t <= 128)]
    most = most_splits(p.batch, p.m, p.values)
    splits = [k for k in DecodeSchedule.choices("splits") if k == 1 or (k <= most and p.n > LEAST_KEYS * (k // 2))]
    found = (DecodeSchedule(lanes=lanes, tile_n=t, wide=wide, splits=k) for t, k in itertools.product(tiles, splits))
    return min(found, key=cost)


def splits_of_range(p: AttentionExtents, rows: int, limits: Limits) -> int:
    """The most tasks that divide the keys of a batch where runs differ in size: for the fewest batches and the most keys.

    It does not depend on a schedule, as ``part_floats``.
    """
    least, most = bounds(p.batch) if isinstance(p.batch, Size) else (p.batch, p.batch)
    n = int(bounds(p.n)[1]) if isinstance(p.n, Size) else p.n
    widest = DecodeProblem(
        batch=max(int(least), 1), m=rows, n=n, depth=p.depth, values=p.values, key_bytes=4 * (p.depth + p.values)
    )
    return min(default(widest, limits).splits, most_splits(int(most), rows, p.values))
