"""What each family's template is given besides numbers: types and blocks of statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c.printer import CPrinter
from gpucomp.kernel import Kernel
from gpucomp.kernels_templates.attention.mma.emit import mma_attention_hooks
from gpucomp.kernels_templates.attention.simt.emit import attention_hooks
from gpucomp.kernels_templates.blocks.emit import blocks_hooks
from gpucomp.kernels_templates.contraction.amd.emit import amd_hooks
from gpucomp.kernels_templates.contraction.gemv.emit import gemv_hooks
from gpucomp.kernels_templates.contraction.mali.emit import mali_hooks
from gpucomp.kernels_templates.contraction.mma.emit import mma_hooks
from gpucomp.kernels_templates.contraction.separable_mma.emit import separable_mma_hooks
from gpucomp.kernels_templates.contraction.separable_simt.emit import separable_simt_hooks
from gpucomp.kernels_templates.contraction.simt.emit import contraction_hooks
from gpucomp.kernels_templates.contraction.stem_mma.emit import stem_mma_hooks
from gpucomp.kernels_templates.contraction.stem_simt.emit import stem_simt_hooks
from gpucomp.kernels_templates.contraction.wgmma.emit import wgmma_hooks
from gpucomp.kernels_templates.contraction.winograd.emit import winograd_hooks
from gpucomp.kernels_templates.depthwise.emit import depthwise_hooks
from gpucomp.kernels_templates.loops.emit import loops_hooks
from gpucomp.kernels_templates.loops.transpose.emit import transpose_hooks
from gpucomp.kernels_templates.pool.emit import pool_hooks
from gpucomp.kernels_templates.rowwise.emit import rowwise_hooks
from gpucomp.kernels_templates.scan.emit import scan_hooks
from gpucomp.kernels_templates.scatter.emit import scatter_hooks

Hooks = Callable[[Kernel, CPrinter, SimpleNamespace, SimpleNamespace, SimpleNamespace], Mapping[str, Any]]


# by the title of the family
HOOKS: Mapping[str, Hooks] = {
    "loops": loops_hooks,
    "blocks": blocks_hooks,
    "contraction/amd": amd_hooks,
    "contraction/mali": mali_hooks,
    "contraction/mma": mma_hooks,
    "contraction/separable_mma": separable_mma_hooks,
    "contraction/separable_simt": separable_simt_hooks,
    "contraction/simt": contraction_hooks,
    "contraction/stem_mma": stem_mma_hooks,
    "contraction/stem_simt": stem_simt_hooks,
    "contraction/wgmma": wgmma_hooks,
    "contraction/winograd": winograd_hooks,
    "contraction/gemv": gemv_hooks,
    "rowwise": rowwise_hooks,
    "scan": scan_hooks,
    "scatter": scatter_hooks,
    "pool": pool_hooks,
    "pool/window": depthwise_hooks,
    "depthwise": depthwise_hooks,
    "loops/transpose": transpose_hooks,
    "attention/simt": attention_hooks,
    "attention/mma": mma_attention_hooks,
}
