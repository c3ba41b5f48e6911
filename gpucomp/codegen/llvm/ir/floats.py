"""Formats of floating-point numbers, and what the functions of ``math`` are made of: polynomials, limits, powers of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpucomp.codegen.llvm.ir.builder import Value


@dataclass(frozen=True)
class Format:
    """Constants of a floating-point type. ``ln2`` is in two parts; the first has trailing zeros."""

    mantissa: int
    bias: int
    ln2: tuple[float, float]
    exp_range: tuple[float, float]
    expm1_low: float
    tanh_high: float
    sqrt_half: int  # the bits of sqrt(1/2)
    smallest_normal: float

    @property
    def rounder(self) -> float:
        """Adding this to a small number rounds the number to an integer, which is in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa


FORMATS = {
    "float": Format(
        mantissa=23,
        bias=127,
        ln2=(0.693359375, -2.12194440054690583e-4),
        exp_range=(-104.0, 89.0),
        expm1_low=-18.0,
        tanh_high=20.0,
        sqrt_half=0x3F3504F3,
        smallest_normal=2.0**-126,
    ),
    "double": Format(
        mantissa=52,
        bias=1023,
        ln2=(0.693147180369123816490, 1.90821492927058770002e-10),
        exp_range=(-746.0, 710.0),
        expm1_low=-40.0,
        tanh_high=44.0,
        sqrt_half=0x3FE6A09E667F3BCD,
        smallest_normal=2.0**-1022,
    ),
}


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluates a polynomial by Horner's rule; ``coefficients`` start with the constant."""
    result = x.code.const(coefficients[-1], x.type)
    for c in reversed(coefficients[:-1]):
        result = result.muladd(x, c)
    return result


def clamp(x: Value, low: float | None, high: float | None) -> Value:
    """``x`` limited to the range; NaN stays NaN."""
    if low is not None:
        x = x.code.select(x < low, low, x)
    if high is not None:
        x = x.code.select(x > high, high, x)
    return x


def power_of_two(n: Value, like: Value) -> Value:
    """``2**n`` for an integer ``n`` in the range of normal numbers."""
    form = FORMATS[like.type.scalar]
    return ((n + form.bias) << form.mantissa).bitcast(like.type.scalar)
