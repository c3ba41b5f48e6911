"""Resize with exact coordinates: positions are quotients of integers, so rounding cannot select a wrong neighbour.

In all of ONNX's modes, output position i is at ``(a*i + b) / d`` of the input, with integers a, b and d. Its floor and
remainder are index arithmetic; only the weights, remainder / d, are floating point.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from gpucomp.expr.core import (
    Algorithm,
    Expr,
    Var,
    axes_of,
    both,
    call,
    cast,
    literal,
    load,
    reduce,
    select,
    var,
)
from gpucomp.ir.size import Size, hint, same
from gpucomp.ir.types import F32, DType, TensorType
from gpucomp.lazy_dataclass import dataclass
from gpucomp.ops.registry import compute_type, expect, op

MODES = ("nearest", "linear", "cubic")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)


@dataclass(frozen=True, slots=True)
class _Place:
    """Output position ``i`` is at ``(a*i + b) / d`` of an input axis of ``extent``; ``scale`` is output over input."""

    a: int
    b: int
    d: int
    extent: int
    scale: Fraction

    @property
    def is_identity(self) -> bool:
        return (self.a, self.b, self.d) == (1, 0, 1)

    def numerator(self, i: Expr) -> Expr:
        return i * self.a + self.b

    def at(self, i: int) -> Fraction:
        return Fraction(self.a * i + self.b, self.d)


def _open_place(extent: Any, size: Any, mode: str) -> _Place:
    """As ``_place``, for a scale of ``size / extent`` that each run decides."""
    if mode == "tf_crop_and_resize":
        raise ValueError("sizes that a run decides are not supported with tf_crop_and_resize")
    scale = Fraction(hint(size)) / Fraction(hint(extent))
    if mode == "align_corners":
        slope = (0, 1) if size == 1 else (extent - 1, size - 1)
        return _Place(slope[0], 0, slope[1], extent, scale)
    if mode == "asymmetric":
        return _Place(extent, 0, size, extent, scale)
    if mode == "pytorch_half_pixel" and size == 1:
        return _Place(0, -1, 2, extent, scale)
    return _Place(2 * extent, extent - size, 2 * size, extent, scale)


def _place(extent: int, size: int, scale: float | None, mode: str, roi: tuple[float, float]) -> _Place:
    if isinstance(extent, Size) and scale in (None, 1) and same(size, extent) and _is_whole(mode, roi):
        return _Place(1, 0, 1, extent, Fraction(1))
    if scale is None:
        return _open_place(extent, size, mode)
    if isinstance(extent, Size):  # a scale that is the same in every run
        if mode not in ("asymmetric", "half_pixel"):
            return _open_place(extent, size, mode)
        inverse = 1 / Fraction(scale)
        slope, offset = inverse, Fraction(0) if mode == "asymmetric" else inverse / 2 - Fraction(1, 2)
        d = math.lcm(slope.denominator, offset.denominator)
        return _Place(int(slope * d), int(offset * d), d, extent, Fraction(scale))
    ratio = Fraction(size, extent) if extent and _is_close(scale, size / extent) else Fraction(scale)
    length = ratio * extent
    inverse = 1 / ratio
    if mode == "align_corners":
        slope, offset = (Fraction(0) if length == 1 else (extent - 1) / (length - 1)), Fraction(0)
    elif mode == "asymmetric":
        slope, offset = inverse, Fraction(0)
    elif mode == "tf_crop_and_resize":
        start, end = Fraction(roi[0]), Fraction(roi[1])
        offset = start * (extent - 1)
        if length == 1:
            slope, offset = Fraction(0), offset + (end - start) * (extent - 1) / 2
        else:
            slope = (end - start) * (extent - 1) / (length - 1)
    elif mode == "pytorch_half_pixel" and length == 1:
        slope, offset = Fraction(0), Fraction(-1, 2)
    else:
        slope, offset = inverse, inverse / 2 - Fraction(1, 2)
        if mode == "half_pixel_symmetric":
            offset += Fraction(extent, 2) * (1 - size / length)
    d = math.lcm(slope.denominator, offset.denominator)
    place = _Place(int(slope * d), int(offset * d), d, extent, ratio)
    if max(abs(place.a) * max(size, 1), abs(place.b), d * max(extent, 1)) >= 1 << 61:
        raise ValueError(f"the scale {scale} or the roi {list(roi)} has too many digits for exact positions: round it")
    return place


def _is_whole(mode: str, roi: tuple[float, float]) -> bool:
    """Whether all of an axis is resized."""
    return mode != "tf_crop_and_resize" or roi == (0.0, 1.0)


def _is_close(scale: float, quotient: float) -> bool:
    """Whether ``scale`` is ``quotient`` rounded to f64 or f32."""
    return scale == quotient or scale == float(np.float32(quotient))


Ints = tuple[int, ...]
Floats = tuple[float, ...]
Scales = tuple[float | None, ...]  # ``None`` for ``sizes[d] / extent``, which each run decides


def _places(x: TensorType, sizes: Ints, scales: Scales, mode: str, roi: Floats) -> list[_Place]:
    return [
        _place(n, sizes[d], scales[d], mode, (roi[d], roi[x.rank + d]) if roi else (0.0, 1.0))
        for d, n in enumerate(x.shape)
    ]


@op("Resize")
def Resize(
    x: TensorType,
    *,
    sizes: Ints,
    scales: Scales,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    extrapolation_value: float = 0.0,
    antialias: bool = False,
    roi: Floats = (),
) -> TensorType:
    """ONNX's Resize with ``sizes`` and ``scales`` for every axis of ``x``. ``roi`` holds all starts, then all ends.

    A scale that is ``sizes[d] / extent`` rounded to f32 or f64 is replaced by the exact quotient.
    """
    if not len(sizes) == len(scales) == x.rank or len(roi) not in {0, 2 * x.rank}:
        raise ValueError(f"{x.rank} sizes and scales expected, got {len(sizes)} and {len(scales)}")
    for name, value, known in (
        ("mode", mode, MODES),
        ("coordinate_transformation_mode", coordinate_transformation_mode, COORDINATES),
        ("nearest_mode", nearest_mode, NEAREST),
    ):
        if value not in known:
            raise ValueError(f"{name} {' or '.join(known)} expected, got {value!r}")
    if any(s is not None and not (s > 0 and math.isfinite(s)) for s in scales) or any(s < 0 for s in sizes):
        raise ValueError(f"scales above 0 and sizes of at least 0 expected, got {list(scales)} and {list(sizes)}")
    if any(n == 0 and s > 0 for n, s in zip(x.shape, sizes, strict=True)):
        raise ValueError(f"one element or more along every axis expected, got {x}")
    if mode != "nearest":
        expect(x, "fiu")
    _places(x, sizes, scales, coordinate_transformation_mode, roi)
    return x.with_shape(sizes)


def _nearest(place: _Place, i: Expr, how: str) -> Expr:
    n, d = place.numerator(i), place.d
    if how == "floor":
        nearest = n // d
    elif how == "ceil":
        nearest = (n + (d - 1)) // d
    elif how == "round_prefer_ceil":
        nearest = (n * 2 + d) // (2 * d)
    else:
        nearest = (n * 2 + (d - 1)) // (2 * d)
    return _inside(nearest, place.extent)


def _inside(at: Expr, extent: int) -> Expr:
    return call("min", call("max", at, 0), extent - 1)


def _beyond_floor(place: _Place, n: Expr, kind: DType) -> Expr:
    """The part of the position ``n / d`` after its floor. A size that each run decides has no reciprocal as a formula."""
    rest = cast(n % place.d, kind)
    return rest / place.d if isinstance(place.d, Size) else rest * (1 / place.d)


def cubic_weight(distance: Expr, a: float) -> Expr:
    """Cubic convolution (Keys, 1981): one polynomial for distances up to 1, one for distances up to 2."""
    near = ((distance * (a + 2)) - (a + 3)) * distance * distance + 1
    far = ((distance * a - 5 * a) * distance + 8 * a) * distance - 4 * a
    return select(distance <= 1, near, select(distance < 2, far, 0))


def _first_tap(place: _Place, mode: str, antialias: bool) -> int:
    """The first tap: taps are ``first .. 1 - first`` from the floor of the place. Antialiased downscaling has more taps."""
    support = 2 if mode == "cubic" else 1
    scale = min(place.scale, Fraction(1)) if antialias else Fraction(1)
    return math.floor(-support / scale) + 1


@Resize.define("algorithm")
def _resize_algorithm(
    x: TensorType,
    *,
    sizes: Ints,
    scales: Scales,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    extrapolation_value: float = 0.0,
    antialias: bool = False,
    roi: Floats = (),
) -> Algorithm:
    places = _places(x, sizes, scales, coordinate_transformation_mode, roi)
    axes = axes_of(sizes)
    kind = compute_type(x.dtype) if x.dtype.is_float else F32
    guards: list[Expr] = []
    if coordinate_transformation_mode == "tf_crop_and_resize":
        for place, i in zip(places, axes, strict=True):
            n = place.numerator(i)
            guards += [n >= 0, n <= (place.extent - 1) * place.d]
    if mode == "nearest":
        at = [_nearest(place, i, nearest_mode) for place, i in zip(places, axes, strict=True)]
        return Algorithm(axes, _guarded(guards, load(0, at, x.dtype), extrapolation_value))
    if mode == "linear" and not antialias:
        body = _lerp(x, places, axes, kind, ())
    else:
        body = _weighted(x, places, axes, kind, mode, cubic_coeff_a, exclude_outside, antialias)
    return Algorithm(axes, _guarded(guards, _rounded(body, x.dtype), extrapolation_value))


def _guarded(guards: list[Expr], body: Expr, value: float) -> Expr:
    return select(both(guards), body, literal(value, body.dtype))


def _rounded(body: Expr, dtype: DType) -> Expr:
    return cast(body if dtype.is_float else call("round", body), dtype)


def _lerp(x: TensorType, places: list[_Place], axes: tuple[Var, ...], kind: DType, at: tuple[Expr, ...]) -> Expr:
    """Linear interpolation along the axes from ``len(at)`` on; ``at`` holds the indices of the earlier axes."""
    d = len(at)
    if d == x.rank:
        return cast(load(0, at, x.dtype), kind)
    place, i = places[d], axes[d]
    if place.is_identity:
        return _lerp(x, places, axes, kind, (*at, i))
    n = place.numerator(i)
    floor = n // place.d
    low = _lerp(x, places, axes, kind, (*at, _inside(floor, place.extent)))
    if place.d == 1:
        return low
    high = _lerp(x, places, axes, kind, (*at, _inside(floor + 1, place.extent)))
    weight = _beyond_floor(place, n, kind)
    return low * (1 - weight) + high * weight


def _weighted(
    x: TensorType,
    places: list[_Place],
    axes: tuple[Var, ...],
    kind: DType,
    mode: str,
    a: float,
    exclude_outside: bool,
    antialias: bool,
) -> Expr:
    """The sum of weight times element over all taps of all axes, divided by the sum of weights if that can differ from 1."""
    taps: list[Var] = []
    at: list[Expr] = []
    weight: Expr | None = None
    total: Expr | None = None
    for d, (place, i) in enumerate(zip(places, axes, strict=True)):
        if place.is_identity:
            at.append(i)
            continue
        first = _first_tap(place, mode, antialias)
        scale = float(min(place.scale, Fraction(1))) if antialias else 1.0
        n = place.numerator(i)

        def tap_weight(tap: Expr, place: _Place = place, n: Expr = n, first: int = first, scale: float = scale) -> Expr:
            offset = cast(tap + first, kind) - _beyond_floor(place, n, kind)
            distance = call("abs", offset if scale == 1 else offset * scale)
            value = cubic_weight(distance, a) if mode == "cubic" else call("max", 1 - distance, 0)
            if not exclude_outside:
                return value
            position = n // place.d + tap + first
            return select(call("and", position >= 0, position < place.extent), value, 0)

        tap = var(f"t{d}", 2 - 2 * first)
        taps.append(tap)
        at.append(_inside(n // place.d + tap + first, place.extent))
        factor = tap_weight(tap)
        weight = factor if weight is None else weight * factor
        if exclude_outside or antialias:
            other_tap = var(f"s{d}", tap.extent)
            partial = reduce("sum", (other_tap,), tap_weight(other_tap))
            total = partial if total is None else total * partial
    element = cast(load(0, at, x.dtype), kind)
    if weight is None:
        return element
    body = reduce("sum", taps, element * weight)
    return body if total is None else body / total


@Resize.define("reference")
def _resize_reference(
    x: np.ndarray,
    *,
    sizes: Ints,
    scales: Scales,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    extrapolation_value: float = 0.0,
    antialias: bool = False,
    roi: Floats = (),
) -> np.ndarray:
    """Resizes one axis after the other. Tables of taps and weights are computed with exact fractions."""
    result = x if mode == "nearest" else x.astype(np.float64)
    outside = np.zeros((), np.bool_)
    for d, extent in enumerate(x.shape):
        ends = (roi[d], roi[x.ndim + d]) if roi else (0.0, 1.0)
        place = _place(extent, sizes[d], scales[d], coordinate_transformation_mode, ends)
        spots = [place.at(i) for i in range(sizes[d])]
        if coordinate_transformation_mode == "tf_crop_and_resize":
            beyond = np.array([not 0 <= s <= extent - 1 for s in spots], np.bool_)
            outside = outside | beyond.reshape((-1,) + (1,) * (x.ndim - 1 - d))
        if mode == "nearest":
            result = np.take(result, [_nearest_of(s, extent, nearest_mode) for s in spots], axis=d)
            continue
        first = _first_tap(place, mode, antialias)
        shrink = float(min(place.scale, Fraction(1))) if antialias else 1.0
        floors = np.array([math.floor(s) for s in spots], np.int64)[:, None]
        fractions = np.array([float(s - math.floor(s)) for s in spots])[:, None]
        table = floors + np.arange(first, 2 - first)
        distance = np.abs(np.arange(first, 2 - first) - fractions) * shrink
        if mode == "linear":
            weights = np.maximum(1 - distance, 0)
        else:
            a = cubic_coeff_a
            near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
            far = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
            weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
        if exclude_outside and not (mode == "linear" and not antialias):
            weights = np.where((table >= 0) & (table < extent), weights, 0)
        if antialias or exclude_outside:
            weights = weights / weights.sum(axis=1, keepdims=True)
        elements = np.take(result, np.clip(table, 0, max(extent - 1, 0)), axis=d)
        result = (elements * weights.reshape((*weights.shape, *(1,) * (x.ndim - 1 - d)))).sum(axis=d + 1)
    if x.dtype.kind in "iu" and mode != "nearest":
        info = np.iinfo(x.dtype)
        result = np.clip(np.rint(result), info.min, info.max)
    result = result.astype(x.dtype)
    return np.where(outside, np.asarray(extrapolation_value).astype(x.dtype), result)


def _nearest_of(spot: Fraction, extent: int, how: str) -> int:
    half = Fraction(1, 2)
    nearest = {
        "floor": math.floor(spot),
        "ceil": math.ceil(spot),
        "round_prefer_floor": math.ceil(spot - half),
        "round_prefer_ceil": math.floor(spot + half),
    }[how]
    return min(max(nearest, 0), extent - 1)
