"""Sampling at positions that are data: GridSample, RoiAlign, DeformConv. Resizing to a fixed grid is in resize.py."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, axes_of, both, call, cast, index, load, reduce, select, var
from gpucomp.expr.simplify import flatten
from gpucomp.ir.size import Size
from gpucomp.ir.types import F32, I64, TensorType
from gpucomp.ops.contraction import Conv
from gpucomp.ops.indexing import clamped, clamped_array
from gpucomp.ops.registry import compute_type, expect, op
from gpucomp.ops.resize import cubic_weight

MODES = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "reflection")
CUBIC_A = -0.75
TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}


@op("GridSample")
def GridSample(
    x: TensorType, grid: TensorType, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: bool = False
) -> TensorType:
    """``x`` [N, C, *spatial] at the places in ``grid`` [N, *out, spatial axes]; result [N, C, *out].

    A place is -1 to 1 along each axis; the last axis of ``x`` comes first. With ``align_corners``, -1 and 1 are the
    centres of the outermost elements; without it, their outer edges.
    """
    rank = x.rank - 2
    expect(grid, "f")
    if mode not in MODES:
        raise ValueError(f"mode {' or '.join(MODES)} expected, got {mode!r}")
    if padding_mode not in PADDINGS:
        raise ValueError(f"padding_mode {' or '.join(PADDINGS)} expected, got {padding_mode!r}")
    if rank < 1 or grid.rank != x.rank or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
        raise ValueError(f"a grid [{x.shape[0]}, ..., {max(rank, 1)}] of rank {x.rank} expected, got {grid}")
    if mode != "nearest":
        expect(x, "f")
    if 0 in x.shape[2:] and grid.size:
        raise ValueError(f"one element or more along every axis expected, got {x}")
    return x.with_shape((*x.shape[:2], *grid.shape[1:-1]))


@GridSample.define("algorithm")
def _grid_sample_algorithm(
    x: TensorType, grid: TensorType, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: bool = False
) -> Algorithm:
    spatial = x.shape[2:]
    axes = axes_of((*x.shape[:2], *grid.shape[1:-1]))
    kind = compute_type(x.dtype) if x.dtype.is_float else F32
    places = []
    for d, extent in enumerate(spatial):
        at = (axes[0], *axes[2:], index(len(spatial) - 1 - d))
        place = _denormalised(cast(load(1, at, grid.dtype), kind), extent, align_corners)
        place = call("round", place) if mode == "nearest" else place
        places.append(_padded(place, extent, mode, padding_mode, align_corners))

    def element(at: Sequence[Expr]) -> Expr:
        inside: list[Expr] = []
        found = []
        for i, extent in zip(at, spatial, strict=True):
            if padding_mode == "zeros":
                inside += [i >= 0, i < extent]
            found.append(i if padding_mode == "zeros" else _continued(i, extent, padding_mode, align_corners))
        value = load(0, (*axes[:2], *found), x.dtype)
        return select(both(inside), value if mode == "nearest" else cast(value, kind), 0)

    floors = [cast(call("floor", place), I64) for place in places]
    if mode == "nearest":
        return Algorithm(axes, element(floors))
    fractions = [place - call("floor", place) for place in places]
    if mode == "linear":
        return Algorithm(axes, cast(lerp(element, floors, [f + 1 for f in floors], fractions), x.dtype))
    taps = axes_of((4,) * len(spatial), "t")
    body = element([f + t - 1 for f, t in zip(floors, taps, strict=True)])
    for tap, fraction in zip(taps, fractions, strict=True):
        body = body * cubic_weight(call("abs", cast(tap - 1, kind) - fraction), CUBIC_A)
    return Algorithm(axes, cast(reduce("sum", taps, body), x.dtype))


def lerp(
    element: Callable[[Sequence[Expr]], Expr],
    lows: Sequence[Expr],
    highs: Sequence[Expr],
    weights: Sequence[Expr],
    at: tuple[Expr, ...] = (),
) -> Expr:
    """Linear interpolation of ``element`` between ``lows`` and ``highs``; ``weights`` are the weights of ``highs``."""
    d = len(at)
    if d == len(lows):
        return element(at)
    low = lerp(element, lows, highs, weights, (*at, lows[d]))
    high = lerp(element, lows, highs, weights, (*at, highs[d]))
    return low * (1 - weights[d]) + high * weights[d]


def _denormalised(place: Expr, extent: int, align_corners: bool) -> Expr:
    return (place + 1) * (0.5 * (extent - 1)) if align_corners else ((place + 1) * extent - 1) * 0.5


def _borders(extent: int, align_corners: bool) -> tuple[float, float]:
    return (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)


def _padded(place: Expr, extent: int, mode: str, padding_mode: str, align_corners: bool) -> Expr:
    """``place``, moved inside the borders if the padding mode asks for it.

    With cubic interpolation and padding border, the place stays and each of its four elements is clamped separately, as
    in torch and onnxruntime. ONNX's evaluator moves the place, which is right for the other modes only.
    """
    low, high = _borders(extent, align_corners)
    if padding_mode == "zeros" or (mode == "cubic" and padding_mode == "border"):
        # far outside, all places are the same: the bounds keep the conversion to an integer in range
        return call("min", call("max", place, -4), extent + 4)
    outside = call("or", place < low, place > high)
    if padding_mode == "border":
        return select(outside, call("min", call("max", place, 0), extent - 1), place)
    if high == low:
        return select(outside, place * 0, place)
    period = 2 * (high - low)
    phase = place - low
    phase = phase - call("floor", (phase / period if isinstance(period, Size) else phase * (1 / period))) * period
    return select(outside, call("min", phase, period - phase) + low, place)


def _continued(i: Expr, extent: int, padding_mode: str, align_corners: bool) -> Expr:
    """The index of the element that replaces element ``i``, which may be outside."""
    if padding_mode == "reflection" and extent > 1:
        if align_corners:
            phase = i % (2 * (extent - 1))
            return call("min", phase, 2 * (extent - 1) - phase)
        phase = i % (2 * extent)
        return call("min", phase, 2 * extent - 1 - phase)
    return call("min", call("max", i, 0), extent - 1)


@GridSample.define("reference")
def _grid_sample_reference(
    x: np.ndarray, grid: np.ndarray, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: bool = False
) -> np.ndarray:
    spatial = x.shape[2:]
    rank = len(spatial)
    result = np.zeros((x.shape[0], *grid.shape[1:-1], x.shape[1]), x.dtype if mode == "nearest" else np.float64)
    batch = np.arange(x.shape[0]).reshape((-1,) + (1,) * rank)
    last = np.moveaxis(x, 1, -1)
    places = []
    for d, extent in enumerate(spatial):
        low, high = _borders(extent, align_corners)
        place = low + (grid[..., rank - 1 - d].astype(np.float64) + 1) / 2 * (high - low)
        place = np.rint(place) if mode == "nearest" else place
        if padding_mode == "border" and mode != "cubic":
            place = np.where((place < low) | (place > high), np.clip(place, 0, extent - 1), place)
        places.append(_mirror(place, low, high) if padding_mode == "reflection" else place)
    for taps in itertools.product(TAPS[mode], repeat=rank):
        weight, inside, at = np.ones(batch.shape), np.ones((), bool), [batch]
        for d, (tap, extent) in enumerate(zip(taps, spatial, strict=True)):
            number = np.floor(places[d]) + tap
            distance = np.abs(number - places[d])
            if mode == "linear":
                weight = weight * (1 - distance)
            elif mode == "cubic":
                a = CUBIC_A
                near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
                far = a * (distance**3 - 5 * distance**2 + 8 * distance - 4)
                weight = weight * np.where(distance <= 1, near, far)
            if padding_mode == "zeros":
                inside = inside & (number >= 0) & (number < extent)
            if padding_mode == "reflection":
                number = _mirror(number, *_borders(extent, align_corners))
            at.append(np.clip(number, 0, extent - 1).astype(np.int64))
        value = np.where(inside[..., None], last[tuple(at)], np.zeros((), x.dtype))
        result = value if mode == "nearest" else result + weight[..., None] * value
    return np.moveaxis(result, -1, 1).astype(x.dtype)


def _mirror(place: np.ndarray, low: float, high: float) -> np.ndarray:
    """``place`` mirrored at ``low`` and ``high`` until it lies between them."""
    place = place.copy()
    if high == low:
        return np.full_like(place, low)
    while ((place < low) | (place > high)).any():
        place = np.where(place < low, 2 * low - place, place)
        place = np.where(place > high, 2 * high - place, place)
    return place


@op("RoiAlign")
def RoiAlign(
    x: TensorType,
    rois: TensorType,
    batch_indices: TensorType,
    *,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float = 1.0,
    mode: str = "avg",
    coordinate_transformation_mode: str = "half_pixel",
) -> TensorType:
    """Each region of interest pooled to [output_height, output_width]: ``x`` [N, C, H, W], ``rois`` [R, 4] as x1 y1 x2
    y2, result [R, C, output_height, output_width].

    Each bin is the average of ``sampling_ratio`` x ``sampling_ratio`` bilinear samples. In mode max it is the greatest
    weighted corner, as in ONNX. A number of samples that depends on the region (ratio 0) is refused.
    """
    expect(x, "f")
    expect(batch_indices, "iu")
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 4 or batch_indices.shape != rois.shape[:1]:
        raise ValueError(f"x of rank 4, rois [R, 4] and batch_indices [R] expected, got {rois} and {batch_indices}")
    if rois.dtype is not x.dtype:
        raise ValueError(f"rois of {x.dtype} expected, got {rois.dtype}")
    if sampling_ratio < 1 or output_height < 1 or output_width < 1:
        raise ValueError(f"a sampling_ratio and output sizes of at least 1 expected, got {sampling_ratio}")
    if mode not in {"avg", "max"}:
        raise ValueError(f"mode avg or max expected, got {mode!r}")
    if coordinate_transformation_mode not in {"half_pixel", "output_half_pixel"}:
        raise ValueError(f"half_pixel or output_half_pixel expected, got {coordinate_transformation_mode!r}")
    if rois.shape[0] and (0 in x.shape[2:] or x.shape[0] == 0):
        raise ValueError(f"one element or more along every axis expected, got {x}")
    return x.with_shape((rois.shape[0], x.shape[1], output_height, output_width))


@RoiAlign.define("algorithm")
def _roi_align_algorithm(
    x: TensorType,
    rois: TensorType,
    batch_indices: TensorType,
    *,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float = 1.0,
    mode: str = "avg",
    coordinate_transformation_mode: str = "half_pixel",
) -> Algorithm:
    axes = axes_of((rois.shape[0], x.shape[1], output_height, output_width))
    kind = compute_type(x.dtype)
    region, channel = axes[:2]
    image = clamped(load(2, (region,), batch_indices.dtype), x.shape[0])
    samples = (var("sy", sampling_ratio), var("sx", sampling_ratio))
    half = coordinate_transformation_mode == "half_pixel"
    inside: list[Expr] = []
    lows, highs, weights = [], [], []
    for d, (extent, bins) in enumerate(((x.shape[2], output_height), (x.shape[3], output_width))):
        start, end = (
            cast(load(1, (region, index(k)), rois.dtype), kind) * spatial_scale - (0.5 if half else 0.0)
            for k in (1 - d, 3 - d)
        )
        span = end - start if half else call("max", end - start, 1)
        size = span * (1 / bins)
        step = (cast(samples[d], kind) + 0.5) * (1 / sampling_ratio)
        place = start + (cast(axes[2 + d], kind) + step) * size
        inside += [place >= -1, place <= extent]
        bounded = call("min", call("max", place, 0), extent - 1)
        floor = call("floor", bounded)
        low = cast(floor, I64)
        lows.append(low)
        highs.append(call("min", low + 1, extent - 1))
        weights.append(bounded - floor)

    def element(at: Sequence[Expr]) -> Expr:
        return cast(load(0, (image, channel, *at), x.dtype), kind)

    if mode == "avg":
        sample = select(both(inside), lerp(element, lows, highs, weights), 0)
        body = reduce("sum", samples, sample) * (1 / sampling_ratio**2)
        return Algorithm(axes, cast(body, x.dtype))
    best: Expr | None = None
    for corner in itertools.product((0, 1), repeat=2):
        value = element([(highs if c else lows)[d] for d, c in enumerate(corner)])
        for d, c in enumerate(corner):
            value = value * (weights[d] if c else 1 - weights[d])
        best = value if best is None else call("max", best, value)
    assert best is not None
    return Algorithm(axes, cast(reduce("max", samples, select(both(inside), best, 0)), x.dtype))


@RoiAlign.define("reference")
def _roi_align_reference(
    x: np.ndarray,
    rois: np.ndarray,
    batch_indices: np.ndarray,
    *,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float = 1.0,
    mode: str = "avg",
    coordinate_transformation_mode: str = "half_pixel",
) -> np.ndarray:
    result = np.zeros((len(rois), x.shape[1], output_height, output_width))
    half = coordinate_transformation_mode == "half_pixel"
    pictures = x.astype(np.float64)[clamped_array(batch_indices, x.shape[0])] if len(rois) else x
    for number, box in enumerate(rois.astype(np.float64) * spatial_scale - (0.5 if half else 0.0)):
        extents, bins = x.shape[2:], (output_height, output_width)
        spans = [box[3 - d] - box[1 - d] if half else max(box[3 - d] - box[1 - d], 1.0) for d in range(2)]
        for at in np.ndindex(output_height, output_width):
            sampled = []
            for sample in np.ndindex(sampling_ratio, sampling_ratio):
                spot = [box[1 - d] + (at[d] + (sample[d] + 0.5) / sampling_ratio) * spans[d] / bins[d] for d in (0, 1)]
                corners = np.zeros((4, x.shape[1]))
                if all(-1 <= s <= n for s, n in zip(spot, extents, strict=True)):
                    spot = [min(max(s, 0.0), n - 1.0) for s, n in zip(spot, extents, strict=True)]
                    y, z = (int(s) for s in spot)
                    v, w = spot[0] - y, spot[1] - z
                    y1, z1 = min(y + 1, extents[0] - 1), min(z + 1, extents[1] - 1)
                    picture = pictures[number]
                    corners[0] = picture[:, y, z] * (1 - v) * (1 - w)
                    corners[1] = picture[:, y, z1] * (1 - v) * w
                    corners[2] = picture[:, y1, z] * v * (1 - w)
                    corners[3] = picture[:, y1, z1] * v * w
                sampled.append(corners.sum(0) if mode == "avg" else corners.max(0))
            result[(number, slice(None), *at)] = np.mean(sampled, 0) if mode == "avg" else np.max(sampled, 0)
    return result.astype(x.dtype)


@op("DeformConv")
def DeformConv(
    x: TensorType,
    w: TensorType,
    offset: TensorType,
    mask: TensorType,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    offset_group: int = 1,
) -> TensorType:
    """Convolution without bias. Its taps are moved by ``offset`` and weighted by ``mask``, both per place and tap.

    x [N, C, *spatial], w [OC, C/group, *kernel], offset [N, offset_group * taps * spatial axes, *out] with the spatial
    axis innermost, mask [N, offset_group * taps, *out]; result [N, OC, *out]. Elements outside ``x`` are zero.
    """
    result = Conv.type_rule(x, w, strides=strides, pads=pads, dilations=dilations, group=group)
    assert isinstance(result, TensorType)
    expect(x, "f")
    if any(t.dtype is not x.dtype for t in (offset, mask)):
        raise ValueError(f"offset and mask of {x.dtype} expected, got {offset} and {mask}")
    if offset_group < 1 or x.shape[1] % offset_group:
        raise ValueError(f"an offset_group that divides {x.shape[1]} channels expected, got {offset_group}")
    taps, out = offset_group * math.prod(w.shape[2:]), result.shape[2:]
    expected = (x.shape[0], taps * len(out), *out), (x.shape[0], taps, *out)
    if (offset.shape, mask.shape) != expected:
        raise ValueError(f"offset {list(expected[0])} and mask {list(expected[1])} expected, got {offset} and {mask}")
    return result


@DeformConv.define("algorithm")
def _deform_conv_algorithm(
    x: TensorType,
    w: TensorType,
    offset: TensorType,
    mask: TensorType,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    offset_group: int = 1,
) -> Algorithm:
    spatial, kernel = x.shape[2:], w.shape[2:]
    axes = axes_of((x.shape[0], w.shape[0], *mask.shape[2:]))
    image, column, place = axes[0], axes[1], axes[2:]
    kind = compute_type(x.dtype)
    taps, c = axes_of(kernel, "r"), var("c", w.shape[1])
    channel = call("floordiv", column, w.shape[0] // group) * w.shape[1] + c if group > 1 else c
    # number of the moved tap: offset group, then taps in row-major order
    number = flatten((call("floordiv", channel, x.shape[1] // offset_group), *taps), (offset_group, *kernel))
    lows, weights = [], []
    for d, extent in enumerate(spatial):
        moved = cast(load(2, (image, number * len(spatial) + d, *place), offset.dtype), kind)
        moved = moved + cast(place[d] * strides[d] - pads[d] + taps[d] * dilations[d], kind)
        moved = _padded(moved, extent, "linear", "zeros", False)
        lows.append(cast(call("floor", moved), I64))
        weights.append(moved - call("floor", moved))

    def element(at: Sequence[Expr]) -> Expr:
        inside = both(test for i, n in zip(at, spatial, strict=True) for test in (i >= 0, i < n))
        return select(inside, cast(load(0, (image, channel, *at), x.dtype), kind), 0)

    sample = lerp(element, lows, [low + 1 for low in lows], weights)
    weight = cast(load(1, (column, c, *taps), w.dtype), kind) * cast(load(3, (image, number, *place), mask.dtype), kind)
    return Algorithm(axes, cast(reduce("sum", (*taps, c), sample * weight), x.dtype))


@DeformConv.define("reference")
def _deform_conv_reference(
    x: np.ndarray,
    w: np.ndarray,
    offset: np.ndarray,
    mask: np.ndarray,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    offset_group: int = 1,
) -> np.ndarray:
    """Computes one tap after the other: samples the whole input, then multiplies by the tap's weights."""
    spatial, kernel, out = x.shape[2:], w.shape[2:], mask.shape[2:]
    n, channels, rank = x.shape[0], x.shape[1], len(spatial)
    wide = [a.astype(np.float64) for a in (x, w, offset, mask)]
    moves = wide[2].reshape((n, offset_group, *kernel, rank, *out))
    masks = wide[3].reshape((n, offset_group, *kernel, *out))
    margin = np.pad(wide[0], [(0, 0), (0, 0), *((1, 1),) * rank])  # a frame of zeros, for all elements outside
    weights = wide[1].reshape((group, w.shape[0] // group, *w.shape[1:]))
    grid = np.meshgrid(*(np.arange(size) for size in out), indexing="ij")
    result = np.zeros((n, group, w.shape[0] // group, *out))
    for tap in np.ndindex(*kernel):
        sampled = np.zeros((n, channels, *out))
        for image, channel in np.ndindex(n, channels):
            g = channel // (channels // offset_group)
            spots = [
                grid[d] * strides[d] - pads[d] + tap[d] * dilations[d] + moves[(image, g, *tap, d)] for d in range(rank)
            ]
            for corner in itertools.product((0, 1), repeat=rank):
                at = [np.floor(s) + c for s, c in zip(spots, corner, strict=True)]
                share = math.prod(1 - np.abs(s - a) for s, a in zip(spots, at, strict=True))
                inner = tuple(np.clip(a + 1, 0, e + 1).astype(int) for a, e in zip(at, spatial, strict=True))
                sampled[image, channel] += share * margin[(image, channel, *inner)]
            sampled[image, channel] *= masks[(image, g, *tap)]
        parts = sampled.reshape((n, group, channels // group, *out))
        result += np.einsum("ngc...,gmc->ngm...", parts, weights[(..., *tap)])
    return result.reshape((n, w.shape[0], *out)).astype(x.dtype)
