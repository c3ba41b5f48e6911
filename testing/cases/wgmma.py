"""Kernels of tests/kernels_templates/test_wgmma.py, each with what is special about it."""

from gpucomp.ir.types import BF16, F16, I8, I32
from testing.kernels import into_part, matmul, side_by_side
from testing.wgmma_kernels import TILE, TMA_STORE, TWO, constant_b, image, one_result, with_math

# kernel, schedule, and what the schedule is there for
CASES = {
    "f16": (matmul(100, 72, 200, dtype=F16, b_transposed=True), TILE),
    "bf16, two warpgroups": (
        matmul(137, 23, 328, dtype=BF16, b_transposed=True),
        TILE | {"tile_m": 128, "consumers": 2, "tile_n": 16},
    ),
    "128 rows a warpgroup": (matmul(150, 20, 136, dtype=F16, b_transposed=True), TILE | {"tile_m": 128, "tile_n": 8}),
    "three warpgroups": (
        matmul(200, 100, 72, dtype=F16, b_transposed=True),
        TILE | {"tile_m": 192, "consumers": 3, "tile_n": 96},
    ),
    "tf32": (with_math(matmul(65, 40, 100, b_transposed=True)), TILE | {"stages": 3}),
    "i8": (matmul(67, 33, 208, dtype=I8, acc=I32, b_transposed=True), TILE),
    "batched": (matmul(70, 17, 24, batch=(3, 2), dtype=F16, b_transposed=True), TILE),
    "a batch of one": (matmul(66, 17, 24, batch=(1,), dtype=F16, b_transposed=True), TILE),
    "one row": (matmul(1, 100, 520, dtype=F16, b_transposed=True), TILE | {"tile_n": 64, "stages": 4}),
    "one column": (matmul(65, 1, 64, dtype=F16, b_transposed=True), TILE | {"tile_n": 8}),
    "one step": (matmul(64, 64, 8, dtype=F16, b_transposed=True), TILE | {"tile_n": 64}),
    "split by two": (matmul(100, 50, 264, dtype=F16, b_transposed=True), TILE | {"splits": 2}),
    "split by eight": (matmul(70, 36, 648, dtype=F16, b_transposed=True), TILE | {"splits": 8, "stages": 3}),
    "split with nothing left for some": (matmul(30, 16, 136, dtype=F16, b_transposed=True), TILE | {"splits": 8}),
    "split tf32": (with_math(matmul(64, 40, 160, b_transposed=True)), TILE | {"splits": 4}),
    "split i8": (matmul(67, 24, 400, dtype=I8, acc=I32, b_transposed=True), TILE | {"splits": 2}),
    "i8, tiles narrower than a store": (
        matmul(67, 48, 144, dtype=I8, acc=I32, b_transposed=True),
        TILE | {"tile_n": 8},
    ),
    "split i8, tiles narrower than a store": (
        matmul(65, 48, 272, dtype=I8, acc=I32, b_transposed=True),
        TILE | {"tile_n": 8, "splits": 2},
    ),
    "overlapping": (matmul(65, 32, 200, dtype=F16, b_transposed=True), TILE | {"overlap": 1}),
    "overlapping, b early": (constant_b(matmul(65, 32, 328, dtype=F16, b_transposed=True)), TILE | {"overlap": 2}),
    "b early, split": (
        constant_b(matmul(65, 32, 328, dtype=F16, b_transposed=True)),
        TILE | {"overlap": 2, "splits": 2, "stages": 4},
    ),
    "packed": (constant_b(matmul(66, 20, 72, dtype=F16)), TILE),
    "into a part": (into_part(matmul(66, 24, 72, dtype=F16, b_transposed=True), 1, 5, 3), TILE),
    "1x1": (image((1, 9, 11, 40), 24, (1, 1), dtype=F16), TILE),
    "3x3": (image((2, 9, 7, 24), 40, (3, 3), pad=1, dtype=F16), TILE),
    "3x3 of two blocks": (image((1, 13, 11, 16), 24, (3, 3), pad=1, dtype=F16), TILE | {"tile_m": 128}),
    "3x3 of many channels": (image((1, 6, 5, 88), 16, (3, 3), pad=1, dtype=BF16), TILE | {"tile_n": 16, "stages": 4}),
    "strided": (image((1, 12, 15, 16), 24, (3, 3), stride=2, pad=1, dtype=F16), TILE),
    "strided 1x1": (image((2, 9, 8, 32), 16, (1, 1), stride=2, dtype=F16), TILE),
    "dilated": (image((1, 12, 9, 8), 12, (3, 2), dilation=2, pad=1, dtype=F16), TILE | {"tile_n": 16}),
    "no padding": (image((1, 7, 9, 16), 8, (2, 3), dtype=F16), TILE | {"tile_n": 8}),
    "one column of taps": (image((1, 9, 6, 16), 8, (3, 1), dtype=F16), TILE | {"tile_n": 8}),
    "one row of taps": (image((1, 1, 103, 64), 8, (1, 4), dtype=F16), TILE | {"tile_n": 8}),
    "conv tf32": (with_math(image((1, 7, 6, 20), 12, (3, 3), pad=1)), TILE | {"tile_n": 16}),
    "conv split": (image((1, 7, 7, 72), 24, (3, 3), pad=1, dtype=F16), TILE | {"splits": 4}),
    "conv, b early": (image((1, 7, 7, 72), 24, (3, 3), pad=1, dtype=F16), TILE | {"overlap": 2, "stages": 4}),
    "registers change hands": (
        matmul(137, 23, 328, dtype=BF16, b_transposed=True),
        TWO | {"tile_n": 16, "setmaxnreg": 1},
    ),
    "of three, split": (
        matmul(200, 40, 136, dtype=F16, b_transposed=True),
        TILE | {"tile_m": 192, "consumers": 3, "setmaxnreg": 1, "splits": 2},
    ),
    "tma store": (image((2, 9, 7, 24), 40, (3, 3), pad=1, dtype=F16), TMA_STORE),
    "tma store, short rows": (
        one_result(matmul(70, 56, 72, dtype=BF16, b_transposed=True)),
        TMA_STORE | {"tile_n": 48},
    ),
    "tma store, two blocks": (
        one_result(matmul(139, 72, 72, batch=(2,), dtype=F16, b_transposed=True)),
        TMA_STORE | {"tile_m": 128, "tile_n": 128},
    ),
    "tma store f32": (
        with_math(one_result(matmul(137, 44, 40, b_transposed=True))),
        TMA_STORE | TWO | {"tma_store": 1},
    ),
    "tma store f32, short rows": (
        with_math(one_result(matmul(67, 52, 40, b_transposed=True))),
        TMA_STORE | {"tile_n": 48},
    ),
    "tma store f32, shortest": (
        with_math(one_result(matmul(67, 12, 40, b_transposed=True))),
        TMA_STORE | {"tile_n": 8},
    ),
    "tma store into a part": (
        into_part(one_result(matmul(66, 24, 72, dtype=F16, b_transposed=True)), 1, 8, 16),
        TMA_STORE | {"tile_n": 96},
    ),
    "b for two": (matmul(150, 40, 328, batch=(2,), dtype=F16, b_transposed=True), TILE | {"multicast": 1, "stages": 3}),
    "a for two": (matmul(70, 90, 200, batch=(3,), dtype=BF16, b_transposed=True), TILE | {"multicast": 2}),
    "b for two, one pair": (
        constant_b(matmul(65, 16, 520, dtype=F16)),
        TILE | {"tile_n": 16, "multicast": 1, "overlap": 2},
    ),
    "taps for two": (image((2, 9, 7, 24), 40, (3, 3), pad=1, dtype=F16), TILE | {"multicast": 1, "tma_store": 1}),
    "pixels for two": (image((1, 13, 11, 72), 40, (3, 3), pad=1, dtype=F16), TILE | {"multicast": 2, "overlap": 1}),
    "everything": (
        image((1, 13, 11, 72), 48, (3, 3), stride=2, pad=1, dtype=F16),
        TWO | {"setmaxnreg": 1, "multicast": 1, "tma_store": 1, "overlap": 2, "stages": 4},
    ),
    "side by side": (side_by_side((1, 9, 11), (64, 1), (128, 1), 24), TILE | {"stages": 3}),
    "side by side, a stride": (side_by_side((2, 5, 7), (64, 2), (72, 1), 40), TILE | {"overlap": 2, "stages": 4}),
    "side by side, two strides, split": (
        side_by_side((1, 6, 13), (128, 2), (200, 3), 24, BF16),
        TILE | {"splits": 2, "overlap": 1},
    ),
    "side by side, pixels for two": (
        side_by_side((1, 13, 11), (64, 1), (80, 2), 40),
        TILE | {"multicast": 2, "tma_store": 1, "tile_n": 48},
    ),
    "default": (image((1, 14, 14, 64), 32, (3, 3), pad=1, dtype=F16), None),
}
