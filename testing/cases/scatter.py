"""Kernels of tests/kernels_templates/test_scatter.py, each with what is special about it."""

from gpucomp.ir.types import BF16, BOOL, F16, F64, I8, I32, U8, U32
from testing.kernels import scatter

BASE = {"line_items": 4, "part_items": 8, "parts": 1, "vector": 1}

WIDE = {"line_items": 32, "part_items": 1, "parts": 4, "vector": 4}

# kernel, schedule: every reduction, lines beside each other and apart, more updates than places and fewer
FEATURES = {
    "replaced": (scatter((17, 5), (29, 3), axis=0), BASE),
    "added": (scatter((17, 5), (29, 3), "add", axis=0), BASE),
    "added along rows": (scatter((5, 37), (3, 61), "add", axis=1), BASE),
    "added along rows by parts": (scatter((5, 37), (3, 61), "add", axis=1), BASE | {"parts": 4}),
    "an axis inside": (scatter((3, 11, 7), (2, 13, 5), "mul", axis=1), BASE),
    "slices": (scatter((13, 24), (31, 1), "add"), WIDE),
    "slices replaced": (scatter((13, 24), (31, 1)), WIDE | {"parts": 1}),
    "slices of f16": (scatter((7, 40), (5, 1), "max", dtype=F16), WIDE | {"vector": 8}),
    "slices of bf16": (scatter((7, 40), (5, 1), dtype=BF16), WIDE | {"vector": 8}),
    "slices of odd length": (scatter((7, 11), (5, 3, 1), "min"), WIDE | {"vector": 1}),
    "single elements": (scatter((5, 7), (23, 2), "add"), BASE | {"line_items": 1, "part_items": 32}),
    "a vector of one line": (scatter((211,), (67, 1), "add"), BASE | {"line_items": 1, "part_items": 32, "parts": 4}),
    "more parts than places": (scatter((3,), (19, 1), "add"), BASE | {"line_items": 1, "part_items": 32, "parts": 4}),
    "one axis of one": (scatter((5, 1, 3), (7, 2), "add"), BASE),
    "i8 wraps": (scatter((5, 3), (40, 3), "mul", axis=0, dtype=I8), BASE),
    "i32 indices": (scatter((9, 3), (4, 2), "add", axis=0, dtype=I32, index_dtype=I32), BASE),
    "u32": (scatter((9, 3), (4, 1), "min", dtype=U32, index_dtype=U8), BASE),
    "f64": (scatter((9, 3), (14, 1), "mul", dtype=F64), BASE),
    "bool": (scatter((5, 3), (2, 3), axis=0, dtype=BOOL), BASE),
}
