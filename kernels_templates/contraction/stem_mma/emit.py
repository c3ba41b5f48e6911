"""What the template of a convolution of few channels on matrix units is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.epilogue import epilogue
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import plus, times
from gpucomp.expr.core import var
from gpucomp.ir.types import F32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.convolution import packed_filters
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.forms.operand import CHUNK_BYTES
from gpucomp.kernel.forms.stem import stem_of
from gpucomp.kernels_templates.contraction.fragments import (
    b_fragments,
    copy_chunk,
    multiply_function,
    my_pixel,
    read_b,
    staged_stores,
)
from gpucomp.kernels_templates.contraction.pixels import image_tile, pixel_texts
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
    name = printer.params[filters][0]
    index = printer.dialect.index_type(max(t.size for t in kernel.params) + derived.tile_n)
    is_async = "cp_async" in printer.features
    return {
        **emit_stage(kernel, printer, found, s, p, derived, derived.depth, dtype),
        **staged_stores(ends, printer, body.acc.dtype, s.warp_n, derived),
        "index": index,
        **pixel_texts(index, s, p, derived, derived.tile_n, "pixel"),
        **_places("" if index == "int" else f"({index})", index, s, p, derived),
        **_fragments(s, p, derived),
        "copy_filters": copy_chunk(f"{name} + from", is_async=is_async),
        "is_async": is_async,
        "acc_type": printer.dialect.value_type(body.acc.dtype),
        "zero": printer.dialect.literal(0, body.acc.dtype),
        "multiply": multiply_function(dtype, dtype),
        "rounds": dtype is F32,
    }


def _places(wide: str, index: str, s: StemMmaSchedule, p: StemMmaProblem, d: StemMmaSizes) -> dict[str, Any]:
    """Where a work-item's warp is in the tile, the tile in the result, and a chunk of the filters in memory."""
    if s.warps_n == 1:
        mine = ["const int a_warp = id / 32;"] if s.warps_m > 1 else []
    elif s.warps_m == 1:
        mine = ["const int b_warp = id / 32;"]
    else:
        mine = [f"const int a_warp = id / {32 * s.warps_n}, b_warp = id / 32 % {s.warps_n};"]
    column = times(f"{wide}tile % {d.tiles_n}", d.tile_n) if d.tiles_n > 1 else "0"
    chunk = f"{wide}number / {d.tile_n} * {d.padded_n} + first_column + number % {d.tile_n}"
    return {
        "my_place": mine,
        "tile_place": [f"const {index} first_column = {column};", *image_tile(p, d)],
        "filter_chunk": f"({chunk}) * {d.chunk_elements}" if d.tiles_n > 1 else f"{wide}number * {d.chunk_elements}",
        "my_pixel": my_pixel(d.warp_m, s.warps_m, d.blocks_m, s.warp_n // d.out_vector),
    }


def _fragments(s: StemMmaSchedule, p: StemMmaProblem, d: StemMmaSizes) -> dict[str, Any]:
    """Where a lane's fragments are in shared memory; ``pair_reads``: those of each pair of chunks of a row of the window."""
    wide = 2 if d.blocks_n > 1 else 1  # blocks of eight columns that an ldmatrix reads
    filters, line, x = f"shared + {d.image_bytes_shared}", p.step_y * d.columns, s.tile_x
    row = f"pixel_of_lane / {x} * {line} + pixel_of_lane % {x} * {p.step_x} + {d.lead}"
    ahead = f"(i * 16 / {x} * {line} + i * 16 % {x} * {p.step_x}) * {d.pixel_bytes}"

    def reads(pair: int) -> list[str]:
        a = f"gc_ldmatrix_x4(part, a_from + r * {d.columns * d.pixel_bytes} + {plus(ahead, pair * 32)});"
        kept = [p.taps_x * d.depth - (2 * pair + half) * d.chunk_elements for half in (0, 1)]
        b = plus(f"j * {128 * wide}", pair * 32 * d.tile_n)
        return [
            "#pragma unroll",
            f"for (int i = 0; i < {d.blocks_m}; ++i) {{",
            "unsigned* const part = a_part[i];",
            a,
            *(line for half in (0, 1) for line in _cleared(half, kept[half], p, d)),
            "}",
            "#pragma unroll",
            f"for (int j = 0; j < {d.blocks_n // wide}; ++j) {read_b(wide, f'r * {d.pairs * 32 * d.tile_n} + {b}')}",
        ]

    return {
        "filters_at": filters,
        "pixel_of_lane": plus(f"a_warp * {d.warp_m}" if s.warps_m > 1 else 0, "my_lane % 16"),
        "a_from": f"shared + ({row}) * {d.pixel_bytes} + my_lane / 16 * 16",
        "b_from": b_fragments(filters, d.tile_n, s.warp_n, s.warps_n, wide),
        "pair_reads": [reads(pair) for pair in range(d.pairs)],
    }


def _cleared(half: int, kept: int, p: StemMmaProblem, d: StemMmaSizes) -> list[str]:
    """Clears what a half of a pair of chunks has behind the window, of which ``kept`` elements are."""
    if kept >= d.chunk_elements:
        return []
    if kept <= 0:
        return [f"part[{r}] = 0u;" for r in (2 * half, 2 * half + 1)]
    lanes = kept * p.element_bytes // 4
    return [f"part[{r}] = my_lane % 4 < {lanes} ? part[{r}] : 0u;" for r in (2 * half, 2 * half + 1)]
