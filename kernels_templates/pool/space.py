"""Parameters of the pool family: a window of taps is reduced for each point of the domain."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import most
from gpucomp.expr.core import Select, walk
from gpucomp.ir.size import Size, hint
from gpucomp.kernel import Kernel, Window, kernel_of
from gpucomp.kernel.example import example_of
from gpucomp.kernel.sizes import tunable
from gpucomp.kernels_templates.loops.space import (
    LoopsSchedule,
    PointsProblem,
    derive,
    focus,
    geometry,
    groups,
    points_of,
)
from gpucomp.kernels_templates.pool.emit import emit_pool
from gpucomp.schedule.space import MAX_GROUPS, WARP, WRITTEN_OUT, Family, Work, too_many_registers, too_wide

MAX_UNROLLED = 128
OTHER_REGISTERS = 24  # addresses, indices


class PoolSchedule(LoopsSchedule):
    unroll: int = tunable((0, 1), "whether the window is unrolled")


class PoolProblem(PointsProblem):
    """Sizes of a domain, and of the window that is reduced for each of its points."""

    taps: int  # points of the window
    image: int  # elements of all inputs per point of the domain
    guarded: int  # 1: a tap may be outside the image
    any_window: int = 0  # 1: each run decides the window


def problem(kernel: Kernel[Window]) -> PoolProblem:
    points = points_of(kernel.body.domain)
    taps = math.prod(a.extent for a in kernel.body.window)
    kernel = kernel_of(example_of(kernel), Window)
    body = kernel.body
    size = math.prod(a.extent for a in body.domain)
    return PoolProblem(
        **points,
        taps=int(hint(taps)),
        width=max((p.dtype.nbytes for p in kernel.params), default=4),
        image=-(-sum(p.size for p in kernel.params[: kernel.inputs]) // max(1, size)),
        guarded=int(any(isinstance(e, Select) for e in walk(body.value))),
        **({"any_window": 1} if isinstance(taps, Size) else {}),
    )


def registers(s: PoolSchedule, p: PoolProblem) -> int:
    """Registers for the sums and two accesses; an unrolled window that may be outside the image needs one per tap.

    ptxas does not wait for one branch before it loads for the next (measured: bench/compile_spaces.py).
    """
    access = s.vector * p.width  # bytes
    at_once = p.taps if s.unroll and p.guarded else 2
    return -(-(most(access, 4 * s.vector) + at_once * access) // 4) + OTHER_REGISTERS


def objections(s: PoolSchedule, p: PoolProblem, limits: Limits) -> Iterator[str]:
    if s.threads > limits.threads:
        yield f"{s.threads} work-items per work-group, the device allows {limits.threads}"
    if p.inner % s.vector:
        yield f"vectors of {s.vector} do not divide the {p.inner} points of the innermost axis"
    if s.unroll and p.any_window:
        yield "a window that each run decides is a loop"
    if s.unroll and p.taps > MAX_UNROLLED:
        yield f"{p.taps} taps unrolled, the source would be too long to compile in seconds"
    if not limits.is_cpu:
        yield from too_many_registers(limits, s.threads, registers(s, p))
    if limits.is_cpu:  # loaded elements are widened to four bytes or more, all at once
        yield from too_wide(s.vector, max(4, p.width), limits)
    if groups(s, p) > MAX_GROUPS:
        yield f"{groups(s, p)} work-groups, a launch has at most {MAX_GROUPS}"


POINT_INSTRUCTIONS = 60  # per group of points: its index, its window, its store
ACCESS_INSTRUCTIONS = 5  # per access: the load, its address, the bounds test


def work(s: PoolSchedule, p: PoolProblem) -> Work:
    """A work-group's points. Neighbours along a row share their loads in the unit's own cache, rows do not."""
    warps = -(-s.threads // WARP)
    points = s.threads * s.vector * s.items
    return Work(
        macs=points * p.taps,
        cache_bytes=points * p.width * min(p.taps, math.sqrt(p.image * p.taps)),
        steps=s.items * (s.unroll + (1 - s.unroll) * -(-p.taps // WRITTEN_OUT)),
        out_bytes=points * p.width,
        shared_traffic=points * p.width * p.taps,  # the unit's own cache is in the same memory
        instructions=warps * s.items * (p.taps * (s.vector + ACCESS_INSTRUCTIONS) + POINT_INSTRUCTIONS + s.vector),
        chains=s.vector,
        start_cycles=200,
    )


def default(p: PoolProblem, limits: Limits) -> PoolSchedule:
    """16-byte accesses if the innermost axis allows them and enough work-items remain."""
    threads = max(t for t in (32, 64, 128, 256) if t <= max(32, limits.threads))
    vector = max(1, 16 // p.width) if not limits.is_cpu else 1
    while vector > 1 and (p.inner % vector or p.size // vector < limits.units * 4 * limits.warp):
        vector //= 2
    items = 1
    while -(-p.size // (threads * vector * items)) > MAX_GROUPS:
        items *= 2
    schedule = PoolSchedule(threads=threads, vector=vector, items=items, unroll=int(p.taps <= 16 and not p.any_window))
    fits = limits.is_cpu or registers(schedule, p) <= limits.registers_for(threads)
    return schedule if fits else schedule.replace(unroll=0)


FAMILY = Family(
    "pool",
    Window,
    PoolSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    registers=registers,
    work=work,
    focus=focus,
    emit=emit_pool,
    template="pool/kernel.j2",
    any_size=True,
)
