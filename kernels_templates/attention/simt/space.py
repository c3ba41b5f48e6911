"""Parameters of the attention family's ``simt`` engine: tiles of queries and keys, online softmax, split keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least
from gpucomp.ir.size import Size
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms import causal
from gpucomp.kernel.forms.operand import count, fast_axis
from gpucomp.kernel.forms.stores import store_width
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.attention.simt.emit import emit_attention
from gpucomp.schedule.space import (
    MAX_GROUPS,
    Family,
    Work,
    can_run,
    cannot_meet,
    remembered,
    too_many_registers,
    too_wide,
)

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
MAX_WORKSPACE = 1 << 31  # bytes
UNROLL = 4  # elements of depth, and columns, per step of the inner loops
STAGED = 64  # registers for loads in flight to shared memory: eight accesses of 16 bytes, of two operands
ADDRESSES = 64  # registers for the addresses of an unrolled loop


class AttentionSchedule(Tunables):
    """What the schedules of all engines have."""

    tile_n: int
    splits: int


class SimtAttentionSchedule(AttentionSchedule):
    tile_m: int = tunable((1, 2, 4, 8, 16, 32, 64, 128), "rows (queries) per work-group")
    tile_n: int = tunable((2, 4, 8, 16, 32, 64, 128), "columns (keys and values) of one shared-memory stage")
    reg_m: int = tunable((1, 2, 4, 8), "rows per work-item")
    row_items: int = tunable((1, 4, 8, 16, 32), "work-items that share a row")
    splits: int = tunable(SPLITS, "work-groups that share the columns of a tile of rows")
    vector: int = tunable(
        (1, 4, 8, 16), "elements per accumulator, if a group is one work-item that computes with vectors"
    )


class AttentionProblem(Sizes):
    """Sizes of an attention, and how its operands are stored."""

    batch: int
    m: int  # rows (queries)
    n: int  # columns (keys and values)
    depth: int
    values: int
    q_inside: int  # 1: queries are contiguous along the head, not along the rows; the same for k and v
    q_wide: int  # most elements of an access; the same for k and v
    k_inside: int
    k_wide: int
    v_inside: int
    v_wide: int
    causal: int  # how far to the right of its own number a row attends; -1: to all columns
    out_wide: int  # most values of one store


class AttentionSizes(Sizes):
    """What all engines derive."""

    threads: int
    depth_pad: int  # elements of a row of queries or keys, padded with zeros
    values_pad: int  # elements of a row of values, padded with zeros
    pitch: int  # elements from row to row of queries, and of keys
    out_vector: int  # values per store
    part_words: int  # words that a work-item of a split stores for the last: values, maximum and total of each row
    tiles_m: int
    tiles: int
    tiles_per_split: int


Chosen = TypeVar("Chosen", bound=AttentionSchedule)
Problem = TypeVar("Problem", bound=AttentionProblem)


class SimtAttentionSizes(AttentionSizes):
    alone: int  # 1: a work-group is one work-item
    row_groups: int
    reg_n: int  # columns of a work-item, or vectors of them
    reg_v: int  # values of a work-item, or vectors of them
    run_v: int  # neighbouring values of a work-item
    idle: int  # 1: more work-items share a row than there are columns
    unroll_c: int
    unroll_n: int
    p_pitch: int  # elements from row to row of weights


def accepts(kernel: Kernel[Attention], features: frozenset[str]) -> str:
    heads = (count(kernel.body.depth), count(kernel.body.values))
    return "each run decides the size of a head" if any(isinstance(head, Size) for head in heads) else ""


def problem(kernel: Kernel[Attention]) -> AttentionProblem:
    body = kernel.body
    q_inside, q_wide = fast_axis(kernel, body.q, body.rows, body.depth)
    k_inside, k_wide = fast_axis(kernel, body.k, body.cols, body.depth)
    v_inside, v_wide = fast_axis(kernel, body.v, body.cols, body.values)
    return AttentionProblem(
        batch=count(body.batch),
        m=count(body.rows),
        n=count(body.cols),
        depth=count(body.depth),
        values=count(body.values),
        q_inside=q_inside,
        q_wide=q_wide,
        k_inside=k_inside,
        k_wide=k_wide,
        v_inside=v_inside,
        v_wide=v_wide,
        causal=causal_offset(body),
        out_wide=store_width(kernel),
    )


def causal_offset(body: Attention) -> int:
    """The offset of ``kernel.forms.causal``; rows of several axes have none."""
    found = causal.causal_offset(body) if len(body.rows) <= 1 else causal.NOT_CAUSAL
    return found if isinstance(found, int) else causal.NOT_CAUSAL


def threads_of(s: SimtAttentionSchedule) -> int:
    return 1 if s.vector > 1 else (s.tile_m // s.reg_m) * s.row_items


def up(value: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-value // step) * step


@remembered
def derive(s: SimtAttentionSchedule, p: AttentionProblem) -> SimtAttentionSizes:
    alone = s.vector > 1
    depth_pad = p.depth if alone else up(p.depth, UNROLL)
    reg_v = up(p.values, s.vector) if alone else -(-p.values // s.row_items)
    run_v = 1 if alone else next(r for r in (4, 2, 1) if reg_v % r == 0)
    tiles_m, tiles_n = -(-p.m // s.tile_m), -(-p.n // s.tile_n)
    return SimtAttentionSizes(
        threads=threads_of(s),
        alone=int(alone),
        row_groups=s.tile_m // s.reg_m,
        reg_n=s.tile_n // s.vector if alone else -(-s.tile_n // s.row_items),
        reg_v=reg_v // s.vector,
        run_v=run_v,
        idle=int(not alone and s.row_items > s.tile_n),
        unroll_c=UNROLL,
        unroll_n=min(UNROLL, s.tile_n),
        part_words=s.reg_m * (reg_v // s.vector + 2),
        depth_pad=depth_pad,
        values_pad=reg_v * s.row_items,
        # an odd number of 16-byte words, so that rows that a warp reads together are in different banks
        pitch=depth_pad if alone or depth_pad // UNROLL % 2 else depth_pad + UNROLL,
        # the items of a warp write to different banks
        p_pitch=up(s.tile_n, 32) + s.row_items % 32 if s.tile_n >= 32 else s.tile_n,
        out_vector=math.gcd(p.out_wide, reg_v if alone else run_v),
        tiles_m=max(1, tiles_m),
        tiles=tiles_m * p.batch,
        tiles_per_split=-(-tiles_n // s.splits),
    )


def shared_bytes(s: SimtAttentionSchedule, p: AttentionProblem) -> int:
    """Queries, keys, values; weights and the row's maxima if work-items share rows; the flag of the last to arrive."""
    d = derive(s, p)
    keys = p.depth * s.tile_n if d.alone else s.tile_n * d.pitch
    shared = s.tile_m * d.pitch + keys + s.tile_n * d.values_pad
    if not d.alone:
        shared += s.tile_m * (d.p_pitch + s.row_items)
    return 4 * shared + (4 if s.splits > 1 else 0)


def registers(s: SimtAttentionSchedule, p: AttentionProblem) -> int:
    """Registers for scores, values, the larger step of the two products, each row's state, and 30 others."""
    d = derive(s, p)
    step = max(UNROLL * (s.reg_m + d.reg_n), d.unroll_n * s.reg_m + d.reg_v)
    return s.reg_m * (d.reg_n + d.reg_v) + step + 2 * s.reg_m + 30


def registers_taken(s: SimtAttentionSchedule, p: AttentionProblem) -> int:
    """An upper bound of the registers that ptxas uses if they are plenty.

    It then also holds accesses of the next tiles, and addresses.
    """
    return registers(s, p) + STAGED + ADDRESSES


def workspace_bytes(s: AttentionSchedule, d: AttentionSizes) -> int:
    """Bytes that the splits of an engine leave for the last of them to join."""
    return 4 * d.tiles * s.splits * d.part_words * d.threads if s.splits > 1 else 0


def too_much_left(s: AttentionSchedule, d: AttentionSizes) -> Iterator[str]:
    if workspace_bytes(s, d) > MAX_WORKSPACE:
        yield "the partial results of the splits need more than 2 GiB"


def objections(s: SimtAttentionSchedule, p: AttentionProblem, limits: Limits) -> Iterator[str]:
    if s.tile_m % s.reg_m:
        yield "reg_m must divide tile_m"
        return
    if (s.vector > 1) != (s.row_items == 1):
        yield "one work-item per row requires one per group, and vectors"
        return
    d = derive(s, p)
    if s.vector > 1 and not limits.is_cpu:
        yield f"vector accumulators are for devices that run one work-item at a time, this one runs {limits.warp}"
    yield from too_wide(s.vector, 4, limits)
    if s.vector > 1 and (s.splits > 1 or s.tile_n % s.vector):
        yield f"a work-item with vectors of {s.vector} needs all columns, in whole vectors"
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if (shared := shared_bytes(s, p)) > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    if not limits.is_cpu and shared > limits.static_bytes:
        yield f"{shared} B of shared memory in one array, compilers allow {limits.static_bytes}"
    if not limits.is_cpu:
        yield from too_many_registers(limits, threads_of(s), registers(s, p))
    if d.tiles > MAX_GROUPS:
        yield f"{d.tiles} work-groups, a launch has at most {MAX_GROUPS}"
    yield from too_much_left(s, d)
    yield from cannot_meet(s.splits, limits)


def geometry(s: SimtAttentionSchedule, p: AttentionProblem) -> Geometry:
    return launch(s, derive(s, p))


def launch(s: AttentionSchedule, d: AttentionSizes, dynamic_shared_bytes: int = 0) -> Geometry:
    """A work-group for each tile of rows, and each split of its columns."""
    return Geometry(
        (d.tiles, s.splits if d.tiles else 1, 1),
        (d.threads, 1, 1),
        dynamic_shared_bytes=dynamic_shared_bytes,
        workspace_bytes=workspace_bytes(s, d),
        counter_bytes=4 * d.tiles if s.splits > 1 else 0,
    )


TILES = (  # tile_m, tile_n, reg_m, row_items: from large to small
    (64, 64, 4, 16),
    (64, 32, 4, 16),
    (64, 32, 4, 8),
    (32, 64, 4, 16),
    (32, 32, 4, 8),
    (32, 32, 2, 16),
    (32, 16, 2, 16),
    (16, 64, 2, 16),
    (16, 32, 2, 16),
    (16, 32, 2, 8),
    (16, 16, 2, 16),
    (16, 8, 1, 8),
    (8, 32, 1, 16),
    (8, 32, 1, 8),
    (8, 16, 1, 8),
    (8, 8, 1, 8),
    (4, 64, 1, 32),
    (4, 32, 1, 16),
    (4, 8, 1, 16),
    (2, 2, 1, 32),
    (1, 64, 1, 32),
    (1, 32, 1, 32),
    (1, 2, 1, 32),
)
LANES = 128  # multiply-adds per cycle of one unit, about
LATENCY = 4  # cycles until a sum may be added to again
SCORE_INSTRUCTIONS = 12  # per score: difference, exp2, total, exchange for the second product
STAGE_CYCLES = 900  # latency of a stage and its four barriers; only other work-groups hide it
ENOUGH_WAVES = 0.85  # part of the best split's occupancy that suffices (FlashAttention's num_splits_heuristic)


def default(p: AttentionProblem, limits: Limits) -> SimtAttentionSchedule:
    """On a GPU the tile that is fastest by a model of one unit's cycles, then the smallest split that fills the device.

    On a CPU, one work-item per group.
    """
    if limits.is_cpu:
        return _one_at_a_time(p, limits)
    candidates = [
        SimtAttentionSchedule(tile_m=tile_m, tile_n=tile_n, reg_m=reg_m, row_items=row_items, splits=1, vector=1)
        for tile_m, tile_n, reg_m, row_items in TILES
    ]
    legal = [s for s in candidates if can_run(s, objections, p, limits)]
    best = min(legal, key=lambda s: cycles(s, p, limits))
    return with_splits(best, p, limits, derive(best, p).tiles, objections)


def cycles(s: SimtAttentionSchedule, p: AttentionProblem, limits: Limits) -> float:
    """Cycles of the busiest unit: its share of work-groups, each with so many stages, bound by sums, memory or latency."""
    d = derive(s, p)
    share = max(1, -(-d.tiles // limits.units))
    reads = 1 / s.reg_m + 1 / d.reg_n, 1 / s.reg_m + 1 / d.reg_v  # of shared memory, per multiply-add
    work = s.tile_m * s.row_items * d.reg_n * (d.depth_pad * (1 + reads[0]) + d.values_pad * (1 + reads[1]))
    work += 2 * (s.tile_n + 4) * (d.depth_pad + d.values_pad)  # the tile passes through registers
    # the part that a single group can use
    own = min(LANES, d.threads * min(1, s.reg_m * min(d.reg_n, d.reg_v) / LATENCY))
    return -(-p.n // s.tile_n) * max(share * work / LANES, STAGE_CYCLES + work / own)


def with_splits(
    s: Chosen, p: Problem, limits: Limits, tiles: int, objections: Callable[[Chosen, Problem, Limits], Iterator[str]]
) -> Chosen:
    """``s``, which has ``tiles`` tiles of rows, with the smallest split that fills the device."""

    def is_legal(splits: int) -> bool:
        return can_run(s.replace(splits=splits), objections, p, limits)

    return s.replace(splits=_smallest_split(tiles, -(-p.n // s.tile_n), limits.units, is_legal))


def _smallest_split(tiles: int, stages: int, units: int, is_legal: Callable[[int], bool]) -> int:
    """The smallest split whose last wave leaves few units idle; 1 if tiles of rows fill the device already."""
    if tiles >= 0.8 * units or stages <= 4:
        return 1

    def busy(splits: int) -> float:
        waves = tiles * splits / units
        return waves / math.ceil(waves)

    useful = [n for n in SPLITS if n <= stages // 2 and is_legal(n)]
    best = max(map(busy, useful))
    return next(n for n in useful if busy(n) >= ENOUGH_WAVES * best)


def _one_at_a_time(p: AttentionProblem, limits: Limits) -> SimtAttentionSchedule:
    """For a CPU with OpenCL: one work-item per group, blocks of rows in vector registers, tiles that fit its caches."""
    vector = max(w for w in (4, 8, 16) if w == 4 or (4 * w <= limits.vector_bytes and w < 2 * max(p.values, 4)))
    vectors = -(-p.values // vector)
    reg_m = next(r for r in (8, 4, 2, 1) if r == 1 or (r * vectors <= 16 and r < 2 * p.m))
    tile_m = max(reg_m, next((t for t in (8, 16, 32) if p.m <= t), 32))
    s = SimtAttentionSchedule(tile_m=tile_m, tile_n=32, reg_m=reg_m, row_items=1, splits=1, vector=vector)
    while s.tile_n > vector and not can_run(s, objections, p, limits):
        s = s.replace(tile_n=s.tile_n // 2)
    while s.tile_m > 1 and not can_run(s, objections, p, limits):
        s = s.replace(tile_m=s.tile_m // 2, reg_m=min(s.reg_m, s.tile_m // 2))
    return s


def work(s: SimtAttentionSchedule, p: AttentionProblem) -> Work:
    d = derive(s, p)
    stages = min(d.tiles_per_split, -(-p.n // s.tile_n))
    columns = s.tile_n if d.alone else s.row_items * d.reg_n
    idle = -(-d.threads // 32) * 32 / d.threads  # idle lanes of a partial warp count
    pairs, heads = idle * s.tile_m * columns * stages, p.depth + p.values
    # elements of shared memory that the two products read
    read = pairs * (d.depth_pad * (1 / s.reg_m + 1 / d.reg_n) + d.values_pad * (1 / s.reg_m + 1 / d.reg_v))
    macs = pairs * (d.depth_pad + d.values_pad)
    return Work(
        macs=macs,
        cache_bytes=4 * (s.tile_m * p.depth + stages * s.tile_n * heads),
        steps=stages,
        out_bytes=4 * s.tile_m * p.values,
        shared_traffic=8 * stages * s.tile_n * heads,
        fragment_traffic=2 * read,
        shared_bytes=shared_bytes(s, p),
        instructions=(macs + read / UNROLL + SCORE_INSTRUCTIONS * pairs + 4 * stages * s.tile_n * heads) / 32,
        chains=s.reg_m * least(d.reg_n, d.reg_v),
        registers=(registers(s, p) + registers_taken(s, p)) // 2,
        step_cycles=STAGE_CYCLES / 3,
        splits=s.splits,
        joined_bytes=4 * d.part_words * d.threads,
    )


FAMILY = Family(
    "attention",
    Attention,
    SimtAttentionSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "simt",
    accepts=accepts,
    work=work,
    registers=registers,
    emit=emit_attention,
    template="attention/simt/kernel.j2",
    any_size=True,
)
