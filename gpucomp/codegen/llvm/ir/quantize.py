"""Quantization to bytes: a float is rounded to even, shifted by a zero point and clipped.

Clipping can come before rounding, because its limits are whole numbers. The processor's conversion to integers then
does the rounding, and no test for numbers outside its range is needed:

    min(max(round(x) + zero, low), high)  =  int(min(max(x, low - zero), high - zero)) + zero
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.expr.core import Call, Cast, Const, Expr
from gpucomp.ir.types import F32, I8, U8, DType

EXACT = 1 << 22  # f32 represents whole numbers up to here, and rounds to them where 1.5 * 2**23 is added


@dataclass(frozen=True)
class Quantizer:
    """``dtype(min(max(rounded + zero, low), high))``; ``rounded`` is the call that rounds."""

    rounded: Call
    zero: int
    low: int
    high: int
    dtype: DType


def quantizer_of(expr: Cast) -> Quantizer | None:
    """``expr`` as a quantizer of f32; ``None`` if it is something else, or if a limit is not a number of the byte."""
    match expr.value:
        case Call(fn="min", args=(Call(fn="max", args=(shifted, Const(value=low))), Const(value=high))):
            pass
        case _:
            return None
    if expr.dtype not in (I8, U8) or shifted.dtype is not F32:
        return None
    zero: float = 0.0
    match shifted:
        case Call(fn="add", args=(Call(fn="round") as rounded, Const(value=zero))):
            pass
        case Call(fn="round") as rounded:
            pass
        case _:
            return None
    info = np.iinfo(expr.dtype.numpy)
    whole = all(math.isfinite(n) and n == int(n) for n in (zero, low, high))
    if not whole or not info.min <= low <= high <= info.max or abs(zero) > EXACT - 256:
        return None
    return Quantizer(rounded, int(zero), int(low), int(high), expr.dtype)


def code_of(x: Value, quantizer: Quantizer) -> Value:
    """The code of each lane of ``x``, as a byte. A NaN gives 0."""
    code, q = x.code, quantizer
    low, high = (code.const(float(end - q.zero), x.type) for end in (q.low, q.high))
    clipped = code.select(x > low, x, low)  # false for NaN, which becomes ``low``
    clipped = code.select(clipped < high, clipped, high)
    type = Type("i32", x.type.lanes)
    name = f"llvm.lrint.{type.suffix}.{x.type.suffix}"
    whole = code.let(f"call {type} @{name}({x.type} {clipped.text})", type)
    found = code.convert("trunc", whole + q.zero if q.zero else whole, "i8")
    if q.low == 0 or _is_number(q.rounded.args[0]):
        return found
    return code.select(x.is_nan(), 0, found)


def _is_number(expr: Expr) -> bool:
    """Whether ``expr`` is an integer times a finite number, so never NaN."""
    match expr:
        case Call(fn="mul", args=(Cast(value=value), Const(value=factor))):
            return value.dtype.is_integer and math.isfinite(factor)
    return False
