"""Kernels of tests/kernels_templates/test_scan.py, each with what is special about it."""

from gpucomp.ir.types import BF16, F16, F64, I8, I32, I64, U8, U64
from testing.kernels import scan

BASE = {"look_back": 0, "lanes": 8, "rows_per_group": 4, "vector": 1, "accesses": 2}

BACK = BASE | {"look_back": 1}

BOTH = {"exclusive": True, "reverse": True}

# kernel, schedule: what the template can do, with tails of rows and of tiles
PLAIN = {
    "tiles with a tail": (scan("sum", 5, 37), BASE),
    "tiles from the end": (scan("sum", 5, 37, **BOTH), BASE),
    "one tile": (scan("sum", 3, 11, exclusive=True), BASE | {"accesses": 4}),
    "vectors": (scan("sum", 7, 68), BASE | {"vector": 4}),
    "vectors from the end": (scan("sum", 7, 68, **BOTH), BASE | {"vector": 4}),
    "a warp": (scan("sum", 3, 131, reverse=True), BASE | {"lanes": 32, "accesses": 1}),
    "warps, tiles": (scan("sum", 3, 397), BASE | {"lanes": 64, "rows_per_group": 2}),
    "warps, one tile": (scan("sum", 3, 397, exclusive=True), BASE | {"lanes": 256, "rows_per_group": 1}),
    "warps, vectors": (scan("sum", 2, 772, reverse=True), BASE | {"lanes": 64, "rows_per_group": 1, "vector": 4}),
    "a work-group that is no whole warp": (scan("sum", 3, 37, **BOTH), BASE | {"rows_per_group": 1}),
    "rows side by side": (scan("sum", 37, 29, rows_inside=True), BASE | {"lanes": 1, "rows_per_group": 32}),
    "lanes over rows side by side": (scan("sum", 9, 53, rows_inside=True, **BOTH), BASE),
    "a work-item a row": (scan("sum", 41, 9, exclusive=True), BASE | {"lanes": 1, "rows_per_group": 32}),
    "one row": (scan("sum", 1, 523), BASE | {"lanes": 32, "rows_per_group": 1}),
    "two columns": (scan("sum", 5, 2, exclusive=True), BASE),
    "f16": (scan("sum", 3, 88, dtype=F16), BASE | {"vector": 8}),
    "bf16": (scan("sum", 3, 35, dtype=BF16, reverse=True), BASE),
    "f64": (scan("prod", 3, 35, dtype=F64), BASE | {"lanes": 64, "rows_per_group": 1, "accesses": 1}),
    "u8": (scan("max", 9, 29, dtype=U8), BASE),
    "i8 wraps": (scan("sum", 9, 61, dtype=I8), BASE),
    "i32": (scan("min", 5, 67, dtype=I32, **BOTH), BASE),
    "i64": (scan("sum", 5, 129, dtype=I64), BASE | {"lanes": 64, "rows_per_group": 1}),
    "u64 has no shuffle": (scan("sum", 5, 29, dtype=U64), BASE),
}

LOOKING_BACK = {
    "looks back": (scan("sum", 5, 83), BACK),
    "looks back, a warp": (scan("sum", 1, 331, **BOTH), BACK | {"lanes": 32, "rows_per_group": 1, "accesses": 1}),
    "looks back, warps": (
        scan("sum", 2, 523, exclusive=True),
        BACK | {"lanes": 64, "rows_per_group": 1, "accesses": 1},
    ),
    "looks back, vectors": (scan("sum", 1, 772, reverse=True), BACK | {"lanes": 64, "rows_per_group": 1, "vector": 4}),
    "looks back, no whole warp": (scan("sum", 3, 61), BACK | {"rows_per_group": 1}),
    "looks back, rows side by side": (scan("sum", 11, 53, rows_inside=True, **BOTH), BACK),
    "looks back, a work-item a row": (scan("sum", 41, 9, rows_inside=True), BACK | {"lanes": 1, "rows_per_group": 32}),
    "looks back, f16": (
        scan("sum", 1, 344, dtype=F16),
        BACK | {"lanes": 16, "rows_per_group": 2, "vector": 8, "accesses": 1},
    ),
    "looks back, bf16": (scan("sum", 3, 71, dtype=BF16, reverse=True), BACK),
    "looks back, f64": (scan("sum", 1, 197, dtype=F64, exclusive=True), BACK | {"lanes": 32, "rows_per_group": 1}),
    "looks back, i32": (scan("max", 5, 67, dtype=I32, reverse=True), BACK),
    "looks back, i64": (scan("sum", 1, 389, dtype=I64), BACK | {"lanes": 64, "rows_per_group": 1, "accesses": 1}),
    "looks back, u64": (scan("sum", 5, 43, dtype=U64), BACK),
}

LONG_ROWS = {
    "columns in blocks": scan("sum", 1500, 3, rows_inside=True),
    "columns in tasks": scan("sum", 4100, 37, rows_inside=True, reverse=True),
    "few columns": scan("sum", 3, 129, rows_inside=True, exclusive=True),
}
