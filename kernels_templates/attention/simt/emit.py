"""What the template of attention on plain units is given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c.emit import Emitter
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Expr, Var, call, cast, index, literal, select, substitute, var
from gpucomp.ir.types import F32
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.access import Rewriter, parts_within, regroup
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import count, places
from gpucomp.kernels_templates.attention.emit import shared_hooks


def attention_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/attention/simt/kernel.j2`` for what each hook is."""
    batch = var("batch", max(1, p.batch))
    return {
        **shared_hooks(kernel, printer, batch, s, p, derived),
        "q": _loader(kernel, printer, "q", batch, s, p, derived),
        "k": _loader(kernel, printer, "k", batch, s, p, derived),
        "v": _loader(kernel, printer, "v", batch, s, p, derived),
    }


def _loader(
    kernel: Kernel,
    printer: CPrinter,
    name: str,
    batch: Var,
    s: SimpleNamespace,
    p: SimpleNamespace,
    derived: SimpleNamespace,
) -> SimpleNamespace:
    """One operand's tile, ``tile`` rows of ``padded`` elements, loaded by all work-items.

    inside      an access of ``width`` elements runs along a row; else from row to row
    fast, slow  accesses along that direction, and how many such lines of them there are
    steps       accesses per work-item; ``guard``: the last of them is not for all
    limit       the last row, where ``clamp`` says that a tile may reach past it
    batch_lines what depends on the batch alone, in front of all
    head        the rest of one access, in front of its lanes; ``lane_lines``, ``value``: of each lane
    """
    body = kernel.body_as(Attention)
    value, rows, inner, tile, padded = {
        "q": (body.q, body.rows, body.depth, s.tile_m, derived.depth_pad),
        "k": (body.k, body.cols, body.depth, s.tile_n, derived.depth_pad),
        "v": (body.v, body.cols, body.values, s.tile_n, derived.values_pad),
    }[name]
    inside = getattr(p, f"{name}_inside")
    width = math.gcd(getattr(p, f"{name}_wide"), padded if inside else tile)
    row_width, inner_width = (1, width) if inside else (width, 1)
    extent, depth = max(1, count(rows)), max(1, count(inner))
    row, at, lane = var("row", max(1, extent // row_width)), var("at", padded // inner_width), var(LANE, width)
    flat_row, flat_at = var("flat_row", extent), var("flat_at", padded)
    placed = {**lanes_of(flat_row, row, lane, row_width), **lanes_of(flat_at, at, lane, inner_width)}
    axes = places(rows, flat_row) | places(inner, flat_at) | places(body.batch, batch)
    element = Rewriter(kernel.params, {a: substitute(e, placed) for a, e in axes.items()})(cast(value, F32))
    if padded != depth:
        element = select(call("lt", at, index(depth // inner_width)), element, literal(0, F32))
    element = regroup(element, (frozenset({batch}), frozenset({row})))
    known: dict[Expr, str] = {batch: "batch"}
    batch_lines, names = Emitter(printer, known, prefix=f"{name}b").named(parts_within([element], frozenset({batch})))
    known |= names | {row: f"{name}_row", at: f"{name}_at"}
    lane_lines: list[str] = []
    if width > 1:
        known[lane] = LANE
        head, lane_lines, (text,) = Emitter(printer, known, prefix=f"{name}e").lanes([element], lane, width)
    else:
        head, (text,) = Emitter(printer, known, prefix=f"{name}e").values([element])
    fast, slow = (padded // width, tile) if inside else (tile // width, padded)
    return SimpleNamespace(
        name=name,
        inside=inside,
        width=width,
        row_width=row_width,
        tile=tile,
        fast=fast,
        slow=slow,
        accesses=fast * slow,
        steps=-(-fast * slow // derived.threads),
        guard=int(fast * slow % derived.threads != 0),
        limit=extent // row_width - 1,
        clamp=int(extent % tile != 0),
        batch_lines=batch_lines,
        head=head,
        lane_lines=lane_lines,
        value=text,
    )
