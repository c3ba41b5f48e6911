"""Schedules of windows over bytes: the parameters of other windows, with a different default."""

from __future__ import annotations

from gpucomp.codegen.llvm.windows import bytes_emit as byte_windows
from gpucomp.codegen.llvm.windows import emit as windows
from gpucomp.codegen.llvm.windows.space import WindowProblem, WindowSchedule, edges, window_sizes
from gpucomp.device.limits import Limits
from gpucomp.kernel import Kernel
from gpucomp.refusal import required


def problem(kernel: Kernel) -> WindowProblem:
    found = required(byte_windows.byte_windows_of(kernel))
    return window_sizes(found.windows)


COLUMN, OUTPUT = 4.0, 9.0  # instructions to assemble a column's word, and per output


def default(p: WindowProblem, limits: Limits) -> WindowSchedule:
    """The tile that takes the fewest instructions, if each tile assembles its columns once."""
    lanes = limits.vector_bytes // 4
    words = -(-p.taps_y // 4)

    def cost(tile: int) -> float:
        whole, rest = divmod(p.out_x, tile)
        total = 0.0
        for width, count in ((tile, whole), (rest, 1)):
            columns = len({i * p.stride_x + tap * p.dilation_x for i in range(width) for tap in range(p.taps_x)})
            total += count * (columns * words * COLUMN + width * (p.taps_x * words + OUTPUT)) if width else 0.0
        return total * (1 + 0.01 * edges(tile, p))

    tiles = [t for t in range(1, windows.WIDEST_TILE + 1) if edges(t, p) <= windows.MOST_EDGE_TILES]
    return WindowSchedule(lanes=lanes, tile_x=min(tiles, key=cost), vectors=4, tasks=64)
