"""The schedules of the CPU families: parameters, what cannot run, and defaults. No IR is written here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from gpucomp.codegen.llvm import contraction_space
from gpucomp.codegen.llvm.contraction_space import LANES, too_wide
from gpucomp.kernel import Attention, Contraction, Kernel, Loops, Rowwise, Window
from gpucomp.schedule.space import Family, Geometry, Limits, Param, Problem, Schedule

TASKS = Param("tasks", (1, 16, 64, 256), "parts wanted for the threads to share, where the work is worth it")
UNROLL = Param("unroll", (0, 16, 64), "points of a reduction that are written out instead of looped")
COPIES = Param("copies", (1, 2, 4), "accumulators of one statistic, which hide the latency of its operation")


def _lanes(limits: Limits) -> int:
    return limits.vector_bytes // 4


def _nothing(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, int]:
    return {}


def _geometry(s: SimpleNamespace, p: SimpleNamespace) -> Geometry:
    """The emitter counts the tasks: their number depends on the axes that could be merged."""
    return Geometry((s.tasks, 1, 1))


def _loops_problem(kernel: Kernel) -> Problem:
    axes = kernel.body.domain
    return {"points": math.prod(a.extent for a in axes)}


def _plain_objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    yield from too_wide(s, limits)


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


# engines of each kind of body, the one to prefer first; the last accepts every kernel of its kind
ENGINES: dict[type, tuple[Family, ...]] = {
    Loops: (LOOPS,),
    Contraction: (contraction_space.FAMILY,),
    Rowwise: (ROWWISE,),
    Window: (WINDOW,),
    Attention: (WINDOW,),
}


def engines_of(kernel: Kernel, features: frozenset[str] = frozenset()) -> tuple[Family, ...]:
    """The engines that can compute ``kernel`` on a processor with ``features``, the one to prefer first."""
    return tuple(family for family in ENGINES[type(kernel.body)] if not family.accepts(kernel, features))


def family_of(kernel: Kernel) -> Family:
    """The engine that computes ``kernel`` on every processor."""
    return ENGINES[type(kernel.body)][-1]
