"""What each family's template is given besides numbers: types and blocks of statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.amd import amd_hooks
from gpucomp.codegen.attention import attention_hooks, mma_attention_hooks
from gpucomp.codegen.blocks import blocks_hooks
from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.contraction import contraction_hooks
from gpucomp.codegen.depthwise import depthwise_hooks
from gpucomp.codegen.gemv import gemv_hooks
from gpucomp.codegen.mali import mali_hooks
from gpucomp.codegen.mma import mma_hooks
from gpucomp.codegen.pointwise import loops_hooks, pool_hooks
from gpucomp.codegen.rowwise import rowwise_hooks
from gpucomp.codegen.scan import scan_hooks
from gpucomp.codegen.scatter import scatter_hooks
from gpucomp.codegen.separable import separable_mma_hooks, separable_simt_hooks
from gpucomp.codegen.stem import stem_mma_hooks, stem_simt_hooks
from gpucomp.codegen.transpose import transpose_hooks
from gpucomp.codegen.wgmma import wgmma_hooks
from gpucomp.codegen.winograd import winograd_hooks
from gpucomp.kernel import Kernel

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
