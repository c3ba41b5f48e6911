"""Attention on the CPU as flat variables and expressions, and which operands are read in place or copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpucomp.codegen.llvm.contraction.operands import Operands, Rows, rows_in_place
from gpucomp.codegen.llvm.ir import arithmetic
from gpucomp.codegen.llvm.ir.builder import Code, Value
from gpucomp.codegen.llvm.ir.printer import Affine, LaneValue
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.codegen.llvm.loops.nest import Entry, FlatStore, Flattener, collapse, lower
from gpucomp.expr.core import Expr, Hole, Load, Select, Var, hole, substitute, walk
from gpucomp.expr.simplify import coefficient, ends, simplify
from gpucomp.ir import types
from gpucomp.ir.size import Size, at_most, below, is_one, is_zero, same
from gpucomp.ir.types import BOOL, F32, TensorType
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.causal import NOT_CAUSAL, causal_offset, last_column
from gpucomp.kernel.sizes import Sizes


class AttentionExtents(Sizes):
    batch: int
    m: int  # rows of queries
    n: int  # keys
    depth: int  # elements of a query and of a key
    values: int  # elements of a value


@dataclass(frozen=True)
class Parts:
    """An attention over flat variables: ``q(batch, rows, depth)``, ``k(batch, cols, depth)``, ``v(batch, cols, values)``.

    key_rows     rows of ``k`` that are read in place; ``None`` if they are copied. ``value_rows``: the same of ``v``
    score        in terms of ``dot`` and the holes of ``turned``
    turned       loads of the score that run along columns instead of rows, and the holes in their place
    causal       see ``causal_offset``; ``last_rows`` is the extent of the axis that it refers to
    last         see ``last_column``; ``None`` if it is causal

    Batch, rows, columns, ``causal`` and ``last_rows`` can be sizes that each run decides.
    """

    batch: Var
    rows: Var
    cols: Var
    depth: Var
    values: Var
    q: Expr
    k: Expr
    v: Expr
    key_rows: Rows | None
    value_rows: Rows | None
    score: Expr
    dot: Hole
    acc: Hole
    turned: tuple[tuple[Hole, Load], ...]
    stores: tuple[FlatStore, ...]
    causal: Any
    last_rows: Any
    last: Expr | None = None

    @property
    def extents(self) -> AttentionExtents:
        return AttentionExtents(
            batch=self.batch.extent,
            m=self.rows.extent,
            n=self.cols.extent,
            depth=self.depth.extent,
            values=self.values.extent,
        )


class Scratch:
    """Arrays of f32 on the stack of ``code``, read and written in vectors of type ``vector``."""

    def __init__(self, code: Code, vector: Type) -> None:
        self.code, self.vector = code, vector

    def _room(self, floats: int) -> Value:
        return self.code.stack(f"[{floats} x float]", 64)

    def _at(self, room: Value, offset: Value | int) -> Value:
        return self.code.gep(room, offset, "float")

    def _load(self, room: Value, offset: Value | int) -> Value:
        return self.code.load(self._at(room, offset), self.vector, 4)

    def _store(self, value: Value, room: Value, offset: Value | int) -> None:
        self.code.store(value, self._at(room, offset), 4)


def store_means(
    entry: Entry,
    parts: Parts,
    bound: Mapping[Expr, LaneValue],
    lanes: int,
    means: Value,
    pitch: int,
    first: Value,
    rows: Value | int,
) -> None:
    """The stores of ``rows`` rows from ``first`` on. Their means are at ``means``, ``pitch`` floats from row to row."""
    code = entry.code
    program = lower(
        [e for s in parts.stores for e in (s.offset, s.value)], [parts.batch, parts.rows, parts.values, parts.acc]
    )
    with code.loop(0, rows) as i:

        def chunk(at: Value, mask: Value | None) -> None:
            mean = code.load(code.gep(means, i * pitch + at, "float"), Type("float", lanes), 4)
            values = {**bound, parts.rows: first + i, parts.values: Affine(at, 1), parts.acc: mean}
            printer = entry.printer(program, values, lanes, mask)
            for number, store in enumerate(parts.stores):
                printer.store(store.target, program.results[2 * number], program.results[2 * number + 1])

        entry.chunks(0, parts.values.extent, lanes, chunk, parts.values.extent)


def columns_seen(entry: Entry, parts: Parts, bound: Mapping[Expr, LaneValue], first: Value, rows: Value | int) -> Value:
    """How many columns some of ``rows`` rows from ``first`` on give weight to, by ``parts.last``; all if one sees none."""
    assert parts.last is not None
    code = entry.code
    program = lower([parts.last], [parts.batch, parts.rows])
    least, most = code.slot(Type("i64")), code.slot(Type("i64"))
    columns = code.integer(parts.cols.extent)
    least.set(code.integer(0))
    most.set(code.integer(-1))
    with code.loop(0, rows) as i:
        last = entry.printer(program, {**bound, parts.rows: first + i}, 0, None).value(program.results[0])
        last = code.minimum(arithmetic.cast(last, parts.last.dtype, types.I64), columns)
        least.set(code.minimum(least.get(), last))
        most.set(code.select(last > most.get(), last, most.get()))
    return code.select(least.get() < 0, columns, code.minimum(most.get() + 1, columns))


def varies(kernel: Kernel[Attention]) -> str:
    """Why the engines cannot compute the kernel: what its tiles are made of differs from run to run. Empty if they can."""
    inner = [axis.extent for axis in (*kernel.body.depth, *kernel.body.values)]
    return "the size of a head differs from run to run" if any(isinstance(n, Size) for n in inner) else ""


@lru_cache(maxsize=32)
def parts_of(kernel: Kernel[Attention]) -> Parts:
    """The parts of an attention kernel."""
    body = kernel.body
    flat = Flattener(kernel.params)
    names = ("batch", "rows", "cols", "depth", "values")
    lists = (body.batch, body.rows, body.cols, body.depth, body.values)
    found = [collapse(axes, name) for name, axes in zip(names, lists, strict=True)]
    batch, rows, cols, depth, values = (variable for variable, _ in found)
    places = {axis: place for _, parts in found for axis, place in parts.items()}
    q, k, v, score = (flat(substitute(e, places)) for e in (body.q, body.k, body.v, body.score))
    causal = causal_offset(body)
    last = last_column(body) if same(causal, NOT_CAUSAL) else None
    turned = tuple((hole(f"turned{n}", ld.dtype), ld) for n, ld in enumerate(_turned(score, rows, cols, kernel.params)))
    stores = tuple(
        FlatStore(s.target, simplify(substitute(s.offset, places)), simplify(substitute(s.value, places)))
        for s in flat.stores(kernel)
    )
    return Parts(
        batch=batch,
        rows=rows,
        cols=cols,
        depth=depth,
        values=values,
        q=q,
        k=k,
        v=v,
        key_rows=_in_place(k, batch, cols, depth),
        value_rows=_in_place(v, batch, cols, values),
        score=substitute(score, {ld: name for name, ld in turned}),
        dot=body.dot,
        acc=body.acc,
        turned=turned,
        stores=stores,
        causal=causal,
        last_rows=body.rows[-1].extent if body.rows else 1,
        last=None if last is None else flat(substitute(last, places)),
    )


def _in_place(value: Expr, batch: Var, cols: Var, inner: Var) -> Rows | None:
    if isinstance(value, Select):
        return None
    found = rows_in_place(Operands(batch, cols, inner, (), inner, value, value, tuple), F32)
    return found if found is not None and found.row is not None and found.guard is None else None


def _turned(score: Expr, rows: Var, cols: Var, params: Sequence[TensorType]) -> list[Load]:
    """Loads that are contiguous along columns and never out of bounds.

    Lanes that run over rows would have to gather them.
    """
    found = []
    for node in walk(score):
        if not isinstance(node, Load) or any(isinstance(part, Load) for part in walk(node.index[0])):
            continue
        low, high = ends(node.index[0])
        down = coefficient(node.index[0], rows)
        if (
            (node.dtype is BOOL or (node.dtype.is_float and node.dtype.nbytes <= 4))
            and is_one(coefficient(node.index[0], cols))
            and not (is_zero(down) or is_one(down))
            and at_most(0, low)
            and below(high, params[node.source].size)
        ):
            found.append(node)
    return found
