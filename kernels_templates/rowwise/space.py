"""The parameters of the rowwise family: reductions, softmax and norms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least, most
from gpucomp.ir.size import bounds
from gpucomp.ir.types import U64
from gpucomp.kernel import Kernel, Rowwise
from gpucomp.kernel.example import has_sizes
from gpucomp.kernel.forms.access import steady
from gpucomp.kernel.forms.rows import SHUFFLED, access_width, parts_early, parts_kept, rows_side_by_side
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.rowwise.emit import emit_rowwise
from gpucomp.schedule.space import (
    LATENCY,
    MAX_GROUPS,
    MOST_REGISTERS,
    SECTOR,
    STATIC_SHARED,
    WRITTEN_OUT,
    Family,
    Work,
    can_run,
    cannot_meet,
    groups_for_registers,
    too_many_registers,
)

LANES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
ROWS = SPLITS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MAX_STEPS = 32  # accesses written out
OTHER_REGISTERS = 28  # addresses, indices, statistics


class RowwiseSchedule(Tunables):
    lanes: int = tunable(LANES, "work-items of a work-group that share a row")
    rows_per_group: int = tunable(ROWS, "rows, or vectors of rows, per work-group")
    vector: int = tunable((1, 2, 4, 8), "neighbours in memory per access: of one row, or rows that lie side by side")
    keep: int = tunable(
        (0, 1, 2),
        "1: a row's elements stay in registers between the statistics; 2: with what only results read",
    )
    splits: int = tunable(SPLITS, "work-groups that share a row")


class RowsProblem(Sizes):
    """Sizes of rows whose elements meet, and how they lie in memory."""

    rows: int
    cols: int
    rows_side_by_side: int  # 1: neighbouring rows, not neighbouring columns, are neighbours in memory
    widest: int  # elements that an access may take along the contiguous axis
    element_bytes: int  # of the widest element that moves
    shuffles: int  # 1: CUDA's lanes may exchange all the values that meet


class RowwiseProblem(RowsProblem):
    """Sizes of a reduction, softmax or norm: statistics of rows, and what is stored with them."""

    kept: int  # values of an element that several stages need
    early: int  # values of an element that only the results need: a norm's scale and shift
    statistics: int
    shared_per_item: int  # bytes of all statistics
    element_stores: int  # results that have a value for each element
    splittable: int  # 1: work-groups may share a row: one statistic, and no result has a value for each element
    aligned: int = 0  # for any size: what divides the contiguous extent in every run
    most_cols: int = 0  # for any size: columns of the longest row


class RowsSizes(Sizes):
    """How the work-items of a work-group share its rows."""

    threads: int
    groups: int  # work-groups along the rows
    last_row: int  # a vector of rows, where an access takes several
    lanes_in_warp: int  # lanes of a row in one warp, which may shuffle
    groups_per_unit: int = 0  # work-groups that a multiprocessor is to hold at a time; 0: the compiler decides


class RowwiseSizes(RowsSizes):
    row_width: int  # rows of an access
    col_width: int  # columns of an access
    row_groups: int  # vectors of rows
    col_groups: int  # vectors of columns
    part: int  # accesses of a split
    steps: int  # accesses of a work-item
    lane_stride: int  # how far apart the numbers of a row's lanes are


def problem(kernel: Kernel[Rowwise]) -> RowwiseProblem:
    body = kernel.body
    side_by_side = rows_side_by_side(kernel)
    rows, cols = math.prod(a.extent for a in body.rows), math.prod(a.extent for a in body.cols)
    element_stores = len(kernel.stores) - len(body.row_stores)
    return RowwiseProblem(
        rows=rows,
        cols=cols,
        rows_side_by_side=int(side_by_side),
        widest=access_width(kernel, side_by_side),
        kept=parts_kept(kernel),
        early=parts_early(kernel),
        statistics=len(body.statistics),
        shared_per_item=sum(max(4, s.hole.dtype.nbytes) for s in body.statistics),
        element_bytes=max((t.dtype.nbytes for t in kernel.params), default=4),
        element_stores=element_stores,
        shuffles=int(all(s.hole.dtype is not U64 for s in body.statistics)),
        splittable=int(len(body.statistics) == 1 and element_stores == 0),
        **_for_any_size(kernel, rows, cols, side_by_side),
    )


def _for_any_size(kernel: Kernel[Rowwise], rows: int, cols: int, side_by_side: bool) -> dict[str, int]:
    if not has_sizes(kernel):
        return {}
    return {"aligned": steady(rows if side_by_side else cols), "most_cols": int(bounds(cols)[1])}


def derive(s: RowwiseSchedule, p: RowwiseProblem) -> RowwiseSizes:
    row_width, col_width = (s.vector, 1) if p.rows_side_by_side else (1, s.vector)
    col_groups, row_groups = p.cols // col_width, p.rows // row_width
    stride = s.rows_per_group if p.rows_side_by_side else 1
    part = -(-col_groups // s.splits)
    steps = -(-part // s.lanes)
    if p.most_cols and s.keep:  # registers are for the longest row
        steps = -(-(p.most_cols // col_width) // s.lanes)
    return RowwiseSizes(
        threads=s.lanes * s.rows_per_group,
        row_width=row_width,
        col_width=col_width,
        row_groups=row_groups,
        col_groups=col_groups,
        last_row=most(0, row_groups - 1),
        part=part,
        steps=steps,
        lane_stride=stride,
        lanes_in_warp=most(1, least(s.lanes, SHUFFLED // stride)),
        groups=-(-row_groups // s.rows_per_group),
    )


def shared_bytes(s: RowwiseSchedule, p: RowwiseProblem, *, shuffles: bool) -> int:
    """Of one work-group, its arrays aligned to 16 bytes. Where lanes shuffle, a warp leaves one value of a statistic."""
    d = derive(s, p)
    warps = s.lanes // (d.lanes_in_warp if shuffles and p.shuffles and d.threads % SHUFFLED == 0 else 1)
    one = s.rows_per_group * warps * d.row_width * p.shared_per_item // p.statistics if warps > 1 else 0
    return p.statistics * -(-one // 16) * 16 + (16 if s.splits > 1 else 0)


def registers(s: RowwiseSchedule, p: RowwiseProblem) -> int:
    """The least that ptxas can do with: what is kept, one access, a statistic of each row, and others.

    Where elements are stored, two more accesses: a norm's scale and shift.
    """
    d = derive(s, p)
    words = max(1, p.element_bytes // 4)
    kept = (p.kept + p.early * (s.keep == 2)) * d.steps * d.col_width * d.row_width if s.keep else 0
    accesses = 3 if p.element_stores else 1
    return words * (kept + accesses * s.vector + d.row_width * p.statistics) + OTHER_REGISTERS


def registers_taken(s: RowwiseSchedule, p: RowwiseProblem) -> int:
    """At most what ptxas takes while registers are plenty: it also loads every access of a second input ahead."""
    d = derive(s, p)
    ahead = least(d.steps, MAX_STEPS) * s.vector if s.keep else 4 * s.vector
    return least(MOST_REGISTERS, registers(s, p) + max(1, p.element_bytes // 4) * ahead + 24)


def objections(s: RowwiseSchedule, p: RowwiseProblem, limits: Limits) -> Iterator[str]:
    d = derive(s, p)
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    extent, what = (p.rows, "rows") if p.rows_side_by_side else (p.cols, "columns")
    if (p.aligned or extent) % s.vector:
        yield f"vectors of {s.vector} do not divide the {extent} {what}"
    shared = shared_bytes(s, p, shuffles=False)
    if shared > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    if not limits.is_cpu and shared > STATIC_SHARED:
        yield f"{shared} B of shared memory in one array, compilers allow {STATIC_SHARED}"
    if s.keep and d.steps > MAX_STEPS:
        yield f"{d.steps} accesses of a row per work-item, {MAX_STEPS} can be written out"
    if s.keep == 2 and not p.early:
        yield "the results read nothing that the statistics do not"
    if s.keep and s.splits > 1:
        yield "a row that work-groups share is read once: there is nothing to keep"
    if not limits.is_cpu:
        yield from too_many_registers(limits, d.threads, registers(s, p))
    if s.splits > 1 and not p.splittable:
        yield "work-groups share a row only where one statistic is all that the kernel computes"
    if d.groups * s.splits > MAX_GROUPS:
        yield f"more than {MAX_GROUPS} work-groups"
    if s.splits * p.rows * p.shared_per_item > MAX_GROUPS:
        yield "the partial results of split rows need more than 2 GiB"
    yield from cannot_meet(s.splits, limits)


def template_sizes(s: RowwiseSchedule, p: RowwiseProblem) -> RowwiseSizes:
    """What ``derive`` says, and ``groups_per_unit``: how many work-groups a unit is to hold at a time; 0: ptxas decides.

    Left to itself it saves registers for many work-groups, and loads a norm's scale and shift in pieces between the stores.
    Where there are not enough registers for all of them, that is right.
    """
    d = derive(s, p)
    late = max(1, p.element_bytes // 4) * p.early * d.steps * s.vector * (s.keep == 1)
    taken = registers_taken(s, p) + late
    told = s.keep and taken < MOST_REGISTERS
    return d.replace(groups_per_unit=groups_for_registers(taken, d.threads) if told else 0)


def geometry(s: RowwiseSchedule, p: RowwiseProblem) -> Geometry:
    d = derive(s, p)
    split = s.splits > 1 and d.groups > 0
    return Geometry(
        (d.groups, s.splits if d.groups else 1, 1),
        (d.threads, 1, 1),
        workspace_bytes=s.splits * p.rows * p.shared_per_item if split else 0,
        counter_bytes=4 * d.groups if split else 0,
    )


ACCESS = 12  # cycles between two accesses of a work-item
SHUFFLE = 30  # cycles of one exchange between lanes
MEETING = 60  # cycles of a barrier and of what stands around it
SPLIT = 1500  # cycles of leaving a partial result, arriving, joining
RESIDENT = 1024  # work-items that a unit runs at a time
LONG_ROW = 8192  # columns that cores of a CPU had better share
BYTES_PER_CYCLE = 20.0  # of one unit, from memory
INSTRUCTIONS_WRITTEN = (
    5  # of an element in each stage: bench/results/machine_code.md has 15 for a softmax of three stages
)
# 12 KiB of 16 bytes each: a scheduler's first instruction cache (Jia et al., arXiv 1804.06826, Volta; later ones resemble it)
CACHED_INSTRUCTIONS = 768


def joining(s: RowwiseSchedule, p: RowwiseProblem, shuffles: bool) -> tuple[float, float, int]:
    """Of one statistic, when lanes join: cycles, instructions of each warp, and bytes through shared memory.

    Lanes join by shuffles, warps through shared memory, which is next to nothing. Without shuffles all lanes join through
    shared memory, by halves.
    """
    d = derive(s, p)
    if shuffles and p.shuffles and d.threads % SHUFFLED == 0:
        exchanges, warps = halvings_of(d.lanes_in_warp), s.lanes // d.lanes_in_warp
        return SHUFFLE * exchanges + (warps > 1) * (MEETING + 4 * warps), 2 * exchanges, 0
    halvings, meets = halvings_of(s.lanes), (s.lanes > 1) * 1
    # every lane leaves its value and reads the first at last; half of them read two and write one, then half of those ...
    moved = 5 * s.lanes * s.rows_per_group * d.row_width * p.shared_per_item // p.statistics
    return (meets + halvings) * MEETING, 4 * meets + 8 * halvings, meets * moved


def halvings_of(lanes: int) -> int:
    """The steps in which so many lanes join, two by two."""
    return sum((lanes > n) * 1 for n in LANES[:-1])


def _beyond_cache(s: RowwiseSchedule, p: RowwiseProblem) -> int:
    """Instructions that are written out for a work-item's part of a row, beyond those that a warp's scheduler caches."""
    d = derive(s, p)
    written = d.steps * s.vector * (p.statistics + (p.element_stores > 0)) * INSTRUCTIONS_WRITTEN if s.keep else 0
    return max(0, written - CACHED_INSTRUCTIONS)


def cycles(s: RowwiseSchedule, p: RowwiseProblem, limits: Limits) -> float:
    """Of the busiest unit: the more of what one work-item takes for its row, and what the unit's share of bytes takes."""
    d = derive(s, p)
    groups = d.groups * s.splits
    waves = -(-groups * d.threads // (limits.units * RESIDENT)) if d.threads else 1
    passes = 1 if s.keep or not p.kept else p.statistics + (1 if p.element_stores else 0)
    reading = passes * (LATENCY + d.steps * ACCESS * (1 + s.vector / 4))
    exchange = joining(s, p, limits.subgroups)[0] * (1 + 0.1 * (d.row_width - 1))  # those of several rows overlap
    late = LATENCY if p.early and s.keep != 2 else 0  # what only results read is loaded when statistics are known
    alone = waves * (reading + late + p.statistics * exchange) + (SPLIT + s.splits if s.splits > 1 else 0)
    used = max(1, min(limits.units, groups))
    # neighbouring work-items that do not fill a line of memory fetch it for nothing
    side = s.rows_per_group if p.rows_side_by_side else s.lanes
    run = min(side, 32) * s.vector * p.element_bytes
    moved = passes * p.rows * p.cols * p.element_bytes * max(1.0, 64 / max(run, 1))
    return max(alone, moved / (used * BYTES_PER_CYCLE)) + 0.001 * (d.threads + _beyond_cache(s, p))


def default(p: RowwiseProblem, limits: Limits) -> RowwiseSchedule:
    """Of the legal schedules the one that ``cycles`` finds fastest; a work-item a row on CPUs."""
    if limits.is_cpu:
        return _one_at_a_time(p)
    legal = (s for s in _candidates(p, limits) if can_run(s, objections, p, limits))
    return min(legal, key=lambda s: cycles(s, p, limits), default=None) or _one_at_a_time(p)


def _candidates(p: RowwiseProblem, limits: Limits) -> Iterator[RowwiseSchedule]:
    """Schedules of work-groups of common sizes; those of one row may have as many work-items as the device allows."""
    most = max(t for t in (32, 64, 128, 256) if t <= max(32, limits.threads))
    lanes = [n for n in LANES if n <= max(most, min(limits.threads, 1024))]
    splits = [n for n in SPLITS if p.splittable and n * 8 <= max(p.cols, 8)] or [1]
    for vector, n in itertools.product(dict.fromkeys((p.widest, 1)), lanes):
        for rows, split, keep in itertools.product({max(1, t // n) for t in (64, 128, most)}, splits, (1, 2, 0)):
            if rows in ROWS and n * rows <= max(most, n):
                yield RowwiseSchedule(lanes=n, rows_per_group=rows, vector=vector, keep=keep, splits=split)


ACCESS_INSTRUCTIONS, ELEMENT_INSTRUCTIONS = 4, 3  # of an access; of an element in each stage


def work(s: RowwiseSchedule, p: RowwiseProblem, *, shuffles: bool = True) -> Work:
    """A work-group's part of its rows: one pass over what is kept, else one for each stage. Results may read more, at last."""
    d = derive(s, p)
    stages = p.statistics + int(p.element_stores > 0)
    kept = least(1, s.keep)
    passes = kept + (1 - kept) * stages if p.kept else 1
    late = (s.keep < 2) * 1 if p.early else 0
    elements = s.rows_per_group * d.row_width * d.part * d.col_width
    joined, instructions, exchanged = joining(s, p, shuffles)
    run = (s.rows_per_group if p.rows_side_by_side else s.lanes) * s.vector * p.element_bytes
    issued = passes * ACCESS_INSTRUCTIONS + stages * ELEMENT_INSTRUCTIONS * s.vector
    return Work(
        macs=stages * elements,
        cache_bytes=(passes + p.early / 2) * elements * p.element_bytes * SECTOR / least(SECTOR, run),
        steps=passes * (kept + (1 - kept) * -(-d.steps // WRITTEN_OUT)) + late,
        out_bytes=elements * p.element_bytes * p.element_stores,
        shared_traffic=p.statistics * exchanged,
        shared_bytes=shared_bytes(s, p, shuffles=shuffles),
        instructions=-(-d.threads // SHUFFLED) * (d.steps * issued + p.statistics * instructions),
        registers=registers_taken(s, p),
        start_cycles=200 + p.statistics * joined,
        splits=s.splits,
        joined_bytes=s.rows_per_group * d.row_width * p.shared_per_item,
    )


def focus(p: RowwiseProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    """The widest accesses or single elements, work-groups of few rows; splits of long rows.

    Where memory is the limit the model cannot tell these values apart, so the best ones come first.
    """
    return {
        "lanes": (32, 64, 128, 256, 512, 1024, 16, 8, 4, 2, 1),
        "rows_per_group": (4, 2, 1, 8, 16, 32),
        "vector": tuple(dict.fromkeys((p.widest, 1))),
        "keep": (1, 2, 0) if p.early else (1, 0),
        "splits": tuple(n for n in SPLITS if n == 1 or (p.splittable and n * 8 <= p.cols)),
    }


def _one_at_a_time(p: RowwiseProblem) -> RowwiseSchedule:
    """A work-item a row: the compiler makes vectors of neighbouring rows, or is given them where there are few."""
    extent = p.aligned or (p.rows if p.rows_side_by_side else p.cols)
    few = p.rows < 4
    vector = max(w for w in RowwiseSchedule.choices("vector") if extent % w == 0) if p.rows_side_by_side or few else 1
    groups = p.rows // vector if p.rows_side_by_side else p.rows
    rows = 1
    while rows < 16 and 2 * rows <= groups:
        rows *= 2
    while -(-groups // rows) > MAX_GROUPS and rows < ROWS[-1]:
        rows *= 2
    splits = 8 if p.splittable and groups <= rows and p.cols >= LONG_ROW else 1
    return RowwiseSchedule(lanes=1, rows_per_group=rows, vector=vector, keep=0, splits=splits)


FAMILY = Family(
    "rowwise",
    Rowwise,
    RowwiseSchedule,
    problem,
    objections,
    template_sizes,
    geometry,
    default,
    registers=registers,
    work=work,
    without_shuffles=partial(work, shuffles=False),
    focus=focus,
    emit=emit_rowwise,
    template="rowwise/kernel.j2",
    any_size=True,
)
