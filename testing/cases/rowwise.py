"""Kernels of tests/kernels_templates/test_rowwise.py, each with what is special about it."""

from gpucomp.ir.types import BF16, BOOL, F16, F64, I32, I64, U8, U64
from testing.kernels import layer_norm, reduction, softmax

BASE = {"lanes": 8, "rows_per_group": 4, "vector": 1, "keep": 1, "splits": 1}

LONG = {"lanes": 64, "rows_per_group": 1, "vector": 1, "keep": 0, "splits": 4}

# kernel, schedule: what the template can do, each with a tail of rows or columns
FEATURES = {
    "two lanes": (softmax(37, 9), BASE | {"lanes": 2, "rows_per_group": 16}),
    "half a warp": (layer_norm(5, 39), BASE | {"lanes": 16}),
    "a warp": (layer_norm(3, 132), BASE | {"lanes": 32, "vector": 4}),
    "a work-group that is no whole warp": (layer_norm(3, 20), BASE | {"lanes": 16, "rows_per_group": 1}),
    "warps": (layer_norm(3, 260), BASE | {"lanes": 64, "rows_per_group": 2, "vector": 2}),
    "many warps": (softmax(2, 1025), BASE | {"lanes": 512, "rows_per_group": 1}),
    "eight f16": (layer_norm(3, 72, dtype=F16), BASE | {"vector": 8}),
    "eight bf16, read again": (layer_norm(3, 72, dtype=BF16), BASE | {"vector": 8, "keep": 0}),
    "rows beside each other": (layer_norm(9, 13, rows_inside=True), BASE),
    "vectors of rows": (layer_norm(24, 13, rows_inside=True), BASE | {"vector": 4}),
    "vectors of rows, over warps": (layer_norm(24, 77, rows_inside=True), BASE | {"vector": 4, "lanes": 32}),
    "vectors of rows, a warp wide": (
        reduction("max", 140, 9, rows_inside=True, dtype=F16),
        BASE | {"vector": 4, "rows_per_group": 32, "lanes": 4},
    ),
    "scale and shift first": (layer_norm(5, 39), BASE | {"keep": 2}),
    "scale and shift of f16 first": (layer_norm(3, 136, dtype=F16), BASE | {"keep": 2, "vector": 8}),
    "first, of vectors of rows": (layer_norm(24, 13, rows_inside=True), BASE | {"keep": 2, "vector": 4}),
    "an axis inside": (softmax(3, 19, 8, axis=1), BASE | {"vector": 4}),
    "split": (reduction("sum", 3, 1001), LONG),
    "split by vectors": (reduction("sum", 3, 1004), LONG | {"vector": 4, "lanes": 32, "rows_per_group": 2}),
    "split more than there is": (reduction("max", 1, 37), LONG | {"splits": 64, "lanes": 16}),
    "split of one lane": (reduction("sum", 40, 35), LONG | {"lanes": 1, "rows_per_group": 32}),
    "split rows beside each other": (
        reduction("sum", 20, 99, rows_inside=True),
        LONG | {"vector": 4, "lanes": 16, "rows_per_group": 2},
    ),
    "split f64": (reduction("sum", 2, 999, dtype=F64), LONG),
    "split bool": (reduction("max", 2, 99, dtype=BOOL), LONG),
    "long, in blocks": (softmax(3, 1001), BASE | {"lanes": 2, "rows_per_group": 16, "keep": 0}),
    "long vectors of rows, in blocks": (
        reduction("sum", 12, 601, rows_inside=True),
        BASE | {"lanes": 2, "vector": 4, "rows_per_group": 16, "keep": 0},
    ),
    "split, in blocks": (reduction("sum", 3, 1500, dtype=F64), LONG | {"lanes": 2, "rows_per_group": 16, "splits": 2}),
    "u8": (reduction("max", 9, 29, dtype=U8), BASE),
    "u64": (reduction("sum", 5, 29, dtype=U64), BASE),
    "i64": (reduction("sum", 5, 129, dtype=I64), BASE | {"lanes": 64}),
    "i32 product": (reduction("prod", 5, 7, dtype=I32), BASE),
}
