"""The model's time for a measured kernel: its first-ranked schedule over all engines that take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache

from bench.measured.kernels import Spec
from gpucomp.device.catalogue import find
from gpucomp.device.target import Target
from gpucomp.errors import ScheduleError
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.schedule import rank
from gpucomp.targets import cuda, opencl

Wanted = tuple[str, Spec]


@lru_cache(maxsize=1024)
def target_of(name: str) -> Target | None:
    """The target for a device as a file names it, with that device's figures; ``None`` if nothing is known of it."""
    known = find(name)
    if known is None:
        return None
    kind, _, arch = known.target.partition(":")
    target = cuda.manifest(arch) if kind == "cuda" else opencl.manifest(arch)
    limits = replace(target.limits, units=known.device.units)
    return replace(target, limits=limits, device=known.device, features=target.features - known.lacks)


def predicted_us(name: str, spec: Spec) -> float:
    """The predicted time on a device; 0 if no engine that the model ranks takes the kernel there."""
    target = target_of(name)
    if target is None or target.device is None:
        return 0.0
    kernel = spec.kernel()
    families = [f for f in engines_of(kernel, target.features) if rank.can_rank(f)]
    try:
        found = rank.best(kernel, rank.problems(kernel, families), target.limits, target.device)
    except ScheduleError:
        return 0.0
    return found[0].us if found else 0.0


def _together(wanted: Sequence[Wanted]) -> list[float]:
    return [predicted_us(*one) for one in wanted]


def predictions(wanted: Iterable[Wanted], jobs: int) -> Mapping[Wanted, float]:
    """The predicted times of distinct kernels, by ``jobs`` processes."""
    distinct = list(dict.fromkeys(wanted))
    if jobs <= 1:
        return dict(zip(distinct, _together(distinct), strict=True))
    parts = list(_parts(distinct, 16))
    with ProcessPoolExecutor(jobs) as pool:
        times = [us for part in pool.map(_together, parts) for us in part]
    return dict(zip((one for part in parts for one in part), times, strict=True))


def _parts(wanted: Sequence[Wanted], size: int) -> Iterator[Sequence[Wanted]]:
    for start in range(0, len(wanted), size):
        yield wanted[start : start + size]
