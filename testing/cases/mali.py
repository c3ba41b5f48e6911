"""Kernels of tests/kernels_templates/test_mali.py, each with what is special about it."""

from dataclasses import replace

from gpucomp.ir.types import BF16, F16, I8, I32, U8
from gpucomp.kernel import Contraction, Kernel
from testing.kernels import conv, grouped_conv, into_part, matmul


def with_constant_weights(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    return replace(kernel, constants=frozenset({1}))


KERNELS = {
    "matmul": matmul(33, 47, 29),
    "aligned": matmul(32, 64, 48),
    "batched": matmul(7, 12, 20, batch=(3, 2)),
    "a_transposed": matmul(24, 20, 17, a_transposed=True),
    "b_transposed": matmul(19, 36, 24, b_transposed=True),
    "both_transposed": matmul(16, 16, 16, a_transposed=True, b_transposed=True),
    "row": matmul(1, 100, 33),
    "column": matmul(31, 1, 5),
    "one": matmul(1, 1, 1),
    "no_depth": matmul(5, 6, 0),
    "deep": matmul(3, 5, 131),
    "f16": matmul(17, 24, 16, dtype=F16),
    "f16_odd": matmul(13, 11, 7, dtype=F16),
    "f16_sums": matmul(13, 16, 12, dtype=F16, acc=F16),
    "bf16": matmul(17, 24, 16, dtype=BF16),
    "i32": matmul(17, 24, 16, dtype=I32, acc=I32),
    "i8": matmul(9, 12, 32, dtype=I8, acc=I32),
    "u8": matmul(9, 11, 20, dtype=U8, acc=I32),
    "conv_3x3": conv((2, 9, 7, 8), 12, (3, 3), pad=1),
    "conv_stem": conv((1, 11, 13, 3), 8, (5, 3), stride=2, pad=2),
    "conv_1x1": conv((1, 5, 7, 16), 20, (1, 1)),
    "conv_1x1_strided": conv((1, 7, 5, 8), 12, (1, 1), stride=2),
    "conv_dilated": conv((1, 12, 9, 4), 5, (3, 2), dilation=2, pad=1),
    "conv_one_channel": conv((1, 9, 8, 1), 7, (3, 3), pad=1),
    "conv_nchw": conv((2, 9, 7, 5), 6, (3, 3), pad=1, nchw=True),
    "conv_f16": conv((1, 6, 6, 8), 8, (3, 3), pad=1, dtype=F16),
    "conv_f16_prime": conv((1, 7, 5, 11), 13, (3, 3), pad=1, dtype=F16),
    "grouped": grouped_conv((1, 6, 5, 12), 3, 5, (3, 3), pad=1),
    "into_part": into_part(conv((1, 5, 6, 8), 12, (3, 3), pad=1), 3, 4, 8),
    "into_odd_part": into_part(conv((1, 5, 6, 8), 12, (3, 3), pad=1), 3, 3, 2),
}

CASES = {
    f"{name}-{how}": (k if how == "dynamic" else with_constant_weights(k))
    for name, k in KERNELS.items()
    for how in ("dynamic", "packed")
}

TINY = {
    "odd": matmul(5, 7, 9),
    "batched": matmul(3, 4, 5, batch=(2, 2)),
    "b_transposed": matmul(3, 8, 12, b_transposed=True),
    "f16": matmul(5, 8, 8, dtype=F16),
    "bf16": matmul(5, 8, 8, dtype=BF16),
    "i8": matmul(5, 6, 8, dtype=I8, acc=I32),
    "conv": conv((1, 3, 5, 4), 5, (3, 3), pad=1),
    "conv_stem": conv((1, 5, 7, 3), 4, (3, 3), stride=2, pad=1),
    "conv_f16": conv((1, 3, 4, 8), 8, (3, 3), pad=1, dtype=F16),
}
