"""What the template of a separable convolution on plain units is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.epilogue import epilogue, left_sums, split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import modulo, over, plus, times
from gpucomp.expr.core import cast, var
from gpucomp.ir.types import F32
from gpucomp.kernel import Kernel, Separable
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernels_templates.contraction.pixels import pixel_texts
from gpucomp.kernels_templates.contraction.separable_emit import emit_window, filters_of, last_part

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
    wide = "" if index == "int" else f"({index})"
    my_m, my_n = ("my_output" if derived.rows > 1 else "0"), ("my_column" if derived.columns > 1 else "0")
    left = left_sums(printer, F32, s.splits, s.reg_n)
    plain_sums = f"{acc_type} acc[{s.reg_m}][{s.reg_n}];"

    def copy(to: str, source: str, width: int) -> list[str]:
        return dialect.copy(to, source, F32, width)

    zeros = [f"(to_row)[{k}] = {dialect.literal(0, F32)};" for k in range(s.vector)]
    keep = copy("to_row", "kept", s.vector)
    fetched = copy("filter_tile + number * 4", f"{filters} + from", 4)
    pixel = plus(my_m, times("i", derived.rows))
    column = plus(times("j", derived.columns), times(my_n, 4))
    return {
        **emit_window(kernel, printer, cast(body.a, F32), s, p, derived, derived.pitch, keep, zeros),
        "scratch": split_scratch(printer, acc_type, s.splits),
        **left,
        **_shared_tiles(acc_type, s, derived),
        "my_m": my_m,
        "my_n": my_n,
        "my_place": _my_place(derived),
        "sums": dialect.aligned_array(acc_type, f"acc[{s.reg_m}]", s.reg_n) if left["left_at_once"] > 1 else plain_sums,
        "last_part": last_part(derived),
        "filter_run": _filter_run(wide, s, derived),
        "fetch_filters": [f"gc_cp_async16(filter_tile + number * 4, {filters} + from, true);"]
        if s.asynchronous
        else fetched,
        "read_pixels": copy("a_part[i]", f"pixel_tile + ({pixel}) * {derived.pitch} + k", derived.a_deep),
        "read_filters": copy("b_part + j", f"filter_tile + (k + c) * {s.tile_n} + {column}", 4),
        "row_lines": ends.row_lines,
        "store": ends.store,
        "index": index,
        **pixel_texts(index, s, p, derived, s.tile_n),
        "acc_type": acc_type,
        "zero": dialect.literal(0, F32),
        "array": lambda name, size: dialect.aligned_array(acc_type, name, size),
    }


def _shared_tiles(acc_type: str, s: SeparableSimtSchedule, d: SeparableSimtSizes) -> dict[str, Any]:
    """The pixels and the filters in shared memory: pointers into what the launch asks for, or arrays."""
    pixels = d.tile_m * d.pitch
    flag = [("int", "is_last", [1])] if s.splits > 1 else []
    if d.dynamic_shared_bytes:
        first = f"{acc_type}* const pixel_tile = reinterpret_cast<{acc_type}*>(gc_dynamic_shared());"
        tiles = [first, f"{acc_type}* const filter_tile = pixel_tile + {pixels};"]
        return {"dynamic_tiles": tiles, "shared_arrays": flag}
    arrays = [(acc_type, "pixel_tile", [pixels]), (acc_type, "filter_tile", [d.part_k * s.tile_n])]
    return {"dynamic_tiles": [], "shared_arrays": [*arrays, *flag]}


def _my_place(d: SeparableSimtSizes) -> list[str]:
    column = modulo("id", d.columns) if d.rows > 1 else "id"
    return [
        *([f"const int my_column = {column};"] if d.columns > 1 else []),
        *([f"const int my_output = {over('id', d.columns)};"] if d.rows > 1 else []),
    ]


def _filter_run(wide: str, s: SeparableSimtSchedule, d: SeparableSimtSizes) -> str:
    """Where the run ``number`` of four columns of the part's filters is in memory."""
    part = "part" if d.all_parts > 1 else "0"
    channel = plus(times(wide + part, d.part_k), over("number", s.tile_n // 4))
    first = "first_column" if d.tiles_n > 1 else "0"
    return plus(times(f"({channel})", d.padded_n), first, times(modulo("number", s.tile_n // 4), 4))
