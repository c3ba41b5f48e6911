"""Runs the kernel beside it on the first AMD GPU (pip install numpy).

It needs ROCm, or HIP's runtime library with clang and lld of 18 or newer.
"""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np

ROCM = Path("/opt/rocm")  # where ROCm is by default; what is in the paths of the system is found too


def library() -> ctypes.CDLL:
    for name in (ROCM / "lib/libamdhip64.so", "libamdhip64.so", *(f"libamdhip64.so.{n}" for n in (7, 6, 5))):
        try:
            return ctypes.CDLL(str(name))
        except OSError:
            continue
    raise SystemExit("libamdhip64.so was not found: install ROCm's HIP runtime, or add its folder to LD_LIBRARY_PATH")


hip = library()


def call(name: str, *arguments: Any) -> None:
    if status := getattr(hip, name)(*arguments):
        raise SystemExit(f"{name}: error {status}")


def compiled(source: Path, flags: list[str]) -> bytes:
    """The code object of a text, by the clang of ROCm or the newest in the path."""
    names = [str(ROCM / "llvm/bin/clang"), *(f"clang-{n}" for n in range(30, 17, -1)), "clang"]
    clang = next((found for name in names if (found := shutil.which(name))), None)
    if clang is None:
        raise SystemExit("clang was not found: install ROCm, or clang and lld of 18 or newer")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "kernel.co")
        subprocess.run([clang, *flags, "-o", str(place), str(source)], check=True)
        return place.read_bytes()


described, buffers, expected = common.load()
call("hipInit", 0)
memory = []
for buffer in buffers:
    memory.append(ctypes.c_void_p())
    call("hipMalloc", ctypes.byref(memory[-1]), ctypes.c_size_t(buffer.nbytes))
    call("hipMemcpyHtoDAsync", memory[-1], ctypes.c_void_p(buffer.ctypes.data), ctypes.c_size_t(buffer.nbytes), None)
modules = {}
for launch in described["launches"]:
    if launch["source"] not in modules:
        code = compiled(common.HERE / launch["source"], launch["flags"])
        modules[launch["source"]] = ctypes.c_void_p()
        call("hipModuleLoadData", ctypes.byref(modules[launch["source"]]), code)
    function = ctypes.c_void_p()
    call("hipModuleGetFunction", ctypes.byref(function), modules[launch["source"]], launch["entry"].encode())
    given = [ctypes.addressof(memory[k]) for k in launch["args"]]
    pointers = (ctypes.c_void_p * len(given))(*given)
    sizes = (*launch["groups"], *launch["items"], launch["shared"])
    call("hipModuleLaunchKernel", function, *sizes, None, pointers, None)
results = [np.empty_like(buffer) for buffer in buffers]
for result, place in zip(results, memory, strict=True):
    call("hipMemcpyDtoHAsync", ctypes.c_void_p(result.ctypes.data), place, ctypes.c_size_t(result.nbytes), None)
call("hipDeviceSynchronize")
common.judge(described, results, expected)
