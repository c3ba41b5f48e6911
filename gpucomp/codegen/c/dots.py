"""Dot products of four bytes added to an i32 sum: the instructions of each kind of device, and plain C for all others.

All give the same result to the bit: sums wrap, none saturates. Dot products of two f16 that are added to an f32 sum are here
too, without plain C: engines of devices without them multiply f32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gpucomp.codegen.c.helpers import FP16
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.ir.types import F32, U32
from gpucomp.kernel.forms.packed_f16 import PackedF16
from gpucomp.kernel.forms.packed_int8 import WORD, PackedInt8

Product = Callable[[str, str, str], str]  # (sum, factor, factor), as text, to the statement that adds their product
# the top bit of each of four bytes: as an exclusive or it subtracts 128 from each u8; as a factor it is -128 four times
TOP_BITS = "(int)0x80808080"


@dataclass(frozen=True)
class Dot:
    """A device's dot product of bytes.

    texts      the text of ``{c}`` plus four products, by whether the bytes of ``{a}`` and of ``{b}`` are signed
    extension  the OpenCL extension that defines it
    vectors    whether its operands are ``char4`` and ``uchar4`` instead of words
    """

    texts: dict[tuple[bool, bool], str]
    extension: str = ""
    vectors: bool = False

    def text(self, a: str, b: str, c: str, signed: tuple[bool, bool]) -> str:
        """C text of the sum. ``signed`` must be a combination that this dot product has."""
        return self.texts[signed].format(a=a, b=b, c=c)


BOTH, NONE, FIRST, SECOND = (True, True), (False, False), (True, False), (False, True)
EACH = {BOTH: ("true", "true"), NONE: ("false", "false"), FIRST: ("true", "false"), SECOND: ("false", "true")}

DP4A = {signed: f"gc_dot4<{a}, {b}>({{a}}, {{b}}, {{c}})" for signed, (a, b) in EACH.items()}
SUDOT4 = {  # v_dot4_i32_iu8 (RDNA3)
    signed: f"__builtin_amdgcn_sudot4({a}, {{a}}, {b}, {{b}}, {{c}}, false)" for signed, (a, b) in EACH.items()
}
SDOT4 = {  # v_dot4_i32_i8 and v_dot4_u32_u8
    BOTH: "__builtin_amdgcn_sdot4({a}, {b}, {c}, false)",
    NONE: "(int)__builtin_amdgcn_udot4((uint){a}, (uint){b}, (uint){c}, false)",
}
ARM_DOT_ACC = dict.fromkeys((BOTH, NONE), "arm_dot_acc({a}, {b}, {c})")
ARM_DOT = dict.fromkeys((BOTH, NONE), "{c} + arm_dot({a}, {b})")
KHR_DOT = {
    BOTH: "{c} + dot_4x8packed_ss_int(as_uint({a}), as_uint({b}))",
    NONE: "{c} + (int)dot_4x8packed_uu_uint(as_uint({a}), as_uint({b}))",
    FIRST: "{c} + dot_4x8packed_su_int(as_uint({a}), as_uint({b}))",
    SECOND: "{c} + dot_4x8packed_us_int(as_uint({a}), as_uint({b}))",
}
DOTS = {  # by the feature that a device has, the best first
    "dp4a": Dot(DP4A),
    "sudot4": Dot(SUDOT4),
    "sdot4": Dot(SDOT4),
    "arm_dot_acc": Dot(ARM_DOT_ACC, "cl_arm_integer_dot_product_accumulate_int8", vectors=True),
    "arm_dot": Dot(ARM_DOT, "cl_arm_integer_dot_product_int8", vectors=True),
    "khr_dot": Dot(KHR_DOT, "cl_khr_integer_dot_product"),
}


def enabled(dot: Dot) -> str:
    """The pragma before an OpenCL kernel that calls ``dot``, if ``dot`` needs one."""
    return f"#pragma OPENCL EXTENSION {dot.extension} : enable\n" if dot.extension else ""


def dot_of(features: Collection[str]) -> Dot | None:
    """The best dot product of a device with ``features``."""
    return next((dot for feature, dot in DOTS.items() if feature in features), None)


def product(printer: CPrinter, body: object, lanes: int = 1) -> Product:
    """How a template multiplies: a dot product if ``body`` is a ``PackedInt8`` or ``PackedF16``, otherwise C's ``*``.

    In OpenCL the factor ``b`` and the sum may be vectors of ``lanes``, except for f16. Adds the helper that the statements
    call.
    """
    if isinstance(body, PackedF16):
        printer.helpers["dot2"] = _pairs(printer)
        return lambda c, a, b: f"{c} = dot2({a}, {b}, {c});"
    if not isinstance(body, PackedInt8):
        return lambda c, a, b: f"{c} += {a} * {b};"
    dot = dot_of(printer.features) if lanes == 1 else None
    if dot is DOTS["dp4a"]:
        return lambda c, a, b: f"{c} = {dot.text(a, b, c, body.signed)};"
    sums = "int" if lanes == 1 else f"int{lanes}"
    text = _portable(body.signed, lanes) if dot is None else _native(dot, body.signed)
    head = f"{printer.dialect.qualifier}{sums} dot4(int a, {sums} b, {sums} c) {{\n"
    printer.helpers["dot4"] = f"{enabled(dot) if dot else ''}{head}{text}}}\n"
    return lambda c, a, b: f"{c} = dot4({a}, {b}, {c});"


def _pairs(printer: CPrinter) -> str:
    """The helper for f16 by AMD's v_dot2_f32_f16 and v_dot2c_f32_f16, which round once.

    They never give a subnormal f32, whatever the mode (LLVM's D49146). Subnormal f16 count as they are, but on CDNA2, where the
    engine is not (PyTorch's notes on numerical accuracy).
    """
    dialect = printer.dialect
    word, total = dialect.value_type(U32), dialect.value_type(F32)
    a, b = (dialect.reinterpreted("half", 2, name) for name in "ab")
    pair = "typedef _Float16 gc_half2 __attribute__((ext_vector_type(2)));\n" if dialect.own_vectors else FP16
    head = f"{dialect.qualifier}{total} dot2({word} a, {word} b, {total} c) {{\n"
    return f"{pair}{head}  return __builtin_amdgcn_fdot2({a}, {b}, c, false);\n}}\n"


def _native(dot: Dot, signed: tuple[bool, bool]) -> str:
    """The helper's body by the device's instruction.

    A device without products of signed and unsigned bytes computes u as s + 128: two of its dot products.
    """

    def call(a: str, b: str, c: str, signed: tuple[bool, bool]) -> str:
        kind = "as_char4" if signed[0] else "as_uchar4"
        return dot.text(f"{kind}({a})", f"{kind}({b})", c, signed) if dot.vectors else dot.text(a, b, c, signed)

    if signed in dot.texts:
        return f"  return {call('a', 'b', 'c', signed)};\n"
    a, b = (name if is_signed else f"{name} ^ {TOP_BITS}" for name, is_signed in zip("ab", signed, strict=True))
    less = call("a" if signed[0] else "b", TOP_BITS, "0", BOTH)
    return f"  const int less = {less};  // what is missing, negative\n  return {call(a, b, 'c', BOTH)} - less;\n"


def _portable(signed: tuple[bool, bool], lanes: int) -> str:
    def byte(name: str, is_signed: bool, lane: int) -> str:
        if is_signed:
            left = 8 * (WORD - 1 - lane)
            return f"({name} << {left} >> 24)" if left else f"({name} >> 24)"
        shifted = f"{name} >> {8 * lane}" if lane else name
        return f"({shifted} & 255)"

    products = [f"{byte('a', signed[0], i)} * {byte('b', signed[1], i)}" for i in range(WORD)]
    return f"  return c + {' + '.join(products)};\n"
