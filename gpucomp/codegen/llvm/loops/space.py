"""The schedules of the CPU families that have no model: loops, pools, rows, scans, scatters. No IR is written here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace

from gpucomp.codegen.llvm.core_space import LANES, geometry, nothing
from gpucomp.device.limits import Limits
from gpucomp.kernel import Kernel, Rowwise
from gpucomp.schedule.space import Family, Param, Problem, Schedule, too_wide

TASKS = Param("tasks", (1, 16, 64, 256), "parts wanted for the threads to share, where the work is worth it")
UNROLL = Param("unroll", (0, 16, 64), "points of a reduction that are written out instead of looped")
COPIES = Param("copies", (1, 2, 4), "accumulators of one statistic, which hide the latency of its operation")


def _lanes(limits: Limits) -> int:
    return limits.vector_bytes // 4


def _loops_problem(kernel: Kernel) -> Problem:
    axes = kernel.body.domain
    return {"points": math.prod(a.extent for a in axes)}


def _plain_objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    yield from too_wide(s.lanes, 4, limits)


def _loops_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64, "unroll": 16}


def _scatter_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64}


def _rowwise_problem(kernel: Kernel) -> Problem:
    body = kernel.body_as(Rowwise)
    return {"rows": math.prod(a.extent for a in body.rows), "cols": math.prod(a.extent for a in body.cols)}


def _rowwise_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64, "unroll": 16, "copies": 4}


LOOPS = Family("loops", "codegen/llvm/loops/loops", (LANES, TASKS, UNROLL), _loops_problem, _plain_objections, nothing,
               geometry, _loops_default)  # fmt: skip
WINDOW = Family("pool", "codegen/llvm/loops/loops", (LANES, TASKS, UNROLL), _loops_problem, _plain_objections, nothing,
                geometry, _loops_default)  # fmt: skip
SCAN = Family("scan", "codegen/llvm/loops/scan", (LANES, TASKS, UNROLL), _loops_problem, _plain_objections, nothing,
              geometry, _loops_default)  # fmt: skip
SCATTER = Family("scatter", "codegen/llvm/loops/scatter", (LANES, TASKS), _loops_problem, _plain_objections, nothing,
                 geometry, _scatter_default)  # fmt: skip
ROWWISE = Family("rowwise", "codegen/llvm/loops/rowwise", (LANES, TASKS, UNROLL, COPIES), _rowwise_problem,
                 _plain_objections, nothing, geometry, _rowwise_default)  # fmt: skip
