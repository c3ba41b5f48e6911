"""Translators of elementwise operators: arithmetic, comparison, logic, activations, casts."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.frontend.onnx.ai_onnx.random import dropped
from gpucomp.frontend.onnx.ai_onnx.strings import text_cast
from gpucomp.frontend.onnx.compose import (
    axis_of,
    cast,
    computable,
    expand,
    iota,
    like,
    reshape,
    scalar,
    static,
)
from gpucomp.frontend.onnx.containers import Contained
from gpucomp.frontend.onnx.tensors import element_type
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Op, Value, constant, constant_value
from gpucomp.ir import types as t
from gpucomp.ir.types import DType

SAME = (
    *("Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos"),
    *("Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Erf", "Reciprocal", "Relu", "Sigmoid", "Softplus"),
    *("Softsign", "HardSwish", "Mish", "Not", "BitwiseNot", "Add", "Sub", "Mul", "Div", "PRelu"),
    *("Less", "LessOrEqual", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Where"),
    *("LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "ThresholdedRelu"),
)


def _same(op: Op) -> Callable[..., Value]:
    def translate(*operands: Value, **attributes: Any) -> Value:
        return op(*operands, **attributes)

    return translate


for _name in SAME:
    translates(_name)(_same(ops.OPS[_name]))


@translates("Shrink")
def shrink(x: Value, *, lambd: float, bias: float) -> Value:
    """Also for integers, rounded towards zero, as in onnxruntime and ONNX's evaluator."""
    if x.type.dtype.is_float:
        return ops.Shrink(x, lambd=lambd, bias=bias)
    return cast(ops.Shrink(cast(x, t.F64), lambd=lambd, bias=bias), x.type.dtype)


@translates("Gelu", since=20)
def gelu(x: Value, *, approximate: str) -> Value:
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate={approximate!r}: 'none' or 'tanh' expected")
    return ops.Gelu(x, approximate=approximate)


@translates("Swish", since=24)
def swish(x: Value, *, alpha: float) -> Value:
    return ops.Swish(x, alpha=alpha)


@translates("Equal")
def equal(a: Value, b: Value) -> Value:
    return (ops.StringEqual if a.type.dtype is t.STRING else ops.Equal)(a, b)


@translates("Greater")
def greater(a: Value, b: Value) -> Value:
    return ops.Less(b, a)


@translates("GreaterOrEqual", since=12)
def greater_or_equal(a: Value, b: Value) -> Value:
    return ops.LessOrEqual(b, a)


@translates("IsNaN", since=9)
def is_nan(x: Value) -> Value:
    return ops.IsNaN(computable(x))


@translates("IsInf", since=10)
def is_inf(x: Value, *, detect_negative: int, detect_positive: int) -> Value:
    return ops.IsInf(computable(x), detect_negative=bool(detect_negative), detect_positive=bool(detect_positive))


@translates("Mod", since=10)
def mod(a: Value, b: Value, *, fmod: int) -> Value:
    if a.type.dtype.is_float and not fmod:
        raise ValueError("fmod=1 is required for floats")
    return ops.Mod(a, b, fmod=bool(fmod))


@translates("Mod", since=28)
def mod_28(a: Value, b: Value, *, fmod: int) -> Value:
    """Without ``fmod``, the result has the divisor's sign, for floats too: truncated remainder, plus b if signs differ."""
    if fmod or not a.type.dtype.is_float:
        return ops.Mod(a, b, fmod=bool(fmod))
    zero = like(a, 0)
    rest = ops.Mod(a, b, fmod=True)
    differs = ops.Or(ops.And(ops.Less(rest, zero), ops.Less(zero, b)), ops.And(ops.Less(zero, rest), ops.Less(b, zero)))
    signed_zero = ops.Where(ops.Less(b, zero), like(a, -0.0), zero)
    return ops.Where(differs, ops.Add(rest, b), ops.Where(ops.Equal(rest, zero), signed_zero, rest))


UNSIGNED = {t.I8: t.U8, t.I16: t.U16, t.I32: t.U32, t.I64: t.U64}


@translates("BitShift", since=11)
def bit_shift(a: Value, b: Value, *, direction: str) -> Value:
    """Signed numbers are shifted as unsigned ones. For a < 0, ~(~a >> b) shifts in the sign."""
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"direction={direction!r}: 'LEFT' or 'RIGHT' expected")
    dtype = a.type.dtype
    if dtype not in UNSIGNED:
        return ops.BitShift(a, b, direction=direction)
    carrier = UNSIGNED[dtype]
    negative = ops.Less(a, like(a, 0))
    flip = ops.And(negative, constant(np.bool_(direction == "RIGHT")))
    pattern = cast(ops.Where(flip, ops.BitwiseNot(a), a), carrier)
    amount = cast(ops.Max(b, like(b, 0)), carrier)
    shifted = ops.BitShift(pattern, ops.Min(amount, like(amount, dtype.bits - 1)), direction=direction)
    inside = ops.And(ops.LessOrEqual(like(b, 0), b), ops.Less(b, like(b, dtype.bits)))
    result = cast(ops.Where(inside, shifted, like(shifted, 0)), dtype)
    return ops.Where(flip, ops.BitwiseNot(result), result)


@translates("Pow")
def power(base: Value, exponent: Value) -> Value:
    """The result has the base's type. The power is computed in the common type of numpy's promotion rules."""
    result, other = base.type.dtype, exponent.type.dtype
    if result is other:
        return ops.Pow(base, exponent)
    if result.is_integer and other.is_float:
        common = t.F64 if result.bits >= 32 else t.F32 if other.bits < 32 else other
    elif result.is_integer:
        common = t.I64 if result.bits < 64 or other.kind == "i" else result
    else:
        common = result
    return cast(ops.Pow(cast(base, common), cast(exponent, common)), result)


def _fold(op: Op) -> Callable[..., Value]:
    def translate(*operands: Value) -> Value:
        return reduce(lambda a, b: op(a, b), operands)

    return translate


for _name, _op in (("Max", ops.Max), ("Min", ops.Min), ("Sum", ops.Add)):
    translates(_name)(_fold(_op))


@translates("Mean")
def mean_of(*operands: Value) -> Value:
    total = reduce(lambda a, b: ops.Add(a, b), operands)
    return ops.Div(total, like(total, len(operands))) if len(operands) > 1 else total


@translates("Clip")
def clip_by_attributes(x: Value, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38) -> Value:
    return ops.Clip(x, low=min, high=max)


@translates("Clip", since=11)
def clip(x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    """min(max(x, low), high), in this order: if low > high, the result is high."""
    if all(v is None or constant_value(v) is not None for v in (low, high)):
        bounds = [None if v is None else scalar(v, "bound") for v in (low, high)]
        return ops.Clip(x, low=bounds[0], high=bounds[1]) if bounds != [None, None] else x
    if low is not None:
        x = ops.Max(x, reshape(low, ()))
    return x if high is None else ops.Min(x, reshape(high, ()))


@translates("Identity")
def identity(x: Contained) -> Contained:
    return x


@translates("Dropout")
def dropout_by_attribute(x: Value, *, ratio: float = 0.5, site: Site) -> tuple[Value, Value | None]:
    if not site.wants(1):
        return x, None
    kept = constant(np.ones((), np.bool_ if site.opset >= 10 else x.type.dtype.numpy))
    return x, expand(kept, x.shape)


@translates("Dropout", since=12)
def dropout(
    x: Value,
    ratio: Value | None = None,
    training_mode: Value | None = None,
    *,
    seed: int | None = None,
    site: Site,
) -> tuple[Value, Value | None]:
    if training_mode is not None and static(training_mode, "training_mode").any():
        rate = 0.5 if ratio is None else scalar(ratio, "ratio")
        if rate:
            y, kept = dropped(computable(x), float(rate), seed)
            return cast(y, x.type.dtype), kept if site.wants(1) else None
    return x, expand(constant(np.ones((), np.bool_)), x.shape) if site.wants(1) else None


def _saturating(x: Value, to: DType, saturate: int, round_mode: str) -> Value:
    if x.type.dtype is to:
        return x
    if t.STRING in (to, x.type.dtype):
        return text_cast(x, to)
    rounding = {"round_mode": round_mode} if to is t.F8E8M0 else {}
    return ops.Cast(x, to=to, saturate=bool(saturate), **rounding)


@translates("Cast")
def cast_to(x: Value, *, to: int, saturate: int = 1, round_mode: str = "up") -> Value:
    return _saturating(x, element_type(to, "to"), saturate, round_mode)


@translates("CastLike", since=15)
def cast_like(x: Value, target: Value, *, saturate: int = 1, round_mode: str = "up") -> Value:
    return _saturating(x, target.type.dtype, saturate, round_mode)


@translates("BitCast", since=26)
def bit_cast(x: Value, *, to: int) -> Value:
    """Only for constants: the IR has no operator that reinterprets bits."""
    dtype = element_type(to, "to")
    if dtype.bits != x.type.dtype.bits:
        raise ValueError(f"an element type of the size of {x.type.dtype} expected, to={dtype} given")
    if dtype is x.type.dtype:
        return x
    array = np.array(static(x, "operand"), order="C")
    return constant(array.view(np.uint8) != 0 if dtype is t.BOOL else array.view(dtype.numpy))


@translates("Hardmax")
def hardmax_of_rows(x: Value, *, axis: int) -> Value:
    """Below opset 13: the axes from ``axis`` on form one row."""
    axis = axis % max(len(x.shape), 1) if axis < len(x.shape) else axis
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    flat = reshape(x, (rows, x.type.size // rows if rows else 0))
    return reshape(hardmax(flat, axis=1), x.shape)


@translates("Hardmax", since=13)
def hardmax(x: Value, *, axis: int) -> Value:
    axis = axis_of(axis, len(x.shape))
    if not x.shape[axis]:
        return x
    first = ops.ArgMax(x, axis=axis, keepdims=True, select_last_index=False)
    places = reshape(iota(x.shape[axis]), [x.shape[axis] if a == axis else 1 for a in range(len(x.shape))])
    return cast(ops.Equal(first, places), x.type.dtype)
