"""What the template of attention on matrix units is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.copies import Copy, Walk, copy_loader
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Expr, Var, var
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.operand import count
from gpucomp.kernels_templates.attention.emit import shared_hooks
from gpucomp.kernels_templates.contraction.fragments import FUNCTIONS

if TYPE_CHECKING:
    from gpucomp.kernels_templates.attention.mma.space import (
        MmaAttentionProblem,
        MmaAttentionSchedule,
        MmaAttentionSizes,
    )


@dataclass(frozen=True, slots=True)
class Copier:
    """What the template reads to copy the tile of one operand asynchronously, by all work-items."""

    name: str
    width: int  # elements of a copy, along a row
    pitch: int  # elements from row to row of the tile
    fast: int  # copies of a row
    accesses: int  # copies of the tile
    steps: int  # copies of a work-item
    limit: int  # the last row
    clamp: bool  # a tile may reach past the last row
    copy: Copy  # the text of one copy


def mma_attention_hooks(
    kernel: Kernel, printer: CPrinter, s: MmaAttentionSchedule, p: MmaAttentionProblem, derived: MmaAttentionSizes
) -> Mapping[str, Any]:
    """See ``kernels_templates/attention/mma/kernel.j2`` for what each hook is."""
    body = kernel.body_as(Attention)
    batch, threads = var("batch", max(1, p.batch)), derived.threads
    dtype = stored(body.q).dtype
    q = _Tile("q", body.q, body.rows, body.depth, derived.tile_m, derived.depth_pad, derived.pitch, p.q_wide)
    k = _Tile("k", body.k, body.cols, body.depth, s.tile_n, derived.depth_pad, derived.pitch, p.k_wide)
    v = _Tile("v", body.v, body.cols, body.values, s.tile_n, derived.values_pad, derived.v_pitch, p.v_wide)
    return {
        **shared_hooks(kernel, printer, batch, s, p, tile_m=derived.tile_m, out_vector=derived.out_vector),
        "exp2": "gc_exp2",
        **{tile.name: _copier(kernel, printer, tile, batch, threads) for tile in (q, k, v)},
        "storage": printer.dialect.storage_type(dtype),
        "narrow": printer.dialect.narrow.get(dtype, ""),
        "multiply": FUNCTIONS[dtype],
    }


@dataclass(frozen=True, slots=True)
class _Tile:
    """``lines`` rows of one operand in shared memory, ``pitch`` elements apart, ``padded`` of them copied by ``width``."""

    name: str
    value: Expr
    rows: tuple[Var, ...]
    inner: tuple[Var, ...]
    lines: int
    padded: int
    pitch: int
    width: int


def _copier(kernel: Kernel, printer: CPrinter, tile: _Tile, batch: Var, threads: int) -> Copier:
    """How ``threads`` work-items copy ``tile``."""
    extent, depth, width = count(tile.rows), count(tile.inner), tile.width
    at = var("at", tile.padded // width)
    chunks = depth // width if tile.padded != depth else None
    walk = Walk(var("row", extent), at, {at: f"{tile.name}_at"}, chunks, batch)
    axes = tile.rows, tile.inner, kernel.body_as(Attention).batch
    accesses = tile.padded // width * tile.lines
    return Copier(
        name=tile.name,
        width=width,
        pitch=tile.pitch,
        fast=tile.padded // width,
        accesses=accesses,
        steps=-(-accesses // threads),
        limit=extent - 1,
        clamp=extent % tile.lines != 0,
        copy=copy_loader(kernel, printer, tile.name, tile.value, axes, walk, by_depth=1, width=width, span_steps=1),
    )
