"""The CUDA driver API through cuda-bindings: kernels, launches, graphs, copies and tensor maps.

Memory and streams are cupy's. Failing calls raise ``DriverCallError``; ``CudaProgram`` turns it into a gpucomp error.
"""

from __future__ import annotations

import ctypes
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from gpucomp.artifact.tensor_map import ELEMENT_BYTES, TensorMap
from gpucomp.errors import DeviceError
from gpucomp.extras import install
from gpucomp.runtime.copies import FROM_DEVICE, ON_DEVICE, TO_DEVICE, note

COPIES = {TO_DEVICE: "cuMemcpyHtoDAsync", FROM_DEVICE: "cuMemcpyDtoHAsync", ON_DEVICE: "cuMemcpyDtoDAsync"}
ELEMENTS = {"f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "tf32": "TFLOAT32", "i8": "UINT8"}
SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
MAP_BYTES = 128  # size and alignment of a CUtensorMap
MAP_VERSION = 12000  # the CUDA version that introduced tensor maps


def import_driver() -> Any:
    """Import ``cuda.bindings.driver``. Raises ``DeviceError`` that names the package to install."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DeviceError(f"cuda-bindings is not installed: {install('cuda13')}", code="GPC5002") from error


def import_cupy() -> Any:
    """Import cupy. Raises ``DeviceError`` that names the extra to install."""
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise DeviceError(f"cupy is not installed: {install('cuda13')}", code="GPC5002") from error


class DriverCallError(Exception):
    """A call of the driver failed; ``status`` is the ``CUresult``."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Driver:
    """``driver("cuMemAlloc", 16)`` checks the status of the call and returns its other results."""

    def __init__(self, bindings: Any) -> None:
        self.bindings = bindings  # the module, for its enumerations and structures

    def __call__(self, function: str, *arguments: Any) -> Any:
        status, *results = getattr(self.bindings, function)(*arguments)
        self.check(function, int(status))
        return results[0] if len(results) == 1 else tuple(results)

    def copy(self, way: str, target: int, source: int, nbytes: int, stream: int) -> None:
        """Enqueue a copy between two addresses, and count it. ``way`` is one of ``copies.WAYS``."""
        note(way, nbytes)
        self(COPIES[way], target, source, nbytes, stream)

    def check(self, function: str, status: int) -> None:
        """Raise ``DriverCallError`` unless ``status`` means success."""
        if status:
            raise DriverCallError(f"{function}: {self._text(status)} (error {status})", status)

    def _text(self, status: int) -> str:
        try:
            _, text = self.bindings.cuGetErrorString(self.bindings.CUresult(status))
        except ValueError:  # the driver is newer than the package
            text = None
        return text.decode(errors="replace") if text else "an unknown error"

    @property
    def relaxed(self) -> Any:
        """The mode of captures in which a thread may allocate and free."""
        return self.bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED

    @contextmanager
    def current(self, context: Any) -> Iterator[None]:
        """Run the block with ``context`` as the current context of this thread."""
        self("cuCtxPushCurrent", context)
        try:
            yield
        finally:
            with suppress(DriverCallError):  # the context is lost: the error that lost it is being raised
                self("cuCtxPopCurrent")


def loaded(driver: Driver, image: bytes) -> Any:
    """Load a module from a cubin, or from PTX, which the driver compiles."""
    return driver("cuModuleLoadData", image if image.startswith(b"\x7fELF") else image + b"\0")


def function_of(driver: Driver, module: Any, name: str, shared: int) -> Any:
    """A kernel that can be launched with ``shared`` bytes of dynamic shared memory.

    Without the attribute a kernel gets at most 48 KiB minus its static shared memory, so the attribute is always set.
    """
    function = driver("cuModuleGetFunction", module, name.encode())
    if shared:
        attribute = driver.bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver("cuFuncSetAttribute", function, attribute, shared)
    return function


class PreparedLaunch(ABC):
    """A launch that is prepared once; each call launches it. ``arguments`` hold each parameter's bytes and are kept alive."""

    def __init__(self, driver: Driver, arguments: Sequence[np.ndarray]) -> None:
        self._driver, self._arguments = driver, tuple(arguments)
        self._pointers = (ctypes.c_void_p * len(arguments))(*(a.ctypes.data for a in self._arguments))

    def set_address(self, index: int, address: int) -> None:
        """The address of a buffer for the next launches."""
        self._arguments[index][0] = address

    def set_bytes(self, index: int, content: np.ndarray) -> None:
        """The bytes of another parameter, as many as before."""
        self._arguments[index][...] = content

    @abstractmethod
    def __call__(self, overlap: bool = True) -> None:
        """Launch the kernel. Without ``overlap`` it starts after the previous launch has ended."""


class KernelLaunch(PreparedLaunch):
    """A launch by CUDA's driver.

    A ``programmatic`` kernel waits for the earlier launches inside its code, so it can start before they end (programmatic
    dependent launch).
    """

    def __init__(
        self,
        driver: Driver,
        function: Any,
        groups: Sequence[int],
        items: Sequence[int],
        shared: int,
        stream: int,
        arguments: Sequence[np.ndarray],
        *,
        programmatic: bool,
    ) -> None:
        super().__init__(driver, arguments)
        config = self._config = driver.bindings.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = groups
        config.blockDimX, config.blockDimY, config.blockDimZ = items
        config.sharedMemBytes, config.hStream = shared, stream
        if programmatic:
            attribute = driver.bindings.CUlaunchAttribute()
            attribute.id = driver.bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs = [attribute]
        self._function, self._programmatic = function, programmatic

    def __call__(self, overlap: bool = True) -> None:
        self._config.numAttrs = int(self._programmatic and overlap)
        self._driver("cuLaunchKernelEx", self._config, self._function, ctypes.addressof(self._pointers), 0)


def captured(driver: Driver, stream: int, launch_all: Callable[[], None]) -> Any:
    """Capture what ``launch_all`` enqueues as a graph that is ready to launch. Errors of ``launch_all`` pass through."""
    # in the other modes a cuMemFree of this thread ends the capture, and the garbage collector may cause one at any time
    driver("cuStreamBeginCapture", stream, driver.relaxed)
    try:
        launch_all()
    except BaseException:
        with suppress(DriverCallError):  # it would only say that something failed before
            driver("cuGraphDestroy", driver("cuStreamEndCapture", stream))
        raise
    graph = driver("cuStreamEndCapture", stream)
    try:
        return driver("cuGraphInstantiate", graph, 0)
    finally:
        driver("cuGraphDestroy", graph)


def encoded(driver: Driver, spec: TensorMap, address: int) -> np.ndarray:
    """The tensor map ``spec`` for a parameter at ``address``, encoded: 128 bytes, aligned to 128.

    The driver's function is called by its address, because cuda-bindings writes to an object of its own, which need not be
    aligned as cuda.h requires. Raises ``DeviceError`` if the driver refuses the map.
    """
    bindings, result = driver.bindings, _aligned(MAP_BYTES)
    element = getattr(bindings.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{ELEMENTS[spec.dtype]}")
    swizzle = getattr(bindings.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{SWIZZLES[spec.swizzle]}")
    layout = (
        bindings.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle,
        bindings.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        bindings.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    extents, strides = _array(ctypes.c_uint64, spec.extents), _array(ctypes.c_uint64, spec.strides)
    array = (
        ctypes.c_void_p(result.ctypes.data),
        int(element),
        len(spec.extents),
        ctypes.c_void_p(address + spec.offset),
        extents,
        strides,
    )
    steps = _array(ctypes.c_uint32, spec.steps)
    if spec.is_im2col:
        function = "cuTensorMapEncodeIm2col"
        corners = (_array(ctypes.c_int, spec.lower), _array(ctypes.c_int, spec.upper))
        box: tuple[Any, ...] = (*corners, spec.channels, spec.pixels)
    else:
        function, box = "cuTensorMapEncodeTiled", (_array(ctypes.c_uint32, spec.box),)
    pointer, _ = driver("cuGetProcAddress", function.encode(), MAP_VERSION, 0)
    encode = ctypes.CFUNCTYPE(ctypes.c_int)(pointer)
    try:
        driver.check(function, encode(*array, *box, steps, *map(int, layout)))
    except DriverCallError as error:
        raise DeviceError(f"CUDA: no tensor map of {spec}: {error}", code="GPC5016") from error
    strides = (ELEMENT_BYTES[spec.dtype], *spec.strides)
    if sum(s * (n - 1) for s, n in zip(strides, spec.extents, strict=True)) < SMALL_BYTES:
        _without_fault(result, driver("cuDriverGetVersion"))
    return result


# Drivers of CUDA 13.1 and before set a bit in maps of small memory by mistake; loads by such a map may then fail on Blackwell.
# NVIDIA's release notes of driver 595.71.05, "Known issues", say what to clear; CUTLASS clears it in maps of less than 128 KiB
# (cute/atom/copy_traits_sm90_tma.hpp).
SMALL_BYTES, LAST_FAULTY, FAULT = 128 << 10, 13010, np.uint64(1 << 21)


def _without_fault(encoded_map: np.ndarray, version: int) -> None:
    if version <= LAST_FAULTY:
        encoded_map.view(np.uint64)[1] &= ~FAULT


def _array(ctype: Any, values: Sequence[int]) -> Any:
    return (ctype * len(values))(*values)


def _aligned(nbytes: int) -> np.ndarray:
    memory = np.zeros(2 * nbytes, np.uint8)
    start = -memory.ctypes.data % nbytes
    return memory[start : start + nbytes]
