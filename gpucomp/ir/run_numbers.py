"""Kinds of numbers that a kernel is given at each run. This module imports nothing, for programs that only load a model."""

from __future__ import annotations

SIZE, MAGIC, SHIFT = "size", "magic", "shift"
BITS = 31  # of the dividends


def number_of(kind: str, size: int) -> int:
    """The number of ``kind`` for ``size``. ``magic`` is less than 2**32."""
    if kind == SIZE or size <= 0:  # nothing is divided by a size of 0: there are no elements
        return size
    bits = (size - 1).bit_length()
    return BITS + bits if kind == SHIFT else -(-(1 << (BITS + bits)) // size)
