"""Tables of ``bench --static``, ``inspect --why`` and ``inspect --spaces``. Everything here returns lines or data."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gpucomp.cli.show import size, table
from gpucomp.targets import sass

if TYPE_CHECKING:
    from gpucomp.compiler import Lowered
    from gpucomp.schedule.model import Terms
    from gpucomp.schedule.space import Family, Limits, Problem
    from gpucomp.static import Cost
    from gpucomp.targets.target import Target

EXACT = 20_000  # schedules of a space that are all looked at; of a larger one, a sample
SAMPLE = 4_000
MATRIX = ("HMMA", "IMMA", "HGMMA", "IGMMA", "QGMMA")


def static(found: Sequence[Cost], target: Target) -> list[str]:
    """One row a launch: what ptxas spent, what the machine code holds, what bounds it."""
    assert target.device is not None
    rows = [
        (
            number,
            cost.name,
            cost.engine,
            f"{math.prod(cost.groups)}x{math.prod(cost.items)}",
            cost.resources.registers,
            cost.spills,
            cost.shared_bytes,
            f"{100 * cost.terms.occupancy:.0f}%",
            f"{cost.terms.waves:.2f}",
            *_mix(cost),
            f"{cost.terms.flops / 1e6:.2f}",
            f"{cost.terms.bytes / 1e6:.3f}",
            f"{cost.terms.floor_us:.2f}",
            f"{cost.terms.total_us:.2f}",
            cost.terms.limiter,
        )
        for number, cost in enumerate(found, start=1)
    ]
    header = ("#", "kernel", "engine", "groups", "regs", "spill B", "shared B", "occ", "waves", "MMA", "FFMA",
              "LDG.128", "MFLOP", "MB", "floor us", "about us", "limiter")  # fmt: skip
    device = target.device
    total, floor = sum(c.terms.total_us for c in found), sum(c.terms.floor_us for c in found)
    lines = table(header, rows)
    lines.append("")
    lines.append(f"device    {target.name} as {device.name}: {device.units} units at {device.ghz} GHz, "
                 f"{device.dram_gbs:.0f} GB/s, {device.launch_us} us a launch")  # fmt: skip
    lines.append(f"kernels   {len(found)}, spills in {sum(1 for c in found if c.spills)}")
    lines.append(f"predicted {total:.0f} us a run; floor {floor:.0f} us without launches, "
                 f"{len(found) * device.launch_us:.0f} us of launches")  # fmt: skip
    if any(c.instructions is None for c in found):
        lines.append("no instruction counts: pip install nvidia-cuda-nvdisasm")
    return lines


def _mix(cost: Cost) -> tuple[str, str, str]:
    if (mix := cost.instructions) is None:
        return "-", "-", "-"
    return str(sass.count(mix, *MATRIX)), str(sass.count(mix, "FFMA", "FFMA2")), f"{100 * sass.wide_share(mix):.0f}%"


def as_json(found: Sequence[Cost], target: Target) -> dict[str, Any]:
    """The same as data, every instruction included."""
    assert target.device is not None
    return {
        "target": target.name,
        "device": target.device.name,
        "predicted_us": sum(c.terms.total_us for c in found),
        "floor_us": sum(c.terms.floor_us for c in found),
        "kernels": [
            {
                "name": c.name,
                "label": c.label,
                "engine": c.engine,
                "schedule": dict(c.schedule),
                "groups": list(c.groups),
                "items": list(c.items),
                "registers": c.resources.registers,
                "spill_bytes": c.spills,
                "shared_bytes": c.shared_bytes,
                "instructions": None if c.instructions is None else dict(c.instructions.most_common()),
                "flops": c.terms.flops,
                "bytes": c.terms.bytes,
                "floor_us": c.terms.floor_us,
                "predicted_us": c.terms.total_us,
                "limiter": c.terms.limiter,
            }
            for c in found
        ],
    }


def why(found: Sequence[Cost]) -> list[str]:
    """The terms of the analytic model, a kernel a paragraph: of its schedule, then of the best that other engines have."""
    lines: list[str] = []
    for cost in found:
        t = cost.terms
        lines += [
            f"{cost.name}  {cost.label}",
            f"  {cost.engine}  {_words(cost.schedule)}  ({cost.tier})",
            f"  work       {t.flops / 1e6:.3f} MFLOP, {size(int(t.bytes))} at least: floor {t.floor_us:.2f} us",
            f"  units      {_units(cost.groups, cost.items, t)}",
            f"  terms      {_terms(t)}",
            f"  about      {t.total_us:.2f} us, bound by {t.limiter}",
        ]
        lines += [
            f"  besides    {other.us:.2f} us  {other.family.title}  {_words(other.schedule)}: {_terms(other.terms)}"
            for other in cost.others
        ]
    return lines


def _words(schedule: Mapping[str, int]) -> str:
    return " ".join(f"{k}={v}" for k, v in schedule.items())


def _units(groups: Sequence[int], items: Sequence[int], t: Terms) -> str:
    return (
        f"{math.prod(groups)} work-groups of {math.prod(items)}, {t.resident} fit on a unit, "
        f"{t.waves:.2f} waves, occupancy {100 * t.occupancy:.0f}%"
    )


def _terms(t: Terms) -> str:
    return (
        f"launch {t.launch_us:.2f}, start {t.start_us:.2f}, loop {t.loop_us:.2f} (math {t.math_us:.2f}, "
        f"issue {t.issue_us:.2f}, shared {t.shared_us:.2f}, cache {t.cache_us:.2f}, latency {t.latency_us:.2f}), "
        f"end {t.end_us:.2f}, join {t.join_us:.2f}; memory {t.memory_us:.2f} us"
    )


def spaces(lowered: Lowered, target: Target) -> list[str]:
    """How many schedules each distinct problem of a model has, engine by engine."""
    from gpucomp.codegen import back_end

    engines_of, _ = back_end(target.language)
    rows: dict[tuple[object, ...], tuple[object, ...]] = {}
    uses: dict[tuple[object, ...], int] = {}
    for step in lowered.steps:
        if step.kernel is None:
            continue
        for family in engines_of(step.kernel, target.features):
            problem = family.problem(step.kernel)
            key = (family.title, *problem.items())
            uses[key] = uses.get(key, 0) + 1
            if key not in rows:
                everything = math.prod(len(p.choices) for p in family.params)
                shown = " ".join(f"{k}={v}" for k, v in problem.items())
                rows[key] = (family.title, everything, legal(family, problem, target.limits), shown)
    return table(("engine", "raw", "legal", "kernels", "problem"),
                 [(*row[:3], uses[key], row[3]) for key, row in rows.items()])  # fmt: skip


def legal(family: Family, problem: Problem, limits: Limits) -> str:
    """The number of legal schedules: counted where the space is small, ``~`` an estimate from a sample otherwise."""
    everything = math.prod(len(p.choices) for p in family.params)
    if everything <= EXACT:
        return str(sum(1 for _ in family.legal(problem, limits)))
    draw, p = random.Random(0), SimpleNamespace(**problem)
    drawn = (SimpleNamespace(**{q.name: draw.choice(q.choices) for q in family.params}) for _ in range(SAMPLE))
    share = sum(1 for s in drawn if next(iter(family.objections(s, p, limits)), None) is None) / SAMPLE
    return f"~{everything * share:.0f}"
