"""Kernels of HIP on this processor, as functions that the fake GPU calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpucomp.artifact.plan import Plan
from testing.cuda_on_cpu.harness import compile_many


def on_this_processor(plan: Plan, sources: Mapping[str, str], arch: str) -> dict[str, Callable[..., None]]:
    """The kernels as functions of the bytes from each address on, by name."""
    names = [kernel.name for kernel in plan.kernels]
    made = compile_many([(sources[kernel.source], kernel.name) for kernel in plan.kernels], arch=arch)

    def function(number: int, kernel: Any, compiled: Any) -> Callable[..., None]:
        launch = next(one for one in plan.launches if one.kernel == number)
        sizes = [plan.buffers[position].nbytes for position in launch.args]

        def run(*memory: Any) -> None:
            parts = [part[:size] for part, size in zip(memory, sizes, strict=True)]
            compiled.run(kernel.groups, kernel.items, parts, dynamic_shared=kernel.shared)

        return run

    return dict(zip(names, map(function, range(len(names)), plan.kernels, made), strict=True))
