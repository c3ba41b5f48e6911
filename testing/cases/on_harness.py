"""Kernels of tests/kernels_templates/test_on_harness.py, each with what is special about it."""

from gpucomp.ir.types import BF16, F16, I8, I16, I32, U8
from gpucomp.kernel import Kernel
from gpucomp.kernels_templates.contraction.simt.space import PLAIN
from testing.kernels import (
    add_relu,
    conv,
    grouped_conv,
    into_part,
    joined,
    matmul,
    max_pool,
    padded,
    reduction,
    softmax,
)

TILE = {**PLAIN, "tile_m": 8, "tile_n": 16, "tile_k": 8, "reg_m": 2, "reg_n": 4, "stages": 1}

ROW = {"lanes": 8, "rows_per_group": 4, "vector": 1, "keep": 1, "splits": 1}

POINTS = {"threads": 32, "vector": 4, "items": 2}

# what a template can do, each at a schedule that makes it: derived sizes that prove it, kernel, schedule
FEATURES: dict[str, tuple[dict[str, int], Kernel, dict[str, int]]] = {
    "split-K": ({"tiles_per_split": 4}, matmul(13, 22, 90), TILE | {"splits": 3}),
    "split-K with a tail that has nothing": ({"tiles_per_split": 1}, matmul(5, 7, 13), TILE | {"splits": 4}),
    "split-K of two stages": ({"stages": 2}, matmul(9, 20, 70, batch=(2,)), TILE | {"splits": 2, "stages": 2}),
    "two stages": ({"stages": 2}, matmul(19, 37, 45), TILE | {"stages": 2}),
    "vector loads": ({"a_vector": 4, "b_vector": 4, "out_vector": 4}, matmul(11, 24, 36), TILE),
    "vector loads of two stages": (
        {"a_vector": 4, "stages": 2},
        conv((2, 6, 5, 8), 12, (3, 3), pad=1),
        TILE | {"stages": 2},
    ),
    "vectors of f16": ({"a_vector": 8, "b_vector": 8}, matmul(11, 24, 32, dtype=F16), TILE),
    "vectors of bf16": ({"a_vector": 8, "b_vector": 8}, matmul(11, 24, 32, dtype=BF16), TILE | {"stages": 2}),
    "operands across": ({"a_vector": 4, "b_vector": 4}, matmul(12, 20, 17, a_transposed=True), TILE),
    "both along the depth": ({"a_by_depth": 1, "b_by_depth": 1}, matmul(11, 18, 20, b_transposed=True), TILE),
    "int8": ({"acc_bytes": 4}, matmul(13, 20, 3, dtype=I8, acc=I32), TILE),
    "int16": ({"acc_bytes": 4}, matmul(13, 20, 19, dtype=I16, acc=I32), TILE | {"splits": 2}),
    "groups": ({"batch": 3}, grouped_conv((2, 7, 5, 12), 3, 6, (3, 2), pad=1), TILE),
    "depthwise": ({"n": 1}, grouped_conv((1, 7, 9, 6), 6, 1, (3, 3), pad=1), TILE | {"tile_n": 4, "stages": 2}),
    "contraction into a part": ({"threads": 16}, into_part(matmul(9, 22, 17), 1, 5, 3), TILE),
    "groups into a part": ({"batch": 2}, into_part(grouped_conv((1, 5, 6, 8), 2, 5, (2, 2)), 3, 7, 2), TILE),
    "vector of points": ({"points": 55}, add_relu(5, 11, 4), POINTS),
    "vector of f16 points": ({"points": 21}, add_relu(7, 24, dtype=F16), POINTS | {"vector": 8}),
    "a choice of inputs": ({"points": 77}, joined(7, 3, 1, 5, 2), POINTS | {"vector": 1}),
    "a choice of f16 inputs": ({"points": 30}, joined(5, 2, 4, dtype=F16), POINTS | {"vector": 1}),
    "zeros around": ({"points": 44}, padded(38, 3), POINTS | {"vector": 1}),
    "points into a part": ({"points": 65}, into_part(add_relu(13, 5), 1, 4, 2), POINTS | {"vector": 1}),
    "points into a part by vectors": ({"points": 26}, into_part(add_relu(13, 8), 0, 3, 1), POINTS),
    "rows kept": ({"steps": 5}, softmax(11, 37), ROW),
    "rows read again": ({"steps": 5}, softmax(11, 37), ROW | {"keep": 0}),
    "rows side by side": ({"rows_side_by_side": 1}, softmax(2, 19, 7, axis=1), ROW),
    "rows into a part": ({"steps": 3}, into_part(softmax(7, 21), 0, 2, 5), ROW),
    "rows of u8": ({"steps": 4}, reduction("max", 9, 29, dtype=U8), ROW),
    "a work-item a row": ({"steps": 9}, softmax(41, 9), ROW | {"lanes": 1, "rows_per_group": 32}),
    "window unrolled": ({"points": 24}, max_pool((1, 9, 7, 8), 3, 2, 0), POINTS | {"unroll": 1}),
    "window in a loop": ({"points": 150}, max_pool((1, 9, 14, 4), 2, 1, 1), POINTS | {"unroll": 0, "vector": 4}),
    "window of f16": ({"taps": 9}, max_pool((2, 5, 7, 8), 3, 1, 1, dtype=F16), POINTS | {"unroll": 1, "vector": 8}),
    "window into a part": (
        {"taps": 4},
        into_part(max_pool((2, 6, 8, 5), 2, 2, 0), 3, 2, 9),
        POINTS | {"unroll": 1, "vector": 1},
    ),
}

RACES: dict[str, tuple[Kernel, dict[str, int]]] = {
    "loops": (add_relu(5, 11, 4), POINTS),
    "pool": (max_pool((1, 9, 7, 8), 3, 2, 0), POINTS | {"unroll": 1}),
    "rowwise": (softmax(5, 67), ROW | {"lanes": 64, "rows_per_group": 2}),
    "contraction": (matmul(12, 20, 19), TILE | {"splits": 2}),
    "contraction of two stages": (matmul(12, 20, 27), TILE | {"splits": 2, "stages": 2}),
}
