"""HIP's driver functions by ctypes: kernels, launches, graphs, streams, events, memory and copies.

``HipDriver`` is called with the names of CUDA's driver API, which HIP follows, so that one program runs on both
(``gpucomp.runtime.gpu``). Errors have the names of HIP's own functions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from gpucomp.device import forks
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.cuda_driver import Driver, DriverCallError, PreparedLaunch

POINTER, SIZE, INT, UINT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint
RELAXED = 2  # hipStreamCaptureModeRelaxed
NO_FLAGS = 0
NOT_INITIALIZED = 3  # hipErrorNotInitialized


@dataclass(frozen=True)
class Call:
    """A function of HIP: the types of its arguments, and where among them the result's address stands, if it has one."""

    name: str
    arguments: tuple[Any, ...]
    result: Any = None
    at: int = 0


CALLS = {
    "cuInit": Call("hipInit", (UINT,)),
    "cuCtxSynchronize": Call("hipDeviceSynchronize", ()),
    "cuMemAlloc": Call("hipMalloc", (SIZE,), POINTER),
    "cuMemFree": Call("hipFree", (POINTER,)),
    "cuMemHostAlloc": Call("hipHostMalloc", (SIZE, UINT), POINTER),
    "cuMemFreeHost": Call("hipHostFree", (POINTER,)),
    "cuMemsetD8Async": Call("hipMemsetD8Async", (POINTER, ctypes.c_ubyte, SIZE, POINTER)),
    "cuMemcpyHtoDAsync": Call("hipMemcpyHtoDAsync", (POINTER, POINTER, SIZE, POINTER)),
    "cuMemcpyDtoHAsync": Call("hipMemcpyDtoHAsync", (POINTER, POINTER, SIZE, POINTER)),
    "cuMemcpyDtoDAsync": Call("hipMemcpyDtoDAsync", (POINTER, POINTER, SIZE, POINTER)),
    "cuStreamCreate": Call("hipStreamCreateWithFlags", (UINT,), POINTER),
    "cuStreamDestroy": Call("hipStreamDestroy", (POINTER,)),
    "cuStreamSynchronize": Call("hipStreamSynchronize", (POINTER,)),
    "cuStreamWaitEvent": Call("hipStreamWaitEvent", (POINTER, POINTER, UINT)),
    "cuStreamBeginCapture": Call("hipStreamBeginCapture", (POINTER, INT)),
    "cuStreamEndCapture": Call("hipStreamEndCapture", (POINTER,), POINTER, 1),
    "cuEventCreate": Call("hipEventCreateWithFlags", (UINT,), POINTER),
    "cuEventDestroy": Call("hipEventDestroy", (POINTER,)),
    "cuEventRecord": Call("hipEventRecord", (POINTER, POINTER)),
    "cuEventSynchronize": Call("hipEventSynchronize", (POINTER,)),
    "cuEventElapsedTime": Call("hipEventElapsedTime", (POINTER, POINTER), ctypes.c_float),
    "cuGraphInstantiate": Call("hipGraphInstantiateWithFlags", (POINTER, ctypes.c_ulonglong), POINTER),
    "cuGraphLaunch": Call("hipGraphLaunch", (POINTER, POINTER)),
    "cuGraphDestroy": Call("hipGraphDestroy", (POINTER,)),
    "cuGraphExecDestroy": Call("hipGraphExecDestroy", (POINTER,)),
    "cuModuleLoadData": Call("hipModuleLoadData", (ctypes.c_char_p,), POINTER),
    "cuModuleUnload": Call("hipModuleUnload", (POINTER,)),
    "cuModuleGetFunction": Call("hipModuleGetFunction", (POINTER, ctypes.c_char_p), POINTER),
    "cuLaunchKernel": Call("hipModuleLaunchKernel", (POINTER, *(UINT,) * 7, POINTER, POINTER, POINTER)),
    "cuCtxGetDevice": Call("hipGetDevice", (), INT),
    "cuCtxSetDevice": Call("hipSetDevice", (INT,)),  # HIP's current device is a thread's, without contexts
}


class HipDriver(Driver):
    """``bindings`` is the library (``gpucomp.device.hip.runtime``); the context of a device is its number."""

    def __call__(self, function: str, *arguments: Any) -> Any:
        call = CALLS[function]
        if forks.is_child():  # AMD's runtime may never return
            raise DriverCallError(f"{call.name}: the process was forked", NOT_INITIALIZED)
        given: list[Any] = [convert(value) for convert, value in zip(call.arguments, arguments, strict=True)]
        result = call.result() if call.result is not None else None
        if result is not None:
            given.insert(call.at, ctypes.byref(result))
        self.check(call.name, int(getattr(self.bindings, call.name)(*given)))
        return result.value if result is not None else ()

    def _text(self, status: int) -> str:
        ask = self.bindings.hipGetErrorString
        ask.restype = ctypes.c_char_p
        text = ask(status)
        return text.decode(errors="replace") if text else "an unknown error"

    @property
    def relaxed(self) -> int:
        return RELAXED

    @contextmanager
    def current(self, context: Any) -> Iterator[None]:
        before = self("cuCtxGetDevice")
        self("cuCtxSetDevice", context)
        try:
            yield
        finally:
            with suppress(DriverCallError):  # the device is lost: the error that lost it is being raised
                self("cuCtxSetDevice", before)


class HipLaunch(PreparedLaunch):
    """A launch by ``hipModuleLaunchKernel``. Each parameter's address is given; the code object tells the sizes."""

    def __init__(
        self,
        driver: Driver,
        function: Any,
        groups: Sequence[int],
        items: Sequence[int],
        shared: int,
        stream: int,
        arguments: Sequence[np.ndarray],
    ) -> None:
        super().__init__(driver, arguments)
        self._given = function, *groups, *items, shared, stream, ctypes.addressof(self._pointers), None

    def __call__(self, overlap: bool = True) -> None:
        self._driver("cuLaunchKernel", *self._given)
