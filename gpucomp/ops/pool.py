"""Pooling over windows: MaxPool, MaxPoolIndices, AveragePool. Global pools are reductions (reduction.py)."""

from __future__ import annotations

import math

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, Var, axes_of, both, call, cast, identity_of, index, load, reduce, select
from gpucomp.expr.simplify import flatten, unflatten
from gpucomp.ir.size import Size, at_most, below
from gpucomp.ir.types import I64, TensorType, dtype_of
from gpucomp.ops.registry import compute_type, expect, op

Ints = tuple[int, ...]


def _check(
    x: TensorType, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints, layout: str, out: Ints
) -> TensorType:
    rank = x.rank - 2
    if layout not in {"NCHW", "NHWC"}:
        raise ValueError(f"layout NCHW or NHWC expected, got {layout!r}")
    if rank < 1 or not len(kernel) == len(strides) == len(dilations) == len(out) == rank or len(pads) != 2 * rank:
        raise ValueError(
            f"kernel_shape, strides and dilations of {max(rank, 0)} numbers and pads of {2 * max(rank, 0)} expected for {x}, "
            f"got {list(kernel)}, {list(strides)}, {list(dilations)} and {list(pads)}"
        )
    if any(v < 1 for v in (*kernel, *strides, *dilations)) or any(v < 0 for v in (*pads, *out)):
        raise ValueError("kernel, strides and dilations of at least 1, and pads and out of at least 0 expected")
    if layout == "NCHW":
        return x.with_shape((*x.shape[:2], *out))
    return x.with_shape((x.shape[0], *out, x.shape[-1]))


class _Window:
    """The windows of a pool as expressions: ``taps`` to reduce over, ``source`` to load, ``inside`` to guard it."""

    def __init__(
        self,
        x: TensorType,
        kernel: Ints,
        strides: Ints,
        pads: Ints,
        dilations: Ints,
        layout: str,
        out: Ints,
        axes: tuple[Var, ...] | None = None,
    ) -> None:
        self.axes = axes or axes_of(_check(x, kernel, strides, pads, dilations, layout, out).shape)
        nchw = layout == "NCHW"
        self.spatial = x.shape[2:] if nchw else x.shape[1:-1]
        self.places: tuple[Var, ...] = self.axes[2:] if nchw else self.axes[1:-1]
        self.taps = axes_of(kernel, "r")
        at: list[Expr] = []
        guards: list[Expr] = []
        for d, (place, tap) in enumerate(zip(self.places, self.taps, strict=True)):
            position = place * strides[d] - pads[d] + tap * dilations[d]
            at.append(position)
            if pads[d] > 0:
                guards.append(position >= 0)
            if (out[d] - 1) * strides[d] - pads[d] + (kernel[d] - 1) * dilations[d] >= self.spatial[d]:
                guards.append(position < self.spatial[d])
        self.source = (*self.axes[:2], *at) if nchw else (self.axes[0], *at, self.axes[-1])
        self.inside = both(guards)


def _windows(
    x: np.ndarray, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints, layout: str, out: Ints, fill: object
) -> np.ndarray:
    """The windows of x as [N, C, *out, *kernel], with ``fill`` outside of x."""
    x = np.moveaxis(x, -1, 1) if layout == "NHWC" else x
    for d in range(len(kernel)):
        places = np.arange(out[d])[:, None] * strides[d] - pads[d] + np.arange(kernel[d])[None, :] * dilations[d]
        inside = (places >= 0) & (places < x.shape[2 + 2 * d])
        axis = 2 + 2 * d
        if x.shape[axis] == 0:
            x = np.full((*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]), fill, x.dtype)
            continue
        taken = np.take(x, np.where(inside, places, 0), axis=axis)
        mask = inside.reshape((*inside.shape, *(1,) * (taken.ndim - axis - 2)))
        x = np.where(mask, taken, np.asarray(fill).astype(x.dtype))
    rank = len(kernel)
    order = (0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 2 + 2 * rank, 2))
    return np.transpose(x, order)


def _to_layout(x: np.ndarray, layout: str) -> np.ndarray:
    return np.moveaxis(x, 1, -1) if layout == "NHWC" else x


@op("MaxPool")
def MaxPool(
    x: TensorType, *, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints, out: Ints, layout: str = "NCHW"
) -> TensorType:
    """The greatest element of each window. ``out`` holds the result's spatial extents, so there is no ceil_mode.

    ``pads`` holds all begins, then all ends. The result of an empty window is the lowest number.
    """
    expect(x, "fiu")
    return _check(x, kernel, strides, pads, dilations, layout, out)


@MaxPool.define("reference")
def _max_pool_reference(
    x: np.ndarray, *, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints, out: Ints, layout: str = "NCHW"
) -> np.ndarray:
    lowest = identity_of("max", dtype_of(x.dtype))
    windows = _windows(x, kernel, strides, pads, dilations, layout, out, lowest)
    wide = windows.astype(np.float64) if x.dtype.kind == "V" else windows
    return _to_layout(wide.max(axis=tuple(range(wide.ndim - len(kernel), wide.ndim))).astype(x.dtype), layout)


@MaxPool.define("algorithm")
def _max_pool_algorithm(
    x: TensorType, *, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints, out: Ints, layout: str = "NCHW"
) -> Algorithm:
    window = _Window(x, kernel, strides, pads, dilations, layout, out)
    lowest = identity_of("max", x.dtype)
    element = select(window.inside, load(0, window.source, x.dtype), lowest)
    return Algorithm(window.axes, reduce("max", window.taps, element))


@op("MaxPoolIndices")
def MaxPoolIndices(
    x: TensorType,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    out: Ints,
    storage_order: int = 0,
) -> TensorType:
    """The offset in ``x`` (NCHW) of the element that MaxPool finds, as i64. NaN is greatest; the first of equals wins.

    ``storage_order`` 1 counts the spatial axes column-major, as in ONNX's MaxPool. The result of an empty window is -1.
    """
    expect(x, "fiu")
    return _check(x, kernel, strides, pads, dilations, "NCHW", out).with_dtype(I64)


@MaxPoolIndices.define("reference")
def _max_pool_indices_reference(
    x: np.ndarray,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    out: Ints,
    storage_order: int = 0,
) -> np.ndarray:
    rank = len(kernel)
    lowest = identity_of("max", dtype_of(x.dtype))
    windows = _windows(x, kernel, strides, pads, dilations, "NCHW", out, lowest)
    values = windows.reshape((*windows.shape[: 2 + rank], math.prod(kernel))).astype(np.float64)
    plane = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:], order="F" if storage_order else "C")
    numbers = plane + np.arange(math.prod(x.shape[:2])).reshape((*x.shape[:2], *(1,) * rank)) * plane.size
    offsets = _windows(numbers, kernel, strides, pads, dilations, "NCHW", out, -1).reshape(values.shape)
    values = np.where(offsets < 0, -np.inf, values)
    hits = (values == values.max(-1, keepdims=True)) | np.isnan(values)
    first = np.argmax(hits & (offsets >= 0), axis=-1)
    return np.take_along_axis(offsets, first[..., None], -1)[..., 0].astype(np.int64)


@MaxPoolIndices.define("algorithm")
def _max_pool_indices_algorithm(
    x: TensorType,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    out: Ints,
    storage_order: int = 0,
) -> Algorithm:
    window = _Window(x, kernel, strides, pads, dilations, "NCHW", out)
    lowest = identity_of("max", x.dtype)
    best = reduce("max", window.taps, select(window.inside, load(0, window.source, x.dtype), lowest))
    second = _Window(x, kernel, strides, pads, dilations, "NCHW", out, window.axes)
    element = load(0, second.source, x.dtype)
    hit = call("eq", element, best)
    if x.dtype.is_float:
        hit = call("or", hit, call("isnan", element))
    nowhere = x.size
    offset = select(second.inside, select(hit, flatten(second.source, x.shape), nowhere), nowhere)
    first = reduce("min", second.taps, offset)
    position = first
    if storage_order:
        at = unflatten(first, x.shape)
        position = flatten((*at[:2], *reversed(at[2:])), (*x.shape[:2], *reversed(x.shape[2:])))
    return Algorithm(window.axes, select(first < nowhere, position, index(-1)))


@op("AveragePool")
def AveragePool(
    x: TensorType,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    out: Ints,
    count_include_pad: bool = False,
    layout: str = "NCHW",
) -> TensorType:
    """The mean of each window over the elements in ``x``, or in the padded ``x`` with ``count_include_pad``.

    ``out`` holds the result's spatial extents; positions beyond the padding (ceil_mode) never count. The result of an
    empty window is 0.
    """
    expect(x, "f")
    return _check(x, kernel, strides, pads, dilations, layout, out)


@AveragePool.define("reference")
def _average_pool_reference(
    x: np.ndarray,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    out: Ints,
    count_include_pad: bool = False,
    layout: str = "NCHW",
) -> np.ndarray:
    rank = len(kernel)
    over = tuple(range(2 + rank, 2 + 2 * rank))
    total = _windows(x.astype(np.float64), kernel, strides, pads, dilations, layout, out, 0.0).sum(axis=over)
    spatial = x.shape[1:-1] if layout == "NHWC" else x.shape[2:]
    ones, begins = np.ones((1, 1, *spatial)), pads
    if count_include_pad:
        ones = np.ones((1, 1, *(n + pads[d] + pads[rank + d] for d, n in enumerate(spatial))))
        begins = (0,) * 2 * rank
    count = _windows(ones, kernel, strides, begins, dilations, "NCHW", out, 0.0).sum(axis=over)
    return _to_layout((total / np.maximum(count, 1)).astype(x.dtype), layout)


def _count(place: Expr, kernel: int, stride: int, dilation: int, first: int, end: int, out: int) -> Expr | int:
    """The number of taps of a window with ``first <= position < end``; its first position is ``place * stride``."""

    def taps(p: int) -> int:
        return sum(first <= p * stride + t * dilation < end for t in range(kernel))

    if isinstance(out, Size) or isinstance(end, Size):
        inside = at_most(first, 0) and below((out - 1) * stride + (kernel - 1) * dilation, end)
        distinct = {kernel} if inside else {0, kernel}
    else:
        distinct = {taps(p) for p in range(out)}
    if len(distinct) <= 1:
        return distinct.pop() if distinct else 0
    start = place * stride
    begin = call("max", (index(first) - start + (dilation - 1)) // dilation, 0)  # the first tap that is inside
    stop = call("min", (index(end) - start + (dilation - 1)) // dilation, kernel)
    count = stop - begin
    return call("max", count, 0) if min(distinct) == 0 else count


@AveragePool.define("algorithm")
def _average_pool_algorithm(
    x: TensorType,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    out: Ints,
    count_include_pad: bool = False,
    layout: str = "NCHW",
) -> Algorithm:
    window = _Window(x, kernel, strides, pads, dilations, layout, out)
    kind = compute_type(x.dtype)
    total = reduce("sum", window.taps, select(window.inside, cast(load(0, window.source, x.dtype), kind), 0))
    known, unknown = 1, None
    for d, place in enumerate(window.places):
        first, end = (0, window.spatial[d] + pads[d] + pads[len(kernel) + d])
        if not count_include_pad:
            first, end = pads[d], pads[d] + window.spatial[d]
        count = _count(place, kernel[d], strides[d], dilations[d], first, end, out[d])
        if isinstance(count, int):
            known *= count
        else:
            unknown = count if unknown is None else unknown * count
    if unknown is None:
        return Algorithm(window.axes, cast(total / max(known, 1), x.dtype))
    return Algorithm(window.axes, cast(total / cast(call("max", unknown * known, 1), kind), x.dtype))
