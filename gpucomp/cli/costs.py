"""Tables of ``bench --static``, ``inspect --why`` and ``inspect --spaces``. Everything here returns lines or data."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpucomp.artifact.plan import FEWER_OPERATIONS
from gpucomp.cli.show import size
from gpucomp.cli.tables import table
from gpucomp.errors import several
from gpucomp.extras import install
from gpucomp.kernel.step import KernelStep
from gpucomp.schedule.uncertainty import interval, together, told
from gpucomp.targets import sass

if TYPE_CHECKING:
    from gpucomp.compiler import Lowered
    from gpucomp.device.device import Device
    from gpucomp.device.limits import Limits
    from gpucomp.device.target import Target
    from gpucomp.kernel.sizes import Sizes
    from gpucomp.report.cost import Cost, Spent
    from gpucomp.schedule.model import Terms
    from gpucomp.schedule.space import Family

EXACT = 20_000  # spaces up to this size are counted; larger ones are sampled
SAMPLE = 4_000
MATRIX = ("HMMA", "IMMA", "HGMMA", "IGMMA", "QGMMA")


def static(found: Sequence[Cost], target: Target) -> list[str]:
    """One row for each launch: the compiler's report, the instruction mix, and the bounds."""
    if target.kind in ("opencl", "hip"):
        return _static_opencl(found, target)
    rows = [
        (
            *_launch(number, cost),
            cost.spent.registers,
            cost.spent.spills,
            cost.spent.shared_bytes,
            f"{100 * cost.terms.occupancy:.0f}%",
            f"{cost.terms.waves:.2f}",
            *_mix(cost),
            *_bounds(cost),
        )
        for number, cost in enumerate(found, start=1)
    ]
    header = (*LAUNCH, "regs", "spill B", "shared B", "occ", "waves", "MMA", "FFMA", "LDG.128", *BOUNDS)
    assert target.device is not None
    lines = [
        *table(header, rows, "kernels"),
        *_totals(found, target, target.device, sum(1 for c in found if c.spent.spills)),
    ]
    lines.append(
        "occ: work-items on a unit, of the most that it holds; waves: work-groups over those that run at once; MMA, FFMA: "
        "instructions in the machine code; LDG.128: share of the loads from global memory that move 16 bytes"
    )
    if any(c.spent.instructions is None for c in found):
        lines.append(f"no instruction counts: {install('nvrtc')}")
    return lines


def _static_opencl(found: Sequence[Cost], target: Target) -> list[str]:
    """The same table for AMD, from clang's listing, and for Mali, from formulas and the OpenCL text."""
    from gpucomp.report import static_opencl
    from gpucomp.targets import amdgcn

    amd, listed = "amd" in target.features, any(c.spent.instructions is not None for c in found)
    rows = []
    for number, cost in enumerate(found, start=1):
        spent = cost.spent
        compiled = (spent.spills, spent.shared_bytes, spent.waves, _percent(spent.matrix_share)) if amd else ()
        known = [spent.registers, *compiled, _percent(spent.wide_share)]
        rows.append((*_launch(number, cost), *("-" if k is None else k for k in known), *_bounds(cost)))
    matrix = "WMMA" if "wmma" in target.features else "MFMA"
    columns = ("VGPRs", "spilled", "LDS B", "waves/SIMD", matrix) if amd else ("regs",)
    spilled = sum(1 for c in found if c.spent.spills) if listed else None
    lines = table((*LAUNCH, *columns, "16 B loads", *BOUNDS), rows, "kernels")
    lines += _totals(found, target, static_opencl.device_of(target), spilled)
    if listed:
        lines.append(
            f"compiled by clang for {static_opencl.instruction_set(target)}; waves/SIMD: waves that a SIMD holds at once; "
            f"{matrix}: share of all multiply-adds"
        )
    elif amd and amdgcn.compiler(target.language) is None:
        lines.append(
            f"nothing was compiled for the AMD GPU: {amdgcn.missing(target.language).message}. Registers are estimated by the "
            "engines' formulas, loads are counted in the text, and nothing else is known"
        )
    else:
        lines.append(
            "there is no compiler for this GPU: registers are estimated by the engines' formulas, loads are counted in "
            "the OpenCL text. A work-item has at most 64 registers; above 32, half as many work-items fit"
        )
    return lines


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.0f}%"


LAUNCH = ("#", "kernel", "name", "engine", "groups")
BOUNDS = ("MFLOP", "MB", "floor us", "about us", "limiter")


def _launch(number: int, cost: Cost) -> tuple[object, ...]:
    return number, cost.label, cost.name, cost.engine, f"{math.prod(cost.groups)}x{math.prod(cost.items)}"


def _bounds(cost: Cost) -> tuple[str, ...]:
    t = cost.terms
    return f"{t.flops / 1e6:.2f}", f"{t.bytes / 1e6:.3f}", f"{t.floor_us:.2f}", f"{t.total_us:.2f}", t.limiter


def _totals(found: Sequence[Cost], target: Target, device: Device, spilling: int | None) -> list[str]:
    total, floor = sum(c.terms.total_us for c in found), sum(c.terms.floor_us for c in found)
    ends = told(_together(found, target), ".0f")
    spills = "" if spilling is None else f", spills in {spilling}"
    rates = f"{device.units} units at {device.ghz} GHz, {device.dram_gbs:.0f} GB/s, {device.launch_us} us per launch"
    launches = f"{sum(c.terms.launch_us for c in found):.0f} us of launches"
    early = float(sum(c.terms.early_us for c in found))
    waiting = (
        [f"          {total + early:.0f} us if no launch begins before the one before it has ended"] if early else []
    )
    fewer = sum(c.engine in FEWER_OPERATIONS for c in found)
    by_bytes = (
        [f"floor     of {several(fewer, 'kernel')} by Winograd's algorithm: that of the bytes alone"] if fewer else []
    )
    return [
        "",
        f"device    {target.name} as {device.name}: {rates}",
        f"kernels   {len(found)}{spills}",
        f"predicted {total:.0f} us per run{ends}; floor {floor:.0f} us without launches, {launches}",
        *waiting,
        *by_bytes,
    ]


def _together(found: Sequence[Cost], target: Target) -> tuple[float, float] | None:
    return together(interval(c.engine, c.terms, target) for c in found)


def _mix(cost: Cost) -> tuple[str, str, str]:
    if (mix := cost.spent.instructions) is None:
        return "-", "-", "-"
    return str(sass.count(mix, *MATRIX)), str(sass.count(mix, "FFMA", "FFMA2")), f"{100 * sass.wide_share(mix):.0f}%"


def as_json(found: Sequence[Cost], target: Target) -> dict[str, Any]:
    """The same as data, with every instruction. ``null`` means unknown.

    ``interval_us`` has the ends of what four of five measurements are within.
    """
    from gpucomp.report import static_opencl

    device = target.device or static_opencl.device_of(target)
    return {
        "target": target.name,
        "device": device.name,
        "predicted_us": sum(c.terms.total_us for c in found),
        "interval_us": _together(found, target),
        "floor_us": sum(c.terms.floor_us for c in found),
        "kernels": [
            {
                "name": c.name,
                "label": c.label,
                "engine": c.engine,
                "schedule": dict(c.schedule),
                "groups": list(c.groups),
                "items": list(c.items),
                **_spent(c.spent, target),
                "shared_bytes": c.spent.shared_bytes,
                "instructions": None if (mix := c.spent.instructions) is None else dict(Counter(mix).most_common()),
                "flops": c.terms.flops,
                "bytes": c.terms.bytes,
                "floor_us": c.terms.floor_us,
                "predicted_us": c.terms.total_us,
                "interval_us": interval(c.engine, c.terms, target),
                "limiter": c.terms.limiter,
            }
            for c in found
        ],
    }


def _spent(spent: Spent, target: Target) -> dict[str, Any]:
    if target.kind == "cuda":
        return {"registers": spent.registers, "spill_bytes": spent.spills}
    return {
        "registers": spent.registers,
        "spilled_registers": spent.spills,
        "waves": spent.waves,
        "matrix_share": spent.matrix_share,
        "wide_share": spent.wide_share,
    }


def why(found: Sequence[Cost], target: Target) -> list[str]:
    """The analytic model's terms, one paragraph for each kernel: its own schedule, then the best one of other engines.

    Behind the estimate is what four of five measurements are within.
    """
    lines: list[str] = []
    for cost in found:
        t = cost.terms
        lines += [
            f"{cost.name}  {cost.label}",
            f"  {cost.engine}  {_words(cost.schedule)}  ({cost.tier})",
            *(f"  not by     {reason}" for reason in cost.passed_over),
            f"  work       {t.flops / 1e6:.3f} MFLOP, {size(int(t.bytes))} at least: floor {t.floor_us:.2f} us",
            f"  units      {_units(cost.groups, cost.items, t)}",
            f"  terms      {_terms(t)}",
            f"  estimate   {t.total_us:.2f} us{told(interval(cost.engine, t, target))}, bound by {t.limiter}",
        ]
        lines += [
            f"  others     {other.us:.2f} us  {other.family.title}  {_words(other.schedule)}: {_terms(other.terms)}"
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
    """The number of schedules of each distinct problem of a model, for each engine."""
    from gpucomp.targets.back_end import back_end

    engines_of, _ = back_end(target.language)
    rows: dict[tuple[object, ...], tuple[object, ...]] = {}
    uses: dict[tuple[object, ...], int] = {}
    for step in lowered.unpacked:
        if not isinstance(step, KernelStep):
            continue
        for family in engines_of(step.kernel, target.features):
            problem = family.problem(step.kernel)
            key = (family.title, *problem.numbers.items())
            uses[key] = uses.get(key, 0) + 1
            if key not in rows:
                everything = math.prod(len(p.choices) for p in family.params)
                shown = " ".join(f"{k}={v}" for k, v in problem.numbers.items())
                rows[key] = (step.kernel.label, family.title, everything, legal(family, problem, target.limits), shown)
    counted = [(*row[:4], uses[key], row[4]) for key, row in rows.items()]
    legend = (
        "kernel: the first one with this problem; raw: all combinations of parameters; legal: those that can run here, where ~ "
        f"is an estimate from {SAMPLE} of them; tune searches a sample of a large space, see tune --dry-run"
    )
    return [*table(("kernel", "engine", "raw", "legal", "kernels", "problem"), counted, "spaces"), legend]


def legal(family: Family, problem: Sizes, limits: Limits) -> str:
    """The number of legal schedules: counted if the space is small, else ``~`` and an estimate from a sample."""
    everything = math.prod(len(p.choices) for p in family.params)
    if everything <= EXACT:
        return str(sum(1 for _ in family.legal(problem, limits)))
    draw = random.Random(0)
    drawn = (family.schedule({q.name: draw.choice(q.choices) for q in family.params}) for _ in range(SAMPLE))
    share = sum(1 for s in drawn if next(iter(family.objections(s, problem, limits)), None) is None) / SAMPLE
    return f"~{everything * share:.0f}"
