"""OpenCL targets: what the compiler may assume of each flavour, and building for a device. Running is elsewhere."""

from __future__ import annotations

import re
import threading
import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from gpucomp.codegen.fences import STATEMENTS
from gpucomp.codegen.source import KernelSource
from gpucomp.errors import DeviceError, KernelBuildError, UsageError
from gpucomp.schedule.device import AMD as AMD_DEVICES
from gpucomp.schedule.device import OPENCL as DEVICES
from gpucomp.schedule.device import without_dots
from gpucomp.schedule.space import Limits
from gpucomp.targets.cache import KernelCache
from gpucomp.targets.failure import build_failed
from gpucomp.targets.isa import X86_64
from gpucomp.targets.target import Target

FLAVOURS = {
    "generic": Limits(
        threads=256, shared_bytes=32768, warp=32, registers=128, units=8, subgroups=False, device_fence=False
    ),
    # one work-item at a time on each core; vectors are as wide as any CPU's, a device's own where it tells: wider ones end
    # PoCL 3.0 ("LLVM ERROR: Do not know how to scalarize") where its LLVM does not know the CPU for what it is
    "pocl": Limits(
        threads=4096, shared_bytes=1 << 19, warp=1, registers=255, units=2, vector_bytes=32, subgroups=False
    ),
    # Valhall: 16 threads a warp, 64 registers each; local memory is plain memory
    "mali": Limits(threads=256, shared_bytes=32768, warp=16, registers=64, units=4, subgroups=False),
    "amd": Limits(threads=256, shared_bytes=65536, warp=64, registers=255, units=60, subgroups=False),
}
FEATURES = {
    "generic": frozenset[str](),
    "pocl": frozenset({"fp64", "device_fence"}),
    "mali": frozenset({"mali", "fp16", "arm_dot_acc", "arm_dot", "device_fence"}),
    "amd": frozenset({"amd", "fp16", "fp64", "amd_fence"}),
}
# by the name of the instruction set: lanes of a wave, compute units, matrix instructions and dot products of bytes
AMD: dict[str, tuple[int, int, frozenset[str]]] = {
    "gfx906": (64, 60, frozenset({"sdot4"})),
    "gfx908": (64, 120, frozenset({"sdot4", "mfma"})),
    "gfx90a": (64, 110, frozenset({"sdot4", "mfma"})),
    "gfx942": (64, 304, frozenset({"sdot4", "mfma", "mfma_deep"})),
    "gfx1030": (32, 80, frozenset({"sdot4"})),
    "gfx1100": (32, 96, frozenset({"sudot4", "wmma"})),
}
EXTENSIONS = {
    "cl_khr_fp16": "fp16",
    "cl_khr_fp64": "fp64",
    "cl_arm_integer_dot_product_int8": "arm_dot",
    "cl_arm_integer_dot_product_accumulate_int8": "arm_dot_acc",
    "cl_khr_integer_dot_product": "khr_dot",
}
DOTS = frozenset({"sdot4", "sudot4", "arm_dot_acc", "arm_dot", "khr_dot"})  # dot products of bytes (``codegen.dots``)
TOGETHER = 32  # kernels of a program of PoCL's: more gain little, and between programs a compilation can be stopped
# what OpenCL C 3.0 has to list for a fence of the device's scope; OpenCL C 2.0 has it always
FENCE_PARTS = frozenset({"__opencl_c_atomic_order_acq_rel", "__opencl_c_atomic_scope_device"})
HELPER = re.compile(r"^(?!__kernel)\w[\w *]*\b(\w+)\([^;{]*\) \{$", re.MULTILINE)  # of a rendered text: its name
MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)
FLAGS = ("-cl-std=CL1.2",)
# of text that calls what earlier OpenCL C does not declare, whatever extensions are listed: by version of OpenCL C
NEWER = {3: "-cl-std=CL3.0", 2: "-cl-std=CL2.0"}
OF_NEWER = re.compile("dot_4x8packed|atomic_work_item_fence")


def flavours() -> tuple[str, ...]:
    return tuple(FLAVOURS)


def manifest(flavour: str) -> Target:
    """The target ``opencl:<flavour>``, without a device; an AMD instruction set is a flavour too: ``gfx90a``."""
    if flavour in AMD:
        warp, units, matrix = AMD[flavour]
        limits = replace(FLAVOURS["amd"], warp=warp, units=units)
        features = FEATURES["amd"] | matrix
        like = AMD_DEVICES[flavour]
        return Target(f"opencl:{flavour}", "opencl", flavour, "opencl", limits, features=features, device=like)
    # a Mali reads operands by vectors, which a computed operand has none of
    prologues = flavour != "mali"
    name, features = f"opencl:{flavour}", FEATURES[flavour]
    limits = replace(FLAVOURS[flavour], dots=bool(DOTS & features))
    device = DEVICES[flavour] if flavour == "mali" else None
    return Target(name, "opencl", flavour, "opencl", limits, prologues=prologues, features=features, device=device)


def resolve(which: str) -> Target:
    """The target of a flavour, or of the device whose name holds ``which``; where that is empty, of any, a GPU first.

    Raises ``UsageError`` when there is neither, with what exists, and ``DeviceError`` when there is no device at all.
    """
    if which in FLAVOURS or which in AMD:
        return manifest(which)
    found = [d for d in devices() if which.lower() in d.name.lower()]
    if not found:
        have = ", ".join(repr(d.name.strip()) for d in devices()) or "none"
        known = ", ".join((*FLAVOURS, *AMD))
        if not which:
            raise DeviceError(
                "no OpenCL device was found; install a driver (or `pip install gpucomp[pocl]` for the CPU)",
                code="GPC5001",
            )
        raise UsageError(f"no OpenCL device {which!r}: flavours are {known}; devices here are {have}", code="GPC2002")
    return of_device(found[0], f"opencl:{which}" if which else "opencl")


def of_device(device: Any, name: str) -> Target:
    """A target with the limits that ``device`` reports, on top of its flavour's."""
    base = manifest(amd_set(device.name) or flavour_of(device))
    extensions = set(device.extensions.split())
    kind = base.features - set(EXTENSIONS.values()) - set(STATEMENTS)
    features = kind | {short for long, short in EXTENSIONS.items() if long in extensions} | fence_of(device)
    if _compiles(device) < 3:
        features -= {"khr_dot"}
    limits = replace(
        base.limits,
        threads=min(base.limits.threads, int(device.max_work_group_size)),
        shared_bytes=min(base.limits.shared_bytes, int(device.local_mem_size)),
        units=int(device.max_compute_units),
        dots=bool(DOTS & features),
        device_fence=bool(features & set(STATEMENTS)),
    )
    if flavour_of(device) == "pocl":
        limits = replace(limits, vector_bytes=vectors_of(device.version) or limits.vector_bytes)
    identity = f"{device.name.strip()} | {device.driver_version}"
    like = base.device and replace(base.device, name=device.name.strip(), units=limits.units)
    if like is not None and not limits.dots:
        like = without_dots(like)
    return replace(base, name=name, limits=limits, features=features, identity=identity, device=like)


def fence_of(device: Any) -> frozenset[str]:
    """How work-groups of a launch see what others have left (``gpucomp.codegen.fences``); empty where nothing says they do.

    The builtin is of AMD's own compiler, the PTX of NVIDIA's, whose OpenCL lists no scope of the device: for GPUs that have
    PTX's memory model, sm_70 and later; the first caches of those before may hold what a fence is to end.
    """
    platform = device.platform.name
    if platform.startswith("AMD Accelerated"):
        return frozenset({"amd_fence"})
    if "NVIDIA" in platform and "cl_nv_device_attribute_query" in device.extensions:
        return frozenset({"ptx_fence"}) if device.compute_capability_major_nv >= 7 else frozenset()
    version = _compiles(device)
    listed = version == 2 or (version == 3 and {f.name for f in device.opencl_c_features} >= FENCE_PARTS)
    return frozenset({"device_fence"}) if listed else frozenset()


def vectors_of(version: str) -> int:
    """Bytes of a vector of the processor that PoCL's LLVM compiles for, as its OpenCL version tells; 0 where that is unknown."""
    name = next((name for name in X86_64.processors if version.endswith(f"-{name}")), "")
    return X86_64.limits(X86_64.processors[name]).vector_bytes if name else 0


def amd_set(name: str) -> str:
    """The instruction set that a device's name tells, ``gfx90a:sramecc+:xnack-`` say, if it is one of ``AMD``."""
    found = re.match(r"gfx[0-9a-f]+", name.strip())
    return found[0] if found and found[0] in AMD else ""


def flavour_of(device: Any) -> str:
    """Which manifest fits a device, by what it says of itself."""
    text = f"{device.platform.name} {device.vendor} {device.name}".lower()
    marks = {"pocl": r"pocl|portable computing", "mali": r"mali|\barm\b", "amd": r"amd|advanced micro|gfx\d"}
    return next((flavour for flavour, mark in marks.items() if re.search(mark, text)), "generic")


def pyopencl() -> Any:
    """The module, or ``DeviceError`` naming the extra that brings it."""
    try:
        import pyopencl
    except ImportError as error:
        raise DeviceError("pyopencl is not installed: pip install gpucomp[opencl]", code="GPC5002") from error
    return pyopencl


class _Quiet:
    """No warnings while any thread is within: compilers print notes on success, and pyopencl warns of each.

    The filters belong to the process, so the first to enter saves them and only the last to leave restores them.
    """

    def __init__(self) -> None:
        self._lock, self._within = threading.Lock(), 0
        self._saved = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if self._within == 0:
                self._saved = warnings.catch_warnings()
                self._saved.__enter__()
                warnings.simplefilter("ignore")
            self._within += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._within -= 1
            if self._within == 0:
                self._saved.__exit__(None, None, None)


_quiet = _Quiet()


@cache
def devices() -> tuple[Any, ...]:
    """Every OpenCL device here, GPUs first, else in the platforms' order; none when there is no driver."""
    cl = pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return ()
    found: list[Any] = []
    for platform in platforms:
        try:
            found += platform.get_devices()
        except cl.Error:  # a platform whose driver has no device
            continue
    return tuple(sorted(found, key=lambda d: not d.type & cl.device_type.GPU))


def device_of(target: Target) -> Any:
    """The device that runs ``target``'s kernels. Raises ``DeviceError`` when none here does."""
    which = target.name.partition(":")[2]
    if which in FLAVOURS:
        fitting = [d for d in devices() if which == "generic" or flavour_of(d) == which]
    else:
        fitting = [d for d in devices() if which.lower() in d.name.lower()]
    if not fitting:
        have = ", ".join(repr(d.name.strip()) for d in devices()) or "none"
        raise DeviceError(f"no device for {target.name} here; devices are {have}", code="GPC5001")
    return fitting[0]


def build(source: KernelSource, target: Target, cache: KernelCache | None = None) -> bytes:
    """The device's binary, or the source itself where no device is here to build for it."""
    try:
        device = device_of(target)
    except DeviceError:
        return source.text.encode()
    cl = pyopencl()
    return program(cl.Context([device]), device, source, cache)[1]


def members(wanted: Mapping[str, KernelSource], target: Target, cache: KernelCache | None = None) -> dict[str, bytes]:
    """What an artefact holds of kernels, by their binaries' names: see ``build``. The kernels are one of ``batches``."""
    done: dict[str, Any] = {}
    if len(wanted) > 1:
        device = device_of(target)
        done = together(pyopencl().Context([device]), device, list(wanted.values()))
    return {
        name: source.text.encode() if source.name in done else build(source, target, cache)
        for name, source in wanted.items()
    }


def batches(sources: Sequence[KernelSource], target: Target) -> list[list[KernelSource]]:
    """``sources`` as ``members`` takes them: those that one run of the device's compiler makes."""
    try:
        return _batches(sources, device_of(target))
    except DeviceError:
        return [[source] for source in sources]


def _batches(sources: Sequence[KernelSource], device: Any) -> list[list[KernelSource]]:
    """In an order of their own, so that PoCL's cache knows the same kernels again whoever asks for them."""
    if flavour_of(device) != "pocl" or len({source.name for source in sources}) < len(sources):
        return [[source] for source in sources]
    groups: dict[tuple[str, ...], list[KernelSource]] = {}
    for source in sorted(sources, key=lambda source: source.name):
        groups.setdefault(tuple(build_flags(device, source)), []).append(source)
    return [group[at : at + TOGETHER] for group in groups.values() for at in range(0, len(group), TOGETHER)]


def together(context: Any, device: Any, sources: Sequence[KernelSource]) -> dict[str, Any]:
    """One program for a batch of ``sources``, by the names of their kernels; none where the device refuses it.

    PoCL takes longer to read OpenCL C's declarations than most kernels.
    """
    cl, flags = pyopencl(), build_flags(device, sources[0])
    with _quiet:
        try:
            built = _with_kernels(context, device, sources, flags)
        except cl.RuntimeError:
            return {}  # which kernel it is, each alone will tell
    return {source.name: built for source in sources}


def _with_kernels(context: Any, device: Any, sources: Sequence[KernelSource], flags: Sequence[str]) -> Any:
    """A program of ``sources``, built, that has their kernels.

    PoCL 3.0 does not find all kernels in what it has in its cache, where functions of the text take vectors wider than those
    of the processor as its LLVM knows it (``float16`` by value, znver3 for a Zen 4): with a name more, which its
    preprocessor leaves there, it builds it anew.
    """
    cl, text = pyopencl(), joined(sources) if len(sources) > 1 else sources[0].text
    built = cl.Program(context, text).build(flags, cache_dir=False)
    if flavour_of(device) == "pocl" and not {source.name for source in sources} <= set(built.kernel_names.split(";")):
        built = cl.Program(context, f"{text}\ntypedef int again_{uuid.uuid4().hex};\n").build(flags, cache_dir=False)
    return built


def joined(sources: Sequence[KernelSource]) -> str:
    """The text of all ``sources``, each with helpers of its own; PoCL has some of OpenCL's functions as macros."""
    texts = []
    for source in sources:
        helpers = HELPER.findall(source.text)
        own = dict.fromkeys((*helpers, *MACRO.findall(source.text)))
        texts += [f'#pragma push_macro("{name}")' for name in own]
        texts += [f"#define {name} {source.name}_{name}" for name in helpers]
        texts += [source.text, *(f'#pragma pop_macro("{name}")' for name in own)]
    return "\n".join(texts)


def compiler_version(device: Any) -> str:
    return f"{device.platform.version} | {device.name} | {device.driver_version}"


def program(
    context: Any,
    device: Any,
    source: KernelSource,
    cache: KernelCache | None = None,
    *,
    flags: Sequence[str] | None = None,
) -> tuple[Any, bytes]:
    """A built program and its binary, from the cache where that has it; ``flags`` are those of ``build_flags`` if none.

    PoCL's binary is the source: it keeps what it has built in a cache of its own, and to hand out a binary it builds
    every kernel once more, for work-groups of any size, which no launch of ours uses.

    Raises ``KernelBuildError`` with the compiler's first error when the device refuses the source.
    """
    cl = pyopencl()
    flags = build_flags(device, source) if flags is None else list(flags)
    if flavour_of(device) == "pocl":
        cache = None
    key = cache.key(source, target="opencl", compiler=compiler_version(device), flags=flags) if cache else ""
    binary = cache.get(key) if cache else None
    with _quiet:
        if binary is not None:
            try:
                return cl.Program(context, [device], [binary]).build(flags), binary
            except cl.Error:  # a driver update: the binary is no longer welcome, the source is
                pass
        try:
            built = _with_kernels(context, device, [source], flags)
        except cl.RuntimeError as error:
            raise KernelBuildError(build_failed(source, _first_error(str(error)))) from error
    if flavour_of(device) == "pocl":
        return built, source.text.encode()
    binary = bytes(built.get_info(cl.program_info.BINARIES)[0])
    if cache:
        cache.put(key, binary)
    return built, binary


def _compiles(device: Any) -> int:
    """The version of OpenCL C that the device's compiler takes. A device of OpenCL 3.0 may name 1.2 first, and list the
    others; what it lists of 2.0 is optional there, so 2 is a device of OpenCL 2."""
    versions = [tuple(map(int, re.findall(r"\d+", device.opencl_c_version)[:2]))]
    if device.version.startswith("OpenCL 3."):
        versions += [(found.version >> 22, found.version >> 12 & 1023) for found in device.opencl_c_all_versions]
    newest = max(versions)[0]
    return 1 if newest == 2 and device.version.startswith("OpenCL 3.") else newest


def build_flags(device: Any, source: KernelSource) -> list[str]:
    """What ``program`` tells the device's compiler."""
    newer = NEWER.get(_compiles(device)) if OF_NEWER.search(source.text) else None
    flags = [*([newer] if newer else FLAGS), *_cautious(device, source)]
    if device.single_fp_config & pyopencl().device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        flags.append("-cl-fp32-correctly-rounded-divide-sqrt")
    return flags


def _cautious(device: Any, source: KernelSource) -> Sequence[str]:
    """Flags that keep PoCL's answers right where work-items meet at barriers.

    PoCL runs a work-group as loops over its work-items between barriers and marks them parallel for LLVM's vectoriser
    ("loopvec"). With a tile on its way in registers, PoCL 3.0 and 3.1 then give wrong numbers or abort, for text in
    which Oclgrind finds no fault; without optimisation, or with POCL_WORK_GROUP_METHOD=loops, the same text is right.
    No small text that shows it is known: nine schedules of the contraction template, unrolled or not, were right with
    optimisation too. So the flag stays for all of them; it also builds in seconds what optimisation takes a minute for.
    """
    meets = "barrier(" in source.text and source.geometry.items[0] > 1
    return ("-cl-opt-disable",) if meets and flavour_of(device) == "pocl" else ()


def load(context: Any, device: Any, source: KernelSource, binary: bytes, cache: KernelCache | None) -> Any:
    """A built program from ``binary``, or from the source where the binary is another device's or no binary at all."""
    cl = pyopencl()
    if binary and binary != source.text.encode():
        with _quiet:
            try:
                return cl.Program(context, [device], [binary]).build()
            except cl.Error:
                pass
    return program(context, device, source, cache)[0]


def load_all(
    context: Any, device: Any, kernels: Sequence[tuple[KernelSource, bytes]], cache: KernelCache | None
) -> list[Any]:
    """``load`` of each source and its binary, in their order; sources without a binary are built in batches."""
    plain = {s.name: s for s, binary in kernels if not binary or binary == s.text.encode()}
    done: dict[str, Any] = {}
    for batch in _batches(list(plain.values()), device):
        if len(batch) > 1:
            done |= together(context, device, batch)
    return [
        done[s.name] if s.name in done and plain[s.name] is s else load(context, device, s, binary, cache)
        for s, binary in kernels
    ]


def _first_error(log: str) -> str:
    lines: Sequence[str] = [line.strip() for line in log.splitlines()]
    return next((line for line in lines if "error:" in line), next((line for line in lines if line), "no message"))
