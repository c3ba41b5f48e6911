"""The shapes that a model's inputs may have, from those that the user declared and those in the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from gpucomp.errors import UsageError, quote
from gpucomp.frontend.onnx.symbols import element_type_of, is_fixed, symbol
from gpucomp.ir.dim import ANY, Dim
from gpucomp.ir.dims import Extent, OpenShapes

MAX_BYTES = 1 << 48  # of one input at its largest, as for every value of a graph


def open_shapes(proto: onnx.ModelProto, shapes: Mapping[str, Any], constants: Mapping[str, Any]) -> OpenShapes:
    """The shapes of all tensor inputs that are neither initialised nor in ``constants``.

    A name in ``shapes`` is the ``Dim`` of that name. A dimension that is open in the model and not in ``shapes`` is one of
    its own, with the model's name for it or, without one, the input's name and its position: ``x.2``.

    Raises ``UsageError``: GPC2101 for an unknown input, GPC2102 for an input without a rank, GPC2110 for a shape that is
    not the model's, GPC2018 for declarations that contradict each other.
    """
    weights = {w.name for w in proto.graph.initializer} | {w.values.name for w in proto.graph.sparse_initializer}
    inputs = {info.name: info for info in proto.graph.input if info.name not in weights and info.name not in constants}
    if unknown := [name for name in shapes if name not in inputs]:
        known = ", ".join(map(quote, list(inputs)[:20])) or "none"
        raise UsageError(
            f"shapes: the model has no open input {quote(unknown[0])}; its inputs are: {known}", code="GPC2101"
        )
    listed = {name: info for name, info in inputs.items() if info.type.HasField("tensor_type")}
    made = _Declarations(shapes)
    for name, info in listed.items():
        if name in shapes:
            made.bind(info, shapes[name])
    found = {name: made.shape(info, shapes.get(name)) for name, info in listed.items()}
    for name, shape in found.items():
        _check_bytes(listed[name], shape, made.said)
    return OpenShapes(found, made.said, {name: shape for name, shape in shapes.items() if name not in listed})


class _Declarations:
    """The dimensions that were declared, by their names, and what the model's own names for them stand for."""

    def __init__(self, shapes: Mapping[str, Any]) -> None:
        self.dims: dict[str, Dim] = {}
        self.said: dict[str, str] = {}
        self.bound: dict[
            str, tuple[Extent, str]
        ] = {}  # the model's name -> its size or dimension, and whose input says so
        for name, shape in shapes.items():
            for size in shape if isinstance(shape, tuple | list) else ():
                if isinstance(size, Dim):
                    self._declare(size, f"the given shape of input {quote(name)}")
        for name, shape in shapes.items():
            for size in shape if isinstance(shape, tuple | list) else ():
                if isinstance(size, str) and size not in self.dims:
                    self._declare(Dim(size), f"the given shape of input {quote(name)}")

    def _declare(self, dim: Dim, said: str) -> Dim:
        before = self.dims.setdefault(dim.name, dim)
        self.said.setdefault(dim.name, said)
        if before != dim:
            raise UsageError(
                f"dimension {quote(dim.name)} is {before.range} by {self.said[dim.name]}, and {dim.range} by {said}; "
                "one range expected",
                code="GPC2018",
            )
        return before

    def bind(self, info: onnx.ValueInfoProto, given: object) -> None:
        """Note what the names in the model's shape of ``info`` stand for, and check ``given`` against it."""
        where = f"shapes: input {quote(info.name)}"
        if not isinstance(given, tuple | list) or not all(_is_extent(size) for size in given):
            raise UsageError(
                f"{where}: whole numbers, or names such as 'n' and gpucomp.Dim for sizes that each run decides, expected; "
                f"{quote(given)} given",
                code="GPC2110",
            )
        if not info.type.tensor_type.HasField("shape"):
            return
        dims = info.type.tensor_type.shape.dim
        if len(dims) != len(given):
            raise UsageError(f"{where}: {len(dims)} dimensions expected, {len(given)} given", code="GPC2110")
        for axis, (dim, size) in enumerate(zip(dims, map(self._extent, given), strict=True)):
            if is_fixed(dim) and size != dim.dim_value:
                raise UsageError(
                    f"{where}: dimension {axis} is {dim.dim_value} in the model, {_text(size)} was given",
                    code="GPC2110",
                )
            if name := symbol(dim):
                before, source = self.bound.setdefault(name, (size, info.name))
                if before != size:
                    raise UsageError(
                        f"{where}: the model's dimension {quote(name)} is {_text(size)} here and {_text(before)} in input "
                        f"{quote(source)}",
                        code="GPC2018",
                    )

    def shape(self, info: onnx.ValueInfoProto, given: Sequence[Any] | None) -> tuple[Extent, ...]:
        if given is not None:
            return tuple(map(self._extent, given))
        if not info.type.tensor_type.HasField("shape"):
            raise UsageError(
                f"input {quote(info.name)} has no shape in the model; give it in shapes= too",
                code="GPC2102",
                in_shell=f"input {quote(info.name)} has no shape in the model; give it in --shapes too",
            )
        return tuple(self._of_model(info, axis, dim) for axis, dim in enumerate(info.type.tensor_type.shape.dim))

    def _of_model(self, info: onnx.ValueInfoProto, axis: int, dim: onnx.TensorShapeProto.Dimension) -> Extent:
        if is_fixed(dim):
            return int(dim.dim_value)
        name = symbol(dim)
        if name in self.bound:
            return self.bound[name][0]
        if name in self.dims:  # declared under the model's own name, for another input
            return self.dims[name]
        return self._declare(Dim(name or f"{info.name}.{axis}"), f"the model's input {quote(info.name)}")

    def _extent(self, size: Any) -> Extent:
        return self.dims[size] if isinstance(size, str) else size


def _is_extent(size: object) -> bool:
    if isinstance(size, int):
        return not isinstance(size, bool) and size >= 0
    return isinstance(size, Dim) or (isinstance(size, str) and bool(size))


def _text(size: Extent) -> str:
    return quote(size.name) if isinstance(size, Dim) else str(size)


def _check_bytes(info: onnx.ValueInfoProto, shape: Sequence[Extent], said: Mapping[str, str]) -> None:
    most = math.prod(max(size.high if isinstance(size, Dim) else size, 1) for size in shape)
    if most * element_type_of(info, f"input {quote(info.name)}").nbytes <= MAX_BYTES:
        return
    dims = [size for size in shape if isinstance(size, Dim)]
    raise UsageError(
        f"input {quote(info.name)} would have {most:.2g} elements at the ends of "
        f"{', '.join(f'{quote(dim.name)} ({dim.range}, {said[dim.name]})' for dim in dims)}; declare smaller ranges",
        code="GPC2018",
    )


def declared_inputs(proto: onnx.ModelProto, shapes: OpenShapes) -> dict[str, tuple[str, tuple[Extent, ...]]]:
    """Element type and shape of each input that is a tensor."""
    return {
        info.name: (element_type_of(info, f"input {quote(info.name)}").name, shapes.shapes[info.name])
        for info in proto.graph.input
        if info.name in shapes.shapes
    }


def declared_outputs(
    proto: onnx.ModelProto, shapes: OpenShapes | None = None
) -> dict[str, tuple[str, tuple[Extent, ...]]]:
    """Element type and shape of each output that is a tensor, as the model declares them.

    A size that only a run decides is a ``Dim``: the one of ``shapes`` if an input has a dimension of the same name, else
    one of any size.
    """
    known: dict[str, Extent] = {}
    for info in proto.graph.input:
        if shapes is not None and info.name in shapes.shapes and info.type.tensor_type.HasField("shape"):
            dims = info.type.tensor_type.shape.dim
            known |= {symbol(dim): size for dim, size in zip(dims, shapes.shapes[info.name], strict=True)}
    return {
        info.name: (
            element_type_of(info, f"output {quote(info.name)}").name,
            _declared(info.type.tensor_type, known),
        )
        for info in proto.graph.output
        if info.type.HasField("tensor_type")
    }


def _declared(type: onnx.TypeProto.Tensor, known: Mapping[str, Extent]) -> tuple[Extent, ...]:
    if not type.HasField("shape"):
        return (Dim("...", 0, ANY),)
    return tuple(
        int(dim.dim_value)
        if dim.HasField("dim_value") and dim.dim_value >= 0
        else known.get(symbol(dim) or "?", Dim(dim.dim_param or "?", 0, ANY))
        for dim in type.shape.dim
    )
