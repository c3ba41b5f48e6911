"""Kernels small enough for Oclgrind, which interprets them: the cases of every family, and tiny ones."""

from __future__ import annotations

from dataclasses import replace

from gpucomp.ir.types import BF16, F16, F64, I32
from gpucomp.kernel import Kernel
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.pack_weights import pack
from testing.kernels import attention, conv, depthwise, matmul, stem, transposed, with_row_statistics
from testing.template_cases import CASES

TINY = {
    "odd": matmul(5, 7, 9),
    "aligned": matmul(8, 16, 12),
    "batched": matmul(3, 4, 5, batch=(2, 2)),
    "a_transposed": matmul(8, 5, 7, a_transposed=True),
    "b_transposed": matmul(3, 8, 12, b_transposed=True),
    "row": matmul(1, 9, 11),
    "row_along": matmul(2, 7, 12, b_transposed=True),
    "column": matmul(9, 1, 5),
    "one": matmul(1, 1, 1),
    "no_depth": matmul(2, 3, 0),
    "f16": matmul(5, 8, 8, dtype=F16),
    "bf16": matmul(5, 8, 8, dtype=BF16),
    "f64": matmul(5, 6, 7, dtype=F64, acc=F64),
    "i32": matmul(5, 6, 7, dtype=I32, acc=I32),
    "rows": with_row_statistics(matmul(5, 11, 9)),
    "conv": conv((1, 3, 5, 4), 5, (3, 3), pad=1),
    "conv_stem": conv((1, 5, 7, 3), 4, (3, 3), stride=2, pad=1),
    "conv_nchw": conv((1, 5, 3, 2), 3, (3, 3), pad=1, nchw=True),
    "depthwise": depthwise((1, 3, 5, 4), (3, 3), pad=1),
    "depthwise_stride": depthwise((2, 5, 4, 6), (3, 2), stride=(2, 1), dilation=(1, 2), pad=1),
    "transpose": transposed(9, 11),
    "attention": attention(5, 6, 4, 3, heads=1, mask="bool"),
    "attention_causal": attention(5, 5, 4, 4, heads=1, causal=0, residual=True),
}
FILTERS = {"filters": replace(conv((1, 5, 7, 4), 6, (3, 3), pad=1), constants=frozenset({1}))}
# their filters as the engine has them: taps, then columns filled up to those of a tile
STEMS = {
    "stem-planar": pack(
        stem((1, 5, 8, 3), 7, (3, 3), stride=2, pad=1), Packing("b", (Digit("k", 1, 27), Digit("span", 1, 8)))
    ).kernel,
    "stem-channels-last": pack(
        stem((2, 5, 6, 2), 7, (3, 2), pad=1, planar=False), Packing("b", (Digit("k", 1, 12), Digit("span", 1, 8)))
    ).kernel,
}
KERNELS: dict[str, Kernel] = CASES | FILTERS | STEMS | {f"tiny-{name}": kernel for name, kernel in TINY.items()}
