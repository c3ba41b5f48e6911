"""Sums of products: MatMul and Conv. The contraction families recognise them by the shape of their algorithm."""

from __future__ import annotations

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, axes_of, both, call, cast, load, reduce, select, var
from gpucomp.ir.types import BF16, F16, F32, I32, DType, TensorType
from gpucomp.ops.registry import broadcast, broadcast_index, op


def accumulator(dtype: DType) -> DType:
    """The type sums are kept in: f32 for the 16-bit floats, i32 for the narrow integers."""
    if dtype in (F16, BF16):
        return F32
    if dtype.is_integer and dtype.bits < 32:
        return I32
    return dtype


@op("MatMul")
def MatMul(a: TensorType, b: TensorType) -> TensorType:
    """``a @ b`` over the last two axes (rank >= 2 each); leading axes broadcast."""
    if a.rank < 2 or b.rank < 2:
        raise ValueError("operands of rank 2 or more expected")
    if a.dtype is not b.dtype:
        raise ValueError(f"operands of one element type expected, got {a.dtype} and {b.dtype}")
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"inner sizes differ: {a.shape[-1]} and {b.shape[-2]}")
    return a.with_shape((*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))


@MatMul.define("reference")
def _matmul_reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = np.float64 if a.dtype.kind in "fV" else a.dtype
    return np.matmul(a.astype(wide), b.astype(wide)).astype(a.dtype)


@MatMul.define("algorithm")
def _matmul_algorithm(a: TensorType, b: TensorType) -> Algorithm:
    shape = MatMul.type_rule(a, b).shape  # type: ignore[union-attr]
    axes = axes_of(shape)
    *batch, row, col = axes
    k = var("k", a.shape[-1])
    acc = accumulator(a.dtype)
    left = cast(load(0, (*broadcast_index(batch, a.shape[:-2]), row, k), a.dtype), acc)
    right = cast(load(1, (*broadcast_index(batch, b.shape[:-2]), k, col), b.dtype), acc)
    return Algorithm(axes, cast(reduce("sum", (k,), left * right), a.dtype))


@op("Conv")
def Conv(
    x: TensorType,
    w: TensorType,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    layout: str = "NCHW",
) -> TensorType:
    """Convolution without bias over any number of spatial axes; ``pads`` is all begins, then all ends.

    layout NCHW: x [N, C, *spatial], w [OC, C/group, *kernel]; result [N, OC, *out]
    layout NHWC: x [N, *spatial, C], w [*kernel, C/group, OC]; result [N, *out, OC]
    """
    rank = x.rank - 2
    if rank < 1 or w.rank != x.rank or len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise ValueError(f"attributes for {rank} spatial axes expected")
    if group < 1 or any(v < 1 for v in (*strides, *dilations)):
        raise ValueError("group, strides and dilations of at least 1 expected")
    nchw = layout == "NCHW"
    channels, spatial = (x.shape[1], x.shape[2:]) if nchw else (x.shape[-1], x.shape[1:-1])
    if nchw:
        out_channels, per_group, kernel = w.shape[0], w.shape[1], w.shape[2:]
    else:
        out_channels, per_group, kernel = w.shape[-1], w.shape[-2], w.shape[:-2]
    if per_group * group != channels or out_channels % group:
        raise ValueError(f"{channels} input and {out_channels} output channels do not go with group={group}")
    out = []
    for d in range(rank):
        span = spatial[d] + pads[d] + pads[rank + d] - ((kernel[d] - 1) * dilations[d] + 1)
        if span < 0:
            raise ValueError(f"kernel {kernel[d]} with dilation {dilations[d]} is larger than the padded input")
        out.append(span // strides[d] + 1)
    return x.with_shape((x.shape[0], out_channels, *out) if nchw else (x.shape[0], *out, out_channels))


@Conv.define("algorithm")
def _conv_algorithm(
    x: TensorType,
    w: TensorType,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    layout: str = "NCHW",
) -> Algorithm:
    result = Conv.type_rule(x, w, strides=strides, pads=pads, dilations=dilations, group=group, layout=layout)
    axes = axes_of(result.shape)  # type: ignore[union-attr]
    nchw = layout == "NCHW"
    image, channel, place = (axes[0], axes[1], axes[2:]) if nchw else (axes[0], axes[-1], axes[1:-1])
    spatial = x.shape[2:] if nchw else x.shape[1:-1]
    kernel = w.shape[2:] if nchw else w.shape[:-2]
    per_group, out_channels = (w.shape[1], w.shape[0]) if nchw else (w.shape[-2], w.shape[-1])
    taps = axes_of(kernel, "r")
    c = var("c", per_group)
    first: Expr = call("floordiv", channel, out_channels // group) * per_group if group > 1 else channel * 0
    at, inside = [], []
    for d, tap in enumerate(taps):
        position = place[d] * strides[d] - pads[d] + tap * dilations[d]
        at.append(position)
        if pads[d] or pads[len(taps) + d]:
            inside += [position >= 0, position < spatial[d]]
    source = (image, first + c, *at) if nchw else (image, *at, first + c)
    acc = accumulator(x.dtype)
    value = select(both(inside), cast(load(0, source, x.dtype), acc), 0)
    weight = cast(load(1, (channel, c, *taps) if nchw else (*taps, c, channel), w.dtype), acc)
    return Algorithm(axes, cast(reduce("sum", (*taps, c), value * weight), x.dtype))


@Conv.define("reference")
def _conv_reference(
    x: np.ndarray,
    w: np.ndarray,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    layout: str = "NCHW",
) -> np.ndarray:
    if layout == "NHWC":
        x = np.moveaxis(x, -1, 1)
        w = np.moveaxis(w, (-1, -2), (0, 1))
    rank = x.ndim - 2
    wide = np.float64 if x.dtype.kind in "fV" else np.int64
    widths = [(0, 0), (0, 0), *((pads[d], pads[rank + d]) for d in range(rank))]
    padded = np.pad(x, widths).astype(wide)
    kernel = w.shape[2:]
    span = [(k - 1) * dilations[d] + 1 for d, k in enumerate(kernel)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, span, axis=tuple(range(2, 2 + rank)))
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]
    windows = windows[(..., *(slice(None, None, d) for d in dilations))]
    n, channels, *out = windows.shape[: 2 + rank]
    grouped = windows.reshape(n, group, channels // group, *out, *kernel)
    weights = w.reshape(group, w.shape[0] // group, *w.shape[1:]).astype(wide)
    parts = []
    for g in range(group):
        axes_in, axes_w = [1, *range(2 + rank, 2 + 2 * rank)], [1, *range(2, 2 + rank)]
        parts.append(np.moveaxis(np.tensordot(grouped[:, g], weights[g], (axes_in, axes_w)), -1, 1))
    result = np.concatenate(parts, axis=1).astype(x.dtype)
    return np.moveaxis(result, 1, -1) if layout == "NHWC" else result
