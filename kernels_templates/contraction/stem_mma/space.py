"""The parameters of the contraction family's `stem_mma` engine: few channels on matrix units, the image in shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from gpucomp.device.limits import Limits
from gpucomp.ir.types import I32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.operand import CHUNK_BYTES
from gpucomp.kernel.forms.row_statistics import no_tail
from gpucomp.kernel.forms.stem import (
    ImageTile,
    StagedImage,
    StemProblem,
    filled_depth,
    staging,
    stem_of,
    stem_sizes,
)
from gpucomp.kernel.forms.stores import store_width
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.sizes import tunable
from gpucomp.kernels_templates.contraction.mma import space as mma
from gpucomp.kernels_templates.contraction.stem_mma.emit import emit_stem_mma
from gpucomp.kernels_templates.contraction.stem_simt.space import COPY_INSTRUCTIONS, LATENCY_CYCLES, image_bytes
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import RESERVED_BESIDE_FRAGMENTS, WARP, Family, Work, fastest, remembered, too_large


class StemMmaSchedule(ImageTile):
    tile_y: int = tunable((1, 2, 4, 8, 16, 32), "rows of outputs per work-group")
    tile_x: int = tunable((8, 16, 32, 64), "outputs of a row per work-group")
    warp_n: int = tunable((8, 16, 32, 64, 128), "columns of the result per warp")
    warps_m: int = tunable((1, 2, 4, 8), "warps along the outputs; each has 16, 32 or 64")
    warps_n: int = tunable((1, 2, 4), "warps along the columns")


class StemMmaProblem(StemProblem):
    element_bytes: int  # of what is multiplied
    products: int  # of matrix units for one product: 3 for 3xtf32
    out_wide: int  # columns that a store may take at once


class StemMmaSizes(StagedImage):
    """What follows from a schedule and a problem, for the template."""

    threads: int
    tile_m: int  # outputs of a work-group
    tile_n: int
    warp_m: int  # outputs of a warp
    blocks_m: int  # of 16 outputs of a warp
    blocks_n: int  # of 8 columns of a warp
    depth: int  # channels of a pixel in shared memory
    pixel_bytes: int  # of these channels
    chunk_elements: int  # in 16 bytes of depth
    pairs: int  # of chunks in a row of the window
    chunks: int  # in all rows
    filled_x: int  # columns of the window, filled up to whole pairs
    rows_written: int  # rows of the window that are written out together
    image_bytes_shared: int
    tiles_n: int
    padded_n: int  # columns, filled up to whole tiles
    tiles: int
    out_vector: int  # columns that a store takes
    sum_columns: int  # of a row of a warp's sums in shared memory


MOST_TAPS = 16  # of a side of the window: larger ones are deep enough without
WRITTEN_STEPS = 16  # steps of the depth that are written out


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    if reason := no_tail(kernel):
        return reason
    if reason := mma.accepts(kernel, features):
        return reason
    body = kernel.body
    if body.acc.dtype is I32:
        return "bytes of few channels are left to other engines"
    found = stem_of(kernel)
    if isinstance(found, Refusal):
        return found.reason
    if max(found.pixels.window) > MOST_TAPS:
        return f"a window of {found.pixels.window}: at most {MOST_TAPS} taps along each side"
    return ""


def problem(kernel: Kernel[Contraction]) -> StemMmaProblem:
    body, found, types = kernel.body, required(stem_of(kernel)), mma.operand_types(kernel)
    nbytes = types[0].nbytes if types else 4
    return StemMmaProblem(
        **stem_sizes(kernel, found).numbers,
        element_bytes=nbytes,
        products=3 if body.math == "3xtf32" and nbytes == 4 else 1,
        out_wide=store_width(kernel),
    )


def depth_of(p: StemMmaProblem) -> int:
    """Channels that a pixel has in shared memory: as few as let every output's run begin at a multiple of 16 bytes."""
    least = 4 if p.channels <= 4 else 8
    return least if p.step_x * least * p.element_bytes % CHUNK_BYTES == 0 else 8


@remembered
def derive(s: StemMmaSchedule, p: StemMmaProblem) -> StemMmaSizes:
    depth = depth_of(p)
    chunk_elements = CHUNK_BYTES // p.element_bytes
    pairs = -(-p.taps_x * depth // (2 * chunk_elements))
    threads = WARP * s.warps_m * s.warps_n
    tile_m, tile_n = s.tile_y * s.tile_x, s.warp_n * s.warps_n
    taps_x = pairs * 2 * chunk_elements // depth
    image = staging(s, p, threads, taps_x, max(1, chunk_elements // depth))
    tiles_n = -(-p.n // tile_n)
    warp_m = tile_m // s.warps_m
    return StemMmaSizes(
        threads=threads,
        tile_m=tile_m,
        tile_n=tile_n,
        warp_m=warp_m,
        blocks_m=warp_m // 16,
        blocks_n=s.warp_n // 8,
        depth=depth,
        pixel_bytes=depth * p.element_bytes,
        chunk_elements=chunk_elements,
        pairs=pairs,
        chunks=p.taps_y * pairs * 2,
        filled_x=taps_x,
        rows_written=1 if p.products > 1 else max(1, min(p.taps_y, WRITTEN_STEPS // pairs)),
        **image.numbers,
        image_bytes_shared=image.rows * image.columns * depth * p.element_bytes,
        tiles_n=tiles_n,
        padded_n=tiles_n * tile_n,
        tiles=tiles_n * image.tiles_x * image.tiles_y * p.images,
        out_vector=min(p.out_wide, s.warp_n // 2),
        sum_columns=s.warp_n + mma.STAGE_PAD,
    )


def shared_bytes(s: StemMmaSchedule, p: StemMmaProblem) -> int:
    """The image and the filters; sixteen rows of sums of each warp lie there afterwards."""
    d = derive(s, p)
    image = d.rows * d.columns * d.pixel_bytes
    return max(image + d.chunks * d.tile_n * CHUNK_BYTES, s.warps_m * s.warps_n * 16 * d.sum_columns * 4)


def registers(s: StemMmaSchedule, p: StemMmaProblem) -> int:
    """Sums, the fragments of two steps, and the rest; or, before that, the groups of pixels that are read together.

    3xtf32 splits the fragments of ``b`` and one block of ``a``, adds up apart from the sums, and ptxas splits those of
    later steps of a row early.
    """
    d = derive(s, p)
    fragments = 2 * (4 * d.blocks_m + 2 * d.blocks_n)
    apart = 4 * d.blocks_n + 12 + fragments * min(d.pairs, 4) if p.products == 3 else 0
    read = min(4, d.load_trips) * p.channels * p.group * p.image_bytes // 4 + p.group * p.channels
    return max(4 * d.blocks_m * d.blocks_n + fragments + apart, read) + RESERVED_BESIDE_FRAGMENTS


def objections(s: StemMmaSchedule, p: StemMmaProblem, limits: Limits) -> Iterator[str]:
    if limits.warp != WARP:
        yield f"fragments are dealt to warps of {WARP}, the device's have {limits.warp}"
    if s.tile_y * s.tile_x // s.warps_m not in (16, 32, 64):
        yield f"{s.warps_m} warps do not share {s.tile_y * s.tile_x} outputs by 16, 32 or 64"
        return
    d = derive(s, p)
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if (shared := shared_bytes(s, p)) > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    yield from too_large(limits, d.threads, registers(s, p), d.tiles)


def geometry(s: StemMmaSchedule, p: StemMmaProblem) -> Geometry:
    d = derive(s, p)
    return Geometry((d.tiles, 1, 1), (d.threads, 1, 1), dynamic_shared_bytes=shared_bytes(s, p))


TILES = (  # from large to small
    StemMmaSchedule(tile_y=8, tile_x=16, warp_n=64, warps_m=4, warps_n=1),
    StemMmaSchedule(tile_y=8, tile_x=16, warp_n=32, warps_m=4, warps_n=1),
    StemMmaSchedule(tile_y=8, tile_x=16, warp_n=32, warps_m=4, warps_n=2),
    StemMmaSchedule(tile_y=8, tile_x=8, warp_n=64, warps_m=4, warps_n=1),
    StemMmaSchedule(tile_y=8, tile_x=8, warp_n=32, warps_m=4, warps_n=1),
    StemMmaSchedule(tile_y=8, tile_x=8, warp_n=32, warps_m=2, warps_n=2),
    StemMmaSchedule(tile_y=4, tile_x=16, warp_n=32, warps_m=4, warps_n=1),
    StemMmaSchedule(tile_y=4, tile_x=8, warp_n=32, warps_m=2, warps_n=1),
    StemMmaSchedule(tile_y=4, tile_x=8, warp_n=16, warps_m=2, warps_n=1),
    StemMmaSchedule(tile_y=2, tile_x=8, warp_n=16, warps_m=1, warps_n=1),
    StemMmaSchedule(tile_y=2, tile_x=8, warp_n=8, warps_m=1, warps_n=1),
)

STEP_CYCLES = 40  # from a step's fragments to its sums, in one warp


def default(p: StemMmaProblem, limits: Limits) -> StemMmaSchedule:
    """The tile that a model of one unit's cycles finds fastest."""
    return fastest(TILES, objections, cycles, p, limits)


def cycles(s: StemMmaSchedule, p: StemMmaProblem, limits: Limits) -> float:
    """Cycles of the busiest unit: its share of tiles, each bound by the caches or by matrix units; one tile's way."""
    d = derive(s, p)
    share = -(-d.tiles // limits.units)
    macs = d.tile_m * d.tile_n * d.chunks * d.chunk_elements * p.products
    multiply = macs / mma.MULTIPLY_ADDS_PER_CYCLE[p.element_bytes] * max(1.0, 4 / (share * s.warps_m * s.warps_n))
    moved = _moved_bytes(s, p) / mma.MEMORY_BYTES_PER_CYCLE
    alone = LATENCY_CYCLES * -(-d.load_trips // 4) + STEP_CYCLES * d.chunks / 2
    return float(share * max(multiply, moved) + alone)


def _moved_bytes(s: StemMmaSchedule, p: StemMmaProblem) -> int:
    """Of the image, the filters and the result of one work-group."""
    d = derive(s, p)
    return image_bytes(d, p) + d.chunks * d.tile_n * CHUNK_BYTES + d.tile_m * d.tile_n * p.element_bytes


def work(s: StemMmaSchedule, p: StemMmaProblem) -> Work:
    """A tile of outputs, over the depth as it is filled up."""
    d = derive(s, p)
    kinds = {2: "f16", 4: "3xtf32" if p.products == 3 else "tf32"}  # bf16 goes as fast as f16
    warps, products, out = s.warps_m * s.warps_n, d.blocks_m * d.blocks_n, d.tile_m * d.tile_n * p.element_bytes
    fragments = 4 * d.blocks_m + 2 * d.blocks_n
    step = products * p.products + fragments / 4 + (mma.SPLIT_INSTRUCTIONS * fragments if p.products == 3 else 0)
    return Work(
        macs=d.tile_m * d.tile_n * d.chunks * d.chunk_elements,
        cache_bytes=_moved_bytes(s, p) - out,
        steps=1 + -(-d.load_trips // 4),
        math=kinds[p.element_bytes],
        out_bytes=out,
        shared_traffic=warps * d.chunks * (d.warp_m + s.warp_n) * CHUNK_BYTES,
        shared_bytes=shared_bytes(s, p),
        instructions=warps
        * (d.chunks / 2 * step + products * 4 * mma.OUT_INSTRUCTIONS + COPY_INSTRUCTIONS * d.load_trips),
        chains=products,
        by_warp=True,
    )


def packing(kernel: Kernel, s: StemMmaSchedule, p: StemMmaProblem) -> Packing:
    """Filters as [16 bytes of depth, column, elements of them], window rows filled up as the image's are."""
    d = derive(s, p)
    digits = (
        Digit("k", d.chunk_elements, d.chunks),
        Digit("span", 1, d.padded_n),
        Digit("k", 1, d.chunk_elements),
    )
    return Packing("b", digits, filled=filled_depth(p, d.filled_x, d.depth))


FAMILY = Family(
    "contraction",
    Contraction,
    StemMmaSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "stem_mma",
    accepts=accepts,
    work=work,
    packing=packing,
    registers=registers,
    emit=emit_stem_mma,
    template="contraction/stem_mma/kernel.j2",
)
