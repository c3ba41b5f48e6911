"""LLVM's types as values of Python, and constants in its syntax."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from gpucomp.ir.size import Size

FLOATS = {"float": 32, "double": 64, "half": 16}
SUFFIX = {"float": "f32", "double": "f64", "half": "f16"}


@dataclass(frozen=True)
class Type:
    """``scalar`` is an LLVM type name; ``lanes`` is 0 for a scalar, otherwise the number of elements of a vector."""

    scalar: str
    lanes: int = 0

    def __str__(self) -> str:
        return f"<{self.lanes} x {self.scalar}>" if self.lanes else self.scalar

    @property
    def is_float(self) -> bool:
        return self.scalar in FLOATS

    @property
    def bits(self) -> int:
        if self.scalar == "ptr":
            return 64
        return FLOATS.get(self.scalar) or int(self.scalar[1:])

    @property
    def suffix(self) -> str:
        """The suffix in names of overloaded intrinsics: ``v16f32``."""
        scalar = SUFFIX.get(self.scalar) or ("p0" if self.scalar == "ptr" else self.scalar)
        return f"v{self.lanes}{scalar}" if self.lanes else scalar

    def of(self, scalar: str) -> Type:
        return Type(scalar, self.lanes)

    @property
    def integer(self) -> Type:
        """The integer type of the same width."""
        return Type(f"i{self.bits}", self.lanes)


I1, I8, I32, I64, PTR = Type("i1"), Type("i8"), Type("i32"), Type("i64"), Type("ptr")
F32, F64 = Type("float"), Type("double")

Number = int | float | bool | Size


def spell(value: Number, scalar: str) -> str:
    """A constant in LLVM's syntax. Floats are written as their bits, so that they are exact."""
    if scalar in FLOATS:
        if scalar == "half":
            return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
        number = float(value)
        if scalar == "float":
            number = _to_single(number)
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    if scalar == "i1":
        return "true" if value else "false"
    return str(int(value))


def _to_single(number: float) -> float:
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return math.copysign(math.inf, number)
    return float(single)
