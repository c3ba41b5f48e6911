"""Finds the steps of a dynamic program (``dynamic/program.py``) that are too expensive for numpy and outlines them as a graph.

The number of rows of such a graph often varies from run to run: the head of a two-stage detector runs on as many rows as
were selected. If the rows are independent, the graph is widened to a power of two of rows and the input is padded with
zeros, so that one compilation serves every smaller count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.errors import GpucompError
from gpucomp.expr.core import Algorithm, Expr, Load, load, loads, transform
from gpucomp.expr.printer import format_expr
from gpucomp.expr.simplify import simplify
from gpucomp.ir.graph import Constant, Graph, Input, Node, Value, input_value
from gpucomp.ir.types import TensorType
from gpucomp.lazy_dataclass import dataclass
from gpucomp.ops.interpreter import work

PART_WORK = 1 << 22  # elements (``interpreter.work``): the least total work that is worth a compilation
REPEATED_WORK = 16 * PART_WORK  # a graph for an exact shape with less work is compiled only when it comes a second time
SHARE = (
    32  # numpy runs steps with less than 1/SHARE of the total work: relative, so that it does not depend on row counts
)
LEAST_ROWS = 16


@dataclass(frozen=True)
class Part:
    """Steps of a program, outlined as a graph. ``numbers`` are the steps; ``reads`` and ``gives`` are array positions.

    If ``rows`` is not 0, the graph is compiled for ``rows`` rows, of which ``count`` are used. ``axes`` has the row axis of
    each array in ``reads`` and ``gives``, or ``None`` for an array without rows.
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
        """The inputs of the graph: ``arrays``, padded with zero rows."""
        found = {}
        axes = self.axes[: len(arrays)] or (None,) * len(arrays)
        for name, array, axis in zip(self.graph.input_names, arrays, axes, strict=True):
            if axis is not None:
                shape = (*array.shape[:axis], self.rows - self.count, *array.shape[axis + 1 :])
                array = np.concatenate([array, np.zeros(shape, array.dtype)], axis=axis)
            found[name] = array
        return found

    def cut(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of the graph, without the padding rows."""
        axes = self.axes[len(self.reads) :] or (None,) * len(arrays)
        return [
            array if axis is None else array[(slice(None),) * axis + (slice(self.count),)]
            for array, axis in zip(arrays, axes, strict=True)
        ]


def expensive(nodes: Mapping[int, Node], reads: Mapping[int, Collection[int]]) -> frozenset[int]:
    """The numbers of the ``nodes`` that are worth a compilation, and of all nodes on a path between two of these.

    ``reads[k]`` has the numbers of the nodes that make the operands of node ``k``; all are lower than ``k``. The result is
    empty if there is too little work.
    """
    work_of = {k: _work(node) for k, node in nodes.items() if _has_kernels(node)}
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


def _has_kernels(node: Node) -> bool:
    return node.op.algorithm is not None or node.op is ops.Repeat


def _work(node: Node) -> int:
    """``interpreter.work``; but an operator that picks elements counts only those, and RoiAlign four corners a sample."""
    size = sum(t.size for t in node.types)
    if node.op in (ops.Gather, ops.GatherND, ops.GatherElements, ops.Slice):
        return size
    if node.op is ops.RoiAlign:
        return 4 * size * int(node.attrs["sampling_ratio"]) ** 2
    return work(node)


def graph_of(
    nodes: Sequence[Node], outputs: Sequence[Value], given: Collection[Value] = ()
) -> tuple[Graph, list[Value]]:
    """``nodes`` as a graph with these outputs, and the outside values that it reads, in the order of its inputs.

    Constants stay constants, except that those in ``given`` become inputs.
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
    """Outline ``nodes``, the steps ``numbers``: for a power of two of rows if possible, else for the exact shape.

    ``counts`` are the extents that can differ in another run.
    """
    graph, read = graph_of(nodes, outputs)
    found = by_rows(graph, counts)
    if found is not None and (constants := {v for v in found[1] if v.op is Constant}):
        graph, read = graph_of(
            nodes, outputs, constants
        )  # these constants have one row for each row: they become inputs and are padded (a batch index with zeros)
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
    """The number of independent rows that the outputs share, and the row axis of every value that has rows.

    Only outputs that no other node reads must have rows: an intermediate output without rows is the same for all of them.
    The rows must come from an input: the columns of a weight are not rows.
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
    """The row axis of every value that has rows, going back from the outputs ``last``; ``None`` if rows are not independent."""
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
                if k not in read and count in operand.shape:  # only its shape is read, as the image number of one image
                    wanted[k] = operand.shape.index(count)
            for algorithm, value in zip(algorithms, node.values, strict=True):
                taken = _rows_taken(algorithm, axes[value])
                if taken is None:  # the indices of a Reshape are quotients until they are simplified
                    taken = _rows_taken(Algorithm(algorithm.axes, simplify(algorithm.body)), axes[value])
                if taken is None or any(wanted.setdefault(k, axis) != axis for k, axis in taken.items()):
                    return None
        for k, axis in wanted.items():
            operand = node.inputs[k]
            if operand.shape[axis] != count or axes.setdefault(operand, axis) != axis:
                return None
        if any(v in axes and k not in wanted for k, v in enumerate(node.inputs)):
            return None
    for node in graph.nodes():  # a node that reads rows must have rows
        if any(v in axes for v in node.inputs) and any(v not in axes for v in node.values):
            return None
    return axes


def _algorithms(node: Node) -> list[Algorithm]:
    """The algorithms of the node's results; none for a host operator."""
    if node.op.algorithm is None:
        return []
    made = node.op.algorithm(*(v.type for v in node.inputs), **node.attrs)
    return list(made) if isinstance(made, tuple) else [made]


def _rows_taken(algorithm: Algorithm, axis: int) -> dict[int, int] | None:
    """The operands of which element ``r`` along ``axis`` reads row ``r``, and the row axis in each of them.

    ``None`` if ``r`` is used in any other way: to read another row, in a condition, or as a number.
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
    if any(len(places) > 1 for places in found.values()):  # the row index is on different axes in different loads
        return None
    return {source: place for source, (place,) in found.items() if place >= 0}


def _widened(graph: Graph, axes: Mapping[Value, int], rows: int) -> Graph | None:
    """``graph`` for another number of ``rows``; ``None`` if that would change the function that it computes."""
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
    """Replace an attribute that equals the result's shape by the shape for ``rows``."""
    if value != shape:
        return value
    return (*shape[:axis], rows, *shape[axis + 1 :])


def _same(one: Node, other: Node) -> bool:
    """Whether two nodes compute the same function of their operands' elements, whatever the extents are."""
    bodies = [[a.body for a in _algorithms(node)] for node in (one, other)]
    for change in (lambda body: body, simplify):
        mine, theirs = ([format_expr(change(body)) for body in found] for found in bodies)
        if mine == theirs:
            return True
    return False
