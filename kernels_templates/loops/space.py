"""Parameters of the loops family: any algorithm, one group of points per work-item."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least, most
from gpucomp.expr.core import Expr, Load, Reduce, Select, Var, loads, walk
from gpucomp.expr.simplify import coefficient
from gpucomp.kernel import Kernel, Loops
from gpucomp.kernel.example import example_of
from gpucomp.kernel.forms.access import Rewriter, steady
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.loops.emit import emit_loops
from gpucomp.schedule.analytic import load_times, operations
from gpucomp.schedule.space import MAX_GROUPS, SECTOR, WARP, WRITTEN_OUT, Family, Work, too_wide


class LoopsSchedule(Tunables):
    threads: int = tunable((32, 64, 128, 256, 512, 1024), "work-items per work-group")
    vector: int = tunable((1, 2, 4, 8, 16), "neighbouring points per access")
    items: int = tunable((1, 2, 4, 8), "groups of points per work-item")


class PointsProblem(Sizes):
    """Sizes of a domain whose points are computed one by one."""

    size: int  # points of the domain
    inner: int  # points of its innermost axis: vectors have to divide them
    width: int  # bytes of the widest element that is loaded or stored


class LoopsProblem(PointsProblem):
    """Sizes of a domain, and the work of one point. ``width`` ignores elements that neighbouring points share."""

    operations: int
    read_bytes: int  # bytes that its loads request
    moved_bytes: int  # bytes that memory moves for its loads and stores: whole sectors unless points are adjacent
    written_bytes: int
    trips: int  # iterations of its longest loop


class PointsSizes(Sizes):
    points: int  # groups of ``vector`` points


IN_FLIGHT = 2048  # work-items that a unit runs at a time


def problem(kernel: Kernel) -> LoopsProblem:
    points = points_of(kernel.body.domain)
    kernel = example_of(kernel)
    domain = kernel.body.domain
    moving = {s.target for s in kernel.stores}
    moving |= {ld.source for s in kernel.stores for ld in loads(s.value) if domain and domain[-1] in ld.free}
    size = math.prod(a.extent for a in domain)
    sums = [n for s in kernel.stores for n in walk(s.value) if isinstance(n, Reduce)]
    rewrite, inner = Rewriter(kernel.params, {}), domain[-1] if domain else None
    read = list({ld: n for s in kernel.stores for ld, n in read_by(rewrite(s.value))}.items())
    moved = sum(n * moved_bytes(ld.index[0], inner, kernel.params[ld.source].dtype.nbytes) for ld, n in read)
    moved += sum(
        moved_bytes(rewrite.offset(s.target, s.index), inner, kernel.params[s.target].dtype.nbytes)
        for s in kernel.stores
    )
    return LoopsProblem(
        **points,
        width=max((kernel.params[k].dtype.nbytes for k in moving), default=4),
        operations=math.ceil(operations(kernel) / max(1, size)),
        read_bytes=math.ceil(sum(n * kernel.params[ld.source].dtype.nbytes for ld, n in read)),
        moved_bytes=math.ceil(moved),
        written_bytes=sum(kernel.params[s.target].dtype.nbytes for s in kernel.stores),
        trips=max([1, *(math.prod(a.extent for a in n.axes) for n in sums)]),
    )


def points_of(domain: Sequence[Var]) -> dict[str, int]:
    """``size`` and ``inner``; of an innermost axis that each run decides, what divides it in every run."""
    return {"size": math.prod(a.extent for a in domain), "inner": steady(domain[-1].extent) if domain else 1}


def read_by(value: Expr) -> list[tuple[Load, float]]:
    """The loads of a point, and how often it executes each.

    Of a choice only the side that reads more counts: a point of a Concat reads one operand.
    """
    passed_over: set[Load] = set()
    for node in walk(value):
        if isinstance(node, Select):
            fewer, more = sorted((set(loads(side)) for side in (node.then, node.otherwise)), key=len)
            passed_over |= fewer - more - set(loads(node.condition))
    return [(ld, n) for ld, n in load_times(value).items() if ld not in passed_over]


def moved_bytes(offset: Expr, inner: Var | None, nbytes: int) -> float:
    """Bytes that memory moves for an element at ``offset``, while neighbouring points along ``inner`` move theirs."""
    step = coefficient(offset, inner) if inner is not None else 0
    if step is None:
        return nbytes  # a gather: its step is unknown, and neighbours often share a row
    return nbytes / WARP if step == 0 else min(max(SECTOR, nbytes), abs(step) * nbytes)


def objections(s: LoopsSchedule, p: LoopsProblem, limits: Limits) -> Iterator[str]:
    if s.threads > limits.threads:
        yield f"{s.threads} work-items per work-group, the device allows {limits.threads}"
    if p.inner % s.vector:
        yield f"vectors of {s.vector} do not divide the {p.inner} points of the innermost axis"
    if limits.is_cpu:  # loaded elements are widened to four bytes or more, all at once
        yield from too_wide(s.vector, max(4, p.width), limits)
    if groups(s, p) > MAX_GROUPS:
        yield f"{groups(s, p)} work-groups, a launch has at most {MAX_GROUPS}"


def groups(s: LoopsSchedule, p: PointsProblem) -> int:
    return -(-p.size // (s.threads * s.vector * s.items))


def derive(s: LoopsSchedule, p: PointsProblem) -> PointsSizes:
    return PointsSizes(points=p.size // s.vector)


def geometry(s: LoopsSchedule, p: PointsProblem) -> Geometry:
    return Geometry((groups(s, p), 1, 1), (s.threads, 1, 1))


ADDRESSES = 20  # registers besides those of values
LONGEST_ACCESS = 16  # bytes


def registers(s: LoopsSchedule, p: LoopsProblem) -> int:
    """Registers for what a group of points reads and writes; of a loop's loads, those of ``WRITTEN_OUT`` iterations."""
    at_once = min(p.read_bytes, -(-p.read_bytes // p.trips) * WRITTEN_OUT)
    return ADDRESSES + -(-s.vector * (at_once + p.written_bytes) // 4)


def work(s: LoopsSchedule, p: LoopsProblem) -> Work:
    """A work-group's points. A work-item computes its groups one after the other, with stores between their loads."""
    warps, points = -(-s.threads // WARP), s.threads * s.vector * s.items
    width = least(LONGEST_ACCESS, s.vector * p.width) / p.width  # elements per access
    accesses = (p.read_bytes + p.written_bytes) / p.width * s.vector / width
    return Work(
        macs=points * p.operations / 2,
        cache_bytes=points * most(0, p.moved_bytes - p.written_bytes),
        steps=s.items * -(-p.trips // WRITTEN_OUT),
        out_bytes=points * p.written_bytes,
        instructions=warps * s.items * (s.vector * p.operations + 3 * accesses + 8),
        chains=s.vector,
        start_cycles=200,
    )


def focus(p: PointsProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    """Work-groups of some warps; accesses of 16 bytes, or narrower ones if there are few points.

    The model ignores the cost of narrower accesses. If memory is the limit, it cannot distinguish these values, so the
    best ones come first.
    """
    return {
        "threads": tuple(t for t in (256, 128, 64, 32) if t <= max(32, limits.threads)),
        "vector": tuple(v for v in (16, 8, 4, 2, 1) if v == 1 or v * p.width <= LONGEST_ACCESS),
    }


def default(p: LoopsProblem, limits: Limits) -> LoopsSchedule:
    """16-byte accesses if the innermost axis allows them and enough work-items remain."""
    threads = max(t for t in (32, 64, 128, 256) if t <= max(32, limits.threads))
    vector = max(1, 16 // p.width) if not limits.is_cpu else 1
    while vector > 1 and (p.inner % vector or p.size // vector < limits.units * 4 * limits.warp):
        vector //= 2
    items = 1
    while not limits.is_cpu and items < 4 and p.size // vector >= 2 * items * limits.units * IN_FLIGHT:
        items *= 2  # there are enough work-items for all units, so each does more accesses
    while -(-p.size // (threads * vector * items)) > MAX_GROUPS:
        items *= 2
    return LoopsSchedule(threads=threads, vector=vector, items=items)


FAMILY = Family(
    "loops",
    Loops,
    LoopsSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    registers=registers,
    work=work,
    focus=focus,
    emit=emit_loops,
    template="loops/kernel.j2",
    any_size=True,
)
