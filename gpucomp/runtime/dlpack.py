"""DLPack by ctypes, for arrays in the memory of AMD's GPUs: capsules are made and taken without another library."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from gpucomp.lazy_dataclass import dataclass

ROCM = 10  # kDLROCM
NEW, USED = b"dltensor", b"used_dltensor"
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # DLDataTypeCode by numpy's kind
BFLOAT = 4
BF16: np.dtype = np.dtype(ml_dtypes.bfloat16)


class Tensor(ctypes.Structure):
    """A ``DLManagedTensor``, with its ``DLTensor`` in front."""


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Tensor._fields_ = [
    ("data", ctypes.c_void_p),
    ("device_type", ctypes.c_int32),
    ("device_id", ctypes.c_int32),
    ("ndim", ctypes.c_int32),
    ("code", ctypes.c_uint8),
    ("bits", ctypes.c_uint8),
    ("lanes", ctypes.c_uint16),
    ("shape", ctypes.POINTER(ctypes.c_int64)),
    ("strides", ctypes.POINTER(ctypes.c_int64)),
    ("byte_offset", ctypes.c_uint64),
    ("manager", ctypes.c_void_p),
    ("deleter", ctypes.c_void_p),
]

_exported: dict[int, tuple[Tensor, Any, object]] = {}  # what others still use, by the address of its structure


def _delete(address: int) -> None:
    _exported.pop(address, None)


_deleter = Deleter(_delete)  # kept alive here, as _destructor is: other libraries call them


_api = ctypes.PyDLL(None)
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = _api.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_rename = _api.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
# of a capsule that is being freed, whose references must not be counted
_dying_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_dying_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))


def _dropped(capsule: int) -> None:
    """Frees a capsule that nobody has taken."""
    if _dying_name(capsule, NEW):
        _exported.pop(_dying_pointer(capsule, NEW), None)


_destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_dropped)


def exported(array: Any, device: tuple[int, int]) -> Any:
    """A capsule of a contiguous ``array``, which lives as long as its taker needs it. Raises ``BufferError`` for its type."""
    dtype, shape = array.dtype, array.shape
    if dtype != BF16 and dtype.kind not in CODES:
        raise BufferError(f"DLPack has no element type {dtype}")
    if not array.flags.c_contiguous:
        raise BufferError("a contiguous array expected")
    extents = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    tensor = Tensor(data=int(array.data.ptr), device_type=device[0], device_id=device[1], ndim=len(shape), lanes=1)
    tensor.code = BFLOAT if dtype == BF16 else CODES[dtype.kind]
    tensor.bits = 8 * dtype.itemsize
    tensor.shape = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
    tensor.deleter = ctypes.cast(_deleter, ctypes.c_void_p).value
    address = ctypes.addressof(tensor)
    _exported[address] = tensor, extents, array
    return _new(address, NEW, ctypes.cast(_destructor, ctypes.c_void_p))


@dataclass(frozen=True, eq=False)
class Taken:
    """An array of somebody else, who keeps it until this object is gone."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    contiguous: bool


def imported(capsule: Any) -> Taken:
    """Take what is in a capsule. Raises ``BufferError`` for a type that numpy does not have, ``ValueError`` for no capsule."""
    place = _pointer(capsule, NEW)
    tensor = Tensor.from_address(place)
    dtype = _dtype(tensor)
    shape = tuple(tensor.shape[k] for k in range(tensor.ndim))
    strides = tuple(tensor.strides[k] for k in range(tensor.ndim)) if tensor.strides else None
    taken = Taken((tensor.data or 0) + tensor.byte_offset, shape, dtype, contiguous(shape, strides, 1))
    _rename(capsule, USED)
    if tensor.deleter:
        weakref.finalize(taken, Deleter(tensor.deleter), place).atexit = False
    return taken


def _dtype(tensor: Tensor) -> np.dtype:
    kinds = {code: kind for kind, code in CODES.items()}
    if tensor.lanes == 1 and (tensor.code, tensor.bits) == (BFLOAT, 16):
        return BF16
    if tensor.lanes != 1 or tensor.code not in kinds or tensor.bits % 8:
        raise BufferError(f"DLPack type {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes: numpy has none such")
    kind = kinds[tensor.code]
    return np.dtype(bool) if kind == "b" else np.dtype(f"{kind}{tensor.bits // 8}")


def contiguous(shape: Sequence[int], strides: Sequence[int] | None, unit: int) -> bool:
    """Whether elements lie one after the other in C's order; ``strides`` are in units of which an element has ``unit``."""
    if strides is None or not math.prod(shape):
        return True
    step = unit
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True
