"""OpenCL targets: what the compiler can assume of each flavour, and the devices here. Running is elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from gpucomp.device.device import AMD as AMD_DEVICES
from gpucomp.device.device import OPENCL as DEVICES
from gpucomp.device.device import without_dots
from gpucomp.device.fences import STATEMENTS
from gpucomp.device.isa import X86_64
from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.errors import DeviceError, UsageError, quote
from gpucomp.extras import install

FLAVOURS = {
    "generic": Limits(
        threads=256, shared_bytes=32768, warp=32, registers=128, units=8, subgroups=False, device_fence=False
    ),
    # one work-item at a time on each core; vectors of 32 bytes unless the device reports its own size: wider ones end
    # PoCL 3.0 ("LLVM ERROR: Do not know how to scalarize") if its LLVM does not recognise the CPU
    "pocl": Limits(
        threads=4096, shared_bytes=1 << 19, warp=1, registers=255, units=2, vector_bytes=32, subgroups=False
    ),
    # Valhall: 16 threads a warp, 64 registers each; local memory is ordinary memory
    "mali": Limits(threads=256, shared_bytes=32768, warp=16, registers=64, units=4, subgroups=False),
    "amd": Limits(
        threads=256, shared_bytes=65536, static_bytes=65536, warp=64, registers=255, units=60, subgroups=False
    ),
}
FEATURES = {
    "generic": frozenset[str](),
    "pocl": frozenset({"fp64", "device_fence"}),
    "mali": frozenset({"mali", "fp16", "arm_dot_acc", "arm_dot", "device_fence"}),
    "amd": frozenset({"amd", "fp16", "fp64", "amd_fence"}),
}
OF_MANY = ("generic", "amd")  # flavours of devices that differ too much for one analytic model
# by instruction set: lanes of a wave, compute units, and the features for matrix instructions (``mfma_1k``: those that take twice
# the bf16 of CDNA's first ones; ``mfma_deep``: those that take twice the bytes; ``mfma_wide``: those of 16 bytes a lane;
# ``wmma_gfx12``: those with other operands than RDNA3's) and dot products: of bytes, and of f16 (``fdot2``) where nothing else is
# as fast. Later sets have these too, but lanes of CDNA2 and its successors multiply two f32 at once, and so do RDNA4's; RDNA3's
# WMMA is as fast as two of its dot products
AMD: dict[str, tuple[int, int, frozenset[str]]] = {
    "gfx906": (64, 60, frozenset({"sdot4", "fdot2"})),
    "gfx908": (64, 120, frozenset({"sdot4", "fdot2", "mfma"})),
    "gfx90a": (64, 110, frozenset({"sdot4", "mfma", "mfma_1k"})),
    "gfx942": (64, 304, frozenset({"sdot4", "mfma", "mfma_1k", "mfma_deep"})),
    "gfx950": (64, 256, frozenset({"sdot4", "mfma", "mfma_1k", "mfma_deep", "mfma_wide"})),
    "gfx1030": (32, 80, frozenset({"sdot4", "fdot2"})),
    "gfx1100": (32, 96, frozenset({"sudot4", "wmma"})),
    "gfx1201": (32, 64, frozenset({"sudot4", "wmma", "wmma_gfx12"})),
}
# other instruction sets by name: the most similar one of ``AMD``, and which of its features they lack (LLVM's AMDGPUUsage).
# gfx1250 is like none: it has waves of 32 with matrix instructions of other operands again
SIMILAR: tuple[tuple[str, str, frozenset[str]], ...] = (
    (r"gfx8\d\d|gfx90[0249c]", "gfx906", frozenset({"sdot4", "fdot2"})),
    (r"gfx94[01]", "gfx942", frozenset()),
    (r"gfx101[12]|gfx103\d", "gfx1030", frozenset()),
    (r"gfx101\d", "gfx1030", frozenset({"sdot4", "fdot2"})),
    (r"gfx11[05][0-3]", "gfx1100", frozenset()),
    (r"gfx1200", "gfx1201", frozenset()),
)
# names of Arm's GPUs that are other names of the flavour ``mali``, and which of its features they lack. Its kernels are for
# Valhall and newer; of Bifrost, G52 and G76 have dot products of bytes, and older ones have none
MALI: tuple[tuple[str, frozenset[str]], ...] = (
    (r"(mali|immortalis)-g(57|68|77|78|78ae|310|510|610|615|620|710|715|720|725|925)", frozenset()),
    (r"mali-g(52|76)", frozenset()),
    (r"mali-g(31|51|71|72)", frozenset({"arm_dot", "arm_dot_acc"})),
)
FAMILIES = {"mali": ", a Mali's name such as mali-g78", "amd": ", AMD's instruction sets from gfx803 to gfx1201"}
# what may follow ``opencl:``, for messages
NAMES = f"{', '.join(name + FAMILIES.get(name, '') for name in FLAVOURS)}, or a part of a device's name"
EXTENSIONS = {
    "cl_khr_fp16": "fp16",
    "cl_khr_fp64": "fp64",
    "cl_arm_integer_dot_product_int8": "arm_dot",
    "cl_arm_integer_dot_product_accumulate_int8": "arm_dot_acc",
    "cl_khr_integer_dot_product": "khr_dot",
}
DOTS = frozenset({"sdot4", "sudot4", "arm_dot_acc", "arm_dot", "khr_dot"})  # dot products of bytes (``codegen.c.dots``)
LEAST = Limits(threads=64, shared_bytes=8192, registers=64)  # every family has a schedule within these limits
# instructions of AMD's matrix cores
MATRIX = frozenset({"mfma", "mfma_1k", "mfma_deep", "mfma_wide", "wmma", "wmma_gfx12"})
OPTIONAL = DOTS | set(STATEMENTS) | {"fp16", "fdot2"} | MATRIX  # features that a kernel can do without
SUB_BUFFER_ALIGNMENT = (
    512  # bytes; NVIDIA and llvmpipe require it of sub-buffers, and no device is known to require more
)
OLDEST = (1, 2)  # version of OpenCL
# what OpenCL C 3.0 must list for a fence of device scope; OpenCL C 2.0 always has it
FENCE_PARTS = frozenset({"__opencl_c_atomic_order_acq_rel", "__opencl_c_atomic_scope_device"})


def flavours() -> tuple[str, ...]:
    return tuple(FLAVOURS)


def manifest(flavour: str) -> Target:
    """The target ``opencl:<flavour>``, without a device.

    An AMD instruction set, such as ``gfx90a``, and the name of one of Arm's GPUs, such as ``mali-g78``, are flavours too.
    """
    name, lacking = f"opencl:{flavour}", _lacks_of_mali(flavour)
    if lacking is not None:
        flavour = "mali"
    if flavour not in FLAVOURS:
        return _amd_manifest(flavour)
    # Mali kernels load operands as vectors; a computed operand cannot be loaded so
    prologues = flavour != "mali"
    features = FEATURES[flavour] - (lacking or frozenset())
    limits = replace(FLAVOURS[flavour], dots=bool(DOTS & features))
    device = None if flavour in OF_MANY else DEVICES.get(flavour)
    if device is not None and not limits.dots:
        device = without_dots(device)
    return Target(
        name, "opencl", flavour, "opencl", limits, SUB_BUFFER_ALIGNMENT, prologues, features=features, device=device
    )


def _amd_manifest(name: str) -> Target:
    like, lacking = _nearest(name)
    warp, units, matrix = AMD[like]
    features = FEATURES["amd"] | matrix - lacking
    device = AMD_DEVICES[like]
    # a work-group may have all the local memory of a unit
    shared = device.shared_bytes
    limits = replace(
        FLAVOURS["amd"],
        warp=warp,
        units=units,
        dots=bool(DOTS & features),
        shared_bytes=shared,
        static_bytes=shared,
    )
    device = device if limits.dots else without_dots(device)
    return Target(
        f"opencl:{name}", "opencl", name, "opencl", limits, SUB_BUFFER_ALIGNMENT, features=features, device=device
    )


def _lacks_of_mali(name: str) -> frozenset[str] | None:
    """The features of the flavour ``mali`` that the GPU of this name lacks; ``None`` if it is none of Arm's."""
    return next((lacking for names, lacking in MALI if re.fullmatch(names, name)), None)


def _nearest(name: str) -> tuple[str, frozenset[str]]:
    """The instruction set of ``AMD`` that is most similar to ``name``, and the features that ``name`` lacks; "" if unknown."""
    if name in AMD:
        return name, frozenset()
    found = ((like, lacking) for names, like, lacking in SIMILAR if re.fullmatch(names, name))
    return next(found, ("", frozenset()))


def resolve(which: str) -> Target:
    """The target of a flavour, or of the first device that has ``which`` in its platform's name and its own name (two drivers
    may offer the same device). If ``which`` is empty, any device, GPUs first.

    If a device of the flavour is here, it refines the flavour's limits. Exceptions are ``generic``, which must run on any
    device, and ``pocl``, which tests and records rely on. Raises ``UsageError`` that lists the known names if neither
    exists, and ``DeviceError`` if there is no device at all.
    """
    if _lacks_of_mali(which.lower()) is not None:
        which = which.lower()
    if which in FLAVOURS or _nearest(which)[0] or _lacks_of_mali(which) is not None:
        here = () if which in ("generic", "pocl") else _here(which)
        return of_device(here[0], f"opencl:{which}") if here else manifest(which)
    found = _fitting(which)
    if not found:
        if not which:
            raise DeviceError(
                f"no OpenCL device was found{_besides()}; install a driver; for the CPU: {install('pocl')}",
                code="GPC5001",
            )
        raise UsageError(
            f"no OpenCL device {quote(which)}: names are {NAMES}; devices here are {_named()}", code="GPC2002"
        )
    return of_device(found[0], f"opencl:{which}" if which else "opencl")


def _here(flavour: str) -> Sequence[Any]:
    """The devices of a flavour; none without pyopencl, which is not needed to compile."""
    try:
        return _fitting(flavour)
    except DeviceError:
        return ()


def _fitting(which: str) -> list[Any]:
    """The devices here that match ``opencl:<which>``."""
    if which in FLAVOURS:
        return [d for d in devices() if which == "generic" or flavour_of(d) == which]
    return [d for d in devices() if which.lower() in f"{d.platform.name} {d.name}".lower()]


def _named() -> str:
    """The devices here, as text for a message."""
    named = (f"{d.name.strip()!r} of {d.platform.name}" for d in devices())
    return (", ".join(named) or "none") + _besides()


def _besides() -> str:
    return "".join(f"; left out: {text}" for text in left_out())


def of_device(device: Any, name: str) -> Target:
    """A target with the limits of its flavour, refined by what ``device`` reports.

    Raises ``DeviceError`` (GPC5005) if the driver does not answer queries that OpenCL 1.2 requires.
    """
    with failing(f"{device.name.strip()}: ", "GPC5005"):
        return _refined(device, name)


def _refined(device: Any, name: str) -> Target:
    flavour = flavour_of(device)
    base = manifest((flavour == "amd" and amd_set(device.name)) or flavour)
    extensions = set(device.extensions.split())
    kind = base.features - set(EXTENSIONS.values()) - set(STATEMENTS)
    features = kind | {short for long, short in EXTENSIONS.items() if long in extensions} | fence_of(device)
    if c_version_of(device) < 3:
        features -= {"khr_dot"}
    limits = replace(
        base.limits,
        threads=min(base.limits.threads, int(device.max_work_group_size)),
        shared_bytes=min(base.limits.shared_bytes, int(device.local_mem_size)),
        units=int(device.max_compute_units),
        dots=bool(DOTS & features),
        device_fence=bool(features & set(STATEMENTS)),
    )
    if flavour == "pocl":
        limits = replace(limits, vector_bytes=vectors_of(device.version) or limits.vector_bytes)
    if flavour == "amd":
        limits = _amd_limits(device, limits)
    identity = f"{device.name.strip()} | {device.driver_version}"
    like = base.device and replace(base.device, name=device.name.strip(), units=limits.units)
    if like is not None and not limits.dots:
        like = without_dots(like)
    alignment = max(SUB_BUFFER_ALIGNMENT, alignment_of(device))
    return replace(
        base, name=name, limits=limits, features=features, identity=identity, device=like, alignment=alignment
    )


def _amd_limits(device: Any, limits: Limits) -> Limits:
    """``limits`` with the lanes of a wave that the device reports, and with the right number of compute units.

    RDNA's compute units have two SIMDs each and come in pairs, called work-group processors. ROCclr counts these pairs
    instead (``enableWgpMode_``); a unit with four SIMDs shows this.
    """
    lanes = answer(device, "wavefront_width_amd") or limits.warp
    paired = lanes == 32 and (answer(device, "simd_per_compute_unit_amd") or 4) == 4
    return replace(limits, warp=lanes, units=limits.units * 2 if paired else limits.units)


def answer(device: Any, question: str, otherwise: Any = 0) -> Any:
    """Query ``device`` for something that not every driver knows; ``otherwise`` if it does not answer."""
    try:
        return getattr(device, question)
    except (AttributeError, pyopencl().Error):
        return otherwise


def alignment_of(device: Any) -> int:
    """The alignment of sub-buffers in bytes."""
    return int(device.mem_base_addr_align) >> 3  # the driver reports bits


def has_sub_buffers(device: Any) -> bool:
    """Whether sub-buffers work on the device.

    Drivers of Mali's Midgard and Bifrost and of PowerVR are known to fail with sub-buffers; TensorFlow Lite's
    ``CanUseSubBuffer`` excludes them too.
    """
    names = f"{device.platform.vendor} {device.vendor} {device.name}".lower()
    return not re.search(r"mali-(t\d|g(31|51|52|71|72|76)\b)|powervr|imagination", names)


def fence_of(device: Any) -> frozenset[str]:
    """How work-groups of a launch see each other's writes (``gpucomp.device.fences``); empty if that is not guaranteed.

    ``amd_fence`` is a builtin of AMD's own compiler. NVIDIA's OpenCL lists no device scope, so ``ptx_fence`` is PTX, for
    GPUs with PTX's memory model (sm_70 and later); the L1 caches of older ones may keep what a fence should invalidate.
    """
    platform = device.platform.name
    if platform.startswith("AMD Accelerated"):
        return frozenset({"amd_fence"})
    if "NVIDIA" in platform and "cl_nv_device_attribute_query" in device.extensions:
        return frozenset({"ptx_fence"}) if answer(device, "compute_capability_major_nv") >= 7 else frozenset()
    version = c_version_of(device)
    listed = version == 2 or (version == 3 and {f.name for f in answer(device, "opencl_c_features", ())} >= FENCE_PARTS)
    return frozenset({"device_fence"}) if listed else frozenset()


def vectors_of(version: str) -> int:
    """Bytes of a vector of the processor in PoCL's version text, for which its LLVM compiles; 0 if unknown."""
    name = next((name for name in X86_64.processors if version.endswith(f"-{name}")), "")
    return X86_64.limits(X86_64.processors[name]).vector_bytes if name else 0


def amd_set(name: str) -> str:
    """The instruction set in a device's name, such as ``gfx90a:sramecc+:xnack-``; "" if it is unknown here."""
    found = re.match(r"gfx[0-9a-f]+", name.strip())
    return found[0] if found and _nearest(found[0])[0] else ""


def flavour_of(device: Any) -> str:
    """The flavour of a device: from its platform, which decides the compiler, and from whether it is a GPU.

    The device's name does not tell: Intel's CPU runtime may run on an AMD processor, PoCL also has GPUs, and Mesa's rusticl
    runs on GPUs of many vendors but has none of the vendors' builtins.
    """
    platform, gpu = f"{device.platform.name} {device.platform.vendor}".lower(), device.type & pyopencl().device_type.GPU
    marks = {"mali": r"\barm\b", "amd": r"\bamd\b|advanced micro"} if gpu else {"pocl": r"pocl|portable computing"}
    return next((flavour for flavour, mark in marks.items() if re.search(mark, platform)), "generic")


def pyopencl() -> Any:
    """Import pyopencl. Raises ``DeviceError`` that names the extra to install."""
    try:
        import pyopencl
    except ImportError as error:
        raise DeviceError(f"pyopencl is not installed: {install('opencl')}", code="GPC5002") from error
    return pyopencl


@contextmanager
def failing(what: str, code: str) -> Iterator[None]:
    """Turn pyopencl's errors in the block into ``DeviceError`` with ``code``, or GPC5004 if memory is exhausted."""
    cl = pyopencl()
    try:
        yield
    except cl.MemoryError as error:
        raise DeviceError(f"{what}the device has not enough memory ({error})", code="GPC5004") from error
    except cl.Error as error:
        raise DeviceError(f"{what}{error}", code=code) from error


@cache
def devices() -> tuple[Any, ...]:
    """Every usable OpenCL device, GPUs first, vendors' platforms before Mesa's rusticl, else in the platforms' order.

    Empty if there is no driver.
    """
    gpu = pyopencl().device_type.GPU
    found = [device for device, reason in _all_devices() if not reason]
    return tuple(sorted(found, key=lambda d: (not d.type & gpu, "rusticl" in d.platform.name.lower())))


def left_out() -> list[str]:
    """The devices here that cannot be used, each with the reason."""
    return [
        f"{device.name.strip()!r} of {device.platform.name}: {reason}" for device, reason in _all_devices() if reason
    ]


def _all_devices() -> list[tuple[Any, str]]:
    """Every device here, with the reason why it cannot be used, or an empty text."""
    cl = pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return []
    found: list[tuple[Any, str]] = []
    for platform in platforms:
        try:
            found += [(device, too_old(device)) for device in platform.get_devices()]
        except cl.Error:  # a platform without a device
            continue
    return found


def too_old(device: Any) -> str:
    """Why a device is too old: templates need OpenCL 1.2, and Mesa's Clover has 1.1. Empty if it is not."""
    found = re.match(r"OpenCL (\d+)\.(\d+)", device.version)
    if found is None or (int(found[1]), int(found[2])) >= OLDEST:
        return ""
    return f"it has OpenCL {found[1]}.{found[2]}, {OLDEST[0]}.{OLDEST[1]} is needed"


def device_of(target: Target) -> Any:
    """The device that runs ``target``'s kernels. Raises ``DeviceError`` if none is here."""
    fitting = _fitting(target.name.partition(":")[2])
    if not fitting:
        raise DeviceError(
            f"this machine has no device for target {target.name}; its OpenCL devices are {_named()}", code="GPC5001"
        )
    return fitting[0]


def c_version_of(device: Any) -> int:
    """The major version of OpenCL C that the device's compiler accepts. A device of OpenCL 3.0 may report 1.2 and list other
    versions. What it lists of 2.0 is optional, so the result is 2 only for a device of OpenCL 2."""
    versions = [tuple(map(int, re.findall(r"\d+", device.opencl_c_version)[:2]))]
    if device.version.startswith("OpenCL 3."):
        listed = answer(device, "opencl_c_all_versions", ())
        versions += [(found.version >> 22, found.version >> 12 & 1023) for found in listed]
    newest = max(versions)[0]
    return 1 if newest == 2 and device.version.startswith("OpenCL 3.") else newest


def lesser(target: Target) -> Iterator[Target]:
    """Variants of ``target`` for kernels that the device refuses: with smaller work-groups, then with fewer features."""
    limits = target.limits
    for features, shares in ((target.features, (2, 4)), (target.features - OPTIONAL, (1, 2, 4))):
        for share in shares:
            less = replace(
                limits,
                threads=max(LEAST.threads, limits.threads // share),
                shared_bytes=max(LEAST.shared_bytes, limits.shared_bytes // share),
                registers=max(LEAST.registers, limits.registers // share),
                dots=bool(DOTS & features),
                device_fence=bool(features & set(STATEMENTS)),
            )
            yield replace(target, limits=less, features=features)
