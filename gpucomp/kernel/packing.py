"""How an engine wants a constant operand laid out in memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Digit:
    """One axis of a packed operand: ``(flat index along axis // step) % extent``.

    axis     ``batch``, ``k`` or ``span``: the operand's rows (``a``) or columns (``b``), each as one flat index
    """

    axis: str
    step: int
    extent: int


@dataclass(frozen=True, slots=True)
class Packing:
    """A contraction's constant operand, rearranged when the model is compiled: one axis a digit, outermost first.

    ``(Digit("span", 4, n // 4), Digit("k", 1, k), Digit("span", 1, 4))`` are columns by fours. Digits that reach past
    an axis pad it with zeros. ``transform`` names one of ``passes.pack_weights.TRANSFORMS``, which the depth goes through
    first: the digits of ``k`` are then those of the transformed depth. ``filled`` pads within the depth instead: it is
    parts of so many, outermost first, each filled up with zeros to the second number; the digits of ``k`` are then
    those of the filled depth.
    """

    operand: str  # "a" or "b"
    digits: tuple[Digit, ...]
    transform: str = ""
    filled: tuple[tuple[int, int], ...] = ()
