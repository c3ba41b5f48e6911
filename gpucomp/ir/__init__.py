"""The graph IR: types, graph, printer and verifier."""

from gpucomp.ir.graph import (
    Constant,
    Graph,
    Input,
    Node,
    Op,
    Sizes,
    Value,
    constant,
    constant_value,
    counted,
    input_value,
    origin,
    sizes,
    spend,
    topological,
)
from gpucomp.ir.printer import Namer, format_graph
from gpucomp.ir.types import BOOL, F32, F64, I64, DType, TensorType, dtype_of, type_of
from gpucomp.ir.verify import verify

__all__ = [
    "BOOL",
    "F32",
    "F64",
    "I64",
    "Constant",
    "DType",
    "Graph",
    "Input",
    "Namer",
    "Node",
    "Op",
    "Sizes",
    "TensorType",
    "Value",
    "constant",
    "constant_value",
    "counted",
    "dtype_of",
    "format_graph",
    "input_value",
    "origin",
    "sizes",
    "spend",
    "topological",
    "type_of",
    "verify",
]
