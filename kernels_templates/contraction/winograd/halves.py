"""Text for stages whose work-items transform half a block each: no exchange of lines, and nothing waits for the transform.

A work-item has one channel of a block: columns 0 to 2 of its pixels, or 1 to 3. These are what columns 0 and 1 of B^T d B are
computed from, or 3 and 2. Its channels and then its blocks follow each other along work-items, so that they read runs of
channels. In shared memory channels are as long as there are blocks: the position of a block is combined, by exclusive or,
with its channel, so that a warp writes to all banks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpucomp.codegen.c.text import modulo, over, plus, times
from gpucomp.kernel.winograd_matrices import Algorithm

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.winograd.space import WinogradProblem, WinogradSchedule

BANKS = 32
COLUMNS = 3  # of pixels that half a block is computed from


def moved(channel: str, s: WinogradSchedule) -> str:
    """What the position of a block is combined with in ``channel``: channels that else shared banks lie in others."""
    return times(over(channel, max(1, BANKS // s.blocks)), BANKS // s.channels)


def places(s: WinogradSchedule) -> list[str]:
    """The half that a work-item reads and transforms, and its position in shared memory."""
    there = f"(v_block ^ {moved('v_channel', s)})"
    return [
        f"const int v_channel = id % {s.channels}, v_block = {modulo(over('id', s.channels), s.blocks)};",
        f"const int v_half = {over('id', s.channels * s.blocks)};",
        f"const int v_to = {plus(times('v_channel', s.blocks), there)};",
    ]


def pixel_at(p: WinogradProblem) -> str:
    """The distance of its pixel ``y`` from the first one."""
    return plus(times(f"y / {COLUMNS}", p.width * p.depth), times(f"y % {COLUMNS}", p.depth))


def row_of_half(acc_type: str, algorithm: Algorithm, pixel: Callable[[int], str], row: int, buffer: str) -> list[str]:
    """Writes row ``row`` of its half of B^T d B to ``buffer``; ``pixel`` is the text of a pixel.

    A row of F(2, 3)'s B^T adds or subtracts two elements.
    """
    side = len(algorithm.data)
    first, second = sorted((y for y in range(side) if algorithm.data[row][y]), key=lambda y: -algorithm.data[row][y])
    sign = "+" if algorithm.data[row][second] > 0 else "-"
    lines = [
        f"const {acc_type} l{x} = {pixel(COLUMNS * first + x)} {sign} {pixel(COLUMNS * second + x)};"
        for x in range(COLUMNS)
    ]
    outer, inner = f"{side * row} + {side - 1} * v_half", f"{side * row + 1} + v_half"
    return [
        *lines,
        f"tile_v{buffer}[{outer}][v_to] = v_half ? l2 - l0 : l0 - l2;",
        f"tile_v{buffer}[{inner}][v_to] = l1 + (v_half ? -l0 : l2);",
    ]


def written_at(row: int, s: WinogradSchedule, side: int) -> int:
    """The channel after whose products row ``row`` is written: late enough that the pixels are there, not among the last."""
    return (s.channels - side) // 2 + row
