"""What the two engines of depthwise separable convolutions have in common: tiles of pixels, parts of the depth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least, most
from gpucomp.kernel import Kernel, Separable
from gpucomp.kernel.forms.separable import separable_of
from gpucomp.kernel.forms.stem import ImageTile
from gpucomp.kernel.forms.stores import store_width
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Sizes, tunable
from gpucomp.kernels_templates.depthwise import space as depthwise
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import MOST_REGISTERS

VECTORS = (2, 4, 8)
PART_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)

TILE_Y = tunable((1, 2, 4, 8, 16), "rows of outputs per work-group")
TILE_X = tunable((4, 8, 16, 32), "outputs of a row per work-group")
VECTOR = tunable(VECTORS, "neighbouring channels of the depthwise result per work-item")
REG_Y = tunable((1, 2), "rows of the depthwise result per work-item")
REG_X = tunable((1, 2, 4), "columns of the depthwise result per work-item")
PARTS = tunable(PART_COUNTS, "parts of the depth that a work-group has in shared memory in turn")
SPLITS = tunable((1, 2, 3, 4, 6, 8, 12, 16), "work-groups that share the depth of a tile")


class SeparableSchedule(ImageTile):
    """Base of both engines' schedules, which name these parameters among their own."""

    vector: int
    reg_y: int
    reg_x: int
    parts: int
    splits: int


class SeparableProblem(depthwise.DepthwiseProblem):
    """Sizes of the depthwise part, then of the pointwise one."""

    images: int
    n: int  # columns of the result
    out_wide: int  # columns that a store may take at once
    element_bytes: int  # of what is multiplied


class SeparableSizes(Sizes):
    """How the tiles of pixels and the depth are shared out."""

    threads: int
    tile_m: int  # outputs of a work-group
    tile_n: int
    part_k: int  # depth that is in shared memory at a time
    all_parts: int  # of the depth
    parts_per_split: int  # of a work-group
    padded_k: int  # depth of the filters, filled up to whole parts
    vectors: int  # of a pixel in a part
    all_vectors: int  # of a pixel
    spots: int  # runs of outputs of a tile that one work-item computes at a time
    window_runs: int  # of vectors and spots
    trips: int  # of a work-item for a part
    tiles_y: int
    tiles_x: int
    tiles_n: int
    tiles: int
    spots_y: int  # runs of outputs along the image's sides, whole tiles
    spots_x: int
    padded_n: int  # columns, filled up to whole tiles
    window: depthwise.DepthwiseSizes  # of one work-item
    window_schedule: depthwise.DepthwiseSchedule


S = TypeVar("S", bound=SeparableSchedule)

FLAG_BYTES = 128  # static: who is the last to arrive, up to where dynamic shared memory may begin
ROW_PAD = 16  # bytes behind a row of the depthwise result: eight rows that are read together meet in no bank
MAX_BYTES = (1 << 31) - 1
MOST_TAPS = 7  # of a side of the window: a row of a larger one is too much of a register file
COPY_INSTRUCTIONS = 4  # of 16 bytes of the filters on their way
PLACES = 20  # registers for where a part of the depth comes from, and where the tile's pixels go
PLENTY = 60  # more of them that ptxas takes while there are some: of 3 x 3 windows on five architectures, 54 at most
TOGETHER = 4  # splits whose sums ptxas reads together


def accepts(kernel: Kernel[Separable]) -> str:
    found = separable_of(kernel)
    if isinstance(found, Refusal):
        return found.reason
    sizes = depthwise.sizes_of(*found)
    if max(sizes.taps_y, sizes.taps_x) > MOST_TAPS:
        return f"a window of {sizes.taps_y} x {sizes.taps_x}: at most {MOST_TAPS} taps along each side"
    if sizes.widest < VECTORS[0]:
        return f"{sizes.channels} channels are no whole accesses"
    return ""


def problem(kernel: Kernel[Separable], element_bytes: int) -> SeparableProblem:
    sizes = depthwise.sizes_of(*required(separable_of(kernel)))
    return SeparableProblem(
        **sizes.numbers,
        images=max(1, sizes.lead),
        n=math.prod(v.extent for v in kernel.body.n),
        out_wide=store_width(kernel),
        element_bytes=element_bytes,
    )


def window_schedule(s: SeparableSchedule) -> depthwise.DepthwiseSchedule:
    """The schedule of the depthwise family that a work-item follows."""
    return depthwise.DepthwiseSchedule(threads=1, vector=s.vector, tile_y=s.reg_y, tile_x=s.reg_x, unroll=1)


def sizes(s: SeparableSchedule, p: SeparableProblem, threads: int, tile_n: int, step: int) -> SeparableSizes:
    """What both engines share: a part of the depth is a multiple of ``step``."""
    share = -(-p.channels // (s.splits * s.parts))
    part_k = -(-share // step) * step
    all_parts = -(-p.channels // part_k)
    tiles_y, tiles_x, tiles_n = -(-p.out_y // s.tile_y), -(-p.out_x // s.tile_x), -(-p.n // tile_n)
    vectors, spots = part_k // s.vector, (s.tile_y // s.reg_y) * (s.tile_x // s.reg_x)
    own = window_schedule(s)
    return SeparableSizes(
        threads=threads,
        tile_m=s.tile_y * s.tile_x,
        tile_n=tile_n,
        part_k=part_k,
        all_parts=all_parts,
        parts_per_split=-(-all_parts // s.splits),
        padded_k=all_parts * part_k,
        vectors=vectors,
        all_vectors=p.channels // s.vector,
        spots=spots,
        window_runs=vectors * spots,
        trips=-(-vectors * spots // threads),
        tiles_y=tiles_y,
        tiles_x=tiles_x,
        tiles_n=tiles_n,
        tiles=tiles_n * tiles_x * tiles_y * p.images,
        spots_y=tiles_y * s.tile_y // s.reg_y,
        spots_x=tiles_x * s.tile_x // s.reg_x,
        padded_n=tiles_n * tile_n,
        window=depthwise.window(own, p),
        window_schedule=own,
    )


def objections(s: SeparableSchedule, p: SeparableProblem) -> Iterator[str]:
    """What is wrong with how pixels and channels are dealt out; nothing else can be said of such a schedule."""
    if s.tile_y % s.reg_y or s.tile_x % s.reg_x:
        yield "reg_y, reg_x must divide tile_y, tile_x"
    elif p.widest % s.vector:
        yield f"vectors of {s.vector}: an access takes {p.widest} channels"
    elif s.reg_y * s.reg_x * p.taps_x * p.taps_y > depthwise.MAX_WRITTEN:
        yield f"more than {depthwise.MAX_WRITTEN} multiply-adds written out"


def split_objections(s: SeparableSchedule, d: SeparableSizes) -> Iterator[str]:
    if s.splits > 1 and (s.splits - 1) * d.parts_per_split >= d.all_parts:
        yield f"{d.all_parts} parts of the depth leave some of {s.splits} work-groups with none"
    if (s.splits > 1) * d.tiles * s.splits * d.tile_m * d.tile_n * 4 > MAX_BYTES:
        yield "the partial sums of split-K need more than 2 GiB"


def geometry(s: SeparableSchedule, d: SeparableSizes, dynamic_shared_bytes: int) -> Geometry:
    split = s.splits > 1
    return Geometry(
        (d.tiles, s.splits, 1),
        (d.threads, 1, 1),
        dynamic_shared_bytes=dynamic_shared_bytes,
        workspace_bytes=split * d.tiles * s.splits * d.tile_m * d.tile_n * 4,
        counter_bytes=split * 4 * d.tiles,
    )


def window_registers(s: SeparableSchedule, p: SeparableProblem) -> int:
    return depthwise.registers_ahead(window_schedule(s), p) + PLACES


def taken(s: SeparableSchedule, p: SeparableProblem, keeps: int) -> int:
    """At most what ptxas takes, while there are some, of a work-item that ``keeps`` so many registers: it reads all of a
    window ahead."""
    ahead = depthwise.registers_taken(window_schedule(s), p) - depthwise.registers_ahead(window_schedule(s), p)
    return least(MOST_REGISTERS, keeps + most(PLENTY, ahead))


def window_instructions(s: SeparableSchedule, p: SeparableProblem, d: SeparableSizes) -> float:
    """Of all warps of a work-group: the windows and the filters of all its parts."""
    warps = -(-d.threads // 32)
    filters = d.part_k * d.tile_n * p.element_bytes / 16 / 32 * COPY_INSTRUCTIONS
    return d.parts_per_split * (warps * d.trips * depthwise.instructions(window_schedule(s), p) + filters)


def moved_bytes(s: SeparableSchedule, p: SeparableProblem, d: SeparableSizes) -> float:
    """Of the image, the window's weights and the filters, that a work-group takes from the cache: its own cache keeps what
    windows that overlap share."""
    rows = (s.tile_y - 1) * p.stride_y + (p.taps_y - 1) * p.dilation_y + 1
    columns = (s.tile_x - 1) * p.stride_x + (p.taps_x - 1) * p.dilation_x + 1
    of_channel = rows * columns * p.element_bytes + 4 * p.weighted * p.taps_y * p.taps_x
    return d.parts_per_split * d.part_k * (of_channel + d.tile_n * p.element_bytes)


def worthwhile(p: SeparableProblem, limits: Limits) -> dict[str, tuple[int, ...]]:
    """Values that a ranking looks at: tiles no larger than the image, splits where tiles are few."""
    pixels = p.images * p.out_y * p.out_x
    few = pixels * p.n < 64 * 64 * 2 * limits.units
    return {
        "tile_y": tuple(t for t in (1, 2, 4, 8) if t < 2 * p.out_y),
        "tile_x": tuple(t for t in (4, 8, 16) if t < 2 * p.out_x) or (4,),
        "vector": tuple(v for v in VECTORS if v <= p.widest)[-1:],
        "reg_y": (1,),
        "reg_x": (1, 2, 4),
        "parts": (1, 2, 4),
        "splits": tuple(n for n in (1, 2, 4, 8) if n == 1 or (few and p.channels >= 32 * n)),
    }


def first_that_fits(
    tiles: Sequence[S], smallest: S, fits: Callable[[S], bool], tiles_of: Callable[[S], int], limits: Limits
) -> S:
    """The first of ``tiles`` that leaves no unit idle, in as few parts as fit; ``smallest`` if none of them fits."""
    found = smallest
    for tile in tiles:
        schedules = (tile.replace(parts=parts) for parts in PART_COUNTS)
        fitting = next((s for s in schedules if fits(s)), None)
        if fitting is None:
            continue
        found = fitting
        if tiles_of(found) >= limits.units:
            return found
    return found
