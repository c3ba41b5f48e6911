"""The parameters of the loops family: any algorithm, one group of points a work-item."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from gpucomp.expr.core import loads
from gpucomp.kernel import Kernel
from gpucomp.schedule.space import Family, Geometry, Limits, Param, Schedule

PARAMS = (
    Param("threads", (32, 64, 128, 256, 512, 1024), "work-items per work-group"),
    Param("vector", (1, 2, 4, 8, 16), "neighbouring points per access"),
    Param("items", (1, 2, 4, 8), "groups of points per work-item"),
)
IN_FLIGHT = 2048  # work-items that a unit runs at a time
MAX_GROUPS = (1 << 31) - 1


def problem(kernel: Kernel) -> Mapping[str, int]:
    """``size``: points of the domain; ``width``: bytes of the widest element of which neighbouring points take others."""
    domain = kernel.body.domain
    moving = {s.target for s in kernel.stores}
    moving |= {ld.source for s in kernel.stores for ld in loads(s.value) if domain and domain[-1] in ld.free}
    return {
        "size": math.prod(a.extent for a in domain),
        "inner": domain[-1].extent if domain else 1,
        "width": max((kernel.params[k].dtype.nbytes for k in moving), default=4),
    }


def objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    if s.threads > limits.threads:
        yield f"{s.threads} work-items per work-group, the device allows {limits.threads}"
    if p.inner % s.vector:
        yield f"vectors of {s.vector} do not divide the {p.inner} points of the innermost axis"
    if groups(s, p) > MAX_GROUPS:
        yield f"{groups(s, p)} work-groups, a launch has at most {MAX_GROUPS}"


def groups(s: SimpleNamespace, p: SimpleNamespace) -> int:
    return -(-p.size // (s.threads * s.vector * s.items))


def derive(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, int]:
    return {"points": p.size // s.vector}


def geometry(s: SimpleNamespace, p: SimpleNamespace) -> Geometry:
    return Geometry((groups(s, p), 1, 1), (s.threads, 1, 1))


def default(p: SimpleNamespace, limits: Limits) -> Schedule:
    """16-byte accesses where the innermost axis allows them and enough work-items remain."""
    threads = max(t for t in (32, 64, 128, 256) if t <= max(32, limits.threads))
    vector = max(1, 16 // p.width) if limits.warp > 1 else 1
    while vector > 1 and (p.inner % vector or p.size // vector < limits.units * 4 * limits.warp):
        vector //= 2
    items = 1
    while limits.warp > 1 and items < 4 and p.size // vector >= 2 * items * limits.units * IN_FLIGHT:
        items *= 2  # the units are full of work-items: more accesses each
    while -(-p.size // (threads * vector * items)) > MAX_GROUPS:
        items *= 2
    return {"threads": threads, "vector": vector, "items": items}


FAMILY = Family("loops", "loops/kernel.j2", PARAMS, problem, objections, derive, geometry, default)
