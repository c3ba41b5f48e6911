"""The fake ``libcuda.so.1`` under the cuda-bindings that are installed. Kernels are Python functions by name.

Once loaded it is the ``libcuda.so.1`` of the whole process. It has a device while a test has one: see ``no_device``.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).with_name("libcuda.cpp")
FLAGS = ("-std=c++17", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wl,-soname,libcuda.so.1")
CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_uint,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
)
POINTER = 8  # bytes of a parameter that is one
ILLEGAL_ADDRESS, LAUNCH_FAILED = 700, 719
INT_ARGUMENTS = {
    "fake_reset": (ctypes.c_int,) * 3,
    "fake_fail": (ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "fake_memory": (ctypes.c_size_t,),
    "fake_extent": (ctypes.c_uint64,),
}


class KernelError(Exception):
    """What a kernel of a test raises to fail on the device with the error ``status``."""

    def __init__(self, status: int) -> None:
        super().__init__(f"error {status}")
        self.status = status


@functools.cache
def _library() -> ctypes.CDLL:
    folder = tempfile.TemporaryDirectory(prefix="fake-libcuda-")
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "libcuda.so.1"
    subprocess.run(["g++", *FLAGS, str(SOURCE), "-o", str(path), "-ldl"], check=True)
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    for name, arguments in INT_ARGUMENTS.items():
        getattr(library, name).argtypes = arguments
    library.fake_log.restype = ctypes.c_char_p
    for name in ("extent", "allocated", "modules", "graphs", "streams"):
        getattr(library, f"fake_{name}").restype = ctypes.c_size_t
    return library


class FakeDriver:
    """``bindings`` is the real ``cuda.bindings.driver``. ``reset`` forgets all but memory that is still held.

    A kernel is given the bytes from each pointer to its allocation's end, and the bytes of each other parameter.
    """

    def __init__(
        self,
        kernels: Mapping[str, Callable[..., None]] | None = None,
        capability: tuple[int, int] = (8, 0),
        shared: int = 163 << 10,
    ) -> None:
        self.library = _library()
        self.kernels = kernels or {}
        self.error: Exception | None = None  # of a kernel that was no KernelError
        self.library.fake_reset(*capability, shared)
        self._callback = CALLBACK(self._launched)
        self.library.fake_on_launch(self._callback)
        from cuda.bindings import driver  # finds the library that is loaded

        self.bindings = driver
        driver.cuInit(0)

    def _launched(self, name, grid, block, shared, count, pointers, sizes) -> int:
        arguments = []
        for i in range(count):
            if sizes[i] == POINTER:
                address = ctypes.c_uint64.from_address(pointers[i]).value
                if not self.library.fake_extent(address):
                    return ILLEGAL_ADDRESS
                arguments.append(self.memory(address))
            else:
                arguments.append(np.frombuffer(ctypes.string_at(pointers[i], sizes[i]), np.uint8))
        try:
            self.kernels.get(name.decode(), lambda *arrays: None)(*arguments)
        except KernelError as error:
            return error.status
        except Exception as error:
            self.error = error
            return LAUNCH_FAILED
        return 0

    def memory(self, address: int, nbytes: int | None = None) -> np.ndarray:
        """The device's bytes from an address on, to the end of its allocation or so many."""
        extent = self.library.fake_extent(address)
        assert extent, f"no memory at {address:#x}"
        return np.frombuffer((ctypes.c_uint8 * (nbytes or extent)).from_address(address), np.uint8)

    def fail(self, function: str, status: int, after: int = 0) -> None:
        """The call after ``after`` more of ``function`` fails."""
        self.library.fake_fail(function.encode(), after, status)

    @property
    def log(self) -> list[str]:
        """What the device did, in order."""
        return self.library.fake_log().decode().splitlines()

    def done(self, *kinds: str) -> list[str]:
        """The first words of the log's lines, of these kinds."""
        return [line.split()[0] for line in self.log if line.split()[0] in kinds]

    def clear_log(self) -> None:
        self.library.fake_clear_log()

    @staticmethod
    def no_device() -> None:
        """As on a machine without one: for the tests after this."""
        if _library.cache_info().currsize:
            _library().fake_absent()

    def held(self) -> dict[str, int]:
        """What nobody has given back."""
        names = ("allocated", "modules", "graphs", "contexts")
        return {name: getattr(self.library, f"fake_{name}")() for name in names}
