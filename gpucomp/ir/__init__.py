"""The graph IR: types, graph, printer and verifier.

All names are imported when one is first asked for: who runs a compiled model needs the modules of sizes and types only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from gpucomp.ir.verifier import verify

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

_HOMES = ("gpucomp.ir.graph", "gpucomp.ir.printer", "gpucomp.ir.types", "gpucomp.ir.verifier")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gpucomp.ir' has no attribute {name!r}")
    for module in map(importlib.import_module, _HOMES):
        globals().update({one: value for one, value in vars(module).items() if one in __all__})
    return globals()[name]
