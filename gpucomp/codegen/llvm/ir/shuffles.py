"""Vectors from neighbouring elements of memory, by shuffles: every few elements of it, and the columns of a block."""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.codegen.llvm.ir.builder import Code, Value
from gpucomp.codegen.llvm.ir.types import Type


def strided_load(code: Code, address: Value, type: Type, stride: int, mask: Value | None = None) -> Value:
    """Every ``stride``-th element from ``address`` on, two at least: contiguous loads and shuffles of them.

    Only what is between the first and the last of them is read, and with ``mask`` nothing for lanes outside it.
    """
    lanes, nothing = type.lanes, code.const(False, Type("i1", type.lanes))
    starts = [*range(0, (stride - 1) * lanes, lanes), (stride - 1) * (lanes - 1)]
    parts = []
    for start in starts:
        at = code.gep(address, start, type.scalar)
        if mask is None:
            parts.append(code.load(at, type, max(type.bits // 8, 1)))
            continue
        places = [start + place for place in range(lanes)]
        order = [place // stride if place % stride == 0 else lanes for place in places]
        parts.append(code.masked_load(at, type, code.shuffle(mask, nothing, order)))
    return _picked(code, parts, starts, range(0, lanes * stride, stride))


def parted(code: Code, vectors: Sequence[Value], stride: int) -> list[Value]:
    """For each start below ``stride``: every ``stride``-th element, of as many contiguous vectors, from it on."""
    end = vectors[0].type.lanes * stride
    starts = range(0, end, vectors[0].type.lanes)
    return [_picked(code, vectors, starts, range(start, end, stride)) for start in range(stride)]


def _picked(code: Code, parts: Sequence[Value], starts: Sequence[int], places: Sequence[int]) -> Value:
    """The elements at ``places``, in order. Each of ``parts`` has those from one of ``starts`` on."""
    lanes, result = len(places), parts[0]
    for number in range(1, len(parts)):
        order = []
        for lane, place in enumerate(places):
            own = min(place // lanes, len(parts) - 1)
            earlier = place if number == 1 else lane  # the first shuffle sees the first part as it was
            order.append(lanes + place - starts[number] if own == number else earlier if own < number else 0)
        result = code.shuffle(result, parts[number], order)
    return result


def transposed(code: Code, rows: Sequence[Value]) -> list[Value]:
    """The columns of a block whose ``rows`` are vectors; both counts are powers of two.

    First elements change places within 128 bits, which processors do in one instruction, then whole 128 bits do.
    """
    kind, columns = rows[0].type, rows[0].type.lanes
    side = min(128 // kind.bits, len(rows), columns)
    groups = range(0, columns, side)
    low = [(at + i) + other for at in groups for i in range(side // 2) for other in (0, columns)]
    high = [place + side // 2 for place in low]
    bands = []  # of ``side`` rows each: vector c has columns c, c + side ... of the band, one after the other
    for first in range(0, len(rows), side):
        band = list(rows[first : first + side])
        for _ in range(side.bit_length() - 1):
            pairs = [(band[i], band[i + side // 2]) for i in range(side // 2)]
            band = [code.shuffle(a, b, order) for a, b in pairs for order in (low, high)]
        bands.append(band)
    columns_of = [_crossed(code, [band[c] for band in bands], side) for c in range(side)]
    return [columns_of[c][group] for group in range(len(groups)) for c in range(side)]


def _crossed(code: Code, parts: Sequence[Value], size: int) -> list[Value]:
    """As ``transposed``, of blocks of ``size`` elements each that stay whole."""
    lanes = parts[0].type.lanes
    count, width = len(parts), lanes // size
    if count == 1:
        return [code.shuffle(parts[0], parts[0], range(at, at + size)) for at in range(0, lanes, size)]
    if count < width:  # pieces that are as wide as there are parts
        pieces = [
            _crossed(code, [code.shuffle(part, part, range(at, at + count * size)) for part in parts], size)
            for at in range(0, lanes, count * size)
        ]
        return [column for piece in pieces for column in piece]
    if count > width:
        half = count // 2
        both = zip(_crossed(code, parts[:half], size), _crossed(code, parts[half:], size), strict=True)
        return [code.shuffle(a, b, range(2 * a.type.lanes)) for a, b in both]
    even = [at + i for at in range(0, 2 * lanes, 2 * size) for i in range(size)]
    orders = (even, [place + size for place in even])
    found = list(parts)
    for _ in range(count.bit_length() - 1):
        found = [code.shuffle(found[i], found[i + 1], order) for order in orders for i in range(0, count, 2)]
    return found
