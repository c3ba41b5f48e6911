"""Recognises stems: convolutions of few channels, such as the first layer of an image network."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

from gpucomp.expr.core import Cast, Expr, Select, literal
from gpucomp.ir.types import DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.convolution import Pixels, conjuncts, pixels_read
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.operand import ACCESS_BYTES, CHUNK_BYTES, WIDTHS
from gpucomp.kernel.passes.pack_weights import packable
from gpucomp.kernel.sizes import Sizes, Tunables
from gpucomp.refusal import Refusal

MOST_CHANNELS = 8
MOST_PATCH = 16  # most taps of windows that do not overlap
PLANAR, CHANNELS_LAST = (0, 2, 3, 1), (0, 1, 2, 3)  # dimensions of a parameter: images, rows, columns, channels


@dataclass(frozen=True)
class Stem:
    """The pixels that ``a`` reads. ``planar``: [N, C, H, W], not [N, H, W, C]. ``casts``: what elements are cast to."""

    pixels: Pixels
    planar: bool
    casts: tuple[DType, ...]


def stem_of(kernel: Kernel[Contraction]) -> Stem | Refusal:
    """The parts of a convolution of few channels with constant filters, or why ``kernel`` is not one."""
    body = kernel.body
    value, guards, casts = body.a, [], []
    while isinstance(value, (Cast, Select)):
        if isinstance(value, Cast):
            casts.append(value.dtype)
            value = value.value
        elif _is_nothing(value.otherwise):
            guards += conjuncts(value.condition)
            value = value.then
        else:
            return Refusal("operand a is not just pixels with zero padding")
    if 0 in [v.extent for v in (*body.batch, *body.m, *body.n, *body.k)]:
        return Refusal("there is nothing to multiply")
    tried = {
        planar: pixels_read(kernel, value, guards, PLANAR if planar else CHANNELS_LAST) for planar in (False, True)
    }
    planar, found = next(((p, f) for p, f in tried.items() if isinstance(f, Pixels)), (False, tried[False]))
    if isinstance(found, Refusal):
        return found
    channels = found.image[3]
    if channels > MOST_CHANNELS or (not planar and channels * found.dtype.nbytes % CHUNK_BYTES == 0):
        return Refusal(f"{channels} channels of {found.dtype} are wide enough for the other engines")
    if found.taps == 1 or found.dilations != (1, 1):
        return Refusal(f"a window of {found.window}, dilations of {found.dilations}: adjacent taps are expected")
    if found.taps > MOST_PATCH and all(map(operator.ge, found.steps, found.window)):
        return Refusal(f"windows of {found.window} that do not overlap: there are no shared pixels")
    if not packable(kernel, "b"):
        return Refusal("its filters are not constants, so they cannot be packed when the model is compiled")
    return Stem(found, planar, tuple(reversed(casts)))


def _is_nothing(value: Expr) -> bool:
    value = stored(value)
    return value is literal(0, value.dtype)


class StemProblem(Sizes):
    """Sizes of a convolution of few channels."""

    images: int
    height: int
    width: int
    channels: int
    planar: int  # 1: [N, C, H, W], 0: [N, H, W, C]
    out_y: int
    out_x: int
    taps_y: int
    taps_x: int
    step_y: int
    step_x: int
    first_y: int  # the pixel of the first output's first tap
    first_x: int
    n: int
    group: int  # pixels of a row that one access reads
    image_bytes: int  # bytes of an element in memory


class ImageTile(Tunables):
    """Base class of schedules whose work-groups compute tile_y x tile_x outputs of an image."""

    tile_y: int
    tile_x: int


class StagedImage(Sizes):
    """The part of the image that a work-group keeps in shared memory."""

    rows: int
    columns: int
    groups_x: int  # groups of pixels in a row
    shift: int  # pixels between the start of the first group and the first tap, so that groups are aligned
    lead: int  # columns of shared memory before the first tap's
    load_trips: int  # groups that a work-item reads
    tiles_y: int
    tiles_x: int


def stem_sizes(kernel: Kernel[Contraction], found: Stem) -> StemProblem:
    body, form = kernel.body, found.pixels
    images, height, width, channels = form.image
    fits = (w for w in WIDTHS if width % w == 0 and w * form.dtype.nbytes <= ACCESS_BYTES)
    return StemProblem(
        images=images,
        height=height,
        width=width,
        channels=channels,
        planar=int(found.planar),
        out_y=form.out[0],
        out_x=form.out[1],
        taps_y=form.window[0],
        taps_x=form.window[1],
        step_y=form.steps[0],
        step_x=form.steps[1],
        first_y=form.first[0],
        first_x=form.first[1],
        n=math.prod(v.extent for v in body.n),
        group=max(fits, default=1),
        image_bytes=form.dtype.nbytes,
    )


def staging(s: ImageTile, p: StemProblem, threads: int, taps_x: int, chunk: int) -> StagedImage:
    """The part of the image that a tile reads with ``taps_x`` taps a row. Rows are padded to multiples of ``chunk``."""
    shift = p.first_x % p.group
    lead = -(-shift // chunk) * chunk
    outputs_x = (s.tile_x - 1) * p.step_x
    groups_x = -(-(shift + outputs_x + p.taps_x) // p.group)
    columns = max(lead + outputs_x + taps_x, lead - shift + groups_x * p.group)
    rows = (s.tile_y - 1) * p.step_y + p.taps_y
    return StagedImage(
        rows=rows,
        columns=-(-columns // chunk) * chunk,
        groups_x=groups_x,
        shift=shift,
        lead=lead,
        load_trips=-(-rows * groups_x // threads),
        tiles_y=-(-p.out_y // s.tile_y),
        tiles_x=-(-p.out_x // s.tile_x),
    )


def filled_depth(p: StemProblem, taps_x: int, depth: int) -> tuple[tuple[int, int], ...]:
    """The depth of the filters, padded to ``taps_x`` columns and ``depth`` channels: see ``Packing.filled``."""
    return ((p.taps_y, p.taps_y), (p.taps_x, taps_x), (p.channels, depth))
