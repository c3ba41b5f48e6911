"""The schedules of the CPU families: parameters, what cannot run, and defaults. No IR is written here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from gpucomp.kernel import Contraction, Kernel, Loops, Rowwise
from gpucomp.schedule.space import Family, Geometry, Limits, Param, Problem, Schedule

LANES = Param("lanes", (0, 4, 8, 16), "elements of a vector; 0 is scalar code")
TASKS = Param("tasks", (1, 16, 64, 256), "parts wanted for the threads to share, where the work is worth it")
UNROLL = Param("unroll", (0, 16, 64), "points of a reduction that are written out instead of looped")
COPIES = Param("copies", (1, 2, 4), "accumulators of one statistic, which hide the latency of its operation")


def _lanes(limits: Limits) -> int:
    return limits.vector_bytes // 4


def _too_wide(s: SimpleNamespace, limits: Limits) -> Iterator[str]:
    if s.lanes * 4 > limits.vector_bytes:
        yield f"{s.lanes} lanes of 4 bytes, the processor has {limits.vector_bytes}-byte vectors"


def _nothing(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, int]:
    return {}


def _geometry(s: SimpleNamespace, p: SimpleNamespace) -> Geometry:
    """The emitter counts the tasks: their number depends on the axes that could be merged."""
    return Geometry((s.tasks, 1, 1))


def _loops_problem(kernel: Kernel) -> Problem:
    axes = kernel.body.domain
    return {"points": math.prod(a.extent for a in axes)}


def _plain_objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    yield from _too_wide(s, limits)


def _loops_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64, "unroll": 16}


def _rowwise_problem(kernel: Kernel) -> Problem:
    body = kernel.body
    assert isinstance(body, Rowwise)
    return {"rows": math.prod(a.extent for a in body.rows), "cols": math.prod(a.extent for a in body.cols)}


def _rowwise_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64, "unroll": 16, "copies": 4}


LOOPS = Family("loops", "codegen/llvm/loops", (LANES, TASKS, UNROLL), _loops_problem, _plain_objections, _nothing,
               _geometry, _loops_default)  # fmt: skip
WINDOW = Family("pool", "codegen/llvm/loops", (LANES, TASKS, UNROLL), _loops_problem, _plain_objections, _nothing,
                _geometry, _loops_default)  # fmt: skip
ROWWISE = Family("rowwise", "codegen/llvm/rowwise", (LANES, TASKS, UNROLL, COPIES), _rowwise_problem,
                 _plain_objections, _nothing, _geometry, _rowwise_default)  # fmt: skip


def family_of(kernel: Kernel) -> Family:
    """Which space answers for a kernel on the CPU."""
    match kernel.body:
        case Loops():
            return LOOPS
        case Rowwise():
            return ROWWISE
        case Contraction():
            return LOOPS
    return WINDOW
