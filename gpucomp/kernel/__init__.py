"""Kernels: each is one launch, described by what it computes. ``partition`` turns a graph into kernels.

``gpucomp.lowering.KERNEL_PASSES`` lists the passes that rewrite them, in order.
"""

from gpucomp.kernel.body import (
    Attention,
    Contraction,
    Loops,
    Math,
    RowStatistics,
    Rowwise,
    Scan,
    Scatter,
    Separable,
    Statistic,
    Store,
    TileTransform,
    Window,
)
from gpucomp.kernel.ir import HANDED, Body, FusedLayer, FusedLayers, Kernel, format_kernel, is_kernel_of, kernel_of
from gpucomp.kernel.rename import canonical, rename
from gpucomp.kernel.step import HostStep, KernelStep, RepeatStep, Step, is_step_of

__all__ = [
    "HANDED",
    "Attention",
    "Body",
    "Contraction",
    "FusedLayer",
    "FusedLayers",
    "HostStep",
    "Kernel",
    "KernelStep",
    "Loops",
    "Math",
    "RepeatStep",
    "RowStatistics",
    "Rowwise",
    "Scan",
    "Scatter",
    "Separable",
    "Statistic",
    "Step",
    "Store",
    "TileTransform",
    "Window",
    "canonical",
    "format_kernel",
    "is_kernel_of",
    "is_step_of",
    "kernel_of",
    "rename",
]
