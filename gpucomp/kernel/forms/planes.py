"""Recognises windows that slide over images of channels first: pools and depthwise convolutions, whose rows are contiguous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpucomp.expr.core import Call, Const, Expr, Reduce, Select, Var, both, loads, reduces, select, var, walk
from gpucomp.expr.simplify import coefficient, flatten, linear, simplify
from gpucomp.ir.extremes import largest, smallest
from gpucomp.ir.size import Size, is_one, is_zero
from gpucomp.kernel import Kernel, Loops, Window
from gpucomp.kernel.forms.convolution import conjuncts
from gpucomp.kernel.forms.sliding import Slide, moved_to, slide_of
from gpucomp.refusal import Refusal

NEAREST = 4  # largest distance of columns that a vector load and shuffles bridge
Range = tuple[Any, Any]  # from .. to (exclusive); each run can have its own


@dataclass(frozen=True)
class Planes:
    """``op over taps of image(lead, place_y, place_x) * weight(lead, taps)``; a pool has no weight.

    total     the expression in the stores that computes it
    halo      what the image is outside of ``rows`` and ``columns``
    rows      the places along y where ``image`` may be read; ``None`` if it always may
    columns   those along x
    """

    lead: tuple[Var, ...]
    y: Slide
    x: Slide
    place_y: Var
    place_x: Var
    total: Expr
    op: str
    image: Expr
    halo: Const | None
    rows: Range | None
    columns: Range
    weight: Expr | None = None


def planes_of(kernel: Kernel) -> Planes | Refusal:
    """The parts of a kernel whose windows slide along contiguous rows, or why it is none."""
    body = kernel.body
    if isinstance(body, Window):
        return _planes(kernel, body.domain, body.window, body.value, body.acc, body.op, None)
    totals = list(dict.fromkeys(r for s in kernel.stores for r in reduces(s.value)))
    if not isinstance(body, Loops) or len(totals) != 1 or totals[0].op != "sum":
        return Refusal("it is not one sum")
    (total,) = totals
    match total.body:
        case Call(fn="mul", args=(a, b)) if loads(a) and loads(b):
            pass
        case _:
            return Refusal("it is not a sum of products of two arrays")
    x = _contiguous(kernel, body.domain)
    if x is None or (x in a.free) == (x in b.free):
        return Refusal("not one factor moves along the rows of the result")
    image, weight = (a, b) if x in a.free else (b, a)
    return _planes(kernel, body.domain, total.axes, image, total, "sum", weight)


def _contiguous(kernel: Kernel, domain: Sequence[Var]) -> Var | None:
    """The axis along which all stores are contiguous."""
    places = [flatten(s.index, kernel.params[s.target].shape) for s in kernel.stores]
    return next((a for a in domain if all(is_one(coefficient(simplify(place), a)) for place in places)), None)


def _planes(
    kernel: Kernel,
    domain: Sequence[Var],
    window: Sequence[Var],
    image: Expr,
    total: Expr,
    op: str,
    weight: Expr | None,
) -> Planes | Refusal:
    taps = [tap for tap in window if not is_one(tap.extent)]
    if any(isinstance(n, Reduce) for e in (image, weight) if e for n in walk(e)) or not 1 <= len(taps) <= 2:
        return Refusal("a window of one or two axes is expected")
    if any(is_zero(r.extent) for r in (*taps, *domain)) or any(isinstance(tap.extent, Size) for tap in taps):
        return Refusal("there is nothing to compute, or the window differs from run to run")
    out = _contiguous(kernel, domain)
    slides = [slide_of(image, tap, domain) for tap in taps]
    along = [s for s in slides if s is not None and s.out is out]
    if None in slides or out is None or len(along) != 1:
        return Refusal("the window does not slide along the rows of the result")
    (x,) = along
    y = next((s for s in slides if s is not None and s is not x), Slide(None, None))
    if weight is not None and {v for v in (x.out, y.out) if v} & weight.free:
        return Refusal("weights depend on the output's position")
    place_y, place_x = (var(name, s.reach(s.outputs)) for s, name in ((y, "place_y"), (x, "place_x")))
    for slide, place in ((y, place_y), (x, place_x)):
        image = moved_to(image, slide, place)
        if {v for v in (slide.out, slide.tap) if v} & image.free:
            return Refusal("the image is not read at the sum of an output's place and a tap's place")
    image, halo, rows, columns = _frame(image, place_y, place_x)
    steps = [
        coefficient(flatten(ld.index, kernel.params[ld.source].shape), place_x)
        for ld in loads(image)
        if place_x in ld.free
    ]
    if not steps or not all(isinstance(n, int) and not isinstance(n, Size) and 1 <= n <= NEAREST for n in steps):
        return Refusal("the image's rows are not contiguous")
    lead = tuple(v for v in domain if v not in (x.out, y.out))
    return Planes(lead, y, x, place_y, place_x, total, op, image, halo, rows, columns, weight)


def _frame(image: Expr, y: Var, x: Var) -> tuple[Expr, Const | None, Range | None, Range]:
    """``image`` without the padding that frames it, the padding, and where the image is. Any other condition stays in it."""
    columns: Range = (0, x.extent)
    if not isinstance(image, Select) or not isinstance(image.otherwise, Const):
        return image, None, None, columns
    rows: Range | None = None
    others = []
    for part in conjuncts(image.condition):
        limits = limits_of(part)
        if limits is not None and x in part.free:
            columns = largest(columns[0], limits[0]), smallest(columns[1], limits[1])
        elif limits is not None and y in part.free:
            before = rows or (0, y.extent)
            rows = largest(before[0], limits[0]), smallest(before[1], limits[1])
        else:
            others.append(part)
    if rows is not None:
        rows = rows[0], largest(*rows)
    inside = select(both(others), image.then, image.otherwise) if others else image.then
    return inside, image.otherwise, rows, (columns[0], largest(*columns))


def limits_of(part: Expr) -> Range | None:
    """The integers, from .. to (exclusive), for which a comparison of one variable holds."""
    match part:
        case Call(fn="le" | "lt" as fn, args=(a, b)):
            constant, terms = linear(b - a)
        case _:
            return None
    if len(terms) != 1 or not isinstance(next(iter(terms)), Var):
        return None
    (factor,) = terms.values()
    if isinstance(factor, Size):
        return None
    rest = constant - (fn == "lt")  # factor * place + rest >= 0
    if factor > 0:
        return -(rest // factor), 1 << 62
    return -(1 << 62), rest // -factor + 1
