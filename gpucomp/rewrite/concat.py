"""Prepares Concats for kernels: few operands each, and shared prefixes are copied once. Movement rules are elsewhere.

share_prefixes   concat(a, b), concat(a, b, c)  ->  p = concat(a, b), concat(p, c)      (DenseNet)
split_wide       concat(x0 ... x99)             ->  concat(concat(x0 ... x15), ...)     (kernel arguments)
"""

from __future__ import annotations

from collections.abc import Callable

from gpucomp import ops
from gpucomp.ir.graph import Graph, Node, Value
from gpucomp.ir.trail import tell

WIDEST = 16  # operands of one Concat


def _rebuild(graph: Graph, change: Callable[[Node], Value | None]) -> Graph:
    """The graph with the first result of each node replaced by ``change(node)``, unless that is ``None``.

    Nodes are visited in topological order, and ``change`` is given nodes whose operands are already rebuilt.
    """
    forward: dict[Value, Value] = {}
    for node in graph.nodes():
        current = node.with_inputs(forward.get(v, v) for v in node.inputs)
        if current is not node:
            tell(node.values, current.values)
        result = change(current)
        if result is not None:
            tell((current[0],), (result,))
            forward[node[0]] = result
        elif current is not node:
            forward.update(zip(node.values, current.values, strict=True))
    return graph.with_outputs(forward.get(v, v) for v in graph.outputs)


def share_prefixes(graph: Graph) -> Graph:
    """concat(a, b, c) -> concat(concat(a, b), c), if concat(a, b) is in the graph already."""
    known: dict[tuple[Value | int, ...], Value] = {}

    def change(node: Node) -> Value | None:
        if node.op is not ops.Concat:
            return None
        axis = node.attrs["axis"]
        result = None
        for length in range(len(node.inputs) - 1, 1, -1):
            prefix = known.get((axis, *node.inputs[:length]))
            if prefix is not None:
                result = ops.Concat(prefix, *node.inputs[length:], axis=axis, name=node.name)
                break
        known[(axis, *node.inputs)] = node[0] if result is None else result
        return result

    return _rebuild(graph, change)


def split_wide(graph: Graph) -> Graph:
    """Replace each Concat of more than ``WIDEST`` operands by a tree of narrower ones."""

    def change(node: Node) -> Value | None:
        if node.op is not ops.Concat or len(node.inputs) <= WIDEST:
            return None
        parts = list(node.inputs)
        while len(parts) > 1:
            parts = [
                ops.Concat(*parts[i : i + WIDEST], axis=node.attrs["axis"], name=node.name)
                if len(parts[i : i + WIDEST]) > 1
                else parts[i]
                for i in range(0, len(parts), WIDEST)
            ]
        return parts[0]

    return _rebuild(graph, change)
