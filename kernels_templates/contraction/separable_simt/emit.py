"""What the template of a separable convolution on plain units is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.epilogue import epilogue, left_sums, split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import cast, var
from gpucomp.ir.types import F32
from gpucomp.kernel import Kernel, Separable
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernels_templates.contraction.pixels import pixel_texts
from gpucomp.kernels_templates.contraction.separable_emit import emit_window, filters_of

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.separable_simt.space import SeparableSimtSchedule, SeparableSimtSizes
    from gpucomp.kernels_templates.contraction.separable_space import SeparableProblem


def emit_separable_simt(
    kernel: Kernel[Separable],
    printer: CPrinter,
    s: SeparableSimtSchedule,
    p: SeparableProblem,
    derived: SeparableSimtSizes,
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/separable_simt/kernel.j2`` for what each hook is."""
    body, dialect, width = kernel.body, printer.dialect, derived.out_vector
    ends = epilogue(kernel, printer, var("batch", 1), width, "acc[i][j]" if width == 1 else f"acc[i][j + {LANE}]")
    filters, dtype = filters_of(kernel, printer, (derived.padded_k, derived.padded_n), "contraction/separable_simt")
    assert dtype is F32
    acc_type = dialect.value_type(F32)
    index = dialect.index_type(max(t.size for t in kernel.params) + derived.tile_n)
    return {
        **emit_window(kernel, printer, cast(body.a, F32), s, p, derived),
        "scratch": split_scratch(printer, acc_type, s.splits),
        **left_sums(printer, F32, s.splits, s.reg_n),
        "filters": filters,
        "row_lines": ends.row_lines,
        "store": ends.store,
        "index": index,
        **pixel_texts(index, s, p, derived, s.tile_n),
        "acc_type": acc_type,
        "zero": dialect.literal(0, F32),
        "copy": lambda to, source, width: dialect.copy(to, source, F32, width),
        "array": lambda name, size: dialect.aligned_array(acc_type, name, size),
        "zeros": lambda to: [f"({to})[{k}] = {dialect.literal(0, F32)};" for k in range(s.vector)],
    }
