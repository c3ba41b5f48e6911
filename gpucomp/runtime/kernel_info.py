"""What each launch of a plan computes, for people: see ``Executable.kernels``."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import field

from gpucomp.artifact.plan import Plan
from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True)
class KernelInfo:
    """One launch, in a loop with all its steps (``x128`` in its label): its kernel and the operators in it.

    ``family`` is the kernel's family, or ``host`` for a host operator. ``tier`` says who chose the schedule, and ``why``
    says why the kernel ends where it does. ``entry`` is the function's name; equal layers share one.

    ``operations`` are on numbers of type ``arithmetic``, with a multiply-add counted as two. ``traffic`` is the bytes that
    must move at least once. Both are ``None`` for a host operator, and for a kernel whose sizes each run decides. In a loop,
    what every step uses anew counts once if it stays in the target's cache, and ``held`` is its size if it does not.
    """

    name: str
    family: str
    ops: tuple[str, ...]
    nodes: tuple[str, ...]
    schedule: Mapping[str, int] = field(default_factory=dict)
    tier: str = ""
    label: str = ""
    why: str = ""
    entry: str = ""
    operations: int | None = None
    traffic: int | None = None
    arithmetic: str = ""
    held: int = 0


def kernels_of(plan: Plan, varying: Container[str] = ()) -> tuple[KernelInfo, ...]:
    """Every launch of a plan, in order. What kernels named in ``varying`` do, and move, is known for other sizes only."""
    infos = []
    held = _held(plan)
    for number, (launch, count) in enumerate(zip(plan.launches, plan.counts(), strict=True)):
        if launch.kernel < 0:
            name = launch.name or launch.host
            infos.append(KernelInfo(name, "host", launch.ops, launch.nodes, label=launch.host, why=launch.why))
            continue
        kernel = plan.kernels[launch.kernel]
        own, whole = held.get(number, (0, 0))
        cached = whole <= plan.cache_bytes
        again = min(own, kernel.traffic) if cached else 0  # bytes of a step that are in the cache after the first one
        infos.append(
            KernelInfo(
                launch.name or kernel.name,
                kernel.family,
                launch.ops,
                launch.nodes,
                kernel.schedule,
                kernel.tier,
                kernel.label if count == 1 else f"{kernel.label or kernel.name} x{count}",
                launch.why,
                kernel.name,
                None if kernel.name in varying else kernel.operations * count,
                None if kernel.name in varying else kernel.traffic * count - again * max(count - 1, 0),
                kernel.arithmetic,
                0 if cached else whole,
            )
        )
    return tuple(infos)


def _held(plan: Plan) -> dict[int, tuple[int, int]]:
    """For each launch in a loop: the bytes of its buffers that do not advance, and of those of the whole loop."""
    found: dict[int, tuple[int, int]] = {}
    for repeat in plan.repeats:
        launches = range(repeat.first, repeat.last)
        each = [
            {place for place, advance in zip(plan.launches[number].args, advances, strict=True) if not advance}
            for number, advances in zip(launches, repeat.advances, strict=True)
        ]
        sizes = {place: plan.buffers[place].nbytes for place in set().union(*each)}
        for number, places in zip(launches, each, strict=True):
            found[number] = sum(sizes[place] for place in places), sum(sizes.values())
    return found
