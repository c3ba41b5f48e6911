"""Blocks of statements for the contraction template: what each operand's loader and the epilogue do."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.access import Rewriter, parts_within, regroup, split
from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.emit import LANE, Emitter, FlatStore, flat_stores, lanes_of
from gpucomp.codegen.operand import USUAL_INPUTS, places
from gpucomp.expr.core import Expr, Var, call, cast, hole, index, literal, select, substitute, var
from gpucomp.ir.types import I64, U32
from gpucomp.kernel import Contraction, Kernel


def contraction_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/simt.j2`` for what each hook is."""
    body = kernel.body
    assert isinstance(body, Contraction)
    batch = var("batch", max(1, p.batch))
    a = _loader(kernel, printer, "a", body.a, batch, s, p, derived)
    b = _loader(kernel, printer, "b", body.b, batch, s, p, derived)
    acc_type = printer.dialect.value_type(body.acc.dtype)
    scratch = [
        {"name": "workspace", "type": acc_type, "access": "shared"},
        {"name": "counters", "type": printer.dialect.values[U32], "access": "written"},
    ]
    return {
        "scratch": scratch if s.splits > 1 else [],
        "a": a,
        "b": b,
        **_epilogue(kernel, printer, batch, p, derived),
        # Left to itself ptxas saves registers for more work-groups, and the addresses of many inputs go to a stack
        "groups_per_unit": int(kernel.inputs > USUAL_INPUTS),
        "index": printer.dialect.index_type(_largest_index(s, p)),
        "acc_type": acc_type,
        "zero": printer.dialect.literal(0, body.acc.dtype),
    }


def _largest_index(s: SimpleNamespace, p: SimpleNamespace) -> int:
    return max(p.m + s.tile_m, p.n + s.tile_n, p.k + s.tile_k * s.splits, p.batch) + 1


def _loader(
    kernel: Kernel,
    printer: CPrinter,
    name: str,
    value: Expr,
    batch: Var,
    s: SimpleNamespace,
    p: SimpleNamespace,
    derived: SimpleNamespace,
) -> SimpleNamespace:
    """One operand's tile, loaded by all work-items.

    span        the axis that is not summed: rows of ``a``, columns of ``b``
    span_lines  what depends on the span alone, before the loop over depth: offsets, halo positions
    parts       its results as (array, value), for more than one span step
    depth_lines what depends on the depth alone, once a depth step
    head        the rest of one access, in front of its lanes; ``lane_lines``, ``value``: of each lane
    """
    body = kernel.body
    assert isinstance(body, Contraction)
    axes, extent, tile = (body.m, p.m, s.tile_m) if name == "a" else (body.n, p.n, s.tile_n)
    by_depth = p.a_by_depth if name == "a" else p.b_by_depth
    width = getattr(derived, f"{name}_vector")
    steps = {k: getattr(derived, f"{name}_{k}") for k in ("fast_items", "fast_steps", "slow_items", "slow_steps")}
    depth_width, span_width = (width, 1) if by_depth else (1, width)
    padded = -(-p.k // s.tile_k) * s.tile_k  # the last tile reads zeros past the end
    span, lane = var("span", max(1, extent // span_width)), var(LANE, width)
    depth = var("depth", max(1, padded // depth_width))
    flat_span, flat_depth = var("flat_span", max(1, extent)), var("flat_depth", max(1, padded))
    at = places(axes, flat_span) | places(body.k, flat_depth) | places(body.batch, batch)
    placed = {
        **lanes_of(flat_span, span, lane, span_width),
        **lanes_of(flat_depth, depth, lane, depth_width),
    }
    rewriter = Rewriter(kernel.params, {v: substitute(e, placed) for v, e in at.items()})
    element = rewriter(cast(value, body.acc.dtype))
    if padded != p.k:
        element = select(call("lt", depth, index(p.k // depth_width)), element, literal(0, element.dtype))
    outer, inner = frozenset({span, batch}), frozenset({depth})
    element = regroup(element, (outer, inner))

    known: dict[Expr, str] = {span: f"{name}_span", batch: "batch"}
    span_steps, depth_steps = (
        (steps["slow_steps"], steps["fast_steps"]) if by_depth else (steps["fast_steps"], steps["slow_steps"])
    )
    emitter = Emitter(printer, known, prefix=f"{name}s")
    parts = parts_within([element], outer)
    span_lines, names = emitter.named(parts)
    arrays = [(f"{name}_at{i}", printer.ctype(part), text) for i, (part, text) in enumerate(names.items())]
    if span_steps > 1:
        names = {part: f"{array}[{name}_i]" for part, (array, _, _) in zip(names, arrays, strict=True)}
    known = {batch: "batch", depth: f"{name}_depth", **names}
    depth_lines, depth_names = Emitter(printer, known, prefix=f"{name}d").named(parts_within([element], inner))
    known |= depth_names
    spans_used = span in substitute(element, {part: index(0) for part in parts if part.dtype is I64} | {
        part: hole("part", part.dtype) for part in parts if part.dtype is not I64}).free  # fmt: skip
    if spans_used:
        known[span] = f"{name}_span" if span_steps == 1 else f"{name}_spans[{name}_i]"
    if width > 1:
        known[lane] = LANE
        head, lines, (text,) = Emitter(printer, known, prefix=f"{name}e").lanes([element], lane, width)
    else:
        head, (text,) = Emitter(printer, known, prefix=f"{name}e").values([element])
        lines = []
    return SimpleNamespace(
        name=name,
        by_depth=by_depth,
        width=width,
        extent=extent // span_width,
        tile=tile,
        limit=extent // span_width - 1,
        clamp=int(extent % tile != 0),
        span_steps=span_steps,
        depth_steps=depth_steps,
        span_lines=span_lines,
        arrays=arrays,
        spans_used=spans_used,
        depth_lines=depth_lines,
        head=head,
        lane_lines=lines,
        value=text,
        guard=getattr(derived, f"{name}_slow_guard"),
        pad=getattr(derived, f"{name}_pad"),
        **steps,
    )


def _epilogue(
    kernel: Kernel, printer: CPrinter, batch: Var, p: SimpleNamespace, derived: SimpleNamespace
) -> dict[str, Any]:
    """``row_lines``: once a row; ``store``: once a group of ``out_vector`` columns ``col`` of it."""
    body = kernel.body
    assert isinstance(body, Contraction)
    width = derived.out_vector
    row, col, lane = var("row", max(1, p.m)), var("col", max(1, p.n // width)), var(LANE, width)
    flat = var("flat", max(1, p.n))
    columns = {v: substitute(e, lanes_of(flat, col, lane, width)) for v, e in places(body.n, flat).items()}
    rewriter = Rewriter(kernel.params, places(body.m, row) | columns | places(body.batch, batch))
    groups = (frozenset({row, batch}), frozenset({col}))
    stores = [
        FlatStore(t.target, split(t.offset, groups), regroup(t.value, groups))
        for t in flat_stores(kernel.stores, rewriter)
    ]
    exprs = [e for t in stores for e in (t.offset, t.value)]
    known: dict[Expr, str] = {batch: "batch", row: "row"}
    row_lines, names = Emitter(printer, known, prefix="r").named(parts_within(exprs, groups[0]))
    known |= names | {col: "col", body.acc: "sum" if width == 1 else f"sums[{LANE}]"}
    if width > 1:
        known[lane] = LANE
    store = Emitter(printer, known).store(stores, lane, width)
    return {"row_lines": row_lines, "store": store}
