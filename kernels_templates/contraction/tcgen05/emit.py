"""Text for the ``tcgen05`` engine: one thread multiplies, and the sums are in tensor memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import plus
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernels_templates.contraction.tma_emit import Sums, emit_tiles
from gpucomp.kernels_templates.contraction.tma_space import PAIR, TileProblem
from gpucomp.kernels_templates.contraction.tma_types import kind_of

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.tcgen05.space import Tcgen05Schedule, Tcgen05Sizes


def emit_tcgen05(
    kernel: Kernel[Contraction], printer: CPrinter, s: Tcgen05Schedule, p: TileProblem, derived: Tcgen05Sizes
) -> Mapping[str, Any]:
    """What ``kernels_templates/contraction/tcgen05/kernel.j2`` reads; each hook is described there."""
    # a warp reaches 32 lanes, 16 of which have rows if a product has 64
    held = Sums(
        derived.consumers,
        derived.blocks,
        warp_rows=16 * derived.blocks,
        block_rows=16,
        box_rows=derived.product_m,
        chunk=derived.chunk,
    )
    mine = f"id / 128 * {derived.product_columns}" if derived.consumers > 1 else 0
    tiles, pair = emit_tiles(kernel, printer, s, p, derived, held, kind_of(kernel)), s.multicast == PAIR
    several = s.turns > 1
    buffer = f"turn % 2 * {derived.buffer}" if several else 0
    return {
        **tiles,
        "turns": s.turns,
        "stores_meet": tiles["workers_meet"] if several else tiles["stores_meet"],
        # both work-groups of a pair leave the sums of one tile before the first one asks for those of the next but one
        "arrive_left": f"gc_mbarrier_arrive{'_cluster(left + turn % 2, 0)' if pair else '(left + turn % 2)'}",
        "idle": derived.steps_per_split * (s.splits - 1) >= derived.steps,
        "instruction": f"{tiles['instruction']}_pair" if pair else tiles["instruction"],
        "size": f"{s.tile_n}" if pair else f"{derived.product_m}, {s.tile_n}",
        "my_sums": plus("sums_at", buffer, "(id / 32 % 4 << 21)", mine),  # its warp's 32 lanes
    }
