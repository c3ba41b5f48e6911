"""onnxruntime's own quantised operators, domain com.microsoft, which its quantiser writes into int8 and int4 models.

There is no standard for them. Formulas and the order of rounding are those of onnxruntime's kernels, so that the codes
(the quantized values) are equal. An absent zero point is 0.
"""

from __future__ import annotations

import math

import numpy as np

from gpucomp import ops
from gpucomp.frontend.onnx.ai_onnx.nn import matmul
from gpucomp.frontend.onnx.ai_onnx.pooling import average_pool, max_pool
from gpucomp.frontend.onnx.ai_onnx.quantize import (
    centred,
    code,
    dequantize_linear,
    dequantized,
    dynamic_quantize_linear,
    matmul_integer,
    matrix_parameter,
    qlinear_conv,
    quantize_linear,
    quantized,
    requantized,
    single,
    single_or_none,
)
from gpucomp.frontend.onnx.compose import (
    axes_of,
    axis_of,
    cast,
    concat,
    reshape,
    scalar_of,
    transpose,
)
from gpucomp.frontend.onnx.microsoft.common import (
    MICROSOFT,
    expect_codes,
    expect_floats,
    expect_types,
    to_channels_first,
    to_channels_last,
)
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value, constant_value
from gpucomp.ir import types as t


def _read(x: Value, scale: Value, zero_point: Value | None) -> Value:
    """The codes ``x`` dequantized to f32."""
    expect_codes(x, zero_point)
    return dequantized(x, single(scale), single_or_none(zero_point))


def _written(y: Value, scale: Value, zero_point: Value | None, to: t.DType) -> Value:
    if zero_point is not None:
        expect_types((to,), zero_point)
    return quantized(y, single(scale), single_or_none(zero_point), to)


# --- arithmetic, an element at a time


@translates("QLinearAdd", since=1, domain=MICROSOFT)
def qlinear_add(
    a: Value,
    a_scale: Value,
    a_zero: Value | None,
    b: Value,
    b_scale: Value,
    b_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
) -> Value:
    """saturate(round(a ra + (b rb + rest))), with ra = a_scale / y_scale, rb = b_scale / y_scale and

    rest = y_zero - (ra a_zero + rb b_zero), all in f32, but ra a_zero is not rounded. This is onnxruntime's formula on
    processors with fused multiply-add, which also defines the order of rounding.
    """
    expect_codes(a, a_zero, b, b_zero, y_zero)
    scale = single(y_scale)
    left, right = ops.Div(single(a_scale), scale), ops.Div(single(b_scale), scale)
    zeros = [scalar_of(t.F32, 0) if zero is None else cast(single(zero), t.F32) for zero in (a_zero, b_zero, y_zero)]
    fused = ops.Add(
        ops.Mul(cast(left, t.F64), cast(zeros[0], t.F64)), cast(ops.Mul(right, zeros[1]), t.F64)
    )  # constants, unless the model computes its scales
    rest = ops.Sub(zeros[2], cast(fused, t.F32))
    total = ops.Add(ops.Mul(cast(a, t.F32), left), ops.Add(ops.Mul(cast(b, t.F32), right), rest))
    return code(total, None, a.type.dtype)


@translates("QLinearMul", since=1, domain=MICROSOFT)
def qlinear_mul(
    a: Value,
    a_scale: Value,
    a_zero: Value | None,
    b: Value,
    b_scale: Value,
    b_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
) -> Value:
    """saturate(round((a - a_zero) (b - b_zero) (a_scale b_scale / y_scale)) + y_zero), with the product of codes in i32."""
    expect_codes(a, a_zero, b, b_zero, y_zero)
    product = ops.Mul(centred(a, single_or_none(a_zero)), centred(b, single_or_none(b_zero)))
    factor = ops.Mul(single(a_scale), single(b_scale))
    return requantized(product, factor, single(y_scale), single_or_none(y_zero), a.type.dtype)


@translates("QLinearSigmoid", since=1, domain=MICROSOFT)
def qlinear_sigmoid(
    x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None
) -> Value:
    return _written(ops.Sigmoid(_read(x, x_scale, x_zero)), y_scale, y_zero, x.type.dtype)


@translates("QLinearLeakyRelu", since=1, domain=MICROSOFT)
def qlinear_leaky_relu(
    x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None, *, alpha: float = 0.01
) -> Value:
    return _written(ops.LeakyRelu(_read(x, x_scale, x_zero), alpha=alpha), y_scale, y_zero, x.type.dtype)


@translates("QLinearWhere", since=1, domain=MICROSOFT)
def qlinear_where(
    condition: Value,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y: Value,
    y_scale: Value,
    y_zero: Value,
    z_scale: Value,
    z_zero: Value,
) -> Value:
    """The codes of ``x`` or ``y``, both converted to the scale and zero point of the result."""
    expect_codes(x, y, z_zero)
    x, y = (
        _written(_read(v, scale, zero), z_scale, z_zero, z_zero.type.dtype)
        for v, scale, zero in ((x, x_scale, x_zero), (y, y_scale, y_zero))
    )
    return ops.Where(condition, x, y)


@translates("QLinearConcat", since=1, domain=MICROSOFT)
def qlinear_concat(y_scale: Value, y_zero: Value, *operands: Value, axis: int) -> Value:
    """Concatenates operands (codes, scale, zero point), each converted to the scale and zero point of the result."""
    if not operands or len(operands) % 3:
        raise ValueError(f"codes, scale and zero point of each operand expected, {len(operands)} inputs given")
    parts = []
    for x, scale, zero in zip(operands[::3], operands[1::3], operands[2::3], strict=True):
        expect_codes(x, zero, y_zero)
        same = all(_equal(one, other) for one, other in ((scale, y_scale), (zero, y_zero)))
        parts.append(x if same else _written(_read(x, scale, zero), y_scale, y_zero, y_zero.type.dtype))
    return concat(parts, axis_of(axis, len(parts[0].shape)))


def _equal(a: Value, b: Value) -> bool:
    """Whether both are known to be equal."""
    arrays = constant_value(a), constant_value(b)
    return a is b or (
        a.type.dtype is b.type.dtype
        and all(x is not None for x in arrays)
        and np.array_equal(arrays[0].reshape(-1), arrays[1].reshape(-1))  # type: ignore[union-attr]
    )


# --- windows and rows


@translates("QLinearSoftmax", since=1, domain=MICROSOFT)
def qlinear_softmax(
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value,
    *,
    axis: int = -1,
    opset: int,
) -> Value:
    """Below ``opset`` 13, the axes from ``axis`` on form one row. Results are rounded to the nearest code. onnxruntime uses a
    table of integer exponentials, and its codes can differ by one.
    """
    expect_codes(x, x_zero)
    place = axis_of(axis, len(x.shape))
    real = _read(x, x_scale, None)  # the zero point does not change the Softmax of a row
    if opset >= 13:
        y = ops.Softmax(real, axis=place)
    else:
        flat = reshape(real, (math.prod(x.shape[:place]), math.prod(x.shape[place:])))
        y = reshape(ops.Softmax(flat, axis=1), x.shape)
    return _written(y, y_scale, y_zero, x.type.dtype)


@translates("QLinearAveragePool", since=1, domain=MICROSOFT)
def qlinear_average_pool(
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
    *,
    kernel_shape: tuple[int, ...],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """The mean of the dequantized codes. Padding is 0."""
    real = _read(x, x_scale, x_zero)
    y = average_pool(
        to_channels_first(real) if channels_last else real,
        auto_pad=auto_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
    )
    y = _written(y, y_scale, y_zero, x.type.dtype)
    return to_channels_last(y) if channels_last else y


@translates("QLinearGlobalAveragePool", since=1, domain=MICROSOFT)
def qlinear_global_average_pool(
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
    *,
    channels_last: int = 0,
) -> Value:
    rank = len(x.shape)
    if rank < 3:
        raise ValueError(f"[N, C, spatial...] expected, {x.type} given")
    return _mean(x, x_scale, x_zero, y_scale, y_zero, range(1, rank - 1) if channels_last else range(2, rank), True)


@translates("QLinearReduceMean", since=1, domain=MICROSOFT)
def qlinear_reduce_mean(
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
    *,
    axes: tuple[int, ...],
    keepdims: int,
) -> Value:
    places = axes_of(axes, len(x.shape)) or range(len(x.shape))
    return _mean(x, x_scale, x_zero, y_scale, y_zero, places, bool(keepdims))


def _mean(
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None,
    axes: range | tuple[int, ...],
    keepdims: bool,
) -> Value:
    """The sum of the codes over ``axes`` in i32. The multiplier includes the division by their number."""
    expect_codes(x, x_zero, y_zero)
    total = ops.ReduceSum(centred(x, single_or_none(x_zero)), axes=tuple(axes), keepdims=keepdims)
    points = scalar_of(t.F32, math.prod(x.shape[axis] for axis in axes))
    divisor = ops.Mul(single(y_scale), points)
    return requantized(total, single(x_scale), divisor, single_or_none(y_zero), x.type.dtype)


@translates("NhwcMaxPool", since=1, domain=MICROSOFT)
def nhwc_max_pool(
    x: Value,
    *,
    kernel_shape: tuple[int, ...],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    site: Site,
) -> Value:
    expect_codes(x)
    y, *_ = max_pool(
        to_channels_first(x),
        auto_pad=auto_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
        ceil_mode=ceil_mode,
        dilations=dilations,
        site=site,
    )
    return to_channels_last(y)


@translates("QLinearConv", since=1, domain=MICROSOFT)
def qlinear_conv_of_either_layout(
    x: Value,
    x_scale: Value,
    x_zero: Value,
    w: Value,
    w_scale: Value,
    w_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
    *,
    channels_last: int = 0,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """The standard's operator, or with ``channels_last`` for [N, spatial..., C]. Weights are [M, C / group, spatial...]."""
    expect_codes(x, x_zero)
    expect_codes(w, w_zero)
    expect_types((t.I8, t.U8), y_zero)
    y = qlinear_conv(
        to_channels_first(x) if channels_last else x,
        *(x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return to_channels_last(y) if channels_last else y


# --- products of matrices


@translates("QGemm", since=1, domain=MICROSOFT)
def qgemm(
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    c: Value | None = None,
    y_scale: Value | None = None,
    y_zero: Value | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    """(a - a_zero) (b - b_zero) + c in i32, times alpha a_scale b_scale.

    With ``y_scale`` and ``y_zero`` the result is quantized, otherwise it is f32. ``b_scale`` and ``b_zero`` are one
    number or one per column. ``c`` is i32, with the scale alpha a_scale b_scale. In onnxruntime, ``y_zero`` alone
    decides; here, one without the other is refused.
    """
    expect_codes(a, a_zero)
    expect_codes(b, b_zero)
    expect_types((t.I32,), c)
    expect_types((t.I8, t.U8), y_zero)
    if (y_scale is None) != (y_zero is None):
        raise ValueError("the scale and the zero point of the result belong together: one is missing")
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ValueError("matrices expected")
    left = transpose(centred(a, single(a_zero)), (1, 0) if transA else (0, 1))
    columns = transpose(b, (1, 0) if transB else (0, 1))
    right = centred(columns, matrix_parameter(b_zero, columns, row=False))
    total = ops.MatMul(left, right)
    if c is not None:
        total = ops.Add(total, c)
    factor = ops.Mul(ops.Mul(scalar_of(t.F32, alpha), single(a_scale)), matrix_parameter(b_scale, columns, row=False))
    if y_scale is None or y_zero is None:
        return ops.Mul(cast(total, t.F32), factor)
    return requantized(total, factor, single(y_scale), single(y_zero), y_zero.type.dtype)


@translates("MatMulIntegerToFloat", since=1, domain=MICROSOFT)
def matmul_integer_to_float(
    a: Value,
    b: Value,
    a_scale: Value,
    b_scale: Value,
    a_zero: Value | None = None,
    b_zero: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """The product of codes in i32, times a_scale b_scale, plus the bias. ``b_scale`` and ``b_zero`` can be per column."""
    expect_codes(a, a_zero)
    expect_codes(b, b_zero)
    expect_floats(a_scale, b_scale, bias)
    if bias is not None and bias.type.size != b.shape[-1]:
        raise ValueError(f"a bias of {b.shape[-1]} elements expected, {bias.type} given")
    dtype = a_scale.type.dtype
    total = matmul_integer(a, b, None if a_zero is None else single(a_zero), b_zero)
    factor = ops.Mul(cast(single(a_scale), t.F32), cast(matrix_parameter(b_scale, b, row=False), t.F32))
    y = ops.Mul(cast(total, t.F32), factor)
    return cast(y if bias is None else ops.Add(y, reshape(cast(bias, t.F32), (b.shape[-1],))), dtype)


@translates("DynamicQuantizeMatMul", since=1, domain=MICROSOFT)
def dynamic_quantize_matmul(
    a: Value, b: Value, b_scale: Value, b_zero: Value | None = None, bias: Value | None = None
) -> Value:
    """Quantizes ``a`` by its own range, and multiplies codes."""
    codes, scale, zero = dynamic_quantize_linear(a)
    return matmul_integer_to_float(codes, b, scale, b_scale, zero, b_zero, bias)


@translates("MatMulInteger16", since=1, domain=MICROSOFT)
def matmul_integer_16(a: Value, b: Value) -> Value:
    """The product in i32, where overflow wraps."""
    expect_types((t.I16, t.U16), a, b)
    return matmul(cast(a, t.I32), cast(b, t.I32))


# --- the standard's operators, for types that the standard added later


@translates("QuantizeLinear", since=1, domain=MICROSOFT)
def microsoft_quantize_linear(x: Value, scale: Value, zero_point: Value | None = None, *, axis: int = 1) -> Value:
    return quantize_linear(x, scale, zero_point, axis=axis)


@translates("DequantizeLinear", since=1, domain=MICROSOFT)
def microsoft_dequantize_linear(x: Value, scale: Value, zero_point: Value | None = None, *, axis: int = 1) -> Value:
    return dequantize_linear(x, scale, zero_point, axis=axis)
