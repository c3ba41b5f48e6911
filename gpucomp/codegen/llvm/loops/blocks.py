"""Transposed operands of loops: a block of one is loaded row by row, and its columns are what lanes read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpucomp.codegen.llvm.ir import storage
from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.printer import LaneValue
from gpucomp.codegen.llvm.ir.shuffles import transposed
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.codegen.llvm.loops.nest import Entry, Program, lower
from gpucomp.expr.core import Expr, Load, Reduce, Select, Var, index, substitute
from gpucomp.expr.simplify import coefficient, simplify
from gpucomp.ir.size import Size, is_one

MOST = 3  # operands that are transposed; a block of one is as many registers as there are in all


@dataclass(frozen=True)
class Blocks:
    """Loads that lanes along ``vector`` make ``strides`` apart, and that are contiguous along ``inner``.

    ``program`` computes where each of them begins.
    """

    vector: Var
    inner: Var
    strides: tuple[int, ...]
    loads: tuple[Load, ...]
    program: Program

    def filled(self, entry: Entry, bound: dict[Expr, LaneValue], position: Value, width: int) -> list[Value]:
        """Memory with a vector for each step of ``inner``, for each of the loads, whose first lane is at ``position``."""
        printer = entry.printer(self.program, {**bound, self.vector: position}, 0, None)
        starts = map(printer.value, self.program.results)
        return [self._block(entry, *one, width) for one in zip(self.loads, starts, self.strides, strict=True)]

    def _block(self, entry: Entry, load: Load, start: Value, stride: int, width: int) -> Value:
        code, size = entry.code, self.inner.extent
        scalar = storage.memory_scalar(load.dtype)
        row = Type(scalar, size)
        base = code.gep(entry.params[load.source], start, scalar)
        rows = [code.load(code.gep(base, lane * stride, scalar), row, load.dtype.nbytes) for lane in range(width)]
        block = code.stack(f"[{size * width} x {scalar}]", 64)
        for step, value in enumerate(transposed(code, rows)):
            code.store(value, code.gep(block, step * width, scalar), load.dtype.nbytes)
        return block

    def loaded(self, entry: Entry, blocks: Sequence[Value], step: Value, width: int) -> dict[Expr, Value]:
        """What the loads give in one ``step`` of ``inner``."""
        code, found = entry.code, dict[Expr, Value]()
        for load, block in zip(self.loads, blocks, strict=True):
            scalar = storage.memory_scalar(load.dtype)
            address = code.gep(block, step * width, scalar)
            found[load] = code.load(address, Type(scalar, width), load.dtype.nbytes)
        return found


def blocks_of(
    exprs: Sequence[Expr], vector: Var | None, inner: Sequence[Var], apart: int, bound: Sequence[Expr]
) -> Blocks | None:
    """The operands of ``exprs`` that can be loaded as blocks, whose lanes are at least ``apart``; ``None`` for none.

    ``inner`` are the axes inside the loop over lanes, one at most; ``bound`` are all axes.
    """
    if vector is None or len(inner) != 1:
        return None
    (axis,) = inner
    found: dict[Load, int] = {}
    for load in dict.fromkeys(load for e in exprs for load in _always(e)):
        step = coefficient(load.index[0], vector)
        if not isinstance(step, int) or isinstance(step, Size) or abs(step) <= apart:
            continue
        if is_one(coefficient(load.index[0], axis)) and load.dtype.bits in (8, 16, 32, 64):
            found[load] = step
    if not found or len(found) > MOST:
        return None
    starts = [simplify(substitute(load.index[0], {axis: index(0)})) for load in found]
    return Blocks(vector, axis, tuple(found.values()), tuple(found), lower(starts, [e for e in bound if e is not axis]))


def _always(expr: Expr) -> Iterator[Load]:
    """The loads of an expression that are made whatever its values are, outside reductions."""
    if isinstance(expr, Load):
        yield expr
    operands = (expr.condition,) if isinstance(expr, Select) else () if isinstance(expr, Reduce) else expr.operands
    for operand in operands:
        yield from _always(operand)
