"""Blocks of statements for the contraction template: what each operand's loader and the epilogue do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c.dots import product
from gpucomp.codegen.c.emit import Emitter, lane_loop
from gpucomp.codegen.c.epilogue import epilogue, left_sums, split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.tail import tail_hooks, tail_scratch
from gpucomp.codegen.c.text import plus, times
from gpucomp.expr.core import Expr, Var, call, cast, hole, index, literal, select, substitute, var
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.access import Rewriter, parts_within, regroup
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import places

SPAN = {"a": "row", "b": "column"}  # what the axis that is not summed is called


def contraction_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/simt/kernel.j2`` for what each hook is."""
    body = kernel.body_as(Contraction)
    batch = var("batch", max(1, p.batch))
    a = loader(kernel, printer, "a", body.a, batch, s, p, derived)
    b = loader(kernel, printer, "b", body.b, batch, s, p, derived)
    acc_type = printer.dialect.value_type(body.acc.dtype)
    tail = tail_hooks(kernel, printer, p, derived.threads, s.tile_m, derived.tiles_n)
    return {
        **tail,
        "scratch": split_scratch(printer, acc_type, s.splits) or tail_scratch(printer, tail),
        **left_sums(printer, body.acc.dtype, s.splits, s.reg_n),
        "a": a,
        "b": b,
        **stored(kernel, printer, batch, derived.out_vector, _sum(s, derived.out_vector)),
        "index": printer.dialect.index_type(_largest_index(s, p)),
        "acc_type": acc_type,
        "copy": lambda to, source, width: printer.dialect.copy(to, source, body.acc.dtype, width),
        "array": lambda name, size: printer.dialect.aligned_array(acc_type, name, size),
        "zero": printer.dialect.literal(0, body.acc.dtype),
        "multiply_add": product(printer, body, s.lanes),
    }


def _largest_index(s: SimpleNamespace, p: SimpleNamespace) -> int:
    return max(p.m + s.tile_m, p.n + s.tile_n, p.k + s.tile_k * s.splits, p.batch) + 1


def loader(
    kernel: Kernel,
    printer: CPrinter,
    name: str,
    value: Expr,
    batch: Var,
    s: SimpleNamespace,
    p: SimpleNamespace,
    derived: SimpleNamespace,
    depth_name: str = "",
) -> SimpleNamespace:
    """One operand's tile, moved by all work-items, ``width`` neighbours in memory an access.

    span         the variable of the axis that is not summed: ``a_row``, ``b_column``
    span_lines   what depends on the span alone, before the loop over depth: offsets, halo positions
    arrays       its results as (array, type, value), for more than one span step
    span_chunk   the width, where ``<span>_chunk``, the number of the access, is needed too; so ``depth_chunk``
    depth_lines  what depends on the depth alone, once a depth step
    move         statements of one access
    """
    body = kernel.body_as(Contraction)
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
        inside = call("lt", call("mul", depth, depth_width), index(p.k))
        element = select(inside, element, literal(0, element.dtype))
    outer, inner = frozenset({span, batch}), frozenset({depth})
    element = regroup(element, (outer, inner))

    known = _lanes_known(span, span_width, f"{name}_{SPAN[name]}") | {batch: "batch"}
    span_steps, depth_steps = (
        (steps["slow_steps"], steps["fast_steps"]) if by_depth else (steps["fast_steps"], steps["slow_steps"])
    )
    parts = parts_within([element], outer)
    parts = [e for e in parts if e not in known]
    span_lines, names = Emitter(printer, known, prefix=f"{name}s").named(parts)
    arrays = [(f"{name}_at{i}", printer.ctype(part), text) for i, (part, text) in enumerate(names.items())]
    if span_steps > 1:
        names = {part: f"{array}[{name}_i]" for part, (array, _, _) in zip(names, arrays, strict=True)}
    depth_known = _lanes_known(depth, depth_width, depth_name or f"{name}_depth")
    depth_parts = [e for e in parts_within([element], inner) if e not in depth_known]
    depth_lines, depth_names = Emitter(printer, depth_known, prefix=f"{name}d").named(depth_parts)
    chunked = depth_width > 1 and _uses([*depth_parts, _without(element, depth_parts)], depth, depth_width)
    rest = _without(element, parts)
    spans_used = span in rest.free
    known = depth_known | depth_names | names | {batch: "batch"}
    if spans_used:
        spans = f"{name}_{SPAN[name]}s[{name}_i]" if span_steps > 1 else f"{name}_{SPAN[name]}"
        known |= _lanes_known(span, span_width, spans)
        if span_steps > 1 and span_width > 1:  # where accesses start is kept of every step, their numbers are not
            known[span] = f"({spans} / {span_width})"
    if width > 1:
        known[lane] = LANE

    def move(pointer: str, place: str, side_by_side: int = 1) -> list[str]:
        """Statements that put an access at ``pointer``, where its lanes are neighbours, or each at ``place``."""
        emitter = Emitter(printer, known, prefix=f"{name}e")
        late = bool(s.asynchronous)
        if late or (width > 1 and side_by_side):
            lines = emitter.moved(element, pointer, lane if width > 1 else None, width, late=late)
            if lines:
                return lines
        if width == 1:
            head, (text,) = emitter.values([element])
            return [*head, f"{place} = {text};"]
        head, lines, (text,) = emitter.lanes([element], lane, width)
        # a CPU's compiler unrolls what it wants of a whole tile's loops, and takes a minute where it is told to
        return [*head, *lane_loop([*lines, f"{place} = {text};"], width, unrolled=s.lanes == 1)]

    for together in (0, 1):
        move("to", "to", together)  # names the helpers that the text calls, which stand in front of it
    return SimpleNamespace(
        name=name,
        span=f"{name}_{SPAN[name]}",
        by_depth=by_depth,
        width=width,
        tile=tile,
        limit=extent - span_width,
        clamp=int(extent % tile != 0 or (getattr(derived, f"{name}_slow_guard") and by_depth)),
        span_steps=span_steps,
        depth_steps=depth_steps,
        span_chunk=span_width if span_width > 1 and _uses([*parts, rest], span, span_width) else 0,
        span_lines=span_lines,
        arrays=arrays,
        spans_used=spans_used,
        depth_used=depth in element.free,
        depth_chunk=depth_width if chunked else 0,
        depth_lines=depth_lines,
        move=move,
        fast=_item(name, "fast", steps, derived.threads),
        slow=_item(name, "slow", steps, derived.threads),
        guard=getattr(derived, f"{name}_slow_guard"),
        pad=getattr(derived, f"{name}_pad"),
        **steps,
    )


def _item(name: str, axis: str, steps: Mapping[str, int], threads: int) -> str:
    """What a work-item's place along the ``fast`` or ``slow`` axis of a tile is called."""
    if steps[f"{axis}_items"] == 1:
        return "0"
    return "id" if steps[f"{axis}_items"] == threads else f"{name}_{axis}"


def _lanes_known(quotient: Var, width: int, name: str) -> dict[Expr, str]:
    """``name`` holds ``quotient * width``; the quotient itself is ``<name>_chunk``, where somebody asks for it."""
    return {quotient: name} if width == 1 else {call("mul", quotient, width): name, quotient: f"{name}_chunk"}


def _without(expr: Expr, parts: Sequence[Expr]) -> Expr:
    """``expr`` with ``parts``, which are computed elsewhere, as holes."""
    return substitute(expr, {part: hole("part", part.dtype) for part in parts})


def _uses(exprs: Sequence[Expr], quotient: Var, width: int) -> bool:
    """Whether ``quotient`` is needed, other than as ``quotient * width``."""
    scaled = call("mul", quotient, width)
    return any(quotient in _without(e, [scaled]).free for e in exprs)


def _sum(s: SimpleNamespace, width: int) -> str:
    """The sum of lane ``lane`` of the template's vector ``j`` of row ``i``."""
    sums, lane = "sums" if s.lanes > 1 else "acc", LANE if width > 1 else "0"
    return f"{sums}[{'i' if s.reg_m > 1 else '0'}][{plus(times('j' if s.reg_n > width else '0', width), lane)}]"


def stored(kernel: Kernel, printer: CPrinter, batch: Var, width: int, acc: str) -> dict[str, Any]:
    """``row_lines``: once a ``row``; ``store``: once a group of ``width`` columns of it, the first one ``column``.

    ``acc`` is the text of the sum, of one ``lane`` where there are several.
    """
    found = epilogue(kernel, printer, batch, width, acc, lambda col, wide: _lanes_known(col, wide, "column"))
    chunked = width > 1 and _uses([_without(e, found.row_parts) for e in found.exprs], found.col, width)
    return {"row_lines": found.row_lines, "store": found.store, "column_chunk": width if chunked else 0}
