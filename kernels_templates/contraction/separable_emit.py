"""Depthwise separable convolutions: the depthwise part of such a contraction, and statements for the two templates.

A work-group computes the part of the depthwise result that its tile of pixels needs into shared memory, where the
pointwise convolution reads it: a work-item's outputs are the register window of the depthwise family.
"""

from __future__ import annotations

from typing import Any

from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Expr
from gpucomp.kernel import Contraction, Kernel, Separable
from gpucomp.kernel.forms.convolution import packed_filters
from gpucomp.kernel.forms.separable import depthwise_kernel
from gpucomp.kernels_templates.contraction.separable_space import SeparableProblem, SeparableSchedule, SeparableSizes
from gpucomp.kernels_templates.depthwise.emit import emit_depthwise


def emit_window(
    kernel: Kernel[Separable],
    printer: CPrinter,
    value: Expr,
    s: SeparableSchedule,
    p: SeparableProblem,
    derived: SeparableSizes,
) -> dict[str, Any]:
    """The window of one work-item: ``w``, and ``keep``, which leaves an output's channels in the array ``kept``."""
    part = depthwise_kernel(kernel, value)
    own = CPrinter(printer.dialect, [*printer.params[: kernel.inputs], ("kept", value.dtype)], printer.features)
    sizes = derived.window.replace(tiles_y=derived.spots_y, tiles_x=derived.spots_x)
    hooks = emit_depthwise(part, own, derived.window_schedule, p, sizes, into="kept")
    printer.helpers.update(own.helpers)
    dialect = printer.dialect
    return {
        "w": hooks["w"],
        "keep": hooks["store"],
        "kept_array": dialect.aligned_array(dialect.moved_type(value.dtype), "kept", s.vector),
    }


def filters_of(kernel: Kernel[Contraction], printer: CPrinter, shape: tuple[int, ...], engine: str) -> tuple[str, Any]:
    return printer.params[packed_filters(kernel, shape, engine)]
