"""Asynchronous copies of operands from global to shared memory: which are possible, and the text that does them.

An element can be copied if nothing is computed from it on the way. It is one load, which a condition may guard (the
value is zero where the condition is false) and which may be widened exactly (f16 to f32). Code that reads the shared
tile widens the element instead. A *chunk* is the neighbouring elements that one copy of 4, 8 or 16 bytes moves. They
are contiguous and aligned, and one condition guards all of them.

As in every loader, index arithmetic is split. What depends on the span alone (rows of ``a``, columns of ``b``) is
computed before the loop over depth, what depends on the depth alone once per depth step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucomp.codegen.c.emit import Emitter
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import (
    Expr,
    Load,
    Var,
    both,
    call,
    hole,
    index,
    literal,
    load,
    select,
    substitute,
    var,
)
from gpucomp.expr.simplify import bounds, simplify
from gpucomp.ir.types import BOOL, I64, DType
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.access import Rewriter, guarded_load, parts_within, regroup
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import count, places


@dataclass(frozen=True)
class Copy:
    """The text that moves the chunks of one operand, for ``CopyLoader.span_steps`` chunks along the span.

    span_lines    statements that depend on the span alone. They read ``<name>_span``, which counts elements, or chunks
                  if chunks run along the span
    arrays        their results as (array, C type, value). With several span steps each result is an array, read as
                  ``array[<name>_i]``; with one step the names in ``span_lines`` are read instead
    spans_used    whether ``lines`` read the span itself: ``<name>_span``, or ``<name>_spans[<name>_i]`` if there are
                  several steps
    depth_lines   statements that depend on the depth alone; they read the names that the caller gave
    lines         the other statements, for each chunk
    address       C text of the address of the chunk's first byte; it is aligned even where nothing is read
    valid         C text of the condition under which the chunk is read; otherwise it is filled with zeros
    """

    name: str
    dtype: DType
    width: int
    span_lines: list[str]
    arrays: list[tuple[str, str, str]]
    spans_used: bool
    depth_lines: list[str]
    lines: list[str]
    address: str
    valid: str

    @property
    def nbytes(self) -> int:
        """Bytes of a chunk: 4, 8 or 16."""
        return self.width * self.dtype.nbytes


@dataclass(frozen=True)
class Walk:
    """The template's current position: the axes of one operand as flat indices over variables that the text names.

    span          flat index along the span, ``<name>_span`` in the text. It counts chunks, or elements if chunks run
                  along the depth, and is never past the end
    depth         flat index along the depth, of the variables in ``depth_names``. It may be past the end, where zeros
                  are read
    depth_names   the names of these variables in the text
    depth_limit   the number of valid values of ``depth``; ``None`` if it is never past the end
    batch         the batch index, ``batch`` in the text
    """

    span: Var
    depth: Expr
    depth_names: Mapping[Expr, str]
    depth_limit: Any  # a number, a size or ``None``
    batch: Var


def place(
    kernel: Kernel,
    value: Expr,
    axes: tuple[Sequence[Var], Sequence[Var], Sequence[Var]],
    walk: Walk,
    *,
    by_depth: int,
    width: int,
    lane: Var,
) -> Expr:
    """Rewrites ``value`` in the variables of ``walk`` and ``lane``; each load has one flat offset.

    The result is zero past the end of the depth. ``axes`` are the operand's span, depth and batch. Offsets and guards
    are grouped into parts that depend on the span, on the depth, or on both.
    """
    span_axes, depth_axes, batch_axes = axes
    depth_width, span_width = (width, 1) if by_depth else (1, width)
    flat_span, flat_depth = var("flat_span", walk.span.extent * span_width), var("flat_depth", count(depth_axes))
    # with a single variable, an offset along all depth axes is recognized as one; it is replaced below
    chunk = var("depth", 1 + int(bounds(walk.depth)[1]))
    at = places(span_axes, flat_span) | places(depth_axes, flat_depth) | places(batch_axes, walk.batch)
    placed = {
        **lanes_of(flat_span, walk.span, lane, span_width),
        **lanes_of(flat_depth, chunk, lane, depth_width),
    }
    element = Rewriter(kernel.params, {v: substitute(e, placed) for v, e in at.items()})(value)
    element = simplify(substitute(element, {chunk: walk.depth}))
    if walk.depth_limit is not None:
        inside = call("lt", walk.depth, index(walk.depth_limit))
        element = select(inside, element, literal(0, element.dtype))
    return regroup(element, (frozenset({walk.span, walk.batch}), frozenset(walk.depth.free)))


def hoisted(
    printer: CPrinter, exprs: Sequence[Expr], walk: Walk, name: str, span_steps: int
) -> tuple[list[str], list[tuple[str, str, str]], list[str], dict[Expr, str], bool]:
    """What is computed outside the innermost loop.

    Returns the span lines, the arrays, the depth lines, the names of all these values, and whether the span itself is
    read. ``Copy`` explains them.
    """
    outer, inner = frozenset({walk.span, walk.batch}), frozenset(walk.depth.free)
    known: dict[Expr, str] = {walk.span: f"{name}_span", walk.batch: "batch"}
    parts = parts_within(exprs, outer)
    span_lines, names = Emitter(printer, known, prefix=f"{name}s").named(parts)
    arrays = [(f"{name}_at{i}", printer.ctype(part), text) for i, (part, text) in enumerate(names.items())]
    if span_steps > 1:
        names = {part: f"{array}[{name}_i]" for part, (array, _, _) in zip(names, arrays, strict=True)}
    known = {walk.batch: "batch", **walk.depth_names, **names}
    depth_lines, depth_names = Emitter(printer, known, prefix=f"{name}d").named(parts_within(exprs, inner))
    known |= depth_names
    stand_ins = {part: index(0) if part.dtype is I64 else hole("part", part.dtype) for part in parts}
    spans_used = any(walk.span in substitute(e, stand_ins).free for e in exprs)
    if spans_used:
        known[walk.span] = f"{name}_span" if span_steps == 1 else f"{name}_spans[{name}_i]"
    return span_lines, arrays, depth_lines, known, spans_used


def copy_loader(
    kernel: Kernel,
    printer: CPrinter,
    name: str,
    value: Expr,
    axes: tuple[Sequence[Var], Sequence[Var], Sequence[Var]],
    walk: Walk,
    *,
    by_depth: int,
    width: int,
    span_steps: int,
) -> Copy:
    """The text that copies an operand in chunks of ``width`` elements. ``copyable`` must allow that width."""
    value, lane = stored(value), var(LANE, width)
    first: dict[Expr, Expr] = {lane: index(0)}
    element = place(kernel, value, axes, walk, by_depth=by_depth, width=width, lane=lane)
    found = guarded_load(element)
    assert found, found
    read, guards = found
    offset = substitute(read.index[0], first)
    valid = both([substitute(g, first) for g in guards]) if guards else literal(True, BOOL)
    # parts may have become constants without the lane, so they are grouped again
    offset, valid = _regrouped(offset, valid, walk)
    span_lines, arrays, depth_lines, known, spans_used = hoisted(printer, [offset, valid], walk, name, span_steps)
    lines, (at, condition) = Emitter(printer, known, prefix=f"{name}e").values([offset, valid])
    source, dtype = printer.params[read.source]
    return Copy(name, dtype, width, span_lines, arrays, spans_used, depth_lines, lines, f"&{source}[{at}]", condition)


def _regrouped(offset: Expr, valid: Expr, walk: Walk) -> tuple[Expr, Expr]:
    groups = (frozenset({walk.span, walk.batch}), frozenset(walk.depth.free))
    moved = regroup(load(0, (offset,), I64), groups)
    assert isinstance(moved, Load)
    return moved.index[0], regroup(valid, groups)
