"""Convolutions of few channels: how a tile of the image is brought to shared memory, for two templates.

Few channels allow no wide accesses if they are adjacent (channels last), and none at all if each is a plane (as in a
model's input). But pixels of a row are adjacent. Work-items therefore read *groups* of pixels with all channels, in
accesses as wide as the row allows, convert them, and write them to shared memory pixel by pixel. Each pixel is padded
with zeros to ``depth`` channels, so that every tap of every output is at a fixed distance.
"""

from __future__ import annotations

from typing import Any

from gpucomp.codegen.c.emit import Emitter, lane_loop
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Cast, Expr, Var, both, cast, index, literal, load, select, var
from gpucomp.ir.types import F32, DType
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.access import Rewriter
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.forms.stem import ImageTile, StagedImage, Stem, StemProblem


def emit_stage(
    kernel: Kernel,
    printer: CPrinter,
    found: Stem,
    s: ImageTile,
    p: StemProblem,
    image_sizes: StagedImage,
    depth: int,
    dtype: DType,
) -> dict[str, Any]:
    """How a work-item reads one group; ``kernels_templates/contraction/stage_image.j2`` describes each hook.

    A pixel in shared memory has ``depth`` channels of ``dtype``.
    """
    form, group = found.pixels, max(1, p.group)
    images, height, width, channels = form.image
    place_y = var("place_y", image_sizes.tiles_y * s.tile_y * form.steps[0] + image_sizes.rows)
    chunk = var("chunk", image_sizes.tiles_x * s.tile_x * form.steps[1] // group + image_sizes.groups_x)
    image = var("image", images) if images > 1 else index(0)
    lane = var(LANE, group)
    y, start = place_y + form.first[0], chunk * group + (form.first[1] - image_sizes.shift)
    inside = both([y >= 0, y < height, start >= 0, start < width])
    rewrite = Rewriter(kernel.params, {})

    def element(part: int) -> Expr:
        """The text of channel ``part``, or, channels last, of access ``part`` to the group."""
        if found.planar:
            place: tuple[Expr, ...] = (image, index(part), y, start + lane)
        else:  # an access continues where the last one ended, at any channel
            place = (image, y, start, lane + part * group)
        value: Expr = load(form.source, place, form.dtype)
        for to in found.casts:
            value = cast(value, to)
        value = stored(value) if value.dtype is not dtype else value
        if isinstance(value, Cast) and value.dtype is dtype and value.value.dtype is F32:
            value = value.value  # storing it rounds
        return select(inside, value, literal(0, value.dtype))

    values = [rewrite(element(part)) for part in range(channels)]
    names: dict[Expr, str] = {place_y: "place_y", chunk: "chunk"}
    if isinstance(image, Var):
        names[image] = "image"
    emitter = Emitter(printer, names | ({lane: LANE} if group > 1 else {}))
    if group > 1:
        head, lines, texts = emitter.lanes(values, lane, group)
    else:
        lines, texts = emitter.values([rewrite(element(part)) for part in range(channels)])
        head = []
    at = LANE if group > 1 else "0"
    lines += [f"pixels[{part * group} + {at}] = {printer.narrowed(t, dtype)};" for part, t in enumerate(texts)]
    ctype = printer.dialect.storage_type(dtype)
    of = f"c * {group} + i" if found.planar else f"i * {channels} + c"
    keep = printer.dialect.copy(f"to + i * {depth}", "pixel", dtype, depth)
    return {
        "pixel_type": ctype,
        "read_lines": [*head, *(lane_loop(lines, group) if group > 1 else lines)],
        "pixel_of": of,
        "pixel_array": printer.dialect.aligned_array(ctype, "pixel", depth, printer.dialect.zeros),
        "keep_lines": keep if depth > 1 else ["to[i] = pixel[0];"],
    }
