"""Prints graphs as SSA text, one line per node, for people, diffs and tests. Nothing parses it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpucomp.errors import quote
from gpucomp.ir.graph import Constant, Graph, Input, Node, Value

MAX_ELEMENTS = 6


class Namer:
    """Stable names for values. Two graphs printed with one namer use the same names for the values that they share."""

    def __init__(self) -> None:
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._next = 1

    def __call__(self, value: Value) -> str:
        if value not in self._names:
            self._names[value] = self._invent(value)
        return self._names[value]

    def _invent(self, value: Value) -> str:
        if value.op is Input:
            label = value.attrs["label"]
            name = f"%{label}" if label.isidentifier() and len(label) < 40 else f"%{quote(label)}"
            if name not in self._taken:
                self._taken.add(name)
                return name
        if value.index:
            return f"{self(value.node[0])}#{value.index}"
        name, self._next = f"%{self._next}", self._next + 1
        return name


def format_attr(value: Any) -> str:
    if isinstance(value, np.ndarray):
        flat = ", ".join(f"{v:.6g}" if value.dtype.kind == "f" else str(v) for v in value.reshape(-1)[:MAX_ELEMENTS])
        return f"[{flat}{', ...' if value.size > MAX_ELEMENTS else ''}]"
    if isinstance(value, np.dtype):
        return str(value)
    if isinstance(value, Graph):
        return f"graph of {len(value.nodes())} nodes"
    return repr(value)


def format_node(node: Node, namer: Namer) -> str:
    """``%7 = Relu(%6) : f32[100,70]``"""
    operands = [namer(v) for v in node.inputs]
    attrs = [f"{k}={format_attr(v)}" for k, v in node.attrs.items() if v is not None]
    types = ", ".join(map(str, node.types))
    line = f"{namer(node[0])} = {node.op}({', '.join(operands + attrs)}) : {types}"
    bodies = [format_graph(v).rstrip() for v in node.attrs.values() if isinstance(v, Graph)]
    return "\n".join([line, *(f"    {inner}" for body in bodies for inner in body.splitlines())])


def format_graph(graph: Graph, namer: Namer | None = None, *, constants: bool = True) -> str:
    """The whole graph. ``constants=False`` leaves out the lines of the constants."""
    namer = namer or Namer()
    parameters = ", ".join(f"{namer(v)}: {v.type}" for v in graph.inputs)
    lines = [
        f"  {format_node(node, namer)}"
        for node in graph.nodes()
        if node.op is not Input and (constants or node.op is not Constant)
    ]
    returns = ", ".join(namer(v) for v in graph.outputs)
    return "\n".join([f"graph({parameters}) {{", *lines, f"  return {returns}", "}", ""])
