"""Arrays, streams, events and a memory pool on AMD's GPUs by ctypes alone, with as much of cupy's interface as programs use.

Other libraries take an ``Array`` by ``__dlpack__`` (kDLROCM) or ``__cuda_array_interface__``, which torch and cupy for ROCm have
as well.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpucomp.device import hip
from gpucomp.runtime import dlpack
from gpucomp.runtime.copies import FROM_DEVICE, TO_DEVICE
from gpucomp.runtime.cuda_driver import DriverCallError
from gpucomp.runtime.hip_driver import HipDriver

NON_BLOCKING = 1  # hipStreamNonBlocking
OUT_OF_MEMORY = 2  # hipErrorOutOfMemory


class Memory:
    """A block of the device's memory, which goes back to the pool of its stream with this object."""

    def __init__(self, arrays: HipArrays, address: int, nbytes: int, key: tuple[int, int]) -> None:
        self.ptr, self.nbytes = address, nbytes
        weakref.finalize(self, arrays.give_back, key, nbytes, address).atexit = False


class Stream:
    """A stream of the current device. A block with it makes it the current one of the thread."""

    def __init__(self, arrays: HipArrays, non_blocking: bool = False, handle: int | None = None) -> None:
        self._arrays = arrays
        if handle is None:
            driver = arrays.driver
            self.ptr = int(driver("cuStreamCreate", NON_BLOCKING if non_blocking else 0))
            weakref.finalize(self, _quietly, driver, "cuStreamDestroy", self.ptr).atexit = False
        else:
            self.ptr = handle

    def __enter__(self) -> Stream:
        self._arrays.entered().append(self.ptr)
        return self

    def __exit__(self, *error: object) -> None:
        self._arrays.entered().pop()

    def synchronize(self) -> None:
        """Wait until the stream has done everything."""
        self._arrays.driver("cuStreamSynchronize", self.ptr)


class Event:
    """An event that takes the time."""

    def __init__(self, arrays: HipArrays) -> None:
        self._driver, self.event = arrays.driver, arrays.driver("cuEventCreate", 0)
        weakref.finalize(self, _quietly, self._driver, "cuEventDestroy", self.event).atexit = False

    def record(self, stream: Stream) -> None:
        self._driver("cuEventRecord", self.event, stream.ptr)

    def synchronize(self) -> None:
        self._driver("cuEventSynchronize", self.event)


class Device:
    """A GPU by its number; the thread's current one without. A block with it makes it the current one."""

    def __init__(self, arrays: HipArrays, number: int | None = None) -> None:
        self._driver = arrays.driver
        self.id = int(self._driver("cuCtxGetDevice")) if number is None else number
        self._blocks = threading.local()

    def __enter__(self) -> Device:
        if not hasattr(self._blocks, "open"):
            self._blocks.open = []
        block = self._driver.current(self.id)
        block.__enter__()
        self._blocks.open.append(block)
        return self

    def __exit__(self, *error: object) -> None:
        self._blocks.open.pop().__exit__(None, None, None)

    def synchronize(self) -> None:
        """Wait until the GPU has done everything."""
        with self:
            self._driver("cuCtxSynchronize")


class Array:
    """An array in a GPU's memory: ``data.ptr`` is its address. ``owner`` is what the memory belongs to."""

    def __init__(
        self,
        arrays: HipArrays,
        shape: tuple[int, ...],
        dtype: np.dtype,
        data: Any,
        *,
        contiguous: bool = True,
        owner: object = None,
        gpu: int | None = None,
    ) -> None:
        self._arrays, self.shape, self.dtype, self.data, self._owner = arrays, shape, dtype, data, owner
        self.flags = SimpleNamespace(c_contiguous=contiguous)
        self.device = Device(arrays, gpu)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<Array {self.dtype}{list(self.shape)} on HIP GPU {self.device.id}>"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (int(self.data.ptr), False), "shape": self.shape, "typestr": self.dtype.str, "version": 2}

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.ROCM, self.device.id

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """A capsule. ``stream``, a HIP stream, goes on when the current stream has done what it was given; -1: no wait.

        Raises ``BufferError`` where a copy, or another device, is wanted.
        """
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("an array on a HIP GPU is exported where it is, without a copy")
        if stream is not None and stream != -1:
            self._arrays.let_wait(int(stream))
        return dlpack.exported(self, (dlpack.ROCM, self.device.id))

    def copy(self, order: str = "C") -> Array:
        """Arrays are contiguous here: raises ``BufferError`` for another library's that is not."""
        raise BufferError("a contiguous array expected on a HIP GPU: torch has .contiguous() for it")

    def get(self) -> np.ndarray:
        """A copy in the host's memory, after what the current stream was given."""
        if not self.flags.c_contiguous:
            self.copy()
        found = np.empty(self.shape, self.dtype)
        self._copy(FROM_DEVICE, found.ctypes.data, int(self.data.ptr))
        return found

    def set(self, values: np.ndarray) -> None:
        """Copy ``values``, of this shape and type, from the host's memory."""
        given = np.ascontiguousarray(np.broadcast_to(np.asarray(values, self.dtype), self.shape))
        self._copy(TO_DEVICE, int(self.data.ptr), given.ctypes.data)

    def __setitem__(self, key: object, values: np.ndarray) -> None:
        if key is not Ellipsis:
            raise TypeError("an array on a HIP GPU is written as a whole: array[...] = values")
        self.set(values)

    def _copy(self, way: str, target: int, source: int) -> None:
        if self.nbytes:
            stream = self._arrays.current_stream()
            with self.device:
                self._arrays.driver.copy(way, target, source, self.nbytes, stream)
                self._arrays.driver("cuStreamSynchronize", stream)


class HipArrays:
    """What a ``GpuProgram`` uses of cupy: ``cuda`` has its devices, streams, events and memory."""

    def __init__(self, driver: HipDriver) -> None:
        self.driver = driver
        self._thread = threading.local()
        self._free: dict[tuple[int, int], dict[int, list[int]]] = {}  # addresses by device and stream, and by size
        self.cuda = SimpleNamespace(
            Stream=functools.partial(Stream, self),
            ExternalStream=lambda handle: Stream(self, handle=handle),
            Event=functools.partial(Event, self),
            Device=functools.partial(Device, self),
            alloc=self.alloc,
            alloc_pinned_memory=self.alloc_pinned_memory,
            get_current_stream=lambda: Stream(self, handle=self.current_stream()),
            get_elapsed_time=lambda start, end: driver("cuEventElapsedTime", start.event, end.event),
            runtime=SimpleNamespace(CUDARuntimeError=DriverCallError, setDevice=self._set_device),
            memory=SimpleNamespace(OutOfMemoryError=DriverCallError),
        )

    def _set_device(self, number: int) -> None:
        self.driver("cuInit", 0)
        self.driver("cuCtxSetDevice", number)

    def entered(self) -> list[int]:
        """The streams of this thread's open blocks."""
        if not hasattr(self._thread, "streams"):
            self._thread.streams = []
        found: list[int] = self._thread.streams
        return found

    def current_stream(self) -> int:
        """The stream of the innermost block of this thread; 0 is the default stream."""
        streams = self.entered()
        return streams[-1] if streams else 0

    def let_wait(self, stream: int) -> None:
        """Let ``stream`` go on when the current stream has done what it was given so far."""
        current = self.current_stream()
        if stream != current:
            event = Event(self)
            self.driver("cuEventRecord", event.event, current)
            self.driver("cuStreamWaitEvent", stream, event.event, 0)

    # ---- memory ----

    def alloc(self, nbytes: int) -> Memory:
        """Memory from the pool of the current device and stream: what was freed there is used up before, in stream order.

        Raises ``DriverCallError`` without memory, when what the pools hold has been given back to the device.
        """
        key = int(self.driver("cuCtxGetDevice")), self.current_stream()
        with suppress(KeyError, IndexError):  # one step each: the collector may give memory back at any time
            return Memory(self, self._free[key][nbytes].pop(), nbytes, key)
        try:
            address = self.driver("cuMemAlloc", max(1, nbytes))
        except DriverCallError as error:
            if error.status != OUT_OF_MEMORY:
                raise
            self.free_all_blocks()
            address = self.driver("cuMemAlloc", max(1, nbytes))
        return Memory(self, int(address), nbytes, key)

    def give_back(self, key: tuple[int, int], nbytes: int, address: int) -> None:
        """Put a block into the pool."""
        self._free.setdefault(key, {}).setdefault(nbytes, []).append(address)

    def get_default_memory_pool(self) -> HipArrays:
        return self

    def free_all_blocks(self, stream: Any = None) -> None:
        """Give what a stream's pool holds, or every pool, back to the device."""
        for key in [key for key in list(self._free) if stream is None or key[1] == stream.ptr]:
            for addresses in self._free.pop(key, {}).values():
                for address in addresses:
                    self.driver("cuMemFree", address)

    def alloc_pinned_memory(self, nbytes: int) -> Any:
        """Memory of the host that copies take without staging, as an object with a buffer."""
        address = int(self.driver("cuMemHostAlloc", nbytes, 0))
        block = (ctypes.c_uint8 * nbytes).from_address(address)
        weakref.finalize(block, _quietly, self.driver, "cuMemFreeHost", address).atexit = False
        return block

    # ---- arrays ----

    def ndarray(self, shape: tuple[int, ...], dtype: Any, memptr: Any) -> Array:
        """An array of memory that may hold anything."""
        return Array(self, tuple(shape), np.dtype(dtype), memptr)

    def asarray(self, value: Any) -> Array:
        """``value`` if it is an ``Array``, else one of the same memory by ``__cuda_array_interface__``."""
        if isinstance(value, Array):
            return value
        found: Mapping[str, Any] = value.__cuda_array_interface__
        shape, dtype = tuple(found["shape"]), np.dtype(found["typestr"])
        contiguous = dlpack.contiguous(shape, found.get("strides"), dtype.itemsize)
        return Array(self, shape, dtype, SimpleNamespace(ptr=found["data"][0]), contiguous=contiguous, owner=value)

    def from_dlpack(self, value: Any) -> Array:
        """An array of the memory of ``value``, whose writes the current stream waits for. Raises ``BufferError``."""
        if isinstance(value, Array):
            return value
        kind, number = value.__dlpack_device__()
        if kind != dlpack.ROCM:
            raise BufferError("its memory is not that of a GPU of ROCm")
        taken = dlpack.imported(value.__dlpack__(stream=self.current_stream()))
        place = SimpleNamespace(ptr=taken.address)
        return Array(self, taken.shape, taken.dtype, place, contiguous=taken.contiguous, owner=taken, gpu=number)

    def asnumpy(self, array: Array) -> np.ndarray:
        return array.get()


def _quietly(driver: HipDriver, function: str, handle: int) -> None:
    with suppress(DriverCallError):  # of a lost device, or one that is gone
        driver(function, handle)


@functools.cache
def shared() -> HipArrays:
    """What all programs of this process use. Raises ``DeviceError`` (GPC5001) if HIP's runtime is not here."""
    return HipArrays(HipDriver(hip.runtime()))
