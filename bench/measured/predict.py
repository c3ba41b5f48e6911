"""The model's time for a measured kernel: its first-ranked schedule over all engines that take it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from bench.measured.kernels import kernel_of
from gpucomp.errors import ScheduleError
from gpucomp.kernel_bench.operations import Operation
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.schedule import rank
from gpucomp.schedule.uncertainty import kind_of
from gpucomp.targets.by_name import target_of

Wanted = tuple[str, Operation]
Question = TypeVar("Question", bound=tuple[Any, ...])
Answer = TypeVar("Answer")


def predicted_us(name: str, spec: Operation) -> float:
    """The predicted time on a device; 0 if no engine that the model ranks takes the kernel there."""
    found = _first(name, spec)
    return found.us if found is not None else 0.0


def predicted_kind(name: str, spec: Operation) -> tuple[float, str]:
    """As ``predicted_us``, and what takes the time, as ``gpucomp.schedule.uncertainty`` has it; "" for a time of 0."""
    found = _first(name, spec)
    return (found.us, kind_of(found.family.title, found.terms)) if found is not None else (0.0, "")


def predicted_on_hip(name: str, spec: Operation) -> float:
    """As ``predicted_us``, by HIP's kernels on a GPU of AMD."""
    found = _first(name, spec, "hip")
    return found.us if found is not None else 0.0


def _first(name: str, spec: Operation, interface: str = "") -> rank.Ranked | None:
    """The schedule that the model ranks first."""
    target = target_of(name, interface)
    if target is None or target.device is None:
        return None
    kernel = kernel_of(spec)
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
