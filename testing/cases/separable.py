"""Kernels of tests/kernels_templates/test_separable.py, each with what is special about it."""

from gpucomp.ir.types import BF16, F16
from gpucomp.kernels_templates.engines import FAMILIES
from testing.kernels import separable

SIMT, MMA = FAMILIES["contraction/separable_simt"], FAMILIES["contraction/separable_mma"]

S = {
    "tile_y": 2,
    "tile_x": 8,
    "tile_n": 16,
    "reg_m": 2,
    "reg_n": 4,
    "vector": 4,
    "reg_y": 1,
    "reg_x": 2,
    "parts": 1,
    "splits": 1,
    "asynchronous": 1,
}

M = {
    "tile_y": 2,
    "tile_x": 8,
    "warp_n": 16,
    "warps_m": 1,
    "warps_n": 1,
    "warps_k": 1,
    "vector": 4,
    "reg_y": 1,
    "reg_x": 2,
    "parts": 1,
    "splits": 1,
}

FEATURES = {  # engine, kernel, schedule: tails of pixels, channels and columns everywhere
    "plain": (SIMT, separable((1, 7, 9, 12), 20, (3, 3), pad=1), S),
    "channels that fill no part": (SIMT, separable((1, 5, 9, 20), 12, (3, 3), pad=1), S | {"parts": 2, "vector": 2}),
    "copied through registers": (
        SIMT,
        separable((1, 5, 9, 24), 12, (3, 3), pad=1),
        S | {"asynchronous": 0, "parts": 3},
    ),
    "two images, stride 2, split": (
        SIMT,
        separable((2, 9, 11, 24), 13, (3, 3), stride=(2, 2), pad=1),
        S | {"parts": 2, "splits": 2, "reg_y": 2},
    ),
    "5 x 3 dilated": (SIMT, separable((1, 8, 11, 8), 21, (5, 3), dilation=(1, 2), pad=2), S | {"reg_m": 4, "reg_n": 8}),
    "one row of pixels": (SIMT, separable((3, 1, 13, 8), 12, (1, 3)), S | {"tile_y": 1, "reg_x": 4}),
    "past 48 KiB": (SIMT, separable((1, 5, 9, 520), 20, (3, 3), pad=1), S | {"tile_n": 32, "reg_m": 1, "reg_n": 8}),
    "f16": (MMA, separable((1, 7, 9, 24), 24, (3, 3), pad=1, dtype=F16), M),
    "bf16, one block of columns": (MMA, separable((1, 7, 5, 8), 6, (3, 3), dtype=BF16), M | {"warp_n": 8, "reg_x": 1}),
    "tf32": (MMA, separable((1, 7, 9, 12), 20, (3, 3), pad=1, math="tf32"), M),
    "3xtf32": (MMA, separable((1, 7, 9, 12), 20, (3, 3), pad=1, math="3xtf32"), M),
    "f16 in parts, split, warps along the depth": (
        MMA,
        separable((2, 9, 11, 72), 13, (3, 3), stride=(2, 2), pad=1, dtype=F16),
        M | {"tile_y": 4, "parts": 2, "splits": 2, "reg_y": 2, "warps_k": 2},
    ),
    "f16 of many warps": (
        MMA,
        separable((1, 9, 11, 88), 44, (3, 3), pad=1, dtype=F16),
        M | {"tile_y": 8, "warps_m": 2, "warps_n": 2, "splits": 3},
    ),
}

MODELS = {
    "first": separable((1, 112, 112, 32), 64, (3, 3), pad=1),
    "stride 2": separable((1, 56, 56, 144), 32, (3, 3), stride=(2, 2), pad=1),
    "middle": separable((1, 14, 14, 576), 96, (3, 3), pad=1),
    "last": separable((1, 7, 7, 960), 320, (3, 3), pad=1),
    "5 x 5": separable((1, 14, 14, 480), 112, (5, 5), pad=2),
}
