"""The parameters of the scan family: running sums, products, maxima and minima along an axis.

What a schedule changes is the order of additions. Along one element's way there are ``vector * accesses - 1`` within a
work-item, two a step of the exchange between lanes, one a warp, one a tile and two to join them: ``depth``. An f32 sum
is off by at most ``depth * 2**-24 * sum |x|`` to first order (Higham, Accuracy and Stability of Numerical Algorithms,
section 4.2), for a row of any length less than the ``n - 1`` of adding one by one. Equal schedules give equal bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace

from gpucomp.codegen.rowwise import SHUFFLED, access_width, rows_side_by_side
from gpucomp.kernel import Kernel, Scan
from gpucomp.schedule.lockstep import least
from gpucomp.schedule.space import Family, Geometry, Limits, Param, Schedule, Work

PARAMS = (
    Param("lanes", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), "work-items of a work-group that share a row"),
    Param("rows_per_group", (1, 2, 4, 8, 16, 32, 64, 128, 256), "rows per work-group"),
    Param("vector", (1, 2, 4, 8), "neighbours of one row per access"),
    Param("accesses", (1, 2, 4, 8), "accesses of a work-item in a tile, one after another along the row"),
)
STATIC_SHARED = 48 << 10  # CUDA's limit for arrays whose size the source says
MAX_GROUPS = (1 << 31) - 1
MAX_ELEMENTS = 32  # of a tile that a work-item holds
OTHER_REGISTERS = 28  # addresses, indices, the carry


def problem(kernel: Kernel) -> Mapping[str, int]:
    """``rows_side_by_side``: whether neighbouring rows, not neighbouring elements of a row, are neighbours in memory.

    widest           elements an access may take along a row: 1 where rows lie side by side
    value_bytes      of a running value
    element_bytes    of the widest element that moves
    """
    body = kernel.body
    assert isinstance(body, Scan)
    side_by_side = rows_side_by_side(kernel)
    return {
        "rows": math.prod(a.extent for a in body.rows),
        "cols": body.axis.extent,
        "rows_side_by_side": int(side_by_side),
        "widest": 1 if side_by_side else access_width(kernel, False),
        "value_bytes": max(4, body.acc.dtype.nbytes),
        "element_bytes": max(t.dtype.nbytes for t in kernel.params),
        "exclusive": int(body.exclusive),
        "reverse": int(body.reverse),
    }


def derive(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, int]:
    """``tile``: accesses of all lanes of a row, ``tiles`` of them make a row; ``lanes_in_warp``: that may shuffle."""
    groups = -(-p.rows // s.rows_per_group)
    accesses = p.cols // s.vector
    return {
        "threads": s.lanes * s.rows_per_group,
        "groups": groups,
        "row_accesses": accesses,
        "tile": s.lanes * s.accesses,
        "tiles": -(-accesses // (s.lanes * s.accesses)),
        "elements": s.vector * s.accesses,
        "last_row": max(0, p.rows - 1),
        "lanes_in_warp": least(s.lanes, SHUFFLED) if not p.rows_side_by_side or s.rows_per_group == 1 else 1,
    }


def depth(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """Additions that one element of the result can have behind it, at most."""
    d = SimpleNamespace(**derive(s, p))
    across = 2 * (s.lanes - 1).bit_length() + s.lanes // d.lanes_in_warp
    return d.elements - 1 + (across if s.lanes > 1 else 0) + d.tiles + 2


def shared_bytes(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """Of one work-group, where lanes do not shuffle."""
    return s.lanes * s.rows_per_group * p.value_bytes if s.lanes > 1 else 0


def registers(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """The elements that a work-item holds, one access and the rest."""
    return max(1, p.value_bytes // 4) * (s.vector * s.accesses + s.vector + 4) + OTHER_REGISTERS


def objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    d = SimpleNamespace(**derive(s, p))
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if p.cols % s.vector:
        yield f"vectors of {s.vector} do not divide the {p.cols} columns"
    if s.vector > p.widest:
        yield f"{p.widest} neighbours of a row stand side by side, not {s.vector}"
    if d.elements > MAX_ELEMENTS:
        yield f"{d.elements} elements of a tile per work-item, {MAX_ELEMENTS} can be held"
    shared = shared_bytes(s, p)
    if shared > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    if limits.warp > 1 and shared > STATIC_SHARED:
        yield f"{shared} B of shared memory in one array, compilers allow {STATIC_SHARED}"
    if limits.warp > 1 and (used := registers(s, p)) > limits.registers:
        yield f"about {used} registers per work-item, the device has {limits.registers}"
    if d.groups > MAX_GROUPS:
        yield f"more than {MAX_GROUPS} work-groups"


def geometry(s: SimpleNamespace, p: SimpleNamespace) -> Geometry:
    d = SimpleNamespace(**derive(s, p))
    return Geometry((d.groups, 1, 1), (d.threads, 1, 1))


LATENCY = 600  # cycles from asking memory to having it
ACCESS = 12  # cycles between two accesses of a work-item
ADDITION = 4  # cycles of one that waits for the one before
SHUFFLE = 30  # cycles of one exchange between lanes
MEETING = 60  # cycles of a barrier and of what stands around it
RESIDENT = 1024  # work-items that a unit runs at a time
SECTOR = 32  # bytes that memory delivers at least
BYTES_PER_CYCLE = 20.0  # of one unit, from memory


def cycles(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> float:
    """Of the busiest unit: either the way of one work-item along its row, or the bytes of the unit's share."""
    d = SimpleNamespace(**derive(s, p))
    waves = -(-d.groups * d.threads // (limits.units * RESIDENT))
    # lanes that stand apart ask for a sector each: what follows finds it in the first cache
    apart = 1.0 if p.rows_side_by_side else max(1.0, min(SECTOR, d.elements * p.element_bytes) / (s.vector * p.element_bytes))
    warps = s.lanes // d.lanes_in_warp
    joining = SHUFFLE * math.log2(d.lanes_in_warp) + (2 * MEETING + 4 * warps if warps > 1 else 0)
    tile = LATENCY + 2 * s.accesses * ACCESS * apart * (1 + s.vector / 4) + ADDITION * d.elements + joining
    side = s.rows_per_group if p.rows_side_by_side else s.lanes
    run = min(side, 32) * d.elements * p.element_bytes // (1 if not p.rows_side_by_side else d.elements)
    moved = 2 * p.rows * p.cols * p.element_bytes * max(1.0, 64 / max(run, 1))
    used = max(1, min(limits.units, d.groups))
    return max(waves * d.tiles * tile, moved / (used * BYTES_PER_CYCLE)) + 0.001 * d.threads


def default(p: SimpleNamespace, limits: Limits) -> Schedule:
    """Of the legal schedules the one that ``cycles`` finds fastest; a work-item a row on CPUs."""
    if limits.warp == 1:
        return _one_at_a_time(p)
    most = max(t for t in (32, 64, 128, 256) if t <= max(32, limits.threads))
    best: tuple[float, Schedule] = (math.inf, _one_at_a_time(p))
    for lanes in PARAMS[0].choices:
        for rows in {max(1, t // lanes) for t in (32, 64, 128, most)}:
            for vector in dict.fromkeys((p.widest, 1)):
                for accesses in PARAMS[3].choices:
                    found = {"lanes": lanes, "rows_per_group": rows, "vector": vector, "accesses": accesses}
                    s = SimpleNamespace(**found)
                    if rows in PARAMS[1].choices and not any(True for _ in objections(s, p, limits)):
                        best = min(best, (cycles(s, p, limits), found), key=lambda candidate: candidate[0])
    return best[1]


def work(s: SimpleNamespace, p: SimpleNamespace) -> Work:
    """A work-group's rows, tile after tile, each of which the next waits for."""
    d = SimpleNamespace(**derive(s, p))
    elements = s.rows_per_group * d.tiles * d.tile * s.vector
    warps, warps_of_row = -(-d.threads // SHUFFLED), s.lanes // d.lanes_in_warp
    exchanges = sum((d.lanes_in_warp > lanes) * 1 for lanes in (1, 2, 4, 8, 16))
    joining = SHUFFLE * exchanges + (warps_of_row > 1) * (2 * MEETING + 4 * warps_of_row)
    run = p.element_bytes * (s.rows_per_group if p.rows_side_by_side else s.lanes * d.elements)
    # lanes that stand apart ask for a sector each access
    apart = 1 if p.rows_side_by_side else least(SECTOR, d.elements * p.element_bytes) / least(SECTOR, s.vector * p.element_bytes)
    return Work(
        macs=elements,
        cache_bytes=elements * p.element_bytes * SECTOR / least(SECTOR, run),
        steps=d.tiles,
        out_bytes=elements * p.element_bytes,
        instructions=warps * d.tiles * (2 * s.accesses * (ACCESS * apart + s.vector) + 3 * exchanges),
        shared_bytes=(warps_of_row > 1) * s.rows_per_group * warps_of_row * p.value_bytes,
        chains=1.0,
        step_cycles=joining + ADDITION * d.elements,
        start_cycles=200,
    )


def focus(p: SimpleNamespace, limits: Limits) -> Mapping[str, Sequence[int]]:
    """Single elements or the widest accesses, work-groups of few rows."""
    return {"rows_per_group": (1, 2, 4, 8, 16, 32, 64), "vector": tuple(dict.fromkeys((p.widest, 1)))}


def _one_at_a_time(p: SimpleNamespace) -> Schedule:
    rows = 1
    while rows < 16 and 2 * rows <= p.rows:
        rows *= 2
    while -(-p.rows // rows) > MAX_GROUPS and rows < PARAMS[1].choices[-1]:
        rows *= 2
    return {"lanes": 1, "rows_per_group": rows, "vector": 1, "accesses": 1}


FAMILY = Family("scan", "scan/kernel.j2", PARAMS, problem, objections, derive, geometry, default, registers=registers,
                work=work, focus=focus)  # fmt: skip
