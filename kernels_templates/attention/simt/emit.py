"""What the template of attention without matrix units reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import plain, told
from gpucomp.codegen.c.emit import Emitter
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Expr, Var, call, cast, index, literal, select, substitute, var
from gpucomp.ir.extremes import largest
from gpucomp.ir.size import divides
from gpucomp.ir.types import F32
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.access import Rewriter, parts_within, regroup
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import count, places
from gpucomp.kernels_templates.attention.emit import emit_shared

if TYPE_CHECKING:
    from gpucomp.kernels_templates.attention.simt.space import (
        AttentionProblem,
        SimtAttentionSchedule,
        SimtAttentionSizes,
    )


@dataclass(frozen=True, slots=True)
class _Tile:
    """``lines`` rows of one operand in shared memory, each of ``padded`` elements, loaded ``width`` at a time."""

    name: str
    value: Expr
    rows: tuple[Var, ...]
    inner: tuple[Var, ...]
    lines: int
    padded: int
    inside: bool  # an access runs along a row, else from row to row
    wide: int  # most elements of an access

    @property
    def width(self) -> int:
        """Elements of an access."""
        return math.gcd(self.wide, self.padded if self.inside else self.lines)

    @property
    def row_width(self) -> int:
        """Rows that an access touches."""
        return 1 if self.inside else self.width

    @property
    def inner_width(self) -> int:
        """Elements of a row that an access touches."""
        return self.width if self.inside else 1

    @property
    def extent(self) -> Any:
        """Rows of the whole operand: a number, or a size that each run decides."""
        return largest(1, count(self.rows))

    @property
    def accesses(self) -> tuple[int, int]:
        """Accesses along the direction in which they run, and lines of such accesses."""
        across = self.padded // self.inner_width, self.lines // self.row_width
        return across if self.inside else (across[1], across[0])


@dataclass(frozen=True, slots=True)
class Loader:
    """What the template reads to load the tile of one operand, with all work-items."""

    name: str
    inside: bool  # an access runs along a row, else from row to row
    width: int  # elements of an access
    row_width: int  # rows of an access
    fast: int  # accesses along the direction in which they run
    slow: int  # lines of such accesses
    steps: int  # accesses of a work-item
    limit: Any  # the last row: a number, or an ``Argument``
    clamp: bool  # a tile may reach past the last row
    batch_lines: Sequence[str]  # statements that depend on the batch alone; they come first
    head: Sequence[str]  # other statements of an access, before those of its lanes
    lane_lines: Sequence[str]  # statements of each lane
    value: str
    place: str  # place of a lane's value in shared memory

    @property
    def accesses(self) -> int:
        return self.fast * self.slow


def emit_attention(
    kernel: Kernel[Attention],
    printer: CPrinter,
    s: SimtAttentionSchedule,
    p: AttentionProblem,
    derived: SimtAttentionSizes,
) -> Mapping[str, Any]:
    """What ``kernels_templates/attention/simt/kernel.j2`` reads; each hook is described there."""
    batch = var("batch", plain(max(1, p.batch)))
    shared = emit_shared(
        kernel,
        printer,
        batch,
        p,
        tile_m=s.tile_m,
        tile_n=s.tile_n,
        splits=s.splits,
        out_vector=derived.out_vector,
    )
    tiles = _tiles(kernel.body, s, p, derived)
    return {
        **shared,
        **{tile.name: _loader(kernel, printer, tile, batch, derived.threads, bool(derived.alone)) for tile in tiles},
    }


def _tiles(
    body: Attention, s: SimtAttentionSchedule, p: AttentionProblem, derived: SimtAttentionSizes
) -> tuple[_Tile, ...]:
    """The tiles of queries, keys and values."""

    q_inside, k_inside, v_inside = (bool(inside) for inside in (p.q_inside, p.k_inside, p.v_inside))
    return (
        _Tile("q", body.q, body.rows, body.depth, s.tile_m, derived.depth_pad, q_inside, p.q_wide),
        _Tile("k", body.k, body.cols, body.depth, s.tile_n, derived.depth_pad, k_inside, p.k_wide),
        _Tile("v", body.v, body.cols, body.values, s.tile_n, derived.values_pad, v_inside, p.v_wide),
    )


def _loader(kernel: Kernel[Attention], printer: CPrinter, tile: _Tile, batch: Var, threads: int, alone: bool) -> Loader:
    """How ``threads`` work-items load ``tile``, with the statements of one access."""
    name = tile.name
    row, at = var("row", largest(1, tile.extent // tile.row_width)), var("at", tile.padded // tile.inner_width)
    lane = var(LANE, tile.width)
    element = _element(kernel, tile, batch, row, at, lane)
    known: dict[Expr, str] = {batch: "batch"}
    batch_lines, names = Emitter(printer, known, prefix=f"{name}b").named(parts_within([element], frozenset({batch})))
    known |= names | {row: f"{name}_row", at: f"{name}_at"}
    lane_lines: list[str] = []
    if tile.width > 1:
        known[lane] = LANE
        head, lane_lines, (text,) = Emitter(printer, known, prefix=f"{name}e").lanes([element], lane, tile.width)
    else:
        head, (text,) = Emitter(printer, known, prefix=f"{name}e").values([element])
    fast, slow = tile.accesses
    return Loader(
        name=name,
        inside=tile.inside,
        width=tile.width,
        row_width=tile.row_width,
        fast=fast,
        slow=slow,
        steps=-(-fast * slow // threads),
        limit=told(printer.arguments, tile.extent // tile.row_width - 1),
        clamp=not divides(tile.lines, tile.extent),
        batch_lines=batch_lines,
        head=head,
        lane_lines=lane_lines,
        value=text,
        place=_place(tile, alone),
    )


def _place(tile: _Tile, alone: bool) -> str:
    """The place of a lane's value in the tile. A lone work-item keeps keys along their head, for its vectors."""
    line, at = "line", f"{tile.name}_at"
    if tile.width > 1 and tile.inside:
        at = f"{at} * {tile.width} + {LANE}"
    elif tile.width > 1:
        line = f"line * {tile.width} + {LANE}"
    return f"tile_k[{at}][{line}]" if tile.name == "k" and alone else f"tile_{tile.name}[{line}][{at}]"


def _element(kernel: Kernel[Attention], tile: _Tile, batch: Var, row: Var, at: Var, lane: Var) -> Expr:
    """The element in lane ``lane`` of access ``at`` of a row; 0 in the padding of the row."""
    depth = max(1, count(tile.inner))
    flat_row, flat_at = var("flat_row", tile.extent), var("flat_at", tile.padded)
    placed = {**lanes_of(flat_row, row, lane, tile.row_width), **lanes_of(flat_at, at, lane, tile.inner_width)}
    axes = places(tile.rows, flat_row) | places(tile.inner, flat_at) | places(kernel.body.batch, batch)
    element = Rewriter(kernel.params, {a: substitute(e, placed) for a, e in axes.items()})(cast(tile.value, F32))
    if tile.padded != depth:
        element = select(call("lt", at, index(depth // tile.inner_width)), element, literal(0, F32))
    return regroup(element, (frozenset({batch}), frozenset({row})))
