"""Translators of pooling operators."""

from __future__ import annotations

import math
from typing import Any

from gpucomp import ops
from gpucomp.frontend.onnx.ai_onnx.windows import Windows, windows
from gpucomp.frontend.onnx.compose import cast, expand, ints, like, reshape, scalar_of
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value
from gpucomp.ir import types as t


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
    place: dict[str, Any] = {"kernel": win.kernel, "strides": win.strides, "pads": win.pads}
    place |= {"dilations": win.dilations, "out": win.out}
    y = ops.MaxPool(x, **place)
    return (y, ops.MaxPoolIndices(x, **place, storage_order=storage_order)) if site.wants(1) else (y,)


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
    p: float,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
) -> Value:
    """(sum |x|^p)^(1/p). The sum is a convolution of each channel with ones."""
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
def global_lp_pool(x: Value, *, p: float) -> Value:
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
    """Stores every element at its flat index in the tensor that the pool read. Other elements are zero."""
    rank = len(x.shape) - 2
    strides, pads = strides or (1,) * rank, pads or (0,) * (2 * rank)
    if rank < 1 or not len(kernel_shape) == len(strides) == rank or len(pads) != 2 * rank:
        raise ValueError(f"attributes for {rank} spatial axes expected")
    inferred = [(x.shape[2 + d] - 1) * strides[d] + kernel_shape[d] - pads[d] - pads[rank + d] for d in range(rank)]
    small = (*x.shape[:2], *inferred)
    shape = small if output_shape is None else ints(output_shape, "output_shape")
    if len(shape) != len(x.shape) or any(d < 0 for d in shape):
        raise ValueError(f"output_shape {list(shape)}: {len(x.shape)} sizes of at least 0 expected")
    flat = expand(scalar_of(x.type.dtype, 0), (math.prod(small),))
    count = x.type.size
    y = ops.ScatterElements(
        flat, reshape(cast(indices, t.I64), (count,)), reshape(x, (count,)), axis=0, reduction="none"
    )
    y = reshape(y, small)
    amounts = [0] * len(shape) + [big - have for big, have in zip(shape, small, strict=True)]
    return ops.Pad(y, pads=tuple(amounts), mode="constant", value=0) if any(amounts) else y
