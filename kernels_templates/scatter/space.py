"""The parameters of the scatter family: ScatterElements, ScatterND, and what else stores at places that are data."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpucomp.device.limits import Limits
from gpucomp.kernel import Kernel, Scatter
from gpucomp.kernel.forms.scatter import lines_side_by_side, slice_width
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.scatter.emit import emit_scatter
from gpucomp.schedule.space import MAX_GROUPS, Family

MAX_PARTS = 65535  # work-groups of a launch's second axis
READERS = 16  # work-items that may look at an update of a line whatever the number of its places
READERS_OF_A_UNIT = 64  # or as many of each unit, on all lines together: they would stand idle


class ScatterSchedule(Tunables):
    line_items: int = tunable((1, 2, 4, 8, 16, 32, 64, 128, 256), "lines, or vectors of lines, of a work-group")
    part_items: int = tunable((1, 2, 4, 8, 16, 32, 64, 128, 256), "parts of a line's places in a work-group")
    parts: int = tunable((1, 4, 16, 64, 256, 1024, 4096), "work-groups that share a line's places")
    vector: int = tunable((1, 2, 4, 8), "neighbouring lines that a work-item changes at once")


class ScatterProblem(Sizes):
    """Sizes of a scatter: every update changes one place of each line."""

    lines: int
    places: int  # of a line
    updates: int
    side_by_side: int  # 1: neighbouring lines, not neighbouring places, are neighbours in memory
    widest: int  # lines that a work-item may change at once


class ScatterSizes(Sizes):
    threads: int
    line_groups: int  # vectors of lines
    part: int  # places that a work-item owns


def problem(kernel: Kernel[Scatter]) -> ScatterProblem:
    body = kernel.body
    return ScatterProblem(
        lines=math.prod(v.extent for v in body.lines),
        places=math.prod(v.extent for v in body.places),
        updates=math.prod(v.extent for v in body.updates),
        side_by_side=int(lines_side_by_side(kernel)),
        widest=slice_width(kernel),
    )


def derive(s: ScatterSchedule, p: ScatterProblem) -> ScatterSizes:
    return ScatterSizes(
        threads=s.line_items * s.part_items,
        line_groups=p.lines // s.vector,
        part=-(-p.places // (s.parts * s.part_items)),
    )


def objections(s: ScatterSchedule, p: ScatterProblem, limits: Limits) -> Iterator[str]:
    threads = s.line_items * s.part_items
    if threads > limits.threads:
        yield f"{threads} work-items per work-group, the device allows {limits.threads}"
    if s.vector > p.widest or p.lines % s.vector:
        yield f"{p.widest} lines can be changed at once, not {s.vector}"
    if s.parts > MAX_PARTS:
        yield f"{s.parts} parts, a launch has {MAX_PARTS} rows of work-groups"
    if -(-p.lines // (s.vector * s.line_items)) > MAX_GROUPS:
        yield f"more than {MAX_GROUPS} work-groups"


def geometry(s: ScatterSchedule, p: ScatterProblem) -> Geometry:
    d = derive(s, p)
    used = -(-p.places // (d.part * s.part_items))  # the last parts may be empty
    return Geometry((-(-d.line_groups // s.line_items), used, 1), (d.threads, 1, 1))


def most_parts(p: ScatterProblem, units: int) -> int:
    """The most parts of a line. Each of them reads every update, which must not cost more than the copy of the line.

    There may always be as many parts as the device has readers. So the work of all work-items together is at most
    ``2 * places + readers * updates`` a line: linear in both.
    """
    readers = max(READERS, READERS_OF_A_UNIT * units // (p.lines // p.widest))
    return max(1, min(p.places, max(readers, p.places // max(1, p.updates))))


def default(p: ScatterProblem, limits: Limits) -> ScatterSchedule:
    """Work-items for a few waves where ``most_parts`` allows them; neighbours in memory are neighbours in the group."""
    groups = p.lines // p.widest
    budget = most_parts(p, limits.units if not limits.is_cpu else 0)
    wanted = min(budget, -(-limits.units * (2048 if not limits.is_cpu else 16) // groups))
    sizes = [t for t in (32, 64, 128, 256) if t <= limits.threads and (t == 32 or wanted * groups >= limits.units * t)]
    threads = max(sizes, default=1) if not limits.is_cpu else 16
    lines = 1
    while lines < threads and lines < (groups if p.side_by_side or wanted < threads else 1):
        lines *= 2
    part_items = 1
    while 2 * part_items * lines <= threads and 2 * part_items <= wanted:
        part_items *= 2
    parts = max(n for n in ScatterSchedule.choices("parts") if n == 1 or n * part_items <= wanted)
    return ScatterSchedule(line_items=lines, part_items=part_items, parts=parts, vector=p.widest)


FAMILY = Family(
    "scatter",
    Scatter,
    ScatterSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    emit=emit_scatter,
    template="scatter/kernel.j2",
    any_size=True,
)
