"""Which template family renders a kernel for CUDA and OpenCL. The families' spaces live beside their templates."""

from __future__ import annotations

from gpucomp.kernel import Contraction, Kernel, Loops, Rowwise, Window
from gpucomp.kernels_templates.contraction.space import FAMILY as CONTRACTION
from gpucomp.kernels_templates.loops.space import FAMILY as LOOPS
from gpucomp.kernels_templates.pool.space import FAMILY as POOL
from gpucomp.kernels_templates.rowwise.space import FAMILY as ROWWISE
from gpucomp.schedule.space import Family

FAMILIES = {family.name: family for family in (LOOPS, CONTRACTION, ROWWISE, POOL)}


def family_of(kernel: Kernel) -> Family:
    """The family that computes ``kernel``'s body."""
    match kernel.body:
        case Loops():
            return LOOPS
        case Contraction():
            return CONTRACTION
        case Rowwise():
            return ROWWISE
        case Window():
            return POOL
    raise AssertionError(f"no family for {type(kernel.body).__name__}")
