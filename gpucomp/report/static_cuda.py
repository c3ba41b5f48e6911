"""The static report for CUDA: what ptxas and the analytic model say of a model's kernels. Nothing runs; no GPU is needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from gpucomp.compiler import Lowered
from gpucomp.device.target import Target
from gpucomp.errors import UsageError
from gpucomp.kernel.source import KernelSource
from gpucomp.report.cost import Cost, Spent, by_formula, compared, cost_of, launched
from gpucomp.stages import Progress
from gpucomp.targets import cuda, sass


def costs(
    lowered: Lowered,
    target: Target,
    tell: Progress = lambda stage, done, total: None,
    *,
    compare: bool = False,
    compiled: bool = True,
) -> list[Cost]:
    """The cost of every launch of a model for a CUDA architecture, in order; with ``compare`` also the other engines' costs.

    Unless ``compiled``, nothing is compiled: registers and shared memory are those of the engines' formulas.

    Raises ``UsageError`` for a target that is not CUDA.
    """
    if target.kind != "cuda" or target.device is None:
        raise UsageError(
            f"target {target.name}: this report is for GPU targets: cuda:sm_XX, hip:gfx90a, opencl:amd, opencl:gfx90a or "
            "opencl:mali expected. The GPU need not be in this machine. For every target, `gpucomp inspect MODEL --node '*'` "
            "prints who chose each schedule, and what its engines are expected to take",
            code="GPC2012",
        )
    steps = launched(lowered)
    if not compiled:
        expected = [cost_of(step, item, target.device, by_formula(step, item)) for step, item in steps]
        return compared(expected, lowered, target) if compare else expected
    sources = {item.source.name: item.source for _, item in steps}
    built: dict[str, Spent] = {}
    with ThreadPoolExecutor(max_workers=max(1, len(os.sched_getaffinity(0)))) as pool:
        for number, (name, found) in enumerate(
            zip(sources, pool.map(lambda source: _built(source, target), sources.values()), strict=True)
        ):
            tell("compile", number, len(sources))
            built[name] = found
    all_of_them = [cost_of(step, item, target.device, built[item.source.name]) for step, item in steps]
    return compared(all_of_them, lowered, target) if compare else all_of_them


def _built(source: KernelSource, target: Target) -> Spent:
    cubin, log = cuda.compile_source(source, target)
    found = cuda.resources(log)[source.name]
    return Spent(
        found.registers,
        found.spilt + found.stack_bytes,
        found.shared_bytes + source.geometry.dynamic_shared_bytes,
        sass.instructions(cubin),
    )


def total_us(found: Sequence[Cost]) -> float:
    """The model's predicted latency: the sum over all launches."""
    return float(sum(cost.terms.total_us for cost in found))


def floor_us(found: Sequence[Cost]) -> float:
    return sum(cost.terms.floor_us for cost in found)
