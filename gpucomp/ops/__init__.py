"""The operators: ``ops.Conv(x, w, strides=...)`` builds a node. One file a theme; ``registry`` has the table."""

from gpucomp.ir.graph import Constant, Input
from gpucomp.ops.contraction import Conv, MatMul
from gpucomp.ops.elementwise import Add, Cast, Div, Mul, Relu, Sub
from gpucomp.ops.movement import Concat, Reshape, Transpose
from gpucomp.ops.registry import OPS

__all__ = [
    "OPS",
    "Add",
    "Cast",
    "Concat",
    "Constant",
    "Conv",
    "Div",
    "Input",
    "MatMul",
    "Mul",
    "Relu",
    "Reshape",
    "Sub",
    "Transpose",
]
