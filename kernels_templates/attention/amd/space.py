"""Parameters of the attention family's ``amd`` engine: FlashAttention-2 on AMD's matrix cores, in HIP."""

from __future__ import annotations

from collections.abc import Iterator

from gpucomp.device.limits import Limits
from gpucomp.ir.types import BF16, F16, F32
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import tunable
from gpucomp.kernels_templates.attention.amd.emit import QUAD, emit_amd_attention
from gpucomp.kernels_templates.attention.mma.space import refused_operand, with_widths
from gpucomp.kernels_templates.attention.simt import space as simt
from gpucomp.kernels_templates.contraction.amd.emit import INSTRUCTIONS, has_instruction
from gpucomp.kernels_templates.contraction.amd.space import CHUNK, ELEMENTS, FLAG_BYTES, KINDS
from gpucomp.schedule.space import MAX_GROUPS, Family, Work, can_run, cannot_meet, remembered

SCORE_INSTRUCTIONS = 8  # per score: scaling and difference, exp2, total, conversion for the second product
STAGE_CYCLES = 200  # per stage: two barriers, and the maxima that all scores of a row wait for
OTHERS = 56  # registers for addresses, and what the loops keep


class AmdAttentionSchedule(simt.AttentionSchedule):
    wave: int = tunable((32, 64), "work-items of a wave: what the device has, 32 with WMMA and 64 with MFMA")
    block: int = tunable((16, 32), "rows (queries) and columns of one matrix instruction's result")
    waves: int = tunable((1, 2, 4, 8), "waves of a work-group")
    blocks: int = tunable((1, 2), "instructions of a wave along the rows: they share what is read of keys and values")
    tile_n: int = tunable((16, 32, 64, 128), "columns (keys and values) of one stage in local memory")
    splits: int = tunable(simt.SPLITS, "work-groups that share the columns of a tile of rows")


class AmdAttentionProblem(simt.AttentionProblem):
    """Like that of ``simt``, but ``q_wide``, ``k_wide`` and ``v_wide`` are elements of one access along a head."""

    element_bytes: int  # bytes of an operand's element
    bf16: int  # 1: an element of two bytes is a bf16, not an f16


class AmdAttentionSizes(simt.AttentionSizes):
    tile_m: int
    groups: int  # of lanes that have parts of the same row
    steps: int  # of the first product's depth
    v_pitch: int  # elements from value to value, whose keys are inside
    registers: int  # of a lane


def accepts(kernel: Kernel[Attention], features: frozenset[str]) -> str:
    if "hip" not in features or not {"mfma", "wmma"} & features:
        return "not HIP on a device with matrix instructions"
    body = kernel.body
    if reason := simt.accepts(kernel, features):
        return reason
    types = {stored(e).dtype for e in (body.q, body.k, body.v)}
    if body.acc.dtype is not F32 or len(types) > 1 or not types <= {F16, BF16, F32}:
        return "queries, keys and values of f16, or all of bf16 or f32, expected"
    if not has_instruction(dtype := types.pop(), features):
        return f"WMMA takes no {dtype}"
    return refused_operand(kernel, "read")


def problem(kernel: Kernel[Attention]) -> AmdAttentionProblem:
    body = kernel.body
    dtype = stored(body.q).dtype
    return AmdAttentionProblem(**with_widths(kernel), element_bytes=dtype.nbytes, bf16=int(dtype is BF16))


def _registers(s: AmdAttentionSchedule, p: AmdAttentionProblem, depth_pad: int, values_pad: int, steps: int) -> int:
    """Sums of values, scores, queries, the next keys and values, operands of instructions, and others."""
    sums = s.blocks * (values_pad + s.tile_n) * s.block // s.wave
    beside = 1 if s.wave == 64 else 2  # RDNA3's lanes hold all of a row
    queries = s.blocks * steps * 4 * beside
    coming = (depth_pad + values_pad) * s.tile_n * p.element_bytes // (4 * s.wave * s.waves)
    return sums + queries + coming + 8 * beside * (1 + s.blocks) + OTHERS


@remembered
def derive(s: AmdAttentionSchedule, p: AmdAttentionProblem) -> AmdAttentionSizes:
    tile_m, tiles_n = s.block * s.blocks * s.waves, -(-p.n // s.tile_n)
    chunk, groups = CHUNK // p.element_bytes, s.wave // s.block
    depth_pad, values_pad = simt.up(p.depth, groups * chunk), simt.up(p.values, s.block)
    tiles_m, threads, steps = -(-p.m // tile_m), s.wave * s.waves, depth_pad // (groups * chunk)
    return AmdAttentionSizes(
        threads=threads,
        tile_m=tile_m,
        groups=groups,
        steps=steps,
        depth_pad=depth_pad,
        values_pad=values_pad,
        pitch=depth_pad + chunk,  # rows that lanes read together are in different banks
        v_pitch=s.tile_n + (QUAD if s.wave == 64 else chunk),
        registers=_registers(s, p, depth_pad, values_pad, steps),
        out_vector=min(QUAD, p.out_wide),
        part_words=s.blocks * (2 + values_pad * s.block // s.wave),
        tiles_m=max(1, tiles_m),
        tiles=tiles_m * p.batch,
        tiles_per_split=-(-tiles_n // s.splits),
    )


def shared_bytes(s: AmdAttentionSchedule, p: AmdAttentionProblem) -> int:
    """Bytes of one stage of keys and of values, and of the flag of the last to arrive."""
    d = derive(s, p)
    return p.element_bytes * (s.tile_n * d.pitch + d.values_pad * d.v_pitch) + FLAG_BYTES * (s.splits > 1)


def registers(s: AmdAttentionSchedule, p: AmdAttentionProblem) -> int:
    return derive(s, p).registers


def objections(s: AmdAttentionSchedule, p: AmdAttentionProblem, limits: Limits) -> Iterator[str]:
    if s.wave != limits.warp:
        yield f"waves of {s.wave}, the device has waves of {limits.warp}"
    if (ELEMENTS[p.element_bytes], s.wave, s.block) not in INSTRUCTIONS:
        yield f"no matrix instruction of waves of {s.wave} takes {p.element_bytes} bytes to {s.block} x {s.block}"
        return
    if s.tile_n % s.block:
        yield f"{s.tile_n} columns are no whole results of {s.block}"
        return
    d = derive(s, p)
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if (shared := shared_bytes(s, p)) > limits.shared_bytes:
        yield f"{shared} B of local memory, the device has {limits.shared_bytes} B"
    if d.registers > limits.registers:
        yield f"about {d.registers} registers per work-item, the device has {limits.registers}"
    if d.tiles > MAX_GROUPS:
        yield f"{d.tiles} work-groups, a launch has at most {MAX_GROUPS}"
    yield from simt.too_much_left(s, d)
    yield from cannot_meet(s.splits, limits)


def geometry(s: AmdAttentionSchedule, p: AmdAttentionProblem) -> Geometry:
    return simt.launch(s, derive(s, p))


def default(p: AmdAttentionProblem, limits: Limits) -> AmdAttentionSchedule:
    """Four waves and 64 columns, or fewer if units would idle or only one work-group fit into a unit; then splits."""
    tiles = [
        AmdAttentionSchedule(wave=limits.warp, block=block, waves=waves, blocks=1, tile_n=tile_n, splits=1)
        for block in ((32, 16) if limits.warp == 64 else (16,))
        for waves in (4, 2, 1)
        for tile_n in (64, 32, 16)
    ]
    legal = [s for s in tiles if can_run(s, objections, p, limits)]
    if not legal:  # too wide a head; another engine computes it
        return tiles[-1]
    # while one work-group waits at a barrier, a unit's other one multiplies
    legal = [s for s in legal if 2 * shared_bytes(s, p) <= limits.shared_bytes] or legal
    filling = [s for s in legal if derive(s, p).tiles >= 0.8 * limits.units]
    fewest = min(derive(s, p).tile_m for s in legal)
    best = filling[0] if filling else next(s for s in legal if derive(s, p).tile_m == fewest)
    return simt.with_splits(best, p, limits, derive(best, p).tiles, objections)


def work(s: AmdAttentionSchedule, p: AmdAttentionProblem) -> Work:
    """A work-group's rows and its share of the columns. The model's warps are of 32 lanes: a wave of 64 is two."""
    d = derive(s, p)
    stages, heads = d.tiles_per_split, d.depth_pad + d.values_pad
    scores = d.tile_m * s.tile_n * stages
    tile_bytes = p.element_bytes * s.tile_n * heads
    products = scores * heads * p.element_bytes / (32 * 32 * CHUNK)
    return Work(
        macs=scores * heads,
        cache_bytes=p.element_bytes * d.tile_m * p.depth + stages * p.element_bytes * s.tile_n * (p.depth + p.values),
        steps=stages,
        math="bf16" if p.bf16 else KINDS[p.element_bytes],
        out_bytes=p.element_bytes * d.tile_m * p.values,
        shared_traffic=stages * tile_bytes * (1 + s.waves),
        shared_bytes=shared_bytes(s, p),
        instructions=products + SCORE_INSTRUCTIONS * scores / 32 + stages * tile_bytes * (1 + s.waves) / (32 * CHUNK),
        chains=s.blocks * (s.tile_n // s.block),
        registers=registers(s, p),
        step_cycles=STAGE_CYCLES,
        by_warp=True,
        splits=s.splits,
        joined_bytes=4 * d.part_words * d.threads,
    )


FAMILY = Family(
    "attention",
    Attention,
    AmdAttentionSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "amd",
    accepts=accepts,
    work=work,
    registers=registers,
    emit=emit_amd_attention,
    template="attention/amd/kernel.j2",
    any_size=True,
)
