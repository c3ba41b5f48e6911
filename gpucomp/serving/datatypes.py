"""Tensors of the protocol: its element types, and arrays from and to bytes and JSON."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import ml_dtypes
import numpy as np

from gpucomp.errors import ServingError, several
from gpucomp.lazy_dataclass import dataclass
from gpucomp.serving.limits import JSON_STEP

TEXT_LENGTH = 4  # bytes before each text that say how long it is


@dataclass(frozen=True)
class Datatype:
    """An element type by the protocol's ``name`` and ``ours``. ``python`` is what its elements are in JSON; empty: not there."""

    name: str
    ours: str
    numpy: np.dtype[Any]
    python: frozenset[type]


def _row(name: str, ours: str, numpy: Any, *python: type) -> Datatype:
    return Datatype(name, ours, np.dtype(numpy), frozenset(python))


DATATYPES: Mapping[str, Datatype] = {
    one.name: one
    for one in (
        _row("BOOL", "bool", np.bool_, bool),
        _row("UINT8", "u8", np.uint8, int),
        _row("UINT16", "u16", np.uint16, int),
        _row("UINT32", "u32", np.uint32, int),
        _row("UINT64", "u64", np.uint64, int),
        _row("INT8", "i8", np.int8, int),
        _row("INT16", "i16", np.int16, int),
        _row("INT32", "i32", np.int32, int),
        _row("INT64", "i64", np.int64, int),
        _row("FP16", "f16", np.float16),
        _row("BF16", "bf16", ml_dtypes.bfloat16),
        _row("FP32", "f32", np.float32, int, float),
        _row("FP64", "f64", np.float64, int, float),
        _row("BYTES", "string", object, str),
    )
}
BY_OURS: Mapping[str, Datatype] = {one.ours: one for one in DATATYPES.values()}


def refused(message: str) -> ServingError:
    """The error for a request that is not of the protocol, or does not fit the model."""
    return ServingError(message, code="GPC1201")


def from_binary(data: memoryview, datatype: Datatype, shape: Sequence[int], where: str) -> np.ndarray:
    """The tensor in ``data``, without a copy unless it is unaligned or of texts. Raises ``ServingError`` (GPC1201)."""
    if datatype.name == "BYTES":
        return _texts(data, shape, where)
    wanted = math.prod(shape) * datatype.numpy.itemsize
    if len(data) != wanted:
        raise refused(f"{where}: {wanted} bytes expected for {datatype.name} {list(shape)}, found {len(data)}")
    if datatype.name == "BOOL" and len(data) and np.frombuffer(data, np.uint8).max() > 1:
        raise refused(f"{where}: bytes of 0 and 1 expected for BOOL")
    array = np.frombuffer(data, datatype.numpy).reshape(shape)
    return array if array.flags.aligned else array.copy()


def _texts(data: memoryview, shape: Sequence[int], where: str) -> np.ndarray:
    count, place = math.prod(shape), 0
    found: list[str] = []
    if count * TEXT_LENGTH > len(data):
        raise refused(f"{where}: {several(count, 'text')} expected, and {len(data)} bytes cannot hold so many")
    for _ in range(count):
        if place + TEXT_LENGTH > len(data):
            raise refused(f"{where}: {several(count, 'text')} expected, the data end after {len(found)}")
        (length,) = struct.unpack_from("<I", data, place)
        place += TEXT_LENGTH
        if length > len(data) - place:
            raise refused(f"{where}: text {len(found)} is said to have {length} bytes, {len(data) - place} are left")
        found.append(text_of(data[place : place + length], where))
        place += length
    if place != len(data):
        raise refused(f"{where}: {several(count, 'text')} expected, {len(data) - place} bytes are left behind them")
    return _objects(found, shape)


def text_of(data: memoryview | bytes, where: str) -> str:
    """Raises ``ServingError`` (GPC1201)."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise refused(f"{where}: a text that is not UTF-8; models take texts, not bytes") from None


def _objects(texts: list[str], shape: Sequence[int]) -> np.ndarray:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)


def from_json(data: object, datatype: Datatype, shape: Sequence[int], where: str) -> np.ndarray:
    """The tensor in a JSON array, flat or nested as its shape. Raises ``ServingError`` (GPC1201)."""
    if not datatype.python:
        raise refused(f"{where}: {datatype.name} has no form in JSON; send it as binary data (binary_data_size)")
    if not isinstance(data, list):
        raise refused(f"{where}: an array as data expected")
    flat, kinds = _flattened(data, shape, where)
    if not kinds <= datatype.python:
        odd = next(kind for kind in kinds if kind not in datatype.python)
        raise refused(f"{where}: elements of {datatype.name} expected, found {odd.__name__}")
    if len(flat) != math.prod(shape):
        raise refused(f"{where}: {several(math.prod(shape), 'element')} expected for {list(shape)}, found {len(flat)}")
    if datatype.name == "BYTES":
        try:
            "".join(flat).encode()
        except UnicodeEncodeError:  # of "\\ud800": no binary answer could hold it
            raise refused(f"{where}: a text with half of a surrogate pair, which is no character") from None
        return _objects(flat, shape)
    return _numbers(flat, datatype, where).reshape(shape)


def _flattened(data: list[Any], shape: Sequence[int], where: str) -> tuple[list[Any], set[type]]:
    """The elements, and their types. Nested arrays must be as long as the shape says."""
    kinds = set(map(type, data))
    for axis in range(len(shape)):
        if list not in kinds:
            break
        inner = set(map(len, data)) if kinds == {list} else set()
        if len(data) != math.prod(shape[: axis + 1]) or inner != set(shape[axis + 1 : axis + 2]):
            raise refused(f"{where}: arrays nested as the shape {list(shape)} expected, or a flat one")
        data = list(chain.from_iterable(data))
        kinds = set(map(type, data))
    return data, kinds


def _numbers(flat: list[Any], datatype: Datatype, where: str) -> np.ndarray:
    """Every number must be in the range of the type."""
    kind = datatype.numpy.kind
    wide = {"i": np.int64, "u": np.uint64, "f": np.float64}.get(kind, np.bool_)
    try:
        array = np.array(flat, wide)
        if kind == "f" and not np.isfinite(array).all():  # such as 1e999
            raise OverflowError
        if kind in "iu" and array.size:
            bounds = np.iinfo(datatype.numpy)
            if array.min() < bounds.min or array.max() > bounds.max:
                raise OverflowError
        with np.errstate(over="raise", under="ignore"):
            return array.astype(datatype.numpy)
    except (OverflowError, FloatingPointError):
        raise refused(f"{where}: a number that is outside the range of {datatype.name}") from None


def to_binary(array: np.ndarray) -> memoryview | bytes:
    """The bytes of a result: of numbers without a copy."""
    if array.dtype != object:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    parts: list[bytes] = []
    for text in array.reshape(-1).tolist():
        data = text.encode("utf-8", "surrogatepass")
        parts += (struct.pack("<I", len(data)), data)
    return b"".join(parts)


def to_json(array: np.ndarray, datatype: Datatype, where: str) -> str:
    """A flat JSON array, written in steps. Raises ``ServingError`` (GPC1208) for what JSON cannot hold."""
    if not datatype.python:
        raise ServingError(f"{where}: {datatype.name} has no form in JSON; ask for binary_data", code="GPC1208")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ServingError(
            f"{where}: the result has infinite numbers or NaN, which JSON has not; ask for binary_data", code="GPC1208"
        )
    flat = array.reshape(-1)
    steps = (flat[begin : begin + JSON_STEP].tolist() for begin in range(0, flat.size, JSON_STEP))
    return f"[{','.join(json.dumps(step, separators=(',', ':'))[1:-1] for step in steps)}]"
