"""Kernels of tests/kernels_templates/test_awaited_loads.py, each with what is special about it."""

from dataclasses import replace

from gpucomp.ir.types import F16
from gpucomp.kernel import Kernel
from testing.kernels import add_relu, attention, conv, matmul

CONV = replace(conv((1, 7, 9, 136), 72, (1, 1), dtype=F16), constants=frozenset({1}))  # with a residual

WIDE = {"tile_n": 96, "stages": 3}

KERNELS: dict[str, tuple[str, Kernel, dict[str, int]]] = {  # engine, kernel, schedule beside the default
    "loops": ("loops", add_relu(64, 130, 68), {}),
    "gemv": ("contraction/gemv", matmul(1, 100, 33), {}),
    "mma": ("contraction/mma", CONV, {}),
    "wgmma": ("contraction/wgmma", CONV, WIDE | {"overlap": 1}),
    "weights_early": ("contraction/wgmma", CONV, WIDE | {"overlap": 2}),
    "attention": ("attention/mma", attention(17, 21, 16, 16, residual=True, dtype=F16), {}),
}
