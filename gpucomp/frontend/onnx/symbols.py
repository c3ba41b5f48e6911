"""Types of inputs. The sizes of symbolic dimensions come from the shapes that the user gave."""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from gpucomp.errors import ModelError, UnsupportedError, UsageError, quote
from gpucomp.frontend.onnx import tensors
from gpucomp.ir import DType
from gpucomp.ir.dim import NAME
from gpucomp.ir.dims import has_dims
from gpucomp.ir.size import Size


class Symbols:
    """The sizes of symbolic dimensions, taken from the shapes that the user gave."""

    def __init__(self, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, np.ndarray]) -> None:
        self.given = {name: tuple(expect_array(name, a).shape) for name, a in constants.items()}
        self.given |= {name: extents(name, shape) for name, shape in shapes.items()}
        self.sizes: dict[str, tuple[int, str]] = {}  # symbol -> its size and the input that it is from
        self.noted: list[onnx.ValueInfoProto] = []

    def note(self, info: onnx.ValueInfoProto) -> None:
        """Check the shape given for this input against the declared one, and record the sizes of its symbols."""
        self.noted.append(info)
        given = self.given.get(info.name)
        if given is None:
            return
        where = f"shapes: input {quote(info.name)}"
        if any(d < 0 for d in given):
            raise UsageError(
                f"{where}: {_text(given)} has a negative dimension; give a number for each, or a name such as 'n' for a "
                "size that each run decides",
                code="GPC2110",
            )
        if not info.type.tensor_type.HasField("shape"):
            return
        dims = info.type.tensor_type.shape.dim
        if len(dims) != len(given):
            raise UsageError(f"{where}: {len(dims)} dimensions expected, {_text(given)} given", code="GPC2110")
        for axis, (dim, size) in enumerate(zip(dims, given, strict=True)):
            if is_fixed(dim) and dim.dim_value != size:
                raise UsageError(
                    f"{where}: dimension {axis} is {dim.dim_value} in the model, {size} was given", code="GPC2110"
                )
            if name := symbol(dim):
                before, source = self.sizes.setdefault(name, (size, info.name))
                if before != size:
                    raise UsageError(
                        f"{where}: dimension {quote(name)} is {size} here and {before} in input {quote(source)}",
                        code="GPC2110",
                    )

    def shape(self, info: onnx.ValueInfoProto) -> tuple[int, ...]:
        """The concrete shape of an input. Raises ``UsageError`` that shows every argument that is missing."""
        if info.name in self.given:
            return self.given[info.name]
        sizes = self._sizes(info)
        if sizes is None or None in sizes:
            raise self._missing()
        return tuple(d for d in sizes if d is not None)

    def _sizes(self, info: onnx.ValueInfoProto) -> list[int | None] | None:
        """The size of each dimension, None where it is not known. None instead of a list if not even the rank is."""
        if not info.type.tensor_type.HasField("shape"):
            return None
        sizes: list[int | None] = []
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if not is_fixed(dim):
                sizes.append(self.sizes[symbol(dim)][0] if symbol(dim) in self.sizes else None)
                continue
            if dim.dim_value < 0:
                raise ModelError(f"input {quote(info.name)}: dimension {axis} is {dim.dim_value}", code="GPC3033")
            sizes.append(dim.dim_value)
        return sizes

    def _missing(self) -> UsageError:
        """The error for shapes that have to be given, with the arguments in Python and on the command line.

        The arguments come first, because a message of many inputs is cut. They are for the fewest inputs that have all the
        names: a name has one size in the whole model.
        """
        opens: list[_Open] = []
        for info in self.noted:
            if info.name in self.given or info.type.WhichOneof("value") != "tensor_type":
                continue
            sizes = self._sizes(info)
            if sizes is None or None in sizes:
                opens.append(_Open(info, sizes))
        wanted = _fewest(opens)
        numbers = [(one.name, one.dims("N")) for one in wanted]
        in_python = f"give shapes={_mapping(numbers)}"
        in_shell = f"give {' '.join(f'--shapes {_argument(name, dims)}' for name, dims in numbers)}"
        if all(one.sizes is not None for one in wanted):
            decided = " with a number for each N; for sizes that each run decides"
            name, names = min(((one.name, one.names()) for one in opens), key=lambda found: len(found[1]))
            in_python += (
                f"{decided} shapes={_mapping([(name, list(map(_dimension, names)))])}, or gpucomp.Dim for a name"
            )
            in_shell += f"{decided} --shapes {_argument(name, map(_in_braces, names))} (not for compare)"
        told = f"The model does not say {', '.join(_unknown(opens))}"
        return UsageError(f"{in_python}. {told}", code="GPC2102", in_shell=f"{in_shell}. {told}")


class _Open:
    """An input whose shape the model leaves open: ``sizes`` has None for each such size, or is None without a rank."""

    def __init__(self, info: onnx.ValueInfoProto, sizes: Sequence[int | None] | None) -> None:
        self.name, self.sizes = info.name, sizes
        symbols = [symbol(dim) for dim in info.type.tensor_type.shape.dim]
        self.axes = {axis: symbols[axis] for axis, size in enumerate(sizes or ()) if size is None}
        self.symbols = set(self.axes.values()) - {""}

    @property
    def is_alone(self) -> bool:
        """Whether no other input tells all its sizes."""
        return self.sizes is None or "" in self.axes.values()

    def dims(self, unknown: str) -> list[str]:
        """The sizes as text, with ``unknown`` for each that is open."""
        if self.sizes is None:
            return ["D0", "D1", "..."]
        return [unknown if size is None else str(size) for size in self.sizes]

    def names(self) -> list[str]:
        """The sizes as text, with a name for each that is open: the model's, or one that can be written as one."""
        return [
            self.dims("")[axis] or (name if re.fullmatch(NAME, name) else f"d{axis}")
            for axis, name in ((axis, self.axes.get(axis, "")) for axis in range(len(self.sizes or ())))
        ]


def _fewest(opens: Sequence[_Open]) -> list[_Open]:
    """Inputs that together have every name, and those whose sizes have none. In the order of the model."""
    chosen = [one for one in opens if one.is_alone]
    missing = set().union(*(one.symbols for one in opens)) - set().union(*(one.symbols for one in chosen))
    while missing:
        chosen.append(max(opens, key=lambda one: len(one.symbols & missing)))
        missing -= chosen[-1].symbols
    return [one for one in opens if one in chosen]


def is_fixed(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether the model says a size. Converters from Paddle and TensorFlow write -1 for an open one, as onnxruntime reads it."""
    return dim.HasField("dim_value") and dim.dim_value != -1


def symbol(dim: onnx.TensorShapeProto.Dimension) -> str:
    """The name of an open dimension, which stands for one size everywhere. Converters from Paddle call every one "?"."""
    name: str = dim.dim_param
    return "" if name == "?" else name


def _unknown(opens: Sequence[_Open]) -> Iterator[str]:
    """What the model leaves open: each name once, with where it stands first; then what has no name."""
    places: dict[str, list[str]] = {}
    for one in opens:
        for axis, name in one.axes.items():
            if name:
                places.setdefault(name, []).append(f"dimension {axis} of input {quote(one.name)}")
    for name, found in places.items():
        yield f"{quote(name)} ({found[0]}{f' and {len(found) - 1} more' if found[1:] else ''})"
    for one in opens:
        axes = [axis for axis, name in one.axes.items() if not name]
        if one.sizes is None:
            yield f"the shape of input {quote(one.name)}"
        elif axes:
            yield f"dimension{'s'[: len(axes) - 1]} {', '.join(map(str, axes))} of input {quote(one.name)}"


def fixed_array(info: onnx.ValueInfoProto, given: Any) -> np.ndarray | np.generic:
    """The array that the user fixed the input ``info`` to. Numbers, and lists of numbers, take the input's element type.

    A number also takes the input's shape if that has one element. Raises ``UsageError`` for anything else, and for
    numbers that the element type cannot hold.
    """
    if isinstance(given, np.ndarray | np.generic):
        return given
    where = f"constants: input {quote(info.name)}"
    wanted = element_type_of(info, where)
    try:
        numbers = np.asarray(given)
    except (ValueError, OverflowError):  # lists of different lengths
        numbers = np.asarray(None)
    if numbers.dtype.kind not in "biuf" or wanted.kind == "s":
        raise UsageError(
            f"{where}: an array, a number or a list of numbers expected, {type(given).__name__} given", code="GPC2108"
        )
    with np.errstate(all="ignore"):
        array = numbers.astype(wanted.numpy)
        back = array.astype(np.float64 if wanted.is_float else numbers.dtype)
    kept = np.isfinite(back) == np.isfinite(numbers) if wanted.is_float else back == numbers
    if not np.all(kept):
        raise UsageError(f"{where}: {wanted} cannot hold {quote(given)}", code="GPC2108")
    dims = info.type.tensor_type.shape.dim
    return array.reshape([1] * len(dims)) if not array.shape and all(d.dim_value == 1 for d in dims) else array


def expect_array(name: str, array: Any) -> np.ndarray | np.generic:
    """The array that the user fixed a tensor to. Raises ``UsageError`` if it is not an array."""
    if not isinstance(array, np.ndarray | np.generic):
        raise UsageError(
            f"constants: input {quote(name)}: an array expected, {type(array).__name__} given", code="GPC2108"
        )
    return array


def extents(name: str, shape: Any) -> tuple[Any, ...]:
    """A tensor's shape that the user gave for input ``name``. Raises ``UsageError`` if it is not a list of integers."""
    try:
        return tuple(d if isinstance(d, Size) else operator.index(d) for d in shape)
    except TypeError:
        if has_dims({name: shape}):
            told = f"input {quote(name)}: this needs one size of each dimension; give numbers in"
            raise UsageError(f"{told} shapes=", code="GPC2017", in_shell=f"{told} --shapes") from None
        raise UsageError(
            f"shapes: input {quote(name)}: whole numbers, or names such as 'n' and gpucomp.Dim for sizes that each run "
            f"decides, expected; {quote(shape)} given",
            code="GPC2110",
        ) from None


def _argument(name: str, dims: Iterable[str]) -> str:
    """``x:Nx3`` for a shell."""
    return shlex.quote(f"{name}:{'x'.join(dims)}")


def _in_braces(size: str) -> str:
    return size if size.isdigit() else f"{{{size}}}"


def _mapping(shapes: Sequence[tuple[str, Sequence[str]]]) -> str:
    """``{'x': (N, 3)}``."""
    tuples = (f"{quote(name)}: ({', '.join(dims)}{',' if len(dims) == 1 else ''})" for name, dims in shapes)
    return f"{{{', '.join(tuples)}}}"


def _dimension(size: str) -> str:
    return size if size.isdigit() else quote(size)


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a scalar"


def element_type_of(info: onnx.ValueInfoProto, where: str) -> DType:
    kind = info.type.WhichOneof("value")
    if kind == "tensor_type":
        return tensors.element_type(info.type.tensor_type.elem_type, where)
    if kind is None:
        raise ModelError(f"{where} has no type", code="GPC3015")
    raise UnsupportedError(f"{where}: {kind.removesuffix('_type')} values are not supported", code="GPC4003")
