"""Rewrites the graphs within a graph: the bodies of loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gpucomp.ir.graph import Graph, Node, Value
from gpucomp.ir.trail import tell


def with_attrs(graph: Graph, changed: Callable[[Node], Mapping[str, Any]]) -> Graph:
    """``graph`` with the attributes that ``changed`` gives for each node. The same object if there are none."""
    replaced: dict[Value, Value] = {}
    for node in graph.nodes():
        current = node.with_inputs(replaced.get(v, v) for v in node.inputs)
        if attrs := changed(node):
            both = MappingProxyType({**node.attrs, **attrs})
            current = Node(current.op, current.inputs, both, current.types, current.name)
        if current is not node:
            tell(node.values, current.values)
            replaced.update(zip(node.values, current.values, strict=True))
    return graph.with_outputs(replaced.get(v, v) for v in graph.outputs)


def with_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """``graph`` with ``change`` applied to the body of every loop. The same object if none changes."""

    def changed(node: Node) -> dict[str, Graph]:
        bodies = {name: value for name, value in node.attrs.items() if isinstance(value, Graph)}
        return {name: new for name, old in bodies.items() if (new := change(old)) is not old}

    return with_attrs(graph, changed)


def names_in_bodies(graph: Graph) -> set[str]:
    """The names and operators of the nodes of the bodies of loops."""
    outer = set(graph.nodes())
    return {name for node in graph.every_node() if node not in outer for name in (node.name, node.op.name) if name}
