"""Element types, dimensions and tensor types. No values live here."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from gpucomp.ir.size import Size, same_shape
from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type, one of those below. ``kind`` is ``f`` float, ``i`` signed, ``u`` unsigned, ``b`` bool, ``s`` string."""

    name: str
    kind: str
    bits: int
    numpy: np.dtype
    storage_only: bool = False  # no arithmetic: floats of 8 bits and all types of fewer bits are widened on load

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def nbytes(self) -> int:
        """Bytes of one element in memory. Elements of 4 or 2 bits take a whole byte; strings take no device memory."""
        return 0 if self.kind == "s" else max(self.bits, 8) // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"


finfo: Callable[[np.dtype], Any] = ml_dtypes.finfo  # for every float type; its own constructor is not annotated

F64 = DType("f64", "f", 64, np.dtype(np.float64))
F32 = DType("f32", "f", 32, np.dtype(np.float32))
F16 = DType("f16", "f", 16, np.dtype(np.float16))
BF16 = DType("bf16", "f", 16, np.dtype(ml_dtypes.bfloat16))
I64 = DType("i64", "i", 64, np.dtype(np.int64))
I32 = DType("i32", "i", 32, np.dtype(np.int32))
I16 = DType("i16", "i", 16, np.dtype(np.int16))
I8 = DType("i8", "i", 8, np.dtype(np.int8))
U64 = DType("u64", "u", 64, np.dtype(np.uint64))
U32 = DType("u32", "u", 32, np.dtype(np.uint32))
U16 = DType("u16", "u", 16, np.dtype(np.uint16))
U8 = DType("u8", "u", 8, np.dtype(np.uint8))
BOOL = DType("bool", "b", 8, np.dtype(np.bool_))
F8E4M3 = DType("f8e4m3fn", "f", 8, np.dtype(ml_dtypes.float8_e4m3fn), storage_only=True)
F8E4M3FNUZ = DType("f8e4m3fnuz", "f", 8, np.dtype(ml_dtypes.float8_e4m3fnuz), storage_only=True)
F8E5M2 = DType("f8e5m2", "f", 8, np.dtype(ml_dtypes.float8_e5m2), storage_only=True)
F8E5M2FNUZ = DType("f8e5m2fnuz", "f", 8, np.dtype(ml_dtypes.float8_e5m2fnuz), storage_only=True)
I4 = DType("i4", "i", 4, np.dtype(ml_dtypes.int4), storage_only=True)
U4 = DType("u4", "u", 4, np.dtype(ml_dtypes.uint4), storage_only=True)
I2 = DType("i2", "i", 2, np.dtype(ml_dtypes.int2), storage_only=True)
U2 = DType("u2", "u", 2, np.dtype(ml_dtypes.uint2), storage_only=True)
F4E2M1 = DType("f4e2m1fn", "f", 4, np.dtype(ml_dtypes.float4_e2m1fn), storage_only=True)
F8E8M0 = DType("f8e8m0fnu", "f", 8, np.dtype(ml_dtypes.float8_e8m0fnu), storage_only=True)  # only powers of two

STRING = DType("string", "s", 0, np.dtype(object), storage_only=True)  # Python's str; stays on the host

_ALL = (F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, F8E4M3, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ)
_SMALL = (F8E8M0, F4E2M1, I4, U4, I2, U2)
DTYPES = {dtype.name: dtype for dtype in (*_ALL, *_SMALL)}
NAMED = DTYPES | {STRING.name: STRING}  # and strings: the element types of tensors at run time
_BY_NUMPY = {d.numpy: d for d in NAMED.values()}


def dtype_of(numpy_dtype: object) -> DType:
    """The ``DType`` of a numpy dtype. Raises ``TypeError`` if there is none."""
    dtype = np.dtype(numpy_dtype)  # type: ignore[call-overload]
    try:
        return _BY_NUMPY[dtype.newbyteorder("=")]
    except KeyError:
        raise TypeError(f"element type {dtype} is not supported; supported are {', '.join(DTYPES)}") from None


@dataclass(frozen=True, eq=False)
class TensorType:
    """Element type and shape; printed ``f16[1,64,56,56]``. Compared by value, and sizes by their formulas.

    Types that differ can have the same shape in some runs; no condition is noted that they have.
    """

    dtype: DType
    shape: tuple[int, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and self.dtype is other.dtype and same_shape(self.shape, other.shape)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    def agrees(self, other: TensorType) -> bool:
        """Whether both are one type in every run that is assumed, also if their formulas differ."""
        same_rank = self.dtype is other.dtype and self.rank == other.rank
        return self == other or (same_rank and all(a == b for a, b in zip(self.shape, other.shape, strict=True)))

    @cached_property
    def has_sizes(self) -> bool:
        """Whether a run decides an extent."""
        return any(isinstance(extent, Size) for extent in self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return str(self)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @cached_property
    def size(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.nbytes

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        return TensorType(self.dtype, tuple(d if isinstance(d, Size) else int(d) for d in shape))

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)


@dataclass(frozen=True)
class SequenceType:
    """A sequence of tensors of one element type; printed ``seq(f32)``."""

    dtype: DType

    def __str__(self) -> str:
        return f"seq({self.dtype})"


@dataclass(frozen=True)
class MapsType:
    """A sequence of maps from integers or strings to numbers; printed ``seq(map(i64, f32))``."""

    keys: DType
    dtype: DType

    def __str__(self) -> str:
        return f"seq(map({self.keys}, {self.dtype}))"


@dataclass(frozen=True)
class OptionalType:
    """A tensor, or a sequence, that may be absent; printed ``optional(f32)``, ``optional(seq(f32))``."""

    dtype: DType
    sequence: bool = False

    def __str__(self) -> str:
        return f"optional({SequenceType(self.dtype) if self.sequence else self.dtype})"


def type_of(array: np.ndarray) -> TensorType:
    """The type of a numpy array."""
    return TensorType(dtype_of(array.dtype), tuple(array.shape))
