"""Operations, bytes and floors counted by hand."""

from __future__ import annotations

import dataclasses

import pytest

from gpucomp.device.device import CUDA
from gpucomp.expr.core import cast, load
from gpucomp.ir.types import F16, F32, F64, I8, I16, I32, I64, TensorType
from gpucomp.kernel import Kernel, Loops, Store
from gpucomp.schedule import analytic
from gpucomp.schedule.analytic import floor_us, math_of, operations, traffic
from testing.kernels import add_relu, attention, axes_of, conv, matmul, max_pool, reduction, softmax

H200 = CUDA["sm_90a"]


def elementwise(dtype, value):
    params = (TensorType(dtype, (7,)), TensorType(value.dtype, (7,)))
    return Kernel("loops", params, 1, Loops(axes_of((7,))), (Store(1, axes_of((7,)), value),))


@pytest.mark.parametrize(
    ("kernel", "flops"),
    [
        (matmul(3, 5, 7), 2 * 3 * 5 * 7 + 15 * 3),  # bias, max, doubled: what both stores share counts once
        (conv((1, 6, 5, 3), 4, (3, 3), pad=1), 30 * 4 * (2 * 27 + 3)),
        (add_relu(3, 5), 30),
        (reduction("sum", 4, 9), 36),
        (max_pool((1, 4, 4, 2), 2, 2, 0), 8 * 4),
        (matmul(0, 5, 7), 0),
    ],
    ids=lambda v: getattr(v, "label", None),
)
def test_operations_are_those_counted_by_hand(kernel, flops):
    assert operations(kernel) == flops


def test_a_multiply_add_of_a_contraction_counts_two():
    deep, shallow = operations(matmul(3, 5, 107)), operations(matmul(3, 5, 7))

    assert deep - shallow == 2 * 3 * 5 * 100


def test_every_byte_moves_once():
    assert traffic(matmul(3, 5, 7)) == 4 * (21 + 35 + 5 + 15 + 15)
    assert traffic(matmul(3, 5, 7, dtype=F16)) == 2 * (21 + 35 + 5 + 15 + 15)
    assert traffic(softmax(4, 9)) == 4 * (36 + 36 + 4)
    assert traffic(attention(1, 4, 64, 8)) == 4 * 2 * (64 + 4 * 64 + 4 * 8 + 8)  # deeper than its values are long


def test_what_is_not_loaded_does_not_count():
    """Three rows of a large table."""
    i, j = axes_of((3, 8))
    row = load(1, (i,), I64)
    params = (TensorType(F32, (100000, 8)), TensorType(I64, (3,)), TensorType(F32, (3, 8)))
    kernel = Kernel("loops", params, 1, Loops((i, j)), (Store(2, (i, j), load(0, (row, j), F32)),))

    assert traffic(kernel) == 4 * 24 + 4 * 24 + 8 * 3


def half_bytes(kernel):
    """The same kernel with a left operand that does not fit in a byte after its offset is added."""
    return dataclasses.replace(kernel, body=dataclasses.replace(kernel.body, a=kernel.body.a + 119))


@pytest.mark.parametrize(
    ("kernel", "arch", "math"),
    [
        (matmul(8, 8, 8), "sm_90a", "fma"),
        (matmul(8, 8, 8, dtype=F16), "sm_90a", "f16"),
        (matmul(8, 8, 8, dtype=F64, acc=F64), "sm_90a", "fma"),
        (matmul(8, 8, 8, dtype=I8, acc=I32), "sm_80", "s8"),
        (matmul(8, 8, 8, dtype=I32, acc=I32), "sm_80", "fma"),
        (matmul(8, 8, 8, dtype=I16, acc=I32), "sm_80", "fma"),
        (half_bytes(matmul(8, 8, 8, dtype=I8, acc=I32)), "sm_80", "fma"),
        (conv((1, 6, 6, 8), 8, (3, 3), pad=1, dtype=F16), "sm_75", "f16"),
        (softmax(4, 9, dtype=F16), "sm_90a", "fma"),
    ],
)
def test_the_floor_uses_the_arithmetic_that_the_kernel_allows(kernel, arch, math):
    assert math_of(kernel, CUDA[arch]) == math


def test_relaxed_f32_may_use_tensor_cores_and_strict_may_not():
    strict = matmul(2048, 2048, 2048)
    relaxed, tripled = (
        dataclasses.replace(strict, body=dataclasses.replace(strict.body, math=m)) for m in ("tf32", "3xtf32")
    )

    assert math_of(relaxed, CUDA["sm_75"]) == "fma"  # it has no such matrix cores
    floors = [floor_us(k, H200) for k in (strict, tripled, relaxed)]
    assert floors == sorted(floors, reverse=True)
    assert floors[0] / floors[2] == pytest.approx(1024 / 128, rel=0.01)


@pytest.mark.parametrize(
    ("kernel", "arithmetic"),
    [
        (matmul(3, 5, 7), "f32"),
        (max_pool((1, 4, 4, 2), 2, 2, 0), "f32"),
        (softmax(5, 11), "f32"),
        (reduction("sum", 4, 9), "f32"),
        (elementwise(F32, cast(load(0, axes_of((7,)), F32), F64) * 3.0), "f64"),
        (elementwise(I32, load(0, axes_of((7,)), I32) + 1), ""),
    ],
    ids=lambda v: getattr(v, "label", None),
)
def test_the_type_of_operations_is_what_is_accumulated_else_the_widest_float(kernel, arithmetic):
    assert analytic.arithmetic(kernel) == arithmetic
