"""Representation of elements in registers and in memory, and conversions between the two.

In registers a float of 16 bits or fewer is an f32 that has been rounded, a bool is an i1, and an integer of 4 or 2 bits
is a sign- or zero-extended i8. Conversions use integer arithmetic, so they need no special instructions.
"""

from __future__ import annotations

import math

from gpucomp.codegen.c.float8 import Float8, layout
from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.ir.types import BF16, BOOL, F8E8M0, F16, F32, F64, DType


def register_scalar(dtype: DType) -> str:
    """The LLVM type of one element in a register."""
    if dtype is F64:
        return "double"
    if dtype.is_float:
        return "float"
    return "i1" if dtype is BOOL else f"i{dtype.nbytes * 8}"


def memory_scalar(dtype: DType) -> str:
    """The LLVM type of one element in memory. Floats of 16 and 8 bits are loaded and stored as integers."""
    return register_scalar(dtype) if dtype in (F32, F64) else f"i{dtype.nbytes * 8}"


def from_memory(value: Value, dtype: DType) -> Value:
    code = value.code
    if dtype is BOOL:
        return value.differs(0)
    if dtype is F16:
        return half_to_single(value)
    if dtype is BF16:
        return (code.convert("zext", value, "i32") << 16).bitcast("float")
    if dtype.storage_only:
        return _widened(value, dtype) if dtype.is_float else wrap(value, dtype)
    return value


def to_memory(value: Value, dtype: DType) -> Value:
    """Converts ``value`` for a store. It was rounded when it was computed, so ``dtype`` represents it exactly."""
    code = value.code
    if dtype is BOOL:
        return code.convert("zext", value, "i8")
    if dtype is F16:
        return single_to_half(value)
    if dtype is BF16:
        return code.convert("trunc", value.bitcast("i32").integer_op("lshr", 16), "i16")
    if dtype.storage_only and dtype.is_float:
        return _narrowed(value, dtype)
    return value


def wrap(value: Value, dtype: DType) -> Value:
    """Reads the number in the low four or two bits of a byte. Writers fill the high bits differently."""
    sign = 1 << (dtype.bits - 1)
    low = value & (2 * sign - 1)
    return (low ^ sign) - sign if dtype.kind == "i" else low


def _widened(bits: Value, dtype: DType) -> Value:
    return exponent_to_single(bits) if dtype is F8E8M0 else float8_to_single(bits, layout(dtype))


def _narrowed(value: Value, dtype: DType) -> Value:
    return single_to_exponent(value) if dtype is F8E8M0 else single_to_float8(value, layout(dtype))


def exponent_to_single(bits: Value) -> Value:
    """The value of an f8e8m0 (i8) as f32: code k is 2^(k - 127), 255 is NaN."""
    code = bits.code
    wide = code.convert("zext", bits, "i32")
    result = code.select(wide.equals(0), 0x400000, wide << 23)  # 2^-127 is a denormal of f32
    return code.select(wide.equals(255), 0x7FC00000, result).bitcast("float")


def single_to_exponent(value: Value) -> Value:
    """Rounds f32 to a power of two, as i8 bits. Ties go up, as in ml_dtypes.

    Numbers that are not above zero or are too large become NaN.
    """
    code = value.code
    bits = value.bitcast("i32")
    small = code.convert("zext", bits.compare("sgt", 0x400000), "i32")
    normal = (bits + 0x400000).integer_op("lshr", 23)
    result = code.select(bits.compare("slt", 0x800000), small, normal)
    outside = bits.compare("sle", 0) | bits.compare("sge", 0x7F800000)
    return code.convert("trunc", code.select(outside, 255, result), "i8")


def half_to_single(bits: Value) -> Value:
    """IEEE half bits (i16) as f32, by integer arithmetic if the processor has no conversion."""
    code = bits.code
    if code.native_half:
        return code.convert("fpext", bits.bitcast("half"), "float")
    wide = code.convert("zext", bits, "i32")
    magnitude = (wide & 0x7FFF) << 13
    scaled = magnitude.bitcast("float") * 2.0**112  # also right for denormals
    special = (wide & 0x7C00).equals(0x7C00)
    result = code.select(special, magnitude | 0x7F800000, scaled.bitcast("i32"))
    return (result | ((wide & 0x8000) << 16)).bitcast("float")


def single_to_half(value: Value) -> Value:
    """f32 rounded to the nearest half, ties to even, as i16 bits."""
    code = value.code
    if code.native_half:
        return code.convert("fptrunc", value, "half").bitcast("i16")
    bits = value.bitcast("i32")
    magnitude = bits & 0x7FFFFFFF
    # below the normal range, adding 0.5 rounds at the right bit
    small = (magnitude.bitcast("float") + 0.5).bitcast("i32") - 0x3F000000
    odd = magnitude.integer_op("lshr", 13) & 1
    normal = (magnitude + odd - (0x38000000 - 0xFFF)).integer_op("lshr", 13)
    result = code.select(magnitude.compare("slt", 0x38800000), small, normal)
    result = code.select(magnitude.compare("sge", 0x477FF000), 0x7C00, result)
    result = code.select(magnitude.compare("sgt", 0x7F800000), 0x7E00, result)
    return code.convert("trunc", result | (bits.integer_op("lshr", 16) & 0x8000), "i16")


def float8_to_single(bits: Value, form: Float8) -> Value:
    """The value of a float of 8 or 4 bits (i8) as f32; the sign of NaN is kept."""
    code = bits.code
    wide = code.convert("zext", bits, "i32")
    magnitude = wide & (form.sign - 1)
    shift = 32 - form.sign.bit_length()
    scaled = (magnitude << (23 - form.mantissa)).bitcast("float") * 2.0 ** (127 - form.bias)  # also right for denormals
    result = scaled.bitcast("i32")
    sign = (wide & form.sign) << shift
    if not form.negative_zero:
        return code.select(wide.equals(form.nan), math.nan, (result | sign).bitcast("float"))
    result = code.select(magnitude.compare("sgt", form.largest), 0x7FC00000, result)
    if form.infinity is not None:
        result = code.select(magnitude.equals(form.infinity), 0x7F800000, result)
    return (result | sign).bitcast("float")


def single_to_float8(value: Value, form: Float8) -> Value:
    """f32 rounded to the nearest number of an 8-bit or 4-bit float, ties to even, as i8 bits."""
    code = value.code
    bits = value.bitcast("i32")
    magnitude = bits & 0x7FFFFFFF
    # below the normal range, the addition rounds to multiples of the smallest number
    unit = code.const(form.smallest * 2.0**23, value.type)
    small = (magnitude.bitcast("float") + unit).bitcast("i32") - unit.bitcast("i32")
    dropped = 23 - form.mantissa
    odd = magnitude.integer_op("lshr", dropped) & 1
    normal = (magnitude + odd + ((1 << (dropped - 1)) - 1)).integer_op("lshr", dropped)
    normal = normal - ((127 - form.bias) << form.mantissa)
    result = code.select(magnitude.compare("slt", (128 - form.bias) << 23), small, normal)
    result = code.select(result.compare("sgt", form.largest), form.over, result)
    result = code.select(value.is_nan(), form.nan, result)
    sign = bits.integer_op("lshr", 32 - form.sign.bit_length()) & form.sign
    if not form.negative_zero:
        sign = code.select(result.equals(0), 0, sign)
    return code.convert("trunc", result | sign, "i8")


def round_to(value: Value, dtype: DType) -> Value:
    """Rounds an f32 to a value of a float type of 16 or 8 bits."""
    code = value.code
    if dtype is F16:
        return half_to_single(single_to_half(value))
    if dtype is BF16 and code.native_bf16:
        return from_memory(code.convert("fptrunc", value, "bfloat").bitcast("i16"), BF16)
    if dtype is BF16:
        bits = value.bitcast("i32")
        odd = bits.integer_op("lshr", 16) & 1
        rounded = (bits + odd + 0x7FFF) & -65536
        return code.select(value.is_nan(), code.const(math.nan, value.type), rounded.bitcast("float"))
    if dtype.storage_only:
        return _widened(_narrowed(value, dtype), dtype)
    return value
