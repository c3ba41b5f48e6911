"""LLVM's types as values of Python, and constants in its syntax."""

from __future__ import annotations

import math
import struct

from gpucomp.ir.size import Size

FLOATS = {"float": 32, "double": 64, "half": 16}
SUFFIX = {"float": "f32", "double": "f64", "half": "f16"}


class Type(str):
    """``scalar`` is an LLVM type name; ``lanes`` is 0 for a scalar, otherwise the number of elements of a vector.

    It is its own text, ``<16 x float>``, as it is written a hundred thousand times. Equal types are one object.
    """

    scalar: str
    lanes: int
    is_float: bool
    suffix: str  # in names of overloaded intrinsics: ``v16f32``

    def __new__(cls, scalar: str, lanes: int = 0) -> Type:
        found = _known.get((scalar, lanes))
        if found is None:
            found = super().__new__(cls, f"<{lanes} x {scalar}>" if lanes else scalar)
            found.scalar, found.lanes, found.is_float = scalar, lanes, scalar in FLOATS
            name = SUFFIX.get(scalar) or ("p0" if scalar == "ptr" else scalar)
            found.suffix = f"v{lanes}{name}" if lanes else name
            _known[scalar, lanes] = found
        return found

    @property
    def bits(self) -> int:
        return 64 if self.scalar == "ptr" else FLOATS.get(self.scalar) or int(self.scalar[1:])

    def of(self, scalar: str) -> Type:
        return Type(scalar, self.lanes)

    @property
    def integer(self) -> Type:
        """The integer type of the same width."""
        return Type(f"i{self.bits}", self.lanes)


_known: dict[tuple[str, int], Type] = {}

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
