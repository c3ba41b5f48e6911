"""The parameters of tile transforms: linear maps of square tiles, as lines of outputs in registers alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import most
from gpucomp.kernel import Kernel, TileTransform
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.tile_transform.emit import emit_tile_transform
from gpucomp.schedule.space import MAX_GROUPS, Family, Work

ACCESS_BYTES = 16
ADDRESSES = 8  # registers of a work-item's number, where its block lies, and what may be read of it


class TileTransformSchedule(Tunables):
    threads: int = tunable((32, 64, 128, 256), "work-items per work-group")
    vector: int = tunable((1, 2, 4, 8), "neighbouring blocks per work-item, and so the width of an access")
    lines: int = tunable((1, 2, 3, 4, 6), "lines of a block's outputs per work-item")


class TileTransformProblem(Sizes):
    """Sizes of a linear map of square blocks."""

    points: int  # blocks
    run: int  # blocks that are neighbours in memory
    inputs: int  # along an axis of a block
    outputs: int  # along an axis of a block
    rows: int  # of inputs that one line of outputs is made of, at most
    taps: int  # rows of inputs, summed over all lines of outputs
    width: int  # bytes of the widest element


class TileTransformSizes(Sizes):
    """Nothing: the template reads the schedule alone."""


def problem(kernel: Kernel[TileTransform]) -> TileTransformProblem:
    body = kernel.body
    used = [sum(x != 0 for x in row) for row in body.matrix]
    moving = [kernel.params[k].dtype.nbytes for k in {t.target for t in kernel.stores} | {0}]
    return TileTransformProblem(
        points=math.prod(a.extent for a in body.blocks),
        run=body.blocks[-1].extent if body.blocks else 1,
        inputs=len(body.matrix[0]),
        outputs=len(body.matrix),
        rows=max(used),
        taps=sum(used),
        width=max(moving),
    )


def registers(s: TileTransformSchedule, p: TileTransformProblem) -> int:
    """Of a work-item, by vectors: the more that its two stages hold, and one that all outputs read.

    First the sums of all columns but one, that column's inputs, and what these share. Then all sums, one output, and what
    outputs share.
    """
    columns = s.lines * (p.inputs - 1) + p.rows + 2
    outputs = s.lines * p.inputs + 4
    return s.vector * (most(columns, outputs) + 1) + ADDRESSES


def objections(s: TileTransformSchedule, p: TileTransformProblem, limits: Limits) -> Iterator[str]:
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
    if geometry(s, p).groups[0] > MAX_GROUPS:
        yield f"{geometry(s, p).groups[0]} work-groups, a launch has at most {MAX_GROUPS}"


def derive(s: TileTransformSchedule, p: TileTransformProblem) -> TileTransformSizes:
    return TileTransformSizes()


def geometry(s: TileTransformSchedule, p: TileTransformProblem) -> Geometry:
    return Geometry((-(-p.points // (s.threads * s.vector)), p.outputs // s.lines, 1), (s.threads, 1, 1))


def default(p: TileTransformProblem, limits: Limits) -> TileTransformSchedule:
    """Accesses of 16 bytes where blocks are neighbours and registers allow it, then as many lines as these allow."""
    threads = min(64, limits.threads)
    for vector in (4, 2, 1):
        for lines in (4, 3, 2, 1):
            s = TileTransformSchedule(threads=threads, vector=vector, lines=lines)
            if registers(s, p) <= limits.registers and not list(objections(s, p, limits)):
                return s
    return TileTransformSchedule(threads=threads, vector=1, lines=1)


def work(s: TileTransformSchedule, p: TileTransformProblem) -> Work:
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


FAMILY = Family(
    "tile_transform",
    TileTransform,
    TileTransformSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    work=work,
    registers=registers,
    emit=emit_tile_transform,
    template="tile_transform/kernel.j2",
)
