"""Parameters of the attention family's ``mma`` engine: FlashAttention-2 with mma.sync, 16 or 32 rows of queries per warp."""

from __future__ import annotations

from collections.abc import Iterator

from gpucomp.device.limits import PARTS, Limits
from gpucomp.expr.core import Expr, Var
from gpucomp.ir.types import BF16, F16, F32
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.copyable import copyable, stored
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import tunable
from gpucomp.kernels_templates.attention.mma.emit import BLOCK, emit_mma_attention
from gpucomp.kernels_templates.attention.simt import space as simt
from gpucomp.schedule.space import MAX_GROUPS, WARP, Family, Work, can_run, groups_for_registers, remembered

CHUNK = 16  # bytes after a row in shared memory, so that eight rows that ldmatrix reads are in different banks
KEPT_BYTES = 256  # longest row of queries that is kept in registers
ADDRESSES = 48  # most registers for addresses and other values that the loops keep
SCORE_INSTRUCTIONS = 5  # per score: maximum, difference, exp2, total, half a conversion for the second product
ROW_INSTRUCTIONS = 24  # per 16 rows and stage: the maxima of four lanes, and by what the sums so far are scaled down
TRIP_INSTRUCTIONS = 40  # per warp and stage: waits, barriers, copies, addresses
# multiply-adds of a warp's stage beside which it hides nothing else that it does. By the issue model of bench/machine_code:
# 16 rows and 64 columns of heads of 64 keep matrix units busy for a third of the time, twice as many for half of it
ALONE_MACS = 16 * 64 * 128
STAGE_CYCLES = 150  # per stage: barriers, and the maxima that all scores of a row wait for
FLAG_BYTES = 128  # the flag of the last to arrive, padded to the alignment of dynamic shared memory


class MmaAttentionSchedule(simt.AttentionSchedule):
    warps: int = tunable((1, 2, 4, 8), "warps of a work-group, each with the same columns")
    warp_m: int = tunable((16, 32), "rows (queries) of a warp")
    tile_n: int = tunable((16, 32, 64, 128), "columns (keys and values) of one shared-memory stage")
    splits: int = tunable(simt.SPLITS, "work-groups that share the columns of a tile of rows")


class MmaAttentionProblem(simt.AttentionProblem):
    """Like that of ``simt``, but ``q_wide``, ``k_wide`` and ``v_wide`` are elements per asynchronous copy."""

    element_bytes: int  # bytes of an operand's element
    products: int  # products of matrix units per product: 3 for 3xtf32


class MmaAttentionSizes(simt.AttentionSizes):
    tile_m: int
    v_pitch: int  # elements from row to row of values
    keep_q: int  # 1: queries are kept in registers
    groups_per_unit: int = 0  # work-groups that should be resident on a multiprocessor


def accepts(kernel: Kernel[Attention], features: frozenset[str]) -> str:
    if "mma_sm80" not in features:
        return "the device has no mma.sync of sm_80"
    body = kernel.body
    if reason := simt.accepts(kernel, features):
        return reason
    types = {stored(e).dtype for e in (body.q, body.k, body.v)}
    if body.acc.dtype is not F32 or len(types) > 1 or not types <= {F16, BF16, F32}:
        return "queries, keys and values of f16, or all of bf16 or f32, expected"
    if types == {F32} and body.math == "strict":
        return "f32 is multiplied exactly unless the kernel allows tf32 or 3xtf32"
    return refused_operand(kernel, "copied")


def refused_operand(kernel: Kernel[Attention], moved: str) -> str:
    """Why an operand cannot be ``moved`` along its heads; empty if all can."""
    for name, value, rows, inner in operands(kernel.body):
        found = copyable(kernel, value, rows, inner)
        if not found.width or not found.by_depth:
            return f"{name} cannot be {moved} along its heads: {found.reason or 'its rows are adjacent in memory'}"
    return ""


def with_widths(kernel: Kernel[Attention]) -> dict[str, int]:
    """The problem of ``simt``, with elements of a copy along the heads as ``q_wide``, ``k_wide`` and ``v_wide``."""
    widths = {
        f"{name}_wide": copyable(kernel, value, rows, inner).width for name, value, rows, inner in operands(kernel.body)
    }
    return dict(simt.problem(kernel).replace(**widths).numbers)


def operands(body: Attention) -> tuple[tuple[str, Expr, tuple[Var, ...], tuple[Var, ...]], ...]:
    return (
        ("q", body.q, body.rows, body.depth),
        ("k", body.k, body.cols, body.depth),
        ("v", body.v, body.cols, body.values),
    )


def problem(kernel: Kernel[Attention]) -> MmaAttentionProblem:
    body = kernel.body
    nbytes = stored(body.q).dtype.nbytes
    return MmaAttentionProblem(
        **with_widths(kernel),
        element_bytes=nbytes,
        products=3 if body.math == "3xtf32" and nbytes == 4 else 1,
    )


@remembered
def derive(s: MmaAttentionSchedule, p: MmaAttentionProblem) -> MmaAttentionSizes:
    tile_m, tiles_n = s.warp_m * s.warps, -(-p.n // s.tile_n)
    chunk = CHUNK // p.element_bytes
    depth_pad, values_pad = simt.up(p.depth, 2 * chunk), simt.up(p.values, BLOCK)
    tiles_m = -(-p.m // tile_m)
    return MmaAttentionSizes(
        threads=32 * s.warps,
        tile_m=tile_m,
        depth_pad=depth_pad,
        values_pad=values_pad,
        pitch=depth_pad + chunk,
        v_pitch=values_pad + chunk,  # for f32 too: the rows that a warp reads are two apart, which is 8 banks
        # ptxas would keep both parts of split queries
        keep_q=int(s.warp_m // BLOCK * depth_pad * p.element_bytes <= KEPT_BYTES and p.products == 1),
        out_vector=min(2, p.out_wide),
        part_words=s.warp_m // BLOCK * (4 + values_pad // 2),
        tiles_m=max(1, tiles_m),
        tiles=tiles_m * p.batch,
        tiles_per_split=-(-tiles_n // s.splits),
    )


def template_sizes(s: MmaAttentionSchedule, p: MmaAttentionProblem) -> MmaAttentionSizes:
    """The sizes of ``derive``, and ``groups_per_unit``.

    Without the latter ptxas unrolls the sums of splits into registers that the loop over columns does not need, and a unit
    holds fewer work-groups.
    """
    d = derive(s, p)
    return d.replace(groups_per_unit=groups_for_registers(registers(s, p), d.threads))


def dynamic_shared_bytes(s: MmaAttentionSchedule, p: MmaAttentionProblem) -> int:
    """Bytes of the rows of queries, and of one stage of keys and of values."""
    d = derive(s, p)
    return p.element_bytes * ((d.tile_m + s.tile_n) * d.pitch + s.tile_n * d.v_pitch)


def shared_bytes(s: MmaAttentionSchedule, p: MmaAttentionProblem) -> int:
    return dynamic_shared_bytes(s, p) + (FLAG_BYTES if s.splits > 1 else 0)


def registers(s: MmaAttentionSchedule, p: MmaAttentionProblem) -> int:
    """Registers for a warp's sums of values and scores, for queries if they are kept, for fragments, and others."""
    d = derive(s, p)
    if p.products == 3:  # measured: ptxas interleaves several sums of split products, for scores more than for values
        return d.values_pad * 9 // 8 + s.tile_n * 5 // 2 + 68
    queries = d.depth_pad * p.element_bytes // 8 if d.keep_q else 8
    rows = d.values_pad // 2 + s.tile_n // 2 + queries + 4  # the largest scores and the totals besides
    # of two blocks of rows ptxas reads more fragments ahead, and computes weights of one while it multiplies the other's
    return s.warp_m // BLOCK * rows + 8 + (36 if s.warp_m == BLOCK else 64)


def registers_taken(s: MmaAttentionSchedule, p: MmaAttentionProblem) -> int:
    """An upper bound of the registers that ptxas uses if they are plenty."""
    return registers(s, p) + ADDRESSES


def objections(s: MmaAttentionSchedule, p: MmaAttentionProblem, limits: Limits) -> Iterator[str]:
    d = derive(s, p)
    if s.warp_m > BLOCK and p.element_bytes == 4:
        yield f"warps of {BLOCK} rows multiply f32"
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if (shared := shared_bytes(s, p)) > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    if (used := registers(s, p)) > limits.registers:
        yield f"about {used} registers per work-item, the device has {limits.registers}"
    if d.tiles > MAX_GROUPS:
        yield f"{d.tiles} work-groups, a launch has at most {MAX_GROUPS}"
    yield from simt.too_much_left(s, d)


def geometry(s: MmaAttentionSchedule, p: MmaAttentionProblem) -> Geometry:
    return simt.launch(s, derive(s, p), dynamic_shared_bytes(s, p))


def default(p: MmaAttentionProblem, limits: Limits) -> MmaAttentionSchedule:
    """128 rows as in FlashAttention-2, or fewer if units would idle; 64 columns, fewer for wide heads; then splits."""
    tiles = [
        MmaAttentionSchedule(warps=warps, warp_m=warp_m, tile_n=tile_n, splits=1)
        for warps, warp_m in ((4, 2 * BLOCK), (4, BLOCK), (2, BLOCK), (1, BLOCK))
        for tile_n in (64, 32, 16)
    ]
    legal = [s for s in tiles if can_run(s, objections, p, limits)]
    if not legal:  # too wide a head; another engine computes it
        return tiles[-1]
    filling = [s for s in legal if derive(s, p).tiles >= 0.8 * limits.units]
    best = filling[0] if filling else next(s for s in legal if s.warps == legal[-1].warps and s.warp_m == BLOCK)
    return simt.with_splits(best, p, limits, derive(best, p).tiles, objections)


def work(s: MmaAttentionSchedule, p: MmaAttentionProblem) -> Work:
    d = derive(s, p)
    stages, heads = d.tiles_per_split, d.depth_pad + d.values_pad
    scores = d.tile_m * s.tile_n * stages
    products = scores * heads * p.products * p.element_bytes / (BLOCK * 8 * 32)  # 32 bytes of depth each
    per_row = ROW_INSTRUCTIONS * stages * d.tile_m / BLOCK + stages * d.tile_m * d.values_pad / WARP
    return Work(
        macs=scores * heads,
        cache_bytes=p.element_bytes * (d.tile_m * p.depth + stages * s.tile_n * (p.depth + p.values)),
        steps=stages,
        math="f16" if p.element_bytes == 2 else "3xtf32" if p.products == 3 else "tf32",
        out_bytes=p.element_bytes * d.tile_m * p.values,
        shared_traffic=p.element_bytes * stages * s.tile_n * heads * (1 + s.warps),
        shared_bytes=shared_bytes(s, p),
        # two products for each 16 rows and fragment that is read
        instructions=(1 + BLOCK / (2 * s.warp_m)) * products
        + SCORE_INSTRUCTIONS * scores / WARP
        + per_row
        + TRIP_INSTRUCTIONS * s.warps * stages,
        chains=s.tile_n // 8,
        step_cycles=STAGE_CYCLES,
        # a warp's exponentials wait for its products, and the next products for them; a long stage hides more of that
        in_turn=PARTS / s.warps * ALONE_MACS / (s.warp_m * s.tile_n * heads),
        by_warp=True,
        splits=s.splits,
        joined_bytes=4 * d.part_words * d.threads,
    )


FAMILY = Family(
    "attention",
    Attention,
    MmaAttentionSchedule,
    problem,
    objections,
    template_sizes,
    geometry,
    default,
    "mma",
    accepts=accepts,
    work=work,
    registers=registers,
    emit=emit_mma_attention,
    template="attention/mma/kernel.j2",
    any_size=True,
)
