"""Kernels: one launch each, described by what it computes. ``partition`` makes them of a graph.

``gpucomp.lowering.KERNEL_PASSES`` has the passes that rewrite them, in order.
"""

from gpucomp.kernel.body import (
    Attention,
    Blocks,
    Contraction,
    Loops,
    Math,
    Rowwise,
    Scan,
    Scatter,
    Separable,
    Statistic,
    Store,
    Tail,
    Window,
)
from gpucomp.kernel.ir import HANDED, Body, Chain, Kernel, Link, format_kernel
from gpucomp.kernel.rename import canonical, rename
from gpucomp.kernel.step import HostStep, KernelStep, Step

__all__ = [
    "HANDED",
    "Attention",
    "Blocks",
    "Body",
    "Chain",
    "Contraction",
    "HostStep",
    "Kernel",
    "KernelStep",
    "Link",
    "Loops",
    "Math",
    "Rowwise",
    "Scan",
    "Scatter",
    "Separable",
    "Statistic",
    "Step",
    "Store",
    "Tail",
    "Window",
    "canonical",
    "format_kernel",
    "rename",
]
