"""A graph for one set of sizes, from a graph whose extents are formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpucomp.errors import UnsupportedError
from gpucomp.ir.graph import Constant, Graph, Input, Sizes, Value, constant, input_value
from gpucomp.ir.size import Size, value_at
from gpucomp.ir.types import TensorType


def instance(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """``graph`` with every formula replaced by its value at ``sizes``, where its conditions must hold.

    Raises ``ShapeError`` if the operators do not fit these sizes.
    """
    made: dict[Value, Value] = {}
    for node in graph.nodes():
        operands = [made[v] for v in node.inputs]
        if node.op is Input:
            shape = tuple(value_at(extent, sizes) for extent in node.types[0].shape)
            new = input_value(node.attrs["label"], TensorType(node.types[0].dtype, shape)).node
        elif node.op is Sizes:
            numbers = [value_at(v, sizes) for v in node.attrs["values"].reshape(-1)]
            array = np.array(numbers, node.types[0].dtype.numpy).reshape(node.attrs["values"].shape)
            new = constant(array, name=node.name).node
        elif node.op is Constant:
            new = node
        else:
            attrs = {name: _at(value, sizes) for name, value in node.attrs.items()}
            new = node.op.node(*operands, name=node.name, **attrs)
        made.update(zip(node.values, new.values, strict=True))
    return Graph(
        tuple(made.get(v, v) for v in graph.inputs),
        tuple(made[v] for v in graph.outputs),
        graph.output_names,
        graph.name,
        graph.input_containers,
        graph.output_containers,
    )


def nonempty(graph: Graph) -> Graph:
    """``graph``, in a block that from now on assumes of every size of a value that it is at least 1."""
    extents = {str(n): n for node in graph.nodes() for type in node.types for n in type.shape if isinstance(n, Size)}
    for extent in extents.values():
        if extent < 1:
            raise UnsupportedError(f"a value of {extent} elements is empty in the example", code="GPC4014")
    return graph


def _at(attribute: Any, sizes: Mapping[str, int]) -> Any:
    return tuple(_at(part, sizes) for part in attribute) if isinstance(attribute, tuple) else value_at(attribute, sizes)
