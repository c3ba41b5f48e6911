"""Kernels of tests/kernels_templates/test_wgmma_space.py, each with what is special about it."""

from gpucomp.ir.types import BF16, F16, I8, I32
from testing.kernels import matmul
from testing.wgmma_kernels import constant_b, image, with_math

LARGE = matmul(4096, 4096, 4096, dtype=F16, b_transposed=True)

REAL = {
    "large": LARGE,
    "classifier": constant_b(matmul(1, 1000, 2048, dtype=F16)),
    "1x1": image((1, 14, 14, 1024), 256, (1, 1), dtype=F16),
    "deep": image((1, 7, 7, 512), 512, (3, 3), pad=1, dtype=F16),
    "wide": image((1, 56, 56, 64), 64, (3, 3), pad=1, dtype=F16),
    "strided": image((1, 56, 56, 128), 128, (3, 3), stride=2, pad=1, dtype=BF16),
    "tf32": with_math(matmul(512, 768, 768, b_transposed=True)),
    "i8": matmul(512, 512, 512, dtype=I8, acc=I32, b_transposed=True),
}
