"""Blocks of statements for the attention templates: the loaders of queries, keys and values, the score, the stores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.access import Rewriter, parts_within, regroup
from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.copies import Walk, copy_loader, stored
from gpucomp.codegen.emit import LANE, Emitter, lanes_of
from gpucomp.codegen.epilogue import epilogue, split_scratch
from gpucomp.codegen.mma import FUNCTIONS
from gpucomp.codegen.operand import count, places
from gpucomp.expr.core import Expr, Var, call, cast, index, literal, select, substitute, var
from gpucomp.ir.types import F32
from gpucomp.kernel import Attention, Kernel


def attention_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/attention/simt.j2`` for what each hook is."""
    batch = var("batch", max(1, p.batch))
    return {
        **shared_hooks(kernel, printer, batch, s, p, derived),
        "q": _loader(kernel, printer, "q", batch, s, p, derived),
        "k": _loader(kernel, printer, "k", batch, s, p, derived),
        "v": _loader(kernel, printer, "v", batch, s, p, derived),
    }


def shared_hooks(
    kernel: Kernel, printer: CPrinter, batch: Var, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> dict[str, Any]:
    """What the engines share: the score, the stores, scratch of the splits, types and numbers."""
    dialect = printer.dialect
    tile_m = getattr(s, "tile_m", 0) or derived.tile_m
    found = epilogue(
        kernel, printer, batch, derived.out_vector, "mean" if derived.out_vector == 1 else f"means[{LANE}]"
    )
    return {
        "scratch": split_scratch(printer, dialect.value_type(F32), s.splits),
        **_score(kernel, printer, batch, s, p),
        "row_lines": found.row_lines,
        "store": found.store,
        "index": dialect.index_type(max(p.m + tile_m, p.n + s.tile_n * s.splits, p.batch) + 1),
        "type": dialect.value_type(F32),
        "zero": dialect.literal(0, F32),
        "one": dialect.literal(1, F32),
        "lowest": dialect.literal(-math.inf, F32),
        "log2_e": dialect.literal(math.log2(math.e), F32),
        "exp2": dialect.function("exp2", F32),
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
    body = kernel.body
    assert isinstance(body, Attention)
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


def mma_attention_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/attention/mma.j2`` for what each hook is."""
    body = kernel.body
    assert isinstance(body, Attention)
    batch = var("batch", max(1, p.batch))
    dtype = stored(body.q).dtype
    return {
        **shared_hooks(kernel, printer, batch, s, p, derived),
        "exp2": "gc_exp2",
        "q": _copier(kernel, printer, "q", batch, s, p, derived),
        "k": _copier(kernel, printer, "k", batch, s, p, derived),
        "v": _copier(kernel, printer, "v", batch, s, p, derived),
        "storage": printer.dialect.storage_type(dtype),
        "narrow": printer.dialect.narrow.get(dtype, ""),
        "multiply": FUNCTIONS[dtype],
    }


def _copier(
    kernel: Kernel,
    printer: CPrinter,
    name: str,
    batch: Var,
    s: SimpleNamespace,
    p: SimpleNamespace,
    derived: SimpleNamespace,
) -> SimpleNamespace:
    """As ``_loader``, of asynchronous copies of ``width`` elements along a row: ``copy`` has their text."""
    body = kernel.body
    assert isinstance(body, Attention)
    value, rows, inner, tile, padded, pitch = {
        "q": (body.q, body.rows, body.depth, derived.tile_m, derived.depth_pad, derived.pitch),
        "k": (body.k, body.cols, body.depth, s.tile_n, derived.depth_pad, derived.pitch),
        "v": (body.v, body.cols, body.values, s.tile_n, derived.values_pad, derived.v_pitch),
    }[name]
    width = getattr(p, f"{name}_wide")
    extent, depth = count(rows), count(inner)
    at = var("at", padded // width)
    walk = Walk(var("row", extent), at, {at: f"{name}_at"}, depth // width if padded != depth else None, batch)
    copy = copy_loader(
        kernel, printer, name, value, (rows, inner, body.batch), walk, by_depth=1, width=width, span_steps=1
    )
    accesses = padded // width * tile
    return SimpleNamespace(
        name=name,
        width=width,
        pitch=pitch,
        fast=padded // width,
        accesses=accesses,
        steps=-(-accesses // derived.threads),
        limit=extent - 1,
        clamp=int(extent % tile != 0),
        copy=copy,
    )


def _score(kernel: Kernel, printer: CPrinter, batch: Var, s: SimpleNamespace, p: SimpleNamespace) -> dict[str, Any]:
    """``score_batch``, ``score_row``: what depends on these alone; ``score_lines``, ``score``: of one ``dot``.

    Columns past the end have no weight: their score is the lowest. ``by_row``, ``by_column``: whether it needs these.
    """
    body = kernel.body
    assert isinstance(body, Attention)
    row, col = var("row", max(1, p.m)), var("col", max(1, p.n))
    rewrite = Rewriter(kernel.params, places(body.rows, row) | places(body.cols, col) | places(body.batch, batch))
    value = rewrite(cast(body.score, F32))
    if p.n % s.tile_n:
        past = var("past", p.n + s.tile_n)  # the column's number may be too large, which the simplifier must not know
        value = select(call("lt", past, index(p.n)), value, literal(-math.inf, F32))
    else:
        past = col
    value = regroup(value, (frozenset({batch}), frozenset({row})))
    known: dict[Expr, str] = {batch: "batch"}
    batch_lines, names = Emitter(printer, known, prefix="sb").named(parts_within([value], frozenset({batch})))
    known |= names | {row: "row"}
    row_lines, names = Emitter(printer, known, prefix="sr").named(parts_within([value], frozenset({row, batch})))
    known |= names | {col: "col", past: "col", body.dot: "dot"}
    lines, (text,) = Emitter(printer, known, prefix="s").values([value])
    return {
        "score_batch": batch_lines,
        "score_row": row_lines,
        "score_lines": lines,
        "score": text,
        "by_row": int(row in value.free),
        "by_column": int(col in value.free or past in value.free),
    }
