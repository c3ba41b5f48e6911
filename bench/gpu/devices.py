"""The devices that can be measured: a GPU of CUDA or HIP, an OpenCL device, or the CUDA-on-CPU harness in place of a GPU.

All of them execute plans. All but the harness use the runtime's own programs, so the measurement is what a user gets.
What else the kinds of devices differ in is a row of ``KINDS``.
"""

from __future__ import annotations

import gc
import importlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bench.gpu import hip_facts
from bench.gpu.results import REHEARSED
from gpucomp.artifact.plan import COUNTER, INPUT, OUTPUT, TEMP, WEIGHT, Plan
from gpucomp.artifact.tensor_map import ELEMENT_BYTES, TensorMap
from gpucomp.device import hip as hip_device
from gpucomp.device.device import AMD, CUDA
from gpucomp.device.device import Device as Figures
from gpucomp.device.limits import Core, Limits
from gpucomp.device.target import Target
from gpucomp.errors import DeviceError
from gpucomp.ir.types import DTYPES
from gpucomp.kernel.source import KernelSource
from gpucomp.planning import BINARY_SUFFIX
from gpucomp.targets import amdgcn, cuda, hip, opencl, opencl_build
from gpucomp.targets.cache import KernelCache, open_cache
from gpucomp.tuning.devices import import_nvml, nvml_clocks

Arrays = Mapping[str, np.ndarray]


class Program(Protocol):
    """A plan on an open device."""

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]: ...

    def time_replays(self, count: int, *, overlap: bool = True) -> list[float]:
        """Seconds of each of ``count`` executions of the plan's launches, without transfers, after two warm-up runs.

        Without ``overlap`` every launch starts after the end of the previous one, even if the kernel allows overlap.
        """
        ...


class Device(Protocol):
    """``cache_bytes`` is the size of the cache that all units share; ``least_launches`` is that of a timed plan."""

    target: Target
    name: str
    cache_bytes: int
    least_launches: int

    def facts(self) -> dict[str, Any]:
        """The facts that identify results: device, driver, compiler, versions."""
        ...

    def clocks(self) -> dict[str, Any]:
        """The present clocks in MHz, temperature, power and throttling reasons; empty if unknown."""
        ...

    def open(
        self, plan: Plan, sources: Mapping[str, str], binaries: Mapping[str, bytes], weights: Arrays
    ) -> Program: ...

    def refused(self, spec: TensorMap) -> str:
        """Why a tensor map of this device's memory cannot be made, or ""."""
        ...

    def free(self) -> None:
        """Free the memory of deleted programs."""
        ...


class Gpu:
    """The first CUDA device."""

    least_launches = 20

    def __init__(self) -> None:
        self.cupy = importlib.import_module("cupy")
        self.target = cuda.device_here()
        facts = self.cupy.cuda.runtime.getDeviceProperties(0)
        self.name, self.cache_bytes = facts["name"].decode(), facts["l2CacheSize"]

    def facts(self) -> dict[str, Any]:
        runtime = self.cupy.cuda.runtime
        facts = runtime.getDeviceProperties(0)
        free, total = runtime.memGetInfo()
        return {
            "gpu": self.name,
            "arch": self.target.arch,
            "units": facts["multiProcessorCount"],
            "l2_bytes": facts["l2CacheSize"],
            "memory_bytes": total,
            "free_bytes": free,
            "driver": runtime.driverGetVersion(),
            "cupy": self.cupy.__version__,
            "compiler": cuda.compiler_version(),
        }

    def clocks(self) -> dict[str, Any]:
        nvml = import_nvml()
        return (nvml_clocks(nvml) if nvml is not None else {}) or smi_clocks()

    def open(self, plan: Plan, sources: Mapping[str, str], binaries: Mapping[str, bytes], weights: Arrays) -> Program:
        from gpucomp.runtime.cuda import CudaProgram

        return CudaProgram(plan, sources, binaries, weights, cupy=self.cupy)

    def refused(self, spec: TensorMap) -> str:
        from gpucomp.runtime.cuda_driver import Driver, encoded, import_driver

        driver, memory = Driver(import_driver()), self.cupy.cuda.alloc(nbytes(spec))
        context = driver("cuDevicePrimaryCtxRetain", 0)
        try:
            with driver.current(context):
                encoded(driver, spec, memory.ptr)
        except DeviceError as error:
            return str(error)
        finally:
            driver("cuDevicePrimaryCtxRelease", 0)
        return ""

    def free(self) -> None:
        """A program's device memory is freed when it is collected. cupy's pinned memory, and the pools of cupy and torch, which
        cannot share them, are only freed on request.
        """
        gc.collect()
        for pool in (self.cupy.get_default_memory_pool(), self.cupy.get_default_pinned_memory_pool()):
            pool.free_all_blocks()
        free_of_torch()


def free_of_torch() -> None:
    """Free what torch's pool keeps on a GPU, of CUDA or ROCm, if torch has used one."""
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def nbytes(spec: TensorMap) -> int:
    """Bytes of the map's array, from its first element to its last."""
    steps = (ELEMENT_BYTES[spec.dtype], *spec.strides)
    return spec.offset + sum((n - 1) * step for n, step in zip(spec.extents, steps, strict=True)) + steps[0]


def smi_clocks() -> dict[str, Any]:
    """Clocks from nvidia-smi; empty without it."""
    if shutil.which("nvidia-smi") is None:
        return {}
    query = "clocks.sm,clocks.mem,temperature.gpu,power.draw"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        sm, memory, celsius, watts = (float(part) for part in done.stdout.strip().split(","))
    except (subprocess.TimeoutExpired, ValueError):
        return {}
    return {"sm_mhz": sm, "memory_mhz": memory, "celsius": celsius, "watts": watts}


class Hip:
    """The first AMD GPU, through HIP's runtime library."""

    least_launches = 20

    def __init__(self) -> None:
        self.target = hip.device_here()
        self._library = hip_device.runtime()
        self._numbers = hip_facts.numbers(self._library, self.target.arch)
        self.name = hip_device.gpu(self._library, 0).name
        # on some GPUs the last cache lies behind the one that HIP tells of
        self.cache_bytes = max(self._numbers.get("l2_bytes", 0), self.target.cache_bytes)

    def facts(self) -> dict[str, Any]:
        return {
            "gpu": self.name,
            "arch": self.target.arch,
            **self._numbers,
            **hip_facts.memory(self._library),
            "driver": hip_device.version(self._library),
            "compiler": hip.compiler_version(),
        }

    def clocks(self) -> dict[str, Any]:
        return hip_facts.clocks(self._library)

    def open(self, plan: Plan, sources: Mapping[str, str], binaries: Mapping[str, bytes], weights: Arrays) -> Program:
        from gpucomp.runtime.hip import HipProgram

        return HipProgram(plan, sources, binaries, weights)

    def refused(self, spec: TensorMap) -> str:
        return "HIP has none"

    def free(self) -> None:
        from gpucomp.runtime.hip_arrays import shared

        gc.collect()
        shared().get_default_memory_pool().free_all_blocks()
        free_of_torch()


class OpenCLDevice:
    """An OpenCL device; GPUs are preferred to CPUs."""

    least_launches = 4

    def __init__(self) -> None:
        self.target = opencl.resolve("")
        device = opencl.device_of(self.target)
        self.name, self.cache_bytes = device.name.strip(), int(device.global_mem_cache_size) or 1 << 20

    def facts(self) -> dict[str, Any]:
        device = opencl.device_of(self.target)
        return {
            "gpu": self.name,
            "arch": self.target.arch,
            "units": device.max_compute_units,
            "clock_mhz": device.max_clock_frequency,
            "l2_bytes": device.global_mem_cache_size,
            "memory_bytes": device.global_mem_size,
            "driver": device.driver_version,
            "compiler": opencl_build.compiler_version(device),
            "pyopencl": opencl.pyopencl().VERSION_TEXT,
        }

    def clocks(self) -> dict[str, Any]:
        return {}

    def open(self, plan: Plan, sources: Mapping[str, str], binaries: Mapping[str, bytes], weights: Arrays) -> Program:
        from gpucomp.runtime.opencl import OpenCLProgram

        return _ByProfile(OpenCLProgram(plan, sources, binaries, weights))

    def refused(self, spec: TensorMap) -> str:
        return "OpenCL has none"

    def free(self) -> None:
        gc.collect()  # buffers are freed with the programs


class _ByProfile:
    """Times from the events of the launches, because an OpenCL queue has no graph to replay."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self._inputs: Arrays = {}

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        self._inputs = inputs
        return self._program.run(inputs)

    def time_replays(self, count: int, *, overlap: bool = True) -> list[float]:
        return [sum(self._program.profile(self._inputs)) for _ in range(count)]


class Harness:
    """The CUDA-on-CPU harness: the same kernels, on shapes small enough for a CPU, with an invented clock."""

    least_launches = 2
    cache_bytes = 1 << 12
    name = REHEARSED

    def __init__(self, folder: Path | None = None, target: Target | None = None) -> None:
        self.target, self.folder = target or cuda.manifest("sm_90a"), folder

    def facts(self) -> dict[str, Any]:
        compiler = "clang" if self.target.kind == "hip" else "g++"
        return {"gpu": REHEARSED, "arch": self.target.arch, "driver": 0, "compiler": compiler}

    def clocks(self) -> dict[str, Any]:
        return {"sm_mhz": 1000, "memory_mhz": 1000, "celsius": 20, "watts": 0.0, "held_by": []}

    def open(self, plan: Plan, sources: Mapping[str, str], binaries: Mapping[str, bytes], weights: Arrays) -> Program:
        return HarnessProgram(plan, sources, weights, self.folder)

    def refused(self, spec: TensorMap) -> str:
        return "; ".join(spec.objections())

    def free(self) -> None:
        pass


class HarnessProgram:
    """Runs a plan's launches in order, each in a process of its own. They share one arena, as on a device."""

    def __init__(self, plan: Plan, sources: Mapping[str, str], weights: Arrays, folder: Path | None = None) -> None:
        from testing.cuda_on_cpu.harness import compile_many

        self.plan, self.weights = plan, weights
        pairs = [(sources[k.source], k.name) for k in plan.kernels]
        self._kernels = compile_many(pairs, cache_dir=folder, arch=plan.arch if plan.kind == "hip" else "")

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        from testing.cuda_on_cpu.harness import Mapped

        plan = self.plan
        arena = np.full(plan.arena_bytes // 2 + 1, 0x7FFD, np.uint16).view(np.uint8)  # NaN in every float type
        memory: list[np.ndarray] = []
        for buffer in plan.buffers:
            dtype = DTYPES[buffer.dtype].numpy
            if buffer.kind == TEMP:
                memory.append(arena[buffer.offset : buffer.offset + buffer.nbytes].view(dtype).reshape(buffer.shape))
            elif buffer.kind in (WEIGHT, INPUT):
                memory.append(np.ascontiguousarray((self.weights if buffer.kind == WEIGHT else inputs)[buffer.name]))
            else:
                assert buffer.kind in (COUNTER, OUTPUT)
                memory.append(np.zeros(buffer.shape, dtype))
        for position in plan.inputs:
            if plan.buffers[position].kind == TEMP:
                memory[position][...] = inputs[plan.buffers[position].name]
        for launch in plan.launches:
            kernel = plan.kernels[launch.kernel]
            arguments: list[Any] = [memory[a] for a in launch.args]
            arguments += [Mapped(m, memory[launch.args[m.parameter]]) for m in kernel.tensor_maps]
            self._kernels[launch.kernel].run(kernel.groups, kernel.items, arguments, dynamic_shared=kernel.shared)
        return {name: memory[o].copy() for name, o in zip(plan.output_names, plan.outputs, strict=True)}

    def time_replays(self, count: int, *, overlap: bool = True) -> list[float]:
        work = sum(k.groups[0] * k.groups[1] * k.groups[2] * k.items[0] for k in self.plan.kernels)
        each = 1 + work % 97 / 97 + (not overlap) / 10
        return [1e-6 * len(self.plan.launches) * (each + number % 3 / 100) for number in range(count)]


def build(source: KernelSource, target: Target, folder: Path | None = None) -> dict[str, bytes]:
    """A kernel's binary, under its name in the plan; from the cache if possible."""
    make = KINDS[target.kind].build
    if make is None or folder is not None:
        return {}  # for OpenCL the process that runs it builds it; the harness compiles in ``open``
    return {source.name + BINARY_SUFFIX[target.kind]: make(source, target, open_cache())}


@dataclass(frozen=True)
class Described:
    """A target as plain data: one process asks the device, and another, which must not touch the device, plans with it."""

    kind: str
    arch: str
    name: str
    limits: Mapping[str, Any]
    features: Sequence[str]
    cache_bytes: int
    gpu: str

    def target(self) -> Target:
        base = KINDS[self.kind].manifest(self.arch)
        limits = Limits(**{**self.limits, "core": Core(**self.limits["core"])})
        return replace(base, name=self.name, limits=limits, features=frozenset(self.features))


def described(device: Device) -> dict[str, Any]:
    t = device.target
    return {
        "kind": t.kind,
        "arch": t.arch,
        "name": t.name,
        "limits": asdict(t.limits),
        "features": sorted(t.features),
        "cache_bytes": device.cache_bytes,
        "gpu": device.name,
    }


@dataclass(frozen=True)
class Used:
    """What a compiler says of a kernel: registers of a work-item, static shared memory, and what registers do not hold."""

    registers: int
    shared_bytes: int
    spill_bytes: int


def _used_on_cuda(source: KernelSource, target: Target) -> Used:
    found = cuda.resources(cuda.compile_source(source, target)[1])[source.name]
    return Used(found.registers, found.shared_bytes, found.spilt + found.stack_bytes)


def _used_on_hip(source: KernelSource, target: Target) -> Used:
    found = amdgcn.resources(source, target.arch)
    return Used(found.vector, found.local_bytes, found.private_bytes)


def _cuda_version(driver: int) -> str:
    return f"CUDA {driver // 1000}.{driver % 1000 // 10}"


def _hip_version(driver: int) -> str:
    return f"HIP {driver // 10_000_000}.{driver // 100_000 % 100}.{driver % 100_000}"


@dataclass(frozen=True)
class Kind:
    """What the stages ask of a kind of devices.

    open        opens the first device
    manifest    the target of an architecture, without a device
    packages    of Python that are needed
    flags       of the compiler, for records
    build       makes a kernel's binary; none where the driver compiles
    used        what the compiler says of a kernel; none where nothing does
    version     a driver's number in words; none where it is text
    rehearsal   the architecture of a dry run; none where the harness has no such kernels
    torch       the attribute of ``torch.version`` of a torch that has such devices. They are ``cuda`` to torch for ROCm as well
    convolver   torch's library for convolutions
    products    torch's names of its libraries for products, of which the faster one is taken; none: what torch takes by itself
    provider    onnxruntime's provider, and its options
    sanitizer   whether compute-sanitizer can watch the kernels
    """

    open: Callable[[], Device]
    manifest: Callable[[str], Target]
    packages: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    build: Callable[[KernelSource, Target, KernelCache | None], bytes] | None = None
    used: Callable[[KernelSource, Target], Used] | None = None
    version: Callable[[int], str] | None = None
    rehearsal: str = ""
    torch: str = ""
    convolver: str = ""
    products: tuple[str, ...] = ()
    provider: tuple[str, Mapping[str, str]] = ("", {})
    sanitizer: bool = False


KINDS: Mapping[str, Kind] = {
    "cuda": Kind(
        Gpu,
        cuda.manifest,
        ("cupy", "cuda.bindings"),
        tuple(cuda.OPTIONS),
        cuda.build,
        _used_on_cuda,
        _cuda_version,
        "sm_90a",
        torch="cuda",
        convolver="cuDNN",
        provider=("CUDAExecutionProvider", {"enable_cuda_graph": "1"}),
        sanitizer=True,
    ),
    "hip": Kind(
        Hip,
        hip.manifest,
        (),
        amdgcn.HIP_FLAGS,
        hip.build,
        _used_on_hip,
        _hip_version,
        "gfx90a",
        torch="hip",
        convolver="MIOpen",
        products=("cublas", "cublaslt"),  # torch's names for rocBLAS and hipBLASLt
        provider=("ROCMExecutionProvider", {}),
    ),
    "opencl": Kind(OpenCLDevice, opencl.manifest, ("pyopencl",), tuple(opencl_build.FLAGS)),
}


def listed(arch: str) -> Figures | None:
    """The built-in figures of an architecture; ``None`` if there are none."""
    return CUDA.get(arch) or AMD.get(arch)
