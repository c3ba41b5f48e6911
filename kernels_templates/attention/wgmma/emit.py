"""What the template of attention by warpgroups reads: tensor maps, the loads of panels, the score and the stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.printer import CPrinter
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernels_templates.attention.panels import PanelSizes, emit_panels

if TYPE_CHECKING:
    from gpucomp.kernels_templates.attention.simt.space import AttentionProblem
    from gpucomp.kernels_templates.attention.wgmma.space import WgmmaAttentionSchedule


def emit_wgmma_attention(
    kernel: Kernel[Attention],
    printer: CPrinter,
    s: WgmmaAttentionSchedule,
    p: AttentionProblem,
    derived: PanelSizes,
) -> Mapping[str, Any]:
    """What ``kernels_templates/attention/wgmma/kernel.j2`` reads; each hook is described there."""
    return emit_panels(kernel, printer, p, derived, s.tile_n)
