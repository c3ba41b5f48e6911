"""Kernels whose sizes each run decides, and such a kernel with its source at the sizes of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gpucomp.ir.dim import Dim
from gpucomp.ir.size import size_of, value_at
from gpucomp.ir.types import F16, I8, I32
from gpucomp.kernel import Kernel, example
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from testing.cases.attention_mma import with_math
from testing.kernels import (
    add_relu,
    attention,
    average_pool,
    conv,
    depthwise,
    joined,
    layer_norm,
    matmul,
    max_pool,
    padded,
    reduction,
    scan,
    scatter,
    softmax,
    transposed,
    with_row_statistics,
)

B: Any = size_of(Dim("b", 1, 5), 2)
N: Any = size_of(Dim("n", 1, 300), 70)
M: Any = size_of(Dim("m", 1, 90), 33)
Q: Any = size_of(Dim("q", 4, 96, 4), 48)  # a multiple of 4
H: Any = size_of(Dim("h", 5, 30), 12)
SIZES: tuple[Mapping[str, int], ...] = (
    {"b": 1, "n": 1, "m": 1, "q": 4, "h": 5},
    {"b": 2, "n": 70, "m": 33, "q": 48, "h": 12},
    {"b": 3, "n": 257, "m": 64, "q": 20, "h": 9},
    {"b": 5, "n": 300, "m": 90, "q": 96, "h": 30},
)
CASES: dict[str, Kernel] = {
    "add_relu": add_relu(N, 16),
    "add_relu_open_lanes": add_relu(3, N),
    "add_relu_multiples": add_relu(M, Q),
    "add_relu_f16": add_relu(N, 16, dtype=F16),
    "transposed": transposed(N, M),
    "transposed_into_lanes": transposed(M, 24),
    "padded": padded(N, 3),
    "joined": joined(5, M, 7, Q),
    "softmax": softmax(M, N),
    "softmax_of_multiples": softmax(N, Q),
    "softmax_of_rows_inside": softmax(B, N, 8, axis=1),
    "sum": reduction("sum", 3, N),
    "max_of_rows_inside": reduction("max", Q, N, rows_inside=True),
    "layer_norm": layer_norm(N, 48),
    "max_pool": max_pool((B, H, 14, 8), 3, 2, 1),
    "max_pool_of_open_channels": max_pool((1, 9, H, M), 2, 2, 0),
    "average_pool": average_pool((B, H, H, 8), (3, 3), 1, 1),
    "depthwise": depthwise((B, H, 11, 16), (3, 3), pad=1),
    "depthwise_strided": depthwise((1, 13, H, 8), (5, 3), stride=(2, 2), pad=2),
    "matmul": matmul(N, 36, 40),
    "matmul_with_statistics": with_row_statistics(matmul(N, 48, 40)),
    "matmul_f16_with_statistics": with_row_statistics(matmul(M, 48, 32, batch=(B,), dtype=F16)),
    "matmul_open": matmul(M, N, H),
    "matmul_batched": matmul(M, Q, 20, batch=(B, 3)),
    "matmul_of_open_depth": matmul(33, 24, N),
    "matmul_transposed": matmul(M, 20, Q, a_transposed=True, b_transposed=True),
    "matmul_f16": matmul(N, 24, 32, dtype=F16),
    "matmul_i8": matmul(N, 24, 32, dtype=I8, acc=I32),
    "matmul_f16_open": matmul(M, Q, Q, batch=(B,), dtype=F16, b_transposed=True),
    "matmul_f16_by_rows": matmul(N, 40, 72, batch=(B,), dtype=F16, b_transposed=True),
    "matmul_3xtf32": with_math(matmul(N, 40, 24), "3xtf32"),
    "conv_f16": conv((B, H, 11, 16), 24, (3, 3), pad=1, dtype=F16),
    "row": matmul(1, N, 96),
    "row_of_open_depth": matmul(1, 40, N),
    "column": matmul(N, 1, 96),
    "conv": conv((B, H, 11, 8), 12, (3, 3), pad=1),
    "conv_strided": conv((1, H, H, 3), 8, (5, 3), stride=2, pad=2),
    "conv_planar": conv((B, 9, H, 4), 8, (3, 3), pad=1, nchw=True),
    "attention": attention(M, N, 16, 16),
    "attention_masked": attention(M, Q, 16, 24, mask="add", residual=True),
    "attention_causal": attention(N, N, 16, 16, causal=0),
    "attention_grouped": attention(M, Q, 16, 16, heads=B, group=3, transposed=True),
    "attention_f16": attention(M, N, 16, 32, dtype=F16),
    "attention_3xtf32": with_math(attention(M, N, 16, 16), "3xtf32"),
    "attention_f16_causal": attention(Q, N, 32, 16, causal=3, dtype=F16, residual=True),
    "running_sum": scan("sum", M, N),
    "scatter": scatter((M, 24), (H, 1), "add"),
    "scatter_along_lines": scatter((N, Q), (M, Q), axis=0),
    "running_max_of_rows_inside": scan("max", N, Q, rows_inside=True, reverse=True),
}


def at(kernel: Kernel, sizes: Mapping[str, int]) -> Kernel:
    """``kernel`` at the sizes of one run."""
    return example.at(kernel, lambda size: value_at(size, sizes))


def source_at(source: KernelSource, sizes: Mapping[str, int]) -> tuple[KernelSource, list[np.int64]]:
    """``source`` with the launch of one run, and the numbers that the run gives it."""
    g = source.geometry
    x, y, z = (value_at(n, sizes) for n in g.groups)
    launch = Geometry(
        (x, y, z), g.items, g.dynamic_shared_bytes, value_at(g.workspace_bytes, sizes), value_at(g.counter_bytes, sizes)
    )
    maps = tuple(m.with_numbers([value_at(n, sizes) for n in m.numbers]) for m in source.tensor_maps)
    numbers = [np.int64(one.at(sizes)) for one in source.sizes]
    return replace(source, geometry=launch, tensor_maps=maps), numbers
