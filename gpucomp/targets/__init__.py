"""Targets by name, and building a model's kernels for one. Each kind of target is a module, imported when it is asked for."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpucomp import config
from gpucomp.codegen.source import KernelSource
from gpucomp.errors import UsageError, quote
from gpucomp.runtime.plan import Plan
from gpucomp.schedule.space import Geometry
from gpucomp.targets.target import Target

MODULES = {
    "cpu": "gpucomp.targets.cpu",
    "opencl": "gpucomp.targets.opencl",
    "cuda": "gpucomp.targets.cuda",
}
Progress = Callable[[str, int, int], None]


def _module(kind: str) -> Any:
    return importlib.import_module(MODULES[kind])


def resolve(text: str) -> Target:
    """The target that a user wrote: ``auto``, ``cpu[:NAME]``, ``opencl[:FLAVOUR or device]``, ``cuda[:sm_XX]``.

    Raises ``UsageError`` with what exists for a name that none has, ``DeviceError`` when the kind has no device here.
    """
    if not isinstance(text, str):
        raise UsageError(f"a target's name expected, {type(text).__name__} given", code="GPC2002")
    if text == "auto":
        text = config.current().target
        text = "cpu" if text == "auto" else text
    kind, colon, which = text.partition(":")
    if kind not in MODULES or (colon and not which):
        raise UsageError(
            f"unknown target {quote(text)}; targets are auto, cpu, opencl, opencl:FLAVOUR or device name, cuda, "
            "cuda:ARCHITECTURE (opencl flavours: pocl, generic, mali, amd, gfx906 to gfx1100; architectures: sm_75 to sm_120)",
            code="GPC2002",
        )
    module = _module(kind)
    return module.named(text) if kind == "cpu" else module.resolve(which)


def build(plan: Plan, sources: Sequence[KernelSource], target: Target, tell: Progress) -> dict[str, bytes]:
    """The machine code of ``sources``, by the names the plan's kernels have for it (``CompiledKernel.binary``).

    For CUDA there is PTX beside it (``cuda.ptx_name``), for devices that are newer.

    Raises ``KernelBuildError`` when a compiler refuses a kernel.
    """
    members = {kernel.name: kernel.binary for kernel in plan.kernels}
    wanted = [source for source in sources if source.name in members]
    if not wanted:  # results without elements need no kernel
        return {}
    from gpucomp.targets.cache import open_cache

    module, cache = _module(target.kind), open_cache()
    if target.kind == "cpu":
        tell("compile", 0, 1)
        return {plan.kernels[0].binary: module.build(wanted, target, cache)}
    batches = module.batches(wanted, target) if target.kind == "opencl" else [[source] for source in wanted]
    with ThreadPoolExecutor(max_workers=max(1, min(len(batches), len(os.sched_getaffinity(0)), 16))) as pool:
        waiting = [pool.submit(module.members, {members[s.name]: s for s in batch}, target, cache) for batch in batches]
        binaries: dict[str, bytes] = {}
        number = 0
        try:
            for batch, future in zip(batches, waiting, strict=True):
                tell("compile", number, len(wanted))
                binaries |= future.result()
                number += len(batch)
        finally:
            for future in waiting:
                future.cancel()
    return binaries


def rebuild(plan: Plan, sources: Mapping[str, str]) -> dict[str, bytes]:
    """The binaries of a plan from the texts of its sources alone, for who trusts no binary. See ``build`` for errors."""
    made = [
        KernelSource(k.name, k.language, sources[k.source], Geometry(k.groups, k.items, k.shared), k.schedule)
        for k in plan.kernels
    ]
    return build(plan, made, resolve(plan.target), lambda stage, done, total: None)
