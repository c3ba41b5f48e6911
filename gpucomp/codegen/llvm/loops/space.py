"""The schedules of the CPU families that have no model: loops, pools, rows, scans, scatters. No IR is written here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace

from gpucomp.codegen.llvm.core_space import LANES
from gpucomp.device.limits import Limits
from gpucomp.kernel import Kernel, Rowwise
from gpucomp.schedule.space import Param, Problem, Schedule, too_wide

TASKS = Param("tasks", (1, 16, 64, 256), "parts wanted for the threads to share, where the work is worth it")
UNROLL = Param("unroll", (0, 16, 64), "points of a reduction that are written out instead of looped")
COPIES = Param("copies", (1, 2, 4), "accumulators of one statistic, which hide the latency of its operation")
LOOPS_PARAMS = (LANES, TASKS, UNROLL)
SCATTER_PARAMS = (LANES, TASKS)
ROWWISE_PARAMS = (LANES, TASKS, UNROLL, COPIES)


def _lanes(limits: Limits) -> int:
    return limits.vector_bytes // 4


def problem(kernel: Kernel) -> Problem:
    axes = kernel.body.domain
    return {"points": math.prod(a.extent for a in axes)}


def objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    yield from too_wide(s.lanes, 4, limits)


def default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64, "unroll": 16}


def scatter_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64}


def rowwise_problem(kernel: Kernel) -> Problem:
    body = kernel.body_as(Rowwise)
    return {"rows": math.prod(a.extent for a in body.rows), "cols": math.prod(a.extent for a in body.cols)}


def rowwise_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64, "unroll": 16, "copies": 4}
