"""CUDA targets: seven architectures, compiled to cubins by NVRTC without a GPU or a driver. Nothing runs here."""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import importlib.util
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources as files
from pathlib import Path

from gpucomp.device.device import CUDA as DEVICES
from gpucomp.device.figures import figures
from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.errors import DeviceError, KernelBuildError, UsageError, quote
from gpucomp.extras import install
from gpucomp.kernel.source import KernelSource
from gpucomp.lazy_dataclass import dataclass
from gpucomp.targets.cache import KernelCache
from gpucomp.targets.failure import build_failed

# most bytes of shared memory of a work-group; number of SMs of a common device of the architecture
ARCHITECTURES = {
    "sm_75": (65536, 40),
    "sm_80": (166912, 108),
    "sm_86": (101376, 82),
    "sm_89": (101376, 128),
    "sm_90a": (232448, 132),
    "sm_100": (232448, 148),
    "sm_120": (101376, 170),
}
# features that the kernels of an architecture may use beyond the language
MATRIX = frozenset({"fp16", "fp64", "dp4a", "mma"})  # mma.sync of f16 and s8, ldmatrix
AMPERE = MATRIX | {"cp_async", "mma_sm80"}  # the larger shapes, bf16 and tf32
TMA = AMPERE | {"tma", "cluster", "pdl"}  # mbarriers too
FEATURES = {
    "sm_75": MATRIX,
    "sm_80": AMPERE,
    "sm_86": AMPERE,
    "sm_89": AMPERE,
    "sm_90a": TMA | {"wgmma"},
    "sm_100": TMA | {"tcgen05"},
    "sm_120": TMA,
}
# tcgen05 is not part of sm_100 itself but of its family, devices of compute capability 10.0 and 10.3, which NVRTC 12.9 and newer
# know. Only kernels that use it are compiled for the family; no other device can load these, or compile their PTX.
FAMILIES = {"sm_100": ("sm_100f", "gc_tcgen05_")}
PRELUDE = "prelude_cuda.h"
OPTIONS = ("-std=c++17", "-default-device", "-Xptxas=-v")
# By default ptxas can save registers to fit one more work-group on an SM and spill the others, even if only 8 bytes; the
# number of work-groups in the text itself can also be one too many. A kernel that spills with registers left is compiled
# again for one work-group on an SM. The search spaces assume this.
LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\((\d+)(?:, \d+)?\)")
ONE_BLOCK_PER_SM = r"__launch_bounds__(\1, 1)"


def manifest(arch: str) -> Target:
    """The target ``cuda:<arch>``."""
    shared, units = ARCHITECTURES[arch]
    limits = Limits(
        threads=1024,
        shared_bytes=shared,
        warp=32,
        registers=255,
        units=units,
        vector_bytes=16,
        async_copy=arch != "sm_75",
    )
    return Target(
        f"cuda:{arch}",
        "cuda",
        arch,
        "cuda",
        limits,
        row_tails=True,
        folds_norms=True,
        features=FEATURES[arch],
        device=figures(arch, DEVICES[arch]),
    )


def resolve(which: str) -> Target:
    """The target of an architecture, or of the GPU in this machine if ``which`` is empty.

    Raises ``UsageError`` for an unknown architecture, and ``DeviceError`` if there is no GPU to ask.
    """
    if not which:
        return device_here()
    if which == "sm_90":
        which = "sm_90a"  # every sm_90 device runs sm_90a code
    if which not in ARCHITECTURES:
        index = "; an index is no architecture: cuda alone is for the GPU here" if which.isdigit() else ""
        raise UsageError(
            f"unknown CUDA architecture {quote(which)}; known are {', '.join(ARCHITECTURES)}{index}", code="GPC2002"
        )
    return manifest(which)


def identity(name: str, driver: int) -> str:
    """A device's name in tuning records. ``driver`` is the newest CUDA version that the driver supports, for example 13010."""
    return f"{name} | {driver}"


def device_here() -> Target:
    """The first GPU, with the newest known architecture that it runs. Raises ``DeviceError`` if there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(
            "no CUDA driver was found; to compile for a GPU in another machine, name its architecture: cuda:sm_90a",
            code="GPC5001",
        ) from error
    major, minor, device, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    queries: tuple[Callable[[], int], ...] = (
        lambda: driver.cuInit(0),
        lambda: driver.cuDeviceGet(ctypes.byref(device), 0),
        lambda: driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device),  # COMPUTE_CAPABILITY_MAJOR
        lambda: driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device),
        lambda: driver.cuDeviceGetName(name, len(name), device),
        lambda: driver.cuDriverGetVersion(ctypes.byref(version)),
    )
    for query in queries:
        if status := query():
            raise DeviceError(
                f"the CUDA driver finds no usable GPU (error {status}); nvidia-smi should list one", code="GPC5001"
            )
    found = manifest(architecture_for(major.value, minor.value))
    return replace(found, identity=identity(name.value.decode(errors="replace"), version.value))


def require_gpu() -> None:
    """Raise ``DeviceError`` unless a GPU, its driver and the packages that run kernels are here."""
    for package, module in (("cupy", "cupy"), ("cuda-bindings", "cuda.bindings")):
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:  # the package that the module is in
            found = None
        if found is None:
            raise DeviceError(f"{package} is not installed: {install('cuda13')}", code="GPC5002")
    device_here()


def runs_on(arch: str, major: int, minor: int) -> bool:
    """Whether a device of this compute capability can load cubins of ``arch``: those of its own generation that are not
    newer than the device. Cubins of an ``a`` architecture run on exactly that compute capability.
    """
    generation, step = divmod(int(arch.removeprefix("sm_").rstrip("a")), 10)
    return generation == major and (step == minor if arch.endswith("a") else step <= minor)


def compiles_ptx(arch: str, major: int, minor: int) -> bool:
    """Whether the driver of a device of this compute capability can compile PTX made for ``arch``.

    It can if the device is not older than ``arch``; PTX of an ``a`` architecture is for that architecture only.
    """
    return not arch.endswith("a") and int(arch.removeprefix("sm_")) <= 10 * major + minor


def ptx_name(binary: str) -> str:
    """The name of a kernel's PTX, from the name of its cubin."""
    return f"{binary.removesuffix('.cubin')}.ptx"


def ptx_version(text: bytes) -> str:
    """The PTX ISA version of a PTX text. Each CUDA release has a newer one, which older drivers do not know."""
    found = re.search(rb"^\s*\.version\s+(\d+\.\d+)", text, re.MULTILINE)
    return found[1].decode() if found else "of no version"


def architecture_for(major: int, minor: int) -> str:
    """The newest architecture whose cubins a device of this compute capability loads.

    Raises ``DeviceError`` if there is none.
    """
    fitting = [arch for arch in ARCHITECTURES if runs_on(arch, major, minor)]  # from old to new
    if not fitting:
        known = ", ".join(ARCHITECTURES)
        raise DeviceError(
            f"the GPU has compute capability {major}.{minor}, which no known architecture runs on; known are {known}",
            code="GPC5001",
        )
    return fitting[-1]


@dataclass(frozen=True)
class Resources:
    """What ptxas reports for a kernel: registers and stack of a thread, shared memory of a block, in bytes."""

    registers: int
    stack_bytes: int
    spill_stores: int
    spill_loads: int
    shared_bytes: int

    @property
    def spilt(self) -> int:
        """Bytes of spill stores and spill loads."""
        return self.spill_stores + self.spill_loads


def resources(log: str) -> dict[str, Resources]:
    """Parse the output of ``-Xptxas -v``, by kernel."""
    found: dict[str, Resources] = {}
    pattern = r"Compiling entry function '(\w+)'.*?\n(.*?)(?=Compiling entry function|\Z)"
    for name, text in re.findall(pattern, log, re.DOTALL):
        numbers = [
            re.search(p, text)
            for p in (
                r"Used (\d+) registers",
                r"(\d+) bytes stack frame",
                r"(\d+) bytes spill stores",
                r"(\d+) bytes spill loads",
                r"(\d+) bytes smem",
            )
        ]
        found[name] = Resources(*(int(m[1]) if m else 0 for m in numbers))
    return found


@cache
def prelude() -> str:
    """The ``gc_*`` device functions, which are compiled in front of every kernel."""
    return files.files("gpucomp.kernels_templates").joinpath("dialect", PRELUDE).read_text(encoding="utf-8")


@cache
def nvrtc() -> ctypes.CDLL:
    """libnvrtc, from NVIDIA's wheel or the system. Raises ``DeviceError`` that names the extra to install."""
    refused = ""
    for path in _nvrtc_places():
        try:
            # NVRTC opens its builtins by bare name when it compiles, and not every wheel's NVRTC has an RPATH to its own
            # folder (13.0 has none). A library that is already loaded is found by its name.
            for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")) if path.is_absolute() else ():
                ctypes.CDLL(str(builtins))
            return ctypes.CDLL(str(path))
        except OSError as error:
            refused = refused or f" ({error})"
    raise DeviceError(f"NVRTC, which compiles for CUDA, was not found{refused}: {install('nvrtc')}", code="GPC5002")


def _nvrtc_places() -> Iterator[Path]:
    """Possible paths of libnvrtc: NVIDIA's wheels in the order of Python's path, newest first; then the system's."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        found = Path(folder).absolute().glob("*/lib/libnvrtc.so.*[0-9]")
        yield from sorted(found, key=lambda path: [int(n) for n in path.name.split(".")[2:]], reverse=True)
    if system := ctypes.util.find_library("nvrtc"):
        yield Path(system)


@cache
def compiler_version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"nvrtc {major.value}.{minor.value}"


def build(source: KernelSource, target: Target, cache: KernelCache | None = None) -> bytes:
    """The cubin of ``source`` for ``target.arch``, from the cache if it is there.

    Raises ``KernelBuildError`` with the compiler's first error.
    """
    return _built(source, target, cache)[0]


def members(wanted: Mapping[str, KernelSource], target: Target, cache: KernelCache | None = None) -> dict[str, bytes]:
    """The artefact's files for these kernels, by file name: their cubins, and PTX unless it is useless for devices newer
    than ``target.arch``.

    Raises ``KernelBuildError`` with the compiler's first error.
    """
    found: dict[str, bytes] = {}
    for binary, source in wanted.items():
        cubin, ptx = _built(source, target, cache)
        found |= {binary: cubin} | ({ptx_name(binary): ptx} if ptx else {})
    return found


def _built(source: KernelSource, target: Target, cache: KernelCache | None) -> tuple[bytes, bytes]:
    """Cubin and PTX; the PTX is empty if no other architecture could use it."""
    arch = compiled_for(source.text, target.arch)
    flags = [f"-arch={arch}", *OPTIONS, ONE_BLOCK_PER_SM]
    compiler = f"{compiler_version()} prelude {hashlib.sha256(prelude().encode()).hexdigest()}"
    only_here = arch.endswith(("a", "f"))
    keys = []
    if cache:
        key = cache.key(source, target=target.arch, compiler=compiler, flags=flags)
        keys = (
            [key]
            if only_here
            else [key, cache.key(source, target=target.arch, compiler=compiler, flags=[*flags, "ptx"])]
        )
        found = [code for key in keys if (code := cache.get(key)) is not None]
        if len(found) == len(keys):
            return found[0], b"" if only_here else found[1]
    cubin, ptx, _ = _compiled(source, target)
    for key, code in zip(keys, (cubin, ptx), strict=False):
        assert cache is not None
        cache.put(key, code)
    return cubin, b"" if only_here else ptx


def compiled_for(text: str, arch: str) -> str:
    """The architecture that NVRTC compiles a kernel's text for, so that devices of ``arch`` load it."""
    family, mark = FAMILIES.get(arch, (arch, ""))
    return family if mark in text else arch


def compile_source(source: KernelSource, target: Target) -> tuple[bytes, str]:
    """The cubin and the compiler's log. Raises ``KernelBuildError`` with its first error."""
    cubin, _, log = _compiled(source, target)
    return cubin, log


def _compiled(source: KernelSource, target: Target) -> tuple[bytes, bytes, str]:
    """Cubin, PTX (text with the terminating zero that the driver expects) and log, of the compilation that spills less."""
    first = _compiled_text(source, source.text, target)
    used = resources(first[2]).get(source.name)
    most = target.limits.registers_for(math.prod(source.geometry.items))
    if used is None or not used.spilt or used.registers >= most:
        return first
    if (text := LAUNCH_BOUNDS.sub(ONE_BLOCK_PER_SM, source.text)) == source.text:
        return first
    again = _compiled_text(source, text, target)
    return again if resources(again[2])[source.name].spilt < used.spilt else first


def _compiled_text(source: KernelSource, text: str, target: Target) -> tuple[bytes, bytes, str]:
    """Like ``_compiled``, but compile ``text`` instead of the source's text."""
    lib = nvrtc()
    program = ctypes.c_void_p()
    whole = f"{prelude()}\n{text}".encode()
    _check(lib.nvrtcCreateProgram(ctypes.byref(program), whole, f"{source.name}.cu".encode(), 0, None, None))
    try:
        options = [o.encode() for o in (f"-arch={compiled_for(text, target.arch)}", *OPTIONS)]
        status = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = _output(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status != 0:
            first = next((line for line in log.splitlines() if "error" in line), log[:200] or f"NVRTC status {status}")
            raise KernelBuildError(build_failed(source, first))
        return _output(program, "CUBIN"), _output(program, "PTX"), log
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def _output(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(nvrtc(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc(), f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(status: int) -> None:
    if status != 0:
        nvrtc().nvrtcGetErrorString.restype = ctypes.c_char_p
        raise KernelBuildError(f"NVRTC: {nvrtc().nvrtcGetErrorString(status).decode()}", code="GPC5103")
