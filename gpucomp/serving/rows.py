"""Whether requests may be joined: whether the rows of a model change each other. This reads the graph, by the compiler."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, islice
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
from gpucomp.ir.size import Size, bounds, made, names_in, same, size_of, value_at
from gpucomp.ir.types import TensorType
from gpucomp.refusal import Refusal

COUNTS = (1009, 13, 1013, 17, 1019, 19, 1021, 23)  # primes, large and small: hardly a model has such sizes of its own
STEPS = (1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 16, -16, 32, -32, 64, -64)  # from an example to another one
MOST_MOVED = 64  # sets of dimensions that are tried
Proof = Refusal | None  # why rows may not be joined; ``None``: they may


def independent(path: Path, shapes: Mapping[str, Any], batch: Dim, example: Mapping[str, int]) -> Proof:
    """Whether each row of the model's results reads that row alone, at every size of ``batch`` that the program runs.

    ``example`` has the sizes that the program was built around. The proof reads the same graph as the program: its extents
    are formulas, and what no formula decides is a condition that every run meets. Where every formula is linear in
    ``batch``, one that is equal at two sizes is the same at all, so graphs for two sizes must be equal but for the size.
    The other dimensions have their sizes in ``example``, and then other ones.
    """
    proto, files = read(path)
    opened = open_shapes(proto, shapes, {})
    sizes = {name: size_of(dim, example[name]) for name, dim in opened.dims.items()}
    try:
        with assuming(Assumed()) as conditions:
            graph = load(Source(proto, files), shapes=opened.at(sizes))
            others = [dim for name, dim in opened.dims.items() if name != batch.name and _differs(sizes[name])]
    except GpucompError as error:
        return Refusal(f"the model cannot be read for batches of any size: {error.message}")
    if (odd := _odd(graph, batch.name, conditions)) is not None:
        return Refusal(f"{odd} depends on {quote(batch.name)} in a way that is not proven to be harmless")
    examples = [example, *islice(_other_examples(others, example, conditions), 1)]
    if others and len(examples) < 2:
        return Refusal(
            f"{', '.join(quote(dim.name) for dim in others)} has too few sizes for a proof where {conditions}"
        )
    for one in examples:
        if (why := _proven_at(one, graph, sizes[batch.name], batch, conditions)) is not None:
            return why
    return None


def _differs(size: int | Size) -> bool:
    """Whether runs have different sizes, by what is known now."""
    low, high = bounds(size)
    return low != high


def _proven_at(example: Mapping[str, int], graph: Graph, size: Size, batch: Dim, conditions: Assumed) -> Proof:
    """Whether rows do not change each other where all dimensions but ``batch``, of ``size``, are as in ``example``."""
    counts = _counts(graph, batch, example, conditions)
    if len(counts) < 2:
        limits = f" where {conditions}" if conditions.conditions else ""
        return Refusal(f"{quote(batch.name)} has too few sizes for a proof{limits}")
    try:
        graphs = [instance(graph, {**example, batch.name: count}) for count in counts]
    except GpucompError as error:
        return Refusal(f"the model cannot be read for batches of other sizes: {error.message}")
    return _proven(graph, graphs, counts, batch, size)


def _other_examples(dims: Sequence[Dim], example: Mapping[str, int], conditions: Assumed) -> Iterator[dict[str, int]]:
    """Sizes that meet the conditions, and of which as many ``dims`` as possible are others than in ``example``."""
    for count in range(len(dims), 0, -1):
        for moved in islice(combinations(dims, count), MOST_MOVED):
            for steps in STEPS:
                found = {**example, **{dim.name: example[dim.name] + steps * dim.multiple for dim in moved}}
                if all(found[dim.name] in dim for dim in moved) and _hold(conditions, found):
                    yield found


def _odd(graph: Graph, name: str, conditions: Assumed) -> str | None:
    """What no proof holds for: a formula of ``graph`` that is not linear in the size ``name``, or rounds it, or compares it;
    and a condition that ties it to another size, which two requests can meet, and both together not.
    """
    for condition in conditions.conditions:
        if name in (names := names_in(condition.size)) and len(names) > 1:
            return f"a condition, {condition.text(conditions.conditions[condition])},"
    sizes = (size for node in graph.every_node() for size in _sizes(node))
    return next((f"a size in it, {size}," for size in sizes if not _is_linear(size, name)), None)


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


def _proven(graph: Graph, graphs: Sequence[Graph], counts: Sequence[int], batch: Dim, size: Size) -> Proof:
    """``graphs`` are what ``graph`` is for ``counts``."""
    unknown = Refusal(f"it is not proven that a row along {quote(batch.name)} does not change others")
    axes = []
    for one, count in zip(graphs, counts, strict=True):
        found = by_rows(one, [count])
        read = {value for node in one.nodes() for value in node.inputs} | set(one.outputs)
        rows = [*(value for value in one.inputs if value in read), *one.outputs]
        if found is None or any(found[1].get(value) != 0 for value in rows):
            return unknown  # every input is joined, so each must have rows
        if not _are_of(size, graph, one, found[1]):
            return unknown
        axes.append(found[1])
    return _alike(graphs[0], graphs[1], axes[0])


def _are_of(size: Size, graph: Graph, one: Graph, axes: Mapping[Value, int]) -> bool:
    """Whether the rows of ``one``, an instance of ``graph``, are as many as ``size`` by their formula: equal numbers are not
    enough, at other sizes they can differ.
    """
    nodes, instances = graph.nodes(), one.nodes()
    return len(nodes) == len(instances) and all(
        same(formula.shape[axes[value]], size)
        for node, own in zip(nodes, instances, strict=True)
        for formula, value in zip(node.types, own.values, strict=True)
        if value in axes
    )


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
