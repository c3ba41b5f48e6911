"""Operands that go from memory to shared memory as they are, by asynchronous copies: which can, and the text for it.

An element can be copied when nothing is computed with it on its way: it is one load, perhaps guarded by a condition
whose other side is zero, perhaps widened exactly (f16 to f32), which whoever reads the shared tile does instead.
Neighbours that one copy of 4, 8 or 16 bytes moves are a *chunk*: contiguous, aligned, under one guard.

Where a template stands is split as for every loader: what depends on the span alone (rows of ``a``, columns of ``b``)
is computed before the loop over depth, what depends on the depth alone once a depth step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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

    span_lines    what depends on the span alone; reads ``<name>_span``, in elements, or chunks where they lie along it
    arrays        its results as (array, C type, value); they are arrays for more than one span step, and then read as
                  ``array[<name>_i]``; with one step the lines' own names are read
    spans_used    whether ``lines`` read the span itself: ``<name>_span``, or ``<name>_spans[<name>_i]`` of several
    depth_lines   what depends on the depth alone; reads the names that the caller gave
    lines         the rest, of each chunk
    address       C text of the chunk's first byte in memory; aligned even where nothing is to be read
    valid         C text of the condition under which it is read; zeros stand in its place elsewhere
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
    """Where the template stands: the axes of one operand as flat indices, made of variables that its text names.

    span          flat index along the span in chunks (or elements, where chunks lie along the depth): one variable,
                  ``<name>_span`` in the text; never past the end
    depth         the same along the depth, of ``depth_names``' variables; may be past the end, where zeros are read
    depth_names   what the text calls the variables of ``depth``
    depth_limit   how many of ``depth`` there are; ``None`` when it never is past the end
    batch         the batch index, ``batch`` in the text
    """

    span: Var
    depth: Expr
    depth_names: Mapping[Expr, str]
    depth_limit: int | None
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
    """``value`` on the walk's variables and ``lane``, with one flat offset a load and zero past the end of the depth.

    ``axes`` are the operand's span, depth and batch. Offsets and guards come in parts: of the span, of the depth, of
    both.
    """
    span_axes, depth_axes, batch_axes = axes
    depth_width, span_width = (width, 1) if by_depth else (1, width)
    flat_span, flat_depth = var("flat_span", walk.span.extent * span_width), var("flat_depth", count(depth_axes))
    # one variable first, so that an offset along all depth axes is found to be one; then what it is made of
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
    """What leaves the loops: span lines, arrays, depth lines, the names of all that, whether the span itself is read.

    See ``Copy`` for what each is.
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
    """The text that copies chunks of ``width`` elements of an operand which ``copyable`` allows that width."""
    value, lane = stored(value), var(LANE, width)
    first: dict[Expr, Expr] = {lane: index(0)}
    element = place(kernel, value, axes, walk, by_depth=by_depth, width=width, lane=lane)
    found = guarded_load(element)
    assert found, found
    read, guards = found
    offset = substitute(read.index[0], first)
    valid = both([substitute(g, first) for g in guards]) if guards else literal(True, BOOL)
    # regrouped once more: without the lane, parts may have become constants
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
