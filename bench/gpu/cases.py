"""The kernels that ``correct`` computes: those of the tests' tables, with constant weights and with each precision's math."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from bench.gpu import checks
from gpucomp.device.target import Target
from gpucomp.ir.types import F32
from gpucomp.kernel import Contraction, Kernel, TileTransform
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.schedule.space import Family
from testing import template_cases
from testing.cases import kernels

LARGEST = 1 << 22  # elements that numpy multiplies for one kernel


@cache
def cases() -> dict[str, Kernel]:
    """The distinct kernels that have something to compute, by name."""
    found = template_cases.CASES | kernels()
    live = {n: k for n, k in found.items() if not template_cases.is_empty(k) and checks.cost(k) <= LARGEST}
    live |= {n: k for name, kernel in live.items() for n, k in _variants(name, kernel)}
    distinct: dict[str, str] = {}
    for name, kernel in live.items():
        distinct.setdefault(kernel.digest, name)
    return {name: live[name] for name in distinct.values()}


def engines_on(kernel: Kernel, target: Target) -> tuple[Family, ...]:
    """The engines that can compute ``kernel`` on ``target``; none for what only OpenCL targets are given."""
    if isinstance(kernel.body, TileTransform) and target.kind != "opencl":
        return ()
    return engines_of(kernel, target.features)


def _variants(name: str, kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """A contraction with constant weights, and with the arithmetic of each precision."""
    body = kernel.body
    if not isinstance(body, Contraction):
        return
    if not kernel.constants and kernel.inputs > 1:
        yield f"{name}-constant", replace(kernel, constants=frozenset({1}))
    if body.acc.dtype is F32 and body.math == "strict" and all(t.dtype is F32 for t in kernel.params):
        for math_ in ("tf32", "3xtf32"):
            yield f"{name}-{math_}", replace(kernel, body=replace(body, math=math_))
