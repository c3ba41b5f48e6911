"""What one launch costs, as far as can be said without the GPU: a compiler's word, and the analytic model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpucomp.compiler import Lowered
from gpucomp.device.device import Device
from gpucomp.device.target import Target
from gpucomp.kernel import Kernel
from gpucomp.kernel.step import KernelStep
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.planning import Rendered
from gpucomp.schedule import rank
from gpucomp.schedule.model import Terms, terms
from gpucomp.schedule.rank import Ranked
from gpucomp.schedule.space import sized

USUAL_REGISTERS = 32  # of a work-item, for the model, where neither a compiler nor a formula says


@dataclass(frozen=True)
class Spent:
    """What a compiler says of a kernel. ``None`` stands for what nobody at hand knows.

    registers     of a work-item; where no compiler says, by the engine's formula
    spills        on NVIDIA bytes of local memory, spilled registers and arrays that have none; on AMD registers
    shared_bytes  of a work-group
    instructions  of the listing, by name
    waves         that a SIMD of an AMD GPU holds at once
    matrix_share  of all multiply-adds in an AMD GPU's listing, those on matrix cores
    wide_share    of all loads from global memory, those of 16 bytes
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
    """One launch.

    tier    who chose the schedule; where a record did, on which device it was measured
    others  what the model finds best with each other engine
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


def launched(lowered: Lowered) -> list[KernelStep]:
    """The steps that are kernels with something to compute."""
    return [
        s for s in lowered.steps if isinstance(s, KernelStep) and 0 not in lowered.rendered[s].source.geometry.groups
    ]


def cost_of(step: KernelStep, item: Rendered, device: Device, spent: Spent) -> Cost:
    """The cost of one launch on ``device``."""
    kernel, source, family = step.kernel, item.source, item.choice.family
    work = None
    if (work_of := family.work_with(device.shuffles)) is not None:
        work = work_of(family.schedule(source.schedule), sized(family.problem(kernel)))
    used = {"registers": spent.registers or USUAL_REGISTERS, "shared_bytes": spent.shared_bytes or 0}
    found = terms(kernel, device, source.geometry, work=work, **used)
    geometry = source.geometry
    return Cost(step.name, kernel.label, family.title, source.schedule, geometry.groups, geometry.items, spent, found,
                item.choice.said)  # fmt: skip


def compared(found: Sequence[Cost], lowered: Lowered, target: Target) -> list[Cost]:
    """``found``, the costs of all launches, each with the best of other engines; none where the target has no device."""
    if target.device is None:
        return list(found)
    both = zip(lowered.steps, lowered.unpacked, strict=True)
    before = {step: plain.kernel for step, plain in both if isinstance(plain, KernelStep)}  # engines accept these
    pairs = zip(found, launched(lowered), strict=True)
    return [replace(cost, others=_others(before[step], cost, target, target.device)) for cost, step in pairs]


def _others(kernel: Kernel, cost: Cost, target: Target, device: Device) -> list[Ranked]:
    engines = [f for f in engines_of(kernel, target.features) if f.title != cost.engine and rank.can_rank(f)]
    return rank.best(kernel, rank.problems(kernel, engines), target.limits, device)
