"""The loops family's `transpose` engine: tiles turned in shared memory, so that reads and writes both run along memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least
from gpucomp.ir.size import hint
from gpucomp.kernel import Kernel, Loops
from gpucomp.kernel.forms.transpose import transposed_of
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.loops.transpose.emit import emit_transpose
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import MAX_GROUPS, SECTOR, WARP, Family, Work

SHORTEST = 8  # of a side that is worth a tile: below it, lines of memory are shared by neighbours anyway


class TransposeSchedule(Tunables):
    tile: int = tunable((8, 16, 32, 64), "elements of both sides of a tile")
    threads: int = tunable((32, 64, 128, 256, 512), "work-items per work-group")


class TransposeProblem(Sizes):
    """Extents of the axes that the source and the results run along, and of all others."""

    batch: int
    reading: int
    writing: int
    width: int  # bytes of an element of the source


class TransposeSizes(Sizes):
    tiles_reading: int
    tiles_writing: int
    tiles: int
    rows: int  # of a tile that a work-group moves at a time


def accepts(kernel: Kernel, features: frozenset[str]) -> str:
    found = transposed_of(kernel)
    if isinstance(found, Refusal):
        return found.reason
    if min(hint(found.reading.extent), hint(found.writing.extent)) < SHORTEST:
        return f"a side of less than {SHORTEST} elements fills no tile"
    return ""


def problem(kernel: Kernel) -> TransposeProblem:
    found = required(transposed_of(kernel))
    return TransposeProblem(
        batch=math.prod(v.extent for v in found.batch),
        reading=found.reading.extent,
        writing=found.writing.extent,
        width=kernel.params[found.source.source].dtype.nbytes,
    )


def derive(s: TransposeSchedule, p: TransposeProblem) -> TransposeSizes:
    tiles_reading, tiles_writing = -(-p.reading // s.tile), -(-p.writing // s.tile)
    return TransposeSizes(
        tiles_reading=tiles_reading,
        tiles_writing=tiles_writing,
        tiles=p.batch * tiles_reading * tiles_writing,
        rows=s.threads // s.tile,
    )


def objections(s: TransposeSchedule, p: TransposeProblem, limits: Limits) -> Iterator[str]:
    if s.threads > limits.threads:
        yield f"{s.threads} work-items per work-group, the device allows {limits.threads}"
    if not s.tile <= s.threads <= s.tile * s.tile:
        yield f"{s.threads} work-items do not divide a tile of {s.tile} by {s.tile} into rows"
        return
    shared = s.tile * (s.tile + 1) * (4 if p.width == 2 else p.width)  # f16 is four bytes to OpenCL
    if shared > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    if derive(s, p).tiles > MAX_GROUPS:
        yield f"more than {MAX_GROUPS} work-groups"


def geometry(s: TransposeSchedule, p: TransposeProblem) -> Geometry:
    return Geometry((derive(s, p).tiles, 1, 1), (s.threads, 1, 1))


INSTRUCTIONS = 16  # of an element: two accesses each of memory and of the tile, and where they are


def registers(s: TransposeSchedule, p: TransposeProblem) -> int:
    """What up to eight reads that are under way together bring, and addresses."""
    return 24 + least(8, -(-s.tile * s.tile // s.threads)) * -(-p.width // 4)


def work(s: TransposeSchedule, p: TransposeProblem) -> Work:
    """A tile: read along memory, turned, written along memory."""
    elements = s.tile * s.tile
    trips = -(-elements // s.threads)
    moved = elements * p.width * SECTOR / least(SECTOR, s.tile * p.width)
    return Work(
        macs=0,
        cache_bytes=moved,
        steps=-(-trips // 8),
        out_bytes=moved,
        shared_traffic=2 * elements * 4,
        shared_bytes=s.tile * (s.tile + 1) * p.width,
        instructions=-(-s.threads // WARP) * trips * INSTRUCTIONS,
        step_cycles=40,
        start_cycles=200,
    )


def default(p: TransposeProblem, limits: Limits) -> TransposeSchedule:
    """128 bytes along both axes; smaller tiles where a side is short, or where there would be too few tiles."""
    side = min(p.reading, p.writing)
    tile = 64 if p.width <= 2 and side >= 64 else 32
    while tile > 8 and (
        tile >= 2 * side or tile * (tile + 1) * max(4, p.width) > limits.shared_bytes or tile * 4 > limits.threads
    ):
        tile //= 2
    while tile > 16 and p.batch * -(-p.reading // tile) * -(-p.writing // tile) < limits.units:
        tile //= 2
    threads = max(t for t in TransposeSchedule.choices("threads") if t <= min(limits.threads, 256, tile * tile))
    return TransposeSchedule(tile=tile, threads=threads)


FAMILY = Family(
    "loops",
    Loops,
    TransposeSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "transpose",
    accepts,
    registers=registers,
    work=work,
    emit=emit_transpose,
    template="loops/transpose/kernel.j2",
    any_size=True,
)
