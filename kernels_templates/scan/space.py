"""Parameters of the scan family: running sums, products, maxima and minima along an axis.

A schedule changes the order of additions. ``depth`` counts the additions that one element depends on:
``vector * accesses - 1`` in a work-item, two for each step of the exchange between lanes, one for each warp, one for
each tile, and two to join them. Work-groups that look back add the tiles by lanes instead. That takes fewer additions,
and their order does not depend on which work-group was first. To first order an f32 sum has an error of at most
``depth * 2**-24 * sum |x|`` (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). Adding one by one
has a depth of ``n - 1``. Equal schedules give equal bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least
from gpucomp.ir.types import U64
from gpucomp.kernel import Kernel, Scan
from gpucomp.kernel.example import has_sizes
from gpucomp.kernel.forms.rows import SHUFFLED, access_width, rows_side_by_side
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Tunables, tunable
from gpucomp.kernels_templates.rowwise.space import LANES, RowsProblem, RowsSizes, halvings_of
from gpucomp.kernels_templates.scan.emit import emit_scan
from gpucomp.schedule.space import (
    LATENCY,
    MAX_GROUPS,
    MOST_REGISTERS,
    SECTOR,
    STATIC_SHARED,
    Family,
    Work,
    can_run,
    cannot_meet,
    groups_for_registers,
    too_many_registers,
)

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ACCESSES = (1, 2, 4, 8)
MAX_TILES = (1 << 16) - 1  # work-groups of a launch's second axis, in CUDA
MAX_WORKSPACE = (1 << 31) - 1
ATTEMPTS = 1024  # polls of a flag, about half a millisecond, before a work-group computes the missing total itself
MAX_ELEMENTS = 32  # most elements of a tile per work-item
OTHER_REGISTERS = 28  # addresses, indices, the carry


class ScanSchedule(Tunables):
    look_back: int = tunable(
        (0, 1), "1: a tile has a work-group of its own, which waits for the totals of the tiles before it"
    )
    lanes: int = tunable(LANES, "work-items of a work-group that share a row")
    rows_per_group: int = tunable(ROWS, "rows per work-group")
    vector: int = tunable((1, 2, 4, 8), "neighbours of one row per access")
    accesses: int = tunable(ACCESSES, "accesses of a work-item in a tile, one after another along the row")


class ScanProblem(RowsProblem):
    """Sizes of a scan. If rows are adjacent in memory, ``widest`` is 1: an access has one element."""

    value_bytes: int  # bytes of a running value
    exclusive: int
    reverse: int
    any_size: int = 0  # 1: each run decides the rows or the columns


class ScanSizes(RowsSizes):
    row_accesses: int
    tile: int  # accesses per tile, of all lanes of a row
    tiles: int  # tiles per row
    elements: int  # elements of a tile per work-item
    attempts: int


def problem(kernel: Kernel[Scan]) -> ScanProblem:
    body = kernel.body
    side_by_side = rows_side_by_side(kernel)
    return ScanProblem(
        rows=math.prod(a.extent for a in body.rows),
        cols=body.axis.extent,
        rows_side_by_side=int(side_by_side),
        widest=1 if side_by_side else access_width(kernel, False),
        value_bytes=max(4, body.acc.dtype.nbytes),
        element_bytes=max(t.dtype.nbytes for t in kernel.params),
        shuffles=int(body.acc.dtype is not U64),
        exclusive=int(body.exclusive),
        reverse=int(body.reverse),
        **({"any_size": 1} if has_sizes(kernel) else {}),
    )


def derive(s: ScanSchedule, p: ScanProblem) -> ScanSizes:
    accesses = p.cols // s.vector
    return ScanSizes(
        threads=s.lanes * s.rows_per_group,
        groups=-(-p.rows // s.rows_per_group),
        row_accesses=accesses,
        tile=s.lanes * s.accesses,
        tiles=-(-accesses // (s.lanes * s.accesses)),
        elements=s.vector * s.accesses,
        last_row=max(0, p.rows - 1),
        lanes_in_warp=least(s.lanes, SHUFFLED) if not p.rows_side_by_side or s.rows_per_group == 1 else 1,
        attempts=ATTEMPTS,
    )


def depth(s: ScanSchedule, p: ScanProblem) -> int:
    """The most additions that an element of the result depends on."""
    d = derive(s, p)
    steps, warps = (s.lanes - 1).bit_length(), s.lanes // d.lanes_in_warp
    across = 2 * steps + warps if s.lanes > 1 else 0
    before = -(-d.tiles // s.lanes) + steps + warps if s.look_back else d.tiles
    return d.elements - 1 + across + before + 2


def shared_bytes(s: ScanSchedule, p: ScanProblem) -> int:
    """Shared memory of one work-group, without shuffles."""
    return s.lanes * s.rows_per_group * p.value_bytes if s.lanes > 1 else 0


def registers(s: ScanSchedule, p: ScanProblem) -> int:
    """Registers for a work-item's elements, one access, and others. Look-back also keeps the prefix and offsets."""
    words = max(1, p.value_bytes // 4)
    return words * (s.vector * s.accesses + s.vector + 4 + 4 * s.look_back) + OTHER_REGISTERS + 4 * s.look_back


def registers_taken(s: ScanSchedule, p: ScanProblem) -> int:
    """An upper bound of the registers that ptxas uses if they are plenty: it keeps addresses of several accesses."""
    return least(MOST_REGISTERS, registers(s, p) + 13 * max(1, p.value_bytes // 4))


def template_sizes(s: ScanSchedule, p: ScanProblem) -> ScanSizes:
    """The sizes of ``derive``, and how many work-groups should be resident; otherwise ptxas saves registers and spills."""
    d = derive(s, p)
    return d.replace(groups_per_unit=groups_for_registers(registers_taken(s, p), d.threads))


def objections(s: ScanSchedule, p: ScanProblem, limits: Limits) -> Iterator[str]:
    d = derive(s, p)
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if not p.any_size and p.cols % s.vector:
        yield f"vectors of {s.vector} do not divide the {p.cols} columns"
    if s.vector > p.widest:
        yield f"{p.widest} neighbours of a row are adjacent in memory, not {s.vector}"
    if d.elements > MAX_ELEMENTS:
        yield f"{d.elements} elements of a tile per work-item, {MAX_ELEMENTS} can be held"
    shared = shared_bytes(s, p)
    if shared > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    if not limits.is_cpu and shared > STATIC_SHARED:
        yield f"{shared} B of shared memory in one array, compilers allow {STATIC_SHARED}"
    if not limits.is_cpu:
        yield from too_many_registers(limits, d.threads, registers(s, p))
    if d.groups > MAX_GROUPS:
        yield f"more than {MAX_GROUPS} work-groups"
    if s.look_back and p.any_size:
        yield "each run decides the number of tiles: a row can have one"
    if s.look_back and d.tiles < 2:
        yield "a row of one tile has no tile to look back at"
    if s.look_back and d.tiles > MAX_TILES:
        yield f"{d.tiles} tiles of a row, each with a work-group: there may be {MAX_TILES}"
    if s.look_back and d.tiles * (p.rows * p.value_bytes + 4 * d.groups) > MAX_WORKSPACE:
        yield "the totals of all tiles and their flags need more than 2 GiB"
    if s.look_back:
        yield from cannot_meet(d.tiles, limits)


def geometry(s: ScanSchedule, p: ScanProblem) -> Geometry:
    d = derive(s, p)
    if not s.look_back or not d.groups:
        return Geometry((d.groups, 1, 1), (d.threads, 1, 1))
    return Geometry(
        (d.groups, d.tiles, 1),
        (d.threads, 1, 1),
        workspace_bytes=d.tiles * p.rows * p.value_bytes,
        counter_bytes=4
        * d.groups
        * (1 + d.tiles),  # an arrival counter for a group of rows, then a flag for each of its tiles
    )


ACCESS = 12  # cycles between two accesses of a work-item
ADDITION = 4  # cycles of an addition that depends on the one before
SHUFFLE = 30  # cycles of one exchange between lanes
MEETING = 60  # cycles of a barrier and the instructions around it
RESIDENT = 1024  # work-items that a unit runs at a time
FLAG = 4  # bytes
BYTES_PER_CYCLE = 20.0  # of one unit, from memory
CLEARLY = 1.4  # how many times faster look-back has to be for a default to use it


def joining(s: ScanSchedule, p: ScanProblem, shuffles: bool) -> tuple[float, float, int, int]:
    """Costs of joining one tile's lanes.

    Returns cycles, instructions per warp, and the values of a row that shared memory keeps and that it moves. Lanes are
    joined by shuffles, warps through shared memory. Without shuffles all lanes are joined through shared memory, where
    the distance doubles in each step.
    """
    d = derive(s, p)
    if shuffles and p.shuffles and d.threads % SHUFFLED == 0 and d.lanes_in_warp > 1:
        exchanges = halvings_of(d.lanes_in_warp)
        warps = s.lanes // d.lanes_in_warp
        return SHUFFLE * exchanges + (warps > 1) * (2 * MEETING + 4 * warps), 3 * exchanges, (warps > 1) * warps, 0
    doublings = halvings_of(s.lanes)
    several = (s.lanes > 1) * 1
    # each lane writes its total, reads and writes in each step, and reads two at the end
    moved = several * s.lanes * (3 + 2 * doublings)
    return (several + doublings) * 2 * MEETING, several * 4 + doublings * 8, several * s.lanes, moved


def cycles(s: ScanSchedule, p: ScanProblem, limits: Limits) -> float:
    """Cycles of the busiest unit: of a work-item's row, or of the unit's share of bytes, whichever are more."""
    d = derive(s, p)
    groups, tiles = (d.groups * d.tiles, 1) if s.look_back else (d.groups, d.tiles)
    waves = -(-groups * d.threads // (limits.units * RESIDENT))
    # lanes that are far apart load a sector each; their next accesses find it in the first-level cache
    apart = (
        1.0
        if p.rows_side_by_side
        else max(1.0, min(SECTOR, d.elements * p.element_bytes) / (s.vector * p.element_bytes))
    )
    tile = LATENCY + 2 * s.accesses * ACCESS * apart * (1 + s.vector / 4) + ADDITION * d.elements
    tile += joining(s, p, limits.subgroups)[0] + looking_back(s, p)
    side = s.rows_per_group if p.rows_side_by_side else s.lanes
    run = min(side, 32) * d.elements * p.element_bytes // (1 if not p.rows_side_by_side else d.elements)
    moved = 2 * p.rows * p.cols * p.element_bytes * max(1.0, 64 / max(run, 1)) + groups * looked_at(s, p)
    used = max(1, min(limits.units, groups))
    way = waves * tiles * tile + taking_down(s, p)
    return max(way, moved / (used * BYTES_PER_CYCLE)) + 0.001 * d.threads


def looking_back(s: ScanSchedule, p: ScanProblem) -> float:
    """Mean cycles to publish a total, poll the flags of the previous tiles one by one, and read their totals."""
    d = derive(s, p)
    return s.look_back * (2 * LATENCY + 4 * MEETING + LATENCY * (1 + -(-d.tiles // d.threads)) / 2)


def taking_down(s: ScanSchedule, p: ScanProblem) -> float:
    """Cycles of a row's last work-group to arrive. It waits for the stores of the others, then clears all flags."""
    d = derive(s, p)
    return s.look_back * (LATENCY + ACCESS * -(-d.tiles // d.threads))


def looked_at(s: ScanSchedule, p: ScanProblem) -> float:
    """Mean bytes of other tiles' totals and flags that a work-group reads."""
    return s.look_back * derive(s, p).tiles / 2 * (s.rows_per_group * p.value_bytes + FLAG)


def default(p: ScanProblem, limits: Limits) -> ScanSchedule:
    """The legal schedule that is fastest by ``cycles``; on CPUs, one work-item per row."""
    if limits.is_cpu:
        return _one_at_a_time(p)

    def cost(s: ScanSchedule) -> float:
        return cycles(s, p, limits) * (CLEARLY if s.look_back else 1)

    legal = (s for s in _candidates(p, limits) if can_run(s, objections, p, limits))
    return min(legal, key=cost, default=_one_at_a_time(p))


def _candidates(p: ScanProblem, limits: Limits) -> Iterator[ScanSchedule]:
    """Schedules with work-groups of common sizes, and with less than twice the rows that there are."""
    most = max(t for t in (32, 64, 128, 256) if t <= max(32, limits.threads))
    for lanes in LANES:
        rows_per_group = {n for t in (32, 64, 128, most) if (n := max(1, t // lanes)) < 2 * max(1, p.rows)}
        widths = dict.fromkeys((p.widest, 1))
        for rows, vector, accesses, look_back in itertools.product(rows_per_group, widths, ACCESSES, (0, 1)):
            if rows in ROWS:
                yield ScanSchedule(
                    look_back=look_back, lanes=lanes, rows_per_group=rows, vector=vector, accesses=accesses
                )


def work(s: ScanSchedule, p: ScanProblem, *, shuffles: bool = True) -> Work:
    """A work-group's rows, tile after tile; each waits for the one before.

    With look-back, one tile and those before it.
    """
    d = derive(s, p)
    tiles = 1 if s.look_back else d.tiles
    elements = s.rows_per_group * tiles * d.tile * s.vector
    joined, instructions, left, moved = joining(s, p, shuffles)
    run = p.element_bytes * (s.rows_per_group if p.rows_side_by_side else s.lanes * d.elements)
    # lanes that are far apart load a sector per access
    apart = (
        1
        if p.rows_side_by_side
        else least(SECTOR, d.elements * p.element_bytes) / least(SECTOR, s.vector * p.element_bytes)
    )
    issued = 2 * s.accesses * (ACCESS * apart + s.vector) + instructions
    return Work(
        macs=elements,
        cache_bytes=elements * p.element_bytes * SECTOR / least(SECTOR, run) + looked_at(s, p),
        steps=tiles,
        # the result; the published totals, and a flag that is set and cleared
        out_bytes=elements * p.element_bytes + s.look_back * (s.rows_per_group * p.value_bytes + 2 * FLAG),
        shared_traffic=s.rows_per_group * tiles * moved * p.value_bytes,
        instructions=-(-d.threads // SHUFFLED) * tiles * issued,
        shared_bytes=s.rows_per_group * left * p.value_bytes + s.look_back * FLAG,
        chains=1.0,
        registers=registers_taken(s, p),
        step_cycles=joined + ADDITION * d.elements,
        start_cycles=200
        + looking_back(s, p)
        + taking_down(s, p) / d.tiles,  # only one of the tiles' work-groups does it
    )


def focus(p: ScanProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    """Single elements or the widest accesses, and work-groups of few rows."""
    return {"rows_per_group": (1, 2, 4, 8, 16, 32, 64), "vector": tuple(dict.fromkeys((p.widest, 1)))}


def _one_at_a_time(p: ScanProblem) -> ScanSchedule:
    rows = 1
    while rows < 16 and 2 * rows <= p.rows:
        rows *= 2
    while -(-p.rows // rows) > MAX_GROUPS and rows < ROWS[-1]:
        rows *= 2
    return ScanSchedule(look_back=0, lanes=1, rows_per_group=rows, vector=1, accesses=1)


FAMILY = Family(
    "scan",
    Scan,
    ScanSchedule,
    problem,
    objections,
    template_sizes,
    geometry,
    default,
    registers=registers,
    work=work,
    without_shuffles=partial(work, shuffles=False),
    focus=focus,
    emit=emit_scan,
    template="scan/kernel.j2",
    any_size=True,
)
