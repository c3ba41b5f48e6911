"""Schedules of the CPU engines with windows that slide along rows of an image, channels first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from gpucomp.codegen.llvm.core_space import SPILL, VectorSchedule
from gpucomp.device.limits import Limits
from gpucomp.ir.size import hint
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.planes import planes_of
from gpucomp.kernel.sizes import Sizes, tunable
from gpucomp.refusal import required
from gpucomp.schedule.space import too_wide

MOST_WRITTEN = 512  # multiply-adds of a tile, of which more only take longer to compile
OF_TILE = 4.0  # cycles of a tile for its addresses and its loop
LATENCY = 4.0  # cycles of a multiply-add; some of it overlaps with other tiles


class PlanesSchedule(VectorSchedule):
    rows: int = tunable((1, 2, 3, 4), "rows of the result of a tile, which share the loads of a product")
    vectors: int = tunable((1, 2, 3, 4), "vectors of a tile along a row of the result")
    tasks: int = tunable((1, 16, 64, 256), "tasks wanted for the threads, if there is enough work")


class PlanesProblem(Sizes):
    lead: int  # points of the axes before the image's rows
    out_y: int
    out_x: int
    taps_y: int
    taps_x: int
    stride_y: int
    dilation_y: int
    stride_x: int
    weighted: int  # 1: taps have weights
    nbytes: int  # of an element


def problem(kernel: Kernel) -> PlanesProblem:
    p = required(planes_of(kernel))
    return PlanesProblem(
        lead=math.prod(a.extent for a in p.lead),
        out_y=p.y.outputs,
        out_x=p.x.outputs,
        taps_y=p.y.taps,
        taps_x=p.x.taps,
        stride_y=p.y.stride,
        dilation_y=p.y.dilation,
        stride_x=p.x.stride,
        weighted=int(p.weight is not None),
        nbytes=p.image.dtype.nbytes,
    )


def objections(s: PlanesSchedule, p: PlanesProblem, limits: Limits) -> Iterator[str]:
    yield from too_wide(s.lanes, min(4, p.nbytes), limits)
    if not s.lanes:
        yield "lanes run along rows, and there are none"


def default(p: PlanesProblem, limits: Limits) -> PlanesSchedule:
    """The tile that costs least; of a pool, the vectors of a row that there are."""
    lanes = min(16, limits.vector_bytes // min(4, p.nbytes))
    out_x, out_y = int(hint(p.out_x)), int(hint(p.out_y))
    while lanes > 4 and out_x <= lanes // 2:
        lanes //= 2
    vectors = -(-out_x // lanes)
    least = PlanesSchedule(lanes=lanes, rows=1, vectors=1, tasks=64)
    if not p.weighted:
        return least.replace(vectors=min(4, vectors))
    taps = p.taps_y * p.taps_x

    def tile(rows: int, count: int) -> float:
        """Cycles of a tile: of multiply-adds, of their latency or of loads, whichever take longest, and of what does not overlap.

        Measured with AVX2: weights that no register holds cost what other loads do.
        """
        places = {row * p.stride_y + tap * p.dilation_y for row in range(rows) for tap in range(p.taps_y)}
        sums = rows * count
        loads = len(places) * p.taps_x * count + (taps if sums + taps + 1 > limits.registers else 0)
        spilled = max(sums + p.taps_x + 3 - limits.registers, 0) * taps * SPILL  # a row of weights stays too
        work = max(sums * taps * limits.core.multiply, loads * limits.core.load, taps * LATENCY)
        return work + 0.1 * loads + spilled + OF_TILE + 2.0 * sums

    def cost(s: PlanesSchedule) -> float:
        """Cycles of a plane."""

        def along(rows: int) -> float:
            whole, left = divmod(vectors, s.vectors)
            return whole * tile(rows, s.vectors) + (tile(rows, left) if left else 0.0)

        return out_y // s.rows * along(s.rows) + out_y % s.rows * along(1)

    pairs = itertools.product(PlanesSchedule.choices("rows"), PlanesSchedule.choices("vectors"))
    candidates = [least.replace(rows=rows, vectors=count) for rows, count in pairs]
    small = [s for s in candidates if s == least or s.rows * s.vectors * taps <= MOST_WRITTEN]
    return min((s for s in small if s == least or (s.rows <= out_y and s.vectors <= vectors)), key=cost)
