"""Chooses how a contraction is computed on the CPU: in register blocks, as dot products row by row, or by plain loops."""

from __future__ import annotations

from gpucomp.codegen.llvm.contraction.emit import emit_contraction
from gpucomp.codegen.llvm.contraction.space import contraction_form
from gpucomp.codegen.llvm.loops.loops import emit_loops
from gpucomp.codegen.llvm.loops.rowwise import emit_rows
from gpucomp.device.target import Target
from gpucomp.expr.core import cast, reduce
from gpucomp.kernel import Contraction, Kernel, Rowwise, Statistic, kernel_of
from gpucomp.kernel.example import example_of
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule


def emit_in_form(kernel: Kernel[Contraction], schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    c = kernel.body
    form = contraction_form(kernel_of(example_of(kernel), Contraction))  # each form is right for every size
    if form == "gemm" and schedule["lanes"]:
        return emit_contraction(kernel, schedule, name, target)
    product = cast(c.a, c.acc.dtype) * cast(c.b, c.acc.dtype)
    rest = {"lanes": schedule["lanes"], "tasks": 64, "unroll": 0, "copies": 4}
    if form == "rows" and schedule["lanes"]:
        rows = (*c.batch, *c.m, *c.n)
        body = Rowwise(rows, c.k, (Statistic(c.acc, "sum", product),), frozenset(range(len(kernel.stores))))
        return emit_rows(kernel, body, rest, name, target)
    return emit_loops(kernel, c.domain, {c.acc: reduce("sum", c.k, product)}, rest, name, target)
