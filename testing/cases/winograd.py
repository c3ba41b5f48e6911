"""Kernels of tests/kernels_templates/test_winograd.py, each with what is special about it."""

from gpucomp.ir.types import F16
from gpucomp.kernels_templates.contraction.winograd.space import TILES
from testing.kernels import conv, into_part

SMALL = {
    "outputs": 2,
    "columns": 32,
    "blocks": 16,
    "channels": 4,
    "positions": 2,
    "reg_n": 4,
    "reg_b": 4,
    "stages": 1,
    "splits": 1,
}

FOUR = SMALL | {"outputs": 4, "positions": 6}

THREE = SMALL | {"columns": 16, "blocks": 8, "stages": 3}

FOR_SMALL = next(i for i, tile in enumerate(TILES) if tile.stages == 3 and tile.blocks == 16)

WIDE = FOUR | {"columns": 64, "blocks": 8}

ODD = conv((2, 9, 7, 12), 20, (3, 3), pad=1)

VALID = conv((1, 7, 10, 20), 35, (3, 3))

CASES = {
    "odd sizes, two images": (ODD, SMALL),
    "two stages": (ODD, SMALL | {"stages": 2}),
    "no padding, columns one by one, a tail of channels": (VALID, SMALL | {"channels": 8}),
    "splits, one with a shorter share": (VALID, SMALL | {"splits": 3}),
    "splits of two stages, one with nothing": (
        conv((1, 5, 4, 8), 34, (3, 3), pad=1),
        SMALL | {"splits": 3, "stages": 2},
    ),
    "into a part of a Concat": (
        into_part(conv((1, 8, 6, 28), 40, (3, 3), pad=1), 3, 4, 8),
        SMALL | {"channels": 8, "columns": 16, "positions": 1},
    ),
    "eight blocks by eight columns": (conv((1, 9, 11, 8), 72, (3, 3), pad=1), dict(TILES[1].numbers)),
    "one row of blocks per work-group": (
        conv((3, 3, 3, 4), 8, (3, 3), pad=1),
        SMALL | {"columns": 64, "blocks": 8, "positions": 1, "reg_b": 8},
    ),
    "one pixel": (conv((1, 1, 1, 4), 16, (3, 3), pad=1), SMALL),
    "whole tiles": (conv((1, 8, 8, 16), 32, (3, 3), pad=1), SMALL),
    "lines of F(2, 3), more of them than channels": (ODD, SMALL | {"positions": 4, "channels": 2, "reg_b": 2}),
    "halves": (ODD, THREE),
    "halves of eight channels, a tail of channels": (VALID, THREE | {"channels": 8, "positions": 1}),
    "halves, splits, one with a shorter share": (VALID, THREE | {"splits": 3}),
    "halves, splits, one with nothing": (conv((1, 5, 4, 8), 34, (3, 3), pad=1), THREE | {"splits": 3}),
    "halves of one stage": (conv((1, 3, 5, 4), 16, (3, 3), pad=1), THREE),
    "halves of sixteen blocks": (conv((1, 9, 11, 44), 37, (3, 3), pad=1), dict(TILES[FOR_SMALL].numbers)),
    "halves of 32 blocks": (conv((2, 7, 13, 12), 72, (3, 3), pad=1), dict(TILES[0].numbers)),
    "4: odd sizes, two images": (ODD, FOUR),
    "4: no padding, columns one by one": (conv((1, 7, 13, 20), 35, (3, 3)), FOUR | {"blocks": 8, "reg_b": 2}),
    "4: splits, one with a shorter share": (conv((1, 6, 11, 28), 35, (3, 3)), FOUR | {"channels": 2, "splits": 3}),
    "4: splits of four columns, one with nothing": (
        conv((1, 9, 5, 8), 36, (3, 3), pad=2),
        FOUR | {"splits": 3, "blocks": 8},
    ),
    "4: into a part of a Concat": (into_part(conv((1, 8, 6, 12), 40, (3, 3), pad=1), 3, 4, 8), WIDE),
    "4: more work-items than lines": (conv((3, 3, 7, 8), 72, (3, 3), pad=1), WIDE | {"reg_b": 2}),
    "4: whole tiles": (conv((1, 16, 16, 16), 32, (3, 3), pad=1), FOUR | {"channels": 2}),
    "one position, eight blocks by eight columns": (
        conv((1, 9, 11, 20), 40, (3, 3), pad=1),
        SMALL | {"blocks": 32, "channels": 8, "positions": 1, "reg_n": 8, "reg_b": 8},
    ),
    "f16: odd sizes, two images": (conv((2, 9, 7, 16), 20, (3, 3), pad=1, dtype=F16), SMALL),
    "f16: columns one by one, a tail of channels, two stages": (
        conv((1, 7, 10, 24), 35, (3, 3), dtype=F16),
        SMALL | {"columns": 16, "channels": 2, "splits": 3, "stages": 2},
    ),
    "f16: 4, more work-items than lines": (
        conv((3, 3, 7, 8), 72, (3, 3), pad=1, dtype=F16),
        FOUR | {"columns": 64, "blocks": 8, "reg_b": 2},
    ),
    "f16: 4, channels one by one": (conv((1, 9, 5, 40), 36, (3, 3), pad=2, dtype=F16), FOUR | {"channels": 2}),
}
