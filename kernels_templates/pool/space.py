"""The parameters of the pool family: a window of taps reduced to each point of the domain."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import most
from gpucomp.expr.core import Select, walk
from gpucomp.kernel import Kernel, Window
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernels_templates.loops.space import focus
from gpucomp.kernels_templates.pool.emit import pool_hooks
from gpucomp.schedule.space import (
    MAX_GROUPS,
    WARP,
    WRITTEN_OUT,
    Family,
    Param,
    Schedule,
    Work,
    too_many_groups,
    too_many_registers,
    too_wide,
)

PARAMS = (
    Param("threads", (32, 64, 128, 256, 512, 1024), "work-items per work-group"),
    Param("vector", (1, 2, 4, 8, 16), "neighbouring points per access"),
    Param("items", (1, 2, 4, 8), "groups of points per work-item"),
    Param("unroll", (0, 1), "whether the window is written out tap by tap"),
)
MAX_UNROLLED = 128
OTHER_REGISTERS = 24  # addresses, indices


def problem(kernel: Kernel) -> Mapping[str, int]:
    """``size``: points of the domain; ``taps``: points of the window; ``width``: bytes of the widest element that moves;
    ``guarded``: whether a tap may lie outside; ``image``: elements of all that is read, a point of the domain."""
    body = kernel.body_as(Window)
    domain = body.domain
    return {
        "size": math.prod(a.extent for a in domain),
        "inner": domain[-1].extent if domain else 1,
        "taps": math.prod(a.extent for a in body.window),
        "width": max((p.dtype.nbytes for p in kernel.params), default=4),
        "image": -(-sum(p.size for p in kernel.params[: kernel.inputs]) // max(1, math.prod(a.extent for a in domain))),
        "guarded": int(any(isinstance(e, Select) for e in walk(body.value))),
    }


def registers(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """The sums and two accesses; of a window that is written out, all taps that may lie outside: ptxas does not wait to
    read behind one branch for what stands before it (measured: bench/compile_spaces.py)."""
    access = s.vector * p.width  # bytes
    at_once = p.taps if s.unroll and p.guarded else 2
    return -(-(most(access, 4 * s.vector) + at_once * access) // 4) + OTHER_REGISTERS


def objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    if s.threads > limits.threads:
        yield f"{s.threads} work-items per work-group, the device allows {limits.threads}"
    if p.inner % s.vector:
        yield f"vectors of {s.vector} do not divide the {p.inner} points of the innermost axis"
    if s.unroll and p.taps > MAX_UNROLLED:
        yield f"{p.taps} taps written out, the source would be too long for a compiler to end in seconds"
    if not limits.is_cpu:
        yield from too_many_registers(limits, s.threads, registers(s, p))
    if limits.is_cpu:  # what is loaded is computed with, all at once and in four bytes or more
        yield from too_wide(s.vector, max(4, p.width), limits)
    yield from too_many_groups(groups(s, p))


def groups(s: SimpleNamespace, p: SimpleNamespace) -> int:
    return -(-p.size // (s.threads * s.vector * s.items))


def derive(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, int]:
    return {"points": p.size // s.vector}


def geometry(s: SimpleNamespace, p: SimpleNamespace) -> Geometry:
    return Geometry((groups(s, p), 1, 1), (s.threads, 1, 1))


POINT_INSTRUCTIONS = 60  # of a group of points: which it is, its window, its store
ACCESS_INSTRUCTIONS = 5  # of an access: it, its address, whether it lies outside


def work(s: SimpleNamespace, p: SimpleNamespace) -> Work:
    """A work-group's points: neighbours along a row share what they read in the unit's own cache, rows do not."""
    warps = -(-s.threads // WARP)
    points = s.threads * s.vector * s.items
    return Work(
        macs=points * p.taps,
        cache_bytes=points * p.width * max(min(p.image, p.taps), math.sqrt(p.taps)),
        steps=s.items * (s.unroll + (1 - s.unroll) * -(-p.taps // WRITTEN_OUT)),
        out_bytes=points * p.width,
        shared_traffic=points * p.width * p.taps,  # the unit's own cache is of the same memory
        instructions=warps * s.items * (p.taps * (s.vector + ACCESS_INSTRUCTIONS) + POINT_INSTRUCTIONS + s.vector),
        chains=s.vector,
        start_cycles=200,
    )


def default(p: SimpleNamespace, limits: Limits) -> Schedule:
    """16-byte accesses where the innermost axis allows them and enough work-items remain."""
    threads = max(t for t in (32, 64, 128, 256) if t <= max(32, limits.threads))
    vector = max(1, 16 // p.width) if not limits.is_cpu else 1
    while vector > 1 and (p.inner % vector or p.size // vector < limits.units * 4 * limits.warp):
        vector //= 2
    items = 1
    while -(-p.size // (threads * vector * items)) > MAX_GROUPS:
        items *= 2
    schedule = {"threads": threads, "vector": vector, "items": items, "unroll": int(p.taps <= 16)}
    fits = limits.is_cpu or registers(SimpleNamespace(**schedule), p) <= limits.registers_for(threads)
    return schedule if fits else schedule | {"unroll": 0}


FAMILY = Family("pool", PARAMS, problem, objections, derive, geometry, default, registers=registers,
                work=work, focus=focus,
    emit=pool_hooks, template="pool/kernel.j2",
)  # fmt: skip
