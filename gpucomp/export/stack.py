"""How much stack kernels take: what their LLVM IR asks for, and room for registers that do not fit."""

from __future__ import annotations

import math
import re

SPILLED = 8192  # bytes of registers that a kernel saves, and of the calls above it
_ALLOCA = re.compile(r" = alloca ([^,\n]+)")
_COUNT = re.compile(r"(\d+) x ")
_SCALAR = {"ptr": 8, "float": 4, "double": 8, "half": 2, "bfloat": 2}


def stack_bytes(text: str) -> int:
    """An estimate, with room, of the stack of a kernel with this LLVM IR: a multiple of 1024."""
    asked = sum(map(_bytes, _ALLOCA.findall(text)))
    return -(-(asked + SPILLED) // 1024) * 1024


def _bytes(type: str) -> int:
    """Of a type such as ``[64 x <8 x float>]``, with what it may lose by alignment."""
    scalar = _COUNT.sub("", type).strip("[]<> ")
    size = _SCALAR[scalar] if scalar in _SCALAR else -(-int(scalar.removeprefix("i")) // 8)
    return math.prod(map(int, _COUNT.findall(type))) * size + 64
