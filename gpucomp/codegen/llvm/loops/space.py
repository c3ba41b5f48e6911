"""Schedules of the CPU families without a cost model: loops, pools, rows, scans, scatters."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpucomp.codegen.llvm.core_space import VectorSchedule
from gpucomp.device.limits import Limits
from gpucomp.kernel import Kernel, Rowwise
from gpucomp.kernel.sizes import Sizes, tunable
from gpucomp.schedule.space import too_wide


class ScatterSchedule(VectorSchedule):
    tasks: int = tunable((1, 16, 64, 256), "tasks wanted for the threads, if there is enough work")


class LoopsSchedule(ScatterSchedule):
    unroll: int = tunable((0, 16, 64), "most points of a reduction that is unrolled")


class RowwiseSchedule(LoopsSchedule):
    copies: int = tunable((1, 2, 4), "accumulators of one statistic, which hide the latency of its operation")


class LoopsProblem(Sizes):
    points: int  # of the kernel's domain


class RowwiseProblem(Sizes):
    rows: int
    cols: int


def _lanes(limits: Limits) -> int:
    return limits.vector_bytes // 4


def problem(kernel: Kernel) -> LoopsProblem:
    return LoopsProblem(points=math.prod(a.extent for a in kernel.body.domain))


def objections(s: ScatterSchedule, p: Sizes, limits: Limits) -> Iterator[str]:
    yield from too_wide(s.lanes, 4, limits)


def default(p: LoopsProblem, limits: Limits) -> LoopsSchedule:
    return LoopsSchedule(lanes=_lanes(limits), tasks=64, unroll=16)


def scatter_default(p: LoopsProblem, limits: Limits) -> ScatterSchedule:
    return ScatterSchedule(lanes=_lanes(limits), tasks=64)


def rowwise_problem(kernel: Kernel[Rowwise]) -> RowwiseProblem:
    body = kernel.body
    return RowwiseProblem(rows=math.prod(a.extent for a in body.rows), cols=math.prod(a.extent for a in body.cols))


def rowwise_default(p: RowwiseProblem, limits: Limits) -> RowwiseSchedule:
    return RowwiseSchedule(lanes=_lanes(limits), tasks=64, unroll=16, copies=4)
