"""Depthwise separable convolutions: the depthwise part of such a contraction, and statements for the two templates.

A work-group computes the part of the depthwise result that its tile of pixels needs into shared memory, where the
pointwise convolution reads it: a work-item's outputs are the register window of the depthwise family.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import loop, modulo, over, plus, times
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
    pitch: int,
    keep: Sequence[str],
    clear: Sequence[str],
) -> dict[str, Any]:
    """What ``contraction/separable_window.j2`` prints.

    Pixels are ``pitch`` elements apart in shared memory. ``keep`` moves the channels of the array ``kept`` to ``to_row``,
    ``clear`` sets them to zero there.
    """
    part = depthwise_kernel(kernel, value)
    own = CPrinter(printer.dialect, [*printer.params[: kernel.inputs], ("kept", value.dtype)], printer.features)
    sizes = derived.window.replace(tiles_y=derived.spots_y, tiles_x=derived.spots_x)
    hooks = emit_depthwise(part, own, derived.window_schedule, p, sizes, into="kept")
    printer.helpers.update(own.helpers)
    dialect = printer.dialect
    kept = dialect.aligned_array(dialect.moved_type(value.dtype), "kept", s.vector)

    def each_pixel(pointer: str, body: Sequence[str], *, placed: bool) -> list[str]:
        """``body`` for each pixel of a run, which goes ``to_row``; ``placed``: it reads where the pixel is in the image."""
        row = plus("to", f"i * {s.tile_x * pitch}" if s.reg_y > 1 else 0, f"j * {pitch}" if s.reg_x > 1 else 0)
        out_y = [f"const int out_y = {plus('first_y', 'i' if s.reg_y > 1 else 0)};"] if placed and p.out_y > 1 else []
        out_x = [f"const int out_x = {plus('first_x', 'j' if s.reg_x > 1 else 0)};"] if placed and p.out_x > 1 else []
        pixel = [*out_x, f"{pointer} to_row = {row};", *body]
        return loop("i", s.reg_y, [*out_y, *loop("j", s.reg_x, pixel)])

    return {
        "window": hooks["window"],
        "run_place": _run_place(s, derived),
        "first_pixel": f"(local_y * {s.tile_x} + local_x) * {pitch} + vector * {s.vector}",
        "past_channels": derived.padded_k // s.vector != derived.all_vectors,
        "keep": lambda pointer: each_pixel(pointer, [kept, *hooks["store"], *keep], placed=True),
        "clear": lambda pointer: each_pixel(pointer, clear, placed=False),
    }


def _run_place(s: SeparableSchedule, d: SeparableSizes) -> list[str]:
    """Which channels of which pixels the run ``item`` has, in the tile and in the image."""
    across, part = s.tile_x // s.reg_x, "part" if d.all_parts > 1 else "0"
    number = over("item", d.vectors)
    column = number + (f" % {across}" if s.tile_y > s.reg_y else "")
    return [
        f"const int vector = {modulo('item', d.vectors) if d.spots > 1 else 'item'};",
        f"const int local_y = {times(over('item', d.vectors * across), s.reg_y) if s.tile_y > s.reg_y else '0'};",
        f"const int local_x = {times(column, s.reg_x) if across > 1 else '0'};",
        f"const int first_y = {plus(times('tile_y', s.tile_y) if d.tiles_y > 1 else 0, 'local_y')};",
        f"const int first_x = {plus(times('tile_x', s.tile_x) if d.tiles_x > 1 else 0, 'local_x')};",
        f"const int channel = {plus(times(part, d.vectors), 'vector')};",
    ]


def filters_of(kernel: Kernel[Contraction], printer: CPrinter, shape: tuple[int, ...], engine: str) -> tuple[str, Any]:
    return printer.params[packed_filters(kernel, shape, engine)]


def last_part(d: SeparableSizes) -> str:
    """The end of the parts of a work-group that shares the channels with others."""
    end = plus("begin", d.parts_per_split)
    return f"{end} < {d.all_parts} ? {end} : {d.all_parts}"
