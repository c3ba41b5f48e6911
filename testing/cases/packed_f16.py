"""Kernels of tests/kernels_templates/test_packed_f16.py, each with what is special about it."""

from functools import partial

from gpucomp.ir.types import F16, F32
from gpucomp.kernels_templates.engines import FAMILIES
from testing.cases import packed_int8 as of_bytes
from testing.cases.packed_int8 import TILE

PAIRS = FAMILIES["contraction/simt_pairs"]
HALVES = {"types": (F16, F16), "total": F32}

product = partial(of_bytes.product, **HALVES)
window = partial(of_bytes.window, **HALVES)
slices = partial(of_bytes.slices, **HALVES)
square = partial(of_bytes.square, of=F16, total=F32)

WIDE = TILE | {"tile_m": 32, "tile_n": 64, "reg_m": 8, "reg_n": 8}

CASES = {
    "both along the depth": (product(17, 23, 44, b_transposed=True), TILE),
    "a constant packed": (product(19, 37, 52, constant=True), TILE | {"splits": 2}),
    "put together of two rows": (product(17, 24, 26), TILE | {"fragments": 2, "slices": 2}),
    "an odd depth": (product(13, 9, 31, constant=True), TILE | {"splits": 3}),
    "a depth of three": (product(5, 7, 3, constant=True), TILE),
    "slices whose rows go on": (slices(10, 7, 13, 16), TILE),
    "neither along the depth": (product(21, 18, 30, a_transposed=True), TILE | {"stages": 1}),
    "batches": (product(7, 12, 20, batch=(3, 2), constant=True), WIDE),
    "one parameter by words": (square(11, 12, b_transposed=True), TILE),
    "one parameter by words and one by one": (square(12, 12, b_transposed=False), TILE),
    "a padded window": (window((1, 6, 5, 8), 12, (3, 3), pad=1), WIDE),
    "a window padded by a number": (window((2, 6, 5, 12), 10, (3, 3), pad=1, zero=-0.5), TILE),
    "a window of seven channels": (window((1, 5, 7, 7), 6, (3, 2), pad=1), TILE | {"slices": 4}),
    "a planar stem": (window((1, 9, 8, 3), 6, (3, 3), pad=1, planar=True), TILE),
    "planar patches": (window((1, 6, 8, 2), 5, (3, 8), planar=True), TILE),
}
