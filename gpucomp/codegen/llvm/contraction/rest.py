"""Register blocks for the rows after the last whole one, if each run decides how many there are.

A few heights are written. A run takes the lowest that has its rows. Rows past the last are read as the last again, and are not
stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gpucomp.codegen.llvm.ir.builder import Code, Value

IN_FLIGHT = 8  # sums whose multiply-adds follow each other without waiting for one another


@dataclass(frozen=True)
class Height:
    """The height of a register block: ``rows``, of which at least ``least`` and in this run ``count`` are stored."""

    rows: int
    least: int
    count: Value | int

    def row(self, i: int) -> Any:
        """``i``, or the last row that is stored: what is read for row ``i``."""
        if i < self.least or not isinstance(self.count, Value):
            return i
        return self.count.code.minimum(self.count - 1, i)

    def when(self, i: int) -> AbstractContextManager[None]:
        """The block of code for what is done if row ``i`` is stored."""
        if i < self.least or not isinstance(self.count, Value):
            return nullcontext()
        return self.count.code.when(self.count > i)


def heights_of_rest(mr: int, lowest: int) -> list[int]:
    """Heights of register blocks for less than ``mr`` rows, from the largest to about ``lowest``; even, as batches often are."""
    heights = [mr - 1] if mr > 1 else []
    while heights and heights[-1] > lowest:
        height = max(1, heights[-1] * 3 // 4)
        heights.append(height + (height % 2 if height + 1 < heights[-1] else 0))
    return heights


def rest_of_rows(code: Code, left: Value, mr: int, vectors: int, lowest: int = 0) -> Iterator[Height]:
    """The heights, each in a branch for the runs in which ``left`` rows, less than ``mr``, need it; 0 rows need none.

    A block of few rows and ``vectors`` takes as long as one with ``IN_FLIGHT`` sums, if ``lowest`` does not say otherwise.
    """
    end = code._name("rest")
    for height, smaller in pairwise([*heights_of_rest(mr, lowest or -(-IN_FLIGHT // vectors)), 0]):
        name = code._name("h")
        code.branch(left > smaller, f"{name}.here", f"{name}.lower")
        code.label(f"{name}.here")
        yield Height(height, smaller + 1, left)
        code.jump(end)
        code.label(f"{name}.lower")
    code.jump(end)
    code.label(end)
