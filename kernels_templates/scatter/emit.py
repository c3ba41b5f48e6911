"""How a scatter runs through memory, and blocks of statements for its template."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import highest, plain
from gpucomp.codegen.c.emit import Emitter, FlatStore, flat_stores, lane_loop
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import plus
from gpucomp.expr.core import Const, Expr, Hole, Var, both, call, index, substitute, var, walk
from gpucomp.expr.simplify import flatten
from gpucomp.kernel import Kernel, Scatter, Store
from gpucomp.kernel.forms.access import Rewriter
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.scatter import copied_in_place, inside_of

if TYPE_CHECKING:
    from gpucomp.kernels_templates.scatter.space import ScatterProblem, ScatterSchedule, ScatterSizes


@dataclass(frozen=True)
class Walk:
    """The kernel over flat variables: ``line`` counts vectors of lines, ``place`` places, ``number`` updates.

    found     where an update's element is, one flat index; ``inside``: whether it is one of the places at all
    """

    line: Var
    lane: Var
    place: Var
    number: Var
    guard: Expr
    where: Expr
    inside: Expr
    found: Expr
    initial: tuple[FlatStore, ...]
    after: Expr


def walk_of(kernel: Kernel[Scatter], vector: int) -> Walk:
    """``kernel`` brought onto the variables of the template, ``vector`` lines at a time."""
    body = kernel.body
    lines = math.prod(v.extent for v in body.lines)
    flat, lane = var("flat_line", lines), var(LANE, vector)
    line, place = var("line", lines // vector), var("place", math.prod(v.extent for v in body.places))
    number = var("number", math.prod(v.extent for v in body.updates))
    at = {v: substitute(e, lanes_of(flat, line, lane, vector)) for v, e in places(body.lines, flat).items()}
    at |= places(body.places, place) | places(body.updates, number)
    rewriter = Rewriter(kernel.params, at)
    found = flatten(body.found, tuple(v.extent for v in body.places))
    copied = [Store(s.target, s.index, body.initial) for s in kernel.stores]
    return Walk(
        line=line,
        lane=lane,
        place=place,
        number=number,
        guard=rewriter(body.guard),
        where=rewriter(body.where),
        inside=rewriter(inside_of(body)),
        found=rewriter(found),
        initial=tuple(flat_stores(copied, rewriter)),
        after=rewriter(body.after),
    )


def emit_scatter(
    kernel: Kernel[Scatter], printer: CPrinter, s: ScatterSchedule, p: ScatterProblem, derived: ScatterSizes
) -> Mapping[str, Any]:
    """See ``kernels_templates/scatter/kernel.j2`` for what each hook is."""
    body = kernel.body
    w = walk_of(kernel, s.vector)
    known: dict[Expr, str] = {w.line: "line"}
    if s.vector > 1:
        known[w.lane] = LANE
    copy = Emitter(printer, known | {w.place: "place"}, prefix="c").store(w.initial, w.lane, s.vector)
    outer = Emitter(printer, known | {w.number: "number"})
    where_lines, where = _condition(outer, w.where)
    ends = var("begin", plain(p.places + 1)), var("end", plain(p.places + 1))
    within = both([w.inside, call("le", ends[0], w.found), call("lt", w.found, ends[1])])
    inner = Emitter(printer, known | {w.number: "number", ends[0]: "begin", ends[1]: "end"}, prefix="f")
    found_lines, (condition, target) = inner.values([within, w.found])
    index_type = printer.dialect.index_type(highest(p.places))
    changing = known | {w.number: "number", w.place: "target"}
    guard_lines, guard = _condition(Emitter(printer, known, prefix="g"), w.guard)
    data = copied_in_place(kernel)
    index = printer.dialect.index_type(
        highest(p.lines, p.places, p.updates) + s.line_items * s.vector + highest(derived.part)
    )
    return {
        "index": index,
        **_places_of(index, s, p, derived),
        "not_in_place": f"x{kernel.stores[0].target} != x{data}" if data is not None else "",
        "copy": copy,
        "guard_lines": guard_lines,
        "guard": guard,
        "where_lines": where_lines,
        "where": where,
        "found_lines": found_lines,
        "found": condition,
        "change": [
            f"const {index_type} target = ({index_type})({target});",
            *(text for t in w.initial for text in _change(kernel, printer, changing, body.acc, t, w, s.vector)),
        ],
    }


def _places_of(index: str, s: ScatterSchedule, p: ScatterProblem, d: ScatterSizes) -> dict[str, Any]:
    """Which lines and places a work-item and its work-group own."""
    share = s.part_items * d.part
    begin = plus("first_place", f"id / {s.line_items} * {d.part}" if s.part_items > 1 else 0)
    mine = "id" if s.part_items == 1 else f"id % {s.line_items}"
    return {
        "share": share,
        "my_part": [f"const {index} begin = {begin};", f"const {index} end = {_at_most('begin', d.part, p.places)};"],
        "last_place": _at_most("first_place", share, p.places),
        "my_line": plus("first_line", mine if s.line_items > 1 else 0),
        "is_no_line": f"line >= {d.line_groups}" if d.line_groups % s.line_items else "",
    }


def _at_most(first: str, count: int, end: int) -> str:
    return f"{first} + {count} < {end} ? {first} + {count} : {end}"


def _condition(emitter: Emitter, condition: Expr) -> tuple[list[str], str]:
    if isinstance(condition, Const) and condition.value:
        return [], ""
    lines, (text,) = emitter.values([condition])
    return lines, text


def _change(
    kernel: Kernel, printer: CPrinter, known: Mapping[Expr, str], acc: Hole, t: FlatStore, w: Walk, width: int
) -> list[str]:
    """Statements that read the element of store ``t``, or a vector of them, and write what the update makes of it."""
    value, reads = printer.written(t.target, w.after), any(n is acc for n in walk(w.after))
    name, dtype = printer.params[t.target]
    lines, (at,) = Emitter(printer, known, prefix="o").values([substitute(t.offset, {w.lane: index(0)})])
    lines.append(f"const {printer.dialect.index_type(highest(kernel.params[t.target].size))} at = {at};")
    if width == 1:
        if reads:
            lines.append(f"const {printer.ctype(acc)} old = {printer.load(t.target, 'at')};")
        more, (text,) = Emitter(printer, {**known, acc: "old"}, prefix="u").values([value])
        return ["{", *(f"  {line}" for line in (*lines, *more, printer.store(t.target, "at", text))), "}"]
    lines.append(printer.dialect.aligned_array(printer.dialect.moved_type(dtype), "old", width))
    if reads:
        lines += printer.dialect.fetch("old", f"{name} + at", dtype, width)
    emitter = Emitter(printer, {**known, w.lane: LANE, acc: printer.fetched(f"old[{LANE}]", dtype)}, prefix="u")
    head, more, (text,) = emitter.lanes([value], w.lane, width)
    loop = lane_loop([*more, f"old[{LANE}] = {printer.put(text, dtype)};"], width)
    lines += [*head, *loop, *printer.dialect.put(f"{name} + at", "old", dtype, width)]
    return ["{", *(f"  {line}" for line in lines), "}"]
