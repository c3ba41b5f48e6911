"""The cost of one launch, estimated without a GPU: what a compiler reports, and what the analytic model predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpucomp.compiler import Lowered
from gpucomp.device.device import Device
from gpucomp.device.target import Target
from gpucomp.kernel import Kernel
from gpucomp.kernel.step import KernelStep
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.lazy_dataclass import dataclass
from gpucomp.planning import Rendered
from gpucomp.schedule import rank
from gpucomp.schedule.analytic import floor_us
from gpucomp.schedule.model import Terms, terms
from gpucomp.schedule.rank import Ranked

USUAL_REGISTERS = 32  # of a work-item; the model uses it if neither a compiler nor a formula gives a number


@dataclass(frozen=True)
class Spent:
    """What a compiler reports for a kernel. ``None`` means unknown.

    registers     of a work-item; from the engine's formula if there is no compiler
    spills        NVIDIA: bytes of local memory, for spilled registers and arrays; AMD: registers
    shared_bytes  of a work-group
    instructions  of the listing, by name
    waves         that a SIMD of an AMD GPU can hold at once
    matrix_share  share of the multiply-adds in an AMD listing that run on matrix cores
    wide_share    share of the loads from global memory that move 16 bytes
    """

    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    instructions: Mapping[str, int] | None = None
    waves: int | None = None
    matrix_share: float | None = None
    wide_share: float | None = None


@dataclass(frozen=True)
class Cost:
    """The cost of one launch.

    tier    who chose the schedule; for a record also the device that it was measured on
    others  the best schedule of each other engine, by the model
    """

    name: str
    label: str
    engine: str
    schedule: Mapping[str, int]
    groups: tuple[int, int, int]
    items: tuple[int, int, int]
    spent: Spent
    terms: Terms
    tier: str = ""
    others: Sequence[Ranked] = ()
    passed_over: Sequence[str] = ()


def launched(lowered: Lowered) -> list[tuple[KernelStep, Rendered]]:
    """The steps whose kernels have something to compute, before ``SCHEDULED_PASSES``: the models judge those kernels."""
    both = zip(lowered.unpacked, lowered.steps, strict=True)
    found = [(p, lowered.rendered[s]) for p, s in both if isinstance(p, KernelStep) and isinstance(s, KernelStep)]
    return [(step, item) for step, item in found if 0 not in item.source.geometry.groups]


def by_formula(step: KernelStep, item: Rendered) -> Spent:
    """What the engine's formulas expect a compiler to report."""
    source, family = item.source, item.choice.family
    s, p = family.schedule(source.schedule), family.problem(step.kernel)
    registers = family.registers(s, p) if family.registers is not None else None
    return Spent(registers, shared_bytes=family.work(s, p).shared_bytes if family.work is not None else None)


def cost_of(step: KernelStep, item: Rendered, device: Device, spent: Spent) -> Cost:
    """The cost of one launch on ``device``."""
    kernel, source, family = step.kernel, item.source, item.choice.family
    work = None
    if (work_of := family.work_with(device.shuffles)) is not None:
        work = work_of(family.schedule(source.schedule), family.problem(kernel))
    used = {"registers": spent.registers or USUAL_REGISTERS, "shared_bytes": spent.shared_bytes or 0}
    found = terms(kernel, device, source.geometry, work=work, **used)
    found = replace(found, floor_us=floor_us(kernel, device, family.title))
    geometry = source.geometry
    return Cost(
        step.name,
        kernel.label,
        family.title,
        source.schedule,
        geometry.groups,
        geometry.items,
        spent,
        found,
        item.choice.said,
        passed_over=item.choice.passed_over,
    )


def compared(found: Sequence[Cost], lowered: Lowered, target: Target) -> list[Cost]:
    """Add to each cost in ``found`` the best of other engines; unchanged if the target has no device model."""
    if target.device is None:
        return list(found)
    pairs = zip(found, launched(lowered), strict=True)
    return [replace(cost, others=_others(step.kernel, cost, target, target.device)) for cost, (step, _) in pairs]


def _others(kernel: Kernel, cost: Cost, target: Target, device: Device) -> list[Ranked]:
    engines = [f for f in engines_of(kernel, target.features) if f.title != cost.engine and rank.can_rank(f)]
    return rank.best(kernel, rank.problems(kernel, engines), target.limits, device)
