"""The functions of ``gpucomp.expr.functions``, and conversions between element types, on LLVM values.

NaN, division by zero, overflow and rounding follow each function's meaning in numpy.
``gpucomp.codegen.llvm.ir.storage`` says how values are represented in registers and in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from gpucomp.codegen.llvm.ir import math as vector_math
from gpucomp.codegen.llvm.ir.builder import Code, Value
from gpucomp.codegen.llvm.ir.storage import register_scalar, round_to, wrap
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.errors import UnsupportedError
from gpucomp.expr.core import Number
from gpucomp.ir.size import Size
from gpucomp.ir.types import BF16, BOOL, F16, F64, I32, DType


def _double_to_single_odd(value: Value) -> Value:
    """f64 to f32, rounded to odd: an inexact result gets the odd neighbour.

    A second rounding, to 16 bits, then gives the right result.
    """
    code = value.code
    near = code.convert("fptrunc", value, "float")
    back = code.convert("fpext", near, "double")
    bits = near.bitcast("i32")
    inexact = back.differs(value) & ~value.is_nan()
    even = (bits & 1).equals(0)
    over = back.intrinsic("fabs") > value.intrinsic("fabs")
    step = code.select(over, code.const(-1, bits.type), code.const(1, bits.type))
    return code.select(inexact & even, bits + step, bits).bitcast("float")


def cast(value: Value, source: DType, target: DType) -> Value:
    """Converts an element. Float to integer rounds toward zero and saturates; NaN becomes 0.

    Four-bit integers wrap. An 8-bit float is rounded twice, to f32 and then to 8 bits, as in numpy.
    """
    code = value.code
    if source is target:
        return value
    if target is BOOL:
        return value.differs(0)
    goal = register_scalar(target)
    if target.is_float:
        if source is F64:
            if target is F16:
                return round_to(_double_to_single_odd(value), target)
            value = code.convert("fptrunc", value, goal)
        elif source.is_float:
            value = code.convert("fpext", value, goal)
        else:
            value = code.convert("uitofp" if source.kind in "ub" else "sitofp", value, goal)
        return round_to(value, target)
    if target.storage_only:
        value = cast(value, source, I32) if source.is_float else value
        return wrap(code.convert("zext" if source is BOOL else "trunc", value, goal), target)
    if source.is_float and target.bits < 32:
        return _to_narrow_integer(value, target, goal)
    if source.is_float:
        type = value.type.of(goal)
        kind = "fptoui" if target.kind == "u" else "fptosi"
        name = f"llvm.{kind}.sat.{type.suffix}.{value.type.suffix}"
        return code.let(f"call {type} @{name}({value.type} {value.text})", type)
    if target.bits < source.bits and source is not BOOL:
        return code.convert("trunc", value, goal)
    return code.convert("zext" if source.kind in "ub" else "sext", value, goal)


def _to_narrow_integer(value: Value, target: DType, goal: str) -> Value:
    """Clips as a float first: LLVM's saturating conversion to fewer than 32 bits handles a vector's lanes one by one."""
    code, info = value.code, np.iinfo(target.numpy)
    low, high = (code.const(float(end), value.type) for end in (info.min, info.max))
    clipped = code.select(value > low, value, low)  # false for NaN, which becomes ``low``
    clipped = code.select(clipped < high, clipped, high)
    found = code.convert("trunc", code.convert("fptosi", clipped, "i32"), goal)
    return found if info.min == 0 else code.select(value.is_nan(), 0, found)


# integers


def _divide(a: Value, b: Value, signed: bool, op: str) -> Value:
    """``sdiv``, ``srem`` and their unsigned forms, defined for all operands: x/0 is 0, INT_MIN/-1 wraps."""
    code = a.code
    constant = _constant(b)
    if constant is not None and constant not in (0, -1):
        return a.integer_op(("s" if signed else "u") + op, b)
    zero = b.equals(0)
    risky = zero | b.equals(-1) if signed else zero
    quotient = a.integer_op(("s" if signed else "u") + op, code.select(risky, 1, b))
    if signed:
        negated = -a if op == "div" else code.const(0, a.type)
        quotient = code.select(b.equals(-1), negated, quotient)
    return code.select(zero, 0, quotient)


def _constant(value: Value) -> int | None:
    text = value.text.removeprefix(f"splat ({value.type.scalar} ").removesuffix(")")
    try:
        return int(text)
    except ValueError:
        return None


def _floor_divide(a: Value, b: Value, signed: bool) -> Value:
    quotient = _divide(a, b, signed, "div")
    if not signed:
        return quotient
    inexact = (quotient * b).differs(a) & b.differs(0)
    below = inexact & (a ^ b).compare("slt", 0)
    return a.code.select(below, quotient - 1, quotient)


def _floor_modulo(a: Value, b: Value, signed: bool) -> Value:
    remainder = _divide(a, b, signed, "rem")
    if not signed:
        return remainder
    wrong = remainder.differs(0) & (remainder ^ b).compare("slt", 0)
    return a.code.select(wrong, remainder + b, remainder)


def _integer_power(a: Value, b: Value, signed: bool) -> Value:
    """Power by squaring, modulo the type's range. With a negative exponent the result is rounded toward zero."""
    code = a.code
    lanes = max(a.type.lanes, b.type.lanes)
    a, b = code.splat(a, lanes), code.splat(b, lanes)
    result, base = code.slot(a.type), code.slot(a.type)
    result.set(code.const(1, a.type))
    base.set(a)
    with code.loop(0, a.type.bits) as step:
        shift = code.convert("trunc", step, a.type.scalar)
        chosen = (b.integer_op("lshr", code.splat(shift, lanes)) & 1).differs(0)
        result.set(code.select(chosen, result.get() * base.get(), result.get()))
        base.set(base.get() * base.get())
    power = result.get()
    if not signed:
        return power
    sign = code.select((b & 1).differs(0), a, 1)  # (-1)**b, for |a| = 1
    small = code.select(a.equals(1) | a.equals(-1), sign, 0)
    return code.select(b.compare("slt", 0), small, power)


def _shift(a: Value, b: Value, op: str) -> Value:
    code, bits = a.code, a.type.bits
    inside = b.compare("ult", bits)
    return code.select(inside, a.integer_op(op, code.select(inside, b, 0)), 0)


def _integer(fn: str, args: Sequence[Value], signed: bool) -> Value:
    a, b = args[0], args[-1]
    code, prefix = a.code, "s" if signed else "u"
    match fn:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div":
            return _divide(a, b, signed, "div")
        case "floordiv":
            return _floor_divide(a, b, signed)
        case "mod":
            return _floor_modulo(a, b, signed)
        case "fmod":
            return _divide(a, b, signed, "rem")
        case "pow":
            return _integer_power(a, b, signed)
        case "max" | "min":
            return a.intrinsic(f"{prefix}{fn}", b)
        case "neg":
            return -a
        case "abs":
            return code.select(a.compare("slt", 0), -a, a) if signed else a
        case "sign":
            if not signed:
                return code.convert("zext", a.differs(0), a.type.scalar)
            return code.select(a.compare("sgt", 0), code.const(1, a.type), a.integer_op("ashr", a.type.bits - 1))
        case "floor" | "ceil" | "round":
            return a
        case "isnan" | "isinf":
            return code.const(False, a.type.of("i1"))
        case "lt" | "le":
            return a.compare(f"{prefix}{fn}", b)
        case "eq":
            return a.equals(b)
        case "ne":
            return a.differs(b)
        case "and" | "or" | "xor" | "not":
            return _logic(fn, [v.differs(0) for v in args])
        case "bitand":
            return a & b
        case "bitor":
            return a | b
        case "bitxor":
            return a ^ b
        case "bitnot":
            return ~a
        case "shl":
            return _shift(a, b, "shl")
        case "shr":
            return _shift(a, b, "ashr" if signed else "lshr")
    raise UnsupportedError(f"function {fn} of integers: not supported by the cpu target", code="GPC4010")


def _logic(fn: str, args: Sequence[Value]) -> Value:
    a, b = args[0], args[-1]
    match fn:
        case "and" | "mul" | "min" | "bitand":
            return a & b
        case "or" | "add" | "max" | "bitor":
            return a | b
        case "xor" | "ne" | "bitxor" | "sub":
            return a ^ b
        case "not" | "bitnot":
            return ~a
        case "eq":
            return ~(a ^ b)
        case "lt":
            return ~a & b
        case "le":
            return ~a | b
        case "abs" | "floor" | "ceil" | "round":
            return a
        case "isnan" | "isinf":
            return a.code.const(False, a.type)
    raise UnsupportedError(f"function {fn} of bools: not supported by the cpu target", code="GPC4010")


# floats


def _remainder(a: Value, b: Value) -> Value:
    """C's ``fmod`` of f64, exact: long division, with one subtraction of a scaled divisor per bit of the quotient."""
    code = a.code
    lanes = max(a.type.lanes, b.type.lanes)
    a, b = code.splat(a, lanes), code.splat(b, lanes)
    mantissa, tiny = (1 << 52) - 1, 2.0**-1022
    divisor = b.intrinsic("fabs")
    small = divisor < tiny
    scale = code.select(small, code.const(2.0**54, a.type), code.const(1.0, a.type))
    divisor = divisor * scale  # now normal, so that its exponent can be set
    rest = code.slot(a.type)
    usable = (a.intrinsic("fabs") < math.inf) & (divisor > 0.0) & (divisor < math.inf)
    rest.set(code.select(usable, a.intrinsic("fabs"), 0.0))
    body = divisor.bitcast("i64") & mantissa

    def reduce() -> None:
        with code.repeat() as again:
            r = rest.get()
            exponent = r.bitcast("i64") & ~mantissa
            multiple = (exponent | body).bitcast("double")
            multiple = code.select(multiple > r, multiple * 0.5, multiple)
            left = code.select((r >= divisor) & usable, r - multiple, r)
            rest.set(left)
            again.append(code.any((left >= divisor) & usable))

    reduce()
    with code.when(code.any(small & usable)):
        rest.set(rest.get() * scale)
        reduce()
        rest.set(rest.get() / scale)
    result = rest.get()
    same = a.intrinsic("fabs") < divisor.intrinsic("fabs")
    result = code.select(divisor.equals(math.inf) & same, a.intrinsic("fabs"), result)
    result = result.intrinsic("copysign", a)
    return code.select(usable | (divisor.equals(math.inf) & same), result, math.nan)


def _float_division(fn: str, a: Value, b: Value) -> Value:
    """``fmod``, ``mod`` and ``floordiv`` of floats as in numpy; the last two give 0 for a divisor of 0."""
    code, scalar = a.code, a.type.scalar
    x, y = code.convert("fpext", a, "double"), code.convert("fpext", b, "double")
    remainder = _remainder(x, y)
    if fn == "fmod":
        return code.narrowed(remainder, scalar)
    opposite = remainder.differs(0.0) & ((y < 0.0) ^ (remainder < 0.0))
    if fn == "mod":
        narrow = code.narrowed(remainder, scalar)
        shifted = code.select(opposite, narrow + b, narrow)
        shifted = code.select(shifted.equals(0.0), code.const(0.0, shifted.type).intrinsic("copysign", b), shifted)
        return code.select(b.equals(0.0), 0.0, shifted)
    narrow = code.narrowed(remainder, scalar)
    quotient = (a - narrow) / b
    quotient = code.select(opposite, quotient - 1.0, quotient)
    whole = quotient.intrinsic("floor")
    whole = code.select((quotient - whole) > 0.5, whole + 1.0, whole)
    return code.select(b.equals(0.0), 0.0, whole)


def _extremum(a: Value, b: Value, fn: str) -> Value:
    """The larger or the smaller operand, or NaN if either is NaN.

    A constant operand needs no test for NaN; the rest is one instruction. Otherwise the intrinsic leaves a test of one operand:
    of comparisons and selections LLVM makes one selection by both comparisons. For f64 it may be a call of a C library.
    """
    code = a.code
    for x, c in ((a, b), (b, a)):
        if not c.text.startswith("%") and "0x7FF8" not in c.text:
            return code.select((x < c) if fn == "max" else (x > c), c, x)
    if a.type.scalar == "float":
        return a.intrinsic("maximum" if fn == "max" else "minimum", b, flags="nsz")
    better = (a > b) if fn == "max" else (a < b)
    return code.select(a.is_nan(), a, code.select(better, a, b))


def _sign(a: Value) -> Value:
    code = a.code
    one = code.const(1.0, a.type)
    result = code.select(a > 0.0, one, code.select(a < 0.0, -one, code.const(0.0, a.type)))
    return code.select(a.is_nan(), a, result)


_FLOAT: dict[str, Callable[..., Value]] = {
    "add": lambda a, b: a._binary("fadd", "", b, " contract"),
    "sub": lambda a, b: a._binary("fsub", "", b, " contract"),
    "mul": lambda a, b: a._binary("fmul", "", b, " contract"),
    "div": lambda a, b: a / b,
    "max": lambda a, b: _extremum(a, b, "max"),
    "min": lambda a, b: _extremum(a, b, "min"),
    "neg": lambda a: -a,
    "abs": lambda a: a.intrinsic("fabs"),
    "sign": _sign,
    "floor": lambda a: a.intrinsic("floor"),
    "ceil": lambda a: a.intrinsic("ceil"),
    "round": lambda a: a.intrinsic("rint"),
    "sqrt": lambda a: a.intrinsic("sqrt"),
    "isnan": lambda a: a.is_nan(),
    "isinf": lambda a: a.intrinsic("fabs").equals(math.inf),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a.equals(b),
    "ne": lambda a, b: a.differs(b),
}
ROUNDS = frozenset({"add", "sub", "mul", "div", "sqrt", "pow", "fmod", "mod", "floordiv"}) | vector_math.NAMES


def apply(fn: str, dtype: DType, args: Sequence[Value]) -> Value:
    """``fn`` of operands with element type ``dtype``."""
    if dtype is BOOL:
        return _logic(fn, args)
    if dtype.storage_only:
        raise UnsupportedError(f"function {fn} of {dtype}: the type only stores", code="GPC4010")
    if not dtype.is_float:
        return _integer(fn, args, signed=dtype.kind == "i")
    if len(args) == 2:
        lanes = max(a.type.lanes for a in args)
        args = [a.code.splat(a, lanes) for a in args]
    if fn in {"fmod", "mod", "floordiv"}:
        result = _float_division(fn, *args)
    elif fn in vector_math.NAMES:
        result = vector_math.apply(fn, args)
    elif fn in {"and", "or", "xor", "not"}:
        return _logic(fn, [a.differs(0.0) for a in args])
    elif fn in _FLOAT:
        result = _FLOAT[fn](*args)
    else:
        raise UnsupportedError(f"function {fn} of {dtype}: not supported by the cpu target", code="GPC4010")
    return round_to(result, dtype) if fn in ROUNDS else result


def reduced(fn: str, dtype: DType, values: Sequence[Value]) -> Value:
    """``fn`` of all of ``values``, where their order does not matter.

    Extremes keep a NaN. The greater of two is one instruction, which gives its second operand if either is NaN: that keeps
    the NaN of the first value. For the others one comparison looks at two of them.
    """
    total, *others = values
    if fn not in {"max", "min"} or not dtype.is_float or len(others) < 2:
        for value in others:
            total = apply(fn, dtype, [total, value])
        return total
    code, unordered = total.code, None
    for value in others:
        total = code.select((value > total) if fn == "max" else (value < total), value, total)
    for first, second in zip(others[::2], [*others[1::2], others[-1]], strict=False):
        either = first.compare("uno", second)
        unordered = either if unordered is None else unordered | either
    assert unordered is not None
    bits = f"i{total.type.bits}"
    return code.select(unordered, -1, total.bitcast(bits)).bitcast(total.type.scalar)  # all bits set are a NaN


def constant(code: Code, value: Number | Size, dtype: DType, lanes: int = 0) -> Value:
    """A literal of ``dtype``, rounded to it."""
    if isinstance(value, Size):
        return code.const(value, Type("i64", lanes))
    if dtype in (F16, BF16) or (dtype.is_float and dtype.storage_only):
        value = float(dtype.numpy.type(value))
    if dtype.is_integer:
        value = int(value)
        if dtype.kind == "i" or value >= 1 << 63:
            value = (value + (1 << (dtype.bits - 1))) % (1 << dtype.bits) - (1 << (dtype.bits - 1))
    return code.const(value, Type(register_scalar(dtype), lanes))
