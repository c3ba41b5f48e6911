"""Text for the ``wgmma`` engine: warpgroups multiply, and have the sums in registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import plus
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernels_templates.contraction.tma_emit import Sums, emit_tiles
from gpucomp.kernels_templates.contraction.tma_space import TileProblem
from gpucomp.kernels_templates.contraction.tma_types import kind_of

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.wgmma.space import WgmmaSchedule, WgmmaSizes

ROWS = 64  # rows per block of sums


def emit_wgmma(
    kernel: Kernel[Contraction], printer: CPrinter, s: WgmmaSchedule, p: TileProblem, derived: WgmmaSizes
) -> Mapping[str, Any]:
    """What ``kernels_templates/contraction/wgmma/kernel.j2`` reads; each hook is described there."""
    held = Sums(s.consumers, derived.blocks, warp_rows=16, block_rows=ROWS, box_rows=ROWS)
    mine = f"id / 128 * {derived.blocks * ROWS * 128}" if s.consumers > 1 else 0
    tiles = emit_tiles(kernel, printer, s, p, derived, held, kind_of(kernel))
    return {
        **tiles,
        "zero": printer.dialect.literal(0, kernel.body.acc.dtype),
        "my_rows": plus("shared", mine),
        "left": f"{tiles['end']} - {tiles['begin']}" if s.splits > 1 else tiles["end"],
    }
