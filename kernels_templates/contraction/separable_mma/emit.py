"""What the template of a separable convolution on matrix units is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.epilogue import epilogue, split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import var
from gpucomp.ir.types import F32
from gpucomp.kernel import Kernel, Separable
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernels_templates.contraction.fragments import multiply_function, staged_stores
from gpucomp.kernels_templates.contraction.pixels import pixel_texts
from gpucomp.kernels_templates.contraction.separable_emit import emit_window, filters_of

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.separable_mma.space import (
        SeparableMmaProblem,
        SeparableMmaSchedule,
        SeparableMmaSizes,
    )


def emit_separable_mma(
    kernel: Kernel[Separable],
    printer: CPrinter,
    s: SeparableMmaSchedule,
    p: SeparableMmaProblem,
    derived: SeparableMmaSizes,
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/separable_mma/kernel.j2`` for what each hook is."""
    body, dialect = kernel.body, printer.dialect
    value = stored(body.a)
    acc = "sum" if derived.out_vector == 1 else f"sums[{LANE}]"
    ends = epilogue(kernel, printer, var("batch", 1), derived.out_vector, acc)
    shape = (derived.padded_k // derived.chunk_elements, derived.padded_n, derived.chunk_elements)
    filters, _ = filters_of(kernel, printer, shape, "contraction/separable_mma")
    kind = dialect.storage_type(value.dtype)
    index = dialect.index_type(max(t.size for t in kernel.params) + derived.tile_n)
    return {
        **emit_window(kernel, printer, value, s, p, derived),
        "scratch": split_scratch(printer, dialect.value_type(F32), s.splits),
        "filters": filters,
        "pixel_type": kind,
        "copy_kept": dialect.copy("to_row", "kept", value.dtype, s.vector),
        "is_async": "cp_async" in printer.features,
        **staged_stores(ends, printer, F32, s.warp_n, derived),
        "index": index,
        **pixel_texts(index, s, p, derived, derived.tile_n, "pixel"),
        "acc_type": dialect.value_type(F32),
        "zero": dialect.literal(0, F32),
        "multiply": multiply_function(value.dtype, value.dtype),
        "rounds": value.dtype is F32,
    }
