"""Kernels of tests/kernels_templates/test_mma.py, each with what is special about it."""

from dataclasses import replace

from gpucomp.expr.core import call, cast, load
from gpucomp.ir.types import BF16, F16, F32, I8, I32, U8, TensorType
from gpucomp.targets import cuda
from testing.kernels import conv, grouped_conv, into_part, matmul, stem

SM_80, SM_75 = cuda.manifest("sm_80"), cuda.manifest("sm_75")


def with_math(kernel, mode):
    return replace(kernel, body=replace(kernel.body, math=mode))


def bytes_of(m, n, k, a_type, b_type, **options):
    """A product of 8-bit whole numbers, each operand with a sign of its own."""
    kernel = matmul(m, n, k, dtype=I32, acc=I32, **options)
    a, b = kernel.body.a, kernel.body.b
    params = (TensorType(a_type, kernel.params[0].shape), TensorType(b_type, kernel.params[1].shape))
    body = replace(kernel.body, a=cast(load(0, a.index, a_type), I32), b=cast(load(1, b.index, b_type), I32))
    return replace(kernel, params=params + kernel.params[2:], body=body)


def with_prologue(kernel):
    """The left operand is max(x, 0), computed in the type that memory has."""
    a = call("max", kernel.body.a.value, 0.0)
    return replace(kernel, body=replace(kernel.body, a=cast(a, F32)))


NAMES = ("warp_m", "warp_n", "warps_m", "warps_n", "warps_k", "k_steps", "stages", "splits", "raster")


def tile(*numbers):
    return dict(zip(NAMES, numbers, strict=True))


SMALL = tile(16, 16, 2, 2, 1, 2, 3, 1, 1)

# what the engine can do: derived sizes that prove it, kernel, schedule, target
CASES = {
    "f16": ({"a_copied": 1, "b_copied": 1}, matmul(37, 40, 80, dtype=F16), SMALL, SM_80),
    "f16 of odd sizes": ({"a_copied": 0, "out_wide": 1}, matmul(35, 29, 51, dtype=F16), SMALL, SM_80),
    "f16 in pairs": ({"a_vector": 2, "b_vector": 2}, matmul(35, 30, 70, dtype=F16), SMALL, SM_80),
    "b along the depth": ({"b_by_depth": 1}, matmul(33, 24, 72, dtype=F16, b_transposed=True), SMALL, SM_80),
    "a across the depth": ({"a_by_depth": 0}, matmul(40, 24, 37, dtype=F16, a_transposed=True), SMALL, SM_80),
    "a batch": ({"batch": 6}, matmul(19, 36, 44, dtype=F16, batch=(2, 3), b_transposed=True), SMALL, SM_80),
    "bf16": ({"element_bytes": 2}, matmul(50, 24, 64, dtype=BF16), tile(32, 8, 1, 2, 1, 4, 2, 1, 2), SM_80),
    "an operand that is computed": (
        {"a_copied": 0, "b_copied": 1},
        with_prologue(matmul(29, 40, 200, dtype=F16)),
        tile(16, 16, 1, 2, 2, 4, 4, 1, 1),
        SM_80,
    ),
    "a window": ({"a_copied": 1}, conv((2, 9, 7, 16), 24, (3, 3), pad=1, dtype=F16), SMALL, SM_80),
    "a window of strides": (
        {"a_vector": 4},
        conv((1, 9, 11, 4), 20, (3, 3), stride=2, pad=1, dtype=F16),
        tile(16, 8, 2, 1, 2, 2, 4, 1, 1),
        SM_80,
    ),
    "three channels": (
        {"a_copied": 0},
        conv((1, 13, 9, 3), 20, (5, 3), stride=2, pad=2, dtype=F16),
        tile(16, 16, 2, 1, 1, 1, 3, 1, 1),
        SM_80,
    ),
    "patches of a planar image": (
        {"a_by_depth": 1, "a_wide": 8, "b_by_depth": 1},
        conv((1, 16, 24, 3), 20, (8, 8), stride=8, dtype=F16, nchw=True),
        SMALL,
        SM_80,
    ),
    "a window across memory": (
        {"a_by_depth": 0},
        conv((1, 9, 9, 6), 20, (3, 3), pad=1, dtype=F16, nchw=True),
        SMALL,
        SM_80,
    ),
    "groups in f32": (
        {"batch": 2},
        with_math(grouped_conv((1, 7, 5, 16), 2, 12, (3, 3), pad=1), "3xtf32"),
        tile(16, 8, 1, 2, 1, 4, 3, 1, 1),
        SM_80,
    ),
    "tf32": ({"products": 1, "b_shared_by_depth": 0}, with_math(matmul(50, 40, 44), "tf32"), SMALL, SM_80),
    "tf32 of odd sizes": ({"a_vector": 1}, with_math(matmul(35, 27, 29), "tf32"), SMALL, SM_80),
    "tf32 across": (
        {"a_by_depth": 0},
        with_math(matmul(36, 48, 40, a_transposed=True), "tf32"),
        tile(16, 32, 2, 1, 2, 4, 2, 1, 1),
        SM_80,
    ),
    "3xtf32": ({"products": 3}, with_math(matmul(37, 40, 88), "3xtf32"), tile(32, 16, 1, 2, 1, 2, 4, 1, 1), SM_80),
    "3xtf32 along": (
        {"b_shared_by_depth": 1},
        with_math(matmul(33, 40, 72, b_transposed=True), "3xtf32"),
        tile(16, 16, 1, 1, 4, 8, 3, 2, 1),
        SM_80,
    ),
    "bytes": (
        {"element_bytes": 1, "b_by_depth": 0, "b_shared_by_depth": 1},
        bytes_of(40, 48, 96, I8, I8),
        SMALL,
        SM_80,
    ),
    "bytes along": ({"a_copied": 1, "b_copied": 1}, bytes_of(24, 48, 96, U8, I8, b_transposed=True), SMALL, SM_80),
    "bytes of odd sizes": ({"a_copied": 0}, bytes_of(21, 26, 67, I8, U8), tile(16, 8, 1, 2, 2, 2, 2, 2, 1), SM_80),
    "bytes turned": ({"a_by_depth": 0}, bytes_of(16, 32, 64, U8, U8, a_transposed=True), SMALL, SM_80),
    "split-K": ({"tiles_per_split": 2}, matmul(40, 24, 150, dtype=F16), SMALL | {"splits": 3}, SM_80),
    "split-K of more than there is": (
        {"tiles_per_split": 1},
        matmul(18, 20, 70, dtype=F16),
        SMALL | {"splits": 4},
        SM_80,
    ),
    "split-K and slice-K": (
        {"warp_steps": 2},
        matmul(40, 24, 300, dtype=F16, batch=(2,)),
        tile(16, 16, 1, 1, 4, 8, 2, 2, 1),
        SM_80,
    ),
    "bands of tiles": ({"tiles_n": 5}, matmul(50, 150, 32, dtype=F16), SMALL | {"raster": 2}, SM_80),
    "one step a stage": ({"warp_steps": 1}, matmul(40, 40, 100, dtype=F16), tile(32, 16, 1, 2, 1, 1, 5, 1, 1), SM_80),
    "six stages": ({"tiles_k": 10}, matmul(20, 40, 320, dtype=F16), SMALL | {"stages": 6}, SM_80),
    "a row": ({"m": 1}, matmul(1, 100, 130, dtype=F16), tile(16, 64, 1, 1, 2, 2, 3, 2, 1), SM_80),
    "a single element": ({"tiles": 1}, matmul(1, 1, 1, dtype=F16), SMALL, SM_80),
    "a part of a Concat": ({"out_wide": 1}, into_part(matmul(20, 24, 40, dtype=F16), 1, 5, 3), SMALL, SM_80),
    "an aligned part": ({"out_wide": 8}, into_part(matmul(20, 24, 40, dtype=F16), 1, 8, 16), SMALL, SM_80),
    "f16 without async copies": (
        {"a_copied": 1},
        conv((1, 9, 7, 16), 24, (3, 3), pad=1, dtype=F16),
        SMALL | {"stages": 2},
        SM_75,
    ),
    "bytes without async copies": ({"b_copied": 0}, bytes_of(21, 48, 67, I8, I8), SMALL | {"stages": 2}, SM_75),
}

PACKED = {  # a constant operand that is better laid out along the depth, and one that is well as it is
    "bytes": (bytes_of(20, 32, 64, I8, I8), "b"),
    "f16 of odd columns": (matmul(20, 31, 48, dtype=F16), "b"),
    "tf32": (with_math(matmul(20, 32, 48), "tf32"), "b"),
    "rows of the left operand": (bytes_of(20, 32, 64, I8, I8, a_transposed=True, b_transposed=True), "a"),
    "groups": (with_math(grouped_conv((1, 5, 5, 16), 2, 12, (3, 3), pad=1), "3xtf32"), "b"),
    "patches of odd columns": (
        replace(stem((1, 16, 16, 3), 31, (8, 8), stride=8, dtype=F16), constants=frozenset()),
        "b",
    ),
    "f16 in half chunks": (matmul(20, 36, 48, dtype=F16), "b"),
    "f16": (matmul(20, 32, 48, dtype=F16), ""),
    "f16 of odd depth": (matmul(20, 31, 49, dtype=F16), ""),
}
