"""What engines share that load queries, keys and values in panels by TMA: what they accept, tensor maps, the loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from gpucomp.codegen.c.arguments import plain
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.tma import map_of_matrix
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import var
from gpucomp.ir.size import at_most, is_zero
from gpucomp.ir.types import BF16, F16, F32
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.matrix import Matrix, loaded_matrix
from gpucomp.kernel.forms.operand import count
from gpucomp.kernels_templates.attention.emit import emit_shared, place
from gpucomp.refusal import Refusal
from gpucomp.schedule.space import MAX_GROUPS

if TYPE_CHECKING:
    from gpucomp.kernels_templates.attention.simt.space import AttentionProblem

PANEL = 64  # elements of a row in 128 bytes, the span of the swizzle
ROW_BYTES = 128
STEP = 16  # depth of a product
BARRIER_BYTES = 8
WIDTHS = (16, 32, 48, 64, 96, 128, 192, 256)  # values that a product sums, of those that the prelude has
MOST_BESIDE = 2 * 256  # rows and columns of tiles past the end


class PanelSizes(Protocol):
    """Sizes that engines derive: rows of a work-group, and bytes of a stage of keys and of values."""

    @property
    def tile_m(self) -> int: ...
    @property
    def k_bytes(self) -> int: ...
    @property
    def v_bytes(self) -> int: ...
    @property
    def out_vector(self) -> int: ...
    @property
    def tiles_m(self) -> int: ...


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


def not_by_panels(kernel: Kernel[Attention]) -> str:
    """Why TMA and products of 16 bits cannot compute the kernel; empty if they can."""
    body = kernel.body
    types = {stored(e).dtype for e in (body.q, body.k, body.v)}
    if body.acc.dtype is not F32 or types not in ({F16}, {BF16}):
        return "queries, keys and values of f16, or all of bf16, expected"
    if not all(0 < count(head) <= WIDTHS[-1] for head in (body.depth, body.values)):
        return f"heads of 1 to {WIDTHS[-1]} elements expected"
    axes = (*body.batch, *body.rows, *body.cols)
    if any(is_zero(v.extent) for v in axes) or not all(at_most(1, v.extent) for v in axes):
        return "there may be nothing to multiply"
    if not all(at_most(count(group) + MOST_BESIDE, MAX_GROUPS) for group in (body.batch, body.rows, body.cols)):
        return "rows and columns are counted with 32 bits"
    found = operand_matrices(kernel)
    return found.reason if isinstance(found, Refusal) else ""


def values_pad(p: AttentionProblem) -> int:
    """The values of a row, up to the next width of a product."""
    return next((width for width in WIDTHS if width >= p.values), WIDTHS[-1])


def emit_panels(
    kernel: Kernel[Attention], printer: CPrinter, p: AttentionProblem, derived: PanelSizes, tile_n: int
) -> dict[str, Any]:
    """What templates that include ``attention/panels.j2`` read, with the score and the stores of ``emit_shared``."""
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
        tile_n=tile_n,
        splits=1,
        out_vector=derived.out_vector,
        in_log2=True,
        scaled_once=True,
    )
    to_k, to_v = (f"stage * {stage} + panel * {tile_n} * 128" for stage in (derived.k_bytes, derived.v_bytes))
    return {
        **shared,
        "exp2": "gc_exp2",
        "instruction": dtype.name,
        "tensor_maps": (
            map_of_matrix(q, dtype.name, derived.tile_m, PANEL),
            map_of_matrix(k, dtype.name, tile_n, PANEL),
            map_of_matrix(v, dtype.name, tile_n, PANEL),
        ),
        "maps": ("map_q", "map_k", "map_v"),
        "load_q": _load(q, "q", f"panel * {derived.tile_m * 128}", "full_q", "first_row"),
        "load_k": _load(k, "k", to_k, "full_k + stage", "first_column"),
        "load_v": _load(v, "v", to_v, "full_v + stage", "first_column"),
        "end": "columns" if shared["stops_early"] else str(p.n),
        **place(p, derived.tiles_m),
    }


def _load(form: Matrix, name: str, to: str, barrier: str, row: str) -> str:
    """The load of one panel. Operands that all batches share have no coordinate for the batch."""
    rank, batch = ("3d", ", batch") if form.has_batch else ("2d", "")
    return f"gc_tma_load_{rank}(tile_{name} + {to}, &map_{name}, {barrier}, panel * {PANEL}, {row}{batch});"
