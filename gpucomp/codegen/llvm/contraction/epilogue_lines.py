"""Prefetches the cache lines that a contraction's epilogue reads and writes, while the sums are computed.

A register block touches a few bytes of each of its rows, and these are a whole row of the result apart. Hardware
prefetchers do not follow that. If residual and result are no longer in the second-level cache, every block would wait
for them at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpucomp.codegen.llvm.contraction.operands import Operands
from gpucomp.codegen.llvm.core_space import LINE
from gpucomp.codegen.llvm.ir.builder import Code, Value
from gpucomp.expr.core import Expr, Load, walk
from gpucomp.expr.simplify import coefficient
from gpucomp.ir.size import is_one, is_zero
from gpucomp.ir.types import TensorType


@dataclass(frozen=True)
class Touched:
    """A matrix that the epilogue traverses as it does the result: ``params[source][offset]``, over batch, m and n.

    row      bytes between neighbouring rows
    written  whether it is written, not read
    """

    source: int
    offset: Expr
    row: int
    written: bool


def touched_by(ops: Operands, params: Sequence[TensorType]) -> list[Touched]:
    """The matrices that the stores write and load with contiguous columns. A bias is none of them: all rows share it.

    Offsets that depend on another load are excluded, because that load may be guarded and a prefetch would ignore the
    guard.
    """
    places = [(s.target, s.offset, True) for s in ops.stores]
    places += [(e.source, e.index[0], False) for s in ops.stores for e in walk(s.value) if isinstance(e, Load)]
    found = []
    for source, offset, written in dict.fromkeys(places):
        row = coefficient(offset, ops.m)
        if row is None or is_zero(row):
            continue
        if is_one(coefficient(offset, ops.n)) and not any(isinstance(node, Load) for node in walk(offset)):
            found.append(Touched(source, offset, row * params[source].dtype.nbytes, written))
    return found


@dataclass(frozen=True)
class Requests:
    """The lines to prefetch for one register block of ``rows`` rows.

    starts  a matrix, the address of the block's first row in it, and the number of lines in a row of the block
    first   the first row to prefetch; ``rows`` if there is nothing to prefetch yet
    """

    code: Code
    starts: Sequence[tuple[Touched, Value, int]]
    rows: int
    first: Value

    def ask(self, step: Value) -> None:
        """Prefetches row ``first + step``, or the last row if that is past the end."""
        row = self.code.minimum(self.first + step, self.rows - 1)
        for touched, start, lines in self.starts:
            at = self.code.gep(start, row * touched.row, "i8")
            for line in range(lines):
                self.code.prefetch(self.code.gep(at, line * LINE, "i8"), write=touched.written)

    def ask_share(self, share: Value, shares: int) -> None:
        """Prefetches the rows of one of ``shares`` equal shares."""
        count = -(-self.rows // shares)
        for row in range(count):
            self.ask(share * count + row)
