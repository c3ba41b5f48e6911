"""Kernels to source: jinja2 templates for CUDA and OpenCL, LLVM IR for the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpucomp.device.target import Target
from gpucomp.ir.graph import Graph
from gpucomp.kernel import Kernel
from gpucomp.kernel.source import KernelSource
from gpucomp.kernel.step import Step
from gpucomp.schedule.space import Family, Schedule

EnginesOf = Callable[[Kernel, frozenset[str]], tuple[Family, ...]]
Render = Callable[[Kernel, Schedule, Target, str, Family | None], KernelSource]


def back_end(language: str) -> tuple[EnginesOf, Render]:
    """The engines of a language and the function that renders them. Imported when first asked for."""
    if language == "llvm":
        from gpucomp.codegen.llvm import emit
        from gpucomp.codegen.llvm.engines import engines_of as cpu_engines_of

        return cpu_engines_of, emit
    from gpucomp.codegen.c.render import render
    from gpucomp.kernels_templates.engines import engines_of

    return engines_of, render


def chained(steps: Sequence[Step], graph: Graph, target: Target) -> list[Step]:
    """``steps`` of a CPU with those as one kernel that it computes some rows at a time, one behind the other."""
    from gpucomp.codegen.llvm.chain.fuse import chained as chained_on_cpu

    return chained_on_cpu(steps, graph.outputs, target)
