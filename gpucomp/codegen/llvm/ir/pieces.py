"""The first lanes of a vector, from memory and to memory, in pieces: powers of two, of which their number is the sum.

Without AVX-512, a load or a store under a mask is one access for each lane, or an instruction that is slow on many processors
(15 cycles for a load and 18 for a store on Zen 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpucomp.codegen.llvm.ir.types import Type

if TYPE_CHECKING:
    from gpucomp.codegen.llvm.ir.builder import Value


def first_lanes(mask: str) -> int:
    """How many lanes a mask has, if it is known to have the first ones alone, otherwise 0."""
    if not mask.startswith("<"):
        return 0
    lanes = ["true" in lane for lane in mask.split(",")]
    return sum(lanes) if lanes == sorted(lanes, reverse=True) else 0


def _pieces(count: int) -> Iterator[tuple[int, int]]:
    """The first lane of each piece, and its lanes, the largest first."""
    at = 0
    while at < count:
        piece = 1 << ((count - at).bit_length() - 1)
        yield at, piece
        at += piece


def loaded(address: Value, type: Type, count: int) -> Value:
    """The first ``count`` lanes from memory; the others are zero."""
    code, lanes = address.code, type.lanes
    result = code.const(0, type)
    for at, piece in _pieces(count):
        kind = Type(type.scalar, piece)
        part = code.load(code.gep(address, at, type.scalar), kind, max(type.bits // 8, 1))
        wide = code.shuffle(part, code.const(0, kind), [min(lane, piece) for lane in range(lanes)])
        order = [lanes + lane - at if at <= lane < at + piece else lane for lane in range(lanes)]
        result = code.shuffle(result, wide, order) if at else wide
    return result


def store(value: Value, address: Value, count: int) -> None:
    """Stores the first ``count`` lanes."""
    code = value.code
    for at, piece in _pieces(count):
        part = code.shuffle(value, value, range(at, at + piece))
        code.store(part, code.gep(address, at, value.type.scalar), max(value.type.bits // 8, 1))
