"""What a model's kernels cost, read off the compiler and the analytic model: nothing runs, no GPU is needed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import SimpleNamespace

from gpucomp.codegen.families import engines_of
from gpucomp.codegen.source import KernelSource
from gpucomp.compiler import Lowered, Progress
from gpucomp.errors import UsageError
from gpucomp.kernel import Step
from gpucomp.planning import Rendered
from gpucomp.schedule import rank
from gpucomp.schedule.model import Terms, terms
from gpucomp.schedule.rank import Ranked
from gpucomp.targets import cuda, sass
from gpucomp.targets.target import Target


@dataclass(frozen=True)
class Cost:
    """One launch. ``instructions`` is ``None`` where no disassembler is installed.

    tier    who chose the schedule
    others  what the model finds best with each other engine
    """

    name: str
    label: str
    engine: str
    schedule: Mapping[str, int]
    groups: tuple[int, int, int]
    items: tuple[int, int, int]
    resources: cuda.Resources
    shared_bytes: int
    instructions: Counter[str] | None
    terms: Terms
    tier: str = ""
    others: Sequence[Ranked] = ()

    @property
    def spills(self) -> int:
        """Bytes of local memory: spilled registers and arrays that have no register."""
        return self.resources.spill_stores + self.resources.spill_loads + self.resources.stack_bytes


def costs(
    lowered: Lowered,
    target: Target,
    tell: Progress = lambda stage, done, total: None,
    *,
    compare: bool = False,
) -> list[Cost]:
    """The cost of every launch of a model for a CUDA architecture, in order; with ``compare`` other engines' too.

    Raises ``UsageError`` for a target that ptxas does not compile for.
    """
    if target.kind != "cuda" or target.device is None:
        raise UsageError(
            "a static report reads what a compiler says of a GPU that need not be here: "
            f"give --target cuda:sm_XX, opencl:amd, opencl:gfx90a or opencl:mali, not {target.name}",
            code="GPC2012",
        )
    steps = [s for s in lowered.steps if s in lowered.rendered and 0 not in lowered.rendered[s].source.geometry.groups]
    sources = {lowered.rendered[step].source.name: lowered.rendered[step].source for step in steps}
    built: dict[str, tuple[cuda.Resources, Counter[str] | None]] = {}
    with ThreadPoolExecutor(max_workers=max(1, len(os.sched_getaffinity(0)))) as pool:
        for number, (name, found) in enumerate(
            zip(sources, pool.map(lambda source: _built(source, target), sources.values()), strict=True)
        ):
            tell("compile", number, len(sources))
            built[name] = found
    all_of_them = [_cost(s, lowered.rendered[s], built[lowered.rendered[s].source.name], target) for s in steps]
    if not compare:
        return all_of_them
    before = dict(zip(lowered.steps, lowered.unpacked, strict=True))  # engines accept kernels before any packing
    return [replace(cost, others=_others(before[s], cost, target)) for cost, s in zip(all_of_them, steps, strict=True)]


def _others(step: Step, cost: Cost, target: Target) -> list[Ranked]:
    assert step.kernel is not None
    assert target.device is not None
    engines = [f for f in engines_of(step.kernel, target.features) if f.title != cost.engine and rank.can_rank(f)]
    return rank.best(step.kernel, rank.problems(step.kernel, engines), target.limits, target.device)


def _built(source: KernelSource, target: Target) -> tuple[cuda.Resources, Counter[str] | None]:
    cubin, log = cuda.compile_source(source, target)
    return cuda.resources(log)[source.name], sass.instructions(cubin)


def _cost(step: Step, item: Rendered, built: tuple[cuda.Resources, Counter[str] | None], target: Target) -> Cost:
    resources, instructions = built
    kernel, source, family = step.kernel, item.source, item.choice.family
    assert kernel is not None
    assert target.device is not None
    shared = resources.shared_bytes + source.geometry.dynamic_shared_bytes
    work = None
    if family.work is not None:
        work = family.work(SimpleNamespace(**source.schedule), SimpleNamespace(**family.problem(kernel)))
    found = terms(kernel, target.device, source.geometry, registers=resources.registers, shared_bytes=shared, work=work)
    return Cost(
        step.name,
        kernel.label,
        family.title,
        source.schedule,
        source.geometry.groups,
        source.geometry.items,
        resources,
        shared,
        instructions,
        found,
        item.choice.tier,
    )


def total_us(found: Sequence[Cost]) -> float:
    """The model's predicted latency: launch after launch."""
    return sum(cost.terms.total_us for cost in found)


def floor_us(found: Sequence[Cost]) -> float:
    return sum(cost.terms.floor_us for cost in found)
