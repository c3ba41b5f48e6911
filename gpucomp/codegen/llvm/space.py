"""The schedules of the CPU families: parameters, what cannot run, and defaults. No IR is written here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace

from gpucomp.codegen.llvm import (
    attention_few_space,
    attention_space,
    chain_space,
    contraction_space,
    dots_space,
    tiles_space,
    windows,
    winograd_space,
)
from gpucomp.codegen.llvm.contraction_space import LANES, geometry, nothing, too_wide
from gpucomp.kernel import Attention, Chain, Contraction, Kernel, Loops, Rowwise, Scan, Scatter, Window
from gpucomp.schedule.space import Family, Limits, Param, Problem, Schedule

TASKS = Param("tasks", (1, 16, 64, 256), "parts wanted for the threads to share, where the work is worth it")
UNROLL = Param("unroll", (0, 16, 64), "points of a reduction that are written out instead of looped")
COPIES = Param("copies", (1, 2, 4), "accumulators of one statistic, which hide the latency of its operation")


def _lanes(limits: Limits) -> int:
    return limits.vector_bytes // 4


def _loops_problem(kernel: Kernel) -> Problem:
    axes = kernel.body.domain
    return {"points": math.prod(a.extent for a in axes)}


def _plain_objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    yield from too_wide(s, limits)


def _loops_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64, "unroll": 16}


def _scatter_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64}


def _rowwise_problem(kernel: Kernel) -> Problem:
    body = kernel.body
    assert isinstance(body, Rowwise)
    return {"rows": math.prod(a.extent for a in body.rows), "cols": math.prod(a.extent for a in body.cols)}


def _rowwise_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64, "unroll": 16, "copies": 4}


LOOPS = Family("loops", "codegen/llvm/loops", (LANES, TASKS, UNROLL), _loops_problem, _plain_objections, nothing,
               geometry, _loops_default)  # fmt: skip
WINDOW = Family("pool", "codegen/llvm/loops", (LANES, TASKS, UNROLL), _loops_problem, _plain_objections, nothing,
                geometry, _loops_default)  # fmt: skip
SCAN = Family("scan", "codegen/llvm/scan", (LANES, TASKS, UNROLL), _loops_problem, _plain_objections, nothing,
              geometry, _loops_default)  # fmt: skip
SCATTER = Family("scatter", "codegen/llvm/scatter", (LANES, TASKS), _loops_problem, _plain_objections, nothing,
                 geometry, _scatter_default)  # fmt: skip
ROWWISE = Family("rowwise", "codegen/llvm/rowwise", (LANES, TASKS, UNROLL, COPIES), _rowwise_problem,
                 _plain_objections, nothing, geometry, _rowwise_default)  # fmt: skip


# windows

WINDOWS_PARAMS = (
    LANES,
    Param("tile_x", tuple(range(1, windows.WIDEST_TILE + 1)), "neighbouring outputs of a row that share what they read"),
    Param("vectors", (1, 2, 3, 4), "vectors of channels of a tile"),
    Param("tasks", (1, 16, 64, 256), "parts wanted for the threads to share; rows of the result may be more"),
)


def _windows_problem(kernel: Kernel) -> Problem:
    found = windows.windows_of(kernel)
    assert isinstance(found, windows.Windows)
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


def _windows_edges(tile: int, p: SimpleNamespace) -> int:
    """Tiles that are written out with their place."""
    slide = windows.slide(p.out_x, p.taps_x, p.stride_x, p.dilation_x)
    return len(windows.edge_tiles(slide, (p.low_x, p.high_x), tile)[0])


def _windows_objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    yield from too_wide(s, limits)
    if not s.lanes:
        yield "lanes run over channels: there must be some"
    if (edges := _windows_edges(s.tile_x, p)) > windows.MOST_EDGE_TILES:
        yield f"{edges} tiles at the image's edges would be written out, {windows.MOST_EDGE_TILES} are allowed"


def _windows_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    """The tile with the fewest loads for a result that leaves registers to spare, and few tiles that are cut short."""
    lanes = _lanes(limits)
    best, best_cost = {"lanes": lanes, "tile_x": 1, "vectors": 1, "tasks": 64}, math.inf
    for tile in range(1, windows.WIDEST_TILE + 1):
        if tile > max(1, p.out_x) or (tile > 4 and p.out_x > 14):
            continue  # wide images come from memory: a tile touches fewer lines of them at a time
        if _windows_edges(tile, p) > windows.MOST_EDGE_TILES:
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
            cost = max(loads, tiles * tile * p.taps_x) + 0.3 * loads + 0.5 * _windows_edges(tile, p)
            if cost < best_cost:
                best, best_cost = best | {"tile_x": tile, "vectors": vectors}, cost
    if best_cost == math.inf:  # the narrowest tile has too many at the edges: the widest has the fewest
        best["tile_x"] = min(range(1, windows.WIDEST_TILE + 1), key=lambda tile: _windows_edges(tile, p))
    return best


WINDOWS_OF_LOOPS = Family("loops", "codegen/llvm/windows", WINDOWS_PARAMS, _windows_problem, _windows_objections, nothing,
                          geometry, _windows_default, engine="windows", accepts=windows.accepts)  # fmt: skip
WINDOWS_OF_POOL = Family("pool", "codegen/llvm/windows", WINDOWS_PARAMS, _windows_problem, _windows_objections, nothing,
                         geometry, _windows_default, engine="windows", accepts=windows.accepts)  # fmt: skip


# engines of each kind of body, the one to prefer first; the last accepts every kernel of its kind
ENGINES: dict[type, tuple[Family, ...]] = {
    Loops: (WINDOWS_OF_LOOPS, LOOPS),
    Contraction: (tiles_space.FAMILY, dots_space.FAMILY, winograd_space.FAMILY, contraction_space.FAMILY),
    Rowwise: (ROWWISE,),
    Scan: (SCAN,),
    Scatter: (SCATTER,),
    Window: (WINDOWS_OF_POOL, WINDOW),
    Attention: (attention_few_space.FAMILY, attention_space.FAMILY),
    Chain: (chain_space.FAMILY,),
}


def engines_of(kernel: Kernel, features: frozenset[str] = frozenset()) -> tuple[Family, ...]:
    """The engines that can compute ``kernel`` on a processor with ``features``, the one to prefer first."""
    return tuple(family for family in ENGINES[type(kernel.body)] if not family.accepts(kernel, features))


def family_of(kernel: Kernel) -> Family:
    """The engine that computes ``kernel`` on every processor."""
    return ENGINES[type(kernel.body)][-1]
