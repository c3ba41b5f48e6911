"""Values outside sessions: ``OrtValue``, on the processor or in a GPU's memory, and what says where one lies."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from gpucomp.ort.enums import OrtAllocatorType, OrtDeviceMemoryType, OrtMemType
from gpucomp.ort.exceptions import NotImplemented as NotHere
from gpucomp.ort.exceptions import error
from gpucomp.ort.model import NUMBERS, numpy_type, tensor_text
from gpucomp.runtime.inputs import CPU_MEMORY

NO_DEVICE = "gpucomp has no memory on the device '{}': one of cpu, cuda expected"


class OrtDevice:
    """A device by onnxruntime's name, such as ``cpu`` or ``cuda``, and its number."""

    def __init__(self, name: str = "cpu", number: int = 0) -> None:
        self._name, self._number = name, number

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        return OrtDevice(ort_device_name.lower(), device_id)

    @staticmethod
    def cpu() -> int:
        return 0

    @staticmethod
    def cuda() -> int:
        return 1

    def device_id(self) -> int:
        return self._number

    def device_type(self) -> int:
        return 1 if self._name == "cuda" else 0

    def device_vendor_id(self) -> int:
        return 0x10DE if self._name == "cuda" else 0

    def device_mem_type(self) -> OrtDeviceMemoryType:
        return OrtDeviceMemoryType.DEFAULT


class OrtMemoryInfo:
    """Where values lie: the allocator's name, its kind, and the device's number."""

    def __init__(self, name: str, kind: OrtAllocatorType, number: int, mem_type: OrtMemType) -> None:
        self.name, self.allocator_type, self.device_id, self.mem_type = name, kind, number, mem_type
        self.device_mem_type = OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = 0


class SparseTensor:
    """Refused: gpucomp has no sparse tensors outside models."""

    def __init__(self, *given: Any) -> None:
        _no_sparse()

    @staticmethod
    def sparse_coo_from_numpy(*given: Any) -> NoReturn:
        _no_sparse()

    @staticmethod
    def sparse_csr_from_numpy(*given: Any) -> NoReturn:
        _no_sparse()


def _no_sparse() -> NoReturn:
    raise error(NotHere, "sparse tensors: give dense ones")


class OrtValue:
    """A tensor, or a sequence as a list of arrays, or a map. Made by its class methods, and by runs of ``OrtValue``.

    A tensor made of a numpy array shares its memory.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """The array's memory; on ``cuda`` a copy of it there. Raises ``RuntimeError`` for a device that is not here."""
        return cls(_on(np.asarray(numpy_obj), device_type))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, onnx_element_type: int) -> OrtValue:
        """The array's memory as elements of an ONNX type of the same size, for types that numpy does not have."""
        wanted = numpy_type(int(onnx_element_type))
        if wanted.itemsize != data.dtype.itemsize:
            raise RuntimeError(f"elements of {wanted.itemsize} bytes expected, found {data.dtype}")
        return cls(data.view(wanted))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """A tensor of unspecified elements. ``element_type`` is a numpy type or a number of ONNX. ``memory_info`` says the device
        in the place of the others.
        """
        if memory_info is not None:
            device_type = memory_info.name.lower()
        dtype = numpy_type(element_type) if isinstance(element_type, int) else np.dtype(element_type)
        if device_type == "cpu":
            return cls(np.empty(tuple(shape), dtype))
        return cls(_cupy(device_type).empty(tuple(shape), dtype))

    @classmethod
    def from_dlpack(cls, data: Any) -> OrtValue:
        """The memory of any array with ``__dlpack__`` or of a capsule, or a copy of what numpy only reads.

        Raises ``TypeError`` for another object.
        """
        if not hasattr(data, "__dlpack__"):
            data = _Capsule(data)
        if data.__dlpack_device__()[0] not in CPU_MEMORY:
            return cls(_cupy("cuda").from_dlpack(data))
        try:
            return cls(np.from_dlpack(data))
        except BufferError:  # a type that numpy lacks, or memory that must not be written
            if isinstance(data, _Capsule):
                raise
            return cls(np.array(data))

    def numpy(self) -> np.ndarray:
        """The tensor as a numpy array: its own memory, or a copy of a GPU's. Raises ``RuntimeError`` for another value."""
        tensor = self._tensor()
        return tensor if isinstance(tensor, np.ndarray) else tensor.get()

    def _tensor(self) -> Any:
        if not self.is_tensor():
            raise RuntimeError("Only OrtValues that are Tensors are currently supported")
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **how: Any) -> Any:
        return self._value.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return tuple(self._value.__dlpack_device__())

    def update_inplace(self, data: np.ndarray | OrtValue) -> None:
        """Copy an array or tensor of the same size and type into this one. Raises ``RuntimeError`` for another."""
        own = self._tensor()
        if not isinstance(data, (np.ndarray, OrtValue)):
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        found = data._tensor() if isinstance(data, OrtValue) else data
        if found.size != own.size:
            raise RuntimeError("The input size of numpy arrays does not match the size of the OrtValue.")
        if found.dtype != own.dtype:
            raise RuntimeError(f"elements of {own.dtype} expected, found {found.dtype}")
        if isinstance(own, np.ndarray):
            found = found if isinstance(found, np.ndarray) else found.get()
        else:
            found = _cupy("cuda").asarray(found)
        own[...] = found.reshape(own.shape)

    def data_ptr(self) -> int:
        """The address of the first element."""
        tensor = self._tensor()
        return int(tensor.ctypes.data if isinstance(tensor, np.ndarray) else tensor.data.ptr)

    def device_name(self) -> str:
        return "cpu" if not self.is_tensor() or isinstance(self._value, np.ndarray) else "cuda"

    def shape(self) -> list[int]:
        return list(self._tensor().shape)

    def data_type(self) -> str:
        """``tensor(float)``, ``seq(tensor(int64))`` ..."""
        if self.is_tensor():
            return tensor_text(self._value.dtype)
        if isinstance(self._value, dict):
            return "map"
        return f"seq({tensor_text(np.asarray(self._value[0]).dtype) if self._value else 'tensor(float)'})"

    def element_type(self) -> int:
        """ONNX's number of the element type, also of the tensors in a sequence. Raises ``RuntimeError`` if there is none."""
        name = self.data_type().rpartition("(")[2].rstrip(")")
        if name not in NUMBERS:
            raise RuntimeError(f"{self.data_type()} has no element type of ONNX")
        return NUMBERS[name]

    def tensor_size_in_bytes(self) -> int:
        return int(self._tensor().nbytes)

    def has_value(self) -> bool:
        return self._value is not None

    def is_tensor(self) -> bool:
        return hasattr(self._value, "dtype")

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return isinstance(self._value, list) and not (self._value and isinstance(self._value[0], dict))

    def as_sparse_tensor(self) -> NoReturn:
        _no_sparse()

    @property
    def value(self) -> Any:
        """What a run is given: an array, or a list or dict of them."""
        return self._value


class _Capsule:
    """A capsule of DLPack, which early programs hand over as it is, with the methods of an array. Raises ``TypeError``."""

    def __init__(self, capsule: Any) -> None:
        if type(capsule).__name__ != "PyCapsule":
            raise TypeError(f"an array with __dlpack__ or a capsule of DLPack expected, found {type(capsule).__name__}")
        self._capsule = capsule

    def __dlpack__(self, **how: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        """Kind and number of the device, which come after the address of the elements. Raises ``ValueError`` if it is used up."""
        content = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
        address = content(("PyCapsule_GetPointer", ctypes.pythonapi))(self._capsule, b"dltensor")
        kind, number = (ctypes.c_int32 * 2).from_address(address + ctypes.sizeof(ctypes.c_void_p))
        return kind, number


def array_at(pointer: int, device: str, shape: Sequence[int], dtype: np.dtype) -> Any:
    """An array of the caller's memory: numpy's, or cupy's on ``cuda``. Raises ``RuntimeError`` for another device."""
    count = math.prod(shape)
    if device == "cpu":
        memory: Any = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(pointer)
        return np.frombuffer(memory, dtype, count).reshape(shape)
    cupy = _cupy(device)
    memory = cupy.cuda.UnownedMemory(pointer, count * dtype.itemsize, None)
    return cupy.ndarray(tuple(shape), dtype, cupy.cuda.MemoryPointer(memory, 0))


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy each tensor of ``src`` into that of ``dst``, of the same size and type."""
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


def _on(array: np.ndarray, device: str) -> Any:
    return array if device == "cpu" else _cupy(device).asarray(array)


def _cupy(device: str) -> Any:
    if device != "cuda":
        raise RuntimeError(NO_DEVICE.format(device))
    try:
        import cupy
    except ImportError:
        raise RuntimeError(f"{NO_DEVICE.format(device)}; cupy is not installed") from None
    return cupy
