"""Kernels: one launch each, described by what it computes. ``pipeline`` makes them of a graph and rewrites them."""

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
