"""Schedules of the CPU engines with windows that slide along rows of channels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from gpucomp.codegen.llvm.core_space import VectorSchedule
from gpucomp.codegen.llvm.windows import emit as windows
from gpucomp.device.limits import Limits
from gpucomp.kernel import Kernel
from gpucomp.kernel.sizes import Sizes, tunable
from gpucomp.refusal import required
from gpucomp.schedule.space import too_wide

TILES = tuple(range(1, windows.WIDEST_TILE + 1))
# of a tile: instructions, of which more only take longer to compile. A maximum that keeps NaN is four
MOST_WRITTEN, OF_PRODUCT, OF_OTHER = 1024, 1, 4


class WindowSchedule(VectorSchedule):
    tile_x: int = tunable(TILES, "neighbouring outputs of a row that share their loads")
    vectors: int = tunable((1, 2, 3, 4), "vectors of channels of a tile")
    tasks: int = tunable((1, 16, 64, 256), "tasks wanted for the threads; rows of the result may make more")


class WindowProblem(Sizes):
    lead: int  # points of the axes before the image's rows
    out_y: int
    out_x: int
    channels: int
    taps_y: int
    taps_x: int
    stride_x: int
    dilation_x: int
    low_x: int  # the first column of the image that may be read
    high_x: int  # one past the last column that may be read
    weighted: int  # 1: taps have weights


def problem(kernel: Kernel) -> WindowProblem:
    found = required(windows.windows_of(kernel))
    return window_sizes(found)


def window_sizes(found: windows.Windows) -> WindowProblem:
    s = found.sliding
    return WindowProblem(
        lead=math.prod(a.extent for a in s.lead),
        out_y=s.y.outputs,
        out_x=s.x.outputs,
        channels=s.channel.extent,
        taps_y=s.y.taps,
        taps_x=s.x.taps,
        stride_x=s.x.stride,
        dilation_x=s.x.dilation,
        low_x=found.columns[0],
        high_x=found.columns[1],
        weighted=int(s.weight is not None),
    )


def edges(tile: int, p: WindowProblem) -> int:
    """Tiles of a row that are unrolled at a fixed place, because their taps may be outside the image."""
    slide = windows.slide(p.out_x, p.taps_x, p.stride_x, p.dilation_x)
    return len(windows.edge_tiles(slide, (p.low_x, p.high_x), tile)[0])


def objections(s: WindowSchedule, p: WindowProblem, limits: Limits) -> Iterator[str]:
    yield from too_wide(s.lanes, 4, limits)
    if not s.lanes:
        yield "lanes run over channels, and there are none"
    if (written := edges(s.tile_x, p)) > windows.MOST_EDGE_TILES:
        yield f"{written} tiles at the image's edges would be unrolled, {windows.MOST_EDGE_TILES} are allowed"


def default(p: WindowProblem, limits: Limits) -> WindowSchedule:
    """The tile with the fewest loads per result that leaves registers free. Few tiles should be cut short, and none be long."""
    lanes = limits.vector_bytes // 4
    least = WindowSchedule(lanes=lanes, tile_x=1, vectors=1, tasks=64)
    tiles = [tile for tile in TILES if tile <= max(1, p.out_x) and edges(tile, p) <= windows.MOST_EDGE_TILES]
    if p.out_x > 14:  # wide images come from memory, and small tiles touch fewer cache lines at a time
        tiles = [tile for tile in tiles if tile <= 4]

    def fits(s: WindowSchedule) -> bool:
        used = s.vectors * (s.tile_x + p.weighted * p.taps_x + 1) + 1
        written = s.vectors * s.tile_x * p.taps_y * p.taps_x * (OF_PRODUCT if p.weighted else OF_OTHER)
        if written > MOST_WRITTEN:
            return False
        return used <= limits.registers and (s.vectors == 1 or (p.channels // lanes) % s.vectors == 0)

    def cost(s: WindowSchedule) -> float:
        count = -(-p.out_x // s.tile_x)
        columns = len({i * p.stride_x + tap * p.dilation_x for i in range(s.tile_x) for tap in range(p.taps_x)})
        loads = count * (columns + p.weighted * p.taps_x + 4 / s.vectors)
        return max(loads, count * s.tile_x * p.taps_x) + 0.3 * loads + 0.5 * edges(s.tile_x, p)

    pairs = itertools.product(tiles, WindowSchedule.choices("vectors"))
    candidates = [least.replace(tile_x=tile, vectors=vectors) for tile, vectors in pairs]
    if runnable := [s for s in candidates if fits(s) or s == least]:
        return min(runnable, key=cost)
    # narrow tiles have too many at the edges, so the width with the fewest is taken
    return least.replace(tile_x=min(TILES, key=lambda tile: edges(tile, p)))
