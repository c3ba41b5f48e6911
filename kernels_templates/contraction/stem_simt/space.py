"""The parameters of the contraction family's `stem_simt` engine: few channels, image and filters in shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least, most
from gpucomp.ir.types import F32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.stem import staging, stem_of, stem_sizes
from gpucomp.kernel.forms.stores import store_width
from gpucomp.kernel.forms.tail import no_tail
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernels_templates.contraction.stem_simt.emit import stem_simt_hooks
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import Family, Param, Schedule, Work, fastest, too_large

PARAMS = (
    Param("tile_y", (1, 2, 4, 8, 16), "rows of outputs per work-group"),
    Param("tile_x", (8, 16, 32, 64), "outputs of a row per work-group"),
    Param("tile_n", (4, 8, 16, 32, 64, 128), "columns of the result per work-group"),
    Param("reg_m", (1, 2, 4, 8), "outputs per work-item"),
    Param("reg_n", (4, 8, 16), "columns of the result per work-item"),
)
STATIC_SHARED = 48 << 10  # CUDA's limit for arrays whose size the source says
ALIGNMENT = 128  # of an array in shared memory, as ptxas lays them out
MOST_TAPS = 16  # of a side of the window
RESERVED = 44  # registers for addresses, predicates and counters


def accepts(kernel: Kernel, features: frozenset[str]) -> str:
    if reason := no_tail(kernel):
        return reason
    body = kernel.body_as(Contraction)
    if body.acc.dtype is not F32:
        return f"sums are of f32, not {body.acc.dtype}"
    found = stem_of(kernel)
    if isinstance(found, Refusal):
        return found.reason
    if max(found.pixels.window) > MOST_TAPS:
        return f"a window of {found.pixels.window}: at most {MOST_TAPS} taps along each side"
    return ""


def problem(kernel: Kernel) -> Mapping[str, int]:
    """See ``stem_sizes``; ``out_wide``: columns that a store may take at once."""
    found = required(stem_of(kernel))
    return {**stem_sizes(kernel, found), "out_wide": store_width(kernel)}


def derive(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, int]:
    """``depth``: channels of a pixel in shared memory; ``taps``: rows of the filters; ``threads_m``, ``threads_n``:
    work-items along the outputs and along the columns."""
    threads_m, threads_n = s.tile_y * s.tile_x // s.reg_m, s.tile_n // s.reg_n
    image = staging(s, p, max(1, threads_m * threads_n), p.taps_x, 1)
    tiles_n = -(-p.n // s.tile_n)
    return {
        "threads": threads_m * threads_n,
        "threads_m": threads_m,
        "threads_n": threads_n,
        "depth": next(d for d in (1, 2, 4, 8) if d >= p.channels),
        "taps": p.taps_y * p.taps_x * p.channels,
        **image,
        "tiles_n": tiles_n,
        "padded_n": tiles_n * s.tile_n,
        "tiles": tiles_n * image["tiles_x"] * image["tiles_y"] * p.images,
        "out_vector": min(4, p.out_wide),
    }


def shared_bytes(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """The image and the filters; one of them may start at the next multiple of ``ALIGNMENT``."""
    d = SimpleNamespace(**derive(s, p))
    image, filters = d.rows * d.columns * d.depth * 4, d.taps * s.tile_n * 4
    return int(-(-image // ALIGNMENT) * ALIGNMENT + filters)


def registers(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """Sums, a tap's pixels, a channel's filters, and the rest; or the groups of pixels that are read together."""
    d = SimpleNamespace(**derive(s, p))
    read = 2 * least(4, d.load_trips) * p.channels * p.group
    return most(s.reg_m * s.reg_n + s.reg_m * d.depth + s.reg_n, read) + RESERVED


def objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    if limits.is_cpu:
        yield "outputs are dealt to work-items side by side, the device runs one at a time"
    if s.tile_n % s.reg_n or s.tile_y * s.tile_x % s.reg_m:
        yield "reg_m, reg_n must divide tile_y * tile_x, tile_n"
        return
    d = SimpleNamespace(**derive(s, p))
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    shared = shared_bytes(s, p)
    if shared > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    if shared > STATIC_SHARED:
        yield f"{shared} B of shared memory in arrays of fixed size, compilers allow {STATIC_SHARED}"
    yield from too_large(limits, d.threads, registers(s, p), d.tiles)


def geometry(s: SimpleNamespace, p: SimpleNamespace) -> Geometry:
    d = SimpleNamespace(**derive(s, p))
    return Geometry((d.tiles, 1, 1), (d.threads, 1, 1))


NAMES = ("tile_y", "tile_x", "tile_n", "reg_m", "reg_n")
TILES = (  # from large to small
    (8, 16, 64, 8, 8),
    (8, 16, 32, 8, 4),
    (8, 16, 32, 4, 8),
    (8, 16, 32, 4, 4),
    (8, 8, 32, 4, 4),
    (8, 8, 64, 4, 8),
    (4, 8, 32, 4, 4),
    (4, 8, 16, 2, 4),
    (4, 8, 8, 1, 4),
    (1, 8, 4, 1, 4),
)
MULTIPLY_ADDS_PER_CYCLE = 128  # of one unit, about; one work-item makes one a cycle
SHARED_FLOATS_PER_CYCLE = 64  # neighbours read the same pixels
MEMORY_BYTES_PER_CYCLE = 28  # from the second-level cache, when all units ask
LATENCY_CYCLES = 1000  # of the image's way to shared memory, four trips' reads together
COPY_INSTRUCTIONS = 12  # of a warp's trip for the image: reads, halo tests, its way to shared memory
RESIDENT = 1024  # work-items that a unit runs at a time, about


def default(p: SimpleNamespace, limits: Limits) -> Schedule:
    """The tile that a model of one unit's cycles finds fastest."""
    return fastest([dict(zip(NAMES, tile, strict=True)) for tile in TILES], objections, cycles, p, limits)


def cycles(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> float:
    """Cycles of the busiest unit: its share of tiles, bound by arithmetic, shared memory or the caches; one tile's way."""
    d = SimpleNamespace(**derive(s, p))
    share = -(-d.tiles // limits.units)
    resident = min(share, max(1, RESIDENT // d.threads))
    sums = s.tile_y * s.tile_x * s.tile_n * d.taps / min(MULTIPLY_ADDS_PER_CYCLE, resident * d.threads)
    reads = d.threads * d.taps * (s.reg_m * d.depth / p.channels + s.reg_n) / SHARED_FLOATS_PER_CYCLE
    moved = _moved_bytes(s, p) / MEMORY_BYTES_PER_CYCLE
    alone = LATENCY_CYCLES * -(-d.load_trips // 4)
    return float(max(share * max(sums, reads, moved), -(-share // resident) * alone) + alone)


def image_bytes(d: SimpleNamespace, p: SimpleNamespace) -> Any:
    """Of the image, that a work-group reads."""
    return d.rows * d.groups_x * p.group * p.channels * p.image_bytes


def _moved_bytes(s: SimpleNamespace, p: SimpleNamespace) -> Any:
    """Of the image, the filters and the result of one work-group."""
    d = SimpleNamespace(**derive(s, p))
    return image_bytes(d, p) + d.taps * s.tile_n * 4 + s.tile_y * s.tile_x * s.tile_n * 4


def work(s: SimpleNamespace, p: SimpleNamespace) -> Work:
    d = SimpleNamespace(**derive(s, p))
    warps, out = -(-d.threads // 32), s.tile_y * s.tile_x * s.tile_n * 4  # lanes of a warp that is not full idle
    macs = s.tile_y * s.tile_x * s.tile_n * d.taps
    reads = d.threads * d.taps * (s.reg_m * d.depth / p.channels + s.reg_n)  # elements of shared memory
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


def packing(kernel: Kernel, s: SimpleNamespace, p: SimpleNamespace) -> Packing:
    """Filters [depth, column], columns filled up to whole tiles."""
    d = SimpleNamespace(**derive(s, p))
    return Packing("b", (Digit("k", 1, d.taps), Digit("span", 1, d.padded_n)))


FAMILY = Family(
    "contraction",
    PARAMS,
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
    emit=stem_simt_hooks,
    template="contraction/stem_simt/kernel.j2",
)
