"""Parameters of the attention family's ``wgmma`` engine (sm_90a): FlashAttention-3, 64 rows of queries per warpgroup."""

from __future__ import annotations

from collections.abc import Iterator

from gpucomp.device.limits import Limits, register_share
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import tunable
from gpucomp.kernels_templates.attention.panels import (
    BARRIER_BYTES,
    ROW_BYTES,
    STEP,
    PanelSchedule,
    PanelSizes,
    not_by_panels,
    panel_objections,
    panel_sizes,
    values_pad,
)
from gpucomp.kernels_templates.attention.simt import space as simt
from gpucomp.kernels_templates.attention.wgmma.emit import emit_wgmma_attention
from gpucomp.schedule.space import WARP, Family, Work, can_run, remembered

ROWS = 64  # rows of a warpgroup
BESIDE = 1  # warps beside the consumers: the producer
ADDRESSES = 36  # registers besides scores, weights and sums: addresses, maxima, totals, counters
TRADES = {1: (56, 255), 2: (40, 232), 3: (32, 160)}  # by consumers: registers of the producer's and a consumer's thread
SCORE_INSTRUCTIONS = 5  # per score: maximum, difference, exp2, total, half a conversion and half a scaled sum
TILE_INSTRUCTIONS = 80  # per warp and tile: barriers, products, the maximum of four lanes
TILE_CYCLES = 120  # per tile: a product that is waited for
START_CYCLES = 1000  # barriers, and the queries and the first keys


class WgmmaAttentionSchedule(PanelSchedule):
    consumers: int = tunable((1, 2, 3), "warpgroups that multiply, each with 64 rows (queries)")
    tile_n: int = tunable((32, 64, 96, 128), "columns (keys and values) of one stage")
    stages: int = tunable((2, 3, 4), "tiles of keys and of values that are loaded ahead")
    overlap: int = tunable((0, 1), "1: products are in flight while the weights of the next columns are computed")


def accepts(kernel: Kernel[Attention], features: frozenset[str]) -> str:
    if not {"wgmma", "tma"} <= features:
        return "the device has no wgmma"
    return simt.accepts(kernel, features) or not_by_panels(kernel)


@remembered
def derive(s: WgmmaAttentionSchedule, p: simt.AttentionProblem) -> PanelSizes:
    trade = TRADES[s.consumers]
    return PanelSizes(**panel_sizes(s, p, rows=ROWS, beside=BESIDE, needed=registers(s, p), trade=trade, run=2))


def registers(s: WgmmaAttentionSchedule, p: simt.AttentionProblem) -> int:
    """An upper bound of the registers that ptxas uses: scores, weights in pairs, sums of values, and others."""
    return s.tile_n // 2 + s.tile_n // 4 + values_pad(p) // 2 + ADDRESSES


def shared_bytes(s: WgmmaAttentionSchedule, p: simt.AttentionProblem) -> int:
    """Queries, the stages of keys and values, and barriers."""
    d = derive(s, p)
    return d.q_bytes + s.stages * (d.k_bytes + d.v_bytes) + BARRIER_BYTES * (1 + 4 * s.stages)


def objections(s: WgmmaAttentionSchedule, p: simt.AttentionProblem, limits: Limits) -> Iterator[str]:
    needed, shared = registers(s, p), shared_bytes(s, p)
    yield from panel_objections(s, derive(s, p), limits, beside=BESIDE, needed=needed, shared=shared)


def geometry(s: WgmmaAttentionSchedule, p: simt.AttentionProblem) -> Geometry:
    d = derive(s, p)
    return Geometry((d.tiles, 1, 1), (d.threads, 1, 1), dynamic_shared_bytes=shared_bytes(s, p))


def default(p: simt.AttentionProblem, limits: Limits) -> WgmmaAttentionSchedule:
    """128 rows as in FlashAttention-3, or 64 if units would idle; the widest tiles of columns, up to 128; two stages."""
    least = WgmmaAttentionSchedule(consumers=1, tile_n=32, stages=2, overlap=0)
    tiles = [
        WgmmaAttentionSchedule(consumers=consumers, tile_n=tile_n, stages=2, overlap=1)
        for consumers in (2, 1)
        for tile_n in (128, 96, 64, 32)
    ]
    legal = [s for s in tiles if can_run(s, objections, p, limits)]
    if not legal:  # too many tiles for a launch, or too wide a head; another engine computes it
        return least
    filling = [s for s in legal if p.batch * -(-p.m // (ROWS * s.consumers)) >= 0.8 * limits.units]
    return filling[0] if filling else next(s for s in legal if s.consumers == legal[-1].consumers)


def work(s: WgmmaAttentionSchedule, p: simt.AttentionProblem) -> Work:
    """The work of a work-group. A consumer reads its queries and all keys and values from shared memory."""
    d = derive(s, p)
    steps = -(-p.n // s.tile_n)
    scores = d.tile_m * s.tile_n * steps
    heads = STEP * d.depth_steps + d.values_pad
    loaded = d.k_bytes + d.v_bytes
    return Work(
        macs=scores * heads,
        cache_bytes=2 * (d.tile_m * p.depth + steps * s.tile_n * (p.depth + p.values)),
        steps=steps,
        math="f16",
        out_bytes=2 * d.tile_m * p.values,
        ahead=s.stages,
        shared_traffic=steps * (loaded + s.consumers * (loaded + ROW_BYTES * ROWS * d.depth_panels)),
        shared_bytes=shared_bytes(s, p),
        registers=register_share(d.threads) if d.trades else registers(s, p),  # setmaxnreg redistributes them
        instructions=SCORE_INSTRUCTIONS * scores / WARP + 4 * s.consumers * steps * TILE_INSTRUCTIONS,
        chains=s.tile_n // 8,
        step_cycles=TILE_CYCLES / (1 + s.overlap),
        start_cycles=START_CYCLES,
        # the weights of one warpgroup wait for its products, unless those of the next columns are in flight meanwhile: then part
        # of it, by FlashAttention-3's 476 TFLOP/s for 4096 columns and heads of 64 on an H100, which is 144 us for 16 heads
        in_turn=0.75 / s.consumers if s.overlap else 1.0 / s.consumers,
    )


FAMILY = Family(
    "attention",
    Attention,
    WgmmaAttentionSchedule,
    simt.problem,
    objections,
    derive,
    geometry,
    default,
    "wgmma",
    accepts=accepts,
    work=work,
    registers=registers,
    emit=emit_wgmma_attention,
    template="attention/wgmma/kernel.j2",
    any_size=True,
)
