"""Finds targets by name and builds a model's kernels for one. Each kind of target is a module, imported on demand.

A new kind of target needs:

    ``MODULES`` here                      its manifest: ``named`` or ``resolve``, and what builds its kernels (``BUILDERS``)
    ``gpucomp.targets.back_end``          the engines and the renderer of its language, if the language is new
    ``gpucomp.kernel.source``             the suffix of its sources, if the language is new
    ``gpucomp.artifact.manifest.KINDS``   its name, so that a compiled model may be of it
    ``gpucomp.runtime.executable.PROGRAMS``  what runs a compiled model
    ``gpucomp.tuning.devices.KINDS``      what measures a candidate

``tests/targets/test_kinds.py`` compares these tables.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from gpucomp import config
from gpucomp.artifact.plan import Plan
from gpucomp.device.isa import require_loads
from gpucomp.device.target import Target
from gpucomp.errors import KernelBuildError, UsageError, quote
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.stages import Progress

MODULES = {
    "cpu": "gpucomp.targets.cpu",
    "opencl": "gpucomp.targets.opencl",
    "cuda": "gpucomp.targets.cuda",
    "hip": "gpucomp.targets.hip",
}
BUILDERS = MODULES | {"opencl": "gpucomp.targets.opencl_build"}


def _module(kind: str) -> Any:
    return importlib.import_module(MODULES[kind])


def resolve(text: str) -> Target:
    """The target for a name: ``auto``, ``cpu[:NAME]``, ``opencl[:NAME]``, ``cuda[:sm_XX]``, ``hip[:gfxNNN]``.

    Raises ``UsageError`` that lists the known names for an unknown one, and ``DeviceError`` if no device of the kind is here.
    """
    if not isinstance(text, str):
        raise UsageError(f"a target's name expected, {type(text).__name__} given", code="GPC2009")
    if text == "auto":
        text = config.current().target
        text = "cpu" if text == "auto" else text
    kind, colon, which = text.partition(":")
    if kind not in MODULES or (colon and not which):
        raise UsageError(
            f"unknown target {quote(text)}; targets are auto, cpu, cpu:PROCESSOR, opencl, opencl:NAME, cuda, "
            f"cuda:ARCHITECTURE, hip, hip:SET (auto: GPUCOMP_TARGET, or cpu; names for opencl: {_module('opencl').NAMES}; "
            f"architectures: sm_75 to sm_120; sets: {_module('hip').NAMES})",
            code="GPC2002",
        )
    module = _module(kind)
    target: Target = module.named(text) if kind == "cpu" else module.resolve(which)
    return target


def require_compiler(target: Target) -> None:
    """Raise ``DeviceError`` if the target's compiler is missing. OpenCL's comes with the driver."""
    if target.kind == "cuda":
        _module("cuda").nvrtc()
    if target.kind == "hip":
        _module("hip").compiler_version()


def compiler_version(target: Target) -> str:
    """The compiler that builds for ``target``, where ``target.identity`` does not tell. Raises ``DeviceError``."""
    return str(_module(target.kind).compiler_version()) if target.kind in ("cuda", "hip") else ""


def require_device(target: Target) -> None:
    """Raise ``DeviceError`` if what runs the target's kernels, the packages or the device, is missing."""
    if target.kind == "cpu":
        require_loads(target.features, target.arch)
    if target.kind == "opencl":
        _module("opencl").device_of(target)
    if target.kind == "cuda":
        _module("cuda").require_gpu()
    if target.kind == "hip":
        _module("hip").require_gpu(target.arch)


def driver_of(target: Target) -> str:
    """The driver and the device that run the target's kernels, as ``opencl_build.compiler_version`` names them; empty for others
    than OpenCL's. Raises ``DeviceError`` as ``require_device`` does.
    """
    require_device(target)
    if target.kind != "opencl":
        return ""
    return str(importlib.import_module(BUILDERS["opencl"]).compiler_version(_module("opencl").device_of(target)))


class Begun(Protocol):
    """Kernels whose compilation has begun."""

    def expect(self, nodes: int) -> None:
        """Get ready for the kernels of a graph of so many ``nodes``."""
        ...

    def start(self, source: KernelSource) -> None:
        """Compile ``source``, some time later."""
        ...


class _Waiting:
    """For compilers that are given several kernels at once: they begin when all are known."""

    def expect(self, nodes: int) -> None:
        pass

    def start(self, source: KernelSource) -> None:
        pass


def begin(target: Target) -> AbstractContextManager[Begun]:
    """Compiles kernels for ``target`` while others are still being rendered; ``attempt`` takes what it has."""
    if target.kind != "cpu":
        return nullcontext(_Waiting())
    from gpucomp.targets.cache import open_cache

    begun: AbstractContextManager[Begun] = _module("cpu").Begun(target, open_cache())
    return begun


def build(plan: Plan, sources: Sequence[KernelSource], target: Target, tell: Progress) -> dict[str, bytes]:
    """Compile ``sources``. The result is by the names of the plan's binaries (``CompiledKernel.binary``).

    For CUDA it also has PTX (``cuda.ptx_name``), which newer devices load.

    Raises ``KernelBuildError`` if a compiler refuses a kernel.
    """
    binaries, refused = attempt(plan, sources, target, tell)
    for error in refused.values():
        raise error
    return binaries


def attempt(
    plan: Plan, sources: Sequence[KernelSource], target: Target, tell: Progress, begun: Begun | None = None
) -> tuple[dict[str, bytes], dict[str, KernelBuildError]]:
    """Like ``build``, but return the errors of refused kernels, by kernel name, beside the binaries of the others.

    ``begun`` is what ``begin`` returned for ``target``.
    """
    members = {kernel.name: kernel.binary for kernel in plan.kernels}
    wanted = [source for source in sources if source.name in members]
    if not wanted:  # results without elements need no kernel
        return {}, {}
    from gpucomp.targets.cache import open_cache

    module, cache = importlib.import_module(BUILDERS[target.kind]), open_cache()
    if target.kind == "cpu":
        tell("compile", 0, 1)
        return {plan.kernels[0].binary: module.build(wanted, target, cache, begun)}, {}
    batches, made = [[source] for source in wanted], module.members
    if target.kind == "opencl":
        exact = plan.precision == "fp32"
        batches, made = module.batches(wanted, target, exact=exact), functools.partial(module.members, exact=exact)
    binaries: dict[str, bytes] = {}
    refused: dict[str, KernelBuildError] = {}
    number = 0
    with ThreadPoolExecutor(max_workers=processors()) as pool:

        def start(batch: list[KernelSource]) -> tuple[list[KernelSource], Future[dict[str, bytes]]]:
            return batch, pool.submit(made, {members[s.name]: s for s in batch}, target, cache)

        waiting = [start(batch) for batch in batches]
        try:
            for batch, future in waiting:  # the list can grow during the loop
                tell("compile", number, len(wanted))
                error = future.exception()
                if not isinstance(error, KernelBuildError):
                    binaries |= future.result()
                elif len(batch) > 1:  # build each kernel alone to find the refused one
                    waiting += [start([source]) for source in batch]
                    continue
                else:
                    refused[batch[0].name] = error
                number += len(batch)
        finally:
            for _, future in waiting:
                future.cancel()
    return binaries, refused


def processors() -> int:
    """The number of compilations that run at once."""
    return min(len(os.sched_getaffinity(0)), 16)


def lesser(target: Target) -> Iterator[Target]:
    """Variants of ``target`` with lower and lower limits, for kernels that the device refuses; empty if a refusal is a bug."""
    return _module("opencl").lesser(target) if target.kind == "opencl" else iter(())


def rebuild(plan: Plan, sources: Mapping[str, str]) -> dict[str, bytes]:
    """Build the binaries of a plan from its sources alone, for a user who does not trust binaries. Raises like ``build``."""
    made = [
        KernelSource(k.name, k.language, sources[k.source], Geometry(k.groups, k.items, k.shared), k.schedule)
        for k in plan.kernels
    ]
    return build(plan, made, resolve(plan.target), lambda stage, done, total: None)
