"""An exported model without its weights, small enough to be kept in a repository. ``filled`` gives it new weights."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import numpy_helper

KEPT = 32  # elements: smaller initialisers may be axes, scales or tables; larger ones are weights
STRIPPED = "weights left out"


def skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose large float initialisers have no data, and whose nodes have no source locations."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.metadata_props[:], bare.graph.metadata_props[:], bare.graph.value_info[:]
    for holder in [*bare.graph.node, *bare.graph.input, *bare.graph.output, *bare.functions]:
        del holder.metadata_props[:]
        holder.doc_string = ""
    for tensor in bare.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and math.prod(tensor.dims) > KEPT:
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
            tensor.doc_string = STRIPPED
    return bare


def filled(bare: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """A copy with random weights that keep values near one: matrices by their depth, vectors (norms, biases) around one."""
    rng = np.random.default_rng(seed)
    model = onnx.ModelProto()
    model.CopyFrom(bare)
    for tensor in model.graph.initializer:
        if tensor.doc_string == STRIPPED:
            shape = tuple(tensor.dims)
            if len(shape) == 1:
                weights = rng.uniform(0.5, 1.5, shape)
            else:
                weights = rng.standard_normal(shape) / math.sqrt(max(shape[-1], math.prod(shape[1:])))
            tensor.CopyFrom(numpy_helper.from_array(weights.astype(np.float32), tensor.name))
    return model


def inputs(model: onnx.ModelProto, seed: int = 1) -> dict[str, np.ndarray]:
    """Normal floats and small token numbers, in the inputs' shapes."""
    rng = np.random.default_rng(seed)
    found = {}
    for info in model.graph.input:
        shape = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
        floats = info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        found[info.name] = rng.standard_normal(shape).astype(np.float32) if floats else rng.integers(0, 2, shape)
    return found
