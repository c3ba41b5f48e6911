"""Kernels of tests/kernels_templates/test_stem.py, each with what is special about it."""

from dataclasses import replace

from gpucomp.ir.types import BF16, F16, U8
from gpucomp.targets import cuda
from testing.kernels import into_part, matmul, stem

SM_80, SM_75 = cuda.manifest("sm_80"), cuda.manifest("sm_75")

SMALL = {"tile_y": 2, "tile_x": 8, "warp_n": 8, "warps_m": 1, "warps_n": 1}


def scaled(kernel):
    """The image doubled on its way."""
    return replace(kernel, body=replace(kernel.body, a=kernel.body.a * 2.0))


def tile(**changes):
    return SMALL | changes


# what the engine can do: derived sizes that prove it, kernel, schedule, target
MMA_CASES = {
    "7 x 7 by 2": ({"group": 4, "shift": 1, "depth": 4, "pairs": 2},
                   stem((1, 19, 20, 3), 20, (7, 7), stride=2, pad=3, dtype=F16), tile(warps_m=1, warp_n=16), SM_80),
    "3 x 3 by 2, odd width": ({"group": 1, "pairs": 1},
                              stem((2, 9, 13, 3), 17, (3, 3), stride=2, pad=1, dtype=F16), tile(tile_y=4, warps_m=2), SM_80),
    "3 x 3 by 1": ({"depth": 8, "pairs": 2}, stem((1, 7, 12, 3), 24, (3, 3), pad=1, dtype=F16),
                   tile(tile_x=16, warps_m=2, warps_n=2), SM_80),
    "no padding": ({"first_x": 0, "shift": 0}, stem((1, 11, 18, 3), 9, (3, 5), stride=2, dtype=F16), tile(), SM_80),
    "one channel": ({"channels": 1, "depth": 8}, stem((1, 10, 8, 1), 6, (5, 5), dtype=F16), tile(), SM_80),
    "two channels": ({"channels": 2, "depth": 4}, stem((3, 6, 8, 2), 8, (4, 2), stride=2, pad=1, dtype=F16), tile(), SM_80),
    "five channels": ({"channels": 5, "depth": 8}, stem((1, 7, 12, 5), 16, (3, 3), pad=2, dtype=F16), tile(), SM_80),
    "channels last": ({"planar": 0, "group": 4}, stem((1, 9, 12, 3), 16, (3, 3), stride=2, pad=1, dtype=F16, planar=False),
                      tile(), SM_80),
    "channels last in f16": ({"planar": 0, "group": 8, "shift": 6},
                             stem((1, 5, 16, 3), 16, (5, 5), stride=2, pad=2, dtype=F16, planar=False, source=F16),
                             tile(), SM_80),
    "bytes": ({"image_bytes": 1, "group": 8}, stem((1, 5, 16, 3), 8, (3, 3), stride=2, pad=1, dtype=F16, source=U8),
              tile(), SM_80),
    "patches": ({"taps_x": 4, "shift": 0}, stem((2, 16, 12, 3), 24, (4, 4), stride=4, dtype=F16),
                tile(tile_y=8, warps_m=2), SM_80),
    "bf16": ({"element_bytes": 2}, stem((1, 9, 16, 3), 40, (3, 3), stride=2, pad=1, dtype=BF16),
             tile(tile_y=4, warp_n=32, warps_m=2, warps_n=1), SM_80),
    "tf32": ({"products": 1, "depth": 4}, stem((1, 9, 16, 3), 12, (3, 3), stride=2, pad=1, math="tf32"), tile(), SM_80),
    "3xtf32": ({"products": 3, "depth": 8}, stem((1, 9, 16, 6), 12, (3, 3), stride=1, pad=1, math="3xtf32"),
               tile(tile_y=8, warps_m=2), SM_80),
    "without async copies": ({"tiles_n": 2}, stem((1, 9, 16, 3), 12, (3, 3), stride=2, pad=1, dtype=F16), tile(), SM_75),
    "into a part of a Concat": ({"out_wide": 8}, into_part(stem((1, 8, 8, 3), 16, (3, 3), stride=2, pad=1, dtype=F16), 3, 8, 16),
                                tile(warp_n=16), SM_80),
    "one row of outputs": ({"out_y": 1}, stem((1, 3, 24, 3), 8, (3, 3), stride=2, dtype=F16), tile(tile_y=1, tile_x=16), SM_80),
    "four blocks a warp": ({"blocks_m": 4, "blocks_n": 8}, stem((1, 17, 32, 3), 70, (7, 7), stride=2, pad=3, dtype=F16),
                           {"tile_y": 8, "tile_x": 16, "warp_n": 64, "warps_m": 2, "warps_n": 1}, SM_80),
}  # fmt: skip

SIMT_SMALL = {"tile_y": 2, "tile_x": 8, "tile_n": 8, "reg_m": 2, "reg_n": 4}

SIMT_CASES = {
    "7 x 7 by 2": (
        {"group": 4, "shift": 1, "depth": 4},
        stem((1, 19, 20, 3), 20, (7, 7), stride=2, pad=3),
        SIMT_SMALL | {"tile_n": 32, "reg_n": 8},
    ),
    "3 x 3 by 2, odd sizes": (
        {"group": 1, "out_vector": 1},
        stem((2, 9, 13, 3), 17, (3, 3), stride=2, pad=1),
        SIMT_SMALL | {"tile_y": 4, "reg_m": 8},
    ),
    "3 x 3 by 1": ({"out_vector": 2}, stem((1, 7, 12, 3), 26, (3, 3), pad=1), SIMT_SMALL | {"tile_n": 16, "reg_n": 16}),
    "no padding": ({"shift": 0}, stem((1, 11, 18, 3), 12, (3, 5), stride=2), SIMT_SMALL | {"tile_y": 1, "reg_m": 4}),
    "one channel": ({"depth": 1}, stem((1, 10, 8, 1), 6, (5, 5)), SIMT_SMALL),
    "two channels": ({"depth": 2}, stem((3, 6, 8, 2), 8, (4, 2), stride=2, pad=1), SIMT_SMALL | {"reg_m": 1}),
    "five channels": ({"depth": 8}, stem((1, 7, 12, 5), 16, (3, 3), pad=2), SIMT_SMALL),
    "channels last": (
        {"planar": 0, "group": 4},
        stem((1, 9, 12, 3), 16, (3, 3), stride=2, pad=1, planar=False),
        SIMT_SMALL,
    ),
    "f16, sums of f32": ({"image_bytes": 4}, stem((1, 9, 12, 3), 12, (3, 3), stride=2, pad=1, dtype=F16), SIMT_SMALL),
}

REFUSED = {  # kernel, and why it is none
    "eight f16 side by side": (stem((1, 9, 9, 8), 8, (3, 3), dtype=F16, source=F16, planar=False), "wide enough"),
    "nine channels": (stem((1, 9, 9, 9), 8, (3, 3), dtype=F16), "wide enough"),
    "a single tap": (stem((1, 9, 9, 3), 8, (1, 1), dtype=F16), "a window of (1, 1)"),
    "taps that are no neighbours": (stem((1, 9, 9, 3), 8, (3, 3), dilation=2, dtype=F16), "dilations of (2, 2)"),
    "large patches": (stem((1, 16, 16, 3), 8, (8, 8), stride=8, dtype=F16), "that do not overlap"),
    "filters that are computed": (
        replace(stem((1, 9, 9, 3), 8, (3, 3), dtype=F16), constants=frozenset()),
        "not constants",
    ),
    "pixels that are computed": (scaled(stem((1, 9, 9, 3), 8, (3, 3), math="tf32")), "a is computed"),
    "a wide window": (stem((1, 20, 9, 3), 8, (17, 3), dtype=F16), "at most 16 taps"),
    "a product of matrices": (replace(matmul(9, 8, 16, dtype=F16), constants=frozenset({1})), "a is"),
}
