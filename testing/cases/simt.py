"""Kernels of tests/kernels_templates/test_simt.py, each with what is special about it."""

from gpucomp.ir.types import F16, F64, I32
from gpucomp.kernels_templates.contraction.simt.space import PLAIN
from testing.kernels import conv, grouped_conv, into_part, matmul

TILE = {**PLAIN, "tile_m": 16, "tile_n": 32, "tile_k": 8, "reg_m": 4, "reg_n": 4}

LATE = TILE | {"asynchronous": 1, "stages": 3}

PADDED = conv((2, 6, 5, 8), 12, (3, 3), pad=1)

FEATURES = {
    "two stages of copies": (matmul(19, 37, 45), LATE | {"stages": 2}),
    "three stages": (matmul(19, 36, 44), LATE),
    "six stages": (matmul(33, 36, 100), LATE | {"stages": 6}),
    "more stages than tiles": (matmul(9, 20, 7), LATE | {"stages": 5}),
    "copies of a padded window": (PADDED, LATE | {"stages": 4}),
    "copies of an NCHW window": (conv((2, 7, 6, 5), 6, (3, 3), pad=1, nchw=True), LATE),
    "copies of a stem": (conv((1, 11, 13, 3), 8, (5, 3), stride=2, pad=2), LATE),
    "copies of groups": (grouped_conv((2, 7, 5, 12), 3, 6, (3, 2), pad=1), LATE),
    "copies across": (matmul(20, 24, 40, a_transposed=True), LATE),
    "copies of both along the depth": (matmul(21, 18, 40, b_transposed=True), LATE),
    "copies of a batch": (matmul(7, 12, 20, batch=(3, 2)), LATE),
    "copies of f64": (matmul(9, 14, 26, dtype=F64, acc=F64), LATE | {"reg_n": 2}),
    "copies of i32": (matmul(17, 24, 16, dtype=I32, acc=I32), LATE),
    "no depth": (matmul(5, 6, 0), TILE | {"stages": 2, "slices": 2}),
    "copies and split-K": (matmul(13, 22, 90), LATE | {"splits": 3}),
    "copies and split-K with a tail that has nothing": (matmul(5, 7, 13), LATE | {"splits": 4}),
    "split-K of a single work-item": (matmul(5, 9, 29), TILE | {"tile_m": 4, "tile_n": 4, "splits": 3}),
    "copies into a part": (into_part(matmul(19, 22, 33), 1, 5, 3), LATE),
    "fragments ahead": (matmul(19, 37, 45), TILE | {"fragments": 2}),
    "fragments ahead of copies": (matmul(19, 36, 44), LATE | {"fragments": 2}),
    "fragments ahead of a single step": (matmul(9, 36, 20), TILE | {"fragments": 2, "slices": 4, "tile_k": 4}),
    "two slices": (matmul(19, 37, 45), TILE | {"slices": 2}),
    "four slices of two stages": (matmul(19, 36, 61), TILE | {"slices": 4, "stages": 2}),
    "four slices of copies": (PADDED, LATE | {"slices": 4, "fragments": 2}),
    "slices and splits": (matmul(13, 22, 90), TILE | {"slices": 2, "splits": 3}),
    "slices, splits and copies": (matmul(13, 22, 90), LATE | {"slices": 4, "splits": 2}),
    "slices of rows": (PADDED, LATE | {"slices": 2, "fragments": 2, "splits": 2}),
    "slices of f16": (matmul(17, 24, 40, dtype=F16), TILE | {"slices": 2, "stages": 2}),
    "rows apart": (matmul(70, 70, 24), TILE | {"tile_m": 64, "tile_n": 64, "reg_m": 8, "reg_n": 8}),
    "lanes in quads": (matmul(70, 131, 24), LATE | {"tile_m": 64, "tile_n": 128, "reg_m": 8, "reg_n": 8}),
    "quads of runs of two": (matmul(35, 40, 24), TILE | {"tile_m": 16, "tile_n": 32, "reg_m": 2, "reg_n": 2}),
    "tiles past 48 KiB": (
        matmul(140, 136, 70),
        LATE | {"tile_m": 128, "tile_n": 128, "tile_k": 32, "reg_m": 8, "reg_n": 8},
    ),
}
