"""What the template of attention on matrix units reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import plain, told
from gpucomp.codegen.c.async_copies import Copy, Walk, copy_loader
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Expr, Var, var
from gpucomp.ir.size import divides
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.operand import count
from gpucomp.kernels_templates.attention.emit import emit_shared, place
from gpucomp.kernels_templates.contraction.fragments import FUNCTIONS

if TYPE_CHECKING:
    from gpucomp.kernels_templates.attention.amd.space import AmdAttentionSizes
    from gpucomp.kernels_templates.attention.mma.space import (
        MmaAttentionProblem,
        MmaAttentionSchedule,
        MmaAttentionSizes,
    )
    from gpucomp.kernels_templates.attention.simt.space import AttentionProblem


BLOCK = 16  # rows and depth of an mma; rows and columns of an ldmatrix


@dataclass(frozen=True, slots=True)
class Copier:
    """What the template reads to copy the tile of one operand asynchronously, with all work-items."""

    name: str
    width: int  # elements per copy, along a row
    pitch: int  # elements from row to row of the tile
    fast: int  # copies per row
    accesses: int  # copies per tile
    steps: int  # copies per work-item
    limit: Any  # the last row: a number, or an ``Argument``
    clamp: bool  # a tile may reach past the last row
    copy: Copy  # the text of one copy

    @property
    def lines(self) -> list[str]:
        """Statements before a copy."""
        return [*self.copy.span_lines, *self.copy.depth_lines, *self.copy.lines]


def emit_mma_attention(
    kernel: Kernel[Attention],
    printer: CPrinter,
    s: MmaAttentionSchedule,
    p: MmaAttentionProblem,
    derived: MmaAttentionSizes,
) -> Mapping[str, Any]:
    """What ``kernels_templates/attention/mma/kernel.j2`` reads; each hook is described there."""
    batch, dtype = var("batch", plain(max(1, p.batch))), stored(kernel.body.q).dtype
    shared = emit_shared(
        kernel,
        printer,
        batch,
        p,
        tile_m=derived.tile_m,
        tile_n=s.tile_n,
        splits=s.splits,
        out_vector=derived.out_vector,
        in_log2=True,
        scaled_once=True,
    )
    return {
        **shared,
        "exp2": "gc_exp2",
        **copiers(kernel, printer, batch, s.tile_n, p, derived),
        "storage": printer.dialect.storage_type(dtype),
        "pair_of": f"gc_pair_of_{dtype.name}",
        "multiply": FUNCTIONS[dtype],
        # the text before a row's number in its warp
        "warp_rows": f"id / 32 * {s.warp_m} + " if s.warps > 1 else "",
        **place(p, derived.tiles_m),
        **walked(s.splits, p, shared["stops_early"]),
    }


def walked(splits: int, p: AttentionProblem, causal: bool) -> dict[str, Any]:
    """The columns that the work-group walks: up to ``seen_to`` for all splits, ``begin`` to ``end`` for its own."""
    seen_to = "columns" if causal else str(p.n)
    begin, end = ("begin", "end") if splits > 1 else ("0", seen_to)
    return {"sees_part": causal, "seen_to": seen_to, "begin": begin, "end": end}


@dataclass(frozen=True, slots=True)
class _Tile:
    """``lines`` rows of one operand in shared memory, ``pitch`` elements apart.

    ``padded`` elements of a row are copied, ``width`` at a time.
    """

    name: str
    value: Expr
    rows: tuple[Var, ...]
    inner: tuple[Var, ...]
    lines: int
    padded: int
    pitch: int
    width: int


def copiers(
    kernel: Kernel[Attention],
    printer: CPrinter,
    batch: Var,
    tile_n: int,
    p: AttentionProblem,
    derived: MmaAttentionSizes | AmdAttentionSizes,
) -> dict[str, Copier]:
    """How work-items copy the tiles of queries, keys and values, by their names."""
    body, d = kernel.body, derived
    tiles = (
        _Tile("q", body.q, body.rows, body.depth, d.tile_m, d.depth_pad, d.pitch, p.q_wide),
        _Tile("k", body.k, body.cols, body.depth, tile_n, d.depth_pad, d.pitch, p.k_wide),
        _Tile("v", body.v, body.cols, body.values, tile_n, d.values_pad, d.v_pitch, p.v_wide),
    )
    return {tile.name: _copier(kernel, printer, tile, batch, d.threads) for tile in tiles}


def _copier(kernel: Kernel[Attention], printer: CPrinter, tile: _Tile, batch: Var, threads: int) -> Copier:
    """How ``threads`` work-items copy ``tile``."""
    extent, depth, width = count(tile.rows), count(tile.inner), tile.width
    at = var("at", tile.padded // width)
    chunks = depth // width if tile.padded != depth else None
    walk = Walk(var("row", extent), at, {at: f"{tile.name}_at"}, chunks, batch)
    axes = tile.rows, tile.inner, kernel.body.batch
    accesses = tile.padded // width * tile.lines
    return Copier(
        name=tile.name,
        width=width,
        pitch=tile.pitch,
        fast=tile.padded // width,
        accesses=accesses,
        steps=-(-accesses // threads),
        limit=told(printer.arguments, extent - 1),
        clamp=not divides(tile.lines, extent),
        copy=copy_loader(kernel, printer, tile.name, tile.value, axes, walk, by_depth=1, width=width, span_steps=1),
    )
