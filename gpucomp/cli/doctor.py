"""Lists the packages, devices, drivers and tools of this machine; what each optional one is for, and the command that
installs what is missing."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import os
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import gpucomp
from gpucomp import config
from gpucomp.device import hip
from gpucomp.device.processor import model_name, tiles_refused
from gpucomp.errors import DeviceError
from gpucomp.extras import COMMAND_LINE, COMPILER, EXTRAS, RUNTIME, compiler_is_here, install
from gpucomp.lazy_dataclass import dataclass
from gpucomp.targets.opencl import too_old

ALTERNATIVES = {"cuda13": "cuda12", "cuda12": "cuda13"}  # one of the two is enough, and both together do not work
TOOLS = (
    ("g++", "apt-get install g++", "runs CUDA kernels on the CPU in the tests"),
    ("clang", "apt-get install clang", "checks OpenCL kernels for AMD and Mali in the tests"),
    ("oclgrind", "apt-get install oclgrind", "finds races in OpenCL kernels in the tests"),
)
CPU_FEATURES = (
    "sse4.2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx512f",
    "avx512vnni",
    "avx512bf16",
    "avxvnni",
    "amx-tile",
    "amx-bf16",
    "amx-int8",
    "neon",
    "sve",
)


@dataclass(frozen=True)
class Row:
    """One thing that was looked for, and in words what was found, or what is missing and how to install it."""

    name: str
    found: str


@dataclass(frozen=True)
class Section:
    title: str
    rows: tuple[Row, ...]


def findings() -> list[Section]:
    """Everything that is looked for on this machine."""
    looked_for = {
        "gpucomp": _python,
        "packages": _packages,
        "optional packages": _optional_packages,
        "cpu": _cpu,
        "opencl": _opencl,
        "cuda": _cuda,
        "hip": _hip,
        "tools for the tests": _tools,
        "settings": _settings,
    }
    return [Section(title, tuple(look())) for title, look in looked_for.items()]


def lines(found: Sequence[Section]) -> list[str]:
    """The report as text: a title and its rows for each section, with empty lines between them."""
    texts = [[section.title, *(f"  {row.name:20} {row.found}" for row in section.rows)] for section in found]
    return [line for k, text in enumerate(texts) for line in [*([""] if k else []), *text]]


def as_json(found: Sequence[Section]) -> dict[str, Any]:
    """The rows of each section, and the targets that can run here. A name can come again: each device of a platform is a row."""
    return {
        "targets": targets_found(),
        **{section.title: [asdict(row) for row in section.rows] for section in found},
    }


def targets_found() -> list[str]:
    """The targets that can run here: always the CPU; OpenCL, CUDA and HIP if there is a device."""
    there = {"opencl": _has_opencl_device(), "cuda": _has_gpu(), "hip": hip.has_gpu()}
    return ["cpu", *(kind for kind, found in there.items() if found)]


def _has_opencl_device() -> bool:
    try:
        cl = importlib.import_module("pyopencl")
    except (ImportError, OSError):
        return False
    try:
        return any(not too_old(device) for place in cl.get_platforms() for device in place.get_devices())
    except cl.Error:
        return False


def _has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def _python() -> Iterator[Row]:
    yield Row("version", gpucomp.__version__)
    yield Row("python", f"{platform.python_version()} ({platform.platform()})")


def version_of(package: str) -> str | None:
    """The installed version of a package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _names(extra: str) -> list[str]:
    """The packages of an extra, without versions. PoCL has a package of its own, which pyopencl's extra of this name installs."""
    if extra == "pocl":
        return ["pocl-binary-distribution"]
    return [re.split(r"[<>=\[]", requirement, maxsplit=1)[0] for requirement in EXTRAS[extra].packages]


def _packages() -> Iterator[Row]:
    if not compiler_is_here():
        yield Row("compiler", "not installed: gpucomp-runtime runs compiled models (.gpuc)")
    for package in (*RUNTIME, *(COMPILER if compiler_is_here() else ()), *COMMAND_LINE):
        yield Row(package, version_of(package) or f"missing: pip install {package}")


def _optional_packages() -> Iterator[Row]:
    for extra, one in EXTRAS.items():
        found = {name: version_of(name) for name in _names(extra)}
        missing = [name for name, version in found.items() if version is None]
        there = ", ".join(f"{name} {version}" for name, version in found.items() if version is not None)
        other = ALTERNATIVES.get(extra)
        if missing and other and all(version_of(name) for name in _names(other)):
            yield Row(extra, f"not needed beside {other}")
            continue
        told = f"{there}{'; ' if there else ''}{', '.join(missing)} missing: {install(extra)}" if missing else there
        yield Row(extra, f"{one.purpose}: {told}")
    both = [name for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy") if version_of(name)]
    if len(both) > 1:
        yield Row("conflict", f"{' and '.join(both)} are both installed: pip uninstall all but one")


def _cpu() -> Iterator[Row]:
    yield Row("processor", model_name())
    yield Row("usable cores", str(len(os.sched_getaffinity(0))))
    try:
        llvm = importlib.import_module("llvmlite.binding")
    except (ImportError, OSError) as error:
        yield Row("LLVM", f"not usable: {error}")
        return
    features = llvm.get_host_cpu_features()
    yield Row("LLVM", ".".join(map(str, llvm.llvm_version_info)))
    yield Row("LLVM's name for it", llvm.get_host_cpu_name())
    yield Row("features", " ".join(f for f in CPU_FEATURES if features.get(f)) or "none that gpucomp uses")
    refused = tiles_refused()
    yield Row("tile registers", f"not used: {refused}" if refused else "used, for --precision bf16 and int8")


def _opencl() -> Iterator[Row]:
    try:
        cl = importlib.import_module("pyopencl")
    except (ImportError, OSError) as error:
        yield Row("pyopencl", f"not usable ({error}): {install('pocl')}")
        return
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        yield Row("platforms", f"none ({error}): {install('pocl')}, or apt-get install pocl-opencl-icd")
        return
    for place in platforms:
        try:
            devices = place.get_devices()
        except cl.Error as error:
            yield Row(place.name, f"no device ({error})")
            continue
        for device in devices:
            memory, reason = device.global_mem_size / (1 << 30), too_old(device)
            yield Row(
                place.name,
                f"{device.name.strip()}: {device.max_compute_units} units, {memory:.1f} GiB, "
                f"work-groups of {device.max_work_group_size}, "
                f"{device.local_mem_size >> 10} KiB local, driver {device.driver_version}"
                f"{reason and f'; left out: {reason}'}",
            )


def _cuda() -> Iterator[Row]:
    yield from _cuda_driver()
    version = version_of("nvidia-cuda-nvrtc") or version_of("nvidia-cuda-nvrtc-cu12")
    yield Row("NVRTC", version or f"missing, needed to compile for CUDA: {install('nvrtc')}")


def _cuda_driver() -> Iterator[Row]:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield Row("driver", "missing: NVIDIA's driver is needed to run; compiling needs none")
        return
    if status := driver.cuInit(0):
        yield Row("driver", f"there, but cuInit gives error {status}: no GPU, or no permission to use it")
        return
    number = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(number))
    yield Row("driver", f"for CUDA {number.value // 1000}.{number.value % 1000 // 10}")
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    for index in range(count.value):
        name = ctypes.create_string_buffer(256)
        driver.cuDeviceGetName(name, 256, index)
        major, minor = ctypes.c_int(), ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(major), 75, index)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, index)
        yield Row(f"device {index}", f"{name.value.decode(errors='replace')}, sm_{major.value}{minor.value}")
    for names in (("cupy-cuda13x", "cupy-cuda12x", "cupy"), ("cuda-bindings",)):
        if not any(map(version_of, names)):
            yield Row(names[0], f"missing, needed to run: {install('cuda13')}")


def _hip() -> Iterator[Row]:
    yield from _hip_runtime()
    if not compiler_is_here():
        return
    from gpucomp.targets import amdgcn  # of the compiler

    clangs, linker = amdgcn.compilers("hip"), amdgcn.linker()
    yield Row("clang", ", ".join(clangs) or f"missing: {amdgcn.missing('hip').message}")
    yield Row("lld", linker or f"missing, needed to compile for hip: apt-get install {amdgcn.PACKAGES['hip']}")
    yield Row("measured", "nothing: no kernel for hip has run on an AMD GPU yet")


def _hip_runtime() -> Iterator[Row]:
    try:
        library = hip.runtime()
    except DeviceError as error:
        yield Row("runtime", f"missing, needed to run: {error.message}")
        return
    yield Row("runtime", f"version {hip.version(library)}")
    try:
        for number in range(hip.count(library)):
            found = hip.gpu(library, number)
            yield Row(f"device {number}", f"{found.name}, {found.arch or 'of an unknown instruction set'}")
    except DeviceError as error:
        yield Row("devices", f"none: {error.message}")


def _tools() -> Iterator[Row]:
    for name, command, purpose in TOOLS:
        yield Row(name, shutil.which(name) or f"missing: {command} ({purpose})")


def _setting(name: str, value: object) -> str:
    """A setting as its variable is written, with the meaning of a default that does not tell it."""
    if isinstance(value, bool):
        return str(int(value))
    if (name, value) == ("threads", 0):
        return "0: one for each usable core"
    if value == config.SHIPPED:
        return "not set: the records of the package"
    return "not set" if value is None else str(value)


def _settings() -> Iterator[Row]:
    settings = config.current()
    for name in settings.__dataclass_fields__:
        yield Row("ROCM_PATH" if name == "rocm" else f"GPUCOMP_{name.upper()}", _setting(name, getattr(settings, name)))
    if settings.cache is not None:
        folder = settings.cache
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not os.access(folder, os.W_OK):
            yield Row("cache", f"{folder} is not writable: kernels are compiled anew every time")
