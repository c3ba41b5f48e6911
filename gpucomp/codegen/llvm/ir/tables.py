"""Functions by tables that a register holds: AVX-512 looks 16 numbers up at once, and one instruction scales by ``2**n``.

erf  by polynomials: an argument from 0 to just below 4 lies in one of 16 intervals about the quarters, and each coefficient
     of the interval's polynomial is one permutation of a register. The polynomials are Newton's, through the Chebyshev
     points of the interval.
exp  by the 16 powers ``2**(j / 16)``: what is left to the polynomial is so small that it has three terms (P. T. P. Tang,
     Table-driven implementation of the exponential function in IEEE floating-point arithmetic, 1989)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from gpucomp.codegen.llvm.ir.builder import Type, Value

INTERVALS = 16  # entries of a register
STEP = 0.25
LAST = STEP * (INTERVALS - 0.5) - 2.0**-22  # above this f32 the nearest quarter has no entry
ROUNDER = 1.5 * 2.0**23  # adding this to a small number rounds it to an integer, found in the low bits
ERF_DEGREE = 4  # 3 ulp, of which the rounding of the last interval's sums are most
FRACTION = 96  # bits of the fixed-point numbers that the series is summed in
LANES = Type("float", INTERVALS)
LN2 = (0.693359375, -2.12194440054690583e-4)  # in two parts; the first has trailing zeros
EXP_RANGE = (-104.0, 89.0)  # below it the nearest f32 is 0, above it infinity
POWERS = tuple(2.0 ** (j / INTERVALS) for j in range(INTERVALS))


def usable(x: Value) -> bool:
    """Whether the processor looks up as many lanes as ``x`` has."""
    return x.code.native_scale and x.type == LANES


def erf(x: Value) -> Value:
    """To 3 ulp; 1 exactly where the nearest f32 is 1."""
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
    """To 2 ulp, denormal results and infinity included."""
    code = x.code
    kept = x.compare("uge", EXP_RANGE[0])  # and NaN
    x = code.select(x > EXP_RANGE[1], EXP_RANGE[1], x)
    shifted = x.muladd(INTERVALS / math.log(2), ROUNDER)
    steps = shifted - ROUNDER
    rest = steps.muladd(-LN2[0] / INTERVALS, x)
    rest = steps.muladd(-LN2[1] / INTERVALS, rest)
    grown = rest * rest.muladd(1 / 6, 0.5).muladd(rest, 1.0)
    power = _lookup(POWERS, shifted.bitcast("i32"))
    return scaled(power.muladd(grown, power), steps * (1 / INTERVALS), kept)


def scaled(x: Value, n: Value, kept: Value) -> Value:
    """``x * 2**floor(n)`` rounded once, denormal results and infinity included, 0 in lanes that are not ``kept``.

    One instruction of AVX-512. A lane in which a result underflows costs it some hundred cycles, a masked one does not.
    """
    mask = x.code.let(f"bitcast {kept.type} {kept.text} to i{INTERVALS}", Type(f"i{INTERVALS}"))
    inner = f"{x.type} {x.text}, {n.type} {n.text}, {x.type} zeroinitializer, i16 {mask.text}, i32 4"
    return x.code.let(f"call {x.type} @llvm.x86.avx512.mask.scalef.ps.512({inner})", x.type)


def _lookup(entries: Sequence[float], place: Value) -> Value:
    """``entries[place]`` in each lane, by the low four bits of the place."""
    table = place.code.vector(entries, "float")
    inner = f"{LANES} {table.text}, {place.type} {place.text}"
    return place.code.let(f"call {LANES} @llvm.x86.avx512.permvar.sf.512({inner})", LANES)


@cache
def _table(function: Callable[[float], float], degree: int) -> tuple[tuple[float, ...], ...]:
    """For each power of the offset from an interval's middle, its coefficient in every interval."""
    rows = [_newton(function, STEP * number, degree) for number in range(INTERVALS)]
    return tuple(zip(*rows, strict=True))


def _newton(function: Callable[[float], float], middle: float, degree: int) -> list[float]:
    """Coefficients in ``x - middle`` of the polynomial through the interval's Chebyshev points."""
    points = [STEP / 2 * math.cos(math.pi * (2 * k + 1) / (2 * degree + 2)) for k in range(degree + 1)]
    differences = [function(middle + point) for point in points]
    for order in range(1, degree + 1):
        for k in range(degree, order - 1, -1):
            differences[k] = (differences[k] - differences[k - 1]) / (points[k] - points[k - order])
    found = [0.0] * (degree + 1)
    for k in range(degree, -1, -1):  # Horner's rule: times (x - point), plus the difference
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
