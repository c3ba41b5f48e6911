"""The back end of a kernel language: its engines, and the function that renders a kernel."""

from __future__ import annotations

from collections.abc import Callable

from gpucomp.device.target import Target
from gpucomp.kernel import Kernel
from gpucomp.kernel.source import KernelSource
from gpucomp.schedule.space import Family, Schedule

EnginesOf = Callable[[Kernel, frozenset[str]], tuple[Family, ...]]
Render = Callable[[Kernel, Schedule, Target, str, Family | None], KernelSource]


def back_end(language: str) -> tuple[EnginesOf, Render]:
    """The engines of a language, and the function that renders what ``lowering.SCHEDULED_PASSES`` gave for one of them.

    Modules are imported on first use.
    """
    if language == "llvm":
        from gpucomp.codegen.llvm import emit
        from gpucomp.codegen.llvm.engines import engines_of as cpu_engines_of

        return cpu_engines_of, emit
    from gpucomp.kernels_templates.engines import engines_of
    from gpucomp.kernels_templates.render import render_scheduled

    return engines_of, render_scheduled


def engines_by_body(language: str) -> dict[type, tuple[Family, ...]]:
    """All engines of a language by kind of body, including those that some device or kernel rules out.

    Plug-ins add theirs to it.
    """
    if language == "llvm":
        from gpucomp.codegen.llvm.engines import ENGINES as OF_THE_CPU

        return OF_THE_CPU
    from gpucomp.kernels_templates.engines import ENGINES

    return ENGINES
