"""Common subexpression elimination: merges nodes of equal operator, operands and attributes, and equal constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gpucomp.ir.graph import Constant, Graph, Input, Node, Value
from gpucomp.ir.trail import tell

SAMPLES = 16


def share_common_subexpressions(graph: Graph) -> Graph:
    """``graph`` with every repeated computation done once. The first of several equal nodes stays, with its name."""
    first: dict[tuple[Any, ...], Node] = {}
    constants = _Constants()
    replaced: dict[Value, Value] = {}
    for node in graph.nodes():
        current = node.with_inputs(replaced.get(v, v) for v in node.inputs)
        if node.op is Input:
            same = node
        elif node.op is Constant:
            same = constants.first(node)
        else:
            same = first.setdefault((node.op, current.inputs, *_attributes(node.attrs)), current)
        if same is not node:
            tell(node.values, same.values)
            replaced.update(zip(node.values, same.values, strict=True))
    return graph.with_outputs(replaced.get(v, v) for v in graph.outputs)


def _attributes(attrs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Attributes as text, which differs for 0.0 and -0.0 and for 1 and True. A body is equal to itself only."""
    for name in sorted(attrs):
        yield name, f"body {id(attrs[name])}" if isinstance(attrs[name], Graph) else repr(attrs[name])


class _Constants:
    """Finds equal constants. Type, shape and a few samples are compared first, so most are never compared in full."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], list[Node]] = {}

    def first(self, node: Node) -> Node:
        array = node.attrs["value"]
        if array.dtype == object:
            return node  # strings: the array's bytes are addresses
        samples = array.flat[np.arange(0, array.size, max(1, array.size // SAMPLES))]  # copies the samples only
        alike = self._found.setdefault((node.types[0].dtype, array.shape, samples.tobytes()), [])
        for other in alike:
            if _same_bits(other.attrs["value"], array):
                return other
        alike.append(node)
        return node


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a is b:
        return True
    raw_a, raw_b = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (a, b))
    return np.array_equal(raw_a, raw_b)
