"""Cache lines that a contraction's epilogue reads and writes, asked for while its sums are made.

A register block touches few bytes of each of its rows, and neighbouring rows lie whole rows of the result apart: no
hardware prefetcher follows that. Where residual and result have left the second cache, every block would wait for them
at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpucomp.codegen.llvm.contraction.operands import Operands
from gpucomp.codegen.llvm.core_space import LINE
from gpucomp.codegen.llvm.ir.builder import Code, Value
from gpucomp.expr.core import Expr, Load, walk
from gpucomp.expr.simplify import coefficient
from gpucomp.ir.types import TensorType


@dataclass(frozen=True)
class Touched:
    """A matrix that the epilogue goes through as through the result: ``params[source][offset]``, over batch, m and n.

    row      bytes between neighbouring rows
    written  rather than read
    """

    source: int
    offset: Expr
    row: int
    written: bool


def touched_by(ops: Operands, params: Sequence[TensorType]) -> list[Touched]:
    """What the stores write and load in rows of columns side by side; a bias, which all rows share, is not among it.

    Nor is what lies where another load says: that load may stand under a guard, which asking ahead would not respect.
    """
    places = [(s.target, s.offset, True) for s in ops.stores]
    places += [(e.source, e.index[0], False) for s in ops.stores for e in walk(s.value) if isinstance(e, Load)]
    found = []
    for source, offset, written in dict.fromkeys(places):
        row = coefficient(offset, ops.m)
        if row and coefficient(offset, ops.n) == 1 and not any(isinstance(node, Load) for node in walk(offset)):
            found.append(Touched(source, offset, row * params[source].dtype.nbytes, written))
    return found


@dataclass(frozen=True)
class Requests:
    """The lines of one register block: ``rows`` rows, in each of them some lines from each of ``starts`` on.

    starts  a matrix, where the block's first row of it begins, and how many lines of a row the block touches
    first   the row that is asked for first: ``rows`` where nothing has to be asked for yet
    """

    code: Code
    starts: Sequence[tuple[Touched, Value, int]]
    rows: int
    first: Value

    def ask(self, step: Value) -> None:
        """For row ``first + step``; for the last one again where there is no such row."""
        row = self.code.minimum(self.first + step, self.rows - 1)
        for touched, start, lines in self.starts:
            at = self.code.gep(start, row * touched.row, "i8")
            for line in range(lines):
                self.code.prefetch(self.code.gep(at, line * LINE, "i8"), write=touched.written)

    def ask_share(self, share: Value, shares: int) -> None:
        """For the rows of one of ``shares`` equal shares of them."""
        count = -(-self.rows // shares)
        for row in range(count):
            self.ask(share * count + row)
