"""Translators of pooling operators."""

from __future__ import annotations

import math

import numpy as np

from gpucomp import ops
from gpucomp.frontend.onnx.compose import cast, expand, ints, like, reshape, scalar_of
from gpucomp.frontend.onnx.generate import checked_size
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.frontend.onnx.windows import Windows, windows
from gpucomp.ir import Value, constant
from gpucomp.ir import types as t
from gpucomp.ir.types import DType


def _windows(
    x: Value,
    kernel_shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    auto_pad: str,
    ceil_mode: int,
) -> Windows:
    if len(x.shape) < 3:
        raise ValueError(f"[N, C, spatial...] expected, {x.type} given")
    win = windows(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, bool(ceil_mode))
    if any(k < 1 for k in win.kernel) or any(p < 0 for p in win.pads):
        raise ValueError("a kernel of at least 1 and pads of at least 0 expected")
    return win


def lowest(dtype: DType) -> float | int:
    """The identity of max."""
    return -math.inf if dtype.is_float else int(np.iinfo(dtype.numpy).min)


@translates("MaxPool")
def max_pool(
    x: Value,
    *,
    auto_pad: str,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    storage_order: int = 0,
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
    site: Site,
) -> tuple[Value, ...]:
    win = _windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    if site.wants(1):
        return _max_pool_with_indices(x, win, bool(storage_order))
    y = ops.MaxPool(x, kernel=win.kernel, strides=win.strides, pads=win.pads, dilations=win.dilations, out=win.out)
    return (y,)


def _max_pool_with_indices(x: Value, win: Windows, column_major: bool) -> tuple[Value, Value]:
    """Every window gathered into a row, its maximum and where that came from."""
    n, c, *spatial = x.shape
    outputs, taps = math.prod(win.out), math.prod(win.kernel)
    checked_size(outputs * taps, 16)
    source = np.zeros((outputs, taps), np.int64)
    inside = np.ones((outputs, taps), np.bool_)
    for axis, size in enumerate(spatial):
        place = np.arange(win.out[axis]) * win.strides[axis] - win.begin(axis)
        tap = np.arange(win.kernel[axis]) * win.dilations[axis]
        at = np.add.outer(place, tap)  # [out, kernel] of this axis
        shape = [1] * (2 * len(spatial))
        shape[axis], shape[len(spatial) + axis] = at.shape
        full = np.broadcast_to(at.reshape(shape), (*win.out, *win.kernel)).reshape(outputs, taps)
        inside &= (full >= 0) & (full < size)
        source = source * size + np.clip(full, 0, max(size - 1, 0))
    rows = ops.Gather(reshape(x, (n, c, math.prod(spatial))), constant(source), axis=2)  # [n, c, outputs, taps]
    rows = ops.Where(constant(inside), rows, like(x, lowest(x.type.dtype)))
    best = ops.ArgMax(rows, axis=3, keepdims=False, select_last_index=False)
    where = ops.Gather(
        constant(source.reshape(-1)),
        ops.Add(best, constant(np.arange(outputs, dtype=np.int64) * taps)),
        axis=0,
    )
    if column_major:
        order = np.arange(math.prod(spatial), dtype=np.int64).reshape(spatial)
        where = ops.Gather(constant(_column_major(order)), where, axis=0)
    planes = constant((np.arange(n * c, dtype=np.int64) * math.prod(spatial)).reshape(n, c, 1))
    shape_out = (n, c, *win.out)
    values = ops.ReduceMax(rows, axes=(3,), keepdims=False)
    return reshape(values, shape_out), reshape(ops.Add(where, planes), shape_out)


def _column_major(order: np.ndarray) -> np.ndarray:
    """For each row-major position of a plane, its column-major one."""
    result = np.empty(order.size, np.int64)
    result[order.reshape(-1, order="F")] = np.arange(order.size)
    return result


@translates("AveragePool")
def average_pool(
    x: Value,
    *,
    auto_pad: str,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
    count_include_pad: int,
) -> Value:
    win = _windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    return ops.AveragePool(
        x,
        kernel=win.kernel,
        strides=win.strides,
        pads=win.pads,
        dilations=win.dilations,
        out=win.out,
        count_include_pad=bool(count_include_pad),
    )


@translates("LpPool")
def lp_pool(
    x: Value,
    *,
    auto_pad: str,
    kernel_shape: tuple[int, ...],
    p: int,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
) -> Value:
    """(sum |x|^p)^(1/p): the sum is a convolution with ones, a channel on its own."""
    win = _windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    if p < 1:
        raise ValueError(f"p={p}")
    n, c, *spatial = x.shape
    powers = ops.Mul(x, x) if p == 2 else ops.Pow(ops.Abs(x), like(x, p))
    rank = len(spatial)
    ends = [max(0, (win.out[d] - 1) * win.strides[d] + win.span(d) - spatial[d] - win.begin(d)) for d in range(rank)]
    ones = expand(scalar_of(x.type.dtype, 1), (1, 1, *win.kernel))
    total = ops.Conv(
        reshape(powers, (n * c, 1, *spatial)),
        ones,
        strides=win.strides,
        pads=(*win.pads[:rank], *ends),
        dilations=win.dilations,
    )
    total = reshape(total, (n, c, *total.shape[2:]))
    return ops.Sqrt(total) if p == 2 else ops.Pow(total, like(x, 1 / p))


def _spatial(x: Value) -> tuple[int, ...]:
    if len(x.shape) < 3:
        raise ValueError(f"[N, C, spatial...] expected, {x.type} given")
    return tuple(range(2, len(x.shape)))


@translates("GlobalAveragePool")
def global_average_pool(x: Value) -> Value:
    return ops.ReduceMean(x, axes=_spatial(x), keepdims=True)


@translates("GlobalMaxPool")
def global_max_pool(x: Value) -> Value:
    return ops.ReduceMax(x, axes=_spatial(x), keepdims=True)


@translates("GlobalLpPool")
def global_lp_pool(x: Value, *, p: int) -> Value:
    if p < 1:
        raise ValueError(f"p={p}")
    total = ops.ReduceSum(ops.Pow(ops.Abs(x), like(x, p)), axes=_spatial(x), keepdims=True)
    return ops.Pow(total, like(x, 1 / p))


@translates("MaxUnpool", since=9)
def max_unpool(
    x: Value,
    indices: Value,
    output_shape: Value | None = None,
    *,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """Every element stored at its flat index in the tensor that the pool had read; zero elsewhere."""
    rank = len(x.shape) - 2
    strides, pads = strides or (1,) * rank, pads or (0,) * (2 * rank)
    if rank < 1 or not len(kernel_shape) == len(strides) == rank or len(pads) != 2 * rank:
        raise ValueError(f"attributes for {rank} spatial axes expected")
    inferred = [(x.shape[2 + d] - 1) * strides[d] + kernel_shape[d] - pads[d] - pads[rank + d] for d in range(rank)]
    small = (*x.shape[:2], *inferred)
    shape = small if output_shape is None else ints(output_shape, "output_shape")
    if len(shape) != len(x.shape) or any(d < 0 for d in shape):
        raise ValueError(f"the shape {list(shape)}")
    flat = expand(scalar_of(x.type.dtype, 0), (math.prod(small),))
    count = x.type.size
    y = ops.ScatterElements(
        flat, reshape(cast(indices, t.I64), (count,)), reshape(x, (count,)), axis=0, reduction="none"
    )
    y = reshape(y, small)
    amounts = [0] * len(shape) + [big - have for big, have in zip(shape, small, strict=True)]
    return ops.Pad(y, pads=tuple(amounts), mode="constant", value=0) if any(amounts) else y
