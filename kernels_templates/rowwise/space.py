"""The parameters of the rowwise family: reductions, softmax and norms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from gpucomp.codegen.access import Rewriter, innermost
from gpucomp.kernel import Kernel, Rowwise
from gpucomp.schedule.space import Family, Geometry, Limits, Param, Schedule

PARAMS = (
    Param("lanes", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), "work-items that share a row"),
    Param("rows_per_group", (1, 2, 4, 8, 16, 32, 64, 128, 256), "rows per work-group"),
    Param("keep", (0, 1), "whether a row's elements stay in registers between the statistics"),
)
STATIC_SHARED = 48 << 10  # CUDA's limit for arrays whose size the source says
MAX_GROUPS = (1 << 31) - 1
MAX_KEPT = 32  # elements of a row that a work-item holds


def problem(kernel: Kernel) -> Mapping[str, int]:
    """``rows_side_by_side``: whether neighbouring rows, not neighbouring columns, are neighbours in memory."""
    body = kernel.body
    assert isinstance(body, Rowwise)
    rewrite = Rewriter(kernel.params, {})
    values = [rewrite(e) for e in [*(s.value for s in body.statistics), *(s.value for s in kernel.stores)]]
    by_column = any(innermost(values, a) for a in body.cols)
    return {
        "rows": math.prod(a.extent for a in body.rows),
        "cols": math.prod(a.extent for a in body.cols),
        "rows_side_by_side": int(not by_column and any(innermost(values, a) for a in body.rows)),
        "shared_per_item": sum(max(4, s.hole.dtype.nbytes) for s in body.statistics),
        "element_stores": len(kernel.stores) - len(body.row_stores),
    }


def objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    threads = s.lanes * s.rows_per_group
    if threads > limits.threads:
        yield f"{threads} work-items per work-group, the device allows {limits.threads}"
    shared = threads * p.shared_per_item if s.lanes > 1 else 0
    if shared > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    if limits.warp > 1 and shared > STATIC_SHARED:
        yield f"{shared} B of shared memory in one array, compilers allow {STATIC_SHARED}"
    if s.keep and -(-p.cols // s.lanes) > MAX_KEPT:
        yield f"{-(-p.cols // s.lanes)} elements of a row per work-item, {MAX_KEPT} can be kept"
    if -(-p.rows // s.rows_per_group) > MAX_GROUPS:
        yield f"more than {MAX_GROUPS} work-groups"


def derive(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, int]:
    return {"threads": s.lanes * s.rows_per_group, "steps": -(-p.cols // s.lanes), "last_row": max(0, p.rows - 1)}


def geometry(s: SimpleNamespace, p: SimpleNamespace) -> Geometry:
    return Geometry((-(-p.rows // s.rows_per_group), 1, 1), (s.lanes * s.rows_per_group, 1, 1))


def default(p: SimpleNamespace, limits: Limits) -> Schedule:
    """A warp a row for short rows, a work-group for long ones, a work-item for the shortest and on CPUs."""
    most = max(t for t in (32, 64, 128, 256) if t <= max(32, limits.threads))
    if limits.warp == 1:
        lanes, rows = 1, 16
    elif p.rows_side_by_side:
        rows = 32
        lanes = 1
        while lanes < most // rows and lanes * 8 <= p.cols:
            lanes *= 2
    elif p.cols <= 8:
        lanes, rows = 1, most // 2
    elif p.cols <= 1024:
        lanes, rows = 32, max(1, most // 64)
    else:
        lanes, rows = most, 1
    while lanes > 1 and lanes * rows * p.shared_per_item > limits.shared_bytes:
        lanes, rows = (lanes, rows // 2) if rows > 1 else (lanes // 2, rows)
    keep = int(limits.warp > 1 and -(-p.cols // lanes) <= MAX_KEPT)
    while -(-p.rows // rows) > MAX_GROUPS:
        rows *= 2
    return {"lanes": lanes, "rows_per_group": rows, "keep": keep}


FAMILY = Family("rowwise", "rowwise/kernel.j2", PARAMS, problem, objections, derive, geometry, default)
