"""The devices that candidates run on: each kind is a class with three methods. Drivers are imported when a device is opened.

The programs that are timed are those of ``gpucomp.runtime``. Only the process that measures opens a device.
"""

from __future__ import annotations

import importlib
import importlib.util
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gpucomp.artifact.plan import Plan
from gpucomp.device.target import Target

Arrays = Mapping[str, np.ndarray]
REASONS = {  # nvmlClocksEventReasons that invalidate a sample
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
NOTED = {  # reasons that can last all day: they slow the anchor as well
    0x2: "application clocks",
    0x4: "power cap",
}
CPU_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")


class Program(Protocol):
    """A plan on an open device."""

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]: ...

    def time_launches(self, inputs: Arrays, count: int, *, warm: bool = True) -> list[float]:
        """Seconds of each of ``count`` executions of all launches, without transfers, after one that warms up.

        ``warm=False`` leaves the warm-up out, for a caller that has run the same inputs before.
        """
        ...


class Device(Protocol):
    """``cache_bytes`` is the size of the last-level cache, which cold buffers must exceed; ``noisy``: its cores also compile."""

    target: Target
    cache_bytes: int
    noisy: bool

    def facts(self) -> dict[str, Any]:
        """What measurements depend on: device, driver, compiler, versions."""
        ...

    def clocks(self) -> dict[str, Any]:
        """Clocks in MHz, temperature and power; empty if nothing reports them.

        ``held_by`` has the reasons that slow the clocks so much that samples are invalid, ``noted`` the other reasons.
        """
        ...

    def open(
        self, plan: Plan, sources: Mapping[str, str], binaries: Mapping[str, bytes], weights: Arrays
    ) -> Program: ...


def _names(target: Target, name: str, identity: str = "") -> dict[str, Any]:
    """``identity`` is that of the open device, for a ``target`` that is only a kind of device."""
    return {"kind": target.kind, "arch": target.arch, "name": target.identity or identity, "device": name}


class Cpu:
    """This machine's processor."""

    noisy = True

    def __init__(self, target: Target) -> None:
        self.target = target
        self.cache_bytes = _cache_bytes()

    def facts(self) -> dict[str, Any]:
        binding = importlib.import_module("llvmlite.binding")
        from gpucomp.targets import cpu

        here = cpu.host().identity
        return _names(self.target, here, here) | {
            "driver": platform.release(),
            "compiler": "llvm " + ".".join(map(str, binding.llvm_version_info)),
            "threads": _cpu_threads(),
        }

    def clocks(self) -> dict[str, Any]:
        return {}

    def open(self, plan: Plan, sources: Mapping[str, str], binaries: Mapping[str, bytes], weights: Arrays) -> Program:
        from gpucomp.runtime.cpu import CpuProgram

        return CpuProgram(plan, sources, binaries, dict(weights))


def _cpu_threads() -> int:
    from gpucomp.runtime.workers import available_threads

    return available_threads()


def _cache_bytes() -> int:
    try:
        text = CPU_CACHE.read_text().strip()
    except OSError:
        return 1 << 20
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    return int(text.rstrip("KM")) * unit


class OpenCL:
    """The OpenCL device of a target."""

    def __init__(self, target: Target) -> None:
        from gpucomp.targets import opencl, opencl_build

        self._opencl, self._opencl_build = opencl, opencl_build
        self._device = opencl.device_of(target)
        self.target = target
        self.cache_bytes = int(self._device.global_mem_cache_size) or 1 << 20
        self.noisy = bool(self._device.type & opencl.pyopencl().device_type.CPU)

    def facts(self) -> dict[str, Any]:
        identity = self._opencl.of_device(self._device, self.target.name).identity
        return _names(self.target, self._device.name.strip(), identity) | {
            "driver": self._device.driver_version,
            "compiler": self._opencl_build.compiler_version(self._device),
            "flags": list(self._opencl_build.FLAGS),
        }

    def clocks(self) -> dict[str, Any]:
        return {"max_mhz": int(self._device.max_clock_frequency)}

    def open(self, plan: Plan, sources: Mapping[str, str], binaries: Mapping[str, bytes], weights: Arrays) -> Program:
        from gpucomp.runtime.opencl import OpenCLProgram

        return OpenCLProgram(plan, sources, binaries, weights)


class Cuda:
    """The current CUDA device, through cupy; ``cupy`` and ``nvml`` are the modules, given by tests that have no GPU."""

    noisy = False

    def __init__(self, target: Target, *, cupy: Any = None, nvml: Any = None) -> None:
        from gpucomp.runtime.cuda_driver import import_cupy
        from gpucomp.targets import cuda

        self._cupy = cupy if cupy is not None else import_cupy()
        self._nvml = nvml if nvml is not None else import_nvml()
        self._flags = list(cuda.OPTIONS)
        self._compiler, self._identity = cuda.compiler_version, cuda.identity
        self._facts = self._cupy.cuda.runtime.getDeviceProperties(0)
        self.target = target
        self.cache_bytes = int(self._facts["l2CacheSize"])

    def facts(self) -> dict[str, Any]:
        name, driver = self._facts["name"].decode(errors="replace"), self._cupy.cuda.runtime.driverGetVersion()
        return _names(self.target, name, self._identity(name, driver)) | {
            "driver": str(driver),
            "compiler": str(self._compiler()),
            "flags": self._flags,
        }

    def clocks(self) -> dict[str, Any]:
        return nvml_clocks(self._nvml) if self._nvml is not None else {}

    def open(self, plan: Plan, sources: Mapping[str, str], binaries: Mapping[str, bytes], weights: Arrays) -> Program:
        from gpucomp.runtime.cuda import CudaProgram

        return _Replayed(CudaProgram(plan, sources, binaries, weights, cupy=self._cupy))


class Hip:
    """The first AMD GPU, through HIP's runtime library. Nothing reports its clocks."""

    noisy = False

    def __init__(self, target: Target) -> None:
        from gpucomp.targets import hip

        here = hip.require_gpu(target.arch)
        self._compiler, self._here = hip.compiler_version, here
        self.target = target
        self.cache_bytes = target.cache_bytes

    def facts(self) -> dict[str, Any]:
        name, _, version = self._here.identity.rpartition(" | ")
        return _names(self.target, name, self._here.identity) | {"driver": version, "compiler": self._compiler()}

    def clocks(self) -> dict[str, Any]:
        return {}

    def open(self, plan: Plan, sources: Mapping[str, str], binaries: Mapping[str, bytes], weights: Arrays) -> Program:
        from gpucomp.runtime.hip import HipProgram

        return _Replayed(HipProgram(plan, sources, binaries, weights))


class _Replayed:
    """A program on a GPU that is timed by replays of the graph that its second run captures."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self._runs = 0

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        self._runs += 1
        return dict(self._program.run(inputs))

    def time_launches(self, inputs: Arrays, count: int, *, warm: bool = True) -> list[float]:
        while self._runs < 2:
            self.run(inputs)
        return list(self._program.time_replays(count + warm)[warm:])


def import_nvml() -> Any:
    """The module pynvml, or ``None``: clocks are then unknown."""
    return importlib.import_module("pynvml") if importlib.util.find_spec("pynvml") is not None else None


def nvml_clocks(nvml: Any) -> dict[str, Any]:
    """The clocks of the first GPU, from the module ``nvml``, see ``Device.clocks``; empty if it fails."""
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        reasons = (ask or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle)
        return {
            "sm_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "celsius": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "watts": nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "held_by": [name for bit, name in REASONS.items() if reasons & bit],
            "noted": [name for bit, name in NOTED.items() if reasons & bit],
        }
    except nvml.NVMLError:
        return {}


KINDS: Mapping[str, Callable[[Target], Device]] = {"cpu": Cpu, "opencl": OpenCL, "cuda": Cuda, "hip": Hip}


def open_device(target: Target) -> Device:
    """The device that runs ``target``'s kernels. Raises ``DeviceError`` if there is none."""
    return KINDS[target.kind](target)
