"""Kernels of tests/kernels_templates/test_depthwise.py, each with what is special about it."""

from gpucomp.ir.types import BF16, F16
from testing.kernels import depthwise, into_part

BASE = {"threads": 32, "vector": 1, "tile_y": 1, "tile_x": 1, "unroll": 1}

# kernel, schedule: what the template can do, each with a halo or a tail
FEATURES = {
    "3x3": (depthwise((1, 7, 9, 8), (3, 3), pad=1), BASE | {"vector": 4, "tile_x": 4}),
    "3x3, rows too": (depthwise((2, 7, 9, 8), (3, 3), pad=1), BASE | {"vector": 4, "tile_x": 4, "tile_y": 2}),
    "3x3, four rows": (depthwise((1, 10, 5, 4), (3, 3), pad=1), BASE | {"vector": 2, "tile_x": 2, "tile_y": 4}),
    "3x3 stride 2": (depthwise((1, 11, 13, 6), (3, 3), stride=(2, 2), pad=1), BASE | {"vector": 2, "tile_x": 4}),
    "3x3 stride 2, rows too": (
        depthwise((2, 11, 12, 4), (3, 3), stride=(2, 2), pad=1),
        BASE | {"vector": 4, "tile_x": 2, "tile_y": 2},
    ),
    "no padding": (depthwise((1, 8, 11, 4), (3, 3)), BASE | {"vector": 4, "tile_x": 4, "tile_y": 4}),
    "dilated": (depthwise((1, 11, 9, 4), (3, 3), dilation=(2, 2), pad=2), BASE | {"vector": 4}),
    "dilated, tiles": (
        depthwise((1, 11, 9, 4), (3, 3), dilation=(2, 3), pad=2),
        BASE | {"vector": 2, "tile_x": 4, "tile_y": 4},
    ),
    "dilated with a stride": (
        depthwise((1, 13, 14, 3), (3, 2), stride=(3, 2), dilation=(2, 4), pad=2),
        BASE | {"tile_x": 7, "tile_y": 2},
    ),
    "stride beyond the window": (depthwise((1, 13, 11, 5), (2, 2), stride=(3, 4)), BASE | {"tile_x": 2, "tile_y": 2}),
    "5x5": (depthwise((1, 6, 8, 8), (5, 5), pad=2), BASE | {"vector": 4, "tile_x": 2}),
    "rows not written out": (depthwise((1, 6, 8, 8), (5, 5), pad=2), BASE | {"vector": 4, "tile_x": 2, "unroll": 0}),
    "a row": (depthwise((2, 1, 19, 4), (1, 5), pad=0), BASE | {"vector": 4, "tile_x": 8}),
    "a column": (depthwise((1, 19, 4, 3), (5, 1)), BASE | {"tile_x": 2}),
    "one row of outputs": (depthwise((1, 3, 9, 4), (3, 3)), BASE | {"vector": 4, "tile_x": 2}),
    "one pixel, padded": (depthwise((1, 1, 1, 7), (3, 3), pad=1), BASE),
    "f16": (depthwise((1, 6, 7, 16), (3, 3), pad=1, dtype=F16), BASE | {"vector": 8, "tile_x": 4}),
    "bf16": (depthwise((1, 6, 7, 12), (3, 3), pad=1, dtype=BF16), BASE | {"vector": 4, "tile_x": 2, "tile_y": 2}),
    "into a part": (into_part(depthwise((1, 6, 7, 8), (3, 3), pad=1), 3, 4, 8), BASE | {"vector": 4, "tile_x": 2}),
    "odd channels": (depthwise((1, 5, 6, 7), (3, 3), pad=1), BASE | {"tile_x": 2, "tile_y": 2}),
}

MODELS = {
    "first": depthwise((1, 112, 112, 32), (3, 3), pad=1),
    "stride 2": depthwise((1, 56, 56, 144), (3, 3), stride=(2, 2), pad=1),
    "5x5": depthwise((1, 28, 28, 240), (5, 5), pad=2),
    "5x5 stride 2": depthwise((1, 14, 14, 672), (5, 5), stride=(2, 2), pad=2),
    "last": depthwise((1, 7, 7, 960), (3, 3), pad=1),
    "half": depthwise((1, 56, 56, 144), (3, 3), pad=1, dtype=F16),
    "13x13": depthwise((1, 28, 28, 32), (13, 13), pad=6),
    "odd": depthwise((1, 23, 29, 58), (3, 3), pad=1),
}
