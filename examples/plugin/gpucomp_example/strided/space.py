"""The engine's parameters, which schedules are legal, the launch, and the default."""

import math
from collections.abc import Iterator

from gpucomp.device.limits import Limits
from gpucomp.kernel import Kernel, Loops
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.schedule.space import Family
from gpucomp_example.strided.emit import emit


class StridedSchedule(Tunables):
    threads: int = tunable((32, 64, 128, 256), "work-items per work-group")
    groups: int = tunable((8, 32, 128, 512), "work-groups")


class StridedProblem(Sizes):
    """Sizes of a domain whose points are computed one by one."""

    size: int  # points of the domain


class StridedSizes(Sizes):
    stride: int  # points between two of a work-item


def accepts(kernel: Kernel[Loops], features: frozenset[str]) -> str:
    """Why the engine does not compute ``kernel``; empty if it does."""
    return "" if math.prod(v.extent for v in kernel.body.domain) >= 4096 else "fewer than 4,096 points need no strides"


def problem(kernel: Kernel[Loops]) -> StridedProblem:
    return StridedProblem(size=math.prod(v.extent for v in kernel.body.domain))


def objections(s: StridedSchedule, p: StridedProblem, limits: Limits) -> Iterator[str]:
    if s.threads > limits.threads:
        yield f"{s.threads} work-items per work-group, the device allows {limits.threads}"
    if s.threads * s.groups > p.size:
        yield f"{s.threads * s.groups} work-items for {p.size} points"


def derive(s: StridedSchedule, p: StridedProblem) -> StridedSizes:
    return StridedSizes(stride=s.threads * s.groups)


def geometry(s: StridedSchedule, p: StridedProblem) -> Geometry:
    return Geometry((s.groups, 1, 1), (s.threads, 1, 1))


def default(p: StridedProblem, limits: Limits) -> StridedSchedule:
    threads = 64 if limits.threads >= 64 else 32
    return StridedSchedule(threads=threads, groups=32)


FAMILY = Family(
    "loops",
    Loops,
    StridedSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    engine="strided",
    accepts=accepts,
    emit=emit,
    template="gpucomp_example:strided/kernel.j2",
)
