"""What the template of a separable convolution on matrix units is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.epilogue import epilogue, split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import plus, times
from gpucomp.expr.core import var
from gpucomp.ir.types import F32
from gpucomp.kernel import Kernel, Separable
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernels_templates.contraction.fragments import (
    b_fragments,
    copy_chunk,
    multiply_function,
    my_pixel,
    read_b,
    staged_stores,
)
from gpucomp.kernels_templates.contraction.pixels import pixel_texts
from gpucomp.kernels_templates.contraction.separable_emit import emit_window, filters_of, last_part

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
    is_async = "cp_async" in printer.features
    keep = dialect.copy("to_row", "kept", value.dtype, s.vector)
    clear = ["#pragma unroll", f"for (int k = 0; k < {s.vector}; ++k) to_row[k] = {{}};"]
    pitch = derived.pitch // p.element_bytes
    return {
        **emit_window(kernel, printer, value, s, p, derived, pitch, keep, clear),
        **_fragments(s, derived),
        "scratch": split_scratch(printer, dialect.value_type(F32), s.splits),
        "last_part": last_part(derived),
        "filter_chunk": _filter_chunk("" if index == "int" else f"({index})", derived),
        "copy_filters": copy_chunk(f"{filters} + from", is_async=is_async),
        "pixel_type": kind,
        "is_async": is_async,
        **staged_stores(ends, printer, F32, s.warp_n, derived),
        "index": index,
        **pixel_texts(index, s, p, derived, derived.tile_n, "pixel"),
        "acc_type": dialect.value_type(F32),
        "zero": dialect.literal(0, F32),
        "multiply": multiply_function(value.dtype, value.dtype),
        "rounds": value.dtype is F32,
    }


def _fragments(s: SeparableMmaSchedule, d: SeparableMmaSizes) -> dict[str, Any]:
    """Where a lane's fragments are in shared memory, and the reads of those of a step."""
    row = plus(f"a_warp * {d.warp_m}" if s.warps_m > 1 else 0, "my_lane % 16")
    filters = f"shared + {d.pixel_bytes}"
    step = plus(times("step", s.warps_k), "warp_k" if s.warps_k > 1 else 0)
    wide = 2 if d.blocks_n > 1 else 1  # blocks of eight columns that an ldmatrix reads
    return {
        "filters_at": filters,
        "a_from": f"shared + ({row}) * {d.pitch} + my_lane / 16 * 16",
        "b_from": b_fragments(filters, d.tile_n, s.warp_n, s.warps_n, wide),
        "read_a": f"gc_ldmatrix_x4(a_part[i], a_from + i * {16 * d.pitch} + ({step}) * 32);",
        "reads_b": d.blocks_n // wide,
        "read_b": read_b(wide, f"({step}) * {32 * d.tile_n} + j * {128 * wide}"),
        "my_pixel": my_pixel(d.warp_m, s.warps_m, d.blocks_m, s.warp_n // d.out_vector),
    }


def _filter_chunk(wide: str, d: SeparableMmaSizes) -> str:
    """Where the chunk ``number`` of the part's filters is in memory."""
    part = "part" if d.all_parts > 1 else "0"
    row = plus(times(wide + part, d.chunks), f"number / {d.tile_n}")
    column = plus(times(f"({row})", d.padded_n), "first_column", f"number % {d.tile_n}")
    return times(f"({column})", d.chunk_elements)
