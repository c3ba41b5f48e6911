"""onnxruntime's fused operators, domain com.microsoft, as its graph and transformer optimisers leave them in saved models.

Each becomes the operators that it was fused from, which are then fused for the target.
"""

from __future__ import annotations

import math

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.compose import (
    accumulation,
    axes_of,
    axis_of,
    cast,
    channels,
    expand,
    int64,
    ints,
    iota,
    like,
    mean,
    part,
    reshape,
    scalar,
    scalar_of,
    static,
    transpose,
    unsqueeze,
)
from gpucomp.frontend.onnx.generate import arange
from gpucomp.frontend.onnx.microsoft_quantized import MICROSOFT, channels_first, channels_last
from gpucomp.frontend.onnx.movement import pad_inputs, trilu
from gpucomp.frontend.onnx.nn import conv, conv_transpose, gemm, layer_normalization, matmul, normalized_groups, scaled
from gpucomp.frontend.onnx.sampling import grid_sample_2d
from gpucomp.frontend.onnx.scatter import gather_nd
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value
from gpucomp.ir import types as t

Ints = tuple[int, ...] | None


# --- activations


@translates("Gelu", since=1, domain=MICROSOFT)
def gelu(x: Value) -> Value:
    return ops.Gelu(x, approximate="none")


@translates("BiasGelu", since=1, domain=MICROSOFT)
def bias_gelu(x: Value, bias: Value) -> Value:
    return ops.Gelu(ops.Add(x, bias), approximate="none")


@translates("FastGelu", since=1, domain=MICROSOFT)
def fast_gelu(x: Value, bias: Value | None = None) -> Value:
    return ops.Gelu(x if bias is None else ops.Add(x, bias), approximate="tanh")


@translates("QuickGelu", since=1, domain=MICROSOFT)
def quick_gelu(x: Value, *, alpha: float = 1.702) -> Value:
    """x sigmoid(alpha x)"""
    return ops.Swish(x, alpha=alpha)


@translates("BiasAdd", since=1, domain=MICROSOFT)
def bias_add(x: Value, bias: Value, skip: Value) -> Value:
    return ops.Add(ops.Add(x, bias), skip)


@translates("BiasSplitGelu", since=1, domain=MICROSOFT)
def bias_split_gelu(x: Value, bias: Value) -> Value:
    """Of x + bias, the first half of the last axis times the Gelu of the second."""
    total = ops.Add(x, bias)
    last = len(total.shape) - 1
    half, odd = divmod(total.shape[last], 2)
    if odd:
        raise ValueError(f"an even number of columns expected, {total.type} given")
    return ops.Mul(part(total, last, 0, half), ops.Gelu(part(total, last, half, half), approximate="none"))


@translates("BiasSoftmax", since=1, domain=MICROSOFT)
def bias_softmax(x: Value, bias: Value, *, axis: int = 1, is_inner_broadcast: int) -> Value:
    """Rows from ``axis`` on; the bias lacks axes of ``x``: the inner ones of its front, or the outer ones."""
    place = axis_of(axis, len(x.shape))
    if is_inner_broadcast and len(bias.shape) < len(x.shape):
        tail = len(x.shape) - place
        front = bias.shape[: len(bias.shape) - tail]
        bias = reshape(bias, (*front, *[1] * (place - len(front)), *bias.shape[len(front) :]))
    total = ops.Add(x, bias)
    flat = reshape(total, (math.prod(x.shape[:place]), math.prod(x.shape[place:])))
    return reshape(ops.Softmax(flat, axis=1), x.shape)


def activated(y: Value, activation: str, parameters: tuple[float, ...]) -> Value:
    """``y`` through the activation that was fused behind it."""
    match activation, parameters:
        case "", ():
            return y
        case "Relu", ():
            return ops.Relu(y)
        case "Sigmoid", ():
            return ops.Sigmoid(y)
        case "Tanh", ():
            return ops.Tanh(y)
        case "LeakyRelu", (alpha,):
            return ops.LeakyRelu(y, alpha=alpha)
        case "Clip", (low, high):
            return ops.Clip(y, low=low, high=high)
        case "HardSigmoid", (alpha, beta):
            return ops.HardSigmoid(y, alpha=alpha, beta=beta)
    raise UnsupportedError(f"activation {activation!r} of parameters {list(parameters)}")


# --- contractions


@translates("FusedConv", since=1, domain=MICROSOFT)
def fused_conv(
    x: Value,
    w: Value,
    bias: Value | None = None,
    z: Value | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Value:
    """activation(conv(x, w) + bias + z)"""
    y = conv(
        *(x, w, bias),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return activated(y if z is None else ops.Add(y, z), activation, activation_params)


@translates("NhwcFusedConv", since=1, domain=MICROSOFT)
@translates("NhwcConv", since=1, domain=MICROSOFT)
def nhwc_conv(
    x: Value,
    w: Value,
    bias: Value | None = None,
    z: Value | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Value:
    """``x``, ``z`` and the result [N, spatial..., C], ``w`` [M, spatial..., C / group]."""
    y = fused_conv(
        *(channels_first(x), channels_first(w), bias, None if z is None else channels_first(z)),
        activation=activation,
        activation_params=activation_params,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return channels_last(y)


@translates("ConvTransposeWithDynamicPads", since=1, domain=MICROSOFT)
def conv_transpose_with_pads(
    x: Value,
    w: Value,
    pads: Value | None = None,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    output_padding: Ints = None,
    strides: Ints = None,
) -> Value:
    return conv_transpose(
        *(x, w, bias),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        pads=None if pads is None else ints(pads, "pads"),
        strides=strides,
    )


@translates("TransposeMatMul", since=1, domain=MICROSOFT)
@translates("FusedMatMul", since=1, domain=MICROSOFT)
def fused_matmul(
    a: Value,
    b: Value,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Value:
    """alpha a b, the last two axes swapped before (trans), or the first brought behind the batch's (transBatch)."""

    def turned(x: Value, inner: int, batch: int) -> Value:
        rank = len(x.shape)
        order = list(range(rank))
        if batch and rank > 2:
            order = [*order[1:-1], 0, order[-1]]
        if inner and rank > 1:
            order[-2:] = order[:-3:-1]
        return transpose(x, order)

    return scaled(matmul(turned(a, transA, transBatchA), turned(b, transB, transBatchB)), alpha)


@translates("FusedGemm", since=1, domain=MICROSOFT)
def fused_gemm(
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    y = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    given = tuple(p for p in (activation_alpha, activation_beta, activation_gamma) if p is not None)
    defaults = {"LeakyRelu": (0.01,), "HardSigmoid": (0.2, 0.5)}.get(activation, ())
    return activated(y, activation, given or defaults)


@translates("GemmFastGelu", since=1, domain=MICROSOFT)
def gemm_fast_gelu(x: Value, w: Value, bias: Value | None = None) -> Value:
    return fast_gelu(matmul(x, w), bias)


# --- norms


@translates("LayerNormalization", since=1, until=17)
@translates("LayerNormalization", since=1, domain=MICROSOFT)
def early_layer_normalization(
    x: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    site: Site,
) -> tuple[Value, ...]:
    """As onnxruntime writes it into models of opsets that have none yet."""
    return layer_normalization(x, scale, bias, axis=axis, epsilon=epsilon, stash_type=stash_type, site=site)


@translates("SimplifiedLayerNormalization")
@translates("SimplifiedLayerNormalization", since=1, domain=MICROSOFT)
def simplified_layer_normalization(
    x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, site: Site
) -> tuple[Value, ...]:
    """x / sqrt(mean of squares + epsilon) scale, and the reciprocal of the root. onnxruntime has it in the standard's domain."""
    place = axis_of(axis, len(x.shape))
    y = ops.Mul(ops.RMSNorm(x, axis=place, epsilon=epsilon), scale)
    if not site.wants(1):
        return (y,)
    wide = cast(x, accumulation(x.type.dtype))
    squares = mean(ops.Mul(wide, wide), tuple(range(place, len(x.shape))))
    return y, ops.Reciprocal(ops.Sqrt(ops.Add(squares, like(squares, epsilon))))


def _with_skip(x: Value, skip: Value, bias: Value | None) -> Value:
    total = ops.Add(x, skip)
    total = total if bias is None else ops.Add(total, bias)
    if total.shape != x.shape:
        raise ValueError(f"{skip.type} is not added to {x.type}")
    return total


@translates("SkipLayerNormalization", since=1, domain=MICROSOFT)
def skip_layer_normalization(
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
    site: Site,
) -> tuple[Value | None, ...]:
    """The layer norm of x + skip + bias, its statistics, and that sum."""
    total = _with_skip(x, skip, bias)
    y, *statistics = layer_normalization(total, gamma, beta, axis=-1, epsilon=epsilon, stash_type=1, site=site)
    return y, *(statistics or (None, None)), total


@translates("SkipSimplifiedLayerNormalization", since=1, domain=MICROSOFT)
def skip_simplified_layer_normalization(
    x: Value, skip: Value, gamma: Value, bias: Value | None = None, *, epsilon: float = 1e-12, site: Site
) -> tuple[Value | None, ...]:
    total = _with_skip(x, skip, bias)
    y = ops.Mul(ops.RMSNorm(total, axis=len(x.shape) - 1, epsilon=epsilon), gamma)
    return y, None, None, total


@translates("EmbedLayerNormalization", since=1, domain=MICROSOFT)
def embed_layer_normalization(
    ids: Value,
    segments: Value | None,
    words: Value,
    positions: Value,
    segment_table: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None = None,
    position_ids: Value | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
    site: Site,
) -> tuple[Value, ...]:
    """The norm of the sum of three rows for each word: its own, its place's and its segment's.

    Also how many of each sentence the mask keeps, i32[batch], and the sum itself.
    """
    if len(ids.shape) != 2 or (segments is None) != (segment_table is None):
        raise ValueError(f"[batch, length] expected, {ids.type} given, and segments with their table")
    batch, length = ids.shape
    total = ops.Gather(words, cast(ids, t.I64), axis=0)
    if position_ids is None:
        total = ops.Add(total, part(positions, 0, 0, length))
    else:
        total = ops.Add(total, ops.Gather(positions, cast(position_ids, t.I64), axis=0))
    if segments is not None and segment_table is not None:
        total = ops.Add(total, ops.Gather(segment_table, cast(segments, t.I64), axis=0))
    y = ops.Add(ops.Mul(ops.LayerNorm(total, axis=2, epsilon=epsilon), gamma), beta)
    if mask is None:
        kept = expand(scalar_of(t.I32, 0), (batch,))
    else:
        one = ops.Equal(mask, like(mask, 1))
        kept = ops.ReduceSum(cast(one, t.I32), axes=(1,), keepdims=False)
    return y, kept, total


@translates("GroupNorm", since=1, domain=MICROSOFT)
def group_norm(
    x: Value,
    gamma: Value,
    beta: Value,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> Value:
    """The norm of each group of channels, and with ``activation`` 1 its Swish."""
    if activation not in (0, 1):
        raise ValueError(f"activation 0 or 1 expected, {activation} given")
    first = channels_first(x) if channels_last else x
    rank, dtype = len(x.shape), x.type.dtype
    y = normalized_groups(first, groups, epsilon)
    y = ops.Add(ops.Mul(y, channels(cast(gamma, dtype), rank)), channels(cast(beta, dtype), rank))
    y = ops.Swish(y, alpha=1.0) if activation else y
    return transpose(y, (0, *range(2, rank), 1)) if channels_last else y


@translates("SkipGroupNorm", since=1, domain=MICROSOFT)
def skip_group_norm(
    x: Value,
    gamma: Value,
    beta: Value,
    skip: Value,
    bias: Value | None = None,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> tuple[Value, Value]:
    """``skip`` [N, H, W, C], or [N, 1, 1, C] or [N, C] for all places; ``bias`` [C]."""
    if not channels_last:
        raise UnsupportedError("channels_last=0")
    skip = reshape(skip, (skip.shape[0], 1, 1, skip.shape[1])) if len(skip.shape) == 2 else skip
    total = _with_skip(x, skip, bias)
    y = group_norm(total, gamma, beta, activation=activation, epsilon=epsilon, groups=groups)
    return y, total


# --- what the standard has by now, or nearly


@translates("CDist", since=1, domain=MICROSOFT)
def pairwise_distances(a: Value, b: Value, *, metric: str = "sqeuclidean") -> Value:
    """[m, d] and [n, d] to [m, n]: how far each row is from each, squared or not."""
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[1] or metric not in ("sqeuclidean", "euclidean"):
        raise ValueError(f"rows of one length expected, {a.type} and {b.type} given, metric {metric!r}")
    apart = ops.Sub(unsqueeze(a, (1,)), unsqueeze(b, (0,)))
    squares = ops.ReduceSum(ops.Mul(apart, apart), axes=(2,), keepdims=False)
    return squares if metric == "sqeuclidean" else ops.Sqrt(squares)


@translates("ExpandDims", since=1, domain=MICROSOFT)
def expand_dims(x: Value, axis: Value) -> Value:
    return unsqueeze(x, axes_of((int(scalar(axis, "axis")),), len(x.shape) + 1))


@translates("Range", since=1, domain=MICROSOFT)
def microsoft_range(start: Value, limit: Value, delta: Value | None = None) -> Value:
    step = like(start, 1) if delta is None else delta
    return arange(*(reshape(v, ()) for v in (start, limit, step)))


@translates("Pad", since=1, domain=MICROSOFT)
def microsoft_pad(x: Value, pads: Value, value: Value | None = None, *, mode: str = "constant") -> Value:
    return pad_inputs(x, int64(static(pads, "pads").reshape(-1)), value, mode=mode)


@translates("Trilu", since=1, domain=MICROSOFT)
def microsoft_trilu(x: Value, k: Value | None = None, *, upper: int = 1) -> Value:
    return trilu(x, k, upper=upper)


@translates("GatherND", since=1, domain=MICROSOFT)
def microsoft_gather_nd(x: Value, indices: Value) -> Value:
    return gather_nd(x, cast(indices, t.I64))


@translates("GridSample", since=1, domain=MICROSOFT)
def microsoft_grid_sample(
    x: Value, grid: Value, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> Value:
    return grid_sample_2d(x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@translates("UnfoldTensor", since=1, domain=MICROSOFT)
def unfold_tensor(x: Value, *, dim: int = -1, size: int, step: int = 1) -> Value:
    """All windows of ``size`` elements, ``step`` apart, along ``dim``: the elements of each in a new last axis."""
    place = axis_of(dim, len(x.shape))
    if size < 1 or step < 1 or size > x.shape[place]:
        raise ValueError(f"windows of {size}, {step} apart, in {x.type}")
    count = (x.shape[place] - size) // step + 1
    starts = ops.Mul(iota(count), scalar_of(t.I64, step))
    at = ops.Add(reshape(starts, (count, 1)), iota(size))
    windows = ops.Gather(x, at, axis=place)  # [..., count, size, ...]
    rank = len(windows.shape)
    order = [a for a in range(rank) if a != place + 1]
    return transpose(windows, (*order, place + 1))
