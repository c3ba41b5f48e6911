"""Kernels of tests/kernels_templates/test_nvrtc.py, each with what is special about it."""

from gpucomp.ir.types import F16
from gpucomp.kernel import Kernel
from testing.kernels import conv, matmul, max_pool, reduction, softmax

REAL: dict[str, Kernel] = {
    "stem": conv((1, 224, 224, 3), 64, (7, 7), stride=2, pad=3),
    "wide": conv((1, 56, 56, 64), 64, (3, 3), pad=1),
    "deep": conv((1, 7, 7, 512), 512, (3, 3), pad=1),
    "nchw": conv((1, 28, 28, 128), 128, (3, 3), pad=1, nchw=True),
    "classifier": matmul(1, 1000, 2048),
    "large": matmul(2048, 2048, 2048),
    "half": matmul(512, 512, 512, dtype=F16),
    "softmax": softmax(12, 128, 128),
    "layer": softmax(128, 3072),
    "mean": reduction("sum", 2048, 49, rows_inside=True),
    "pool": max_pool((1, 112, 112, 64), 3, 2, 1),
}
