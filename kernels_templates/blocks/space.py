"""The parameters of the blocks family: linear maps of square blocks, as lines of outputs in registers alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import most
from gpucomp.kernel import Blocks, Kernel
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernels_templates.blocks.emit import blocks_hooks
from gpucomp.schedule.space import Family, Param, Schedule, Work, too_many_groups

PARAMS = (
    Param("threads", (32, 64, 128, 256), "work-items per work-group"),
    Param("vector", (1, 2, 4, 8), "neighbouring blocks per work-item, and so the width of an access"),
    Param("lines", (1, 2, 3, 4, 6), "lines of a block's outputs per work-item"),
)
ACCESS_BYTES = 16
ADDRESSES = 8  # registers of a work-item's number, where its block lies, and what may be read of it


def problem(kernel: Kernel) -> Mapping[str, int]:
    """``points``: blocks; ``run``: those that are neighbours in memory. ``width``: bytes of the widest element.

    inputs, outputs  along an axis of a block
    rows             inputs' rows of which a line of outputs is made, at most
    taps             rows of which all lines are made, together
    """
    body = kernel.body_as(Blocks)
    used = [sum(x != 0 for x in row) for row in body.matrix]
    moving = [kernel.params[k].dtype.nbytes for k in {t.target for t in kernel.stores} | {0}]
    return {
        "points": math.prod(a.extent for a in body.blocks),
        "run": body.blocks[-1].extent if body.blocks else 1,
        "inputs": len(body.matrix[0]),
        "outputs": len(body.matrix),
        "rows": max(used),
        "taps": sum(used),
        "width": max(moving),
    }


def registers(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """Of a work-item: sums of all columns but one with that one's inputs and what they share, or all sums with an output
    and what outputs share; one vector that all outputs read."""
    columns = s.lines * (p.inputs - 1) + p.rows + 2
    outputs = s.lines * p.inputs + 4
    return s.vector * (most(columns, outputs) + 1) + ADDRESSES


def objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    if s.threads > limits.threads:
        yield f"{s.threads} work-items per work-group, the device allows {limits.threads}"
    if p.outputs % s.lines:
        yield f"lines={s.lines} does not divide the {p.outputs} lines of a block's outputs"
    if p.run % s.vector:
        yield f"vectors of {s.vector} do not divide {p.run} neighbouring blocks"
    if s.vector * p.width > ACCESS_BYTES:
        yield f"an access of {s.vector * p.width} bytes, devices like {ACCESS_BYTES}"
    if s.vector > 1 and (used := registers(s, p)) > limits.registers:
        yield f"about {used} registers per work-item, the device has {limits.registers}"
    yield from too_many_groups(geometry(s, p).groups[0])


def derive(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, int]:
    return {}


def geometry(s: SimpleNamespace, p: SimpleNamespace) -> Geometry:
    return Geometry((-(-p.points // (s.threads * s.vector)), p.outputs // s.lines, 1), (s.threads, 1, 1))


def default(p: SimpleNamespace, limits: Limits) -> Schedule:
    """Accesses of 16 bytes where blocks are neighbours and registers allow it, then as many lines as these allow."""
    best: Schedule | None = None
    for vector in (4, 2, 1):
        for lines in (4, 3, 2, 1):
            schedule = {"threads": min(64, limits.threads), "vector": vector, "lines": lines}
            s = SimpleNamespace(**schedule)
            if registers(s, p) <= limits.registers and not list(objections(s, p, limits)):
                return schedule
            best = schedule
    assert best is not None
    return best


def work(s: SimpleNamespace, p: SimpleNamespace) -> Work:
    """A work-group's lines: each input row that a line needs is read for it; an output is stored once."""
    items = s.threads * s.vector
    parts = p.outputs // s.lines
    read = items * p.inputs * p.taps * p.width / p.outputs * s.lines
    macs = items * (p.inputs * p.taps + p.outputs * p.taps) / parts
    stored = items * s.lines * p.outputs * p.width
    return Work(
        macs=macs,
        cache_bytes=read,
        out_bytes=stored,
        shared_traffic=read + stored,
        instructions=(2 * macs + (read + stored) / p.width) / 32,
        chains=s.lines * s.vector,
    )


FAMILY = Family("blocks", PARAMS, problem, objections, derive, geometry, default, work=work,
                registers=registers,
    emit=blocks_hooks, template="blocks/kernel.j2",
)  # fmt: skip
