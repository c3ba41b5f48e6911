"""Building OpenCL C for a device: programs of several kernels, a compiler's flags, and binaries that are loaded again."""

from __future__ import annotations

import hashlib
import math
import re
import threading
import uuid
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from gpucomp.device.target import Target
from gpucomp.errors import DeviceError, KernelBuildError
from gpucomp.kernel.source import KernelSource
from gpucomp.targets import opencl, processors
from gpucomp.targets.cache import KernelCache
from gpucomp.targets.failure import build_failed
from gpucomp.targets.patience import patiently

TOGETHER = 32  # kernels of a program: more save little, and a compilation can be stopped only between programs
HELPER = re.compile(r"^(?!__kernel)\w[\w *]*\b(\w+)\([^;{]*\) \{$", re.MULTILINE)  # the name of a helper function
MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)
FLAGS = ("-cl-std=CL1.2",)
# for text that calls functions which earlier OpenCL C does not declare, whatever extensions are listed
NEWER = {3: "-cl-std=CL3.0", 2: "-cl-std=CL2.0"}
OF_NEWER = re.compile("dot_4x8packed|atomic_work_item_fence")
# text that makes whole numbers, such as quantized values: a quotient that is one bit off may give another number
WHOLE_NUMBERS = re.compile(r"\b(?:rint|floor|ceil|f\d+_to_[iu]\d+)\(")
REQUIRED = re.compile(r"__attribute__\(\(reqd_work_group_size\([^)]*\)\)\) ")


class _Quiet:
    """Ignores warnings while any thread is inside: compilers print notes on success, and pyopencl warns of each.

    Warning filters belong to the process, so the first thread to enter saves them and the last one to leave restores them.
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


def build(source: KernelSource, target: Target, cache: KernelCache | None = None) -> bytes:
    """The device's binary, or the source text if no such device is here."""
    return members({source.name: source}, target, cache)[source.name]


def members(
    wanted: Mapping[str, KernelSource], target: Target, cache: KernelCache | None = None, *, exact: bool = True
) -> dict[str, bytes]:
    """The artefact's binaries of ``wanted``, which must be one of ``batches``: they are built as one program.

    The first one holds the program's binary and the others are empty. If no such device is here, each one is its source.

    Raises ``KernelBuildError`` if the device refuses the program, or cannot launch one of its kernels.
    """
    sources = list(wanted.values())
    plain = {name: source.text.encode() for name, source in wanted.items()}
    try:
        device = opencl.device_of(target)
    except DeviceError:
        return plain
    with opencl.failing(f"{device.name.strip()}: ", "GPC5005"):
        context = opencl.pyopencl().Context([device])
    built, binary = _program(context, device, sources, cache, build_flags(device, sources[0], exact=exact))
    for source in sources:
        kernel_of(device, built, source)
    if opencl.flavour_of(device) == "pocl":
        return plain
    return {name: b"" if number else binary for number, name in enumerate(wanted)}


def batches(sources: Sequence[KernelSource], target: Target, *, exact: bool = True) -> list[list[KernelSource]]:
    """``sources`` in groups that the device's compiler builds as one program each, for ``members``."""
    try:
        return _batches(sources, opencl.device_of(target), exact)
    except DeviceError:
        return [[source] for source in sources]


def _batches(sources: Sequence[KernelSource], device: Any, exact: bool) -> list[list[KernelSource]]:
    """Sorted by name, so that a cache finds the same groups whatever order the caller has.

    A compiler may need longer to read OpenCL C's declarations than to compile small kernels: with Intel's runtime eight small
    kernels take 0.2 s as one program and 0.6 s as eight, because it compiles one program at a time in any number of threads,
    as PoCL does. Other compilers run in parallel, so there are at least as many programs as processors.
    """
    if len({source.name for source in sources}) < len(sources):
        return [[source] for source in sources]
    groups: dict[tuple[str, ...], list[KernelSource]] = {}
    for source in sorted(sources, key=lambda source: source.name):
        groups.setdefault(tuple(build_flags(device, source, exact=exact)), []).append(source)
    parts = 1 if opencl.flavour_of(device) == "pocl" else processors()
    size = {flags: min(TOGETHER, -(-len(group) // parts)) for flags, group in groups.items()}
    return [group[at : at + size[flags]] for flags, group in groups.items() for at in range(0, len(group), size[flags])]


def load_all(
    context: Any,
    device: Any,
    kernels: Sequence[tuple[KernelSource, bytes]],
    cache: KernelCache | None,
    *,
    exact: bool = True,
) -> list[Any]:
    """Load the programs of all kernels, in order: from their binaries where the device accepts them, see ``members``.

    Other kernels are built from source, in batches. Raises ``KernelBuildError`` for a kernel that the device refuses.
    """
    programs: dict[str, Any] = {}
    for source, binary in kernels:
        if binary and binary != source.text.encode():
            found = _from_binary(context, device, binary)
            programs |= dict.fromkeys(found.kernel_names.split(";"), found) if found is not None else {}
    built: dict[int, Any] = {id(s): programs[s.name] for s, _ in kernels if s.name in programs}
    groups = _batches([s for s, _ in kernels if id(s) not in built], device, exact)

    def made(batch: Sequence[KernelSource]) -> Any:
        return _program(context, device, batch, cache, build_flags(device, batch[0], exact=exact))[0]

    def each(batch: Sequence[KernelSource]) -> dict[int, Any]:
        try:
            return dict.fromkeys(map(id, batch), made(batch))
        except KernelBuildError:
            if len(batch) == 1:
                raise
            return {id(source): made([source]) for source in batch}  # the refused kernel raises its own error

    with ThreadPoolExecutor(max_workers=processors()) as pool:
        for found in pool.map(each, groups):
            built |= found
    return [built[id(source)] for source, _ in kernels]


def kernel_of(device: Any, built: Any, source: KernelSource) -> Any:
    """A kernel of a program. Raises ``KernelBuildError`` if the device cannot launch it with its work-group size."""
    cl, items = opencl.pyopencl(), math.prod(source.geometry.items)
    try:
        kernel = cl.Kernel(built, source.name)
        most = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)
        local = kernel.get_work_group_info(cl.kernel_work_group_info.LOCAL_MEM_SIZE, device)
    except cl.Error as error:
        raise KernelBuildError(f"kernel {source.name}: {error}", code="GPC5104") from error
    if items > most and not _tells_lanes(device):
        raise KernelBuildError(
            f"kernel {source.name}: {items} work-items in a work-group, {device.name.strip()} can run {most} of this kernel",
            code="GPC5104",
        )
    # if local memory is ordinary memory, there is more of it than the device reports
    if local > device.local_mem_size and device.local_mem_type == cl.device_local_mem_type.LOCAL:
        raise KernelBuildError(
            f"kernel {source.name}: {local} bytes of local memory, {device.name.strip()} has {device.local_mem_size} B",
            code="GPC5104",
        )
    return kernel


def _tells_lanes(device: Any) -> bool:
    """Whether the driver reports the lanes of a subgroup instead of a kernel's largest work-group, as Mesa's rusticl did in
    its first year (22.3)."""
    return "rusticl" in device.platform.name.lower() and device.driver_version.startswith("22.")


def program(
    context: Any,
    device: Any,
    source: KernelSource,
    cache: KernelCache | None = None,
    *,
    flags: Sequence[str] | None = None,
) -> tuple[Any, bytes]:
    """A built program and its binary, from the cache if possible; ``flags`` default to ``build_flags``.

    Raises ``KernelBuildError`` with the compiler's first error if the device refuses the source.
    """
    return _program(context, device, [source], cache, build_flags(device, source) if flags is None else flags)


def _program(
    context: Any, device: Any, sources: Sequence[KernelSource], cache: KernelCache | None, flags: Sequence[str]
) -> tuple[Any, bytes]:
    """One program of all ``sources``, see ``program``.

    For PoCL the source is used as the binary. PoCL has a cache of its own, and to return a binary it would build every
    kernel once more, for work-groups of any size, which no launch here uses.
    """
    cl, flags = opencl.pyopencl(), list(flags)
    whole = sources[0] if len(sources) == 1 else replace(sources[0], text=joined(sources))
    if opencl.flavour_of(device) == "pocl":
        cache = None
    key = cache.key(whole, target="opencl", compiler=compiler_version(device), flags=flags) if cache else ""
    binary = cache.get(key) if cache else None
    if binary is not None and (built := _from_binary(context, device, binary)) is not None:
        return built, binary
    try:
        with _quiet:
            built = _with_kernels(context, device, sources, flags)
        if opencl.flavour_of(device) == "pocl":
            return built, whole.text.encode()
        binary = _mark(device) + bytes(built.get_info(cl.program_info.BINARIES)[0])
    except TimeoutError as error:
        told = f"{device.name.strip()}: {error}"
        raise KernelBuildError(build_failed(whole, told) if len(sources) == 1 else told, code="GPC5105") from error
    except cl.Error as error:
        first = _first_error(str(error))
        raise KernelBuildError(build_failed(whole, first) if len(sources) == 1 else first) from error
    if cache:
        cache.put(key, binary)
    return built, binary


def _with_kernels(context: Any, device: Any, sources: Sequence[KernelSource], flags: Sequence[str]) -> Any:
    """Build a program of ``sources`` and make sure that it has their kernels.

    PoCL 3.0 does not find all kernels of a program in its own cache if helper functions take vectors that are wider than the
    registers of the processor as its LLVM knows it (``float16`` by value, on a Zen 4 known as znver3). One more name in the
    text makes it build the program anew.
    """
    cl, text = opencl.pyopencl(), for_driver(device, joined(sources) if len(sources) > 1 else sources[0].text)
    built = patiently(lambda: cl.Program(context, text).build(flags, cache_dir=False), len(sources))
    if opencl.flavour_of(device) == "pocl" and not {source.name for source in sources} <= set(
        built.kernel_names.split(";")
    ):
        text = f"{text}\ntypedef int again_{uuid.uuid4().hex};\n"
        built = patiently(lambda: cl.Program(context, text).build(flags, cache_dir=False), len(sources))
    return built


def for_driver(device: Any, text: str) -> str:
    """The text for the device's driver: for an Adreno without the sizes of work-groups.

    A kernel with a required size is slower there; CLBlast removes it too (``compile.cpp``).
    """
    return REQUIRED.sub("", text) if "qualcomm" in f"{device.platform.name} {device.vendor}".lower() else text


def joined(sources: Sequence[KernelSource]) -> str:
    """One text of all ``sources``, with unique names for their helpers; some of OpenCL's functions are macros in PoCL."""
    texts = []
    for source in sources:
        helpers = HELPER.findall(source.text)
        own = dict.fromkeys((*helpers, *MACRO.findall(source.text)))
        texts += [f'#pragma push_macro("{name}")' for name in own]
        texts += [f"#define {name} {source.name}_{name}" for name in helpers]
        texts += [source.text, *(f'#pragma pop_macro("{name}")' for name in own)]
    return "\n".join(texts)


def _mark(device: Any) -> bytes:
    """The first bytes of every binary made by this device's driver."""
    return b"gpucomp opencl " + hashlib.sha256(compiler_version(device).encode()).hexdigest().encode() + b"\n"


def _from_binary(context: Any, device: Any, binary: bytes) -> Any | None:
    """Load a program; ``None`` if another driver made the binary, and the source must be built instead.

    The mark is checked first because not every driver does: Mesa's rusticl (22.3) aborts on a foreign binary.
    """
    cl, mark = opencl.pyopencl(), _mark(device)
    if not binary.startswith(mark):
        return None
    with _quiet:
        try:
            return cl.Program(context, [device], [binary.removeprefix(mark)]).build()
        except cl.Error:
            return None


def compiler_version(device: Any) -> str:
    return f"{device.platform.version} | {device.name} | {device.driver_version}"


def build_flags(device: Any, source: KernelSource, *, exact: bool = True) -> list[str]:
    """The compiler flags for ``source``. If the model is ``exact`` or the kernel makes whole numbers, quotients and roots are
    correctly rounded, which costs about ten instructions each."""
    newer = NEWER.get(opencl.c_version_of(device)) if OF_NEWER.search(source.text) else None
    flags = [*([newer] if newer else FLAGS), *_cautious(device, source)]
    rounds_right = device.single_fp_config & opencl.pyopencl().device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
    if rounds_right and (exact or WHOLE_NUMBERS.search(source.text)):
        flags.append("-cl-fp32-correctly-rounded-divide-sqrt")
    return flags


def _cautious(device: Any, source: KernelSource) -> Sequence[str]:
    """Flags that keep PoCL's results right for kernels with barriers.

    PoCL runs a work-group as loops over its work-items between barriers and marks them parallel for LLVM's vectoriser
    ("loopvec"). While a tile is prefetched into registers, PoCL 3.0 and 3.1 then give wrong numbers or abort, for text in
    which Oclgrind finds no fault. Without optimisation, or with POCL_WORK_GROUP_METHOD=loops, the same text is right. No
    small example is known: nine schedules of the contraction template, unrolled or not, were right with optimisation too.
    So all such kernels get the flag. With it they also compile in seconds instead of up to a minute.
    """
    meets = "barrier(" in source.text and source.geometry.items[0] > 1
    return ("-cl-opt-disable",) if meets and opencl.flavour_of(device) == "pocl" else ()


def _first_error(log: str) -> str:
    lines: Sequence[str] = [line.strip() for line in log.splitlines()]
    return next((line for line in lines if "error:" in line), next((line for line in lines if line), "no message"))
