"""Parameters of the attention family's ``tcgen05`` engine (sm_100): FlashAttention-4, 128 rows of queries per warpgroup."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpucomp.device.limits import Limits, register_share
from gpucomp.device.lockstep import most
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import tunable
from gpucomp.kernels_templates.attention.panels import (
    BARRIER_BYTES,
    GROUP,
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
from gpucomp.kernels_templates.attention.tcgen05.emit import emit_tcgen05_attention
from gpucomp.schedule.space import WARP, Family, Work, can_run, remembered

BESIDE = 2  # warps beside the consumers: the producer, and one that asks for products
TENSOR_COLUMNS = 512  # of a multiprocessor
CHUNK = 32  # most sums of a row that are loaded at once
# registers besides three quarters of the scores: the other scores, a chunk of weights, addresses, maxima, totals
ADDRESSES = 112
# registers of a thread of the last warpgroup and of two consumers, where one gives and these take
GIVEN, TAKEN = 72, 216
POWER_CYCLES = 8.0  # of a partition, per score of a warp: it computes four exponentials in a cycle
SCORE_INSTRUCTIONS = 4.5  # per score: maximum, difference, exp2, total, half a conversion
POLYNOMIAL_INSTRUCTIONS = 9  # more of them where the power is a polynomial
TILE_INSTRUCTIONS = 90  # per warp and tile: loads, stores, barriers, the maximum of four, the vote
TILE_CYCLES = 200  # per tile: a product that is waited for, from the store of weights to the load of scores
START_CYCLES = 1800  # barriers, the allocation, and the queries and the first keys


class Tcgen05AttentionSchedule(PanelSchedule):
    consumers: int = tunable((1, 2), "warpgroups that compute weights, each for 128 rows (queries)")
    tile_n: int = tunable((32, 64, 96, 128), "columns (keys and values) of one stage")
    stages: int = tunable((2, 3, 4), "tiles of keys and of values that are loaded ahead")
    polynomials: int = tunable(
        (0, 1, 2), "of every eight weights, those that multiply-adds compute, not the unit of exponentials"
    )


class Tcgen05AttentionSizes(PanelSizes):
    score_columns: int  # columns of tensor memory from one consumer's scores to the next, and from its sums to the next
    sum_columns: int
    tensor_columns: int  # columns of tensor memory that the work-group allocates
    chunk: int  # sums of a row that are loaded at once


def accepts(kernel: Kernel[Attention], features: frozenset[str]) -> str:
    if not {"tcgen05", "tma"} <= features:
        return "the device has no tcgen05"
    return simt.accepts(kernel, features) or not_by_panels(kernel)


def up_to_power(columns: int) -> int:
    """The least power of two from 32 on that is not less than ``columns``."""
    return next(size for size in (32, 64, 128, 256, 512, 1024) if columns <= size)


@remembered
def derive(s: Tcgen05AttentionSchedule, p: simt.AttentionProblem) -> Tcgen05AttentionSizes:
    score_columns, sum_columns = up_to_power(s.tile_n), up_to_power(values_pad(p))
    return Tcgen05AttentionSizes(
        **panel_sizes(s, p, rows=GROUP, beside=BESIDE, needed=registers(s, p), trade=(GIVEN, TAKEN), run=8),
        score_columns=score_columns,
        sum_columns=sum_columns,
        tensor_columns=up_to_power(s.consumers * (score_columns + sum_columns)),
        chunk=math.gcd(values_pad(p), CHUNK),
    )


def registers(s: Tcgen05AttentionSchedule, p: simt.AttentionProblem) -> int:
    """Registers with which ptxas spills nothing: a row's scores, 16 pairs of weights, and others. It uses more if it may.

    Measured for 40 schedules of ten kernels: 118 and 155 are used for 32 and 64 columns, and 168 spill 24 bytes for 96.
    """
    return s.tile_n * 3 // 4 + ADDRESSES


def shared_bytes(s: Tcgen05AttentionSchedule, p: simt.AttentionProblem) -> int:
    """Queries, the stages of keys and values, barriers, and the address in tensor memory."""
    d = derive(s, p)
    return d.q_bytes + s.stages * (d.k_bytes + d.v_bytes) + BARRIER_BYTES * (2 + 4 * s.stages + 2 * s.consumers)


def objections(s: Tcgen05AttentionSchedule, p: simt.AttentionProblem, limits: Limits) -> Iterator[str]:
    d, needed, shared = derive(s, p), registers(s, p), shared_bytes(s, p)
    yield from panel_objections(s, d, limits, beside=BESIDE, needed=needed, shared=shared)
    if d.tensor_columns > TENSOR_COLUMNS:
        yield f"{d.tensor_columns} columns of tensor memory, there are {TENSOR_COLUMNS}"


def geometry(s: Tcgen05AttentionSchedule, p: simt.AttentionProblem) -> Geometry:
    d = derive(s, p)
    return Geometry((d.tiles, 1, 1), (d.threads, 1, 1), dynamic_shared_bytes=shared_bytes(s, p))


def default(p: simt.AttentionProblem, limits: Limits) -> Tcgen05AttentionSchedule:
    """256 rows as in FlashAttention-4, or 128 if units would idle; the widest tiles of columns, up to 128; two stages."""
    tiles = [
        Tcgen05AttentionSchedule(consumers=consumers, tile_n=tile_n, stages=2, polynomials=1)
        for consumers in (2, 1)
        for tile_n in (128, 96, 64, 32)
    ]
    legal = [s for s in tiles if can_run(s, objections, p, limits)]
    if not legal:  # too many tiles for a launch, or too wide a head; another engine computes it
        return tiles[-1]
    filling = [s for s in legal if p.batch * -(-p.m // (GROUP * s.consumers)) >= 0.8 * limits.units]
    return filling[0] if filling else next(s for s in legal if s.consumers == legal[-1].consumers)


def work(s: Tcgen05AttentionSchedule, p: simt.AttentionProblem) -> Work:
    """The work of a work-group. Each product reads its keys or values, and scores also their queries, from shared memory."""
    d = derive(s, p)
    steps = -(-p.n // s.tile_n)
    scores = d.tile_m * s.tile_n * steps
    heads = STEP * d.depth_steps + d.values_pad
    loaded = d.k_bytes + d.v_bytes
    powers = POWER_CYCLES * (1 - s.polynomials / 8)  # which hide what is issued, or are hidden
    issued = SCORE_INSTRUCTIONS + POLYNOMIAL_INSTRUCTIONS * s.polynomials / 8
    alone = d.trades or d.tensor_columns > TENSOR_COLUMNS // 2  # on its unit
    return Work(
        macs=scores * heads,
        cache_bytes=2 * (d.tile_m * p.depth + steps * s.tile_n * (p.depth + p.values)),
        steps=steps,
        math="f16",
        out_bytes=2 * d.tile_m * p.values,
        ahead=s.stages,
        shared_traffic=steps * (loaded + s.consumers * (loaded + ROW_BYTES * GROUP * d.depth_panels)),
        shared_bytes=shared_bytes(s, p),
        registers=register_share(d.threads) if alone else registers(s, p),
        instructions=most(powers, issued) * scores / WARP + 4 * s.consumers * steps * TILE_INSTRUCTIONS,
        chains=s.tile_n // 8,
        step_cycles=TILE_CYCLES / s.consumers,
        start_cycles=START_CYCLES,
        # products of one consumer are asked for when its weights are there; those of another are computed meanwhile
        in_turn=1.0 / s.consumers**2,
    )


FAMILY = Family(
    "attention",
    Attention,
    Tcgen05AttentionSchedule,
    simt.problem,
    objections,
    derive,
    geometry,
    default,
    "tcgen05",
    accepts=accepts,
    work=work,
    registers=registers,
    emit=emit_tcgen05_attention,
    template="attention/tcgen05/kernel.j2",
    any_size=True,
)
