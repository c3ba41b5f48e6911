"""Exponential, logarithmic, trigonometric and error functions in LLVM IR, without calls of a library.

Every function takes and returns f32 or f64 values with any number of lanes. It covers the whole range, including NaN,
infinities, denormals and huge arguments. The polynomials' coefficients are Chebyshev interpolants of the functions in
the comments, computed with 50 digits, unless a comment says otherwise. f32 results have an error of 2 to 4 ulp, f64
results of 1e-13 (``pow`` 1 ulp; the angles of sine, cosine and tangent an absolute 1e-15).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

from gpucomp.codegen.llvm.ir import tables
from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.floats import FORMATS, clamp, polynomial, power_of_two
from gpucomp.codegen.llvm.ir.types import Type

# fmt: off
# (exp(r) - 1 - r) / r**2 for |r| <= log(2)/2, with a relative error of 1.3e-7: enough beside r itself for the 3 ulp of tanh
EXPM1_OF_TANH = (0.5, 0.166665770255620944, 0.0416665546620056948, 0.00836317308049161918, 0.00139261761274029818)
# the same, with 1e-8
EXPM1 = {
    "float": (0.500000001428622342, 0.166666666825343561, 0.041666456809677876, 0.00833331002422529243,
              0.00139345419282702645, 0.000198919813139776902),
    "double": (0.5, 0.166666666666666667, 0.0416666666666666778, 0.00833333333333333408, 0.0013888888888878269,
               0.000198412698412627626, 0.0000248015873385653456, 2.75573192486338255e-6, 2.75572610293437687e-7,
               2.50520695947956848e-8, 2.09189618377957781e-9, 1.60871772343807823e-10),
}
# (2*atanh(s)/s - 2) / s**2 in z = s**2, for s = (m - 1)/(m + 1), sqrt(1/2) <= m <= sqrt(2)
LOG = {
    "float": (0.666666665535849736, 0.400001225849864871, 0.285507363611229941, 0.233327629936041593),
    "double": (0.666666666666666665, 0.400000000000008895, 0.285714285707959344, 0.222222223934526902,
               0.181817954545213025, 0.153862497884269675, 0.132685033075740921, 0.130894451924662541),
}
# erf(x)/x in z = x**2, for |x| <= 1
ERF = {
    "float": (1.12837916584835095, -0.376126266667203307, 0.112835947151602152, -0.026854212010626327,
              0.00518908742343383202, -0.000801686428716473665, 0.0000787587506268200988),
    "double": (1.12837916709551257, -0.376126389031837481, 0.112837916709548787, -0.0268661706450767932,
               0.00522397762481801447, -0.00085483269808337899, 0.000120553311116427109, -0.000014925595266831181,
               1.64610004841213602e-6, -1.63503127010546184e-7, 1.46597752740469545e-8, -1.13728488567899247e-9,
               5.95717614774611496e-11),
}
# log2(erfc(x)) in x, for 1 <= x <= 4: the largest error of 2 to its power, 1.6e-8, is the least that this degree has
LOG2_ERFC_F32 = (
    -0.00385433733751917764, -1.61212346375318986, -0.94422710202440989, -0.127872777630472568, 0.021320589880441545,
    -0.00165974830845400593,
)
# 2**r for |r| <= 1/2: the largest relative error, 7.5e-8, is the least that this degree has
EXP2_F32 = (
    1.00000007165395392, 0.693146967043054385, 0.240221197261871159, 0.0555071330895857708, 0.00967554124028412505,
    0.00132764605284377988,
)
# log(erfc(3.5 + 2.5*t)) in t, for |t| <= 1
LOG_ERFC_F64 = (
    -14.1124374021481738, -18.165248970913016, -6.04220659213892587, -0.0816509097143913599, 0.0341284110786172605,
    -0.0143845484191425217, 0.00595370450573682655, -0.00237399621623401325, 0.000893576229284531632,
    -0.00030782663895153533, 0.0000909032937113907354, -0.0000184457876168501515, -1.48733547016504876e-6,
    4.49117909342300687e-6, -3.39624157790451779e-6, 2.04515921414794672e-6, -9.57944664495551381e-7,
    2.43763529161738445e-7, -8.37975569400899361e-8, 1.22850307281314521e-7, -3.45368278544928295e-8,
    -3.69078600605160043e-8, 1.74575281695570057e-8,
)
# (atan(x)/x - 1)/z in z = x**2, for |x| <= tan(pi/8)
ATAN = (
    -0.333333333333333301, 0.199999999999954792, -0.142857142846578936, 0.111111110145610136, -0.0909090454988461054,
    0.0769218253511664034, -0.066645022156713535, 0.0585806875686080636, -0.0508503049280769159,
    0.0392195525324673803, -0.0191620689158096703,
)
# (asin(x)/x - 1)/z in z = x**2, for |x| <= 1/2
ASIN = (
    0.166666666666666678, 0.0749999999999842426, 0.0446428571463733809, 0.0303819441370852143, 0.0223721730020055989,
    0.0173523912659091987, 0.0139712353011249175, 0.0114789526902540886, 0.0103243182887635778,
    0.00545087818764382461, 0.0174193579650782853, -0.0148814093931000998, 0.0287784426127739391,
)
# (sin(x)/x - 1)/z and (cos(x) - 1 + z/2)/z**2 in z = x**2, for |x| <= pi/4
SIN = (
    -0.166666666666666667, 0.00833333333333333126, -0.000198412698412645659, 2.75573192189547623e-6,
    -2.50521061002559892e-8, 1.60585108753191929e-10, -7.58548648523584042e-13,
)
COS = (
    0.0416666666666666667, -0.00138888888888888877, 0.000024801587301584369, -2.75573192211891042e-7,
    2.08767557175844037e-9, -1.14704493544667715e-11, 4.74519880720282148e-14,
)
# fmt: on


def _exp_parts(x: Value) -> tuple[Value, Value]:
    """``(n, p)`` with ``exp(x) = 2**n * (1 + p)``; ``n`` is an integer of the width of ``x``."""
    form = FORMATS[x.type.scalar]
    shifted = x.muladd(1 / math.log(2), form.rounder)
    n = shifted - form.rounder
    r = n.muladd(-form.ln2[0], x)
    r = n.muladd(-form.ln2[1], r)
    p = (r * r).muladd(polynomial(r, EXPM1[x.type.scalar]), r)
    integer = x.type.integer
    magic = x.code.const(form.rounder, x.type).bitcast(integer.scalar)
    return shifted.bitcast(integer.scalar) - magic, p


def exp(x: Value) -> Value:
    if tables.usable(x):
        return tables.exp(x)
    low, high = FORMATS[x.type.scalar].exp_range
    below = x < low  # underflow costs some processors hundreds of cycles, and masked scores of attention are many
    n, p = _exp_parts(clamp(x.code.select(below, 0.0, x), None, high))
    half = n.integer_op("ashr", 1)  # in two steps, so that denormal results and infinity are right
    return x.code.select(below, 0.0, (p + 1.0) * power_of_two(half, x) * power_of_two(n - half, x))


def exp_below_zero(x: Value) -> Value:
    """``exp(x)`` for ``x`` that is at most 0, or NaN. In f32 it takes half as long as ``exp``: results below the smallest normal
    number are 0, and the result for 0 is 1.
    """
    form = FORMATS[x.type.scalar]
    if x.type.scalar != "float" or tables.usable(x):
        return exp(x)
    rounder = form.rounder + form.bias  # so that the low bits are the exponent of the result
    shifted = x.muladd(1 / math.log(2), rounder)
    n = shifted - rounder
    rest = n.muladd(-form.ln2[1], n.muladd(-form.ln2[0], x))
    scale = (shifted.bitcast("i32") << form.mantissa).bitcast("float")  # the rounder's own bits are shifted out
    kept = x.compare("uge", math.log(form.smallest_normal))  # true for NaN
    return x.code.select(kept, polynomial(rest, (1.0, 1.0, *EXPM1_OF_TANH)) * scale, 0.0)


def _exp2(x: Value) -> Value:
    """``2**x`` in f32 for ``x`` from -100 to 100, without a look at what is outside; to 2 ulp of 1 where ``x`` is below 0."""
    rounder = FORMATS["float"].rounder
    shifted = x + rounder
    power = polynomial(x - (shifted - rounder), EXP2_F32)
    exponent = shifted.bitcast("i32") << FORMATS["float"].mantissa  # the rounder's own bits are shifted out
    return (power.bitcast("i32") + exponent).bitcast("float")


def quotient(a: Value, b: Value) -> Value:
    """``a / b`` for ``b`` from 1 to 2**60 or NaN, to 2 ulp.

    With AVX-512 it is a reciprocal and one Newton step. A division of 16 lanes occupies the divider for 16 cycles,
    these instructions the multipliers for two.
    """
    code, type = a.code, Type("float", 16)
    if not code.native_scale or Type(b.type.scalar, max(a.type.lanes, b.type.lanes)) != type:
        return a / b
    b = code.splat(b, 16)
    inner = f"{type} {b.text}, {type} zeroinitializer, i16 -1"
    guess = code.let(f"call {type} @llvm.x86.avx512.rcp14.ps.512({inner})", type)
    missing = (-b).muladd(guess, 1.0)
    return guess.muladd(missing, guess) * a


def expm1(x: Value) -> Value:
    form = FORMATS[x.type.scalar]
    n, p = _exp_parts(clamp(x, form.expm1_low, form.exp_range[1]))
    scale = power_of_two(n - 1, x)
    return p.muladd(scale, scale - 0.5) * 2.0


def log(x: Value) -> Value:
    code, form = x.code, FORMATS[x.type.scalar]
    tiny = x < form.smallest_normal
    bits = code.select(tiny, x * 2.0**form.mantissa, x).bitcast(x.type.integer.scalar)
    e = (bits - form.sqrt_half).integer_op("ashr", form.mantissa)
    f = (bits - (e << form.mantissa)).bitcast(x.type.scalar) - 1.0
    e = code.select(tiny, e - form.mantissa, e)
    exponent = code.convert("sitofp", code.convert("trunc", e, "i32"), x.type.scalar)
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    rest = s * (half_square + z * polynomial(z, LOG[x.type.scalar]))
    low = exponent.muladd(form.ln2[1], rest)
    result = exponent.muladd(form.ln2[0], f - (half_square - low))
    result = code.select(x < math.inf, result, x)
    result = code.select(x.equals(0.0), -math.inf, result)
    return code.select(x < 0.0, math.nan, result)


def log1p(x: Value) -> Value:
    u = x + 1.0
    correction = (x - (u - 1.0)) / u
    usable = (u > 0.0) & (u < math.inf)
    return log(u) + x.code.select(usable, correction, 0.0)


def _with_sign(magnitude: Value, sign: Value) -> Value:
    return magnitude.intrinsic("copysign", sign)


def tanh(x: Value) -> Value:
    form = FORMATS[x.type.scalar]
    double = clamp(x.intrinsic("fabs") * 2.0, None, form.tanh_high)
    if x.type.scalar == "float":
        above, below = _tanh_parts(double)
    else:
        above = expm1(double)
        below = above + 2.0
    return _with_sign(quotient(above, below), x)


def _tanh_parts(x: Value) -> tuple[Value, Value]:
    """``exp(x) - 1`` and ``exp(x) + 1`` for f32 ``x`` from 0 to ``tanh_high``, to the precision that their quotient needs.

    One step takes the multiple of ``ln(2)`` away: its error grows with ``x``, and the quotient then hardly depends on it.
    """
    form = FORMATS["float"]
    shifted = x.muladd(1 / math.log(2), form.rounder)
    r = (shifted - form.rounder).muladd(-math.log(2), x)
    p = (r * r).muladd(polynomial(r, EXPM1_OF_TANH), r)
    exponent = shifted.bitcast("i32") << form.mantissa  # the rounder's own bits are shifted out
    power = (exponent + (form.bias << form.mantissa)).bitcast("float")
    return p.muladd(power, power - 1.0), p.muladd(power, power + 1.0)


def erf(x: Value) -> Value:
    if tables.usable(x):
        return tables.erf(x)
    a = x.intrinsic("fabs")
    near = x * polynomial(x * x, ERF[x.type.scalar])
    if x.type.scalar == "float":
        rest = _exp2(polynomial(clamp(a, None, 4.0), LOG2_ERFC_F32))
    else:
        rest = exp(polynomial((clamp(a, 1.0, 6.0) - 3.5) * 0.4, LOG_ERFC_F64))
    one = x.code.const(1.0, x.type)
    return x.code.select(a > 1.0, _with_sign(one - rest, x), near)


def sinh(x: Value) -> Value:
    code, a = x.code, x.intrinsic("fabs")
    t = expm1(clamp(a, None, 40.0))
    small = (t + t / (t + 1.0)) * 0.5
    half = exp(a * 0.5)
    return _with_sign(code.select(a > 30.0, half * 0.5 * half, small), x)


def cosh(x: Value) -> Value:
    half = exp(x.intrinsic("fabs") * 0.5)
    whole = half * half
    return x.code.select(whole < 1e30, whole * 0.5 + x.code.const(0.5, x.type) / whole, half * 0.5 * half)


def asinh(x: Value) -> Value:
    code, a = x.code, x.intrinsic("fabs")
    square = a * a
    near = log1p(a + square / ((square + 1.0).intrinsic("sqrt") + 1.0))
    far = log(a) + math.log(2)
    return _with_sign(code.select(a < 1e9, near, far), x)


def acosh(x: Value) -> Value:
    t = x - 1.0
    near = log1p(t + (t * (t + 2.0)).intrinsic("sqrt"))
    result = x.code.select(x < 1e9, near, log(x) + math.log(2))
    return x.code.select(x < 1.0, math.nan, result)


def atanh(x: Value) -> Value:
    a = x.intrinsic("fabs")
    return _with_sign(log1p(a * 2.0 / (x.code.const(1.0, x.type) - a)) * 0.5, x)


def atan(x: Value) -> Value:
    code, a = x.code, x.intrinsic("fabs")
    one = code.const(1.0, x.type)
    inverted = a > 1.0
    a = code.select(inverted, one / a, a)
    turned = a > math.tan(math.pi / 8)
    t = code.select(turned, (a - 1.0) / (a + 1.0), a)
    z = t * t
    y = (t * z).muladd(polynomial(z, ATAN), t)
    y = code.select(turned, y + math.pi / 4, y)
    y = code.select(inverted, code.const(math.pi / 2, x.type) - y, y)
    return _with_sign(y, x)


def _asin_near(x: Value) -> Value:
    z = x * x
    return (x * z).muladd(polynomial(z, ASIN), x)


def _asin_parts(x: Value) -> tuple[Value, Value, Value]:
    """``|x|``, whether it is more than 1/2, and the arcsine of ``sqrt((1 - |x|)/2)`` if it is, otherwise of ``|x|``."""
    code, a = x.code, x.intrinsic("fabs")
    far = a > 0.5
    root = ((code.const(1.0, x.type) - a) * 0.5).intrinsic("sqrt")
    return a, far, _asin_near(code.select(far, root, a))


def asin(x: Value) -> Value:
    _, far, y = _asin_parts(x)
    return _with_sign(x.code.select(far, y.muladd(-2.0, math.pi / 2), y), x)


def acos(x: Value) -> Value:
    code = x.code
    _, far, y = _asin_parts(x)
    quarter = code.const(math.pi / 2, x.type) - _with_sign(y, x)
    double = y * 2.0
    return code.select(far, code.select(x < 0.0, code.const(math.pi, x.type) - double, double), quarter)


def fixed_parts(value: Fraction, bits: int, count: int) -> list[float]:
    """``value`` as a sum of ``count`` doubles of ``bits`` bits each.

    The positions of these bits are fixed, so that products stay exact.
    """
    result = []
    for position in range(count):
        grid = Fraction(2) ** (3 - bits * (position + 1))
        part = (value // grid) * grid
        result.append(float(part))
        value -= part
    return result


SMALL_ANGLE = 2.0**20
TABLE_START = -32  # the exponent of the table's first entry


def scaled_pi(bits: int) -> int:
    """pi * 2**bits by Machin's formula."""
    unit = 1 << (bits + 16)

    def arctan_inverse(n: int) -> int:
        total, term, k = 0, unit // n, 0
        while term:
            total += (-1) ** k * (term // (2 * k + 1))
            term //= n * n
            k += 1
        return total

    return (16 * arctan_inverse(5) - 4 * arctan_inverse(239)) >> 16


@cache
def turns_table(entries: int) -> tuple[float, ...]:
    """``2**k mod 2*pi`` for k from ``TABLE_START``, each in four parts of 25 bits: sums of two products are exact."""
    precision = entries + 256  # bits of pi: at least as many as the largest power has
    turn, table = 2 * scaled_pi(precision), []
    for k in range(TABLE_START, TABLE_START + entries):
        power = 1 << (precision + k)
        table += fixed_parts(Fraction(power % turn, 1 << precision), 25, 4)
    return tuple(table)


def _reduce_angle(x: Value, largest_exponent: int) -> tuple[Value, Value]:
    """``(n, r)`` with ``x = n*pi/2 + r`` modulo full turns and ``|r| <= pi/4``.

    Only the low two bits of the i64 ``n`` are valid.
    """
    code = x.code
    rounder = FORMATS["double"].rounder
    magic = code.const(rounder, x.type).bitcast("i64")

    def quarters(value: Value) -> tuple[Value, Value]:
        shifted = value.muladd(2 / math.pi, rounder)
        return shifted.bitcast("i64") - magic, shifted - rounder

    half_pi = fixed_parts(Fraction(scaled_pi(200), 1 << 201), 21, 6)
    tail = [sum(half_pi[2:4]), sum(half_pi[4:])]
    index_slot, rest_slot = code.slot(x.type.of("i64")), code.slot(x.type)
    n, count = quarters(x)
    r = x - count * half_pi[0]
    r = r - count * half_pi[1]
    r = (r - count * tail[0]) - count * tail[1]
    index_slot.set(n)
    rest_slot.set(r)
    a = x.intrinsic("fabs")
    large = (a > SMALL_ANGLE) & (a < math.inf)
    with code.when(code.any(large)):
        entries = largest_exponent - 52 + 26 - TABLE_START + 1
        table = code.table("turns", turns_table(entries), "double")
        bits = a.bitcast("i64")
        exponent = bits.integer_op("lshr", 52) - (1075 + TABLE_START)
        exponent = code.select(large, exponent, 0)
        mantissa = (bits & ((1 << 52) - 1)) | (1 << 52)
        high = code.convert("sitofp", mantissa.integer_op("lshr", 26), "double")
        low = code.convert("sitofp", mantissa & ((1 << 26) - 1), "double")
        parts = []
        for position in range(4):
            here = exponent * 4 + position
            parts.append(high * code.gather(table, here + 26 * 4, "double") + low * code.gather(table, here, "double"))
        n, count = quarters(parts[0] + parts[1])
        r = parts[0] - count * half_pi[0]
        r = ((r - count * half_pi[1]) + parts[1]) - count * tail[0]
        r = r + ((parts[2] - count * tail[1]) + parts[3])
        negative = x < 0.0
        zero = code.const(0, n.type)
        index_slot.set(code.select(large, code.select(negative, zero - n, n), index_slot.get()))
        rest_slot.set(code.select(large, code.select(negative, -r, r), rest_slot.get()))
    return index_slot.get(), rest_slot.get()


def _sine(r: Value) -> Value:
    z = r * r
    return (r * z).muladd(polynomial(z, SIN), r)


def _cosine(r: Value) -> Value:
    z = r * r
    return (z * z).muladd(polynomial(z, COS), z.muladd(-0.5, 1.0))


def _flip(value: Value, n: Value, bit: int) -> Value:
    """``-value`` where ``bit`` of ``n`` is set."""
    return value.code.select((n & bit).differs(0), -value, value)


def _circular(x: Value, function: str, largest_exponent: int) -> Value:
    code = x.code
    n, r = _reduce_angle(x, largest_exponent)
    odd = (n & 1).differs(0)
    sine, cosine = _sine(r), _cosine(r)
    if function == "sin":
        result = _flip(code.select(odd, cosine, sine), n, 2)
    elif function == "cos":
        result = _flip(code.select(odd, sine, cosine), n + 1, 2)
    else:
        result = code.select(odd, -cosine / sine, sine / cosine)
    if function != "cos":
        result = code.select(x.equals(0.0), x, result)  # its sign is lost in the sums
    return code.select(x.intrinsic("fabs") < math.inf, result, math.nan)


# numbers of twice the precision of f64: a value and its error. None of this relies on a fused multiply-add.

Pair = tuple[Value, Value]
LOG_TAIL = tuple(1 / (2 * k + 1) for k in range(2, 14))  # atanh(s)/s = 1 + z/3 + z**2/5 ..., z = s**2 <= 0.0295
LARGEST_EXPONENT = 2.0**70  # with smaller exponents already, the power of any number but 1 is 0 or infinity


def _sum(a: Value, b: Value) -> Pair:
    """``a + b`` exactly."""
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def _ordered_sum(a: Value, b: Value) -> Pair:
    """``a + b`` exactly, if ``a`` is 0 or ``|a| >= |b|``."""
    total = a + b
    return total, b - (total - a)


def _halves(a: Value) -> Pair:
    scaled = a * (2.0**27 + 1.0)
    high = scaled - (scaled - a)
    return high, a - high


def _product(a: Value, b: Value) -> Pair:
    """``a * b`` exactly, by Dekker's method."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


def _pair_product(a: Pair, b: Pair) -> Pair:
    high, low = _product(a[0], b[0])
    return high, low + (a[0] * b[1] + a[1] * b[0])


def _log_pair(x: Value) -> Pair:
    """The logarithm of a positive finite f64, with a relative error of about 2**-66."""
    code, form = x.code, FORMATS["double"]
    tiny = x < form.smallest_normal
    bits = code.select(tiny, x * 2.0**form.mantissa, x).bitcast("i64")
    e = (bits - form.sqrt_half).integer_op("ashr", form.mantissa)
    m = (bits - (e << form.mantissa)).bitcast("double")
    e = code.select(tiny, e - form.mantissa, e)
    exponent = code.convert("sitofp", code.convert("trunc", e, "i32"), "double")
    f = m - 1.0  # exact
    d = _sum(m, code.const(1.0, x.type))
    s_high = f / d[0]
    back = _product(s_high, d[0])
    s = s_high, (((f - back[0]) - back[1]) - s_high * d[1]) / d[0]
    z = _pair_product(s, s)
    third = code.const(1 / 3, x.type), code.const(float(Fraction(1, 3) - Fraction(1 / 3)), x.type)
    u, missing = _pair_product(z, third)
    u, rounded = _sum(u, z[0] * z[0] * polynomial(z[0], LOG_TAIL))
    v = _pair_product(s, (u, missing + rounded))
    w, rest = _ordered_sum(s[0], v[0])
    high, low = _sum(exponent * form.ln2[0], w * 2.0)
    return _ordered_sum(high, low + ((rest + (s[1] + v[1])) * 2.0 + exponent * form.ln2[1]))


def _exp_pair(x: Value, low: Value) -> Value:
    """``exp(x + low)`` within 0.7 ulp, if ``low`` is far below 1; also right for infinite ``x``."""
    code, form = x.code, FORMATS["double"]
    inside = x.intrinsic("fabs") < 1000.0
    low = code.select(inside, low, 0.0)
    x = clamp(x, *form.exp_range)
    shifted = x.muladd(1 / math.log(2), form.rounder)
    count = shifted - form.rounder
    r, missing = _sum(x - count * form.ln2[0], -(count * form.ln2[1]))
    missing = missing + low
    whole, rest = _ordered_sum(code.const(1.0, x.type), r)
    curve = r * r * polynomial(r, EXPM1["double"])
    rest = rest + (curve + missing * (whole + curve))
    n = shifted.bitcast("i64") - code.const(form.rounder, x.type).bitcast("i64")
    half = n.integer_op("ashr", 1)
    return (whole + rest) * power_of_two(half, x) * power_of_two(n - half, x)


def _accurate_power(a: Value, y: Value) -> Value:
    """``a ** y`` for ``a >= 0``. The logarithm and its product with ``y`` need more digits than the result has."""
    code = a.code
    y = clamp(y, -LARGEST_EXPONENT, LARGEST_EXPONENT)
    ordinary = (a > 0.0) & (a < math.inf)
    high, low = _log_pair(code.select(ordinary, a, 1.0))
    product, error = _product(y, high)
    error = error + y * low
    special = code.select(a.equals(0.0), -math.inf, a) * y  # 0, infinity and NaN
    return _exp_pair(code.select(ordinary, product, special), code.select(ordinary, error, 0.0))


def power(x: Value, y: Value, *, accurate: bool) -> Value:
    """``x ** y`` of f64, with the special cases of C's ``pow``.

    With ``accurate`` the error is at most 1 ulp, and whole powers of whole numbers are exact if f64 can represent them.
    Otherwise the relative error is 1e-12, which suffices for f32.
    """
    code = x.code
    lanes = max(x.type.lanes, y.type.lanes)
    x, y = code.splat(x, lanes), code.splat(y, lanes)
    a = x.intrinsic("fabs")
    result = _accurate_power(a, y) if accurate else exp(y * log(a))
    whole = y.intrinsic("floor").equals(y)
    half = y * 0.5
    odd = whole & half.intrinsic("floor").differs(half)
    negative = x.bitcast("i64").compare("slt", 0)
    result = code.select(negative & odd, -result, result)
    result = code.select((x < 0.0) & (a < math.inf) & ~whole, math.nan, result)
    sure = y.equals(0.0) | x.equals(1.0) | (a.equals(1.0) & y.intrinsic("fabs").equals(math.inf))
    return code.select(sure, 1.0, result)


DIRECT: dict[str, Callable[[Value], Value]] = {"exp": exp, "log": log, "tanh": tanh, "erf": erf}
WIDE: dict[str, Callable[[Value], Value]] = {
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "sinh": sinh,
    "cosh": cosh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
}
CIRCULAR = frozenset({"sin", "cos", "tan"})


def apply(function: str, args: Sequence[Value]) -> Value:
    """``function`` of f32 or f64 values. Rarer functions of f32 are computed in f64 and rounded once."""
    code, scalar = args[0].code, args[0].type.scalar
    if function in DIRECT:
        return DIRECT[function](args[0])
    wide = [code.convert("fpext", a, "double") for a in args]
    if function in CIRCULAR:
        result = _circular(wide[0], function, 127 if scalar == "float" else 1023)
    elif function == "pow":
        result = power(*wide, accurate=scalar == "double")
    else:
        result = WIDE[function](wide[0])
    return code.narrowed(result, scalar)


NAMES = frozenset(DIRECT) | frozenset(WIDE) | CIRCULAR | {"pow"}
