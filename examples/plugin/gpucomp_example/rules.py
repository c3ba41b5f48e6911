"""Rewrite rules of the graph. A rule's docstring is its equation."""

from gpucomp import ops
from gpucomp.ir import Node, Value
from gpucomp.rewrite.rule import rule
from gpucomp_example.operators import Cube


@rule(Cube)
def cube_of_negative(node: Node) -> Value | None:
    """Cube(-x) -> -Cube(x)"""
    (x,) = node.inputs
    return ops.Neg(Cube(x.inputs[0])) if x.op is ops.Neg else None
