"""The closed list of scalar functions: arity, result type and numpy implementation. Printers hold their spellings.

The numpy implementation defines NaN, signed zeros, overflow and rounding. Every printer must agree with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Function:
    """``result`` is ``same`` (as the operands) or ``bool``."""

    name: str
    arity: int
    numpy: Callable[..., Any]
    result: str = "same"


def _truncated_division(a: Any, b: Any) -> Any:
    """Integer division rounding to zero, as C and ONNX have it; x/0 gives 0 and INT_MIN/-1 wraps."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "f" or a.dtype.kind == "V":
        return np.divide(a, b)
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.floor_divide(a, safe)
    inexact = np.multiply(quotient, safe) != a
    quotient = quotient + (inexact & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, np.zeros_like(quotient), quotient)


def _floor_division(a: Any, b: Any) -> Any:
    safe = np.where(np.equal(b, 0), np.ones_like(b), b)
    return np.where(np.equal(b, 0), np.zeros_like(a), np.floor_divide(a, safe))


def _round(a: Any) -> Any:
    """Round halves to even. Integers stay: ``np.rint`` would convert them to f64, which cannot hold all 64-bit integers."""
    return a if np.issubdtype(np.asarray(a).dtype, np.integer) else np.rint(a)


def _floor_modulo(a: Any, b: Any) -> Any:
    """Remainder with the divisor's sign (Python's ``%``); x%0 gives 0."""
    safe = np.where(np.equal(b, 0), np.ones_like(b), b)
    return np.where(np.equal(b, 0), np.zeros_like(a), np.mod(a, safe))


def _truncated_modulo(a: Any, b: Any) -> Any:
    """Remainder with the dividend's sign (C's ``fmod`` and ``%``); an integer x%0 gives 0."""
    a = np.asarray(a)
    if a.dtype.kind in "fV":  # V: the floats of ml_dtypes
        return np.fmod(a, b)
    safe = np.where(np.equal(b, 0), np.ones_like(b), b)
    return np.where(np.equal(b, 0), np.zeros_like(a), np.fmod(a, safe))


def _power(a: Any, b: Any) -> Any:
    """``a ** b``; an integer base with a negative exponent rounds to zero, as C's ``(int)pow(a, b)``."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind in "iu":
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    return np.power(a, b)


def _erf(x: Any) -> Any:
    x = np.asarray(x)
    exact = np.frompyfunc(math.erf, 1, 1)
    return np.asarray(exact(x.astype(np.float64)), dtype=np.float64).astype(x.dtype)


def _shift_left(a: Any, b: Any) -> Any:
    bits = np.asarray(a).dtype.itemsize * 8
    return np.where(np.asarray(b) >= bits, np.zeros_like(a), np.left_shift(a, np.minimum(b, bits - 1)))


def _shift_right(a: Any, b: Any) -> Any:
    bits = np.asarray(a).dtype.itemsize * 8
    return np.where(np.asarray(b) >= bits, np.zeros_like(a), np.right_shift(a, np.minimum(b, bits - 1)))


FUNCTIONS = {
    f.name: f
    for f in (
        Function("add", 2, np.add),
        Function("sub", 2, np.subtract),
        Function("mul", 2, np.multiply),
        Function("div", 2, _truncated_division),
        Function("floordiv", 2, _floor_division),
        Function("mod", 2, _floor_modulo),
        Function("fmod", 2, _truncated_modulo),
        Function("pow", 2, _power),
        Function("max", 2, np.maximum),  # NaN wins, as in numpy and ONNX
        Function("min", 2, np.minimum),
        Function("neg", 1, np.negative),
        Function("abs", 1, np.abs),
        Function("sign", 1, np.sign),
        Function("floor", 1, np.floor),
        Function("ceil", 1, np.ceil),
        Function("round", 1, _round),
        Function("sqrt", 1, np.sqrt),
        Function("exp", 1, np.exp),
        Function("log", 1, np.log),
        Function("sin", 1, np.sin),
        Function("cos", 1, np.cos),
        Function("tan", 1, np.tan),
        Function("asin", 1, np.arcsin),
        Function("acos", 1, np.arccos),
        Function("atan", 1, np.arctan),
        Function("sinh", 1, np.sinh),
        Function("cosh", 1, np.cosh),
        Function("tanh", 1, np.tanh),
        Function("asinh", 1, np.arcsinh),
        Function("acosh", 1, np.arccosh),
        Function("atanh", 1, np.arctanh),
        Function("erf", 1, _erf),
        Function("isnan", 1, np.isnan, "bool"),
        Function("isinf", 1, np.isinf, "bool"),
        Function("lt", 2, np.less, "bool"),
        Function("le", 2, np.less_equal, "bool"),
        Function("eq", 2, np.equal, "bool"),
        Function("ne", 2, np.not_equal, "bool"),
        Function("and", 2, np.logical_and, "bool"),
        Function("or", 2, np.logical_or, "bool"),
        Function("xor", 2, np.logical_xor, "bool"),
        Function("not", 1, np.logical_not, "bool"),
        Function("bitand", 2, np.bitwise_and),
        Function("bitor", 2, np.bitwise_or),
        Function("bitxor", 2, np.bitwise_xor),
        Function("bitnot", 1, np.invert),
        Function("shl", 2, _shift_left),
        Function("shr", 2, _shift_right),
    )
}

COMMUTATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne", "bitand", "bitor", "bitxor"})
