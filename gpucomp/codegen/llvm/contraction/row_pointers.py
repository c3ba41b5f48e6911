"""The table of row pointers of a task: one for each outer point of k and each row, to zeros where the row has no such point.

Where each run decides the sizes, the task also notes which outer points any of its rows has: in small images most taps of a
convolution are padding, and a program for one size leaves them out.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from gpucomp.codegen.llvm.contraction.operands import Operands, Rows
from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.printer import Affine, LaneValue
from gpucomp.codegen.llvm.ir.types import PTR, Type
from gpucomp.codegen.llvm.loops.nest import Entry, lower
from gpucomp.expr.core import Expr
from gpucomp.ir.size import bounds, hint
from gpucomp.kernel.example import has_sizes

LONG_TAP = 16  # points of k: it takes much longer than to see whether any row has it
FLAG = Type("i8")


class RowPointers:
    """``table[point * row + i]`` points to row ``i`` of a task at an outer point of k."""

    def __init__(self, entry: Entry, ops: Operands, rows: Rows, scalar: str, width: int, row: int) -> None:
        self._entry, self._code, self._ops, self._rows = entry, entry.code, ops, rows
        self._scalar, self._width, self._row = scalar, width, row
        self.table = self._code.stack(f"[{ops.outer * row} x ptr]", 64)
        self._flags: Value | None = None
        if has_sizes(entry.kernel) and rows.guard is not None and hint(ops.ki.extent) >= LONG_TAP:
            self._flags = self._code.stack(f"[{ops.outer} x i8]")

    def find(self, m0: Value, bound: dict[Expr, LaneValue]) -> None:
        """Fills the table for the rows of the task from ``m0`` on."""
        code, ops = self._code, self._ops
        exprs = [self._rows.offset] if self._rows.guard is None else [self._rows.offset, self._rows.guard]
        program = lower(exprs, [ops.batch, *ops.ko, ops.m])
        zeros = self._zeros()
        if self._flags is not None:
            with code.loop(0, ops.outer) as point:
                code.store(code.const(0, FLAG), code.gep(self._flags, point, "i8"))
        with code.loop(0, self._row, self._width) as at:
            bound[ops.m] = Affine(m0 + at, 1)
            with code.loop(0, ops.outer) as point:
                places = self._entry.decompose(point, [a.extent for a in ops.ko])
                bound.update(zip(ops.ko, places, strict=True))
                printer = self._entry.printer(program, bound, self._width, None)
                offsets = printer.lanes(program.results[0])
                pointers = code.gep(self._entry.params[self._rows.source], offsets, self._scalar)
                if zeros is not None:
                    inside = printer.lanes(program.results[1])
                    pointers = code.select(inside, pointers, code.splat(zeros, self._width))
                    self._note(point, inside)
                code.store(pointers, code.gep(self.table, point * self._row + at, "ptr"), 8)

    def _zeros(self) -> Value | None:
        """What is read in place of a row's points that it does not have; ``None`` if all rows have all."""
        if self._rows.guard is None:
            return None
        name = f"@{self._entry.name}.zeros"
        count = bounds((self._ops.ki.extent - 1) * self._rows.step + 1)[1]
        self._code.globals.append(f"{name} = internal constant [{count} x {self._scalar}] zeroinitializer, align 64")
        return Value(self._code, name, PTR)

    def _note(self, point: Value, inside: Value) -> None:
        if self._flags is not None:
            with self._code.when(self._code.any(inside)):
                self._code.store(self._code.const(1, FLAG), self._code.gep(self._flags, point, "i8"))

    def when_read(self, point: Value) -> AbstractContextManager[None]:
        """The block of code for an outer point of k that some row of the task has."""
        if self._flags is None:
            return nullcontext()
        return self._code.when(self._code.load(self._code.gep(self._flags, point, "i8"), FLAG).differs(0))
