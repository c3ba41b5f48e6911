"""Whether requests may be joined: which dimension is the batch, and whether its rows change each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from gpucomp.ir.dim import Dim
from gpucomp.ir.graph import Constant, Graph, Node
from gpucomp.ir.size import Size
from gpucomp.refusal import Refusal
from gpucomp.runtime.inputs import TensorSpec

COUNTS = (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049)  # primes: hardly a model has such sizes of its own
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


def independent(path: Path, shapes: Mapping[str, Any], batch: Dim) -> Proof:
    """Whether each row of the model's results reads that row alone, at every size of ``batch``.

    It is proven for two sizes, whose graphs must be equal but for the size, and for one size of each other dimension.
    """
    proto, files = read(path)
    opened = open_shapes(proto, shapes, {})
    counts = _counts(opened.shapes, batch)
    if len(counts) < 2:
        return Refusal(f"{quote(batch.name)} has too few sizes for a proof")
    fault = ""
    for example in opened.examples():  # not all sizes fit every model
        try:
            graphs = [load(Source(proto, files), shapes=opened.at({**example, batch.name: count})) for count in counts]
        except GpucompError as error:
            fault = fault or error.message
            continue
        return _proven(graphs, counts, batch)
    return Refusal(f"the model cannot be read for batches of other sizes: {fault}")


def _proven(graphs: Sequence[Graph], counts: Sequence[int], batch: Dim) -> Proof:
    for graph, count in zip(graphs, counts, strict=True):
        found = by_rows(graph, [count])
        read = {value for node in graph.nodes() for value in node.inputs} | set(graph.outputs)
        rows = [*(value for value in graph.inputs if value in read), *graph.outputs]
        if found is None or any(
            found[1].get(value) != 0 for value in rows
        ):  # every input is joined, so each must have rows
            return Refusal(f"it is not proven that a row along {quote(batch.name)} does not change others")
    return _alike(*graphs)


def _counts(shapes: Mapping[str, Sequence[Any]], batch: Dim) -> list[int]:
    """Two sizes that no other dimension has."""
    taken = {size for shape in shapes.values() for size in shape if isinstance(size, int)}
    tried = (*COUNTS, *range(max(batch.low, 2), min(batch.high, 2000)))
    return [n for n in tried if n in batch and n not in taken][:2]


def _alike(one: Graph, other: Graph) -> Proof:
    """Whether two graphs compute the same of a row: equal operators, expressions and constants."""
    nodes, others = one.nodes(), other.nodes()
    if [node.op.name for node in nodes] != [node.op.name for node in others]:
        return Refusal("its operators depend on the size of the batch")
    for a, b in zip(nodes, others, strict=True):
        if a.op is Constant and not _same_numbers(a, b):
            return Refusal("a number in it depends on the size of the batch")
        if _bodies(a, plain=True) != _bodies(b, plain=True) and _bodies(a, plain=False) != _bodies(b, plain=False):
            return Refusal(f"operator {quote(a.name or a.op.name)} depends on the size of the batch")
    return None


def _same_numbers(a: Node, b: Node) -> bool:
    return all(
        np.array_equal(np.asarray(mine), np.asarray(theirs))
        for mine, theirs in zip(a.attrs.values(), b.attrs.values(), strict=True)
    )


def _bodies(node: Node, *, plain: bool) -> list[str]:
    if node.op.algorithm is None:
        return []
    made = node.op.algorithm(*(v.type for v in node.inputs), **node.attrs)
    listed: tuple[Algorithm, ...] = made if isinstance(made, tuple) else (made,)
    return [format_expr(one.body if plain else simplify(one.body)) for one in listed]
