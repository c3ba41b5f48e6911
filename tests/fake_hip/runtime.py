"""The fake ``libamdhip64.so``, and code objects that hold no instructions. Kernels are Python functions by name."""

from __future__ import annotations

import atexit
import ctypes
import functools
import struct
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from gpucomp.runtime.hip_arrays import HipArrays
from gpucomp.runtime.hip_driver import CALLS, HipDriver

SOURCE = Path(__file__).with_name("libamdhip64.cpp")
FLAGS = ("-std=c++17", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall")
MACHINES = {"gfx90a": 0x3F, "gfx1100": 0x41, "gfx942": 0x4C, "gfx1201": 0x4E}  # EF_AMDGPU_MACH
CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_uint,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_uint64),
)
ILLEGAL_ADDRESS, LAUNCH_FAILED = 700, 719
GPUS = 2


@functools.cache
def library() -> ctypes.CDLL:
    folder = tempfile.TemporaryDirectory(prefix="fake-hip-")
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "libamdhip64.so"
    subprocess.run(["g++", *FLAGS, str(SOURCE), "-o", str(path)], check=True)
    made = ctypes.CDLL(str(path))
    made.fake_log.restype = ctypes.c_char_p
    made.fake_code.restype, made.fake_code.argtypes = ctypes.c_void_p, (ctypes.POINTER(ctypes.c_size_t),)
    made.fake_extent.argtypes, made.fake_memory.argtypes = (ctypes.c_uint64,), (ctypes.c_size_t,)
    made.fake_time.argtypes = (ctypes.c_float,)
    for name in ("extent", "allocated", "modules", "graphs", "streams", "events"):
        getattr(made, f"fake_{name}").restype = ctypes.c_size_t
    return made


class FakeHip:
    """``arrays`` is for ``HipProgram``. A kernel is given the bytes from each address to its allocation's end."""

    def __init__(
        self, kernels: Mapping[str, Callable[..., None]] | None = None, arch: str = "gfx90a", gpus: int = GPUS
    ) -> None:
        self.library, self.kernels = library(), kernels or {}
        self.error: Exception | None = None  # of a kernel
        self.library.fake_reset(arch.encode(), gpus)
        self._callback = CALLBACK(self._launched)
        self.library.fake_on_launch(self._callback)
        self.arrays = HipArrays(HipDriver(self.library))

    def _launched(self, name, grid, block, shared, count, values) -> int:
        if not all(self.library.fake_extent(values[i]) for i in range(count)):
            return ILLEGAL_ADDRESS
        try:
            self.kernels.get(name.decode(), lambda *arrays: None)(*(self.memory(values[i]) for i in range(count)))
        except Exception as error:
            self.error = error
            return LAUNCH_FAILED
        return 0

    def memory(self, address: int, nbytes: int | None = None) -> np.ndarray:
        """The device's bytes from an address on, to the end of its allocation or so many."""
        extent = self.library.fake_extent(address)
        assert extent, f"no memory at {address:#x}"
        return np.frombuffer((ctypes.c_uint8 * (nbytes or extent)).from_address(address), np.uint8)

    def code(self) -> bytes:
        """The code object of the kernel that runs."""
        size = ctypes.c_size_t()
        return ctypes.string_at(self.library.fake_code(ctypes.byref(size)), size.value)

    def fail(self, function: str, status: int, after: int = 0) -> None:
        """The call after ``after`` more of ``function``, by its name in HIP or in CUDA's driver, fails."""
        function = CALLS[function].name if function in CALLS else function
        self.library.fake_fail(function.encode(), after, status)

    @property
    def log(self) -> list[str]:
        """What the GPU did, in order."""
        return self.library.fake_log().decode().splitlines()

    def clear_log(self) -> None:
        self.library.fake_clear_log()

    def done(self, *kinds: str) -> list[str]:
        """The first words of the log's lines, of these kinds."""
        return [line.split()[0] for line in self.log if line.split()[0] in kinds]

    def held(self) -> dict[str, int]:
        """What nobody has given back."""
        return {name: getattr(self.library, f"fake_{name}")() for name in ("allocated", "modules", "graphs", "streams")}


def code_object(name: str, parameters: int, arch: str = "gfx90a") -> bytes:
    """As much of a code object as is read before a launch: its header, its kernel's name and its parameters' kinds."""
    body = b"\0" + name.encode() + b".kd\0" + b".value_kind\xadglobal_buffer" * parameters
    table = 64 + len(body)
    header = b"\x7fELF" + bytes([2, 1, 1, 64, 4]) + bytes(7)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, table, MACHINES[arch], 64, 0, 0, 64, 0, 0)
    return header + body
