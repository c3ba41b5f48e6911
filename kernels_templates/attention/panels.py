"""What engines share that load queries, keys and values in panels by TMA: what they accept, sizes, tensor maps, the loads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import plain
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.tma import map_of_matrix
from gpucomp.device.limits import Limits, register_share
from gpucomp.device.lockstep import least, most
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import var
from gpucomp.ir.size import at_most, is_zero
from gpucomp.ir.types import BF16, F16, F32
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.matrix import Matrix, loaded_matrix
from gpucomp.kernel.forms.operand import count
from gpucomp.kernel.sizes import Sizes, Tunables
from gpucomp.kernels_templates.attention.emit import emit_shared, place
from gpucomp.refusal import Refusal
from gpucomp.schedule.space import MAX_GROUPS, WARP, too_many_groups

if TYPE_CHECKING:
    from gpucomp.kernels_templates.attention.simt.space import AttentionProblem

GROUP = 128  # threads of a warpgroup
PANEL = 64  # elements of a row in 128 bytes, the span of the swizzle
ROW_BYTES = 128
STEP = 16  # depth of a product
BARRIER_BYTES = 8
WIDTHS = (16, 32, 48, 64, 96, 128, 192, 256)  # values that a product sums, of those that the prelude has
MOST_BESIDE = 2 * 256  # rows and columns of tiles past the end


class PanelSchedule(Tunables):
    """What the schedules of all such engines have."""

    consumers: int
    tile_n: int
    stages: int


class PanelSizes(Sizes):
    threads: int
    workers: int  # threads of the consumers
    tile_m: int
    depth_steps: int  # products of a row of queries and a key, 16 deep each
    depth_panels: int  # 128 bytes of a row each
    value_panels: int
    values_pad: int  # sums of a row
    q_bytes: int  # of the tile of queries; of one stage of keys, and of values
    k_bytes: int
    v_bytes: int
    trades: int  # 1: the threads beside the consumers are of a warpgroup that gives registers to these
    given: int
    taken: int
    out_vector: int
    tiles_m: int
    tiles: int


def panel_sizes(
    s: PanelSchedule, p: AttentionProblem, *, rows: int, beside: int, needed: int, trade: tuple[int, int], run: int
) -> dict[str, Any]:
    """The numbers of ``PanelSizes``.

    A consumer has so many ``rows``. ``beside`` it are so many warps, which are a warpgroup if consumers have ``needed`` registers
    and a launch has fewer; then their threads keep and take those of ``trade``. ``run``: most values that a work-item stores.
    """
    tile_m, workers = rows * s.consumers, GROUP * s.consumers
    depth_panels, value_panels = -(-p.depth // PANEL), -(-p.values // PANEL)
    tiles_m = -(-p.m // tile_m)
    trades = int(needed > launch_registers(s, beside))
    return {
        "threads": workers + (GROUP if trades else beside * WARP),
        "workers": workers,
        "tile_m": tile_m,
        "depth_steps": -(-p.depth // STEP),
        "depth_panels": depth_panels,
        "value_panels": value_panels,
        "values_pad": values_pad(p),
        "q_bytes": depth_panels * tile_m * ROW_BYTES,
        "k_bytes": depth_panels * s.tile_n * ROW_BYTES,
        "v_bytes": value_panels * s.tile_n * ROW_BYTES,
        "trades": trades,
        "given": trade[0],
        "taken": trade[1],
        "out_vector": least(run, p.out_wide),
        "tiles_m": most(1, tiles_m),
        "tiles": tiles_m * p.batch,
    }


def launch_registers(s: PanelSchedule, beside: int) -> int:
    """The registers that every thread starts with if one work-group with ``beside`` warps besides its consumers is on a unit."""
    return int(least(255, register_share(GROUP * s.consumers + beside * WARP)))


def panel_objections(
    s: PanelSchedule, d: PanelSizes, limits: Limits, *, beside: int, needed: int, shared: int
) -> Iterator[str]:
    """Why a device cannot run the schedule, whose consumers need so many registers, with so many bytes of shared memory."""
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if shared > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    there = d.taken if d.trades else launch_registers(s, beside)
    if needed > there:
        yield f"about {needed} registers per work-item, there are {there}"
    yield from too_many_groups(d.tiles)


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
