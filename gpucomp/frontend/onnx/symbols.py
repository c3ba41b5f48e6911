"""Types of inputs. The sizes of symbolic dimensions come from the shapes that the user gave."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from gpucomp.errors import ModelError, UnsupportedError, UsageError, quote
from gpucomp.frontend.onnx import tensors
from gpucomp.ir import DType


class Symbols:
    """The sizes of symbolic dimensions, taken from the shapes that the user gave."""

    def __init__(self, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, np.ndarray]) -> None:
        self.given = {name: tuple(expect_array(name, a).shape) for name, a in constants.items()}
        self.given |= {name: extents(name, shape) for name, shape in shapes.items()}
        self.sizes: dict[str, tuple[int, str]] = {}  # symbol -> its size and the input that it is from

    def note(self, info: onnx.ValueInfoProto) -> None:
        """Check the shape given for this input against the declared one, and record the sizes of its symbols."""
        given = self.given.get(info.name)
        if given is None:
            return
        where = f"shapes: input {quote(info.name)}"
        if any(d < 0 for d in given):
            raise UsageError(f"{where}: {_text(given)} has a negative dimension", code="GPC2102")
        if not info.type.tensor_type.HasField("shape"):
            return
        dims = info.type.tensor_type.shape.dim
        if len(dims) != len(given):
            raise UsageError(f"{where}: {len(dims)} dimensions expected, {_text(given)} given", code="GPC2102")
        for axis, (dim, size) in enumerate(zip(dims, given, strict=True)):
            if dim.HasField("dim_value") and dim.dim_value != size:
                raise UsageError(
                    f"{where}: dimension {axis} is {dim.dim_value} in the model, {size} was given", code="GPC2102"
                )
            if dim.dim_param:
                before, source = self.sizes.setdefault(dim.dim_param, (size, info.name))
                if before != size:
                    raise UsageError(
                        f"{where}: dimension {quote(dim.dim_param)} is {size} here and {before} in input {quote(source)}",
                        code="GPC2102",
                    )

    def shape(self, info: onnx.ValueInfoProto) -> tuple[int, ...]:
        """The concrete shape of an input. Raises ``UsageError`` that shows the missing argument."""
        if info.name in self.given:
            return self.given[info.name]
        if not info.type.tensor_type.HasField("shape"):
            example = _argument(info.name, ["D0", "D1", "..."])
            raise UsageError(
                f"input {quote(info.name)} has no shape in the model; give it with --shapes {example}",
                code="GPC2102",
            )
        sizes: list[int | None] = []
        missing = []
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                sizes.append(dim.dim_value)
                if dim.dim_value < 0:
                    raise ModelError(f"input {quote(info.name)}: dimension {axis} is {dim.dim_value}", code="GPC3033")
            elif dim.dim_param in self.sizes:
                sizes.append(self.sizes[dim.dim_param][0])
            else:
                sizes.append(None)
                missing.append(f"{axis} ({quote(dim.dim_param)})" if dim.dim_param else f"{axis}")
        if missing:
            dims = ["N" if d is None else str(d) for d in sizes]
            raise UsageError(
                f"input {quote(info.name)}: the size of dimension {', '.join(missing)} is not in the model; give it with "
                f"--shapes {_argument(info.name, dims)} (a number for each N)",
                code="GPC2102",
            )
        return tuple(d for d in sizes if d is not None)


def expect_array(name: str, array: Any) -> np.ndarray | np.generic:
    """The array that the user fixed a tensor to. Raises ``UsageError`` if it is not an array."""
    if not isinstance(array, np.ndarray | np.generic):
        raise UsageError(
            f"constants: input {quote(name)}: an array expected, {type(array).__name__} given", code="GPC2101"
        )
    return array


def extents(name: str, shape: Any) -> tuple[int, ...]:
    """A tensor's shape that the user gave for input ``name``. Raises ``UsageError`` if it is not a list of integers."""
    try:
        return tuple(operator.index(d) for d in shape)
    except TypeError:
        raise UsageError(
            f"shapes: input {quote(name)}: whole numbers expected, {quote(shape)} given", code="GPC2102"
        ) from None


def _argument(name: str, dims: Sequence[str]) -> str:
    plain = name if name.replace("_", "").replace(".", "").replace("/", "").isalnum() else quote(name)
    return f"{plain}:{'x'.join(dims)}"


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a scalar"


def element_type_of(info: onnx.ValueInfoProto, where: str) -> DType:
    kind = info.type.WhichOneof("value")
    if kind == "tensor_type":
        return tensors.element_type(info.type.tensor_type.elem_type, where)
    if kind is None:
        raise ModelError(f"{where} has no type", code="GPC3015")
    raise UnsupportedError(f"{where}: {kind.removesuffix('_type')} values are not supported", code="GPC4003")
