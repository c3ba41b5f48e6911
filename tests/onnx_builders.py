"""Small ONNX models for the frontend's tests, built by hand so that they may also be wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def value(name: str, shape: Sequence[int | str | None] | None = (2, 3), dtype: int = TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[str | onnx.ValueInfoProto] = ("y",),
    weights: dict[str, np.ndarray] | Sequence[TensorProto] = (),
    opset: int = 20,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    if isinstance(weights, dict):
        weights = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    infos = [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), infos, list(weights))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


node = helper.make_node
