"""Whether requests may be joined: which dimension is the batch, and whether its rows change each other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from gpucomp.dynamic.outline import by_rows
from gpucomp.errors import GpucompError, quote
from gpucomp.expr.core import Algorithm
from gpucomp.expr.printer import format_expr
from gpucomp.expr.simplify import simplify
from gpucomp.frontend.onnx.loader import Source, load, read
from gpucomp.frontend.onnx.open_shapes import open_shapes
from gpucomp.ir.conditions import Assumed, assuming
from gpucomp.ir.dim import Dim
from gpucomp.ir.graph import Constant, Graph, Input, Node, Value
from gpucomp.ir.instance import instance
from gpucomp.ir.polynomial import Symbol
from gpucomp.ir.size import Size, made, names_in, size_of, value_at
from gpucomp.ir.types import TensorType
from gpucomp.refusal import Refusal
from gpucomp.runtime.inputs import TensorSpec

COUNTS = (1009, 13, 1013, 17, 1019, 19, 1021, 23)  # primes, large and small: hardly a model has such sizes of its own
Proof = Refusal | None  # why rows may not be joined; ``None``: they may


def batch_dim(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Dim | Refusal:
    """The dimension that comes first in the shapes of all inputs and outputs, and whose size each run decides."""
    first = inputs[0].shape[0] if inputs and inputs[0].shape else None
    if not isinstance(first, Dim):
        return Refusal("the first dimension of the first input has one size only")
    for spec in (*inputs, *outputs):
        place = spec.shape[0] if spec.shape else None
        if not isinstance(place, Dim | Size) or str(place) != first.name:
            return Refusal(f"the first dimension of {quote(spec.name)} is not {quote(first.name)}")
    if any(str(size) == first.name for spec in (*inputs, *outputs) for size in spec.shape[1:]):
        return Refusal(f"{quote(first.name)} is the size of other dimensions too")
    return first


def independent(path: Path, shapes: Mapping[str, Any], batch: Dim, example: Mapping[str, int]) -> Proof:
    """Whether each row of the model's results reads that row alone, at every size of ``batch`` that the program runs.

    ``example`` has the sizes that the program was built around. The proof reads the same graph as the program: its extents
    are formulas, and what no formula decides is a condition that every run meets. Where every formula is linear in
    ``batch``, one that is equal at two sizes is the same at all, so graphs for two sizes must be equal but for the size.
    Each other dimension has its size in ``example``.
    """
    proto, files = read(path)
    opened = open_shapes(proto, shapes, {})
    sizes = {name: size_of(dim, example[name]) for name, dim in opened.dims.items()}
    try:
        with assuming(Assumed()) as conditions:
            graph = load(Source(proto, files), shapes=opened.at(sizes))
    except GpucompError as error:
        return Refusal(f"the model cannot be read for batches of any size: {error.message}")
    if (formula := _odd_formula(graph, batch.name)) is not None:
        return Refusal(
            f"{formula}, a size in it, depends on {quote(batch.name)} in a way that is not proven to be harmless"
        )
    counts = _counts(graph, batch, example, conditions)
    if len(counts) < 2:
        limits = f" where {conditions}" if conditions.conditions else ""
        return Refusal(f"{quote(batch.name)} has too few sizes for a proof{limits}")
    try:
        graphs = [instance(graph, {**example, batch.name: count}) for count in counts]
    except GpucompError as error:
        return Refusal(f"the model cannot be read for batches of other sizes: {error.message}")
    return _proven(graphs, counts, batch)


def _odd_formula(graph: Graph, name: str) -> Size | None:
    """A formula of ``graph`` that is not linear in the size ``name``, or rounds it, or compares it."""
    return next((size for node in graph.every_node() for size in _sizes(node) if not _is_linear(size, name)), None)


def _sizes(node: Node) -> Iterator[Size]:
    """Every formula in the types and attributes of a node."""
    pending: list[Any] = [*(type.shape for type in node.types), *node.attrs.values()]
    while pending:
        value = pending.pop()
        if isinstance(value, Size):
            yield value
        elif isinstance(value, TensorType):
            pending.append(value.shape)
        elif isinstance(value, tuple | list):
            pending += value
        elif isinstance(value, np.ndarray) and value.dtype == object:
            pending += value.reshape(-1).tolist()


def _is_linear(size: Size, name: str) -> bool:
    for monomial in size.terms:
        inside = [atom for atom in monomial if name in names_in(made({(atom,): 1}))]
        if len(inside) > 1 or not all(isinstance(atom, Symbol) for atom in inside):
            return False
    return True


def _proven(graphs: Sequence[Graph], counts: Sequence[int], batch: Dim) -> Proof:
    axes = []
    for graph, count in zip(graphs, counts, strict=True):
        found = by_rows(graph, [count])
        read = {value for node in graph.nodes() for value in node.inputs} | set(graph.outputs)
        rows = [*(value for value in graph.inputs if value in read), *graph.outputs]
        if found is None or any(
            found[1].get(value) != 0 for value in rows
        ):  # every input is joined, so each must have rows
            return Refusal(f"it is not proven that a row along {quote(batch.name)} does not change others")
        axes.append(found[1])
    return _alike(graphs[0], graphs[1], axes[0])


def _counts(graph: Graph, batch: Dim, example: Mapping[str, int], conditions: Assumed) -> list[int]:
    """Two sizes that the program may have, and that no other dimension of the graph has."""
    extents = {extent for node in graph.nodes() for type in node.types for extent in type.shape}
    taken = {value_at(extent, example) for extent in extents if batch.name not in names_in(extent)}
    tried = (*COUNTS, *range(max(batch.low, 2), min(batch.high, 2000) + 1))
    fits = (n for n in tried if n in batch and n not in taken and _hold(conditions, {**example, batch.name: n}))
    return list(islice(dict.fromkeys(fits), 2))


def _hold(conditions: Assumed, sizes: Mapping[str, int]) -> bool:
    try:
        return conditions.hold_at(sizes)
    except ArithmeticError:  # a quotient by 0: only sizes that meet the conditions have all numbers
        return False


def _alike(one: Graph, other: Graph, rows: Collection[Value] = ()) -> Proof:
    """Whether two graphs compute the same of a row: equal operators, expressions and constants.

    Values of ``one`` that are not in ``rows`` are the same for all rows, and must have one shape.
    """
    nodes, others = one.nodes(), other.nodes()
    if [node.op.name for node in nodes] != [node.op.name for node in others]:
        return Refusal("its operators depend on the size of the batch")
    for a, b in zip(nodes, others, strict=True):
        if a.op is Constant:
            if not _same_attributes(a, b):
                return Refusal("a number in it depends on the size of the batch")
            continue
        shared = all(
            mine == theirs for v, mine, theirs in zip(a.values, a.types, b.types, strict=True) if v not in rows
        )
        whole = a.op is Input or a.op.algorithm is not None or _same_attributes(a, b)
        plain = _bodies(a, plain=True) == _bodies(b, plain=True)
        if not (shared and whole and (plain or _bodies(a, plain=False) == _bodies(b, plain=False))):
            return Refusal(f"operator {quote(a.name or a.op.name)} depends on the size of the batch")
    return None


def _same_attributes(a: Node, b: Node) -> bool:
    return a is b or (a.attrs.keys() == b.attrs.keys() and all(_same(a.attrs[name], b.attrs[name]) for name in a.attrs))


def _same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, Graph) and isinstance(theirs, Graph):
        return _alike(mine, theirs) is None
    if isinstance(mine, np.ndarray) or isinstance(theirs, np.ndarray):
        return np.array_equal(np.asarray(mine), np.asarray(theirs))
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    return bool(mine == theirs)


def _bodies(node: Node, *, plain: bool) -> list[str]:
    if node.op.algorithm is None:
        return []
    made = node.op.algorithm(*(v.type for v in node.inputs), **node.attrs)
    listed: tuple[Algorithm, ...] = made if isinstance(made, tuple) else (made,)
    return [format_expr(one.body if plain else simplify(one.body)) for one in listed]
