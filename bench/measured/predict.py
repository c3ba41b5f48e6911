"""The model's time for a measured kernel: its first-ranked schedule over all engines that take it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from bench.measured.kernels import Spec
from gpucomp.device.catalogue import find
from gpucomp.device.target import Target
from gpucomp.errors import ScheduleError
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.schedule import rank
from gpucomp.schedule.uncertainty import kind_of
from gpucomp.targets import cuda, hip, opencl

Wanted = tuple[str, Spec]
Question = TypeVar("Question", bound=tuple[Any, ...])
Answer = TypeVar("Answer")


@lru_cache(maxsize=1024)
def target_of(name: str, interface: str = "") -> Target | None:
    """The target for a device as a file names it, with that device's figures; ``None`` if nothing is known of it.

    With ``interface`` ``hip``, the target of HIP for a GPU of AMD; ``None`` for others.
    """
    known = find(name)
    if known is None:
        return None
    kind, _, arch = known.target.partition(":")
    device = known.device
    if interface == "hip":
        if not hip.is_known(arch):
            return None
        target, device = hip.manifest(arch), replace(device, shuffles=True)
    else:
        target = cuda.manifest(arch) if kind == "cuda" else opencl.manifest(arch)
    limits = replace(target.limits, units=device.units)
    return replace(target, limits=limits, device=device, features=target.features - known.lacks)


def predicted_us(name: str, spec: Spec) -> float:
    """The predicted time on a device; 0 if no engine that the model ranks takes the kernel there."""
    found = _first(name, spec)
    return found.us if found is not None else 0.0


def predicted_kind(name: str, spec: Spec) -> tuple[float, str]:
    """As ``predicted_us``, and what takes the time, as ``gpucomp.schedule.uncertainty`` has it; "" for a time of 0."""
    found = _first(name, spec)
    return (found.us, kind_of(found.family.title, found.terms)) if found is not None else (0.0, "")


def predicted_on_hip(name: str, spec: Spec) -> float:
    """As ``predicted_us``, by HIP's kernels on a GPU of AMD."""
    found = _first(name, spec, "hip")
    return found.us if found is not None else 0.0


def _first(name: str, spec: Spec, interface: str = "") -> rank.Ranked | None:
    """The schedule that the model ranks first."""
    target = target_of(name, interface)
    if target is None or target.device is None:
        return None
    kernel = spec.kernel()
    families = [f for f in engines_of(kernel, target.features) if rank.can_rank(f)]
    try:
        found = rank.best(kernel, rank.problems(kernel, families), target.limits, target.device)
    except ScheduleError:
        return None
    return found[0] if found else None


def predictions(wanted: Iterable[Wanted], jobs: int) -> Mapping[Wanted, float]:
    """The predicted times of distinct kernels, by ``jobs`` processes."""
    return answers(predicted_us, wanted, jobs)


def answers(
    of: Callable[..., Answer], wanted: Iterable[Question], jobs: int, *, chunk: int = 16
) -> Mapping[Question, Answer]:
    """What ``of``, a function of a module, says of distinct arguments, such as devices and kernels, by ``jobs`` processes."""
    distinct = list(dict.fromkeys(wanted))
    if jobs <= 1:
        return {one: of(*one) for one in distinct}
    with ProcessPoolExecutor(jobs) as pool:
        return dict(zip(distinct, pool.map(of, *zip(*distinct, strict=True), chunksize=chunk), strict=True))
