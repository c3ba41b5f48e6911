"""Translators of operators that read an image between its pixels: GridSample, RoiAlign, DeformConv."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.compose import cast, checked_size, expand, like, part, reshape, squeeze, unsqueeze
from gpucomp.frontend.onnx.nn import with_bias
from gpucomp.frontend.onnx.translate import translates
from gpucomp.frontend.onnx.windows import windows
from gpucomp.ir import Value, constant
from gpucomp.ir import types as t

CUBIC = -0.75  # the coefficient of Keys' kernel


def _plus(x: Value, number: float) -> Value:
    return ops.Add(x, like(x, number)) if number else x


def _times(x: Value, number: float) -> Value:
    return ops.Mul(x, like(x, number))


def _clip(x: Value, low: float, high: float) -> Value:
    return ops.Clip(x, low=float(low), high=float(high))


def _reflected(x: Value, low: float, high: float) -> Value:
    """``x`` mirrored at both ends until it lies inside: a triangular wave."""
    span = high - low
    if span <= 0:
        return _plus(_times(x, 0), low)
    distance = _plus(x, -low)
    period = ops.Floor(_times(distance, 1 / (2 * span)))
    inside = ops.Sub(distance, _times(period, 2 * span))  # [0, 2 span)
    return _plus(ops.Min(inside, ops.Sub(like(x, 2 * span), inside)), low)


def gathered(image: Value, places: Sequence[Value], spatial: Sequence[int]) -> Value:
    """image [B, C, prod(spatial)] at float places [B, Q], one an axis, clamped into the image: [B, C, Q]."""
    flat: Value | None = None
    for place, size in zip(places, spatial, strict=True):
        at = cast(_clip(place, 0, size - 1), t.I64)
        flat = at if flat is None else ops.Add(_times(flat, size), at)
    assert flat is not None
    batch, channels = image.shape[:2]
    count = flat.shape[1]
    return ops.GatherElements(image, expand(unsqueeze(flat, (1,)), (batch, channels, count)), axis=2)


def inside(places: Sequence[Value], spatial: Sequence[int]) -> Value:
    """1 where all of the float places lie in the image, else 0."""
    result: Value | None = None
    for place, size in zip(places, spatial, strict=True):
        here = ops.And(ops.LessOrEqual(like(place, 0), place), ops.LessOrEqual(place, like(place, size - 1)))
        result = here if result is None else ops.And(result, here)
    assert result is not None
    return result


def _linear_weights(fraction: Value) -> list[tuple[int, Value]]:
    return [(0, ops.Sub(like(fraction, 1), fraction)), (1, fraction)]


def _cubic_weights(fraction: Value) -> list[tuple[int, Value]]:
    """Keys' kernel at the distances 1 + f, f, 1 - f, 2 - f."""

    def near(d: Value) -> Value:  # ((a + 2) d - (a + 3)) d^2 + 1
        return _plus(ops.Mul(_plus(_times(d, CUBIC + 2), -(CUBIC + 3)), ops.Mul(d, d)), 1)

    def far(d: Value) -> Value:  # ((a d - 5a) d + 8a) d - 4a
        inner = _plus(ops.Mul(_plus(_times(d, CUBIC), -5 * CUBIC), d), 8 * CUBIC)
        return _plus(ops.Mul(inner, d), -4 * CUBIC)

    rest = ops.Sub(like(fraction, 1), fraction)
    return [(-1, far(_plus(fraction, 1))), (0, near(fraction)), (1, near(rest)), (2, far(_plus(rest, 1)))]


MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}


@translates("GridSample", since=16)
def grid_sample(x: Value, grid: Value, *, align_corners: int, mode: str, padding_mode: str) -> Value:
    """grid [N, *out, D] holds places in [-1, 1], the last spatial axis first."""
    rank = len(x.shape) - 2
    if rank < 1 or len(grid.shape) != rank + 2 or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
        raise ValueError(f"a grid [N, out..., {rank}] expected, {grid.type} given")
    if mode not in MODES or padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"mode {mode!r}, padding_mode {padding_mode!r}")
    if 0 in x.shape[2:]:
        raise ValueError("an image without pixels")
    kind = MODES[mode]
    n, c, *spatial = x.shape
    out = grid.shape[1:-1]
    count = math.prod(out)
    dtype = x.type.dtype
    if dtype.bits < 32:  # a 16-bit float cannot tell the pixels of a large image apart
        x = cast(x, t.F32)
    image = reshape(x, (n, c, math.prod(spatial)))
    flat = cast(reshape(grid, (n, count, rank)), x.type.dtype)
    borders = [(0.0, size - 1.0) if align_corners else (-0.5, size - 0.5) for size in spatial]
    places = []
    for axis, size in enumerate(spatial):
        unit = squeeze(part(flat, 2, rank - 1 - axis, 1), (2,))  # [N, count]
        spread, shift = ((size - 1) / 2, 0.0) if align_corners else (size / 2, -0.5)
        place = _plus(_times(_plus(unit, 1), spread), shift)
        place = ops.Round(place) if kind == "nearest" else place
        places.append(_padded(place, size, borders[axis], padding_mode))
    if kind == "nearest":
        choices: list[list[tuple[int, Value | None]]] = [[(0, None)] for _ in places]
        bases = places
    else:
        bases = [ops.Floor(place) for place in places]
        weights = _linear_weights if kind == "linear" else _cubic_weights
        choices = [list(weights(ops.Sub(p, b))) for p, b in zip(places, bases, strict=True)]
    total: Value | None = None
    for taps in itertools.product(*choices):
        at = [_plus(base, step) for base, (step, _) in zip(bases, taps, strict=True)]
        if padding_mode == "reflection":
            at = [_reflected(p, *border) for p, border in zip(at, borders, strict=True)]
        term = gathered(image, at, spatial)
        if padding_mode == "zeros":
            term = ops.Where(unsqueeze(inside(at, spatial), (1,)), term, like(term, 0))
        for _, weight in taps:
            term = term if weight is None else ops.Mul(term, unsqueeze(weight, (1,)))
        total = term if total is None else ops.Add(total, term)
    assert total is not None
    return cast(reshape(total, (n, c, *out)), dtype)


def _padded(place: Value, size: int, border: tuple[float, float], padding_mode: str) -> Value:
    if padding_mode == "border":
        return _clip(place, 0, size - 1)
    if padding_mode == "reflection":
        return _reflected(place, *border)
    return _clip(place, -4, size + 3)  # far outside is as good as anywhere outside, and an index stays small


@translates("RoiAlign", since=10)
def roi_align_10(x: Value, rois: Value, batch: Value, **attributes: Any) -> Value:
    return roi_align(x, rois, batch, coordinate_transformation_mode="output_half_pixel", **attributes)


@translates("RoiAlign", since=16)
def roi_align(
    x: Value,
    rois: Value,
    batch: Value,
    *,
    coordinate_transformation_mode: str,
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> Value:
    """Every region [x1, y1, x2, y2] cut into bins, each the mean (or max) of ``sampling_ratio``^2 bilinear samples."""
    if len(x.shape) != 4 or rois.shape != (rois.shape[0], 4) or batch.shape != rois.shape[:1]:
        raise ValueError("[N, C, H, W], regions [R, 4] and batch indices [R] expected")
    if mode not in ("avg", "max") or coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        raise ValueError(f"mode {mode!r}, coordinate_transformation_mode {coordinate_transformation_mode!r}")
    if sampling_ratio < 1:
        raise UnsupportedError("sampling_ratio=0 makes the number of samples depend on the regions' size")
    if min(output_height, output_width) < 1 or max(output_height, output_width, sampling_ratio) > 1 << 12:
        raise ValueError(f"an output of {output_height} x {output_width}, sampling_ratio {sampling_ratio}")
    half = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    count, channels = rois.shape[0], x.shape[1]
    height, width = x.shape[2:]
    axes = []
    for k, bins, size in ((1, output_height, height), (0, output_width, width)):
        start, end = (
            _plus(_times(squeeze(part(rois, 1, column, 1), (1,)), spatial_scale), -half) for column in (k, k + 2)
        )
        extent = ops.Sub(end, start)
        if not half:
            extent = ops.Max(extent, like(extent, 1))
        steps = (np.arange(bins * sampling_ratio) + 0.5) / (bins * sampling_ratio)
        fractions = constant(steps.astype(rois.type.dtype.numpy))
        place = ops.Add(unsqueeze(start, (1,)), ops.Mul(unsqueeze(extent, (1,)), fractions))  # [R, samples]
        axes.append(_edged(place, size))
    rows, columns = axes[0][0][0].shape[1], axes[1][0][0].shape[1]
    image = ops.Gather(reshape(x, (x.shape[0], channels, height * width)), batch, axis=0)  # [R, C, H*W]
    best: Value | None = None
    shape = (count, channels, rows, columns)
    for (y, y_weight), (z, z_weight) in itertools.product(axes[0], axes[1]):
        grid = (count, rows, columns)
        at = [reshape(expand(unsqueeze(v, (a,)), grid), (count, rows * columns)) for v, a in ((y, 2), (z, 1))]
        corner = reshape(gathered(image, at, (height, width)), shape)
        weight = ops.Mul(unsqueeze(y_weight, (2,)), unsqueeze(z_weight, (1,)))
        term = ops.Mul(corner, cast(unsqueeze(weight, (1,)), x.type.dtype))
        joined = ops.Add if mode == "avg" else ops.Max
        best = term if best is None else joined(best, term)
    assert best is not None
    split = (count, channels, output_height, sampling_ratio, output_width, sampling_ratio)
    reduction = ops.ReduceMean if mode == "avg" else ops.ReduceMax
    return reduction(reshape(best, split), axes=(3, 5), keepdims=False)


def _edged(place: Value, size: int) -> list[tuple[Value, Value]]:
    """The two neighbours of each place and their weights; outside [-1, size] both weights are 0."""
    outside = ops.Or(ops.Less(place, like(place, -1)), ops.Less(like(place, size), place))
    place = _clip(place, 0, size - 1)
    low = ops.Floor(place)
    fraction = ops.Sub(place, low)
    zero = like(place, 0)
    lower = ops.Where(outside, zero, ops.Sub(like(place, 1), fraction))
    return [(low, lower), (_plus(low, 1), ops.Where(outside, zero, fraction))]


@translates("DeformConv", since=19)
def deform_conv(
    x: Value,
    w: Value,
    offset: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    dilations: tuple[int, ...] | None = None,
    group: int,
    kernel_shape: tuple[int, ...] | None = None,
    offset_group: int,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """A convolution whose taps are moved by ``offset`` and scaled by ``mask``: bilinear samples, then a product."""
    if len(x.shape) != 4 or len(w.shape) != 4:
        raise ValueError("[N, C, H, W] and [M, C/group, kH, kW] expected")
    n, c, *spatial = x.shape
    win = windows(spatial, w.shape[2:], strides, pads, dilations, "NOTSET")
    taps, places = math.prod(win.kernel), math.prod(win.out)
    if group < 1 or offset_group < 1 or c % group or c % offset_group or w.shape[1] * group != c or w.shape[0] % group:
        raise ValueError(f"group={group}, offset_group={offset_group} and {c} channels")
    if offset.shape != (n, offset_group * taps * 2, *win.out):
        raise ValueError(f"offsets {[n, offset_group * taps * 2, *win.out]} expected, {offset.type} given")
    checked_size(taps * places, 16)
    moved = reshape(offset, (n * offset_group, taps, 2, places))
    at = []
    for axis in range(2):
        tap = np.arange(win.kernel[axis]) * win.dilations[axis]
        place = np.arange(win.out[axis]) * win.strides[axis] - win.begin(axis)
        shape = [1, 1, 1, 1]
        shape[axis], shape[2 + axis] = win.kernel[axis], win.out[axis]
        regular = np.add.outer(tap, place).reshape(shape)
        regular = np.broadcast_to(regular, (*win.kernel, *win.out)).reshape(taps, places)
        delta = squeeze(part(moved, 2, axis, 1), (2,))
        here = ops.Add(delta, constant(regular.astype(x.type.dtype.numpy)))
        at.append(_clip(reshape(here, (n * offset_group, taps * places)), -4, spatial[axis] + 3))
    image = reshape(x, (n * offset_group, c // offset_group, math.prod(spatial)))
    bases = [ops.Floor(p) for p in at]
    total: Value | None = None
    for corner in itertools.product(*(_linear_weights(ops.Sub(p, b)) for p, b in zip(at, bases, strict=True))):
        spot = [_plus(base, step) for base, (step, _) in zip(bases, corner, strict=True)]
        weight = ops.Mul(corner[0][1], corner[1][1])
        weight = ops.Where(inside(spot, spatial), weight, like(weight, 0))
        term = ops.Mul(gathered(image, spot, spatial), unsqueeze(weight, (1,)))
        total = term if total is None else ops.Add(total, term)
    assert total is not None
    if mask is not None:
        if mask.shape != (n, offset_group * taps, *win.out):
            raise ValueError(f"a mask {[n, offset_group * taps, *win.out]} expected, {mask.type} given")
        total = ops.Mul(total, reshape(mask, (n * offset_group, 1, taps * places)))
    columns = reshape(total, (n, group, c // group * taps, places))
    weights = reshape(w, (group, w.shape[0] // group, c // group * taps))
    return with_bias(reshape(ops.MatMul(weights, columns), (n, w.shape[0], *win.out)), bias)
