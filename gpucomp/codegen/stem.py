"""Convolutions of few channels: how a tile of the image comes to shared memory, and statements for the two templates.

A few channels are no wide access where they are neighbours (channels last), and none at all where each is an image of
its own (planar, as a model's input is). But neighbouring pixels of a row are: work-items read *groups* of them, all
channels, in accesses as wide as the row allows, convert them, and leave them in shared memory pixel by pixel, each
filled up with zeros to ``depth`` channels. There every tap of every output finds its pixel at a fixed distance.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.access import Rewriter
from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.convolution import Pixels, conjuncts, packed_filters, pixels_read
from gpucomp.codegen.copies import stored
from gpucomp.codegen.emit import LANE, Emitter, lane_loop
from gpucomp.codegen.epilogue import epilogue
from gpucomp.codegen.mma import multiply_function, staged_stores
from gpucomp.codegen.operand import ACCESS_BYTES, WIDTHS
from gpucomp.expr.core import Cast, Expr, Select, Var, both, cast, index, literal, load, select, var
from gpucomp.ir.types import F32, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.packing import packable

MOST_CHANNELS = 8
MOST_PATCH = 16  # taps of a window that shares no pixel with its neighbour
PLANAR, CHANNELS_LAST = (0, 2, 3, 1), (0, 1, 2, 3)  # where a parameter has images, rows, columns, channels
CHUNK_BYTES = 16  # of depth, as matrix units take them


@dataclass(frozen=True)
class Stem:
    """The pixels that ``a`` walks over. ``planar``: [N, C, H, W], not [N, H, W, C]; ``casts``: what an element becomes."""

    pixels: Pixels
    planar: bool
    casts: tuple[DType, ...]


def stem_of(kernel: Kernel) -> Stem | str:
    """A convolution of few channels whose filters are constants, or what ``kernel`` is instead."""
    body = kernel.body
    assert isinstance(body, Contraction)
    value, guards, casts = body.a, [], []
    while isinstance(value, (Cast, Select)):
        if isinstance(value, Cast):
            casts.append(value.dtype)
            value = value.value
        elif _is_nothing(value.otherwise):
            guards += conjuncts(value.condition)
            value = value.then
        else:
            return "a is more than pixels and zeros around them"
    if 0 in [v.extent for v in (*body.batch, *body.m, *body.n, *body.k)]:
        return "there is nothing to multiply"
    tried = {planar: pixels_read(kernel, value, guards, PLANAR if planar else CHANNELS_LAST) for planar in (False, True)}
    planar, found = next(((p, f) for p, f in tried.items() if isinstance(f, Pixels)), (False, tried[False]))
    if isinstance(found, str):
        return found
    channels = found.image[3]
    if channels > MOST_CHANNELS or (not planar and channels * found.dtype.nbytes % CHUNK_BYTES == 0):
        return f"{channels} channels of {found.dtype} are accesses of their own"
    if found.taps == 1 or found.dilations != (1, 1):
        return f"a window of {found.window}, {found.dilations} apart: taps that are neighbours are expected"
    if found.taps > MOST_PATCH and all(map(operator.ge, found.steps, found.window)):
        return f"windows of {found.window} that do not overlap: rows of a matrix, with nothing to share"
    if not packable(kernel, "b"):
        return "its filters are laid out when the model is compiled, and these are no constants"
    return Stem(found, planar, tuple(reversed(casts)))


def _is_nothing(value: Expr) -> bool:
    value = stored(value)
    return value is literal(0, value.dtype)


def stem_sizes(kernel: Kernel, found: Stem) -> dict[str, int]:
    """What a template has to know of a stem.

    first_y, first_x   the pixel of the first output's first tap
    group              neighbouring pixels of a row that work-items read together
    image_bytes        of an element in memory
    """
    body, form = kernel.body, found.pixels
    assert isinstance(body, Contraction)
    images, height, width, channels = form.image
    fits = (w for w in WIDTHS if width % w == 0 and w * form.dtype.nbytes <= ACCESS_BYTES)
    return {
        "images": images, "height": height, "width": width, "channels": channels, "planar": int(found.planar),
        "out_y": form.out[0], "out_x": form.out[1], "taps_y": form.window[0], "taps_x": form.window[1],
        "step_y": form.steps[0], "step_x": form.steps[1], "first_y": form.first[0], "first_x": form.first[1],
        "n": math.prod(v.extent for v in body.n), "group": max(fits, default=1), "image_bytes": form.dtype.nbytes,
    }  # fmt: skip


def staging(s: SimpleNamespace, p: SimpleNamespace, threads: int, taps_x: int, chunk: int) -> dict[str, int]:
    """The part of the image that a work-group of tile_y x tile_x outputs keeps; pixels of a row come in ``chunk``s.

    rows, columns   of it in shared memory, for ``taps_x`` taps; ``groups_x`` groups of pixels fill a row
    shift           pixels that the first group begins in front of the first tap's, so that groups are aligned
    lead            columns of shared memory in front of that pixel's
    load_trips      groups that a work-item reads
    """
    shift = p.first_x % p.group
    lead = -(-shift // chunk) * chunk
    outputs_x = (s.tile_x - 1) * p.step_x
    groups_x = -(-(shift + outputs_x + p.taps_x) // p.group)
    columns = max(lead + outputs_x + taps_x, lead - shift + groups_x * p.group)
    rows = (s.tile_y - 1) * p.step_y + p.taps_y
    tiles_y, tiles_x = -(-p.out_y // s.tile_y), -(-p.out_x // s.tile_x)
    return {
        "rows": rows,
        "columns": -(-columns // chunk) * chunk,
        "groups_x": groups_x,
        "shift": shift,
        "lead": lead,
        "load_trips": -(-rows * groups_x // threads),
        "tiles_y": tiles_y,
        "tiles_x": tiles_x,
    }


def stage_hooks(
    kernel: Kernel, printer: CPrinter, found: Stem, s: SimpleNamespace, derived: SimpleNamespace, dtype: DType
) -> dict[str, Any]:
    """How a work-item reads one group: see ``kernels_templates/contraction/stage_image.j2`` for what each hook is."""
    form, group = found.pixels, max(1, derived.group)
    images, height, width, channels = form.image
    place_y = var("place_y", derived.tiles_y * s.tile_y * form.steps[0] + derived.rows)
    chunk = var("chunk", derived.tiles_x * s.tile_x * form.steps[1] // group + derived.groups_x)
    image = var("image", images) if images > 1 else index(0)
    lane = var(LANE, group)
    y, start = place_y + form.first[0], chunk * group + (form.first[1] - derived.shift)
    inside = both([y >= 0, y < height, start >= 0, start < width])
    rewrite = Rewriter(kernel.params, {})

    def element(part: int) -> Expr:
        """Of the channel ``part``, or, channels last, of the ``part``th access to the group."""
        if found.planar:
            place: tuple[Expr, ...] = (image, index(part), y, start + lane)
        else:  # an access goes on where the last one ended, whichever channel that is
            place = (image, y, start, lane + part * group)
        value: Expr = load(form.source, place, form.dtype)
        for to in found.casts:
            value = cast(value, to)
        value = stored(value) if value.dtype is not dtype else value
        if isinstance(value, Cast) and value.dtype is dtype and value.value.dtype is F32:
            value = value.value  # keeping it rounds
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
    keep = printer.dialect.copy(f"to + i * {derived.depth}", "pixel", dtype, derived.depth)
    return {
        "pixel_type": ctype,
        "read_lines": [*head, *(lane_loop(lines, group) if group > 1 else lines)],
        "pixel_of": of,
        "pixel_array": printer.dialect.aligned_array(ctype, "pixel", derived.depth, printer.dialect.zeros),
        "keep_lines": keep if derived.depth > 1 else ["to[i] = pixel[0];"],
    }


def stem_mma_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/stem_mma.j2`` for what each hook is."""
    body, found = kernel.body, stem_of(kernel)
    assert isinstance(body, Contraction)
    assert isinstance(found, Stem), found
    dtype = stored(body.b).dtype
    acc = "sum" if derived.out_vector == 1 else f"sums[{LANE}]"
    ends = epilogue(kernel, printer, var("batch", 1), derived.out_vector, acc)
    filters = packed_filters(kernel, (derived.chunks, derived.padded_n, CHUNK_BYTES // dtype.nbytes), "contraction/stem_mma")
    return {
        **stage_hooks(kernel, printer, found, s, SimpleNamespace(**vars(p), **vars(derived)), dtype),
        "filters": printer.params[filters][0],
        "is_async": "cp_async" in printer.features,
        **staged_stores(ends, printer, body.acc.dtype, s.warp_n, derived),
        "index": printer.dialect.index_type(max(t.size for t in kernel.params) + derived.tile_n),
        "acc_type": printer.dialect.value_type(body.acc.dtype),
        "zero": printer.dialect.literal(0, body.acc.dtype),
        "multiply": multiply_function(dtype, dtype),
        "rounds": dtype is F32,
    }


def stem_simt_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/stem_simt.j2`` for what each hook is."""
    found = stem_of(kernel)
    assert isinstance(found, Stem), found
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

    return {
        **stage_hooks(kernel, printer, found, s, SimpleNamespace(**vars(p), **vars(derived)), F32),
        "filters_lines": lines,
        "row_lines": ends.row_lines,
        "store": ends.store,
        "index": dialect.index_type(max(t.size for t in kernel.params) + s.tile_n),
        "acc_type": dialect.value_type(F32),
        "zero": dialect.literal(0, F32),
        "copy": copy,
        "array": lambda name, size: dialect.aligned_array(dialect.value_type(F32), name, size),
    }


def filled_depth(p: SimpleNamespace, taps_x: int, depth: int) -> tuple[tuple[int, int], ...]:
    """The depth (rows, columns, channels of the window) with ``taps_x`` columns and ``depth`` channels: see ``Packing``."""
    return ((p.taps_y, p.taps_y), (p.taps_x, taps_x), (p.channels, depth))


