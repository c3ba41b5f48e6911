"""Kernels of tests/kernels_templates/test_tcgen05.py, each with what is special about it."""

from gpucomp.ir.types import BF16, F16
from testing.kernels import into_part, matmul, side_by_side
from testing.tcgen05_kernels import PAIR, TILE, TMA_STORE, TWO, WIDE
from testing.wgmma_kernels import constant_b, image, one_result, with_math

# kernel, schedule, and what the schedule is there for
CASES = {
    "f16": (matmul(100, 72, 200, dtype=F16, b_transposed=True), TILE),
    "f16, 128 rows": (matmul(150, 20, 136, dtype=F16, b_transposed=True), WIDE | {"tile_n": 16}),
    "bf16, 256 rows": (matmul(137, 23, 328, dtype=BF16, b_transposed=True), TWO | {"tile_n": 48}),
    "96 columns": (matmul(200, 100, 72, dtype=F16, b_transposed=True), WIDE | {"tile_n": 96}),
    "192 columns": (matmul(130, 200, 72, dtype=BF16, b_transposed=True), TILE | {"tile_n": 192}),
    "256 columns": (matmul(129, 264, 72, dtype=F16, b_transposed=True), WIDE | {"tile_n": 256}),
    "all of tensor memory": (
        one_result(matmul(257, 256, 72, dtype=F16, b_transposed=True)),
        TWO | {"tile_n": 256, "tma_store": 1},
    ),
    "tf32": (with_math(matmul(65, 40, 100, b_transposed=True)), TILE | {"stages": 3}),
    "batched": (matmul(70, 17, 24, batch=(3, 2), dtype=F16, b_transposed=True), TILE),
    "a batch of one": (matmul(66, 17, 24, batch=(1,), dtype=F16, b_transposed=True), WIDE),
    "side by side": (side_by_side((2, 5, 7), (64, 2), (72, 1), 40), WIDE | {"tile_n": 48}),
    "one row": (matmul(1, 100, 520, dtype=F16, b_transposed=True), TILE | {"tile_n": 64, "stages": 4}),
    "one column": (matmul(65, 1, 64, dtype=F16, b_transposed=True), TILE | {"tile_n": 16}),
    "one step": (matmul(64, 64, 8, dtype=F16, b_transposed=True), TILE | {"tile_n": 64}),
    "split by two": (matmul(100, 50, 264, dtype=F16, b_transposed=True), TILE | {"splits": 2}),
    "split by four": (matmul(130, 36, 712, dtype=F16, b_transposed=True), WIDE | {"splits": 4, "stages": 3}),
    "split with nothing left for some": (matmul(30, 16, 136, dtype=F16, b_transposed=True), TILE | {"splits": 8}),
    "split tf32": (with_math(matmul(64, 40, 160, b_transposed=True)), TILE | {"splits": 4}),
    "split, 256 rows": (matmul(200, 40, 136, dtype=F16, b_transposed=True), TWO | {"splits": 2}),
    "overlapping": (matmul(65, 32, 200, dtype=F16, b_transposed=True), TILE | {"overlap": 1}),
    "overlapping, b early": (constant_b(matmul(65, 32, 328, dtype=F16, b_transposed=True)), TILE | {"overlap": 2}),
    "b early, split": (
        constant_b(matmul(65, 32, 328, dtype=F16, b_transposed=True)),
        TILE | {"overlap": 2, "splits": 2, "stages": 4},
    ),
    "packed": (constant_b(matmul(66, 20, 72, dtype=F16)), TILE),
    "into a part": (into_part(matmul(66, 24, 72, dtype=F16, b_transposed=True), 1, 5, 3), WIDE),
    "1x1": (image((1, 9, 11, 40), 24, (1, 1), dtype=F16), TILE),
    "3x3": (image((2, 9, 7, 24), 40, (3, 3), pad=1, dtype=F16), TILE),
    "3x3 of 128 rows": (image((1, 13, 11, 16), 24, (3, 3), pad=1, dtype=F16), WIDE),
    "3x3 of many channels": (image((1, 6, 5, 88), 16, (3, 3), pad=1, dtype=BF16), TILE | {"tile_n": 16, "stages": 4}),
    "strided": (image((1, 12, 15, 16), 24, (3, 3), stride=2, pad=1, dtype=F16), TILE),
    "dilated": (image((1, 12, 9, 8), 12, (3, 2), dilation=2, pad=1, dtype=F16), TILE | {"tile_n": 16}),
    "conv tf32": (with_math(image((1, 7, 6, 20), 12, (3, 3), pad=1)), TILE | {"tile_n": 16}),
    "conv split": (image((1, 7, 7, 72), 24, (3, 3), pad=1, dtype=F16), TILE | {"splits": 4}),
    "conv, b early": (image((1, 7, 7, 72), 24, (3, 3), pad=1, dtype=F16), TILE | {"overlap": 2, "stages": 4}),
    "tma store": (image((2, 9, 7, 24), 40, (3, 3), pad=1, dtype=F16), TMA_STORE),
    "tma store, short rows": (
        one_result(matmul(70, 56, 72, dtype=BF16, b_transposed=True)),
        TMA_STORE | {"tile_n": 48},
    ),
    "tma store, 128 rows": (
        one_result(matmul(139, 72, 72, batch=(2,), dtype=F16, b_transposed=True)),
        TMA_STORE | {"tile_m": 128, "tile_n": 128},
    ),
    "tma store f32": (
        with_math(one_result(matmul(137, 44, 40, b_transposed=True))),
        TMA_STORE | {"tile_m": 256},
    ),
    "tma store f32, short rows": (
        with_math(one_result(matmul(67, 52, 40, b_transposed=True))),
        TMA_STORE | {"tile_n": 48, "tile_m": 128},
    ),
    "tma store into a part": (
        into_part(one_result(matmul(66, 24, 72, dtype=F16, b_transposed=True)), 1, 8, 16),
        TMA_STORE | {"tile_n": 96},
    ),
    "b for two": (matmul(150, 40, 328, batch=(2,), dtype=F16, b_transposed=True), TILE | {"multicast": 1, "stages": 3}),
    "a for two": (matmul(130, 90, 200, batch=(3,), dtype=BF16, b_transposed=True), WIDE | {"multicast": 2}),
    "b for two, one pair": (
        constant_b(matmul(65, 16, 520, dtype=F16)),
        TILE | {"tile_n": 16, "multicast": 1, "overlap": 2},
    ),
    "taps for two": (image((2, 9, 7, 24), 40, (3, 3), pad=1, dtype=F16), TILE | {"multicast": 1, "tma_store": 1}),
    "pixels for two": (image((1, 13, 11, 72), 40, (3, 3), pad=1, dtype=F16), WIDE | {"multicast": 2, "overlap": 1}),
    "everything": (
        image((1, 13, 11, 72), 48, (3, 3), stride=2, pad=1, dtype=F16),
        WIDE | {"multicast": 1, "tma_store": 1, "overlap": 2, "stages": 4},
    ),
    "a pair": (matmul(300, 72, 200, dtype=F16, b_transposed=True), PAIR),
    "a pair, 256 rows": (
        matmul(270, 40, 328, batch=(2,), dtype=BF16, b_transposed=True),
        TWO | {"multicast": 3, "tile_n": 48, "stages": 3},
    ),
    "a pair of one tile": (matmul(7, 1, 24, dtype=F16, b_transposed=True), PAIR | {"tile_n": 16}),
    "a pair of 256 columns": (
        one_result(matmul(257, 264, 72, dtype=F16, b_transposed=True)),
        TWO | {"multicast": 3, "tile_n": 256, "tma_store": 1},
    ),
    "a pair of tf32": (with_math(matmul(139, 40, 100, b_transposed=True)), PAIR | {"stages": 3}),
    "a pair, b early": (constant_b(matmul(150, 40, 520, dtype=F16)), PAIR | {"overlap": 2}),
    "a pair of pixels": (image((2, 13, 11, 72), 40, (3, 3), pad=1, dtype=F16), PAIR | {"overlap": 1}),
    "a pair, side by side": (side_by_side((2, 5, 17), (64, 2), (72, 1), 40), PAIR),
    "a pair, everything": (
        image((1, 33, 31, 72), 48, (3, 3), stride=2, pad=1, dtype=F16),
        PAIR | {"tile_n": 64, "tma_store": 1, "overlap": 2, "stages": 4},
    ),
    "turns": (one_result(matmul(700, 72, 200, dtype=F16, b_transposed=True)), TMA_STORE | {"tile_m": 128, "turns": 3}),
    "turns, some with one less": (
        one_result(matmul(390, 40, 200, batch=(3,), dtype=BF16, b_transposed=True)),
        TMA_STORE | {"tile_n": 48, "turns": 6, "stages": 3},
    ),
    "turns, 256 rows": (
        one_result(matmul(600, 136, 72, dtype=F16, b_transposed=True)),
        TWO | {"tma_store": 1, "tile_n": 64, "turns": 4},
    ),
    "more turns than tiles": (one_result(matmul(70, 24, 72, dtype=F16, b_transposed=True)), TMA_STORE | {"turns": 8}),
    "turns, b early": (
        one_result(constant_b(matmul(300, 40, 136, dtype=F16))),
        TMA_STORE | {"turns": 3, "overlap": 2, "stages": 4},
    ),
    "turns of f32": (with_math(one_result(matmul(330, 44, 40, b_transposed=True))), TMA_STORE | {"turns": 3}),
    "turns of a pair": (
        one_result(matmul(1300, 72, 200, dtype=F16, b_transposed=True)),
        PAIR | {"tma_store": 1, "turns": 4},
    ),
    "turns of a pair with more stages than steps": (
        one_result(matmul(900, 40, 72, dtype=F16, b_transposed=True)),
        PAIR | {"tma_store": 1, "turns": 4, "stages": 6},
    ),
    "turns of a pair, everything": (
        image((2, 33, 31, 72), 48, (3, 3), stride=2, pad=1, dtype=F16),
        PAIR | {"tile_n": 32, "tma_store": 1, "turns": 2, "overlap": 2, "stages": 4},
    ),
    "default": (image((1, 14, 14, 64), 32, (3, 3), pad=1, dtype=F16), None),
}
