"""The pool family's ``window`` engine: a register window of the image as in depthwise convolutions, without weights."""

from __future__ import annotations

from gpucomp.kernel import Kernel, Window
from gpucomp.kernel.forms.sliding import pooling_of
from gpucomp.kernels_templates.depthwise.emit import emit_depthwise
from gpucomp.kernels_templates.depthwise.space import (
    DepthwiseProblem,
    DepthwiseSchedule,
    default,
    derive,
    focus,
    geometry,
    objections,
    registers_ahead,
    sizes_of,
    work,
)
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import Family


def accepts(kernel: Kernel, features: frozenset[str]) -> str:
    found = pooling_of(kernel)
    return found.reason if isinstance(found, Refusal) else ""


def problem(kernel: Kernel) -> DepthwiseProblem:
    return sizes_of(kernel, required(pooling_of(kernel)))


FAMILY = Family(
    "pool",
    Window,
    DepthwiseSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "window",
    accepts=accepts,
    registers=registers_ahead,
    work=work,
    focus=focus,
    emit=emit_depthwise,
    template="depthwise/kernel.j2",
    any_size=True,
)
