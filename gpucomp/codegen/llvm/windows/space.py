"""The schedules of the CPU engines whose windows slide along rows of channels. No IR is written here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace

from gpucomp.codegen.llvm.core_space import LANES
from gpucomp.codegen.llvm.windows import emit as windows
from gpucomp.device.limits import Limits
from gpucomp.kernel import Kernel
from gpucomp.refusal import required
from gpucomp.schedule.space import Param, Problem, Schedule, too_wide

PARAMS = (
    LANES,
    Param(
        "tile_x", tuple(range(1, windows.WIDEST_TILE + 1)), "neighbouring outputs of a row that share what they read"
    ),
    Param("vectors", (1, 2, 3, 4), "vectors of channels of a tile"),
    Param("tasks", (1, 16, 64, 256), "parts wanted for the threads to share; rows of the result may be more"),
)


def problem(kernel: Kernel) -> Problem:
    found = required(windows.windows_of(kernel))
    return window_sizes(found)


def window_sizes(found: windows.Windows) -> Problem:
    s = found.sliding
    return {
        "lead": math.prod(a.extent for a in s.lead),
        "out_y": s.y.outputs,
        "out_x": s.x.outputs,
        "channels": s.channel.extent,
        "taps_y": s.y.taps,
        "taps_x": s.x.taps,
        "stride_x": s.x.stride,
        "dilation_x": s.x.dilation,
        "low_x": found.columns[0],
        "high_x": found.columns[1],
        "weighted": int(s.weight is not None),
    }


def edges(tile: int, p: SimpleNamespace) -> int:
    """Tiles that are written out with their place."""
    slide = windows.slide(p.out_x, p.taps_x, p.stride_x, p.dilation_x)
    return len(windows.edge_tiles(slide, (p.low_x, p.high_x), tile)[0])


def objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    yield from too_wide(s.lanes, 4, limits)
    if not s.lanes:
        yield "lanes run over channels: there must be some"
    if (written := edges(s.tile_x, p)) > windows.MOST_EDGE_TILES:
        yield f"{written} tiles at the image's edges would be written out, {windows.MOST_EDGE_TILES} are allowed"


def default(p: SimpleNamespace, limits: Limits) -> Schedule:
    """The tile with the fewest loads for a result that leaves registers to spare, and few tiles that are cut short."""
    lanes = limits.vector_bytes // 4
    best, best_cost = {"lanes": lanes, "tile_x": 1, "vectors": 1, "tasks": 64}, math.inf
    for tile in range(1, windows.WIDEST_TILE + 1):
        if tile > max(1, p.out_x) or (tile > 4 and p.out_x > 14):
            continue  # wide images come from memory: a tile touches fewer lines of them at a time
        if edges(tile, p) > windows.MOST_EDGE_TILES:
            continue
        for vectors in (1, 2, 3, 4):
            used = vectors * (tile + p.weighted * p.taps_x + 1) + 1
            if used > limits.registers and (tile, vectors) != (1, 1):
                continue
            if vectors > 1 and (p.channels // lanes) % vectors:
                continue
            tiles = -(-p.out_x // tile)
            columns = len({i * p.stride_x + tap * p.dilation_x for i in range(tile) for tap in range(p.taps_x)})
            loads = tiles * (columns + p.weighted * p.taps_x + 4 / vectors)
            cost = max(loads, tiles * tile * p.taps_x) + 0.3 * loads + 0.5 * edges(tile, p)
            if cost < best_cost:
                best, best_cost = best | {"tile_x": tile, "vectors": vectors}, cost
    if best_cost == math.inf:  # the narrowest tile has too many at the edges: the widest has the fewest
        best["tile_x"] = min(range(1, windows.WIDEST_TILE + 1), key=lambda tile: edges(tile, p))
    return best
