"""What the template of attention by warpgroups reads: tensor maps, the loads of panels, the score and the stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import plain
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.tma import map_of_matrix
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import var
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.matrix import Matrix, loaded_matrix
from gpucomp.kernels_templates.attention.emit import emit_shared, place
from gpucomp.refusal import Refusal

if TYPE_CHECKING:
    from gpucomp.kernels_templates.attention.simt.space import AttentionProblem
    from gpucomp.kernels_templates.attention.wgmma.space import WgmmaAttentionSchedule, WgmmaAttentionSizes

PANEL = 64  # elements of a row in 128 bytes, the span of the swizzle


def operand_matrices(kernel: Kernel[Attention]) -> tuple[Matrix, Matrix, Matrix] | Refusal:
    """Queries, keys and values as matrices that tensor maps describe, or why one of them is none."""
    body = kernel.body
    q = loaded_matrix(kernel, body.q, (body.batch, body.rows, body.depth), "q")
    k = loaded_matrix(kernel, body.k, (body.batch, body.cols, body.depth), "k")
    v = loaded_matrix(kernel, body.v, (body.batch, body.cols, body.values), "v")
    if isinstance(q, Refusal):
        return q
    if isinstance(k, Refusal):
        return k
    return v if isinstance(v, Refusal) else (q, k, v)


def emit_wgmma_attention(
    kernel: Kernel[Attention],
    printer: CPrinter,
    s: WgmmaAttentionSchedule,
    p: AttentionProblem,
    derived: WgmmaAttentionSizes,
) -> Mapping[str, Any]:
    """What ``kernels_templates/attention/wgmma/kernel.j2`` reads; each hook is described there."""
    forms = operand_matrices(kernel)
    if isinstance(forms, Refusal):
        raise ScheduleError(f"{kernel.label or kernel.family}: {forms.reason}", code="GPC8001")
    q, k, v = forms
    dtype = stored(kernel.body.q).dtype
    shared = emit_shared(
        kernel,
        printer,
        var("batch", plain(max(1, p.batch))),
        p,
        tile_m=derived.tile_m,
        tile_n=s.tile_n,
        splits=1,
        out_vector=derived.out_vector,
        in_log2=True,
        scaled_once=True,
    )
    at = {"tile_n": s.tile_n, "stage_k": derived.k_bytes, "stage_v": derived.v_bytes}
    return {
        **shared,
        "exp2": "gc_exp2",
        "instruction": dtype.name,
        "narrow": printer.dialect.narrow[dtype],
        "tensor_maps": (
            map_of_matrix(q, dtype.name, derived.tile_m, PANEL),
            map_of_matrix(k, dtype.name, s.tile_n, PANEL),
            map_of_matrix(v, dtype.name, s.tile_n, PANEL),
        ),
        "maps": ("map_q", "map_k", "map_v"),
        "load_q": _load(q, "q", f"panel * {derived.tile_m * 128}", "full_q", "first_row"),
        "load_k": _load(
            k, "k", "stage * {stage_k} + panel * {tile_n} * 128".format(**at), "full_k + stage", "first_column"
        ),
        "load_v": _load(
            v, "v", "stage * {stage_v} + panel * {tile_n} * 128".format(**at), "full_v + stage", "first_column"
        ),
        "end": "columns" if shared["stops_early"] else str(p.n),
        **place(p, derived.tiles_m),
    }


def _load(form: Matrix, name: str, to: str, barrier: str, row: str) -> str:
    """The load of one panel. Operands that all batches share have no coordinate for the batch."""
    rank, batch = ("3d", ", batch") if form.has_batch else ("2d", "")
    return f"gc_tma_load_{rank}(tile_{name} + {to}, &map_{name}, {barrier}, panel * {PANEL}, {row}{batch});"
