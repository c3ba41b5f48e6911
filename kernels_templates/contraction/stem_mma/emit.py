"""What the template of a convolution of few channels on matrix units is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.epilogue import epilogue
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import var
from gpucomp.ir.types import F32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.convolution import packed_filters
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.forms.operand import CHUNK_BYTES
from gpucomp.kernel.forms.stem import stem_of
from gpucomp.kernels_templates.contraction.fragments import multiply_function, staged_stores
from gpucomp.kernels_templates.contraction.pixels import pixel_texts
from gpucomp.kernels_templates.contraction.stage_image import emit_stage
from gpucomp.refusal import required

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.stem_mma.space import StemMmaProblem, StemMmaSchedule, StemMmaSizes


def emit_stem_mma(
    kernel: Kernel[Contraction], printer: CPrinter, s: StemMmaSchedule, p: StemMmaProblem, derived: StemMmaSizes
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/stem_mma/kernel.j2`` for what each hook is."""
    body, found = kernel.body, required(stem_of(kernel))
    dtype = stored(body.b).dtype
    acc = "sum" if derived.out_vector == 1 else f"sums[{LANE}]"
    ends = epilogue(kernel, printer, var("batch", 1), derived.out_vector, acc)
    filters = packed_filters(
        kernel, (derived.chunks, derived.padded_n, CHUNK_BYTES // dtype.nbytes), "contraction/stem_mma"
    )
    index = printer.dialect.index_type(max(t.size for t in kernel.params) + derived.tile_n)
    return {
        **emit_stage(kernel, printer, found, s, p, derived, derived.depth, dtype),
        "filters": printer.params[filters][0],
        "is_async": "cp_async" in printer.features,
        **staged_stores(ends, printer, body.acc.dtype, s.warp_n, derived),
        "index": index,
        **pixel_texts(index, s, p, derived, derived.tile_n, "pixel"),
        "acc_type": printer.dialect.value_type(body.acc.dtype),
        "zero": printer.dialect.literal(0, body.acc.dtype),
        "multiply": multiply_function(dtype, dtype),
        "rounds": dtype is F32,
    }
