"""Parameters of the contraction family's ``stem_simt`` engine: few channels, image and filters in shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least, most
from gpucomp.ir.types import F32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.row_statistics import no_tail
from gpucomp.kernel.forms.stem import ImageTile, StagedImage, StemProblem, staging, stem_of, stem_sizes
from gpucomp.kernel.forms.stores import store_width
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.sizes import tunable
from gpucomp.kernels_templates.contraction.stem_simt.emit import emit_stem_simt
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import RESERVED, STATIC_SHARED, Family, Work, fastest, remembered, too_large


class StemSimtSchedule(ImageTile):
    tile_y: int = tunable((1, 2, 4, 8, 16), "rows of outputs per work-group")
    tile_x: int = tunable((8, 16, 32, 64), "outputs of a row per work-group")
    tile_n: int = tunable((4, 8, 16, 32, 64, 128), "columns of the result per work-group")
    reg_m: int = tunable((1, 2, 4, 8), "outputs per work-item")
    reg_n: int = tunable((4, 8, 16), "columns of the result per work-item")


class StemSimtProblem(StemProblem):
    out_wide: int  # most columns of one store


class StemSimtSizes(StagedImage):
    """What follows from a schedule and a problem, for the template."""

    threads: int
    threads_m: int  # work-items along the outputs
    threads_n: int  # work-items along the columns
    depth: int  # channels of a pixel in shared memory
    taps: int  # rows of the filters
    tiles_n: int
    padded_n: int  # columns, rounded up to whole tiles
    tiles: int
    out_vector: int  # columns per store


ARRAY_ALIGNMENT = 128  # of arrays in shared memory, as ptxas allocates them
MOST_TAPS = 16  # most taps along a side of the window


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    if reason := no_tail(kernel):
        return reason
    body = kernel.body
    if body.acc.dtype is not F32:
        return f"sums have to be f32, not {body.acc.dtype}"
    found = stem_of(kernel)
    if isinstance(found, Refusal):
        return found.reason
    if max(found.pixels.window) > MOST_TAPS:
        return f"a window of {found.pixels.window}: at most {MOST_TAPS} taps along each side"
    return ""


def problem(kernel: Kernel[Contraction]) -> StemSimtProblem:
    found = required(stem_of(kernel))
    return StemSimtProblem(**stem_sizes(kernel, found).numbers, out_wide=store_width(kernel))


@remembered
def derive(s: StemSimtSchedule, p: StemSimtProblem) -> StemSimtSizes:
    threads_m, threads_n = s.tile_y * s.tile_x // s.reg_m, s.tile_n // s.reg_n
    image = staging(s, p, max(1, threads_m * threads_n), p.taps_x, 1)
    tiles_n = -(-p.n // s.tile_n)
    return StemSimtSizes(
        threads=threads_m * threads_n,
        threads_m=threads_m,
        threads_n=threads_n,
        depth=next(d for d in (1, 2, 4, 8) if d >= p.channels),
        taps=p.taps_y * p.taps_x * p.channels,
        **image.numbers,
        tiles_n=tiles_n,
        padded_n=tiles_n * s.tile_n,
        tiles=tiles_n * image.tiles_x * image.tiles_y * p.images,
        out_vector=min(4, p.out_wide),
    )


def shared_bytes(s: StemSimtSchedule, p: StemSimtProblem) -> int:
    """The image and the filters; one of them may start at the next multiple of ``ARRAY_ALIGNMENT``."""
    d = derive(s, p)
    image, filters = d.rows * d.columns * d.depth * 4, d.taps * s.tile_n * 4
    return -(-image // ARRAY_ALIGNMENT) * ARRAY_ALIGNMENT + filters


def registers(s: StemSimtSchedule, p: StemSimtProblem) -> int:
    """Registers for sums, a tap's pixels, a channel's filters, and others, or for pixels that are read together."""
    d = derive(s, p)
    read = 2 * least(4, d.load_trips) * p.channels * p.group
    return most(s.reg_m * s.reg_n + s.reg_m * d.depth + s.reg_n, read) + RESERVED


def objections(s: StemSimtSchedule, p: StemSimtProblem, limits: Limits) -> Iterator[str]:
    if limits.is_cpu:
        yield "outputs are divided among adjacent work-items, the device runs one at a time"
    if s.tile_n % s.reg_n or s.tile_y * s.tile_x % s.reg_m:
        yield "reg_m, reg_n must divide tile_y * tile_x, tile_n"
        return
    d = derive(s, p)
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    shared = shared_bytes(s, p)
    if shared > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    if shared > STATIC_SHARED:
        yield f"{shared} B of shared memory in arrays of fixed size, compilers allow {STATIC_SHARED}"
    yield from too_large(limits, d.threads, registers(s, p), d.tiles)


def geometry(s: StemSimtSchedule, p: StemSimtProblem) -> Geometry:
    d = derive(s, p)
    return Geometry((d.tiles, 1, 1), (d.threads, 1, 1))


TILES = (  # from large to small
    StemSimtSchedule(tile_y=8, tile_x=16, tile_n=64, reg_m=8, reg_n=8),
    StemSimtSchedule(tile_y=8, tile_x=16, tile_n=32, reg_m=8, reg_n=4),
    StemSimtSchedule(tile_y=8, tile_x=16, tile_n=32, reg_m=4, reg_n=8),
    StemSimtSchedule(tile_y=8, tile_x=16, tile_n=32, reg_m=4, reg_n=4),
    StemSimtSchedule(tile_y=8, tile_x=8, tile_n=32, reg_m=4, reg_n=4),
    StemSimtSchedule(tile_y=8, tile_x=8, tile_n=64, reg_m=4, reg_n=8),
    StemSimtSchedule(tile_y=4, tile_x=8, tile_n=32, reg_m=4, reg_n=4),
    StemSimtSchedule(tile_y=4, tile_x=8, tile_n=16, reg_m=2, reg_n=4),
    StemSimtSchedule(tile_y=4, tile_x=8, tile_n=8, reg_m=1, reg_n=4),
    StemSimtSchedule(tile_y=1, tile_x=8, tile_n=4, reg_m=1, reg_n=4),
)
MULTIPLY_ADDS_PER_CYCLE = 128  # of one unit, about; one work-item does one per cycle
SHARED_FLOATS_PER_CYCLE = 64  # neighbouring work-items read the same pixels
MEMORY_BYTES_PER_CYCLE = 28  # per unit, from the second-level cache, if all units load
LATENCY_CYCLES = 1000  # to bring the image to shared memory, with the loads of four trips in flight
COPY_INSTRUCTIONS = 12  # per warp and trip for the image: loads, halo tests, stores to shared memory
RESIDENT = 1024  # about how many work-items a unit runs at a time


def default(p: StemSimtProblem, limits: Limits) -> StemSimtSchedule:
    """The tile that is fastest by a model of one unit's cycles."""
    return fastest(TILES, objections, cycles, p, limits)


def cycles(s: StemSimtSchedule, p: StemSimtProblem, limits: Limits) -> float:
    """Cycles of the busiest unit: its share of tiles, bound by arithmetic, shared memory or caches, and one latency."""
    d = derive(s, p)
    share = -(-d.tiles // limits.units)
    resident = min(share, max(1, RESIDENT // d.threads))
    sums = s.tile_y * s.tile_x * s.tile_n * d.taps / min(MULTIPLY_ADDS_PER_CYCLE, resident * d.threads)
    reads = d.threads * d.taps * (s.reg_m * d.depth / p.channels + s.reg_n) / SHARED_FLOATS_PER_CYCLE
    moved = _moved_bytes(s, p) / MEMORY_BYTES_PER_CYCLE
    alone = LATENCY_CYCLES * -(-d.load_trips // 4)
    return float(max(share * max(sums, reads, moved), -(-share // resident) * alone) + alone)


def image_bytes(d: StagedImage, p: StemProblem) -> int:
    """Bytes of the image that a work-group reads."""
    return d.rows * d.groups_x * p.group * p.channels * p.image_bytes


def _moved_bytes(s: StemSimtSchedule, p: StemSimtProblem) -> int:
    """Bytes of the image, the filters and the result of one work-group."""
    d = derive(s, p)
    return image_bytes(d, p) + d.taps * s.tile_n * 4 + s.tile_y * s.tile_x * s.tile_n * 4


def work(s: StemSimtSchedule, p: StemSimtProblem) -> Work:
    d = derive(s, p)
    warps, out = -(-d.threads // 32), s.tile_y * s.tile_x * s.tile_n * 4  # idle lanes of a partial warp count
    macs = s.tile_y * s.tile_x * s.tile_n * d.taps
    reads = d.threads * d.taps * (s.reg_m * d.depth / p.channels + s.reg_n)  # elements read from shared memory
    return Work(
        macs=macs * 32 * warps / d.threads,
        cache_bytes=_moved_bytes(s, p) - out,
        steps=1 + -(-d.load_trips // 4),
        out_bytes=out,
        shared_traffic=4 * reads,
        shared_bytes=shared_bytes(s, p),
        instructions=warps * (macs / d.threads + reads / d.threads / 4 + COPY_INSTRUCTIONS * d.load_trips),
        chains=s.reg_m * s.reg_n,
    )


def packing(kernel: Kernel, s: StemSimtSchedule, p: StemSimtProblem) -> Packing:
    """Filters [depth, column]; columns are padded to whole tiles."""
    d = derive(s, p)
    return Packing("b", (Digit("k", 1, d.taps), Digit("span", 1, d.padded_n)))


FAMILY = Family(
    "contraction",
    Contraction,
    StemSimtSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "stem_simt",
    accepts=accepts,
    work=work,
    packing=packing,
    registers=registers,
    emit=emit_stem_simt,
    template="contraction/stem_simt/kernel.j2",
)
