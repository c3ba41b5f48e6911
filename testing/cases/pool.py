"""Kernels of tests/kernels_templates/test_pool.py, each with what is special about it."""

from gpucomp.ir.types import F16, I32, U8
from testing.kernels import average_pool, into_part, max_pool

BASE = {"threads": 32, "vector": 1, "tile_y": 1, "tile_x": 1, "unroll": 1}

FEATURES = {
    "max 3x3 stride 2": (max_pool((2, 9, 11, 8), 3, 2, 1), BASE | {"vector": 4, "tile_x": 4}),
    "max 3x3 stride 2, rows too": (max_pool((2, 10, 11, 8), 3, 2, 1), BASE | {"vector": 4, "tile_x": 2, "tile_y": 4}),
    "max 3x3 stride 1": (max_pool((1, 6, 9, 4), 3, 1, 1), BASE | {"vector": 2, "tile_x": 4, "tile_y": 2}),
    "max 2x2": (max_pool((1, 8, 6, 5), 2, 2, 0), BASE | {"tile_x": 2}),
    "max 5x5, a loop": (max_pool((1, 9, 8, 4), 5, 1, 2), BASE | {"vector": 4, "tile_x": 2, "unroll": 0}),
    "max of f16": (max_pool((1, 7, 6, 16), 3, 2, 1, dtype=F16), BASE | {"vector": 8, "tile_x": 2}),
    "max of u8": (max_pool((1, 7, 6, 8), 2, 1, 0, dtype=U8), BASE | {"vector": 8, "tile_x": 2}),
    "max of i32": (max_pool((1, 7, 6, 8), 2, 2, 0, dtype=I32), BASE | {"vector": 4}),
    "windows apart": (max_pool((1, 11, 11, 4), 2, 4, 0), BASE | {"vector": 4, "tile_x": 2, "tile_y": 2}),
    "average, padding not counted": (
        average_pool((1, 7, 9, 8), (3, 3), 1, 1),
        BASE | {"vector": 4, "tile_x": 4, "tile_y": 2},
    ),
    "average of f16": (average_pool((2, 6, 6, 8), (2, 2), 2, 0, dtype=F16), BASE | {"vector": 8, "tile_x": 2}),
    "average of a row": (average_pool((1, 1, 15, 4), (1, 3), 2, 0), BASE | {"vector": 4, "tile_x": 4}),
    "into a part": (into_part(max_pool((1, 7, 6, 8), 3, 1, 1), 3, 8, 4), BASE | {"vector": 4, "tile_x": 2}),
}
