"""The parameters of the contraction family's `amd` engine: matrix instructions out of local memory.

What has no matrix instruction is left to `simt`, whose tiles, 16-byte loads, prefetch into registers and two buffers
in local memory are what a plain AMD kernel consists of; compilers form `v_pk_fma_f32` of its products by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gpucomp.device.limits import Limits
from gpucomp.ir.types import BF16, F16, F32, I8
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.operand import count
from gpucomp.kernel.forms.row_statistics import no_tail
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.pack_weights import packable
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.contraction.amd.emit import INSTRUCTIONS, element_type, emit_amd, has_instruction
from gpucomp.schedule.space import (
    LATENCY,
    MAX_GROUPS,
    Family,
    Work,
    cannot_meet,
    fastest,
    remembered,
    too_large,
    worthwhile_splits,
)

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
CHUNK = 16  # bytes of one access
SUMS = 256  # accumulation registers of a lane beside the others, on devices with MFMA
FLAG_BYTES = 16
ELEMENTS = {1: I8, 2: F16, 4: F32}  # by their bytes


class AmdSchedule(Tunables):
    wave: int = tunable((32, 64), "work-items of a wave: what the device has, 32 with WMMA and 64 with MFMA")
    block: int = tunable((16, 32), "rows and columns of one matrix instruction's result")
    waves_m: int = tunable((1, 2, 4), "waves of a work-group along the rows")
    waves_n: int = tunable((1, 2, 4), "waves of a work-group along the columns")
    blocks_m: int = tunable((1, 2, 4), "instructions of a wave along the rows")
    blocks_n: int = tunable((1, 2, 4), "instructions of a wave along the columns")
    steps: int = tunable((1, 2, 4), "chunks of 16 bytes that a lane takes of each row of a tile")
    stages: int = tunable((1, 2), "buffers in local memory: with 2 the next tile is stored while this one is read")
    splits: int = tunable(SPLITS, "work-groups that share the depth of a tile")


class AmdProblem(Sizes):
    """Sizes of the contraction, and what its operands are made of."""

    batch: int
    m: int
    n: int
    k: int
    element_bytes: int  # of an operand
    b_constant: int  # 1: the right operand can be packed
    b_batched: int  # 1: each matrix of the batch has a right operand of its own
    bf16: int = 0  # 1: an element of two bytes is a bf16, not an f16


class AmdSizes(Sizes):
    threads: int
    vector: int  # elements of a chunk
    groups: int  # chunks of a row that a wave reads for its instructions, side by side; on RDNA3 each lane reads all of them
    chunks: int  # of a row of a tile
    tile_m: int
    tile_n: int
    tile_k: int
    tiles_m: int
    tiles_n: int
    tiles_k: int
    tiles_per_split: int  # of the depth
    tiles: int  # of the whole result
    a_loads: int  # chunks of a tile that a work-item loads
    b_loads: int


def problem(kernel: Kernel[Contraction]) -> AmdProblem:
    body = kernel.body
    element = element_type(body)
    return AmdProblem(
        batch=count(body.batch),
        m=count(body.m),
        n=count(body.n),
        k=count(body.k),
        element_bytes=element.nbytes if element is not None else 4,
        b_constant=int(packable(kernel, "b")),
        b_batched=int(any(v in body.b.free for v in body.batch)),
        **({"bf16": 1} if element is BF16 else {}),
    )


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    body = kernel.body
    if reason := no_tail(kernel):
        return reason
    if not {"mfma", "wmma"} & features:
        return "the device has no matrix instructions"
    element = element_type(body)
    if element is None or body.math != "strict":
        return "matrix instructions add products of f16, bf16 or f32 up in f32, of i8 in i32"
    if not has_instruction(element, features):
        return f"WMMA takes no {element}"
    return ""


@remembered
def derive(s: AmdSchedule, p: AmdProblem) -> AmdSizes:
    threads = s.wave * s.waves_m * s.waves_n
    vector = CHUNK // p.element_bytes
    groups = s.wave // s.block
    tile_m, tile_n = s.block * s.waves_m * s.blocks_m, s.block * s.waves_n * s.blocks_n
    chunks = groups * s.steps
    tile_k = chunks * vector
    tiles_m, tiles_n, tiles_k = -(-p.m // tile_m), -(-p.n // tile_n), -(-p.k // tile_k)
    return AmdSizes(
        threads=threads,
        vector=vector,
        groups=groups,
        chunks=chunks,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=tile_k,
        tiles_m=max(1, tiles_m),
        tiles_n=max(1, tiles_n),
        tiles_k=tiles_k,
        tiles_per_split=-(-tiles_k // s.splits),
        tiles=tiles_m * tiles_n * p.batch,
        a_loads=max(1, tile_m * chunks // threads),
        b_loads=max(1, tile_n * chunks // threads),
    )


def shared_bytes(s: AmdSchedule, p: AmdProblem) -> int:
    """Both tiles, a chunk of padding behind each row, once a stage; the flag of the last work-group to arrive."""
    d = derive(s, p)
    return s.stages * (d.tile_m + d.tile_n) * (d.chunks + 1) * CHUNK + FLAG_BYTES * (s.splits > 1)


def sums_of(s: AmdSchedule) -> int:
    """Accumulators of a lane."""
    return s.blocks_m * s.blocks_n * s.block * s.block // s.wave


def others_of(s: AmdSchedule, p: AmdProblem) -> int:
    """Registers of a lane beside its accumulators.

    Fragments, with WMMA of several steps; staged chunks, each with the addresses of its row; the sums of other splits, which
    clang reads far ahead; and 40 others.
    """
    d = derive(s, p)
    fragments = (16 if s.wave == 32 else 4) * (s.blocks_m + s.blocks_n)
    return fragments + 8 * (d.a_loads + d.b_loads) + 40 + 2 * sums_of(s) * (s.splits > 1)


def registers(s: AmdSchedule, p: AmdProblem) -> int:
    """Of a lane. Where accumulators are a register file of their own, of both files."""
    return sums_of(s) + others_of(s, p)


def objections(s: AmdSchedule, p: AmdProblem, limits: Limits) -> Iterator[str]:
    if s.wave != limits.warp:
        yield f"waves of {s.wave}, the device has waves of {limits.warp}"
    if (ELEMENTS[p.element_bytes], s.wave, s.block) not in INSTRUCTIONS:
        yield f"no matrix instruction of waves of {s.wave} takes {p.element_bytes} bytes to {s.block} x {s.block}"
        return
    d = derive(s, p)
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if d.tile_m * d.chunks % d.threads or d.tile_n * d.chunks % d.threads or d.threads % d.chunks:
        yield f"{d.threads} work-items cannot share the loads of {d.tile_m} and {d.tile_n} rows of {d.chunks} evenly"
    if (shared := shared_bytes(s, p)) > limits.shared_bytes:
        yield f"{shared} B of local memory, the device has {limits.shared_bytes} B"
    if s.wave == 64 and sums_of(s) > SUMS:
        yield f"{sums_of(s)} accumulators, the device has {SUMS}"
    yield from too_large(limits, d.threads, others_of(s, p) if s.wave == 64 else registers(s, p), d.tiles)
    if s.splits > 1 and d.tiles_per_split * (s.splits - 1) >= d.tiles_k:
        yield f"splits={s.splits}: the last of them has none of the {d.tiles_k} steps"
    if s.splits > 1 and workspace_bytes(s, p) > MAX_GROUPS:
        yield "the partial sums of split-K need more than 2 GiB"
    yield from cannot_meet(s.splits, limits)


def workspace_bytes(s: AmdSchedule, p: AmdProblem) -> int:
    """Partial sums, four bytes each."""
    d = derive(s, p)
    return d.tiles * s.splits * d.tile_m * d.tile_n * 4


def geometry(s: AmdSchedule, p: AmdProblem) -> Geometry:
    d = derive(s, p)
    split = s.splits > 1
    return Geometry(
        (d.tiles, s.splits, 1),
        (d.threads, 1, 1),
        workspace_bytes=workspace_bytes(s, p) if split else 0,
        counter_bytes=4 * d.tiles if split else 0,
    )


def packing(kernel: Kernel, s: AmdSchedule, p: AmdProblem) -> Packing | None:
    """Column after column with its depth inside, filled up to whole chunks."""
    if not p.b_constant or 0 in (p.n, p.k):
        return None
    vector = CHUNK // p.element_bytes
    batch = (Digit("batch", 1, p.batch),) if p.b_batched else ()
    return Packing("b", (*batch, Digit("span", 1, p.n), Digit("k", 1, -(-p.k // vector) * vector)))


# block, waves_m, waves_n, blocks_m, blocks_n: composable_kernel's instances, from large to small
TILES = (
    (32, 2, 2, 4, 2),
    (32, 2, 2, 2, 4),
    (32, 2, 2, 2, 2),
    (32, 2, 2, 2, 1),
    (32, 2, 2, 1, 2),
    (32, 2, 2, 1, 1),
    (16, 2, 2, 2, 2),
    (16, 2, 2, 2, 1),
    (16, 2, 2, 1, 2),
    (16, 2, 2, 1, 1),
    (16, 1, 2, 1, 1),
    (16, 1, 1, 1, 1),
)


LEAST_STEPS = 2  # of a split: less is not worth leaving sums for
MEETING_CYCLES = 1800  # of the last work-group's way: sums are left, it is counted, they are read
SUM_BYTES_PER_CYCLE = 64  # of a unit, from the cache that all share
MACS = {1: 512, 2: 512, 4: 128}  # of a unit's matrix cores each cycle, by the bytes of an element
LOOP_MACS = 64  # that ``_cost`` counts as one


def default(p: AmdProblem, limits: Limits) -> AmdSchedule:
    """The tile and split that keep the busiest unit busy for the shortest time."""
    candidates = [
        AmdSchedule(
            block=block,
            waves_m=waves_m,
            waves_n=waves_n,
            blocks_m=blocks_m,
            blocks_n=blocks_n,
            wave=limits.warp,
            steps=steps,
            stages=2,
            splits=splits,
        )
        for block, waves_m, waves_n, blocks_m, blocks_n in TILES
        for steps in (2, 1, 4)
        for splits in SPLITS
    ]
    smallest = [s for s in candidates if s.splits == 1][-1:]
    return fastest([*candidates, *smallest], objections, _cost, p, limits)


def _cost(s: AmdSchedule, p: AmdProblem, limits: Limits) -> float:
    """The busiest unit's share of work-groups, each with its loads; and partial sums on their way.

    A step takes a latency at least: its tile is loaded while the one before is multiplied.
    """
    d = derive(s, p)
    groups = d.tiles * s.splits
    if s.splits > 1 and (d.tiles_per_split < LEAST_STEPS or groups > 2 * limits.units):
        return math.inf  # too little for each, or enough of them without
    share = max(1, -(-groups // limits.units))
    cycle = MACS[p.element_bytes] / LOOP_MACS
    step = max(share * d.tile_k * (d.tile_m * d.tile_n / 64 + d.tile_m + d.tile_n), LATENCY * cycle)
    joined = MEETING_CYCLES + (s.splits + 1) * d.tile_m * d.tile_n * 4 / SUM_BYTES_PER_CYCLE if s.splits > 1 else 0
    return float(d.tiles_per_split * step + joined * cycle)


KINDS = {1: "s8", 2: "f16", 4: "f32"}  # of matrix cores' operands, by their bytes, but for bf16
BARRIER_CYCLES = 40
TRIP_INSTRUCTIONS = 24  # of a wave and a tile: where the next one is, barriers


def work(s: AmdSchedule, p: AmdProblem) -> Work:
    """A work-group's share of the depth for its tile. The model's warps are of 32 lanes: a wave of 64 is two."""
    d = derive(s, p)
    chunks, sums = (d.tile_m + d.tile_n) * d.chunks, d.tile_m * d.tile_n * 4
    read = s.waves_m * s.waves_n * (s.blocks_m + s.blocks_n) * s.block * d.chunks  # of local memory, by all waves
    macs = d.tile_m * d.tile_n * d.tile_k
    trip = (2 * chunks + read) / 32 + macs / (32 * 32 * d.vector) + d.threads / 32 * TRIP_INSTRUCTIONS
    return Work(
        macs=d.tiles_per_split * macs,
        cache_bytes=d.tiles_per_split * chunks * CHUNK,
        steps=d.tiles_per_split,
        math="bf16" if p.bf16 else KINDS[p.element_bytes],
        out_bytes=sums,
        shared_traffic=d.tiles_per_split * (chunks + read) * CHUNK,
        shared_bytes=shared_bytes(s, p),
        instructions=d.tiles_per_split * trip + 4 * d.tile_m * d.tile_n / 32,
        chains=s.blocks_m * s.blocks_n,
        registers=registers(s, p),
        step_cycles=(3 - s.stages) * BARRIER_CYCLES,
        splits=s.splits,
        joined_bytes=sums,
    )


def focus(p: AmdProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    """Work-groups of two or four waves; splits that leave each some depth."""
    step = CHUNK // p.element_bytes * 4
    return {
        "wave": (limits.warp,),
        "block": (16, 32) if limits.warp == 64 else (16,),
        "waves_m": (1, 2),
        "waves_n": (2,),
        "steps": (2, 4),
        "stages": (2,),
        "splits": worthwhile_splits(SPLITS, p.k, step, p.batch * p.m * p.n, limits),
    }


FAMILY = Family(
    "contraction",
    Contraction,
    AmdSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "amd",
    accepts=accepts,
    work=work,
    packing=packing,
    registers=registers,
    focus=focus,
    emit=emit_amd,
    template="contraction/amd/kernel.j2",
)
