"""Text by which work-items load an operand, hoisted out of the loop over the depth where possible, and store sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpucomp.codegen.c.arguments import plain
from gpucomp.codegen.c.emit import Emitter, lane_loop
from gpucomp.codegen.c.epilogue import epilogue
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import loop
from gpucomp.expr.core import Expr, Var, call, cast, hole, index, literal, select, substitute, var
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.access import Rewriter, parts_within, regroup
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import places

SPANS = {"a": "a_row", "b": "b_column"}  # names of the position along the axis that is not summed


@dataclass(frozen=True)
class Operand:
    """One operand of a contraction, as its work-items walk over it: ``width`` neighbours in memory at a time."""

    name: str  # ``a`` or ``b``
    value: Expr
    axes: Sequence[Var]  # the span: rows of ``a``, columns of ``b``
    extent: Any  # extent of the span: a number, or an ``Argument``
    depth: Any  # depth of the sum
    padded: Any  # depth including padding, which is read as zeros
    by_depth: int  # 1: contiguous along the depth
    width: int
    span_steps: int  # accesses of a work-item along the span
    depth_name: str  # name of the variable with an access's position along the depth
    late: bool = False  # accesses are asynchronous copies
    unrolled: bool = True  # loops over lanes are unrolled

    @property
    def span(self) -> str:
        return SPANS[self.name]

    @property
    def span_width(self) -> int:
        return 1 if self.by_depth else self.width

    @property
    def depth_width(self) -> int:
        return self.width if self.by_depth else 1

    @property
    def step(self) -> str:
        """The number of a work-item's access along the span."""
        return f"{self.name}_i" if self.span_steps > 1 else "0"


@dataclass(frozen=True)
class Loader:
    """The text of an operand's accesses.

    span_lines   statements that depend on the span alone, before the loop over the depth: offsets, halo tests
    arrays       their results as (array, type, value), if there are several steps along the span
    spans_used   whether accesses read the position along the span itself
    span_chunk   the width, if ``<span>_chunk``, the number of the access, is needed too; so is ``depth_chunk``
    depth_lines  statements that depend on the depth alone, once per step along the depth
    depth_used   whether any statement depends on the depth
    known        texts of values that accesses read
    """

    printer: CPrinter
    operand: Operand
    element: Expr
    lane: Var
    span_lines: list[str]
    arrays: list[tuple[str, str, str]]
    spans_used: bool
    span_chunk: int
    depth_lines: list[str]
    depth_used: bool
    depth_chunk: int
    known: dict[Expr, str]

    def prepared(self, index_type: str, place: str, clamped: bool) -> list[str]:
        """What is computed once per work-item: its ``place`` along the span in each step, and what depends on it.

        A place that is ``clamped`` is never past the end: the last access is repeated.
        """
        o, span, several = self.operand, self.operand.span, self.operand.span_steps > 1
        limit = o.extent - o.span_width
        lines: list[str] = []
        if clamped:
            lines += [f"{index_type} {span} = {place};", f"if ({span} > {limit}) {span} = {limit};"]
        elif place != "0":
            lines.append(f"const {index_type} {span} = {place};")
        if self.span_chunk:
            lines.append(f"const {index_type} {span}_chunk = {span} / {self.span_chunk};")
        if several and self.spans_used:
            lines.append(f"{span}s[{o.step}] = {span};")
        lines += self.span_lines
        if not several:
            return lines
        lines += [f"{array}[{o.step}] = {value};" for array, _, value in self.arrays]
        arrays = [(array, ctype) for array, ctype, _ in self.arrays]
        if self.spans_used:
            arrays.append((f"{span}s", index_type))
        declared = [f"{ctype} {array}[{o.span_steps}];" for array, ctype in arrays]
        return [*declared, *loop(o.step, o.span_steps, lines, unrolled=o.unrolled)]

    def moved(self, pointer: str, place: str, *, side_by_side: bool = True) -> list[str]:
        """Statements that write an access to ``pointer`` (lanes ``side_by_side``), or each lane to ``place``."""
        o, emitter = self.operand, Emitter(self.printer, self.known, prefix=f"{self.operand.name}e")
        if o.late or (o.width > 1 and side_by_side):
            lane = self.lane if o.width > 1 else None
            if lines := emitter.moved(self.element, pointer, lane, o.width, late=o.late):
                return lines
        if o.width == 1:
            head, (text,) = emitter.values([self.element])
            return [*head, f"{place} = {text};"]
        head, lines, (text,) = emitter.lanes([self.element], self.lane, o.width)
        return [*head, *lane_loop([*lines, f"{place} = {text};"], o.width, unrolled=o.unrolled)]


def loader(kernel: Kernel[Contraction], printer: CPrinter, o: Operand, batch: Var) -> Loader:
    """The text that reads ``o``, divided into parts that depend on the span, on the depth, and on both."""
    span = var("span", plain(max(1, o.extent // o.span_width)))
    depth = var("depth", plain(max(1, o.padded // o.depth_width)))
    lane = var(LANE, o.width)
    outer, inner = frozenset({span, batch}), frozenset({depth})
    element = regroup(_element(kernel, o, batch, span, depth, lane), (outer, inner))

    known = _lanes_known(span, o.span_width, o.span) | {batch: "batch"}
    parts = [e for e in parts_within([element], outer) if e not in known]
    span_lines, names = Emitter(printer, known, prefix=f"{o.name}s").named(parts)
    arrays = [(f"{o.name}_at{i}", printer.ctype(part), text) for i, (part, text) in enumerate(names.items())]
    if o.span_steps > 1:
        names = {part: f"{array}[{o.name}_i]" for part, (array, _, _) in zip(names, arrays, strict=True)}

    depth_known = _lanes_known(depth, o.depth_width, o.depth_name)
    depth_parts = [e for e in parts_within([element], inner) if e not in depth_known]
    depth_lines, depth_names = Emitter(printer, depth_known, prefix=f"{o.name}d").named(depth_parts)

    rest = _without(element, parts)
    in_depth, in_span = [*depth_parts, _without(element, depth_parts)], [*parts, rest]
    known = depth_known | depth_names | names | {batch: "batch"}
    if span in rest.free:
        known |= _spans_known(o, span)
    if o.width > 1:
        known[lane] = LANE
    return Loader(
        printer=printer,
        operand=o,
        element=element,
        lane=lane,
        span_lines=span_lines,
        arrays=arrays,
        spans_used=span in rest.free,
        span_chunk=o.span_width if o.span_width > 1 and _uses(in_span, span, o.span_width) else 0,
        depth_lines=depth_lines,
        depth_used=depth in element.free,
        depth_chunk=o.depth_width if o.depth_width > 1 and _uses(in_depth, depth, o.depth_width) else 0,
        known=known,
    )


def _element(kernel: Kernel[Contraction], o: Operand, batch: Var, span: Var, depth: Var, lane: Var) -> Expr:
    """The element of lane ``lane``, given the numbers of the access along the span and the depth."""
    body = kernel.body
    flat_span, flat_depth = var("flat_span", plain(max(1, o.extent))), var("flat_depth", plain(max(1, o.padded)))
    at = places(o.axes, flat_span) | places(body.k, flat_depth) | places(body.batch, batch)
    placed = {
        **lanes_of(flat_span, span, lane, o.span_width),
        **lanes_of(flat_depth, depth, lane, o.depth_width),
    }
    rewriter = Rewriter(kernel.params, {v: substitute(e, placed) for v, e in at.items()})
    element = rewriter(cast(o.value, body.factor))
    if o.padded == o.depth:
        return element
    inside = call("lt", call("mul", depth, o.depth_width), index(plain(o.depth)))
    return select(inside, element, literal(0, element.dtype))


def _spans_known(o: Operand, span: Var) -> dict[Expr, str]:
    """The names of values along the span that accesses read."""
    if o.span_steps == 1:
        return _lanes_known(span, o.span_width, o.span)
    several = f"{o.span}s[{o.name}_i]"
    known = _lanes_known(span, o.span_width, several)
    if o.span_width > 1:  # the start of every step's access is kept, its number is not
        known[span] = f"({several} / {o.span_width})"
    return known


def _lanes_known(quotient: Var, width: int, name: str) -> dict[Expr, str]:
    """``name`` is ``quotient * width``; the quotient itself is ``<name>_chunk``, if it is needed."""
    return {quotient: name} if width == 1 else {call("mul", quotient, width): name, quotient: f"{name}_chunk"}


def _without(expr: Expr, parts: Sequence[Expr]) -> Expr:
    """``expr`` with holes for ``parts``, which are computed elsewhere."""
    return substitute(expr, {part: hole("part", part.dtype) for part in parts})


def _uses(exprs: Sequence[Expr], quotient: Var, width: int) -> bool:
    """Whether ``quotient`` is needed, other than as ``quotient * width``."""
    scaled = call("mul", quotient, width)
    return any(quotient in _without(e, [scaled]).free for e in exprs)


def stored(kernel: Kernel[Contraction], printer: CPrinter, batch: Var, width: int, acc: str) -> dict[str, Any]:
    """``row_lines`` run once per ``row``; ``store`` once per ``width`` columns of it, the first of which is ``column``.

    ``acc`` is the text of the sum, for one ``lane`` if there are several.
    """
    found = epilogue(kernel, printer, batch, width, acc, lambda col, wide: _lanes_known(col, wide, "column"))
    chunked = width > 1 and _uses([_without(e, found.row_parts) for e in found.exprs], found.col, width)
    return {"row_lines": found.row_lines, "store": found.store, "column_chunk": width if chunked else 0}
