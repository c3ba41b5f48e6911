"""Operands of contractions on the CPU: flat variables, merged axes of k, and operands that are read in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

from gpucomp.codegen.llvm.loops.nest import FlatStore, Flattener, collapse, merge_axes, offsets
from gpucomp.expr.core import Cast, Const, Expr, Load, Select, Var, index, substitute, var, walk
from gpucomp.expr.simplify import coefficient, ends, simplify
from gpucomp.ir.extremes import largest
from gpucomp.ir.size import Size, at_most, below, bounds, is_one, same
from gpucomp.ir.types import BF16, F16, DType
from gpucomp.kernel import Contraction, Kernel

SHORTEST_RUN = 6  # fewest points of the innermost axis of k for which a pointer per row pays
LARGEST_ZEROS = 1 << 14  # most elements of the zeros that are read instead of rows outside a guard


@dataclass(frozen=True)
class Operands:
    """A contraction over flat variables: ``a(batch, m, k...)``, ``b(batch, n, k...)``; ``ki`` is the last axis of k.

    ``made`` gives the stores. To choose a schedule they are not needed, and to simplify them takes as long as the operands.
    """

    batch: Var
    m: Var
    n: Var
    ko: tuple[Var, ...]
    ki: Var
    a: Expr
    b: Expr
    made: Callable[[], tuple[FlatStore, ...]]

    @cached_property
    def stores(self) -> tuple[FlatStore, ...]:
        return self.made()

    @property
    def outer(self) -> int:
        """Points of all axes of k but the last."""
        return math.prod(a.extent for a in self.ko)

    @property
    def k(self) -> int:
        return self.outer * self.ki.extent


@lru_cache(maxsize=512)  # each pass over a network asks for all of its kernels again
def operands_of(kernel: Kernel[Contraction], shortest: int) -> Operands:
    """Batch, m and n as one variable each; axes of k merged while loads stay linear.

    If the last axis of k is shorter than ``shortest``, it is merged with the one before it even if loads then divide.
    """
    c = kernel.body
    flat = Flattener(kernel.params)
    batch, batch_parts = collapse(c.batch, "batch")
    m, m_parts = collapse(c.m, "m")
    n, n_parts = collapse(c.n, "n")
    a = flat(substitute(c.a, {**batch_parts, **m_parts}))
    b = flat(substitute(c.b, {**batch_parts, **n_parts}))
    k, (a, b) = merge_axes(c.k, [a, b])
    while len(k) > 1 and below(k[-1].extent, shortest):
        joined, exprs = merge_axes(k[-2:], [a, b], only_offsets=True)
        if len(joined) == 2:
            break
        k, (a, b) = [*k[:-2], *joined], exprs
    *ko, ki = k or [var("k", 1)]
    parts = {**batch_parts, **m_parts, **n_parts}
    return Operands(batch, m, n, tuple(ko), ki, a, b, partial(_flat_stores, flat, kernel, parts))


def _flat_stores(flat: Flattener, kernel: Kernel[Contraction], parts: Mapping[Expr, Expr]) -> tuple[FlatStore, ...]:
    return tuple(
        FlatStore(s.target, simplify(substitute(s.offset, parts)), simplify(substitute(s.value, parts)))
        for s in flat.stores(kernel)
    )


def k_contiguous(expr: Expr, ops: Operands, other: Var) -> bool:
    """Whether loads run along k rather than along ``other``."""
    along_k = sum(is_one(coefficient(o, ops.ki)) for o in offsets([expr]))
    along_other = sum(is_one(coefficient(o, other)) for o in offsets([expr]))
    return along_k > along_other


def _plain_load(expr: Expr, dtype: DType) -> Load | None:
    """The load, if the operand is one unconverted load of the accumulator's type, and its offset contains no load."""
    while isinstance(expr, Cast) and expr.value.dtype is dtype:
        expr = expr.value
    if not isinstance(expr, Load) or expr.dtype is not dtype or dtype in (F16, BF16):
        return None
    return None if any(isinstance(node, Load) for node in walk(expr.index[0])) else expr


@dataclass(frozen=True)
class Rows:
    """Rows of ``a`` that the register block reads in place: ``params[source][offset + ki * step]``.

    offset  in terms of batch, m and the outer axes of k
    guard   the condition under which this holds; otherwise the operand is zero. ``None`` if it always holds
    step    elements between neighbouring points of ki
    row     elements between neighbouring rows; ``None`` if the distance is not constant, so that each row needs a
            pointer
    """

    source: int
    offset: Expr
    guard: Expr | None
    step: int
    row: int | None


def rows_in_place(ops: Operands, dtype: DType) -> Rows | None:
    """How ``a`` is read in place; ``None`` if it is computed, or if too little of it is contiguous."""
    expr = ops.a
    guard: Expr | None = None
    while isinstance(expr, Cast) and expr.value.dtype is dtype:
        expr = expr.value
    if isinstance(expr, Select) and isinstance(expr.otherwise, Const) and expr.otherwise.value == 0:
        guard, expr = expr.operands[0], expr.then
        if ops.ki in guard.free or any(isinstance(node, Load) for node in walk(guard)):
            return None
    read = _plain_load(expr, dtype)
    if read is None:
        return None
    offset = read.index[0]
    step = coefficient(offset, ops.ki)
    if step is None:
        return None
    start = simplify(substitute(offset, {ops.ki: index(0)}))
    row = None if ops.ko or guard is not None else coefficient(start, ops.m)
    if row is None:
        if (ops.ko and below(ops.ki.extent, SHORTEST_RUN)) or isinstance(ops.outer, Size):
            return None  # a row would have too many pointers, or not the same number in every run
        if guard is not None and not (at_most(0, step) and at_most(ops.ki.extent * largest(step, 1), LARGEST_ZEROS)):
            return None
    return Rows(read.source, start, guard, step, row)


def is_gathered(ops: Operands, dtype: DType) -> bool:
    """Whether ``a`` is one element of memory, and the next is not beside it, neither along k nor along the rows."""
    read = _plain_load(ops.a, dtype)
    return read is not None and all(coefficient(read.index[0], along) is None for along in (ops.ki, ops.m))


@dataclass(frozen=True)
class Columns:
    """Columns of ``b`` that the register block reads in place.

    ``nr`` columns are contiguous at ``params[source][offset(batch, panel) + k * step]``; k counts all points of k.

    dtype    the type in memory; elements are converted when they are read
    padded   whether elements after the last column may be read
    """

    source: int
    dtype: DType
    offset: Expr
    panel: Var
    step: int
    padded: bool


def columns_in_place(ops: Operands, dtype: DType, nr: int, sizes: Sequence[Any]) -> Columns | None:
    """How ``b`` is read in panels of ``nr`` columns; ``sizes`` are the numbers of elements of the parameters."""
    read = ops.b
    while isinstance(read, Cast) and read.value.dtype is dtype:
        read = read.value
    if isinstance(read, Cast) and isinstance(read.value, Load):
        read = read.value
    if not isinstance(read, Load) or any(isinstance(node, Load) for node in walk(read.index[0])):
        return None
    panel, lane = var("panel", -(-ops.n.extent // nr)), var("lane", nr)
    offset = simplify(substitute(read.index[0], {ops.n: panel * nr + lane}))
    step = coefficient(offset, ops.ki)
    if step is None or not is_one(coefficient(offset, lane)):
        return None
    if coefficient(offset, panel) is None and not at_most(panel.extent, 1):
        return None
    inner = ops.ki.extent
    for axis in reversed(ops.ko):
        along = coefficient(offset, axis)
        if along is None or not same(along, step * inner):
            return None
        inner *= axis.extent
    zero: dict[Expr, Expr] = {axis: index(0) for axis in (lane, ops.ki, *ops.ko)}
    start = simplify(substitute(offset, zero))
    first = ends(start)[1]  # of any batch and panel: a slice may go through them backwards
    known = not isinstance(first, float)  # it is not infinite
    padded = known and at_most(0, step) and at_most(first + (ops.k - 1) * step + nr, sizes[read.source])
    return Columns(read.source, read.dtype, start, panel, step, padded)


@dataclass(frozen=True)
class KBlocks:
    """k in blocks: ``group`` points of the outer axes, with ``chunk`` points of the inner one each.

    inside  whether the inner axis is divided, in ``chunks`` parts
    """

    count: Any
    group: Any
    chunk: Any
    chunks: Any
    inside: bool

    @property
    def length(self) -> Any:
        """The most points of a block."""
        return self.group * self.chunk

    @property
    def room(self) -> int:
        """The most points of a block, in any run."""
        return int(bounds(self.group)[1] * bounds(self.chunk)[1])


def block_k(ko: int, ki: int, kc: int, width: int) -> KBlocks:
    """Blocks of about equal length. None is longer than ``kc``, except by rounding a chunk up to whole vectors.

    Those of sizes have a fixed length, so that the scratch of a block has one.
    """
    if at_most(ko * ki, kc):
        return KBlocks(1, ko, ki, 1, False)
    if not at_most(ki, kc):
        if isinstance(ki, Size):
            chunk = -(-kc // width) * width
            chunks = largest(-(-ki // chunk), 1)
        else:
            chunks = -(-ki // kc)
            chunk = math.ceil(ki / chunks / width) * width
            chunks = -(-ki // chunk)
        return KBlocks(ko * chunks, 1, chunk, chunks, True)
    group = max(1, kc // int(bounds(ki)[1]))
    if isinstance(ko, Size):
        return KBlocks(largest(-(-ko // group), 1), group, ki, 1, False)
    group = -(-ko // -(-ko // group))
    return KBlocks(-(-ko // group), group, ki, 1, False)
