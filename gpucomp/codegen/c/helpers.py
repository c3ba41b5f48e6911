"""Device functions for operations where C's own operators differ from the expressions' meaning.

A kernel gets only the functions that it calls. They compute what numpy does in ``expr.functions``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpucomp.codegen.c.dialect import Dialect
from gpucomp.codegen.c.float8 import layout
from gpucomp.ir.types import BF16, DTYPES, F8E8M0, F16, F32, F64, U64, DType

Body = Callable[[Dialect, DType], str]


def _unsigned(dialect: Dialect, dtype: DType) -> str:
    """The unsigned type of at least 32 bits in which arithmetic of ``dtype`` wraps."""
    return dialect.values[U64] if dtype.bits == 64 else dialect.values[DTYPES["u32"]]


def _function(dialect: Dialect, dtype: DType, name: str, parameters: str, body: str, result: str | None = None) -> str:
    t = dialect.value_type(dtype)
    named = ", ".join(p if " " in p else f"{t} {p}" for p in parameters.split(", "))
    lines = "".join(f"  {line}\n" for line in body.strip().split("\n"))
    return f"{dialect.qualifier}{result or t} {name}({named}) {{\n{lines}}}\n"


def _max(dialect: Dialect, dtype: DType, sign: str = ">") -> str:
    nan = " || a != a" if dtype.is_float else ""  # the result is NaN if either operand is
    return f"return a {sign} b{nan} ? a : b;"


def _div(dialect: Dialect, dtype: DType) -> str:
    if dtype.kind == "u":
        return "return b == 0 ? 0 : a / b;"
    wide = _unsigned(dialect, dtype)
    t = dialect.value_type(dtype)
    return f"if (b == 0) return 0;\nreturn b == -1 ? ({t})(({wide})0 - ({wide})a) : a / b;"


def _floordiv(dialect: Dialect, dtype: DType) -> str:
    if dtype.is_float:
        f = dialect.function
        return f"""
if (b == 0) return 0;
const {dialect.value_type(dtype)} rest = {f("fmod", dtype)}(a, b);
const {dialect.value_type(dtype)} quotient = (a - rest) / b - (rest != 0 && (b < 0) != (rest < 0) ? 1 : 0);
if (quotient == 0) return {f("copysign", dtype)}(0, a / b);
const {dialect.value_type(dtype)} whole = {f("floor", dtype)}(quotient);
return quotient - whole > {"0.5" if dtype is F64 else "0.5f"} ? whole + 1 : whole;"""
    if dtype.kind == "u":
        return "return b == 0 ? 0 : a / b;"
    wide, t = _unsigned(dialect, dtype), dialect.value_type(dtype)
    return f"""
if (b == 0) return 0;
if (b == -1) return ({t})(({wide})0 - ({wide})a);
return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);"""


def _mod(dialect: Dialect, dtype: DType) -> str:
    if dtype.is_float:
        f = dialect.function
        return f"""
if (b == 0) return 0;
const {dialect.value_type(dtype)} rest = {f("fmod", dtype)}(a, b);
if (rest == 0) return {f("copysign", dtype)}(0, b);
return (b < 0) != (rest < 0) ? rest + b : rest;"""
    if dtype.kind == "u":
        return "return b == 0 ? 0 : a % b;"
    t = dialect.value_type(dtype)
    return f"""
if (b == 0 || b == -1) return 0;
const {t} rest = a % b;
return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;"""


def _fmod(dialect: Dialect, dtype: DType) -> str:
    return "return b == 0 || b == -1 ? 0 : a % b;" if dtype.kind == "i" else "return b == 0 ? 0 : a % b;"


def _pow(dialect: Dialect, dtype: DType) -> str:
    wide, t = _unsigned(dialect, dtype), dialect.value_type(dtype)
    negative = "if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;\n" if dtype.kind == "i" else ""
    return f"""{negative}{wide} result = 1, power = ({wide})a;
for ({wide} rest = ({wide})b; rest != 0; rest >>= 1) {{
  if (rest & 1) result *= power;
  power *= power;
}}
return ({t})result;"""


def _sign(dialect: Dialect, dtype: DType) -> str:
    if dtype.kind == "u":
        return "return a != 0 ? 1 : 0;"
    return "return a > 0 ? 1 : a < 0 ? -1 : a == 0 ? 0 : a;" if dtype.is_float else "return a > 0 ? 1 : a < 0 ? -1 : 0;"


def _shl(dialect: Dialect, dtype: DType) -> str:
    t, wide = dialect.value_type(dtype), _unsigned(dialect, dtype)
    return f"return ({wide})b >= {dtype.bits} ? 0 : ({t})(({wide})a << b);"


def _shr(dialect: Dialect, dtype: DType) -> str:
    t, wide = dialect.value_type(dtype), _unsigned(dialect, dtype)
    return f"return ({wide})b >= {dtype.bits} ? 0 : ({t})(a >> b);"


BODIES: dict[str, tuple[str, Body]] = {
    "max": ("a, b", _max),
    "min": ("a, b", lambda dialect, dtype: _max(dialect, dtype, "<")),
    "div": ("a, b", _div),
    "floordiv": ("a, b", _floordiv),
    "mod": ("a, b", _mod),
    "fmod": ("a, b", _fmod),
    "pow": ("a, b", _pow),
    "sign": ("a", _sign),
    "shl": ("a, b", _shl),
    "shr": ("a, b", _shr),
}


def function_helper(dialect: Dialect, fn: str, dtype: DType) -> tuple[str, str]:
    """Name and definition of the helper that computes ``fn`` of ``dtype``."""
    parameters, body = BODIES[fn]
    name = f"{fn}_{dtype}"
    return name, _function(dialect, dtype, name, parameters, body(dialect, dtype))


def float_to_integer(dialect: Dialect, source: DType, target: DType) -> tuple[str, str]:
    """A conversion that rounds toward zero, saturates, and turns NaN into 0."""
    info = np.iinfo(target.numpy)
    t = dialect.value_type(target)
    low, high = dialect.literal(float(info.min), source), dialect.literal(float(info.max), source)
    lowest, highest = dialect.literal(int(info.min), target), dialect.literal(int(info.max), target)
    body = (
        f"if (a != a) return 0;\nif (a <= {low}) return {lowest};\nif (a >= {high}) return {highest};\nreturn ({t})a;"
    )
    name = f"{source}_to_{target}"
    return name, _function(dialect, source, name, "a", body, t)


def double_to_half(dialect: Dialect) -> tuple[str, str]:
    """Converts f64 to a float that rounds to the same half.

    It rounds to odd, so that the second rounding still sees whether the first one dropped bits.
    """
    body = f"""
const float near = (float)a;
const {dialect.values[DTYPES["u32"]]} bits = {dialect.float_bits}(near);
if ((double)near == a || near != near || (bits & 1U) != 0 || (bits & 0x7fffffffU) >= 0x7f800000U) return near;
const bool grow = ((double)near < a) == (a > 0);
return {dialect.bits_float}(grow ? bits + 1U : bits - 1U);"""
    return "f64_to_f32_odd", _function(dialect, F64, "f64_to_f32_odd", "a", body, "float")


FP16 = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"


def round_to_half(dialect: Dialect, *, native: bool) -> tuple[str, str]:
    """Rounds a float to the nearest half. Core OpenCL can do that only through memory, cl_khr_fp16 in registers."""
    through = """
ushort bits;
vstore_half_rte(a, 0, (half*)&bits);
return vload_half(0, (const half*)&bits);"""
    body = "return convert_float(convert_half_rte(a));" if native else through
    name = "round_to_half"
    return name, (FP16 if native else "") + _function(dialect, F32, name, "a", body)


def _bf16(dialect: Dialect) -> dict[str, str]:
    """Conversions of bf16 by its bits, which OpenCL C does not have."""
    to_bf16 = """
const uint bits = as_uint(a), nan = a != a;
return (ushort)((bits + (nan ? 0U : 0x7fffU + ((bits >> 16) & 1U))) >> 16 | nan << 6);"""
    return {
        "bf16_to_float": _function(dialect, F32, "bf16_to_float", "ushort a", "return as_float((uint)a << 16);"),
        "float_to_bf16": _function(dialect, F32, "float_to_bf16", "a", to_bf16, "ushort"),
    }


def _exponent(dialect: Dialect, dtype: DType) -> dict[str, str]:
    """The two conversions of f8e8m0, which is an f32's exponent field; its code 0 is a denormal f32.

    Rounding is that of ml_dtypes: ties go up, and numbers between codes 0 and 1 become 1.
    """
    name, u8, uint = dtype.name, dialect.storage_type(dtype), dialect.values[DTYPES["u32"]]
    widen = f"""if (a == 255) return {dialect.nan};
return {dialect.bits_float}(a == 0 ? 0x400000U : ({uint})a << 23);"""
    narrow = f"""const {uint} bits = {dialect.float_bits}(a);
if (bits == 0U || bits >= 0x7f800000U) return 255;
return bits < 0x800000U ? bits > 0x400000U : (bits + 0x400000U) >> 23;"""
    return {
        f"{name}_to_float": _function(dialect, F32, f"{name}_to_float", f"{u8} a", widen),
        f"float_to_{name}": _function(dialect, F32, f"float_to_{name}", "a", narrow, u8),
    }


def _f8(dialect: Dialect, dtype: DType) -> dict[str, str]:
    """The two conversions of an 8-bit or 4-bit float, from its exponent bits, bias and special codes.

    Narrowing rounds to nearest even. Numbers beyond the largest become what numpy's ``astype`` gives: NaN, or infinity
    if the format has one, or the largest number if it has neither.
    """
    if dtype is F8E8M0:
        return _exponent(dialect, dtype)
    form = layout(dtype)
    mantissa, bias, smallest, finite = form.mantissa, form.bias, form.smallest, form.largest
    fnuz, over, nan = not form.negative_zero, form.over, form.nan
    shift = 32 - form.sign.bit_length()
    uint, u8 = dialect.values[DTYPES["u32"]], dialect.storage_type(dtype)
    over_text = f"{nan}U" if fnuz else f"sign | {over}U"
    special = f"if (a == {nan}) return {dialect.nan};\n" if fnuz else ""
    if form.infinity is not None:
        special = f"if (code == {form.infinity}U) return sign ? -{dialect.infinity} : {dialect.infinity};\n"
    if not fnuz and finite < form.sign - 1:
        special += f"if (code > {finite}U) return {dialect.nan};\n"
    widen = f"""const {uint} code = a & {form.sign - 1}U, sign = ({uint})(a & {form.sign}) << {shift};
{special}if (code < {1 << mantissa}U) {{
  const float small = (float)code * {dialect.literal(smallest, F32)};
  return sign ? -small : small;
}}
return {dialect.bits_float}(sign | ((code << {23 - mantissa}) + ({127 - bias}U << 23)));"""
    minus_zero = "if (code == 0) return 0;\n" if fnuz else ""
    narrow = f"""const {uint} bits = {dialect.float_bits}(a), magnitude = bits & 0x7fffffffU;
const {uint} sign = (bits >> {shift}) & {form.sign}U;
if (a != a) return {f"{nan}" if fnuz else f"sign | {nan}U"};
{uint} code;
if (magnitude >= {128 - bias}U << 23) {{
  const {uint} round = {(1 << (22 - mantissa)) - 1}U + ((magnitude >> {23 - mantissa}) & 1U);
  code = ((magnitude + round) >> {23 - mantissa}) - ({127 - bias}U << {mantissa});
}} else {{
  code = ({uint}){dialect.function("rint", F32)}({dialect.bits_float}(magnitude) * {dialect.literal(1 / smallest, F32)});
}}
if (code > {finite}U) return {over_text};
{minus_zero}return sign | code;"""
    name = dtype.name
    return {
        f"{name}_to_float": _function(dialect, F32, f"{name}_to_float", f"{u8} a", widen),
        f"float_to_{name}": _function(dialect, F32, f"float_to_{name}", "a", narrow, u8),
    }


def _nibble(dialect: Dialect, dtype: DType) -> dict[str, str]:
    """Reads the number in the low four or two bits of a byte. Writers fill the high bits differently."""
    sign = 1 << (dtype.bits - 1)
    name, stored, t = f"{dtype}_to_int", dialect.storage_type(dtype), dialect.value_type(dtype)
    masked = f"a & {2 * sign - 1}"
    number = f"(({masked}) ^ {sign}) - {sign}" if dtype.kind == "i" else masked
    return {name: _function(dialect, dtype, name, f"{stored} a", f"return ({t})({number});", t)}


def storage_helper(dialect: Dialect, dtype: DType, name: str) -> str | None:
    """The definition of a storage conversion, or ``None`` if the prelude has it."""
    if dtype in (F16, BF16):
        return None if dialect.prelude else _bf16(dialect)[name]
    return (_f8 if dtype.is_float else _nibble)(dialect, dtype)[name]
