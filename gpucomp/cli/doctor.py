"""Lists the packages, devices, drivers and tools of this machine; for what is missing, the command that installs it."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Iterator

import gpucomp
from gpucomp import config
from gpucomp.device.processor import model_name, tiles_refused
from gpucomp.targets.opencl import too_old

PACKAGES = (
    ("numpy", "pip install gpucomp"),
    ("ml_dtypes", "pip install gpucomp"),
    ("onnx", "pip install gpucomp"),
    ("jinja2", "pip install gpucomp"),
    ("llvmlite", "pip install gpucomp"),
    ("click", "pip install gpucomp"),
    ("rich", "pip install gpucomp"),
    ("pyopencl", "pip install 'gpucomp[opencl]' (with a CPU device: 'gpucomp[pocl]')"),
    ("nvidia-cuda-nvrtc", "pip install 'gpucomp[nvrtc]' (compiles for CUDA; needs no GPU)"),
    ("cupy", "pip install 'gpucomp[cuda13]' (runs on NVIDIA GPUs)"),
    ("cuda-bindings", "pip install 'gpucomp[cuda13]' (runs on NVIDIA GPUs)"),
    ("onnxruntime", "pip install 'gpucomp[ort]' (run --compare onnxruntime)"),
    ("pillow", "pip install 'gpucomp[image]' (photos as inputs)"),
)
SEVERAL_NAMES = {
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "nvidia-cuda-nvrtc": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
}
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


def findings() -> list[str]:
    """Every line of the report."""
    return [*_python(), "", *_packages(), "", *_cpu(), "", *_opencl(), "", *_cuda(), "", *_tools(), "", *_settings()]


def targets_found() -> list[str]:
    """The targets that can run here: always the CPU; OpenCL and CUDA if there is a device."""
    return ["cpu", *(["opencl"] if _has_opencl_device() else []), *(["cuda"] if _has_gpu() else [])]


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


def _row(name: str, found: str) -> str:
    return f"  {name:20} {found}"


def _python() -> Iterator[str]:
    yield "gpucomp"
    yield _row("version", gpucomp.__version__)
    yield _row("python", f"{platform.python_version()} ({platform.platform()})")


def version_of(package: str) -> str | None:
    """The installed version of a package, under any of its names."""
    for name in SEVERAL_NAMES.get(package, (package,)):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _packages() -> Iterator[str]:
    yield "packages"
    for package, hint in PACKAGES:
        version = version_of(package)
        yield _row(package, version if version else f"missing: {hint}")
    both = [name for name in SEVERAL_NAMES["cupy"] if _installed(name)]
    if len(both) > 1:
        yield _row("conflict", f"{' and '.join(both)} are both installed: pip uninstall all but one")


def _installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _cpu() -> Iterator[str]:
    yield "cpu"
    yield _row("processor", model_name())
    yield _row("usable cores", str(len(os.sched_getaffinity(0))))
    try:
        llvm = importlib.import_module("llvmlite.binding")
    except (ImportError, OSError) as error:
        yield _row("LLVM", f"not usable: {error}")
        return
    features = llvm.get_host_cpu_features()
    yield _row("LLVM", ".".join(map(str, llvm.llvm_version_info)))
    yield _row("LLVM's name for it", llvm.get_host_cpu_name())
    yield _row("features", " ".join(f for f in CPU_FEATURES if features.get(f)) or "none that gpucomp uses")
    refused = tiles_refused()
    yield _row("tile registers", f"not used: {refused}" if refused else "used, for --precision bf16 and int8")


def _opencl() -> Iterator[str]:
    yield "opencl"
    try:
        cl = importlib.import_module("pyopencl")
    except (ImportError, OSError) as error:
        yield _row("pyopencl", f"not usable ({error}): pip install 'gpucomp[pocl]'")
        return
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        yield _row("platforms", f"none ({error}): pip install 'gpucomp[pocl]', or apt-get install pocl-opencl-icd")
        return
    for place in platforms:
        try:
            devices = place.get_devices()
        except cl.Error as error:
            yield _row(place.name, f"no device ({error})")
            continue
        for device in devices:
            memory, reason = device.global_mem_size / (1 << 30), too_old(device)
            yield _row(
                place.name,
                f"{device.name.strip()}: {device.max_compute_units} units, {memory:.1f} GiB, "
                f"work-groups of {device.max_work_group_size}, "
                f"{device.local_mem_size >> 10} KiB local, driver {device.driver_version}"
                f"{reason and f'; left out: {reason}'}",
            )


def _cuda() -> Iterator[str]:
    yield "cuda"
    yield from _cuda_driver()
    version = version_of("nvidia-cuda-nvrtc")
    yield _row("NVRTC", version if version else "missing: pip install 'gpucomp[nvrtc]'; needed to compile for CUDA")


def _cuda_driver() -> Iterator[str]:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield _row("driver", "missing: NVIDIA's driver is needed to run; compiling needs none")
        return
    if status := driver.cuInit(0):
        yield _row("driver", f"there, but cuInit gives error {status}: no GPU, or no permission to use it")
        return
    number = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(number))
    yield _row("driver", f"for CUDA {number.value // 1000}.{number.value % 1000 // 10}")
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    for index in range(count.value):
        name = ctypes.create_string_buffer(256)
        driver.cuDeviceGetName(name, 256, index)
        major, minor = ctypes.c_int(), ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(major), 75, index)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, index)
        yield _row(f"device {index}", f"{name.value.decode(errors='replace')}, sm_{major.value}{minor.value}")
    for package in ("cupy", "cuda-bindings"):
        if version_of(package) is None:
            yield _row(package, "missing: pip install 'gpucomp[cuda13]'; needed to run")


def _tools() -> Iterator[str]:
    yield "tools for the tests"
    for name, command, purpose in TOOLS:
        yield _row(name, shutil.which(name) or f"missing: {command} ({purpose})")


def _settings() -> Iterator[str]:
    settings = config.current()
    yield "settings"
    for name in settings.__dataclass_fields__:
        value = getattr(settings, name)
        yield _row(f"GPUCOMP_{name.upper()}", "not set" if value is None else str(value))
    if settings.cache is not None:
        folder = settings.cache
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not os.access(folder, os.W_OK):
            yield _row("cache", f"{folder} is not writable: kernels are compiled anew every time")
