"""Translators of Resize and Upsample: scales and sizes resolved for every axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.frontend.onnx.compose import axes_of, ints, static
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value
from gpucomp.ir.size import Size

LIMIT = 1 << 40


def _scaled(x: Value, scales: Sequence[float]) -> tuple[int, ...]:
    if len(scales) != len(x.shape) or any(not math.isfinite(s) or s <= 0 for s in scales):
        raise ValueError(f"{len(x.shape)} scales above 0 expected, got {list(scales)[:16]}")
    sizes = tuple(math.floor(d * s) for d, s in zip(x.shape, scales, strict=True))
    if any(d > LIMIT for d in sizes):
        raise ValueError(
            f"the result would have the shape {list(sizes)}, with more than {LIMIT} elements along an axis"
        )
    return sizes


def _simple(x: Value, scales: Sequence[float], mode: str) -> Value:
    """Upsample and the first version of Resize: position i is at i / scale, rounded down for ``nearest``."""
    return ops.Resize(
        x,
        sizes=_scaled(x, scales),
        scales=tuple(scales),
        mode={"bilinear": "linear"}.get(mode, mode),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@translates("Upsample")
def upsample_attribute(x: Value, *, scales: tuple[float, ...], mode: str) -> Value:
    return _simple(x, scales, mode)


@translates("Upsample", since=9)
@translates("Resize", since=10)
def upsample(x: Value, scales: Value, *, mode: str) -> Value:
    return _simple(x, _floats(scales, "scales"), mode)


def _floats(value: Value, what: str) -> tuple[float, ...]:
    return tuple(float(v) for v in static(value, what).astype(np.float64).reshape(-1))


POLICIES = ("stretch", "not_larger", "not_smaller")


@translates("Resize", since=11)
def resize(
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    antialias: int = 0,
    axes: tuple[int, ...] | None = None,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    extrapolation_value: float,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str,
    nearest_mode: str,
) -> Value:
    rank = len(x.shape)
    places = axes_of(range(rank) if axes is None else axes, rank)
    given_scales = () if scales is None or not scales.type.size else _floats(scales, "scales")
    given_sizes = () if sizes is None or not sizes.type.size else ints(sizes, "sizes")
    if bool(given_scales) == bool(given_sizes):
        raise ValueError("either scales or sizes expected")
    if len(given_scales or given_sizes) != len(places):
        raise ValueError(f"{len(places)} scales or sizes expected, got {len(given_scales or given_sizes)}")
    if keep_aspect_ratio_policy not in POLICIES:
        raise ValueError(
            f"keep_aspect_ratio_policy {keep_aspect_ratio_policy!r}: one of {', '.join(POLICIES)} expected"
        )
    full_scales: list[float | None] = [1.0] * rank
    full_sizes = list(x.shape)
    if given_scales:
        for axis, scale in zip(places, given_scales, strict=True):
            full_scales[axis] = scale
        full_sizes = list(_scaled(x, [s for s in full_scales if s is not None]))
    else:
        _resolve_sizes(x, places, given_sizes, keep_aspect_ratio_policy, full_scales, full_sizes)
    corners: list[float] = []
    if coordinate_transformation_mode == "tf_crop_and_resize":
        if roi is None:
            raise ValueError("tf_crop_and_resize needs a roi")
        given = _floats(roi, "roi")
        if len(given) != 2 * len(places):
            raise ValueError(f"a roi of {2 * len(places)} numbers expected")
        corners = [0.0] * rank + [1.0] * rank
        for k, axis in enumerate(places):
            corners[axis], corners[rank + axis] = given[k], given[len(places) + k]
    return ops.Resize(
        x,
        sizes=tuple(full_sizes),
        scales=tuple(full_scales),
        mode=mode,
        coordinate_transformation_mode=coordinate_transformation_mode,
        nearest_mode=nearest_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=bool(exclude_outside),
        extrapolation_value=extrapolation_value,
        antialias=bool(antialias),
        roi=tuple(corners),
    )


def _ratio(size: Any, extent: Any) -> float | None:
    """``size / extent``; ``None`` if each run decides it."""
    try:
        ratio = size / extent
    except ValueError:  # no formula
        return None
    return None if isinstance(ratio, Size) else float(ratio)


def _resolve_sizes(
    x: Value, places: Sequence[int], wanted: Sequence[int], policy: str, scales: list[float | None], sizes: list[int]
) -> None:
    """Fill in ``scales`` and ``sizes``. Except for ``stretch``, a policy has one scale for all of ``places``."""
    if any(not 0 <= s <= LIMIT for s in wanted):
        raise ValueError(f"sizes from 0 to {LIMIT} expected, {list(wanted)} given")
    if any(x.shape[axis] == 0 for axis in places):
        raise ValueError(f"an axis of {x.type} has no elements")
    if policy != "stretch":
        ratios = [size / x.shape[axis] for size, axis in zip(wanted, places, strict=True)]
        scale = min(ratios) if policy == "not_larger" else max(ratios)
        wanted = [math.floor(x.shape[axis] * scale + 0.5) for axis in places]
        for axis in places:
            scales[axis] = scale
    for axis, size in zip(places, wanted, strict=True):
        sizes[axis] = size
        if policy == "stretch":
            scales[axis] = _ratio(size, x.shape[axis])
