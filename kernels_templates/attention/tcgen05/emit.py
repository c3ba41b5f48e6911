"""What the template of attention in tensor memory reads: tensor maps, the loads of panels, the score and the stores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import plus
from gpucomp.ir.types import F32
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernels_templates.attention.panels import emit_panels

if TYPE_CHECKING:
    from gpucomp.kernels_templates.attention.simt.space import AttentionProblem
    from gpucomp.kernels_templates.attention.tcgen05.space import Tcgen05AttentionSchedule, Tcgen05AttentionSizes

SLACK = 8.0  # binary orders that a weight may be above 1. FlashAttention-4 has the same; f16 has sixteen


def emit_tcgen05_attention(
    kernel: Kernel[Attention],
    printer: CPrinter,
    s: Tcgen05AttentionSchedule,
    p: AttentionProblem,
    derived: Tcgen05AttentionSizes,
) -> Mapping[str, Any]:
    """What ``kernels_templates/attention/tcgen05/kernel.j2`` reads; each hook is described there."""
    found = emit_panels(kernel, printer, p, derived, s.tile_n)
    slack = SLACK if found["in_log2"] else SLACK * math.log(2)
    return {**found, "slack": printer.dialect.literal(slack, F32), "plus": plus}
