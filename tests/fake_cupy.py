"""As much of cupy as the CUDA runtime uses: its devices, streams, events and memory pool, on the fake ``libcuda.so.1``."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fake_driver.driver import FakeDriver

NON_BLOCKING = 1


class Failure(RuntimeError):
    """As ``CUDARuntimeError``: with the number of the error."""

    def __init__(self, status: int = 1) -> None:
        super().__init__(f"error {status}")
        self.status = status


class OutOfMemoryError(Exception):
    pass


class Memory:
    """As ``MemoryPointer``, and the block it points to, which goes back to the pool with it."""

    def __init__(self, cupy: FakeCupy, address: int, nbytes: int, stream: int) -> None:
        self.ptr, self.nbytes = address, nbytes
        weakref.finalize(self, cupy.free_blocks.setdefault(stream, []).append, (nbytes, address)).atexit = False


class Array:
    """In the order of C or of Fortran, as the array that it is made of."""

    def __init__(self, cupy: FakeCupy, array: np.ndarray, stream: Stream | None = None) -> None:
        self.cupy, self.dtype, self.shape, self.data = cupy, array.dtype, array.shape, cupy.alloc(array.nbytes)
        self.flags = SimpleNamespace(c_contiguous=array.flags.c_contiguous)
        self.device = Device(cupy)
        self.stream = stream or cupy.default_stream
        source = array if array.flags.c_contiguous else array.T
        cupy.call("cuMemcpyHtoDAsync", self.data.ptr, source.ctypes.data, source.nbytes, self.stream.ptr)

    def copy(self, order: str) -> Array:
        """By the current stream, which nobody waits for, of what is there by now."""
        assert order == "C"
        assert not self.flags.c_contiguous
        found = self.cupy.driver.memory(self.data.ptr, int(np.prod(self.shape)) * self.dtype.itemsize)
        array = np.ascontiguousarray(found.view(self.dtype).reshape(self.shape[::-1]).T)
        return Array(self.cupy, array, self.cupy.cuda.get_current_stream())

    def set(self, array: np.ndarray) -> None:
        """By the default stream, waiting for it."""
        assert array.shape == self.shape
        assert array.dtype == self.dtype
        source = np.ascontiguousarray(array)
        self.cupy.call(
            "cuMemcpyHtoDAsync", self.data.ptr, source.ctypes.data, source.nbytes, self.cupy.default_stream.ptr
        )
        self.cupy.default_stream.synchronize()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.data.ptr, False), "shape": self.shape, "typestr": self.dtype.str, "version": 2}


class Stream:
    def __init__(self, cupy: FakeCupy, non_blocking: bool = False) -> None:
        self.cupy, self.device = cupy, cupy.current_device
        self.ptr = int(cupy.call("cuStreamCreate", NON_BLOCKING if non_blocking else 0))
        weakref.finalize(self, cupy.quietly, "cuStreamDestroy", self.ptr).atexit = False

    def __enter__(self) -> Stream:
        assert self.cupy.current_device == self.device, "a stream of another device"
        self.cupy.streams.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self.cupy.streams.pop()

    def synchronize(self) -> None:
        self.cupy.call("cuStreamSynchronize", self.ptr)


class External(Stream):
    """A stream that somebody else made; 0 is the default one."""

    def __init__(self, cupy: FakeCupy, handle: int) -> None:
        self.cupy, self.device, self.ptr = cupy, cupy.current_device, handle or cupy.default_stream.ptr


class Event:
    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy, self.event = cupy, cupy.call("cuEventCreate", 0)
        weakref.finalize(self, cupy.quietly, "cuEventDestroy", self.event).atexit = False

    def record(self, stream: Stream) -> None:
        self.cupy.call("cuEventRecord", self.event, stream.ptr)

    def synchronize(self) -> None:
        self.cupy.call("cuEventSynchronize", self.event)


class Device:
    """Entering one makes it the current one, as in cupy. The runtime binds a context where one is needed."""

    def __init__(self, cupy: FakeCupy, number: int | None = None) -> None:
        self.cupy, self.id, self.before = cupy, cupy.current_device if number is None else number, 0

    def __enter__(self) -> Device:
        self.before, self.cupy.current_device = self.cupy.current_device, self.id
        return self

    def __exit__(self, *error: object) -> None:
        self.cupy.current_device = self.before

    def synchronize(self) -> None:
        self.cupy.call("cuCtxSynchronize")


class FakeCupy:
    """``kernels``, ``capability`` and ``shared`` are those of the device, see ``FakeDriver``."""

    def __init__(
        self,
        kernels: Mapping[str, Callable[..., None]] | None = None,
        capability: tuple[int, int] = (8, 0),
        shared: int = 163 << 10,
    ) -> None:
        self.driver = FakeDriver(kernels, capability, shared)
        self.bindings = self.driver.bindings
        self.contexts = [self._bound(number) for number in range(2)]
        self.current_device = 0
        self.streams: list[Stream] = []  # entered
        self.free_blocks: dict[int, list[tuple[int, int]]] = {}  # the pool: bytes and address, by stream
        self.default_stream = Stream(self)
        fake = self
        self.cuda = SimpleNamespace(
            Stream=lambda non_blocking=False: Stream(fake, non_blocking),
            ExternalStream=lambda handle: External(fake, handle),
            Event=lambda: Event(fake),
            Device=lambda number=None: Device(fake, number),
            alloc=self.alloc,
            alloc_pinned_memory=self.alloc_pinned_memory,
            get_current_stream=lambda: fake.streams[-1] if fake.streams else fake.default_stream,
            get_elapsed_time=lambda start, end: fake.call("cuEventElapsedTime", start.event, end.event),
            runtime=SimpleNamespace(CUDARuntimeError=Failure, setDevice=self.set_device),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        )

    def _bound(self, number: int) -> Any:
        status, context = self.bindings.cuDevicePrimaryCtxRetain(number)
        assert not status
        return context

    def call(self, function: str, *arguments: Any) -> Any:
        """By the runtime, which calls the driver in the current device's context, whatever a thread has bound."""
        bindings = self.bindings
        bindings.cuCtxPushCurrent(self.contexts[self.current_device])
        try:
            status, *results = getattr(bindings, function)(*arguments)
        finally:
            bindings.cuCtxPopCurrent()
        if int(status):
            raise Failure(int(status))
        return results[0] if results else None

    def quietly(self, function: str, *arguments: Any) -> None:
        getattr(self.bindings, function)(*arguments)

    def set_device(self, number: int) -> None:
        self.current_device = number

    def alloc(self, nbytes: int) -> Memory:
        stream = self.streams[-1].ptr if self.streams else 0
        blocks = self.free_blocks.setdefault(stream, [])
        for block in blocks:
            if block[0] == nbytes:
                blocks.remove(block)
                return Memory(self, block[1], nbytes, stream)
        try:
            return Memory(self, int(self.call("cuMemAlloc", nbytes)), nbytes, stream)
        except Failure as error:
            if error.status == 2:
                raise OutOfMemoryError("out of memory") from error
            raise

    def alloc_pinned_memory(self, nbytes: int) -> Any:
        address = int(self.call("cuMemHostAlloc", nbytes, 0))
        return (ctypes.c_uint8 * nbytes).from_address(address)

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(free_all_blocks=self.free_all_blocks)

    def free_all_blocks(self, stream: Stream | None = None) -> None:
        for key in [stream.ptr] if stream is not None else list(self.free_blocks):
            for _, address in self.free_blocks.pop(key, []):
                self.call("cuMemFree", address)

    def asarray(self, value: Any) -> Any:
        """Of what has ``__cuda_array_interface__``: nobody waits for the stream that made it."""
        assert value.__cuda_array_interface__["version"] == 2
        return value if isinstance(value, Array) else value.array

    def ndarray(self, shape: tuple[int, ...], dtype: Any, memptr: Memory) -> Array:
        """Of memory that may hold anything."""
        array = object.__new__(Array)
        array.cupy, array.dtype, array.shape, array.data = self, np.dtype(dtype), tuple(shape), memptr
        array.flags, array.device = SimpleNamespace(c_contiguous=True), Device(self)
        array.stream = self.cuda.get_current_stream()
        return array

    def from_dlpack(self, value: Any) -> Any:
        """The capsule is an ``Array``."""
        return value.__dlpack__(stream=self.cuda.get_current_stream().ptr)

    def array(self, array: np.ndarray, stream: Stream | None = None) -> Array:
        """In the device's memory, once ``stream`` comes to it."""
        return Array(self, array, stream)
