"""``TensorProto`` to numpy: all element types in all forms of storage. Sizes are checked before data is used."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx

from gpucomp import config
from gpucomp.errors import ModelError, UnsupportedError
from gpucomp.frontend.onnx.external import ExternalFiles
from gpucomp.ir import types as t
from gpucomp.ir.size import Size, hint
from gpucomp.ir.types import DType

P = onnx.TensorProto
DTYPES: dict[int, DType] = {
    P.FLOAT: t.F32,
    P.DOUBLE: t.F64,
    P.FLOAT16: t.F16,
    P.BFLOAT16: t.BF16,
    P.INT8: t.I8,
    P.INT16: t.I16,
    P.INT32: t.I32,
    P.INT64: t.I64,
    P.UINT8: t.U8,
    P.UINT16: t.U16,
    P.UINT32: t.U32,
    P.UINT64: t.U64,
    P.BOOL: t.BOOL,
    P.FLOAT8E4M3FN: t.F8E4M3,
    P.FLOAT8E4M3FNUZ: t.F8E4M3FNUZ,
    P.FLOAT8E5M2: t.F8E5M2,
    P.FLOAT8E5M2FNUZ: t.F8E5M2FNUZ,
    P.INT4: t.I4,
    P.UINT4: t.U4,
    P.INT2: t.I2,
    P.UINT2: t.U2,
    P.FLOAT4E2M1: t.F4E2M1,
    P.FLOAT8E8M0: t.F8E8M0,
    P.STRING: t.STRING,
}
# fields that hold one element per number; f16, bf16 and f8 are stored as bit patterns
BIT_PATTERNS = {t.F16, t.BF16, t.F8E4M3, t.F8E4M3FNUZ, t.F8E5M2, t.F8E5M2FNUZ, t.F8E8M0}
FIELD = {t.F32: "float_data", t.F64: "double_data", t.I64: "int64_data", t.U32: "uint64_data", t.U64: "uint64_data"}
MAX_RANK = 32  # the largest rank that all of numpy's functions support
MADE_LIMIT = 40 << 20  # bytes of a generated constant
ALL_MADE = 128 << 20  # bytes of all dense copies of sparse tensors, plus four times the bytes of the model's tensors
PIECE = 1 << 18  # elements that are converted at a time
FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def as_array(listed: Sequence[int] | Sequence[float] | np.ndarray, dtype: npt.DTypeLike) -> np.ndarray:
    """The numbers of a list as an array [n]. From version 7 on, protobuf's lists support numpy's array interface.

    For other lists, np.asarray would make Python objects of all numbers first; np.fromiter makes one at a time.
    """
    return np.asarray(listed, dtype) if hasattr(listed, "__array__") else np.fromiter(listed, dtype, len(listed))


def element_type(number: int, where: str) -> DType:
    """The ``DType`` of an ONNX element type number."""
    if number in DTYPES:
        return DTYPES[number]
    if number in P.DataType.values() and number != P.UNDEFINED:
        name = P.DataType.Name(number).lower()
        raise UnsupportedError(f"{where}: elements of type {name} are not supported", code="GPC4003")
    raise ModelError(f"{where}: {number} is not an element type", code="GPC3030")


def to_array(tensor: onnx.TensorProto, files: ExternalFiles, where: str) -> np.ndarray:
    """The array of ``tensor``; for external data, a view of the file. Raises ``ModelError`` that begins with ``where``."""
    return files.once(tensor, lambda: _decoded(tensor, files, where), lambda: _stored(tensor))


def _stored(tensor: onnx.TensorProto) -> int:
    """Approximate number of bytes of a tensor in the file. Integers of variable length count as one byte each."""
    if len(tensor.int32_data) or len(tensor.int64_data) or len(tensor.uint64_data):
        return len(tensor.int32_data) + len(tensor.int64_data) + len(tensor.uint64_data)
    elements: int = math.prod(tensor.dims)
    return -(-elements * DTYPES[tensor.data_type].bits // 8)


def _decoded(tensor: onnx.TensorProto, files: ExternalFiles, where: str) -> np.ndarray:
    dtype = element_type(tensor.data_type, where)
    shape = checked_shape(tensor.dims, where)
    count = math.prod(shape)
    if tensor.HasField("segment"):
        raise ModelError(f"{where}: segmented tensors are not allowed", code="GPC3031")
    filled = [name for name in FIELDS if len(getattr(tensor, name))]
    raw = tensor.raw_data  # once: each reading copies it
    if tensor.HasField("raw_data") and (raw or not filled):
        filled.append("raw_data")
    external = tensor.data_location == P.EXTERNAL
    if len(filled) + external > 1 and not (external and filled == ["raw_data"] and not raw):
        raise ModelError(f"{where}: data in more than one place: {', '.join(filled)}", code="GPC3031")
    if dtype is t.STRING:
        return _texts(tensor, shape, [*filled, *["external data"] * external], where)
    nbytes = -(-count * dtype.bits // 8)
    if external:
        return _from_bytes(files.read(tensor, nbytes, where), dtype, shape)
    if filled == ["raw_data"]:
        if len(raw) != nbytes:
            raise ModelError(
                f"{where}: raw_data of {len(raw)} bytes, {dtype}{list(shape)} needs {nbytes}", code="GPC3032"
            )
        return _from_bytes(np.frombuffer(raw, np.uint8), dtype, shape)
    return _from_numbers(tensor, dtype, shape, filled, where)


def checked_shape(dims: Sequence[int], where: str) -> tuple[int, ...]:
    if len(dims) > MAX_RANK:
        raise ModelError(f"{where}: rank {len(dims)}; at most {MAX_RANK} is supported", code="GPC3033")
    shape = tuple(d if isinstance(d, Size) else int(d) for d in dims)
    if any(d < 0 for d in shape) or math.prod(max(hint(d), 1) for d in shape) > 1 << 48:
        raise ModelError(f"{where}: the shape {list(shape)} is negative or too large", code="GPC3033")
    return shape


def _from_bytes(data: np.ndarray, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.bits < 8:
        return _unpacked(data, dtype, shape)
    if dtype is t.BOOL:
        return np.asarray(data != 0).reshape(shape)  # numpy fails on bool arrays with other bytes than 0 and 1
    little = dtype.numpy if dtype.numpy.kind == "V" else dtype.numpy.newbyteorder("<")
    array = data.view(little).reshape(shape)
    return array if array.dtype == dtype.numpy else array.astype(dtype.numpy)


def _unpacked(data: np.ndarray, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Unpack two or four elements per byte, lowest bits first. In pieces: intermediate arrays are larger than the result."""
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    mask, sign = np.uint8((1 << dtype.bits) - 1), np.uint8(1 << (dtype.bits - 1))
    result = np.empty(len(data) * len(shifts), dtype.numpy)
    for start in range(0, len(data), PIECE):
        codes = ((data[start : start + PIECE, None] >> shifts) & mask).reshape(-1)
        if dtype.is_float:
            numbers = codes.view(dtype.numpy)
        else:
            numbers = ((codes ^ sign).view(np.int8) - sign.view(np.int8) if dtype.kind == "i" else codes).astype(
                dtype.numpy
            )
        result[start * len(shifts) : start * len(shifts) + len(numbers)] = numbers
    return result[: math.prod(shape)].reshape(shape)


def _from_numbers(
    tensor: onnx.TensorProto, dtype: DType, shape: tuple[int, ...], filled: list[str], where: str
) -> np.ndarray:
    field = FIELD.get(dtype, "int32_data")
    if filled not in ([], [field]):
        raise ModelError(f"{where}: {dtype} data belongs in {field}, found in {filled[0]}", code="GPC3031")
    numbers = getattr(tensor, field)
    count = math.prod(shape)
    if dtype.bits < 8:
        expected, unpacked = -(-count * dtype.bits // 8), as_array(numbers, np.int64)
        if len(numbers) == expected and not np.any((unpacked < -128) | (unpacked > 255)):
            return _unpacked(unpacked.astype(np.uint8), dtype, shape)
    elif len(numbers) == count:
        if dtype in FIELD and dtype is not t.U32:
            return as_array(numbers, dtype.numpy).reshape(shape)
        carrier = np.dtype(f"u{dtype.nbytes}") if dtype in BIT_PATTERNS or dtype is t.BOOL else dtype.numpy
        wide = as_array(numbers, np.uint64 if dtype is t.U32 else np.int32)
        narrow = wide.astype(carrier, copy=False)
        for start in range(0, count, PIECE):  # in pieces: the arrays that are compared are larger than the result
            if not np.array_equal(
                narrow[start : start + PIECE].astype(np.int64), wide[start : start + PIECE].astype(np.int64)
            ):
                raise ModelError(f"{where}: a number in {field} does not fit in {dtype}", code="GPC3032")
        if dtype is t.BOOL:
            return np.asarray(narrow != 0).reshape(shape)
        return (narrow.view(dtype.numpy) if dtype in BIT_PATTERNS else narrow).reshape(shape)
    raise ModelError(f"{where}: {len(numbers)} numbers in {field}, {dtype}{list(shape)} needs {count}", code="GPC3032")


def _texts(tensor: onnx.TensorProto, shape: tuple[int, ...], filled: list[str], where: str) -> np.ndarray:
    if filled not in ([], ["string_data"]):
        raise ModelError(f"{where}: strings belong in string_data, found in {filled[0]}", code="GPC3031")
    if len(tensor.string_data) != math.prod(shape):
        raise ModelError(
            f"{where}: {len(tensor.string_data)} strings, {list(shape)} needs {math.prod(shape)}", code="GPC3032"
        )
    array = np.empty(len(tensor.string_data), object)
    try:
        array[:] = [text.decode("utf-8") for text in tensor.string_data]
    except UnicodeDecodeError:
        raise ModelError(f"{where}: a string in it is not UTF-8 text", code="GPC3032") from None
    return array.reshape(shape)


def sparse_to_array(sparse: onnx.SparseTensorProto, files: ExternalFiles, where: str) -> np.ndarray:
    """A sparse initialiser as a dense array. Its indices are linear ([n]) or one row per element ([n, rank]), ascending."""
    return files.once(sparse, lambda: _dense(sparse, files, where), lambda: 0)


def _dense(sparse: onnx.SparseTensorProto, files: ExternalFiles, where: str) -> np.ndarray:
    shape = checked_shape(sparse.dims, where)
    values = to_array(sparse.values, files, where)
    indices = to_array(sparse.indices, files, where)
    size = math.prod(shape)
    if size * values.itemsize > min(MADE_LIMIT + 16 * values.nbytes, config.current().fold_limit):
        raise UnsupportedError(f"{where}: too large to be made dense: {list(shape)}", code="GPC4008")
    files.made += size * values.itemsize
    if files.made > ALL_MADE + 4 * files.nbytes:
        raise UnsupportedError(
            f"{where}: the model's sparse tensors would take more than {ALL_MADE + 4 * files.nbytes} bytes",
            code="GPC4006",
        )
    if values.ndim != 1 or indices.dtype != np.int64 or indices.shape not in (values.shape, (len(values), len(shape))):
        raise ModelError(f"{where}: {indices.shape} indices do not fit {values.shape} values", code="GPC3034")
    if indices.ndim == 2:
        if np.any(indices < 0) or np.any(indices >= np.asarray(shape, np.int64)):
            raise ModelError(f"{where}: an index is outside {list(shape)}", code="GPC3034")
        indices = np.ravel_multi_index(tuple(indices.T), shape) if len(shape) else np.zeros(len(values), np.int64)
    if np.any(indices < 0) or np.any(indices >= size) or np.any(np.diff(indices) <= 0):
        raise ModelError(f"{where}: indices must ascend and be inside {list(shape)}", code="GPC3034")
    dense = np.zeros(size, values.dtype)
    dense[indices] = values
    return dense.reshape(shape)
