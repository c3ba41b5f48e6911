"""Kernels of tests/kernels_templates/test_gemv.py, each with what is special about it."""

from gpucomp.ir.types import BF16, F16, F64, I8, I32
from testing.kernels import conv, grouped_conv, into_part, matmul

CASES = {
    "row": matmul(1, 100, 72),
    "row of odd sizes": matmul(1, 97, 131),
    "rows": matmul(5, 36, 44),
    "eight rows": matmul(8, 20, 33),
    "matrix along the depth": matmul(1, 53, 72, b_transposed=True),
    "rows along the depth": matmul(3, 22, 40, b_transposed=True),
    "vectors across the depth": matmul(3, 20, 40, a_transposed=True, b_transposed=True),
    "batched": matmul(2, 12, 20, batch=(3, 2)),
    "batched along the depth": matmul(4, 7, 36, batch=(3,), b_transposed=True),
    "one column": matmul(67, 1, 70),
    "few columns": matmul(41, 3, 68, b_transposed=True),
    "few columns of a batch": matmul(23, 2, 64, batch=(2,), a_transposed=True),
    "one": matmul(1, 1, 1),
    "no depth": matmul(3, 6, 0),
    "f16": matmul(2, 40, 48, dtype=F16),
    "f16 along the depth": matmul(2, 11, 48, dtype=F16, b_transposed=True),
    "bf16": matmul(1, 24, 40, dtype=BF16, b_transposed=True),
    "f64": matmul(3, 10, 22, dtype=F64, acc=F64, b_transposed=True),
    "i8": matmul(2, 12, 33, dtype=I8, acc=I32),
    "a window of one position": conv((1, 3, 3, 8), 12, (3, 3)),
    "a padded window": conv((1, 2, 2, 8), 12, (3, 3), pad=1),
    "groups": grouped_conv((1, 3, 2, 12), 3, 8, (3, 2)),
    "into a part": into_part(matmul(2, 22, 17), 1, 5, 3),
}

WATCHED = {
    "by shuffles": (
        matmul(3, 9, 600, b_transposed=True),
        {"many_items": 2, "depth_items": 128, "accesses": 2, "unroll": 2, "shuffle": 1},
    ),
    "in shared memory": (
        matmul(2, 24, 19),
        {"many_items": 4, "depth_items": 8, "accesses": 1, "unroll": 1, "shuffle": 0},
    ),
}

PLACES = {
    "across the depth": matmul(1, 1000, 2048, dtype=F16),
    "along the depth": matmul(1, 1000, 2048, b_transposed=True),
}
