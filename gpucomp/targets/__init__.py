"""Targets by name, and building a model's kernels for one. Each kind of target is a module, imported when it is asked for."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from gpucomp import config
from gpucomp.artifact.plan import Plan
from gpucomp.device.target import Target
from gpucomp.errors import KernelBuildError, UsageError, quote
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource

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
            "cuda:ARCHITECTURE (opencl flavours: pocl, generic, mali, amd, gfx803 to gfx1201; architectures: sm_75 to sm_120)",
            code="GPC2002",
        )
    module = _module(kind)
    return module.named(text) if kind == "cpu" else module.resolve(which)


def build(plan: Plan, sources: Sequence[KernelSource], target: Target, tell: Progress) -> dict[str, bytes]:
    """The machine code of ``sources``, by the names the plan's kernels have for it (``CompiledKernel.binary``).

    For CUDA there is PTX beside it (``cuda.ptx_name``), for devices that are newer.

    Raises ``KernelBuildError`` when a compiler refuses a kernel.
    """
    binaries, refused = attempt(plan, sources, target, tell)
    for error in refused.values():
        raise error
    return binaries


def attempt(
    plan: Plan, sources: Sequence[KernelSource], target: Target, tell: Progress
) -> tuple[dict[str, bytes], dict[str, KernelBuildError]]:
    """What ``build`` gives of the kernels that the target takes; of the others the errors, by their names."""
    members = {kernel.name: kernel.binary for kernel in plan.kernels}
    wanted = [source for source in sources if source.name in members]
    if not wanted:  # results without elements need no kernel
        return {}, {}
    from gpucomp.targets.cache import open_cache

    module, cache = _module(target.kind), open_cache()
    if target.kind == "cpu":
        tell("compile", 0, 1)
        return {plan.kernels[0].binary: module.build(wanted, target, cache)}, {}
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
            for batch, future in waiting:  # which may grow
                tell("compile", number, len(wanted))
                try:
                    binaries |= future.result()
                except KernelBuildError as error:
                    if len(batch) > 1:  # which of them it is, each alone will tell
                        waiting += [start([source]) for source in batch]
                        continue
                    refused[batch[0].name] = error
                number += len(batch)
        finally:
            for _, future in waiting:
                future.cancel()
    return binaries, refused


def processors() -> int:
    """How many compilations run at once at most."""
    return min(len(os.sched_getaffinity(0)), 16)


def lesser(target: Target) -> Iterator[Target]:
    """``target`` as it asks less and less of the device, for kernels that the device refuses; nothing where that is a bug."""
    return _module("opencl").lesser(target) if target.kind == "opencl" else iter(())


def rebuild(plan: Plan, sources: Mapping[str, str]) -> dict[str, bytes]:
    """The binaries of a plan from the texts of its sources alone, for who trusts no binary. See ``build`` for errors."""
    made = [
        KernelSource(k.name, k.language, sources[k.source], Geometry(k.groups, k.items, k.shared), k.schedule)
        for k in plan.kernels
    ]
    return build(plan, made, resolve(plan.target), lambda stage, done, total: None)
