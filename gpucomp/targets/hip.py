"""HIP targets: AMD's instruction sets, compiled to code objects by clang without ROCm or a GPU.

What a device has, its figures and its features, are those of the OpenCL target of the same name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from gpucomp.device import hip as device
from gpucomp.device.figures import figures
from gpucomp.device.target import Target
from gpucomp.errors import DeviceError, UsageError, quote
from gpucomp.kernel.source import KernelSource
from gpucomp.targets import amdgcn, hip_text, opencl
from gpucomp.targets.cache import KernelCache

NAMES = "an AMD instruction set from gfx900 to gfx1201, such as gfx90a"
ALIGNMENT = 256  # bytes: what hipMalloc gives


def manifest(arch: str) -> Target:
    """The target ``hip:<arch>``."""
    like = opencl.manifest(arch)
    found = figures(arch, replace(like.device, shuffles=True)) if like.device is not None else None
    limits = replace(like.limits, subgroups=True)
    return replace(
        like,
        name=f"hip:{arch}",
        kind="hip",
        language="hip",
        limits=limits,
        features=like.features - {"amd_fence"} | {"hip"},
        device=found,
        alignment=ALIGNMENT,
    )


def is_known(arch: str) -> bool:
    """Whether HIP kernels can be made for the instruction set: it starts with gfx900."""
    return opencl.amd_set(arch) == arch and not re.fullmatch(r"gfx[1-8]\d\d", arch)


def resolve(which: str) -> Target:
    """The target of an instruction set, or of the GPU in this machine if ``which`` is empty.

    Raises ``UsageError`` for an unknown instruction set, and ``DeviceError`` if there is no GPU to ask.
    """
    if not which:
        return device_here()
    if not is_known(which):
        raise UsageError(f"unknown HIP target {quote(which)}; {NAMES} expected", code="GPC2002")
    return manifest(which)


def device_here() -> Target:
    """The first AMD GPU. Raises ``DeviceError`` (GPC5001) if there is no runtime library, no GPU, or an unknown one."""
    library = device.runtime()
    device.count(library)
    found = device.gpu(library, 0)
    if not found.arch or not is_known(found.arch):
        raise DeviceError(
            f"the GPU {quote(found.name)} has no instruction set that is known; {NAMES} expected", code="GPC5001"
        )
    return replace(manifest(found.arch), identity=f"{found.name} | {device.version(library)}")


def require_gpu(arch: str) -> Target:
    """The first AMD GPU, which is to run code of ``arch``. Raises ``DeviceError``: GPC5001, or GPC5008 if it is another set."""
    found = device_here()
    if found.arch != arch:
        name = found.identity.rpartition(" | ")[0]
        raise DeviceError(f"the GPU here, {name}, is {found.arch}, not {arch}: name hip:{found.arch}", code="GPC5008")
    return found


@cache
def compiler_version() -> str:
    """The compiler's own words about its version; the newest that is installed may be needed for a new instruction set.

    Raises ``DeviceError`` if none is installed.
    """
    found = amdgcn.compilers("hip")
    if not found:
        raise amdgcn.missing("hip")
    return ", ".join(dict.fromkeys(map(amdgcn.version, found)))


def members(wanted: Mapping[str, KernelSource], target: Target, cache: KernelCache | None = None) -> dict[str, bytes]:
    """The artefact's files for these kernels, by file name: their code objects.

    Raises ``KernelBuildError`` with the compiler's first error.
    """
    return {name: build(source, target, cache) for name, source in wanted.items()}


def build(source: KernelSource, target: Target, cache: KernelCache | None = None) -> bytes:
    """The code object of ``source`` for ``target.arch``, from the cache if it is there.

    Raises ``KernelBuildError`` with the compiler's first error, and ``DeviceError`` if clang or lld is missing.
    """
    key = ""
    if cache:
        digest = hashlib.sha256(hip_text.text_of(source.text).encode()).hexdigest()
        compiler = f"{compiler_version()} text {digest}"
        key = cache.key(source, target=target.arch, compiler=compiler, flags=amdgcn.HIP_FLAGS)
        if (found := cache.get(key)) is not None:
            return found
    code = amdgcn.code_object(source, target.arch)
    if cache:
        cache.put(key, code)
    return code
