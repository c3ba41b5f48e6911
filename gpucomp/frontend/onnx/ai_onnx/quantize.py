"""Translators of quantisation, with explicit scales and zero points, and products in i32.

Quantized are quantized values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from gpucomp import ops
from gpucomp.frontend.onnx.ai_onnx.nn import conv, matmul
from gpucomp.frontend.onnx.compose import axis_of, cast, channels, expand, reshape, scalar_of
from gpucomp.frontend.onnx.tensors import element_type
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value, constant_value
from gpucomp.ir import types as t
from gpucomp.ir.types import DType


def spread(parameter: Value, x: Value, axis: int, block_size: int = 0) -> Value:
    """A scale or zero point per tensor, axis or block, shaped to broadcast against ``x``."""
    rank = len(x.shape)
    if parameter.type.size == 1 and len(parameter.shape) <= 1:
        return reshape(parameter, ())
    place = axis_of(axis, rank)
    if block_size:
        blocks = list(x.shape)
        blocks[place] = -(-x.shape[place] // block_size)
        if parameter.shape != tuple(blocks):
            raise ValueError(f"blocks of shape {blocks} expected, {parameter.type} given")
        wide = reshape(parameter, (*blocks[: place + 1], 1, *blocks[place + 1 :]))
        wide = expand(wide, (*blocks[: place + 1], block_size, *blocks[place + 1 :]))
        full = list(blocks)
        full[place] *= block_size
        whole = reshape(wide, full)
        return (
            ops.Slice(whole, starts=(0,) * rank, steps=(1,) * rank, sizes=x.shape) if whole.shape != x.shape else whole
        )
    if parameter.shape != (x.shape[place],):
        raise ValueError(f"one or {x.shape[place]} elements expected, {parameter.type} given")
    return reshape(parameter, [x.shape[place] if a == place else 1 for a in range(rank)])


def integer_range(dtype: DType) -> tuple[int, int]:
    if dtype.kind == "u":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def quantized(x: Value, scale: Value, zero_point: Value | None, to: DType, *, saturate: bool = True) -> Value:
    """saturate(round(x / scale) + zero_point), with halves to even. Operands broadcast. Float codes are not rounded."""
    return code(ops.Div(x, scale), zero_point, to, saturate=saturate)


def code(ratio: Value, zero_point: Value | None, to: DType, *, saturate: bool = True) -> Value:
    """saturate(round(ratio) + zero_point), with halves to even. Float codes are not rounded; their zero point is usually 0."""
    if to.is_float:
        if zero_point is not None and not _is_zero(zero_point):
            ratio = ops.Add(ratio, cast(zero_point, ratio.type.dtype))
        return ops.Cast(ratio, to=to, saturate=saturate)
    wide = t.F64 if to.bits > 16 else t.F32
    rounded = ops.Round(cast(ratio, wide))
    if zero_point is not None:
        rounded = ops.Add(rounded, cast(zero_point, wide))
    low, high = integer_range(to)
    return cast(ops.Clip(rounded, low=float(low), high=float(high)), to)


def _is_zero(x: Value) -> bool:
    """Whether ``x`` is a constant 0. Adding it would change -0 to 0."""
    array = constant_value(x)
    return array is not None and not np.any(array.astype(np.float32))


def requantized(total: Value, factor: Value, divisor: Value, zero_point: Value | None, to: DType) -> Value:
    """saturate(round(total (factor / divisor)) + zero_point) of integer sums. Operands broadcast.

    The operators define the result over the reals, but not the order of rounding. This is the order of onnxruntime, so
    that codes are equal to the bit: the multiplier ``factor / divisor`` is in f32, the sum is converted to f32 and
    multiplied by it, rounded with halves to even, and then the zero point is added.
    """
    multiplier = ops.Div(cast(factor, t.F32), cast(divisor, t.F32))
    return code(ops.Mul(cast(total, t.F32), multiplier), zero_point, to)


def dequantized(x: Value, scale: Value, zero_point: Value | None) -> Value:
    """(x - zero_point) scale. The difference is computed in a type in which it is exact."""
    to = scale.type.dtype
    wide = t.F64 if x.type.dtype.bits > 16 else t.F32
    value = cast(x, wide)
    if zero_point is not None:
        value = ops.Sub(value, cast(zero_point, wide))
    return cast(ops.Mul(value, cast(scale, wide)), to)


@translates("QuantizeLinear", since=10)
def quantize_linear(
    x: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    """Below opset 23 the standard does not define the type of the division. It is f32, as in onnxruntime."""
    return quantize_linear_23(
        *(x, scale, zero_point),
        axis=axis,
        saturate=saturate,
        block_size=block_size,
        output_dtype=output_dtype,
        precision=TensorProto.FLOAT,
    )


@translates("QuantizeLinear", since=23)
def quantize_linear_23(
    x: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    axis: int,
    saturate: int,
    block_size: int,
    output_dtype: int,
    precision: int,
) -> Value:
    """The division is in the type of the scale, unless ``precision`` is given."""
    to = zero_point.type.dtype if zero_point is not None else t.U8
    if output_dtype:
        chosen = element_type(output_dtype, "output_dtype")
        if zero_point is not None and chosen is not to:
            raise ValueError(f"output_dtype is {chosen}, the zero point is {to}")
        to = chosen
    width = element_type(precision, "precision") if precision else scale.type.dtype
    if not width.is_float or width.storage_only:
        width = t.F32
    factor = cast(spread(scale, x, axis, block_size), width)
    zero = None if zero_point is None else spread(zero_point, x, axis, block_size)
    return quantized(cast(x, width), factor, zero, to, saturate=bool(saturate))


@translates("DequantizeLinear", since=10)
def dequantize_linear(
    x: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    zero = None if zero_point is None else spread(zero_point, x, axis, block_size)
    y = dequantized(x, spread(scale, x, axis, block_size), zero)
    return cast(y, element_type(output_dtype, "output_dtype")) if output_dtype else y


@translates("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: Value) -> tuple[Value, Value, Value]:
    """Maps the range of x, extended to contain 0, to 0..255. If all of x is 0, the scale is 1, as in onnxruntime."""
    return dynamically_quantized(x, tuple(range(len(x.shape))), keepdims=False)


def dynamically_quantized(x: Value, axes: tuple[int, ...], *, keepdims: bool) -> tuple[Value, Value, Value]:
    """Codes, scale and zero point of ``x``, by its range over ``axes``."""
    zero = scalar_of(x.type.dtype, 0)
    extremes = ops.Extremes.node(x, axes=axes, keepdims=keepdims)
    low, high = ops.Min(extremes[0], zero), ops.Max(extremes[1], zero)
    spread = ops.Sub(high, low)
    one = scalar_of(x.type.dtype, 1)
    scale = ops.Where(ops.Equal(spread, zero), one, ops.Div(spread, scalar_of(x.type.dtype, 255)))
    start = ops.Clip(ops.Round(ops.Div(ops.Sub(zero, low), scale)), low=0.0, high=255.0)
    zero_point = cast(start, t.U8)
    return quantized(x, scale, zero_point, t.U8), scale, zero_point


def centred(x: Value, zero_point: Value | None) -> Value:
    """x - zero_point in i32."""
    wide = cast(x, t.I32)
    return wide if zero_point is None else ops.Sub(wide, cast(zero_point, t.I32))


def matrix_parameter(parameter: Value, x: Value, *, row: bool) -> Value:
    """A parameter of a matrix operand: one for all, one per row (left operand) or one per column (right operand)."""
    if parameter.type.size == 1:
        return reshape(parameter, ())
    if len(parameter.shape) == 1 and len(x.shape) >= 2:
        return reshape(parameter, (parameter.shape[0], 1)) if row else parameter
    return parameter


@translates("MatMulInteger", since=10)
def matmul_integer(a: Value, b: Value, a_zero: Value | None = None, b_zero: Value | None = None) -> Value:
    left = centred(a, None if a_zero is None else matrix_parameter(a_zero, a, row=True))
    right = centred(b, None if b_zero is None else matrix_parameter(b_zero, b, row=False))
    return matmul(left, right)


@translates("QLinearMatMul", since=10)
def qlinear_matmul(
    a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value, y_scale: Value, y_zero: Value
) -> Value:
    """The result has one scale, or one per row. See ``requantized`` for the order of rounding."""
    product = matmul_integer(a, b, a_zero, b_zero)
    rows, columns = (
        cast(matrix_parameter(scale, operand, row=row), t.F32)
        for scale, operand, row in ((a_scale, a, True), (b_scale, b, False))
    )
    scale = matrix_parameter(y_scale, product, row=True)
    zero = matrix_parameter(y_zero, product, row=True)
    return requantized(product, ops.Mul(rows, columns), scale, zero, y_zero.type.dtype)


def _weight_parameter(parameter: Value, w: Value) -> Value:
    if parameter.type.size == 1:
        return reshape(parameter, ())
    if parameter.shape != (w.shape[0],):
        raise ValueError(f"one or {w.shape[0]} elements expected, {parameter.type} given")
    return reshape(parameter, (w.shape[0], *[1] * (len(w.shape) - 1)))


@translates("ConvInteger", since=10)
def conv_integer(
    x: Value, w: Value, x_zero: Value | None = None, w_zero: Value | None = None, **attributes: Any
) -> Value:
    left = centred(x, None if x_zero is None else reshape(x_zero, ()))
    right = centred(w, None if w_zero is None else _weight_parameter(w_zero, w))
    return conv(left, right, **attributes)


@translates("QLinearConv", since=10)
def qlinear_conv(
    x: Value,
    x_scale: Value,
    x_zero: Value,
    w: Value,
    w_scale: Value,
    w_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
    **attributes: Any,
) -> Value:
    """The bias is i32, with the scale x_scale w_scale. See ``requantized`` for the order of rounding."""
    total = conv_integer(x, w, x_zero, w_zero, **attributes)
    if bias is not None:
        total = ops.Add(total, channels(bias, len(total.shape)))
    factor = ops.Mul(cast(reshape(x_scale, ()), t.F32), cast(w_scale, t.F32))
    factor = reshape(factor, ()) if factor.type.size == 1 else channels(factor, len(total.shape))
    return requantized(total, factor, reshape(y_scale, ()), reshape(y_zero, ()), y_zero.type.dtype)


def single(parameter: Value) -> Value:
    """A scale or zero point of one element as a scalar."""
    return reshape(parameter, ())


def single_or_none(parameter: Value | None) -> Value | None:
    return None if parameter is None else single(parameter)
