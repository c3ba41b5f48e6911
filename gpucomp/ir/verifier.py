"""Checks a graph's invariants. All types are inferred again; what passes stored is not trusted."""

from __future__ import annotations

from gpucomp.errors import ShapeError, VerifyError
from gpucomp.ir.graph import Constant, Graph, Input, infer
from gpucomp.ir.types import TensorType, type_of


def verify(graph: Graph) -> None:
    """Raise ``VerifyError`` unless every node has the types that its operator infers, and every input is declared."""
    if len(graph.outputs) != len(graph.output_names):
        raise VerifyError(f"{len(graph.outputs)} outputs with {len(graph.output_names)} names")
    declared = set(graph.inputs)
    if len({v.attrs["label"] for v in graph.inputs}) != len(graph.inputs):
        raise VerifyError("two inputs have one name")
    for node in graph.nodes():
        if node.op is Input:
            if node[0] not in declared:
                raise VerifyError(f"input {node.attrs['label']!r} is read and not declared")
            continue
        for value in node.inputs:
            if value.node.values[value.index] is not value:
                raise VerifyError(f"{node!r} reads a value that its node does not own")
        expected: tuple[TensorType, ...]
        if node.op is Constant:
            expected = (type_of(node.attrs["value"]),)
        else:
            try:
                expected = infer(node.op, [v.type for v in node.inputs], node.attrs, node.name)
            except ShapeError as error:
                raise VerifyError(f"{node!r} is ill-typed: {error}") from error
        for body in node.attrs.values():
            if isinstance(body, Graph):
                verify(body)
        if len(expected) != len(node.types) or not all(map(TensorType.agrees, expected, node.types)):
            raise VerifyError(f"{node!r}: its type rule gives {', '.join(map(str, expected))}")
