"""What the template of a convolution of few channels without matrix units reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.emit import lane_loop
from gpucomp.codegen.c.epilogue import epilogue
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import var
from gpucomp.ir.types import F32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.convolution import packed_filters
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.forms.stem import stem_of
from gpucomp.kernels_templates.contraction.pixels import pixel_texts
from gpucomp.kernels_templates.contraction.stage_image import emit_stage
from gpucomp.refusal import required

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.stem_simt.space import StemSimtProblem, StemSimtSchedule, StemSimtSizes


def emit_stem_simt(
    kernel: Kernel[Contraction], printer: CPrinter, s: StemSimtSchedule, p: StemSimtProblem, derived: StemSimtSizes
) -> Mapping[str, Any]:
    """What ``kernels_templates/contraction/stem_simt/kernel.j2`` reads; each hook is described there."""
    found = required(stem_of(kernel))
    width, dialect = derived.out_vector, printer.dialect
    ends = epilogue(kernel, printer, var("batch", 1), width, "acc[i][j]" if width == 1 else f"acc[i][j + {LANE}]")
    filters, dtype = printer.params[packed_filters(kernel, (derived.taps, derived.padded_n), "contraction/stem_simt")]
    if dtype is F32:
        lines = dialect.copy("filter_tile + to", f"{filters} + from", F32, 4)
    else:
        lines = [
            dialect.aligned_array(dialect.moved_type(dtype), "taken", 4),
            *dialect.fetch("taken", f"{filters} + from", dtype, 4),
            *lane_loop([f"filter_tile[to + {LANE}] = {printer.fetched(f'taken[{LANE}]', dtype)};"], 4),
        ]

    def copy(to: str, source: str, width: int) -> list[str]:
        return dialect.copy(to, source, F32, width) if width > 1 else [f"{to}[0] = ({source})[0];"]

    index = dialect.index_type(max(t.size for t in kernel.params) + s.tile_n)
    return {
        **emit_stage(kernel, printer, found, s, p, derived, derived.depth, F32),
        "filters_lines": lines,
        "row_lines": ends.row_lines,
        "store": ends.store,
        "index": index,
        **pixel_texts(index, s, p, derived, s.tile_n),
        "acc_type": dialect.value_type(F32),
        "zero": dialect.literal(0, F32),
        "copy": copy,
        "array": lambda name, size: dialect.aligned_array(dialect.value_type(F32), name, size),
    }
