"""What of a program (``rest``) is too much work for numpy: cut out as a graph, and freed of how many rows there are.

Behind a selection there may be a network of its own, as the head of a two-stage detector, on as many rows as were selected.
Where no row depends on another, a graph for a power of two of rows computes any number up to it: the others are zeros.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.errors import GpucompError
from gpucomp.expr.core import Algorithm, Expr, Load, load, loads, transform
from gpucomp.expr.printer import format_expr
from gpucomp.expr.simplify import simplify
from gpucomp.ir.graph import Constant, Graph, Input, Node, Value, input_value
from gpucomp.ir.types import TensorType
from gpucomp.ops.interpreter import work

PART_WORK = 1 << 22  # elements (``interpreter.work``): steps of more together are worth a compilation
REPEATED_WORK = 16 * PART_WORK  # of less, what is for one number of rows alone is compiled when it is there again
SHARE = (
    32  # a step of less than the whole's part in so many is left to numpy: whatever the number of rows, the same are
)
LEAST_ROWS = 16


@dataclass(frozen=True)
class Part:
    """Steps of a program as a graph. ``numbers`` are theirs, ``reads`` and ``gives`` positions of arrays.

    With ``rows``, the graph is for that many, and ``axes`` are where they lie in what it reads and gives (``None``: not).
    """

    numbers: frozenset[int]
    graph: Graph
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    rows: int = 0
    count: int = 0
    axes: tuple[int | None, ...] = ()
    work: int = 0

    def padded(self, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """The inputs of the graph: ``arrays`` with zeros for the rows that are not there."""
        found = {}
        axes = self.axes[: len(arrays)] or (None,) * len(arrays)
        for name, array, axis in zip(self.graph.input_names, arrays, axes, strict=True):
            if axis is not None:
                shape = (*array.shape[:axis], self.rows - self.count, *array.shape[axis + 1 :])
                array = np.concatenate([array, np.zeros(shape, array.dtype)], axis=axis)
            found[name] = array
        return found

    def cut(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The graph's outputs without the rows that are not there."""
        axes = self.axes[len(self.reads) :] or (None,) * len(arrays)
        return [
            array if axis is None else array[(slice(None),) * axis + (slice(self.count),)]
            for array, axis in zip(arrays, axes, strict=True)
        ]


def heavy(nodes: Mapping[int, Node], reads: Mapping[int, Collection[int]]) -> frozenset[int]:
    """The numbers of the ``nodes`` that are worth a compilation, with all that lies between two of them.

    ``reads`` are the numbers that each node's operands come from; they are lower than its own. Empty for too little work.
    """
    work_of = {k: _work(node) for k, node in nodes.items() if node.op.algorithm is not None}
    whole = sum(work_of.values())
    if whole < PART_WORK:
        return frozenset()
    large = {k for k, work in work_of.items() if SHARE * work >= whole}
    below, above = set(large), set(large)
    for k in nodes:
        if below.intersection(reads[k]):
            below.add(k)
    for k in reversed(list(nodes)):
        if k in above:
            above.update(r for r in reads[k] if r in nodes)
    return frozenset(below & above)


def _work(node: Node) -> int:
    """``interpreter.work``, but of what picks elements only what it picks, and of RoiAlign every sample's four corners."""
    size = sum(t.size for t in node.types)
    if node.op in (ops.Gather, ops.GatherND, ops.GatherElements, ops.Slice):
        return size
    if node.op is ops.RoiAlign:
        return 4 * size * int(node.attrs["sampling_ratio"]) ** 2
    return work(node)


def graph_of(
    nodes: Sequence[Node], outputs: Sequence[Value], given: Collection[Value] = ()
) -> tuple[Graph, list[Value]]:
    """``nodes`` as a graph with these outputs, and what it reads from elsewhere, in the order of its inputs.

    Constants stay what they are, but those in ``given`` are inputs.
    """
    made: dict[Value, Value] = {}
    outside: list[Value] = []
    for node in nodes:
        for value in node.inputs:
            if value not in made:
                if value.op is Constant and value not in given:
                    made[value] = value
                else:
                    made[value] = input_value(f"a{len(outside)}", value.type)
                    outside.append(value)
        made.update(zip(node.values, node.with_inputs(made[v] for v in node.inputs).values, strict=True))
    names = tuple(f"r{k}" for k in range(len(outputs)))
    return Graph(tuple(made[v] for v in outside), tuple(made[v] for v in outputs), names), outside


def part_of(
    numbers: frozenset[int],
    nodes: Sequence[Node],
    outputs: Sequence[Value],
    position: Mapping[Value, int],
    counts: Collection[int],
) -> Part:
    """``nodes``, which are the steps ``numbers``, as what is compiled: for a power of two of rows where that can be.

    ``counts`` are the extents that another run may find others for.
    """
    graph, read = graph_of(nodes, outputs)
    found = by_rows(graph, counts)
    if found is not None and (constants := {v for v in found[1] if v.op is Constant}):
        graph, read = graph_of(
            nodes, outputs, constants
        )  # a row of theirs belongs to each row: zeros for a batch's number
        found = by_rows(graph, counts)
    reads, gives = (tuple(position[v] for v in values) for values in (read, outputs))
    whole = sum(_work(node) for node in nodes)
    if found is None:
        return Part(numbers, graph, reads, gives, work=whole)
    count, axes = found
    rows = max(LEAST_ROWS, 1 << (count - 1).bit_length())
    widened = _widened(graph, axes, rows)
    if widened is None:
        return Part(numbers, graph, reads, gives, work=whole)
    places = tuple(axes.get(v) for v in (*graph.inputs, *graph.outputs))
    return Part(numbers, widened, reads, gives, rows, count, places, whole)


def by_rows(graph: Graph, counts: Collection[int]) -> tuple[int, dict[Value, int]] | None:
    """How many rows independent of each other the outputs have in common, and their axis in every value that has them.

    An output that others are computed from need not have them: what all rows read, and is given besides, is as it is.
    They come from an input at least: the columns of a weight are none.
    """
    read = {v for node in graph.nodes() for v in node.inputs}
    last = [value for value in graph.outputs if value not in read]
    common = set(counts).intersection(*(value.shape for value in last)) - {0, 1}
    for count in sorted(common, reverse=True):
        axes = _row_axes(graph, last, count)
        if axes is not None and any(v in axes for v in graph.inputs):
            return count, axes
    return None


def _row_axes(graph: Graph, last: Sequence[Value], count: int) -> dict[Value, int] | None:
    """The axis of the rows in every value that has them, from the ``last`` back to the inputs; ``None`` for no such rows."""
    axes = {value: value.shape.index(count) for value in last}
    for node in reversed(graph.nodes()):
        if node.op in (Input, Constant):
            continue
        wanted: dict[int, int] = {}
        if any(v in axes for v in node.values):
            algorithms = _algorithms(node)
            if len(algorithms) != len(node.values) or any(v not in axes for v in node.values):
                return None
            read = {item.source for algorithm in algorithms for item in loads(algorithm.body)}
            for k, operand in enumerate(node.inputs):
                if k not in read and count in operand.shape:  # only its extents matter: the image number of one image
                    wanted[k] = operand.shape.index(count)
            for algorithm, value in zip(algorithms, node.values, strict=True):
                taken = _rows_taken(algorithm, axes[value])
                if taken is None:  # a Reshape says it in quotients
                    taken = _rows_taken(Algorithm(algorithm.axes, simplify(algorithm.body)), axes[value])
                if taken is None or any(wanted.setdefault(k, axis) != axis for k, axis in taken.items()):
                    return None
        for k, axis in wanted.items():
            operand = node.inputs[k]
            if operand.shape[axis] != count or axes.setdefault(operand, axis) != axis:
                return None
        if any(v in axes and k not in wanted for k, v in enumerate(node.inputs)):
            return None
    for node in graph.nodes():  # who reads rows has rows
        if any(v in axes for v in node.inputs) and any(v not in axes for v in node.values):
            return None
    return axes


def _algorithms(node: Node) -> list[Algorithm]:
    """What the results' elements are; none for an operator of the host."""
    if node.op.algorithm is None:
        return []
    made = node.op.algorithm(*(v.type for v in node.inputs), **node.attrs)
    return list(made) if isinstance(made, tuple) else [made]


def _rows_taken(algorithm: Algorithm, axis: int) -> dict[int, int] | None:
    """The operands that element ``r`` along ``axis`` reads row ``r`` of, and the axis of these rows in each.

    ``None`` where ``r`` is used for anything else: another row, a condition, a number.
    """
    row, found = algorithm.axes[axis], dict[int, set[int]]()

    def without(expr: Expr) -> Expr | None:
        if isinstance(expr, Load):
            places = [k for k, i in enumerate(expr.index) if i is row]
            found.setdefault(expr.source, set()).update(places or [-1])
            return load(expr.source, [0 if k in places[:1] else i for k, i in enumerate(expr.index)], expr.dtype)
        return None

    if row in transform(algorithm.body, without).free:
        return None
    if any(len(places) > 1 for places in found.values()):  # not in the same way everywhere
        return None
    return {source: place for source, (place,) in found.items() if place >= 0}


def _widened(graph: Graph, axes: Mapping[Value, int], rows: int) -> Graph | None:
    """``graph`` for another number of ``rows``; ``None`` where that would make another function of it."""
    made: dict[Value, Value] = {}
    for node in graph.nodes():
        wanted = [_with_rows(v.type, axes.get(v), rows) for v in node.values]
        if node.op is Input:
            made[node[0]] = input_value(node.attrs["label"], wanted[0])
            continue
        if not any(v in axes for v in node.values):
            made.update(zip(node.values, node.with_inputs(made[v] for v in node.inputs).values, strict=True))
            continue
        attrs = {name: _attribute(value, node[0].shape, axes[node[0]], rows) for name, value in node.attrs.items()}
        try:
            new = node.op.node(*(made[v] for v in node.inputs), name=node.name, **attrs)
        except GpucompError:
            return None
        if list(new.types) != wanted or not _same(new, node):
            return None
        made.update(zip(node.values, new.values, strict=True))
    return Graph(tuple(made[v] for v in graph.inputs), tuple(made[v] for v in graph.outputs), graph.output_names)


def _with_rows(type: TensorType, axis: int | None, rows: int) -> TensorType:
    return type if axis is None else type.with_shape((*type.shape[:axis], rows, *type.shape[axis + 1 :]))


def _attribute(value: Any, shape: tuple[int, ...], axis: int, rows: int) -> Any:
    """An attribute that is the result's shape, or its part along every axis, for ``rows``."""
    if value != shape:
        return value
    return (*shape[:axis], rows, *shape[axis + 1 :])


def _same(one: Node, other: Node) -> bool:
    """Whether the elements of two nodes are the same function of those of their operands, whatever the extents."""
    bodies = [[a.body for a in _algorithms(node)] for node in (one, other)]
    for change in (lambda body: body, simplify):
        mine, theirs = ([format_expr(change(body)) for body in found] for found in bodies)
        if mine == theirs:
            return True
    return False
