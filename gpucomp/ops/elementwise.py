"""Elementwise operators: arithmetic, comparison, logic, conversion. ``registry`` does the broadcasting and the loop over
elements. Activations are in activation.py."""

from __future__ import annotations

import math

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, Number, axes_of, call, cast, load, select
from gpucomp.expr.evaluate import convert
from gpucomp.expr.functions import FUNCTIONS
from gpucomp.ir.graph import Op
from gpucomp.ir.types import F8E8M0, F32, DType, TensorType, finfo
from gpucomp.ops.registry import broadcast, compute_type, elementwise, expect, in_double, op, pointwise


def _binary(name: str, fn: str, kinds: str, *, result_bool: bool = False) -> Op:
    reference = FUNCTIONS[fn].numpy
    return elementwise(name, lambda a, b: call(fn, a, b), reference, operands=2, kinds=kinds, result_bool=result_bool)


def _unary(name: str, fn: str, kinds: str, *, result_bool: bool = False) -> Op:
    """An exact function, computed in the operand's own type."""
    return elementwise(
        name, lambda x: call(fn, x), FUNCTIONS[fn].numpy, operands=1, kinds=kinds, result_bool=result_bool
    )


def _function(name: str, fn: str) -> Op:
    """A real function, for floats only; 16-bit floats are computed in f32."""
    reference = in_double(FUNCTIONS[fn].numpy)
    return elementwise(name, lambda x: call(fn, x), reference, operands=1, kinds="f", wide=True)


Add = _binary("Add", "add", "fiu")
Sub = _binary("Sub", "sub", "fiu")
Mul = _binary("Mul", "mul", "fiu")
Div = _binary("Div", "div", "fiu")
Max = _binary("Max", "max", "fiu")
Min = _binary("Min", "min", "fiu")
Equal = _binary("Equal", "eq", "fiub", result_bool=True)
Less = _binary("Less", "lt", "fiu", result_bool=True)
LessOrEqual = _binary("LessOrEqual", "le", "fiu", result_bool=True)
And = _binary("And", "and", "b", result_bool=True)
Or = _binary("Or", "or", "b", result_bool=True)
Xor = _binary("Xor", "xor", "b", result_bool=True)
BitwiseAnd = _binary("BitwiseAnd", "bitand", "iu")
BitwiseOr = _binary("BitwiseOr", "bitor", "iu")
BitwiseXor = _binary("BitwiseXor", "bitxor", "iu")

Abs = _unary("Abs", "abs", "fiu")
Neg = _unary("Neg", "neg", "fi")
Sign = _unary("Sign", "sign", "fiu")
Not = _unary("Not", "not", "b", result_bool=True)
BitwiseNot = _unary("BitwiseNot", "bitnot", "iu")
IsNaN = _unary("IsNaN", "isnan", "f", result_bool=True)

Floor = _function("Floor", "floor")
Ceil = _function("Ceil", "ceil")
Round = _function("Round", "round")
Sqrt = _function("Sqrt", "sqrt")
Exp = _function("Exp", "exp")
Log = _function("Log", "log")
Sin = _function("Sin", "sin")
Cos = _function("Cos", "cos")
Tan = _function("Tan", "tan")
Asin = _function("Asin", "asin")
Acos = _function("Acos", "acos")
Atan = _function("Atan", "atan")
Sinh = _function("Sinh", "sinh")
Cosh = _function("Cosh", "cosh")
Tanh = _function("Tanh", "tanh")
Asinh = _function("Asinh", "asinh")
Acosh = _function("Acosh", "acosh")
Atanh = _function("Atanh", "atanh")
Erf = _function("Erf", "erf")

Reciprocal = elementwise("Reciprocal", lambda x: 1 / x, in_double(np.reciprocal), operands=1, kinds="f", wide=True)


def _is_inf(x: Expr, *, detect_negative: bool = True, detect_positive: bool = True) -> Expr:
    if detect_negative and detect_positive:
        return call("isinf", x)
    if detect_positive or detect_negative:
        return call("eq", x, math.inf if detect_positive else -math.inf)
    return call("and", call("isinf", x), False)


def _is_inf_reference(x: np.ndarray, *, detect_negative: bool = True, detect_positive: bool = True) -> np.ndarray:
    return np.asarray(np.isinf(x) & np.where(x < 0, bool(detect_negative), bool(detect_positive)))


IsInf = elementwise("IsInf", _is_inf, _is_inf_reference, operands=1, kinds="f", result_bool=True)


def _mod(a: Expr, b: Expr, *, fmod: bool = False) -> Expr:
    return call("fmod" if fmod else "mod", a, b)


def _check_mod(a: TensorType, b: TensorType, *, fmod: bool = False) -> None:
    if a.dtype.is_float and not fmod:
        raise ValueError(f"fmod=1 expected, because {a.dtype} elements are not integers")


def _mod_reference(a: np.ndarray, b: np.ndarray, *, fmod: bool = False) -> np.ndarray:
    if a.dtype.kind in "fV":
        return in_double(np.fmod)(a, b)
    with np.errstate(all="ignore"):
        remainder = (np.fmod if fmod else np.mod)(a, b)
    return np.asarray(np.where(b == 0, np.zeros_like(remainder), remainder))


Mod = elementwise("Mod", _mod, _mod_reference, operands=2, kinds="fiu", wide=True, check=_check_mod)


def _pow_reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "fV":
        return in_double(np.power)(a, b)
    # modulo 2^64, as in kernels: Python's integers would grow until memory is full
    exact = np.power(a.astype(np.int64).view(np.uint64), np.maximum(b, 0).astype(np.uint64)).astype(a.dtype)
    shrunk = np.where(np.abs(a) == 1, np.where(b % 2 == 0, a * a, a), 0)  # 1/a rounds to zero unless |a| is 1
    return np.where(b < 0, shrunk, exact).astype(a.dtype)


Pow = elementwise("Pow", lambda a, b: call("pow", a, b), _pow_reference, operands=2, kinds="fiu", wide=True)


def _bit_shift(a: Expr, b: Expr, *, direction: str) -> Expr:
    return call("shl" if direction == "LEFT" else "shr", a, b)


def _bit_shift_reference(a: np.ndarray, b: np.ndarray, *, direction: str) -> np.ndarray:
    bits = a.dtype.itemsize * 8
    amount = np.minimum(b, bits - 1)
    shifted = np.left_shift(a, amount) if direction == "LEFT" else np.right_shift(a, amount)
    return np.where(b < bits, shifted, 0).astype(a.dtype)


def _check_shift(a: TensorType, b: TensorType, *, direction: str) -> None:
    if direction not in {"LEFT", "RIGHT"}:
        raise ValueError(f"direction LEFT or RIGHT expected, got {direction!r}")


BitShift = elementwise("BitShift", _bit_shift, _bit_shift_reference, operands=2, kinds="u", check=_check_shift)


def _clip(x: Expr, *, low: Number | None, high: Number | None) -> Expr:
    if low is not None:
        x = call("max", x, low)
    return x if high is None else call("min", x, high)  # the upper limit wins, as in ONNX


def _clip_reference(x: np.ndarray, *, low: Number | None, high: Number | None) -> np.ndarray:
    with np.errstate(all="ignore"):
        lowest = None if low is None else np.asarray(low).astype(x.dtype)
        highest = None if high is None else np.asarray(high).astype(x.dtype)
    result = x if lowest is None else np.where(x < lowest, lowest, x)
    return result if highest is None else np.where(result > highest, highest, result)


def _check_clip(x: TensorType, *, low: Number | None, high: Number | None) -> None:
    if x.dtype.is_integer:
        info = np.iinfo(x.dtype.numpy)
        for limit in (low, high):
            if limit is not None and (int(limit) != limit or not info.min <= limit <= info.max):
                raise ValueError(f"limits that {x.dtype} can hold expected, got {limit}")


Clip = elementwise("Clip", _clip, _clip_reference, operands=1, kinds="fiu", check=_check_clip)


@op("Where")
def Where(condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
    """``x`` where ``condition`` (bool) holds, else ``y``; all three broadcast."""
    expect(condition, "b")
    if x.dtype is not y.dtype:
        raise ValueError(f"operands of one element type expected, got {x.dtype} and {y.dtype}")
    return x.with_shape(broadcast(condition.shape, x.shape, y.shape))


@Where.define("algorithm")
def _where_algorithm(condition: TensorType, x: TensorType, y: TensorType) -> Algorithm:
    axes, (test, a, b) = pointwise((condition, x, y), broadcast(condition.shape, x.shape, y.shape))
    return Algorithm(axes, select(test, a, b))


@Where.define("reference")
def _where_reference(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(condition, x, y)


ROUND_MODES = ("nearest", "up", "down")


@op("Cast")
def Cast(x: TensorType, *, to: DType, saturate: bool = True, round_mode: str = "nearest") -> TensorType:
    """Conversion of the element type; see ``expr.core.Cast`` for the rounding.

    ``saturate`` is for the 8-bit floats: numbers out of their range become their largest number. Without it they become
    NaN or infinity, as in ONNX's table for Cast. ``round_mode`` (``nearest``, ``up`` or ``down``) is for f8e8m0 only.
    """
    if round_mode not in ROUND_MODES:
        raise ValueError(f"round_mode {', '.join(ROUND_MODES)} expected, got {round_mode!r}")
    return x.with_dtype(to)


def _largest(to: DType) -> float:
    return float(finfo(to.numpy).max)


def _lowest(to: DType) -> float:
    return float(finfo(to.numpy).tiny) if to is F8E8M0 else -_largest(to)


def _saturates(x: DType, to: DType, saturate: bool) -> bool:
    return saturate and to.is_float and to.bits == 8 and x is not to


@Cast.define("algorithm")
def _cast_algorithm(x: TensorType, *, to: DType, saturate: bool = True, round_mode: str = "nearest") -> Algorithm:
    axes = axes_of(x.shape)
    element: Expr = load(0, axes, x.dtype)
    if _saturates(x.dtype, to, saturate):
        wide = cast(element, _arithmetic_type(x.dtype))
        element = call("max", call("min", wide, _largest(to)), _lowest(to))
    if to is F8E8M0 and x.dtype is not to and round_mode != "nearest":
        element = cast(element, _arithmetic_type(x.dtype))
        near = cast(cast(element, to), element.dtype)
        if round_mode == "up":
            element = select(call("lt", near, element), call("mul", near, 2.0), near)
        else:
            element = select(call("lt", element, near), call("mul", near, 0.5), near)
    return Algorithm(axes, cast(element, to))


def _arithmetic_type(dtype: DType) -> DType:
    return compute_type(dtype) if dtype.is_float and not dtype.storage_only else F32


@Cast.define("reference")
def _cast_reference(x: np.ndarray, *, to: DType, saturate: bool = True, round_mode: str = "nearest") -> np.ndarray:
    if not to.is_float or to.bits != 8 or x.dtype == to.numpy:
        return convert(x, to)
    wide = x.astype(np.float64 if x.dtype.itemsize > 4 else np.float32)
    if saturate:
        wide = np.clip(wide, _lowest(to), _largest(to))
    near = wide.astype(to.numpy)
    if to is not F8E8M0 or round_mode == "nearest":
        return near
    power = near.astype(wide.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        up = np.where(power < wide, power * 2, power)
        return (up if round_mode == "up" else np.where(power > wide, power / 2, power)).astype(to.numpy)
