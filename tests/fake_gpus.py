"""One interface to the fake GPUs of CUDA and HIP, for tests of what programs on both have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from gpucomp.device import hip as hip_device
from gpucomp.device.target import Target
from gpucomp.runtime import cuda as cuda_runtime
from gpucomp.runtime import dlpack, hip_arrays
from gpucomp.runtime import hip as hip_runtime
from gpucomp.runtime.copies import TO_DEVICE
from gpucomp.runtime.gpu import GpuProgram
from gpucomp.targets import cuda, hip
from tests.fake_cupy import FakeCupy
from tests.fake_driver.cubins import cubin
from tests.fake_hip.runtime import FakeHip, code_object

KINDS = ("cuda", "hip")
Kernels = Mapping[str, Callable[..., None]]


class Cuda(FakeCupy):
    """``binary(n)`` is code of the kernel "k0", which takes ``n`` addresses. ``arrays`` is what programs are given."""

    kind: ClassVar[str] = "cuda"
    memory_kind: ClassVar[int] = 2  # kDLCUDA

    @property
    def arrays(self) -> Any:
        return self

    def target(self) -> Target:
        return cuda.manifest("sm_80")

    def binary(self, parameters: int) -> bytes:
        return cubin("k0", [8] * parameters)

    def opened(self, *parts: Any) -> GpuProgram:
        return cuda_runtime.CudaProgram(*parts, cupy=self)

    def exported(self, array: Any, stream: int) -> Any:
        """``array`` by DLPack: ``stream`` waits for the stream that wrote it."""
        event = self.call("cuEventCreate", 0)
        self.call("cuEventRecord", event, array.stream.ptr)
        self.call("cuStreamWaitEvent", stream, event, 0)
        return array

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Executables run here, and arrays are those of this GPU."""
        monkeypatch.setitem(sys.modules, "cupy", self)
        monkeypatch.setattr(cuda_runtime, "import_cupy", lambda: self)


class Hip:
    """The same for HIP."""

    kind: ClassVar[str] = "hip"
    memory_kind: ClassVar[int] = dlpack.ROCM

    def __init__(self, kernels: Mapping[str, Callable[..., None]]) -> None:
        self.driver = FakeHip(kernels)
        self.arrays = self.driver.arrays
        self.cuda, self.ndarray = self.arrays.cuda, self.arrays.ndarray
        self._sources: list[np.ndarray] = []  # which streams may still have to read

    def target(self) -> Target:
        return hip.manifest("gfx90a")

    def binary(self, parameters: int) -> bytes:
        return code_object("k0", parameters)

    def opened(self, *parts: Any) -> GpuProgram:
        return hip_runtime.HipProgram(*parts, arrays=self.arrays)

    def array(self, array: np.ndarray, stream: hip_arrays.Stream | None = None) -> hip_arrays.Array:
        """In the device's memory, once ``stream`` comes to it."""
        source, memory = np.array(array, order="K"), self.arrays.alloc(array.nbytes)
        made = hip_arrays.Array(
            self.arrays, array.shape, array.dtype, memory, contiguous=bool(source.flags.c_contiguous)
        )
        made.stream = stream or self.cuda.ExternalStream(0)
        self._sources.append(source)
        self.arrays.driver.copy(TO_DEVICE, memory.ptr, source.ctypes.data, source.nbytes, made.stream.ptr)
        return made

    def exported(self, array: hip_arrays.Array, stream: int) -> Any:
        with array.stream:
            return array.__dlpack__(stream=stream)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hip_device, "runtime", lambda: self.driver.library)
        for module in (hip_arrays, hip_runtime):
            monkeypatch.setattr(module, "shared", lambda: self.arrays)


Gpu = Cuda | Hip
GPUS: Mapping[str, Callable[[Mapping[str, Callable[..., None]]], Gpu]] = {"cuda": Cuda, "hip": Hip}
