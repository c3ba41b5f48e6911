"""Translators of sequences and optionals. They are resolved during translation; only their tensors remain."""

from __future__ import annotations

import numpy as np
import onnx

from gpucomp.frontend.onnx.compose import axis_of, concat, ints, part, scalar, squeeze, static, unsqueeze
from gpucomp.frontend.onnx.containers import (
    OptionalValue,
    SequenceValue,
    expect_length,
    optional_of,
    sequence_of,
    type_of_proto,
)
from gpucomp.frontend.onnx.tensors import element_type
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value, constant
from gpucomp.ir.types import F32, OptionalType, SequenceType


def _position(position: Value, count: int, *, end: bool = False) -> int:
    """A position in a sequence of ``count`` tensors, counted from the front. ``end`` allows the position after the last."""
    place = int(scalar(position, "position"))
    if not -count <= place < count + end:
        raise ValueError(
            f"a position from {-count} to {count + end - 1} expected, in a sequence of {count} tensors; {place} given"
        )
    return place + count if place < 0 else place


@translates("SequenceConstruct", since=11)
def sequence_construct(*elements: Value) -> SequenceValue:
    return sequence_of(elements, elements[0].type.dtype)


@translates("SequenceEmpty", since=11)
def sequence_empty(*, dtype: int | None = None) -> SequenceValue:
    return sequence_of((), F32 if dtype is None else element_type(dtype, "dtype"))


@translates("SequenceInsert", since=11)
def sequence_insert(sequence: SequenceValue, tensor: Value, position: Value | None = None) -> SequenceValue:
    elements = list(sequence.elements)
    place = len(elements) if position is None else _position(position, len(elements), end=True)
    elements.insert(place, tensor)
    sequence_of((tensor,), sequence.type.dtype)
    expect_length(len(elements))
    return SequenceValue(tuple(elements), sequence.type)


@translates("SequenceErase", since=11)
def sequence_erase(sequence: SequenceValue, position: Value | None = None) -> SequenceValue:
    elements = list(sequence.elements)
    if not elements:
        raise ValueError("nothing can be erased from an empty sequence")
    del elements[-1 if position is None else _position(position, len(elements))]
    return SequenceValue(tuple(elements), sequence.type)


@translates("SequenceAt", since=11)
def sequence_at(sequence: SequenceValue, position: Value) -> Value:
    return sequence.elements[_position(position, len(sequence.elements))]


@translates("SequenceLength", since=11)
def sequence_length(sequence: SequenceValue) -> Value:
    return constant(np.int64(len(sequence.elements)))


@translates("SplitToSequence", since=11)
def split_to_sequence(x: Value, split: Value | None = None, *, axis: int = 0, keepdims: int = 1) -> SequenceValue:
    """Parts of the lengths ``split``, or of one length and a shorter rest. Without ``split``, slices of one element."""
    place = axis_of(axis, len(x.shape))
    extent = x.shape[place]
    if split is None:
        expect_length(extent)
        lengths = [1] * extent
    elif static(split, "split").ndim == 0:
        (length,) = ints(split, "split")
        if length < 1:
            raise ValueError(f"parts of at least 1 element expected, {length} given")
        expect_length(-(-extent // length))
        lengths = [min(length, extent - start) for start in range(0, extent, length)]
    else:
        lengths = list(ints(split, "split"))
        if any(n < 0 for n in lengths) or sum(lengths) != extent:
            raise ValueError(f"parts {lengths} do not make up the {extent} elements of axis {axis}")
    starts = np.cumsum([0, *lengths]).tolist()
    parts = [part(x, place, start, n) for start, n in zip(starts, lengths, strict=False)]
    if split is None and not keepdims:
        parts = [squeeze(p, (place,)) for p in parts]
    return sequence_of(tuple(parts), x.type.dtype)


@translates("ConcatFromSequence", since=11)
def concat_from_sequence(sequence: SequenceValue, *, axis: int, new_axis: int = 0) -> Value:
    if new_axis not in (0, 1):
        raise ValueError(f"new_axis 0 or 1 expected, {new_axis} given")
    if not sequence.elements:
        raise ValueError("an empty sequence cannot be concatenated")
    rank = len(sequence.elements[0].shape) + new_axis
    place = axis_of(axis, rank)
    return concat([unsqueeze(e, (place,)) for e in sequence.elements] if new_axis else sequence.elements, place)


@translates("Optional", since=15)
def optional(content: Value | SequenceValue | None = None, *, type: onnx.TypeProto | None = None) -> OptionalValue:
    if content is not None:
        return optional_of(content)
    if type is None:
        raise ValueError("an optional without a value needs its type")
    declared = type_of_proto(type, "type")
    if isinstance(declared, OptionalType):
        raise ValueError("an optional of an optional")
    return OptionalValue(None, OptionalType(declared.dtype, isinstance(declared, SequenceType)))


@translates("OptionalHasElement", since=15)
def optional_has_element(value: Value | SequenceValue | OptionalValue | None = None) -> Value:
    return constant(np.bool_(value is not None and not (isinstance(value, OptionalValue) and value.content is None)))


@translates("OptionalGetElement", since=15)
def optional_get_element(value: Value | SequenceValue | OptionalValue) -> Value | SequenceValue:
    content = value.content if isinstance(value, OptionalValue) else value
    if content is None:
        raise ValueError("the optional is empty")
    return content
