"""Rewrites the graphs within a graph: the bodies of loops."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from gpucomp.ir.graph import Graph, Node, Value
from gpucomp.ir.trail import tell


def with_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """``graph`` with ``change`` applied to the body of every loop. The same object if none changes."""
    replaced: dict[Value, Value] = {}
    for node in graph.nodes():
        current = node.with_inputs(replaced.get(v, v) for v in node.inputs)
        bodies = {name: value for name, value in node.attrs.items() if isinstance(value, Graph)}
        changed = {name: change(body) for name, body in bodies.items()}
        if any(changed[name] is not bodies[name] for name in bodies):
            attrs = MappingProxyType({**node.attrs, **changed})
            current = Node(current.op, current.inputs, attrs, current.types, current.name)
        if current is not node:
            tell(node.values, current.values)
            replaced.update(zip(node.values, current.values, strict=True))
    return graph.with_outputs(replaced.get(v, v) for v in graph.outputs)


def names_in_bodies(graph: Graph) -> set[str]:
    """The names and operators of the nodes of the bodies of loops."""
    outer = set(graph.nodes())
    return {name for node in graph.every_node() if node not in outer for name in (node.name, node.op.name) if name}
