"""Parameters of the contraction family's ``wgmma`` engine (sm_90a): TMA tiles, a ring of stages, clusters.

The producer is one warp. That suffices for 128 x 192 with one
consumer and for 128 x 256 with two. For larger tiles the producer is a warpgroup, which gives registers to the
consumers (``setmaxnreg``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from gpucomp.device.limits import Limits, register_share
from gpucomp.device.lockstep import least, most
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.matrix import DEPTH_BYTES
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Tunables, tunable
from gpucomp.kernels_templates.contraction.row_statistics import (
    tail_counter_bytes,
    tail_cycles,
    tail_registers,
    tail_work,
)
from gpucomp.kernels_templates.contraction.tma_space import (
    EARLY_TRIPS,
    GROUP,
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
from gpucomp.kernels_templates.contraction.wgmma.emit import emit_wgmma
from gpucomp.schedule.space import (
    WARP,
    Family,
    Work,
    can_run,
    remembered,
    worthwhile_splits,
)

COLUMNS = (8, 16, 32, 48, 64, 96, 128, 192, 256)
SPLITS = (1, 2, 4, 8)
INSTRUCTION_REGISTERS = 26  # registers that ptxas needs besides an instruction's sums
TRADES = {2: (40, 232), 3: (32, 160)}  # by number of consumers: registers of the producer and of a consumer


class WgmmaSchedule(Tunables):
    tile_m: int = tunable((64, 128, 192, 256), "rows of the result per work-group")
    tile_n: int = tunable(COLUMNS, "columns of the result per work-group")
    consumers: int = tunable((1, 2, 3), "warpgroups that multiply; each has 64 or 128 rows")
    stages: int = tunable((2, 3, 4, 5, 6, 7, 8, 10, 12), "tiles of both operands that are loaded ahead")
    splits: int = tunable(SPLITS, "work-groups, of one cluster, that share the depth of a tile")
    overlap: int = tunable((0, 1, 2), "1: starts before the previous launch ends; 2: and loads tiles of a constant b")
    setmaxnreg: int = tunable(
        (0, 1), "1: the producer is a warpgroup that gives most of its registers to the consumers"
    )
    multicast: int = tunable((0, 1, 2), "two work-groups of a cluster load for both: 1 tiles of b, 2 tiles of a")
    tma_store: int = tunable((0, 1), "1: the tensor memory accelerator stores the result from shared memory")


class WgmmaSizes(TileSizes):
    blocks: int  # blocks of 64 rows per consumer
    sums: int  # sums per thread and block
    given: int  # registers of a producer's thread after ``setmaxnreg``
    taken: int  # registers of a consumer's thread after ``setmaxnreg``


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    if not {"wgmma", "tma", "cluster"} <= features:
        return "the device has no wgmma"
    if kind_of(kernel) is None:
        a, b = operand_dtypes(kernel)
        return f"wgmma does not multiply {a} by {b} into {kernel.body.acc.dtype} ({kernel.body.math})"
    return not_by_tiles(kernel)


@remembered
def derive(s: WgmmaSchedule, p: TileProblem) -> WgmmaSizes:
    given, taken = TRADES.get(s.consumers, (0, 0))
    return WgmmaSizes(
        threads=GROUP * s.consumers + (GROUP if s.setmaxnreg else WARP),
        blocks=s.tile_m // s.consumers // 64,
        sums=s.tile_n // 2,
        given=given,
        taken=taken,
        **tile_sizes(s, p, s.consumers),
    )


def accumulators(s: WgmmaSchedule) -> int:
    """Sums of a thread: its part of 64 rows, for each block of its warpgroup."""
    return s.tile_m // s.consumers // 64 * s.tile_n // 2


def registers(s: WgmmaSchedule, p: TileProblem) -> int:
    """An upper bound of the registers that ptxas uses.

    They hold the sums with descriptors, barriers and counters, or the epilogue's runs if these need more. Measured over
    150 schedules of the kernels in the tests.
    """
    early = 4 * EARLY_TRIPS if s.consumers == 1 and p.out_reads else 0
    beside = 42 if s.tma_store and p.out_reads else 32
    sums = max(accumulators(s) + beside, 72 if p.out_wide <= 4 else 104 + early)
    return most(sums, tail_registers(GROUP * s.consumers, s.tile_m // s.splits, p))


def registers_there(s: WgmmaSchedule, limits: Limits) -> int:
    """The registers that a consumer's thread can have if one work-group runs on a multiprocessor."""
    return TRADES[s.consumers][1] if s.setmaxnreg else launch_registers(s, limits)


def launch_registers(s: WgmmaSchedule, limits: Limits) -> int:
    """The registers that every thread starts with: 255, 168, 128 with 1, 2, 3 consumers."""
    return limits.registers_for(GROUP * s.consumers + WARP)


def objections(s: WgmmaSchedule, p: TileProblem, limits: Limits) -> Iterator[str]:
    if s.tile_m % s.consumers or s.tile_m // s.consumers not in (64, 128):
        yield f"{s.consumers} warpgroups do not share {s.tile_m} rows by 64 or 128"
        return
    if s.setmaxnreg and s.consumers not in TRADES:
        yield f"{s.consumers} warpgroup that multiplies has all the registers it can use already"
        return
    d = derive(s, p)
    if (needed := registers(s, p)) > (there := registers_there(s, limits)):
        yield f"about {needed} registers per work-item, there are {there}"
    if (needed := s.tile_n // 2 + INSTRUCTION_REGISTERS) > (there := launch_registers(s, limits)):
        yield f"ptxas wants {needed} registers for one wgmma, whatever setmaxnreg adds; a launch has {there}"
    yield from tile_objections(s, p, d, limits)


def geometry(s: WgmmaSchedule, p: TileProblem) -> Geometry:
    d = derive(s, p)
    counters = tail_counter_bytes(p.batch * d.tiles_m * s.splits, d.tiles_n, p)
    return Geometry((d.tiles, s.splits, 1), (d.threads, 1, 1), dynamic_shared_bytes=d.shared, counter_bytes=counters)


# ---- the model: cycles of the busiest multiprocessor, after DeepGEMM's sm90 heuristics ----

# products along 128 bytes of depth per multiprocessor and cycle: 2048 f16, 1024 tf32, 4096 s8
MULTIPLIER_SHARE = 32
SHARED_BYTES_PER_CYCLE = 128
LOAD_BYTES_PER_CYCLE = 32  # of one multiprocessor, from L2, if all of them load
START_CYCLES = 1500  # launch, barriers, latency of the first load
STORE_SHARE = 16  # elements per cycle through shared memory and the epilogue
CLUSTER_CYCLES = 2000  # two barriers of a cluster and the latency of its reduction
PAIR_CYCLES = 500  # two work-groups that wait for each other, at the start and later
TMA_STORE_SHARE = {True: 12, False: 24}  # the same with tma_store, by whether elements are read in pairs
TRIP_INSTRUCTIONS = 24  # per consumer warp and stage: waits, products, arrivals
OUT_INSTRUCTIONS = 3  # per sum; one less if TMA stores it
TRIP_CYCLES = 40  # barriers of a stage


def cycles(s: WgmmaSchedule, p: TileProblem, limits: Limits) -> float:
    d = derive(s, p)
    multiply = s.tile_m * s.tile_n / MULTIPLIER_SHARE
    read = DEPTH_BYTES * (s.tile_m + s.tile_m // 64 * s.tile_n) / SHARED_BYTES_PER_CYCLE
    load = DEPTH_BYTES * (d.load_m + d.load_n) / LOAD_BYTES_PER_CYCLE
    filled = min(s.stages, d.steps_per_split)
    late = START_CYCLES * max(0.0, 1 - filled / 4) / 4  # fewer than four stages do not hide the latency of loads
    waves = -(-d.tiles * s.splits // limits.units)
    store = s.tile_m * s.tile_n / s.splits / (TMA_STORE_SHARE[p.out_reads > 0] if s.tma_store else STORE_SHARE)
    added = CLUSTER_CYCLES + s.tile_m * s.tile_n / STORE_SHARE if s.splits > 1 else PAIR_CYCLES * (s.multicast > 0)
    tail = tail_cycles(GROUP * s.consumers, s.tile_m // s.splits, d.tiles_n, p)
    return tail + waves * (START_CYCLES + d.steps_per_split * (max(multiply, read, load) + late) + store + added)


def work(s: WgmmaSchedule, p: TileProblem) -> Work:
    """The work of a work-group, for the analytic model.

    A consumer's rows are read once from shared memory, columns once for each 64 of its rows.
    """
    d = derive(s, p)
    out_bytes = s.tile_m * s.tile_n * (p.out_bytes or 4)
    # sums that pass through shared memory before they are stored
    staged = out_bytes if s.tma_store else 4 * s.tile_m * s.tile_n
    sums = d.blocks * d.sums * (OUT_INSTRUCTIONS - s.tma_store)
    return Work(
        macs=s.tile_m * s.tile_n * d.tile_k * d.steps_per_split,
        cache_bytes=DEPTH_BYTES * (d.load_m + d.load_n) * d.steps_per_split,
        steps=d.steps_per_split,
        math={1: "s8", 2: "f16", 4: "tf32"}[p.element_bytes],
        out_bytes=out_bytes / s.splits,
        ahead=s.stages,
        shared_traffic=d.steps_per_split * (DEPTH_BYTES * (s.tile_m + s.tile_m // 64 * s.tile_n) + d.stage_bytes)
        + 2 * staged,
        shared_bytes=d.shared,
        registers=least(registers(s, p), register_share(d.threads)),  # setmaxnreg redistributes them
        instructions=4 * s.consumers * (d.steps_per_split * TRIP_INSTRUCTIONS + sums),
        chains=d.blocks * s.tile_n // 8,
        step_cycles=TRIP_CYCLES,
        start_cycles=START_CYCLES / 2 + PAIR_CYCLES * (s.multicast > 0),
        early_cycles=START_CYCLES / 2,
        overlaps=1.0 * (s.overlap > 0),
        splits=s.splits,
        in_cluster=True,
        joined_bytes=staged,
        **tail_work(GROUP * s.consumers, s.tile_m // s.splits, d.tiles_n, p),
    )


def focus(p: TileProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    """Everything except ``overlap``, which costs nothing. Loads are shared only if tiles can fill the device."""
    step, results = DEPTH_BYTES // p.element_bytes // 2, p.batch * p.m * p.n
    many = results > 64 * 64 * limits.units
    return {
        "tile_m": (64, 128, 192, 256) if many else (64, 128),
        "consumers": (1, 2, 3) if many else (1, 2),
        "stages": (2, 3, 4, 6, 8),
        "splits": worthwhile_splits(SPLITS, p.k, step, results, limits),
        "overlap": (early(p),),
        "setmaxnreg": (0, 1) if many else (0,),
        "multicast": (0, 1, 2) if many else (0,),
        "tma_store": (0, 1) if p.out_bytes and p.out_wide * p.out_bytes == 16 else (0,),
    }


TILES = ((64, 1, 0), (128, 2, 0), (192, 3, 0), (256, 2, 0), (192, 3, 1), (256, 2, 1))  # rows, consumers, setmaxnreg


def default(p: TileProblem, limits: Limits) -> WgmmaSchedule:
    """The tile and split that are fastest by the model, with as many stages as fit and as the depth has.

    It starts early, by loading the tiles of a constant b. TMA stores the result if the epilogue loads nothing.
    """
    smallest = WgmmaSchedule(
        splits=1, overlap=0, setmaxnreg=0, multicast=0, tma_store=0, tile_m=64, tile_n=8, consumers=1, stages=2
    )
    clusters = _clusters(smallest.replace(overlap=early(p)), p, limits)
    candidates = [s for cluster in clusters if (s := _staged(cluster, p, limits)) is not None]
    if not candidates:  # too many tiles for a launch, whatever their size; another engine computes it
        return smallest
    best = min(candidates, key=lambda s: cycles(s, p, limits))
    out = best.replace(tma_store=1)
    return min(best, out, key=lambda s: cycles(s, p, limits)) if can_run(out, objections, p, limits) else best


def _clusters(smallest: WgmmaSchedule, p: TileProblem, limits: Limits) -> Iterator[WgmmaSchedule]:
    """``smallest`` with all tiles, and with all ways to share the work within a cluster.

    Registers are moved only for tiles that cannot run otherwise. Loads are shared only if there is more than a wave of
    tiles (as in DeepGEMM's heuristics).
    """
    for (tile_m, consumers, trade), tile_n in itertools.product(TILES, COLUMNS):
        tile = smallest.replace(tile_m=tile_m, tile_n=tile_n, consumers=consumers)
        if trade and registers(tile, p) <= registers_there(tile, limits):
            continue
        tile = tile.replace(setmaxnreg=trade)
        yield from (tile.replace(splits=splits) for splits in SPLITS)
        if -(-p.m // tile_m) * -(-p.n // tile_n) * p.batch > limits.units:
            yield from (tile.replace(multicast=way) for way in (1, 2))


def _staged(s: WgmmaSchedule, p: TileProblem, limits: Limits) -> WgmmaSchedule | None:
    return most_stages(s, derive(s, p).steps_per_split, lambda one: can_run(one, objections, p, limits))


FAMILY = Family(
    "contraction",
    Contraction,
    WgmmaSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "wgmma",
    accepts=accepts,
    work=work,
    packing=packing,
    registers=registers,
    focus=focus,
    emit=emit_wgmma,
    template="contraction/wgmma/kernel.j2",
    any_size=True,
)
