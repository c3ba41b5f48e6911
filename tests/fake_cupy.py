"""As much of cupy as ``CudaProgram`` uses, on numpy memory, without a GPU. Kernels are Python functions by name.

While a stream captures, launches are recorded and not run; anything that waits or copies to the host is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np


class Memory:
    def __init__(self, data: np.ndarray, offset: int = 0) -> None:
        self.data, self.offset = data, offset

    def __add__(self, offset: int) -> Memory:
        return Memory(self.data, self.offset + offset)


class Array:
    def __init__(self, cupy: FakeCupy, data: np.ndarray) -> None:
        self.cupy, self.data = cupy, data

    def set(self, array: np.ndarray, stream: Any = None) -> None:
        self.cupy.outside_capture("set")
        assert array.shape == self.data.shape, "cupy refuses another shape"
        self.data[:] = array

    def get(self, stream: Any = None, out: np.ndarray | None = None) -> np.ndarray:
        self.cupy.outside_capture("get")
        if out is None:
            return self.data.copy()
        assert out.shape == self.data.shape, "cupy refuses another shape"
        out[:] = self.data
        return out

    def fill(self, value: int) -> None:
        assert self.cupy.current is not None, "filled on no stream"
        self.cupy.outside_capture("fill")
        self.data[:] = value

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.data.ctypes.data, False), "shape": self.data.shape, "typestr": "|u1", "version": 3}

    def __setitem__(self, where: Any, value: Any) -> None:
        assert value.shape == self.data.shape
        self.data[:] = value


class Stream:
    def __init__(self, cupy: FakeCupy, non_blocking: bool = False) -> None:
        self.cupy, self.device, self.ptr = cupy, cupy.current_device, 77

    def __enter__(self) -> Stream:
        assert self.cupy.current_device == self.device, "a stream of another device"
        self.cupy.current = self
        return self

    def __exit__(self, *error: object) -> None:
        self.cupy.current = None

    def synchronize(self) -> None:
        self.cupy.outside_capture("synchronize")

    def begin_capture(self) -> None:
        assert self.cupy.recording is None
        self.cupy.recording = []

    def end_capture(self) -> Graph:
        recorded, self.cupy.recording = self.cupy.recording, None
        self.cupy.log.append("capture")
        return Graph(self.cupy, recorded)


class Graph:
    def __init__(self, cupy: FakeCupy, calls: list[Callable[[], None]]) -> None:
        self.cupy, self.calls = cupy, calls

    def launch(self, stream: Stream) -> None:
        self.cupy.log.append("replay")
        for call in self.calls:
            call()


class Device:
    """Entering one makes it the current one, as in cupy."""

    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy, self.id, self.before = cupy, cupy.current_device, 0

    def __enter__(self) -> Device:
        self.before, self.cupy.current_device = self.cupy.current_device, self.id
        return self

    def __exit__(self, *error: object) -> None:
        self.cupy.current_device = self.before


class Function:
    """Like cupy's, which is compiled: an attribute that is not here cannot be set."""

    __slots__ = ("cupy", "name", "ptr")

    def __init__(self, cupy: FakeCupy, name: str) -> None:
        self.cupy, self.name, self.ptr = cupy, name, 1000 + len(cupy.shared_limits)
        cupy.shared_limits[self.ptr] = (48 << 10) - cupy.static_shared

    def __call__(self, grid: tuple, block: tuple, args: tuple, shared_mem: int = 0) -> None:
        assert self.cupy.current is not None, "launched on no stream"
        assert shared_mem <= self.cupy.shared_limits[self.ptr]

        def call() -> None:
            self.cupy.kernels[self.name](*(a.data for a in args))

        if self.cupy.recording is not None:
            self.cupy.recording.append(call)
            return
        self.cupy.log.append("launch")
        call()


class Failure(RuntimeError):
    """As ``CUDARuntimeError``: with the number of the error."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class Names:
    """As an enumeration of cuda-bindings: every name is itself."""

    def __getattr__(self, name: str) -> str:
        return name


class FakeDriver:
    """As much of ``cuda.bindings.driver`` as is used. A descriptor is the number of what it was made from in ``maps``."""

    CUtensorMapDataType = CUtensorMapInterleave = CUtensorMapSwizzle = CUtensorMapL2promotion = Names()
    CUtensorMapFloatOOBfill = CUlaunchAttributeID = Names()

    def __init__(self, cupy: FakeCupy | None = None, status: int = 0) -> None:
        self.cupy, self.status = cupy, status
        self.maps: list[tuple[str, tuple[Any, ...]]] = []
        self.launched: list[SimpleNamespace] = []

    @staticmethod
    def cuuint32_t(value: int) -> int:
        assert 0 <= value < 1 << 32
        return value

    @staticmethod
    def cuuint64_t(value: int) -> int:
        assert 0 <= value < 1 << 64
        return value

    def _encode(self, kind: str, *arguments: Any) -> tuple[int, SimpleNamespace]:
        self.maps.append((kind, arguments))
        return self.status, SimpleNamespace(opaque=[len(self.maps) - 1, *[0] * 15])

    def cuTensorMapEncodeTiled(self, *arguments: Any) -> tuple[int, SimpleNamespace]:
        assert len(arguments) == 11
        return self._encode("tiled", *arguments)

    def cuTensorMapEncodeIm2col(self, *arguments: Any) -> tuple[int, SimpleNamespace]:
        assert len(arguments) == 14
        return self._encode("im2col", *arguments)

    @staticmethod
    def CUlaunchAttribute() -> SimpleNamespace:
        return SimpleNamespace(value=SimpleNamespace())

    @staticmethod
    def CUlaunchConfig() -> SimpleNamespace:
        return SimpleNamespace()

    def cuLaunchKernelEx(self, config: SimpleNamespace, function: int, parameters: int, extra: int) -> tuple[int]:
        assert self.cupy is not None
        assert config.numAttrs <= len(config.attrs)
        config.function, config.parameters = function, parameters
        self.launched.append(config)
        self.cupy.log.append("overlapping launch")
        return (self.status,)


class FakeCupy:
    def __init__(
        self,
        kernels: dict[str, Callable[..., None]],
        capability: tuple[int, int] = (8, 0),
        shared: int = 163 << 10,
        static_shared: int = 0,
    ) -> None:
        self.kernels, self.log = kernels, []
        self.static_shared = static_shared  # bytes that each function declares
        self.current_device = 0
        self.shared_limits: dict[int, int] = {}  # of dynamic shared memory, by function
        self.recording: list[Callable[[], None]] | None = None
        self.current: Stream | None = None
        self.loaded: list[bytes] = []
        fake = self

        class Module:
            def load(self, binary: bytes) -> None:
                if not binary.startswith((b"cubin", b"ptx")):
                    raise Failure("device kernel image is invalid")
                fake.loaded.append(binary)

            def get_function(self, name: str) -> Function:
                return Function(fake, name)

        class Event:
            def record(self, stream: Stream) -> None:
                fake.log.append("event")

            def synchronize(self) -> None:
                fake.outside_capture("synchronize")

        self.cuda = SimpleNamespace(
            Stream=lambda non_blocking=False: Stream(fake, non_blocking),
            alloc=lambda nbytes: Memory(np.full(nbytes, 255, np.uint8)),
            function=SimpleNamespace(Module=Module),
            Event=Event,
            get_elapsed_time=lambda start, end: 2.0,
            Device=lambda: Device(fake),
            runtime=SimpleNamespace(
                CUDARuntimeError=Failure,
                deviceGetAttribute=lambda number, device: dict(zip((75, 76, 97), (*capability, shared), strict=True))[
                    number
                ],
            ),
            driver=SimpleNamespace(
                CUDADriverError=Failure,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
                funcSetAttribute=self.set_attribute,
            ),
            memory=SimpleNamespace(OutOfMemoryError=MemoryError),
        )

    def set_attribute(self, function: int, attribute: int, value: int) -> None:
        assert attribute == 8
        self.shared_limits[function] = value

    def outside_capture(self, what: str) -> None:
        assert self.recording is None, f"{what} while a graph is captured"

    def ndarray(self, shape: tuple[int], dtype: Any, memptr: Memory) -> Array:
        return Array(self, memptr.data[memptr.offset : memptr.offset + shape[0]])

    def empty(self, shape: tuple[int], dtype: Any) -> Array:
        return Array(self, np.full(shape, 255, np.uint8))

    def zeros(self, shape: tuple[int], dtype: Any) -> Array:
        return Array(self, np.zeros(shape, np.uint8))

    def asarray(self, value: Any) -> np.ndarray:
        return np.asarray(value.array)
