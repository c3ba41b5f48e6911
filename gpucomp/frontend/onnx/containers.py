"""Sequences and optionals during translation. Their contents are known, so graphs contain only their tensors.

If they are inputs or outputs of the model, each of their tensors is one: ``name[0]``, ``name[1]`` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from gpucomp.errors import ModelError, UnsupportedError, UsageError, quote
from gpucomp.frontend.onnx import tensors
from gpucomp.frontend.onnx.symbols import expect_array, extents
from gpucomp.ir import Value, constant, dtype_of, input_value
from gpucomp.ir.types import DType, MapsType, OptionalType, SequenceType, TensorType
from gpucomp.lazy_dataclass import dataclass

MAX_ELEMENTS = 4096  # the limit of unrolled loops, too


@dataclass(frozen=True, eq=False)
class SequenceValue:
    """A sequence of known length. Every element is a separate value."""

    elements: tuple[Value, ...]
    type: SequenceType


@dataclass(frozen=True, eq=False)
class OptionalValue:
    """An optional that holds ``content``; ``None`` if it is empty."""

    content: Value | SequenceValue | None
    type: OptionalType


@dataclass(frozen=True, eq=False)
class MapsValue:
    """A sequence of N maps with the same ``keys`` [K]. Row n of ``values`` [N, K] holds the values of map n."""

    keys: Value
    values: Value

    @property
    def type(self) -> MapsType:
        return MapsType(self.keys.type.dtype, self.values.type.dtype)


Contained = Value | SequenceValue | OptionalValue | MapsValue


def sequence_of(elements: tuple[Value, ...], dtype: DType) -> SequenceValue:
    """Raises ``ValueError`` for elements of another type, ``UnsupportedError`` for too many elements."""
    if other := next((e for e in elements if e.type.dtype is not dtype), None):
        raise ValueError(f"a sequence of {dtype} cannot hold {other.type}")
    expect_length(len(elements))
    return SequenceValue(elements, SequenceType(dtype))


def expect_length(count: int) -> None:
    """Raise ``UnsupportedError`` for a sequence of more tensors than are supported."""
    if count > MAX_ELEMENTS:
        raise UnsupportedError(f"a sequence of {count} tensors; at most {MAX_ELEMENTS} are supported", code="GPC4002")


def optional_of(content: Value | SequenceValue) -> OptionalValue:
    return OptionalValue(content, OptionalType(content.type.dtype, isinstance(content, SequenceValue)))


def type_of_proto(proto: onnx.TypeProto, where: str) -> TensorType | SequenceType | OptionalType:
    """The declared type, without shapes. Raises ``UnsupportedError`` for sequences of sequences and for maps."""
    kind = proto.WhichOneof("value")
    if kind is None:
        raise ModelError(f"{where} has no type", code="GPC3015")
    if kind == "tensor_type":
        return TensorType(tensors.element_type(proto.tensor_type.elem_type, where), ())
    if kind == "sequence_type":
        element = type_of_proto(proto.sequence_type.elem_type, where)
        if isinstance(element, TensorType):
            return SequenceType(element.dtype)
    if kind == "optional_type":
        content = type_of_proto(proto.optional_type.elem_type, where)
        if not isinstance(content, OptionalType):
            return OptionalType(content.dtype, isinstance(content, SequenceType))
    raise UnsupportedError(
        f"{where}: {kind.removesuffix('_type')} values of this kind are not supported", code="GPC4003"
    )


def declared_as(info: onnx.ValueInfoProto, value: Any) -> Any:
    """``value`` as the input ``info`` of a body: wrapped in an optional if the input is declared as one."""
    if info.type.WhichOneof("value") == "optional_type" and isinstance(value, (Value, SequenceValue)):
        return optional_of(value)
    return value


def model_input(
    info: onnx.ValueInfoProto, shapes: Mapping[str, Any]
) -> tuple[SequenceValue | OptionalValue, list[Value]]:
    """A sequence or optional that is an input of the model, and the tensors that replace it as inputs of the graph.

    ``shapes`` gives its contents: the shapes of a sequence's tensors, or ``None`` for an empty optional.
    """
    where = f"input {quote(info.name)}"
    type = type_of_proto(info.type, where)
    if info.name not in shapes:
        optional = isinstance(type, OptionalType)
        what = "None or the shape of its content" if optional else "a list of shapes"
        words = (
            f"{info.name}:none or the shape of its content" if optional else f"{info.name}:[2x3,4x3], a list of shapes"
        )
        raise UsageError(
            f"{where} is {type}; give the shapes of its contents: shapes={{{info.name!r}: {what}}}",
            code="GPC2102",
            in_shell=f"{where} is {type}; give the shapes of its contents: --shapes {words}",
        )
    made: list[Value] = []

    def tensor(name: str, shape: Any) -> Value:
        sizes = tensors.checked_shape(extents(info.name, shape), where)
        made.append(input_value(name, TensorType(type.dtype, sizes)))
        return made[-1]

    return _built(info.name, type, shapes[info.name], tensor, where), made


def fixed(info: onnx.ValueInfoProto, content: Any) -> SequenceValue | OptionalValue:
    """A sequence or optional that the user fixed to ``content``: a list of arrays, an array, or ``None``."""
    where = f"constants: input {quote(info.name)}"
    type = type_of_proto(info.type, where)

    def tensor(name: str, array: Any) -> Value:
        value = constant(np.array(expect_array(info.name, array)), name=name)
        if value.type.dtype is not type.dtype:
            raise UsageError(
                f"{where}: {type.dtype} expected, {dtype_of(np.asarray(array).dtype)} given", code="GPC2108"
            )
        return value

    return _built(info.name, type, content, tensor, where)


def _built(
    name: str, type: Any, content: Any, tensor: Callable[[str, Any], Value], where: str
) -> SequenceValue | OptionalValue:
    if isinstance(type, OptionalType) and content is None:
        return OptionalValue(None, type)
    if isinstance(type, SequenceType) or type.sequence:
        if not isinstance(content, (list, tuple)):
            raise UsageError(f"{where}: a list expected, {quote(content)} given", code="GPC2110")
        elements = tuple(tensor(f"{name}[{k}]", item) for k, item in enumerate(content))
        sequence = sequence_of(elements, type.dtype)
        return sequence if isinstance(type, SequenceType) else OptionalValue(sequence, type)
    return OptionalValue(tensor(name, content), type)


def flattened(name: str, value: Contained) -> tuple[list[tuple[str, Value]], dict[str, tuple[str, ...] | None]]:
    """The tensors of an output with their names, and how they form the output (``Graph.output_containers``)."""
    if isinstance(value, OptionalValue):
        return ([], {name: None}) if value.content is None else flattened(name, value.content)
    if isinstance(value, Value):
        return [(name, value)], {}
    if isinstance(value, MapsValue):
        return [(name, value.values), (f"{name}.keys", value.keys)], {name: (name, f"{name}.keys")}
    named = [(f"{name}[{k}]", element) for k, element in enumerate(value.elements)]
    return named, {name: tuple(n for n, _ in named)}


def check_declared(value: Contained, declared: onnx.ValueInfoProto) -> None:
    """Raise ``ModelError`` if an output of the model has another kind or element type than declared."""
    kind = declared.type.WhichOneof("value")
    held = value.content if isinstance(value, OptionalValue) and kind != "optional_type" else value
    if (kind == "tensor_type" and isinstance(held, (SequenceValue, MapsValue))) or (
        kind == "sequence_type" and isinstance(held, Value)
    ):
        raise ModelError(
            f"output {quote(declared.name)} is declared as a {kind.removesuffix('_type')}, but is {value.type}",
            code="GPC3015",
        )
    number = declared.type.tensor_type.elem_type
    if isinstance(value, Value) and number and tensors.DTYPES.get(number) is not value.type.dtype:
        raise ModelError(
            f"output {quote(declared.name)} is declared as element type {number}, but is {value.type}",
            code="GPC3015",
        )
