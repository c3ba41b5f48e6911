"""Numbers that a kernel is given at each run: its sizes, and what divisions by them need."""

from __future__ import annotations

from collections.abc import Mapping

from gpucomp.ir.run_numbers import MAGIC, SHIFT, SIZE, number_of
from gpucomp.ir.size import Size, same, value_at
from gpucomp.lazy_dataclass import dataclass

__all__ = ["MAGIC", "SHIFT", "SIZE", "RunSize", "number_of"]


@dataclass(frozen=True, eq=False)
class RunSize:
    """``size`` itself, or one of the two numbers that divide by it. Equal if kind and formula are.

    For ``0 <= x < 2**31`` is ``x // size == x * magic >> shift``: T. Granlund and P. L. Montgomery, "Division by Invariant
    Integers using Multiplication", PLDI 1994, section 4.
    """

    size: Size
    kind: str = SIZE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunSize) and self.kind == other.kind and same(self.size, other.size)

    def __hash__(self) -> int:
        return hash((self.kind, self.size))

    def at(self, sizes: Mapping[str, int]) -> int:
        """The number at the ``sizes`` of the dimensions."""
        return number_of(self.kind, value_at(self.size, sizes))
