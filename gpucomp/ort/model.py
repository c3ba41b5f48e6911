"""What a session says of its model: inputs, outputs and metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TypeProto, ValueInfoProto, helper

from gpucomp.ir.dim import Dim
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.inputs import TensorSpec

# names of element types in onnxruntime's texts, by ONNX's numbers
ELEMENTS = {
    1: "float",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "double",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
}
NUMBERS = {name: number for number, name in ELEMENTS.items()}
Size = int | str | None  # as NodeArg.shape has them: a number, a dimension's name, or unknown
Fixed = Mapping[str, int]


@dataclass(frozen=True, eq=False)
class NodeArg:
    """An input or output: its name, its type as onnxruntime writes it, and its shape.

    A size of the shape is a number, the name of a dimension, or ``None``.
    """

    name: str
    type: str
    shape: list[Size] = field(default_factory=list)

    @property
    def is_tensor(self) -> bool:
        return self.type.startswith("tensor(")

    @property
    def dtype(self) -> np.dtype:
        """The element type of a tensor, as numpy has it; object for strings."""
        return numpy_type(NUMBERS[self.type.removeprefix("tensor(").removesuffix(")")])


@dataclass(frozen=True)
class ModelMetadata:
    """What a model's file says of itself."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = (1 << 63) - 1  # as onnxruntime has it where the file says nothing
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


def numpy_type(number: int) -> np.dtype:
    """The numpy type for one of ONNX's numbers of element types. Raises ``RuntimeError`` for another number."""
    if number not in ELEMENTS:
        raise RuntimeError(f"{number} is no element type of ONNX")
    return np.dtype(object) if number == NUMBERS["string"] else np.dtype(helper.tensor_dtype_to_np_dtype(number))


def tensor_text(dtype: np.dtype) -> str:
    """``tensor(float)`` for an array's element type."""
    if dtype.kind in "OUST":
        return "tensor(string)"
    try:
        return f"tensor({ELEMENTS[helper.np_dtype_to_tensor_dtype(dtype.newbyteorder('='))]})"
    except ValueError:  # onnx has none
        return f"tensor({dtype})"


def type_text(proto: TypeProto) -> str:
    """A type as onnxruntime writes it, such as ``seq(map(int64,tensor(float)))``."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({ELEMENTS.get(proto.tensor_type.elem_type, 'undefined')})"
        case "sparse_tensor_type":
            return f"sparse_tensor({ELEMENTS.get(proto.sparse_tensor_type.elem_type, 'undefined')})"
        case "sequence_type":
            return f"seq({type_text(proto.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({type_text(proto.optional_type.elem_type)})"
        case "map_type":
            key = ELEMENTS.get(proto.map_type.key_type, "undefined")
            return f"map({key},{type_text(proto.map_type.value_type)})"
        case _:
            return ""


def inputs_of(graph: GraphProto, fixed: Fixed) -> list[NodeArg]:
    """The inputs that each run must be given. ``fixed`` has the sizes of dimensions by their names in the file."""
    constants = {tensor.name for tensor in graph.initializer}
    return [_node_arg(info, fixed) for info in graph.input if info.name not in constants]


def overridable(graph: GraphProto) -> list[NodeArg]:
    """The inputs that have a value in the file. Here they are constants."""
    constants = {tensor.name for tensor in graph.initializer}
    return [_node_arg(info, {}) for info in graph.input if info.name in constants]


def outputs_of(graph: GraphProto, fixed: Fixed, known: Sequence[TensorSpec] = ()) -> list[NodeArg]:
    """The outputs. ``known`` are those of the executable: they have shapes where the file has none."""
    shapes = {spec.name: [_size(n) for n in spec.shape] for spec in known}
    found = []
    for info in graph.output:
        arg = _node_arg(info, fixed)
        has_shape = arg.is_tensor and info.type.tensor_type.HasField("shape")
        found.append(arg if has_shape or arg.name not in shapes else NodeArg(arg.name, arg.type, shapes[arg.name]))
    return found


def of_specs(specs: Sequence[TensorSpec]) -> list[NodeArg]:
    """The inputs or outputs of an executable."""
    types = [tensor_text(spec.plain) if spec.plain is not None else "tensor(string)" for spec in specs]
    return [NodeArg(spec.name, kind, [_size(n) for n in spec.shape]) for spec, kind in zip(specs, types, strict=True)]


def metadata_of(proto: ModelProto) -> ModelMetadata:
    return ModelMetadata(
        proto.producer_name,
        proto.graph.name,
        proto.domain,
        proto.doc_string,
        proto.graph.doc_string,
        proto.model_version if proto.HasField("model_version") else ModelMetadata.version,
        {entry.key: entry.value for entry in proto.metadata_props},
    )


def _node_arg(info: ValueInfoProto, fixed: Fixed) -> NodeArg:
    shape: list[Size] = []
    if info.type.WhichOneof("value") == "tensor_type" and info.type.tensor_type.HasField("shape"):
        for dim in info.type.tensor_type.shape.dim:
            open_size = fixed.get(dim.dim_param, dim.dim_param or None)
            shape.append(dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else open_size)
    return NodeArg(info.name, type_text(info.type), shape)


def _size(extent: Any) -> Size:
    if isinstance(extent, Dim):
        return extent.name
    return int(extent) if isinstance(extent, (int, np.integer)) and math.isfinite(extent) else None
