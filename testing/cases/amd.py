"""Kernels of tests/kernels_templates/test_amd.py, each with what is special about it."""

from collections.abc import Sequence
from dataclasses import replace

from gpucomp.expr.core import call, cast, load, select
from gpucomp.ir.types import BF16, F16, F32, I8, I32, DType, TensorType
from gpucomp.kernel import Contraction, Kernel
from testing.kernels import conv, conv_of_bytes, grouped_conv, matmul


def of_two(m: int, n: int, k: int, a: DType, b: DType) -> Kernel[Contraction]:
    """``matmul`` of operands of two types."""
    kernel = matmul(m, n, k, dtype=a)
    of_a, of_b, *others = kernel.params
    right = cast(load(1, (*kernel.body.k, *kernel.body.n), b), F32)
    return replace(kernel, body=replace(kernel.body, b=right), params=(of_a, TensorType(b, of_b.shape), *others))


def of_sums(m: int, n: int, k: int, dtype: DType) -> Kernel[Contraction]:
    """``matmul`` whose left operand is computed: rounded to ``dtype``, as every value of that type."""
    kernel = matmul(m, n, k, dtype=dtype)
    left = cast(call("max", kernel.body.a.value + kernel.body.a.value * 0.3, -0.7), F32)
    return replace(kernel, body=replace(kernel.body, a=left))


def of_parts(m: int, n: int, widths: Sequence[int], dtype: DType) -> Kernel[Contraction]:
    """``matmul`` whose left operand is joined along the depth from parts of these widths, then scaled and rounded."""
    kernel = matmul(m, n, sum(widths), dtype=dtype)
    (row,), (depth,) = kernel.body.m, kernel.body.k
    joined, end, params = cast(load(0, (row, depth), dtype), F32), widths[0], [TensorType(dtype, (m, widths[0]))]
    for number, width in enumerate(widths[1:], 2):
        joined = select(depth < end, joined, cast(load(number, (row, depth - end), dtype), F32))
        params.append(TensorType(dtype, (m, width)))
        end += width
    scale = cast(load(len(widths) + 1, (depth,), dtype), F32)
    left = cast(cast(joined * scale + 1.5, dtype), F32)
    params = [params[0], kernel.params[1], *params[1:], TensorType(dtype, (end,)), kernel.params[-1]]
    store = replace(kernel.stores[0], target=len(params) - 1, value=cast(kernel.body.acc, dtype))
    return replace(kernel, params=tuple(params), outputs=1, body=replace(kernel.body, a=left), stores=(store,))


KERNELS = {
    "f16": matmul(33, 47, 40, dtype=F16),
    "f16_odd": matmul(19, 21, 29, dtype=F16),
    "f32": matmul(33, 47, 28),
    "f32_odd": matmul(19, 21, 29),
    "batched": matmul(17, 20, 16, batch=(2, 2)),
    "b_transposed": matmul(19, 36, 24, b_transposed=True),
    "a_transposed": matmul(24, 20, 17, a_transposed=True),
    "row": matmul(1, 40, 33),
    "column": matmul(31, 1, 5),
    "no_depth": matmul(5, 6, 0),
    "bf16": matmul(9, 20, 16, dtype=BF16),
    "bf16_odd": matmul(19, 21, 29, dtype=BF16),
    "bf16_batched": matmul(17, 20, 16, batch=(2, 2), dtype=BF16),
    "bf16_no_depth": matmul(5, 6, 0, dtype=BF16),
    "bf16_computed": of_sums(17, 20, 40, BF16),
    "bf16_by_f32": of_two(19, 21, 29, BF16, F32),
    "f32_by_bf16": of_two(19, 20, 32, F32, BF16),
    "f16_by_f32": of_two(17, 20, 40, F16, F32),
    "conv_f16": conv((1, 6, 7, 8), 20, (3, 3), pad=1, dtype=F16),
    "conv_bf16": conv((1, 6, 7, 8), 20, (3, 3), pad=1, dtype=BF16),
    "conv": conv((2, 5, 6, 8), 12, (3, 3), pad=1),
    "conv_stem": conv((1, 9, 8, 3), 8, (3, 3), stride=2, pad=1),
    "grouped": grouped_conv((1, 6, 5, 8), 2, 5, (3, 3), pad=1),
    "i8": matmul(33, 20, 48, dtype=I8, acc=I32),
    "conv_i8": conv_of_bytes(-9),
    "joined": of_parts(33, 20, (40, 24, 56), F16),
    "joined_odd": of_parts(19, 20, (36, 60), F16),
    "joined_bf16": of_parts(17, 20, (24, 16, 8), BF16),
    "i8_odd": matmul(19, 21, 29, dtype=I8, acc=I32),
}
