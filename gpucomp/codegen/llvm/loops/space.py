"""Schedules of the CPU families without a cost model: loops, pools, rows, scans, scatters."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpucomp.codegen.llvm.core_space import VectorSchedule, is_costly
from gpucomp.device.limits import Limits
from gpucomp.kernel import Kernel, Rowwise
from gpucomp.kernel.sizes import Sizes, tunable


class ScatterSchedule(VectorSchedule):
    tasks: int = tunable((1, 16, 64, 256), "tasks wanted for the threads, if there is enough work")


class LoopsSchedule(ScatterSchedule):
    unroll: int = tunable((0, 16, 64), "most points of a reduction that is unrolled")


class RowwiseSchedule(LoopsSchedule):
    copies: int = tunable((1, 2, 4), "accumulators of one statistic, which hide the latency of its operation")


class LoopsProblem(Sizes):
    points: int  # of the kernel's domain
    costly: int  # 1: a function of many instructions is computed for each point


class RowwiseProblem(Sizes):
    rows: int
    cols: int
    costly: int  # as of ``LoopsProblem``


ABREAST = 2  # registers that a value may have


def _lanes(limits: Limits, *, costly: int = 0) -> int:
    """The elements of a register; of two for ``costly`` functions.

    Their instructions wait for each other, and those of two vectors fill the gaps: sigmoids take 0.8 of the time so on a Zen 1.
    AVX-512 has tables for the lanes of one register instead.
    """
    lanes = limits.vector_bytes // 4
    return lanes * ABREAST if costly and lanes * ABREAST in LoopsSchedule.choices("lanes") else lanes


def problem(kernel: Kernel) -> LoopsProblem:
    points = math.prod(a.extent for a in kernel.body.domain)
    return LoopsProblem(points=points, costly=int(is_costly(store.value for store in kernel.stores)))


def objections(s: ScatterSchedule, p: Sizes, limits: Limits) -> Iterator[str]:
    if s.lanes * 4 > ABREAST * limits.vector_bytes:
        yield f"{s.lanes} lanes of 4 bytes, {ABREAST} vectors of the processor have {ABREAST * limits.vector_bytes}"


def default(p: LoopsProblem, limits: Limits) -> LoopsSchedule:
    return LoopsSchedule(lanes=_lanes(limits, costly=p.costly), tasks=64, unroll=16)


def scatter_default(p: LoopsProblem, limits: Limits) -> ScatterSchedule:
    return ScatterSchedule(lanes=_lanes(limits), tasks=64)


def rowwise_problem(kernel: Kernel[Rowwise]) -> RowwiseProblem:
    body = kernel.body
    rows, cols = (math.prod(a.extent for a in axes) for axes in (body.rows, body.cols))
    values = [*(one.value for one in body.statistics), *(one.value for one in kernel.stores)]
    return RowwiseProblem(rows=rows, cols=cols, costly=int(is_costly(values)))


def rowwise_default(p: RowwiseProblem, limits: Limits) -> RowwiseSchedule:
    return RowwiseSchedule(lanes=_lanes(limits, costly=p.costly), tasks=64, unroll=16, copies=4)
