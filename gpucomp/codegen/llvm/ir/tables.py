"""Functions by tables in registers: AVX-512 looks up 16 numbers at once, and multiplies by ``2**n`` in one instruction.

erf  by polynomials. Arguments from 0 to just below 4 are divided into 16 intervals around multiples of 1/4. Each
     coefficient of an interval's polynomial is looked up by one permutation of a register. The polynomials are
     Newton's, through the Chebyshev points of the interval.
exp  by the 16 powers ``2**(j / 16)``. The rest of the exponent is so small that its polynomial has three terms
     (P. T. P. Tang, Table-driven implementation of the exponential function in IEEE floating-point arithmetic, 1989)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.types import Type

INTERVALS = 16  # f32 numbers in a register
STEP = 0.25
LAST = STEP * (INTERVALS - 0.5) - 2.0**-22  # the largest f32 whose nearest multiple of 1/4 has an entry
ROUNDER = 1.5 * 2.0**23  # adding this to a small number rounds it to an integer, in the low bits of the sum
ERF_DEGREE = 4  # the error is 3 ulp, mostly from rounding the sums of the last interval
FRACTION = 96  # fraction bits of the fixed-point numbers in which the series is summed
LANES = Type("float", INTERVALS)
LN2 = (0.693359375, -2.12194440054690583e-4)  # in two parts; the first has trailing zeros
EXP_RANGE = (-104.0, 89.0)  # below it the result is 0, above it infinity
POWERS = tuple(2.0 ** (j / INTERVALS) for j in range(INTERVALS))


def usable(x: Value) -> bool:
    """Whether the processor can look up as many lanes as ``x`` has."""
    return x.code.native_scale and x.type == LANES


def erf(x: Value) -> Value:
    """The error function to 3 ulp; it is exactly 1 where that is the nearest f32."""
    code = x.code
    a = x.intrinsic("fabs")
    near = code.select(a > LAST, LAST, a)  # NaN stays NaN
    shifted = near.muladd(1 / STEP, ROUNDER)
    offset = (shifted - ROUNDER).muladd(-STEP, near)
    place = shifted.bitcast("i32")
    table = _table(erf_over_x, ERF_DEGREE)
    result = _lookup(table[-1], place)
    for coefficients in reversed(table[:-1]):
        result = result.muladd(offset, _lookup(coefficients, place))
    return code.select(a > LAST, 1.0, near * result).intrinsic("copysign", x)


def exp(x: Value) -> Value:
    """The exponential function to 2 ulp, including denormal results and infinity."""
    code = x.code
    kept = x.compare("uge", EXP_RANGE[0])  # true for NaN
    x = code.select(x > EXP_RANGE[1], EXP_RANGE[1], x)
    shifted = x.muladd(INTERVALS / math.log(2), ROUNDER)
    steps = shifted - ROUNDER
    rest = steps.muladd(-LN2[0] / INTERVALS, x)
    rest = steps.muladd(-LN2[1] / INTERVALS, rest)
    grown = rest * rest.muladd(1 / 6, 0.5).muladd(rest, 1.0)
    power = _lookup(POWERS, shifted.bitcast("i32"))
    return scaled(power.muladd(grown, power), steps * (1 / INTERVALS), kept)


def scaled(x: Value, n: Value, kept: Value) -> Value:
    """``x * 2**floor(n)`` rounded once, including denormal results and infinity; 0 in lanes outside ``kept``.

    It is one instruction of AVX-512. A lane whose result underflows costs about a hundred cycles, unless it is masked.
    """
    mask = x.code.let(f"bitcast {kept.type} {kept.text} to i{INTERVALS}", Type(f"i{INTERVALS}"))
    inner = f"{x.type} {x.text}, {n.type} {n.text}, {x.type} zeroinitializer, i16 {mask.text}, i32 4"
    return x.code.let(f"call {x.type} @llvm.x86.avx512.mask.scalef.ps.512({inner})", x.type)


def _lookup(entries: Sequence[float], place: Value) -> Value:
    """``entries[place]`` in each lane; only the low four bits of ``place`` count."""
    table = place.code.vector(entries, "float")
    inner = f"{LANES} {table.text}, {place.type} {place.text}"
    return place.code.let(f"call {LANES} @llvm.x86.avx512.permvar.sf.512({inner})", LANES)


@cache
def _table(function: Callable[[float], float], degree: int) -> tuple[tuple[float, ...], ...]:
    """For each power of the offset from an interval's middle, the coefficients of all intervals."""
    rows = [_newton(function, STEP * number, degree) for number in range(INTERVALS)]
    return tuple(zip(*rows, strict=True))


def _newton(function: Callable[[float], float], middle: float, degree: int) -> list[float]:
    """Coefficients, in powers of ``x - middle``, of the polynomial through the interval's Chebyshev points."""
    points = [STEP / 2 * math.cos(math.pi * (2 * k + 1) / (2 * degree + 2)) for k in range(degree + 1)]
    differences = [function(middle + point) for point in points]
    for order in range(1, degree + 1):
        for k in range(degree, order - 1, -1):
            differences[k] = (differences[k] - differences[k - 1]) / (points[k] - points[k - order])
    found = [0.0] * (degree + 1)
    for k in range(degree, -1, -1):  # Horner's rule: multiply by (x - point), add the difference
        found = [a - points[k] * b for a, b in zip([0.0, *found[:-1]], found, strict=True)]
        found[0] += differences[k]
    return found


def erf_over_x(x: float) -> float:
    """``erf(x) / x`` by its series, which is even in x."""
    square = round(x * x * 2**FRACTION)
    total, term, k = 0, 1 << FRACTION, 0
    while abs(term) > 1:
        total += term // (2 * k + 1)
        k += 1
        term = -(term * square >> FRACTION) // k
    return math.ldexp(total, -FRACTION) * 2 / math.sqrt(math.pi)
