"""onnxruntime's fused operators, domain com.microsoft. Its graph and transformer optimisers write them into saved models.

Each is decomposed into the operators that it was fused from. Passes then fuse these for the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.ai_onnx.movement import pad_inputs, trilu
from gpucomp.frontend.onnx.ai_onnx.nn import conv, conv_transpose, gemm, matmul, scaled
from gpucomp.frontend.onnx.ai_onnx.sampling import grid_sample_2d
from gpucomp.frontend.onnx.ai_onnx.scatter import gather_nd
from gpucomp.frontend.onnx.compose import (
    axes_of,
    axis_of,
    cast,
    int64,
    ints,
    iota,
    like,
    part,
    reshape,
    scalar_of,
    static,
    transpose,
    unsqueeze,
)
from gpucomp.frontend.onnx.generate import arange
from gpucomp.frontend.onnx.microsoft.common import MICROSOFT, expect_types, to_channels_first, to_channels_last, whole
from gpucomp.frontend.onnx.translate import translates
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
    """The first half of x + bias along the last axis, times the Gelu of the second half."""
    total = ops.Add(x, bias)
    last = len(total.shape) - 1
    half, odd = divmod(total.shape[last], 2)
    if odd:
        raise ValueError(f"an even number of columns expected, {total.type} given")
    return ops.Mul(part(total, last, 0, half), ops.Gelu(part(total, last, half, half), approximate="none"))


@translates("BiasSoftmax", since=1, domain=MICROSOFT)
def bias_softmax(x: Value, bias: Value, *, axis: int = 1, is_inner_broadcast: int) -> Value:
    """Softmax of x + bias; the axes from ``axis`` on form one row. The bias lacks axes of ``x``: those directly before ``axis``
    with ``is_inner_broadcast``, otherwise the first ones.
    """
    place = axis_of(axis, len(x.shape))
    if is_inner_broadcast and len(bias.shape) < len(x.shape):
        tail = len(x.shape) - place
        front = bias.shape[: len(bias.shape) - tail]
        bias = reshape(bias, (*front, *[1] * (place - len(front)), *bias.shape[len(front) :]))
    total = ops.Add(x, bias)
    flat = reshape(total, (math.prod(x.shape[:place]), math.prod(x.shape[place:])))
    return reshape(ops.Softmax(flat, axis=1), x.shape)


FUSED: Mapping[str, tuple[Callable[..., Value], tuple[str, ...]]] = {  # function and the names of its parameters
    "Relu": (ops.Relu, ()),
    "Sigmoid": (ops.Sigmoid, ()),
    "Tanh": (ops.Tanh, ()),
    "Softplus": (ops.Softplus, ()),
    "Softsign": (ops.Softsign, ()),
    "HardSwish": (ops.HardSwish, ()),
    "LeakyRelu": (ops.LeakyRelu, ("alpha",)),
    "Elu": (ops.Elu, ("alpha",)),
    "ThresholdedRelu": (ops.ThresholdedRelu, ("alpha",)),
    "HardSigmoid": (ops.HardSigmoid, ("alpha", "beta")),
    "Selu": (ops.Selu, ("alpha", "gamma")),
    "Clip": (ops.Clip, ("low", "high")),
}


def activated(y: Value, activation: str, parameters: Mapping[str, float | None]) -> Value:
    """Apply the fused activation to ``y``. Parameters that it does not have are ignored, as in onnxruntime."""
    if not activation:
        return y
    if activation not in FUSED:
        raise UnsupportedError(f"activation {activation!r} is not supported: one of {', '.join(FUSED)} expected")
    function, names = FUSED[activation]
    given = {name: parameters.get(name) for name in names}
    return function(y, **{name: number for name, number in given.items() if number is not None})


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
    if z is not None and z.shape != y.shape:
        raise ValueError(f"an addend of shape {list(y.shape)} expected, {z.type} given")
    names = FUSED[activation][1] if activation in FUSED else ()
    if names and len(names) != len(activation_params):
        raise ValueError(f"{len(names)} parameters of {activation} expected, {list(activation_params)} given")
    return activated(y if z is None else ops.Add(y, z), activation, dict(zip(names, activation_params, strict=False)))


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
    """``x``, ``z`` and the result are [N, spatial..., C], ``w`` is [M, spatial..., C / group]."""
    y = fused_conv(
        *(to_channels_first(x), to_channels_first(w), bias, None if z is None else to_channels_first(z)),
        activation=activation,
        activation_params=activation_params,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return to_channels_last(y)


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
    """alpha a b. ``trans`` swaps the last two axes first; ``transBatch`` moves the first axis after the other batch axes."""

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
    """activation(alpha a b + beta c). Absent parameters have the standard's defaults; onnxruntime refuses such models."""
    if activation == "Clip":
        raise UnsupportedError("activation 'Clip' is not supported here")  # its two limits have no attributes
    y = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    parameters = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    return activated(y, activation, parameters)


@translates("GemmFastGelu", since=1, domain=MICROSOFT)
def gemm_fast_gelu(x: Value, w: Value, bias: Value | None = None) -> Value:
    return fast_gelu(matmul(x, w), bias)


# --- operators that the standard has now, in the same or a similar form


@translates("CDist", since=1, domain=MICROSOFT)
def pairwise_distances(a: Value, b: Value, *, metric: str = "sqeuclidean") -> Value:
    """[m, d] and [n, d] to [m, n]: the distances, or squared distances, of all pairs of rows."""
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[1] or metric not in ("sqeuclidean", "euclidean"):
        raise ValueError(
            f"rows of one length and metric sqeuclidean or euclidean expected, {a.type}, {b.type} and {metric!r} given"
        )
    apart = ops.Sub(unsqueeze(a, (1,)), unsqueeze(b, (0,)))
    squares = ops.ReduceSum(ops.Mul(apart, apart), axes=(2,), keepdims=False)
    return squares if metric == "sqeuclidean" else ops.Sqrt(squares)


@translates("ExpandDims", since=1, domain=MICROSOFT)
def expand_dims(x: Value, axis: Value) -> Value:
    return unsqueeze(x, axes_of((whole(axis, "axis"),), len(x.shape) + 1))


@translates("Range", since=1, domain=MICROSOFT)
def microsoft_range(start: Value, limit: Value, delta: Value | None = None) -> Value:
    step = like(start, 1) if delta is None else delta
    return arange(*(reshape(v, ()) for v in (start, limit, step)))


@translates("Pad", since=1, domain=MICROSOFT)
def microsoft_pad(x: Value, pads: Value, value: Value | None = None, *, mode: str = "constant") -> Value:
    return pad_inputs(x, int64(static(pads, "pads").reshape(-1)), value, mode=mode)


@translates("Trilu", since=1, domain=MICROSOFT)
def microsoft_trilu(x: Value, k: Value | None = None, *, upper: int = 1) -> Value:
    expect_types((t.I64,), k)
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
    """All windows of ``size`` elements along ``dim``, ``step`` apart. A new last axis holds the elements of each window."""
    place = axis_of(dim, len(x.shape))
    if size < 1 or step < 1 or size > x.shape[place]:
        raise ValueError(
            f"windows of 1 to {x.shape[place]} elements and a step of at least 1 expected, {size} and {step} given"
        )
    count = (x.shape[place] - size) // step + 1
    starts = ops.Mul(iota(count), scalar_of(t.I64, step))
    at = ops.Add(reshape(starts, (count, 1)), iota(size))
    windows = ops.Gather(x, at, axis=place)  # [..., count, size, ...]
    rank = len(windows.shape)
    order = [a for a in range(rank) if a != place + 1]
    return transpose(windows, (*order, place + 1))
