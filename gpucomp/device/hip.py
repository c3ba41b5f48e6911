"""AMD's HIP runtime library: where it is, and what it says of the GPUs. It needs no compiler and no package of Python."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

from gpucomp import config
from gpucomp.device import forks
from gpucomp.errors import DeviceError
from gpucomp.lazy_dataclass import dataclass

LIBRARY = "libamdhip64.so"
VERSIONS = range(9, 4, -1)  # of the ABI, by which the library is named; ROCm 5, 6 and 7 have those numbers
INSTALL = "apt-get install rocm-hip-runtime (from AMD's repository), or Debian's libamdhip64-5"
PROPERTIES = ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties")  # of ROCm 6 and later, and of older ones
PROPERTIES_BYTES = 8192  # more than any version's structure


@dataclass(frozen=True)
class Gpu:
    """``arch`` is the instruction set without its features, as ``gfx90a``; empty if none is told."""

    name: str
    arch: str


def candidates() -> list[str]:
    """The names that the library is looked for by, in order: ROCm's folder if the environment names one, then the loader's."""
    names = [LIBRARY, *(f"{LIBRARY}.{version}" for version in VERSIONS)]
    rocm = config.current().rocm
    return [str(Path(rocm) / "lib" / name) for name in names if rocm is not None] + names


@cache
def runtime() -> ctypes.CDLL:
    """HIP's runtime library. Raises ``DeviceError`` (GPC5001) if it is not here."""
    for name in candidates():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError(
        f"AMD's HIP runtime ({LIBRARY}, from ROCm) was not found: {INSTALL}, or name its folder in ROCM_PATH; to compile for "
        "a GPU in another machine, name its instruction set: hip:gfx90a",
        code="GPC5001",
    )


def count(library: ctypes.CDLL) -> int:
    """The number of GPUs. Raises ``DeviceError``: GPC5001 if there is none, GPC5021 in a child of a process that uses one."""
    forks.refuse_in_child()
    found = ctypes.c_int()
    status = library.hipGetDeviceCount(ctypes.byref(found))
    if status or found.value < 1:
        raise DeviceError(
            f"the HIP runtime finds no usable GPU (error {status}); rocminfo should list one. The user must be in the groups "
            "render and video",
            code="GPC5001",
        )
    forks.use_gpu()
    return found.value


def gpu(library: ctypes.CDLL, number: int) -> Gpu:
    """What the library says of a GPU. Raises ``DeviceError`` (GPC5001)."""
    ask = next((getattr(library, name) for name in PROPERTIES if hasattr(library, name)), None)
    if ask is None:
        raise DeviceError("the HIP runtime does not describe GPUs: ROCm 5, 6 or 7 expected", code="GPC5001")
    found = ctypes.create_string_buffer(PROPERTIES_BYTES)
    if status := ask(found, number):
        raise DeviceError(f"the HIP runtime does not describe GPU {number} (error {status})", code="GPC5001")
    # the structure differs between versions; the name stands first, and gcnArchName alone begins with gfx after it
    name = found.value
    arch = re.search(rb"gfx[0-9a-f]+", found.raw[len(name) :]) or re.search(rb"gfx[0-9a-f]+", name)
    return Gpu(name.decode(errors="replace"), arch[0].decode() if arch else "")


def version(library: ctypes.CDLL) -> int:
    """The runtime's version, as 60342134 for 6.3.42134; 0 if it does not tell."""
    found = ctypes.c_int()
    return 0 if library.hipRuntimeGetVersion(ctypes.byref(found)) else found.value


def has_gpu() -> bool:
    """Whether a GPU can be used here through HIP."""
    try:
        return count(runtime()) > 0
    except DeviceError:
        return False
