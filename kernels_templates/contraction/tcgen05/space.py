"""Parameters of the contraction family's ``tcgen05`` engine (sm_100): TMA tiles, a ring of stages, sums in tensor memory.

A block multiplies alone, or with the other one of its cluster (``cta_group::2``). Block-scaled formats are not used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least, most
from gpucomp.ir.types import I8
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.matrix import DEPTH_BYTES
from gpucomp.kernel.forms.row_statistics import has_tail
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Tunables, tunable
from gpucomp.kernels_templates.contraction.row_statistics import (
    tail_counter_bytes,
    tail_cycles,
    tail_registers,
    tail_work,
)
from gpucomp.kernels_templates.contraction.tcgen05.emit import emit_tcgen05
from gpucomp.kernels_templates.contraction.tma_space import (
    EARLY_TRIPS,
    GROUP,
    PAIR,
    TileProblem,
    TileSizes,
    early,
    most_stages,
    not_by_tiles,
    packing,
    problem,
    tile_objections,
    tile_sizes,
)
from gpucomp.kernels_templates.contraction.tma_types import kind_of, operand_dtypes
from gpucomp.schedule.space import WARP, Family, Work, can_run, remembered, worthwhile_splits

COLUMNS = (16, 32, 48, 64, 96, 128, 192, 256)
SPLITS = (1, 2, 4, 8)
PRODUCT_M = 128  # most rows of one product, and rows that a warpgroup stores
MOST_CHUNK = 64  # columns that are loaded at once from tensor memory by one warpgroup; half of them by each of two
TENSOR_COLUMNS = 512  # of a multiprocessor
DONE_BYTES = 16  # the barrier of all products, and the address in tensor memory
UNIT_SHARED_BYTES, GROUP_SHARED_BYTES = (
    228 << 10,
    1 << 10,
)  # of a multiprocessor; of these the system's, for a work-group
TURN_BYTES = 40  # the same of two tiles, with barriers at which their sums have been taken
TURN_REGISTERS = 16  # what the loop over tiles keeps
TURNS = (1, 2, 3, 4, 6, 8, 12, 16)


class Tcgen05Schedule(Tunables):
    tile_m: int = tunable((64, 128, 256), "rows of a tile of the result")
    tile_n: int = tunable(COLUMNS, "columns of a tile of the result")
    stages: int = tunable((2, 3, 4, 5, 6, 7, 8, 10, 12), "tiles of both operands that are loaded ahead")
    splits: int = tunable(SPLITS, "work-groups, of one cluster, that share the depth of a tile")
    overlap: int = tunable((0, 1, 2), "1: starts before the previous launch ends; 2: and loads tiles of a constant b")
    multicast: int = tunable(
        (0, 1, 2, 3),
        "two work-groups of a cluster load for both: 1 tiles of b, 2 tiles of a; 3: they multiply as one, each loads half of b",
    )
    tma_store: int = tunable((0, 1), "1: the tensor memory accelerator stores the result from shared memory")
    turns: int = tunable(TURNS, "tiles that a work-group computes; while it stores one, it multiplies the next")


class Tcgen05Sizes(TileSizes):
    consumers: int  # warpgroups that store the result
    products: int  # products beside each other that have the tile's rows
    product_m: int  # rows of one product
    product_columns: int  # columns of tensor memory from one product to the next
    buffer: int  # columns of tensor memory from one tile to the next
    groups: int  # work-groups
    each: int  # most tiles of a work-group
    tensor_columns: int  # columns of tensor memory that the work-group allocates
    blocks: int  # 16 rows each of a warp: those that it stores
    chunk: int  # columns that are loaded at once from tensor memory


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    if not {"tcgen05", "tma", "cluster"} <= features:
        return "the device has no tcgen05"
    a, b = operand_dtypes(kernel)
    if kind_of(kernel) is None or a is I8:  # sm_103 has no kind::i8
        return f"tcgen05 does not multiply {a} by {b} into {kernel.body.acc.dtype} ({kernel.body.math})"
    return not_by_tiles(kernel)


def power_of_two(columns: int) -> int:
    """The least power of two that is not less than ``columns``, up to 256."""
    return next(size for size in (16, 32, 64, 128, 256) if columns <= size)


@remembered
def derive(s: Tcgen05Schedule, p: TileProblem) -> Tcgen05Sizes:
    products = 2 if s.tile_m > PRODUCT_M else 1
    product_m = s.tile_m // products
    columns = power_of_two(s.tile_n)
    several, together = s.turns > 1, 2 if s.multicast else 1
    tensor_columns = most(32, columns * products * (1 + several))
    sizes = tile_sizes(s, p, products, TURN_BYTES if several else DONE_BYTES, apart=several)
    groups = -(-sizes["tiles"] // (together * s.turns)) * together
    # no more work-groups on a multiprocessor than have tensor memory there: others would wait for it
    alone = UNIT_SHARED_BYTES // (TENSOR_COLUMNS // tensor_columns + 1) - GROUP_SHARED_BYTES + 1
    sizes["shared"] = most(sizes["shared"], alone)
    return Tcgen05Sizes(
        threads=GROUP * products + 2 * WARP,
        consumers=products,
        products=products,
        product_m=product_m,
        product_columns=columns,
        buffer=columns * products,
        tensor_columns=tensor_columns,
        groups=groups,
        each=-(-sizes["tiles"] // groups),
        blocks=product_m // 64,
        chunk=math.gcd(s.tile_n, MOST_CHUNK // products),
        **sizes,
    )


def registers(s: Tcgen05Schedule, p: TileProblem) -> int:
    """An upper bound of the registers that ptxas uses.

    They hold the sums of two chunks, one of which is on its way, with addresses; or the runs of sums that the epilogue
    reads, up to eight of them at once, if these need more. Measured over 300 schedules of the kernels in the tests.
    """
    d = derive(s, p)
    chunks = d.blocks * d.chunk // 2 * (2 if s.tile_n > d.chunk else 1)
    if s.tma_store:
        stored = chunks + (88 if p.out_reads else 60)
    else:
        trips = -(-(s.tile_m // s.splits * s.tile_n // d.out_vector) // (GROUP * d.consumers))
        runs = 72 + (12 if p.out_wide > 4 else 4) * least(trips, EARLY_TRIPS) + 3 * (s.splits - 1)
        stored = most(chunks + 60, runs)
    if s.turns > 1:
        stored += TURN_REGISTERS
    return most(stored, tail_registers(GROUP * d.consumers, s.tile_m // s.splits, p))


def objections(s: Tcgen05Schedule, p: TileProblem, limits: Limits) -> Iterator[str]:
    d = derive(s, p)
    if (needed := registers(s, p)) > (there := limits.registers_for(d.threads)):
        yield f"about {needed} registers per work-item, there are {there}"
    if d.tensor_columns > TENSOR_COLUMNS:
        yield f"{d.tensor_columns} columns of tensor memory, there are {TENSOR_COLUMNS}"
    if s.multicast == PAIR and d.product_m != PRODUCT_M:
        yield f"a pair multiplies {PRODUCT_M} rows of each work-group at once, the tile has {s.tile_m}"
    if s.turns > 1:
        if not s.tma_store:
            yield "several tiles of a work-group are stored by TMA"
        if s.splits > 1 or s.multicast not in (0, PAIR):
            yield "a cluster shares the depth or the loads of one tile, not of several"
        if has_tail(p):
            yield "row statistics follow the only tile of a work-group"
    yield from tile_objections(s, p, d, limits)


def geometry(s: Tcgen05Schedule, p: TileProblem) -> Geometry:
    d = derive(s, p)
    counters = tail_counter_bytes(p.batch * d.tiles_m * s.splits, d.tiles_n, p)
    return Geometry((d.groups, s.splits, 1), (d.threads, 1, 1), dynamic_shared_bytes=d.shared, counter_bytes=counters)


# ---- the model: cycles of the busiest multiprocessor, as wgmma's. Not measured on a device ----

# products along 128 bytes of depth per multiprocessor and cycle: 4096 f16, 2048 tf32 (data sheet of the B200)
MULTIPLIER_SHARE = 64
SHARED_BYTES_PER_CYCLE = 128
LOAD_BYTES_PER_CYCLE = 40  # of one multiprocessor, from L2, if all of them load
START_CYCLES = 1500  # launch, barriers, allocation, latency of the first load
STORE_SHARE = 16  # elements per cycle through shared memory and the epilogue
CLUSTER_CYCLES = 2000  # two barriers of a cluster and the latency of its reduction
PAIR_CYCLES = 500  # two work-groups that wait for each other, at the start and later
TMA_STORE_SHARE = {True: 12, False: 24}  # the same with tma_store, by whether elements are read in pairs
TRIP_INSTRUCTIONS = 48  # per stage: waits, descriptors, products, arrivals, loads
OUT_INSTRUCTIONS = 3  # per sum; one less if TMA stores it
TRIP_CYCLES = 16  # between the products of two stages
STORED_CYCLES = 1000  # latencies from the end of a tile's products until its sums are left, and their memory is read


def multiplied(s: Tcgen05Schedule) -> int:
    """Sums of a tile as the matrix unit spends time on them: 64 rows take as long as 128."""
    return int(most(s.tile_m, PRODUCT_M) * s.tile_n)


def read_bytes(s: Tcgen05Schedule, d: Tcgen05Sizes) -> int:
    """Bytes of shared memory that the products of a stage read: columns once for each 128 rows.

    Of a pair, each work-group's memory has half of the columns, and is read for both.
    """
    return DEPTH_BYTES * (s.tile_m + d.products * (d.load_n if s.multicast == PAIR else s.tile_n))


def cycles(s: Tcgen05Schedule, p: TileProblem, limits: Limits) -> float:
    d = derive(s, p)
    multiply = multiplied(s) / MULTIPLIER_SHARE
    read = (read_bytes(s, d) + d.stage_bytes) / SHARED_BYTES_PER_CYCLE  # what is loaded is written there
    load = DEPTH_BYTES * (d.load_m + d.load_n) / LOAD_BYTES_PER_CYCLE
    filled = min(s.stages, d.steps_per_split)
    late = START_CYCLES * max(0.0, 1 - filled / 4) / 4  # fewer than four stages do not hide the latency of loads
    waves = -(-d.groups * s.splits // limits.units)
    store = s.tile_m * s.tile_n / s.splits / (TMA_STORE_SHARE[p.out_reads > 0] if s.tma_store else STORE_SHARE)
    added = CLUSTER_CYCLES + s.tile_m * s.tile_n / STORE_SHARE if s.splits > 1 else PAIR_CYCLES * (s.multicast > 0)
    tail = tail_cycles(GROUP * d.consumers, s.tile_m // s.splits, d.tiles_n, p)
    step = max(multiply, read, load) + late
    tile = d.steps_per_split * step + waiting(s, p, d)
    return tail + waves * (START_CYCLES + d.each * tile + store + added)


def waiting(s: Tcgen05Schedule, p: TileProblem, d: Tcgen05Sizes) -> float:
    """Cycles of a tile in which the matrix unit waits for the sums of the tile but one before to be taken and stored."""
    if s.turns == 1:
        return 0.0
    stored = STORED_CYCLES + s.tile_m * s.tile_n / TMA_STORE_SHARE[p.out_reads > 0]
    return most(0.0, stored - d.steps_per_split * multiplied(s) / MULTIPLIER_SHARE)


def work(s: Tcgen05Schedule, p: TileProblem) -> Work:
    """The work of a work-group, for the analytic model."""
    d = derive(s, p)
    tile_bytes = s.tile_m * s.tile_n * (p.out_bytes or 4)
    steps = d.steps_per_split * d.each
    # sums that pass through shared memory before they are stored
    staged = tile_bytes if s.tma_store else 4 * s.tile_m * s.tile_n
    sums = d.blocks * s.tile_n // 2 * (OUT_INSTRUCTIONS - s.tma_store)
    return Work(
        macs=multiplied(s) * d.tile_k * steps,
        cache_bytes=DEPTH_BYTES * (d.load_m + d.load_n) * steps + (d.each - 1) * tile_bytes,
        steps=steps,
        math={2: "f16", 4: "tf32"}[p.element_bytes],
        out_bytes=tile_bytes / s.splits,  # the last tile's: those before it are stored while others are multiplied
        ahead=s.stages,
        shared_traffic=steps * (read_bytes(s, d) + d.stage_bytes) + 2 * staged * d.each,
        shared_bytes=d.shared,
        registers=registers(s, p),
        instructions=steps * TRIP_INSTRUCTIONS + 4 * d.consumers * sums * d.each,
        chains=s.tile_m // 64 * s.tile_n // 8,
        step_cycles=TRIP_CYCLES + waiting(s, p, d) / d.steps_per_split,
        start_cycles=START_CYCLES / 2 + PAIR_CYCLES * (s.multicast > 0),
        early_cycles=START_CYCLES / 2,
        overlaps=1.0 * (s.overlap > 0),
        splits=s.splits,
        in_cluster=True,
        joined_bytes=staged,
        **tail_work(GROUP * d.consumers, s.tile_m // s.splits, d.tiles_n, p),
    )


def focus(p: TileProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    """Everything except ``overlap``, which costs nothing. Loads are shared only if tiles can fill the device."""
    step, results = DEPTH_BYTES // p.element_bytes // 2, p.batch * p.m * p.n
    many = results > 64 * 64 * limits.units
    return {
        "tile_m": (64, 128, 256) if many else (64, 128),
        "stages": (2, 3, 4, 6, 8),
        "splits": worthwhile_splits(SPLITS, p.k, step, results, limits),
        "overlap": (early(p),),
        "multicast": (0, 2, PAIR) if many else (0,),  # a pair has what shared tiles of b gain, and more
        "tma_store": (0, 1) if p.out_bytes and p.out_wide * p.out_bytes == 16 else (0,),
        "turns": (1, 2, 4) if many else (1,),
    }


def default(p: TileProblem, limits: Limits) -> Tcgen05Schedule:
    """The tile and split that are fastest by the model, with as many stages as fit and as the depth has.

    It starts early, by loading the tiles of a constant b. TMA stores the result if that is faster.
    """
    smallest = Tcgen05Schedule(splits=1, overlap=0, multicast=0, tma_store=0, tile_m=64, tile_n=16, stages=2, turns=1)
    tiles = _tiles(smallest.replace(overlap=early(p)), p, limits)
    candidates = [s for tile in tiles if (s := _staged(tile, p, limits)) is not None]
    if not candidates:  # too many tiles for a launch, whatever their size; another engine computes it
        return smallest
    return min(candidates, key=lambda s: cycles(s, p, limits))


def _tiles(smallest: Tcgen05Schedule, p: TileProblem, limits: Limits) -> Iterator[Tcgen05Schedule]:
    """``smallest`` with all tiles, ways to store them, and ways to share the work within a cluster.

    Loads are shared only if there is more than a wave of tiles.
    """
    for tile_m, tile_n, store in itertools.product((64, 128, 256), COLUMNS, (0, 1)):
        tile = smallest.replace(tile_m=tile_m, tile_n=tile_n, tma_store=store)
        yield from (tile.replace(splits=splits) for splits in SPLITS)
        tiles = -(-p.m // tile_m) * -(-p.n // tile_n) * p.batch
        if tiles > limits.units:
            yield from (tile.replace(multicast=way) for way in (1, 2, PAIR))
            wave = next((turns for turns in TURNS if tiles <= turns * limits.units), 1)
            if store and wave > 1:
                yield from (tile.replace(multicast=way, turns=wave) for way in (0, PAIR))


def _staged(s: Tcgen05Schedule, p: TileProblem, limits: Limits) -> Tcgen05Schedule | None:
    return most_stages(s, derive(s, p).steps_per_split, lambda one: can_run(one, objections, p, limits))


FAMILY = Family(
    "contraction",
    Contraction,
    Tcgen05Schedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "tcgen05",
    accepts=accepts,
    work=work,
    packing=packing,
    registers=registers,
    focus=focus,
    emit=emit_tcgen05,
    template="contraction/tcgen05/kernel.j2",
    any_size=True,
)
