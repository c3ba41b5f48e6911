"""Splits a model in two: the part that is translated now, and the rest, whose shapes are data-dependent.

The rest is an ONNX model of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gpucomp.errors import UnsupportedError, quote
from gpucomp.frontend.onnx import functions, tensors
from gpucomp.frontend.onnx.containers import OptionalValue, SequenceValue
from gpucomp.frontend.onnx.external import ExternalFiles
from gpucomp.ir import constant_value
from gpucomp.ir.types import DType, OptionalType, SequenceType, TensorType

NUMBERS = {dtype: number for number, dtype in tensors.DTYPES.items()}
MAX_BYTES = (1 << 31) - 1  # protobuf's own limit
IR_VERSION = 8  # from version 4 on, initialisers need not be inputs


def rest(
    model: onnx.ModelProto,
    waiting: Sequence[onnx.NodeProto],
    values: Mapping[str, Any],
    opsets: Mapping[str, int],
    files: ExternalFiles,
    fixed: Collection[str] = (),
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The nodes ``waiting`` as a model with all outputs of ``model``, and the values of other nodes that it reads, by name.

    ``values`` holds the values of the main graph. Constants are copied into the rest, with the data of external files.
    All other values that it reads become its inputs, with known shapes. Outputs that are already known pass through.
    For the names in ``fixed``, ``values`` is used and the model's own initialisers are ignored.

    Raises ``ModelError`` if external data cannot be read, ``UnsupportedError`` if it is larger than a model can be.
    """
    made = {name for node in waiting for name in node.output if name}
    reads = functions.Reads()
    named = [name for node in waiting for name in reads.of(node)] + [o.name for o in model.graph.output]
    available = {name: values[name] for name in dict.fromkeys(named) if name not in made and name in values}
    given = {i.name: i for i in model.graph.initializer if i.name not in fixed and not _is_external(i)}
    stored, read = [], {}
    for name, value in available.items():
        array = None if isinstance(value, (SequenceValue, OptionalValue)) else constant_value(value)
        if array is None:
            read[name] = value
        else:
            stored.append(given[name] if name in given else _tensor(array, name))
    graph = helper.make_graph(
        list(waiting),
        model.graph.name,
        [helper.make_value_info(name, type_proto(value.type)) for name, value in read.items()],
        list(model.graph.output),
        stored,
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    made_of = helper.make_model(
        graph,
        opset_imports=imports,
        functions=_called(model.functions, waiting),
        ir_version=max(model.ir_version, IR_VERSION),
    )
    bring_in(made_of, files)
    return made_of, read


def bring_in(model: onnx.ModelProto, files: ExternalFiles) -> None:
    """Copy the data of external files into the tensors of ``model``, so that it can be read without its folder.

    Raises ``ModelError`` if the data cannot be read, ``UnsupportedError`` if it is larger than a model can be.
    """
    total = 0
    for tensor in external_tensors(model):
        where = f"tensor {quote(tensor.name)}"
        count = math.prod(tensors.checked_shape(tensor.dims, where))
        nbytes = -(-count * tensors.element_type(tensor.data_type, where).bits // 8)
        total += nbytes
        if total > MAX_BYTES:
            raise UnsupportedError("the model with the data of its external files is larger than 2 GiB", code="GPC4006")
        tensor.raw_data = files.read(tensor, nbytes, where).tobytes()
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")


def external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensors of ``model`` whose data is in other files."""
    graph = model.graph
    weights = [*graph.initializer, *(t for sparse in graph.sparse_initializer for t in (sparse.values, sparse.indices))]
    for tensor in (*weights, *_tensors_of([*graph.node, *(node for f in model.functions for node in f.node)])):
        if _is_external(tensor):
            yield tensor


def _tensors_of(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    """The tensors in the attributes of ``nodes`` and in their subgraphs."""
    for node in functions.nested_nodes(nodes):
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            sparse = [attribute.sparse_tensor, *attribute.sparse_tensors]
            for graph in (attribute.g, *attribute.graphs):
                yield from graph.initializer
                sparse += graph.sparse_initializer
            for tensor in sparse:
                yield from (tensor.values, tensor.indices)


def _is_external(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL and tensor.data_type != onnx.TensorProto.STRING)


def _tensor(array: np.ndarray, name: str) -> onnx.TensorProto:
    tensor: onnx.TensorProto = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
    return tensor


def _called(known: Sequence[onnx.FunctionProto], nodes: Iterable[onnx.NodeProto]) -> list[onnx.FunctionProto]:
    """The model's functions that ``nodes`` call, directly or through other functions."""
    table = {(f.domain, f.name, f.overload): f for f in known}
    called: dict[functions.Key, onnx.FunctionProto] = {}
    pending = list(nodes)
    while pending:
        for node in functions.nested_nodes([pending.pop()]):
            key = (node.domain, node.op_type, node.overload)
            if key in table and key not in called:
                called[key] = table[key]
                pending += table[key].node
    return list(called.values())


def type_proto(type: TensorType | SequenceType | OptionalType) -> onnx.TypeProto:
    """The type in ONNX's form. Tensors of sequences have no shape."""
    if isinstance(type, TensorType):
        return helper.make_tensor_type_proto(NUMBERS[type.dtype], type.shape)
    element = _unshaped(type.dtype)
    if isinstance(type, SequenceType):
        return helper.make_sequence_type_proto(element)
    return helper.make_optional_type_proto(helper.make_sequence_type_proto(element) if type.sequence else element)


def _unshaped(dtype: DType) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(NUMBERS[dtype], None)
