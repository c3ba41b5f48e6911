"""Windows that slide over an image, channels last: depthwise convolutions and pooling, and statements for the template.

Recognition keeps a depthwise convolution as ``Loops`` with one ``Reduce`` inside, and pooling as a ``Window``. Here
that reduction is taken apart: along each window axis ``r`` the image is read at ``out * stride + r * dilation``, its
*place*, and nowhere else do the two appear; so an element of the image serves every output that its place touches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c.emit import Emitter, FlatStore, flat_stores, lane_loop
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import (
    Call,
    Const,
    Expr,
    Select,
    Var,
    call,
    hole,
    identity_of,
    index,
    literal,
    select,
    substitute,
    var,
)
from gpucomp.expr.simplify import linear
from gpucomp.kernel import Kernel, Loops
from gpucomp.kernel.forms.access import Rewriter, parts_within, regroup, split
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.sliding import Sliding, depthwise_of, pooling_of, stores_of
from gpucomp.refusal import required


def depthwise_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace, into: str = ""
) -> Mapping[str, Any]:
    """See ``kernels_templates/depthwise/kernel.j2`` for what each hook is; ``w`` is all that its window has to know.

    ``into`` is an array that an output's channels go to instead of memory.
    """
    found = required(depthwise_of(kernel) if isinstance(kernel.body, Loops) else pooling_of(kernel))
    lead, channel, lane = var("lead", max(1, p.lead)), var("channel", p.channels // s.vector), var(LANE, s.vector)
    # the last tile may reach past the image of the last output, where nothing is promised of it
    place_y = var("place_y", found.y.reach(derived.tiles_y * s.tile_y))
    place_x = var("place_x", found.x.reach(derived.tiles_x * s.tile_x))
    image = _within(found.image, "place_y", place_y, found.y.reach(p.out_y))
    image = _within(image, "place_x", place_x, found.x.reach(p.out_x))
    at = places(found.lead, lead) | dict(lanes_of(found.channel, channel, lane, s.vector))
    rewriter = Rewriter(kernel.params, at)
    bound = {lane: LANE} if s.vector > 1 else {}
    known: dict[Expr, str] = {channel: "channel", lead: "lead"}

    dtype = found.total.dtype
    ctype = printer.dialect.value_type(dtype)
    line = _array(ctype, "line", {"x": derived.columns}, s.vector)
    rows_of_taps = {} if derived.weights_by_row else {"r": p.taps_y}
    weight_at = _array(ctype, "weight", {**rows_of_taps, "s": p.taps_x}, s.vector)
    sums = _array(ctype, "acc", {"i": s.tile_y, "j": s.tile_x}, s.vector)
    outer = frozenset({lead, channel, place_y})
    image = regroup(rewriter(image), (frozenset({lead, channel}), frozenset({place_y}), frozenset({place_x})))
    head, names = Emitter(printer, known, prefix="p").named(parts_within([image], frozenset({lead, channel})))
    row = known | names | ({place_y: "place_y"} if place_y in image.free else {})
    row_lines, names = Emitter(printer, row, prefix="v").named(parts_within([image], outer))
    load = _filled(printer, row | names | {place_x: "place_x"} | bound, image, lane, s.vector, line[1], "u")
    taps: dict[Expr, str] = {}
    for slide, name in ((found.y, "y" if derived.weights_by_row else "r"), (found.x, "s")):
        if slide.tap is not None:
            taps[slide.tap] = name
    weight = None if found.weight is None else rewriter(found.weight)
    at_lane = f"[{LANE}]" if s.vector > 1 else ""
    of_image = f"line[{_place(s, p, derived)}]" if derived.columns > 1 else "line"
    if weight is None:
        accumulate = printer.combine(found.op, dtype, f"{sums[1]}{at_lane}", f"{of_image}{at_lane}")
        accumulate = f"{sums[1]}{at_lane} = {accumulate};"
    else:
        accumulate = f"{sums[1]}{at_lane} += {of_image}{at_lane} * {weight_at[1]}{at_lane};"
    hooks = {
        "index": printer.dialect.index_type(derived.points + s.threads),
        "start": printer.dialect.literal(identity_of(found.op, dtype), dtype),
        "accumulate": accumulate,
        "uses_y": place_y in image.free,
        "sums": sums,
        "line": line,
        "weight": weight_at,
        "head": head,
        "row_lines": row_lines,
        "load_image": load,
        "load_weight": _filled(printer, known | taps | bound, weight, lane, s.vector, weight_at[1], "w")
        if weight is not None
        else [],
        "store": _epilogue(kernel, printer, found, s, p, known, (lead, channel, lane), at, sums[1], into),
    }
    return {**hooks, "w": SimpleNamespace(**{**vars(p), **vars(s), **vars(derived), **hooks})}


def _place(s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace) -> str:
    """Which column of the image row tap ``s`` of output ``j`` reads."""
    found = []
    for name, trips, factor in (("j", s.tile_x, derived.out_step_x), ("s", p.taps_x, derived.tap_step_x)):
        if trips > 1 and factor:
            found.append(name if factor == 1 else f"{name} * {factor}")
    return " + ".join(found) or "0"


def _within(image: Expr, name: str, place: Var, limit: int) -> Expr:
    """``image`` on another place variable; from ``limit`` on nothing is read, and what stands there is not used."""
    (old,) = [v for v in image.free if v.name == name] or [place]
    image = substitute(image, {old: place})
    if place.extent == limit or place not in image.free:
        return image
    inside = call("lt", place, index(limit))
    if isinstance(image, Select):
        if _bound(image.condition, place) <= limit:
            return image
        return select(call("and", image.condition, inside), image.then, image.otherwise)
    return select(inside, image, literal(0, image.dtype))


def _array(ctype: str, name: str, extents: Mapping[str, int], width: int) -> tuple[str, str]:
    """A declaration with a dimension for every extent above 1 and for the lanes, and the element (without its lane)."""
    long = {i: n for i, n in extents.items() if n > 1}
    lanes = f"[{width}]" if width > 1 else ""
    element = name + "".join(f"[{i}]" for i in long)
    return f"{ctype} {name}{''.join(f'[{n}]' for n in long.values())}{lanes}", element


def _bound(condition: Expr, place: Var) -> float:
    """Where ``place`` is too large for ``condition``, by its comparisons with constants."""
    match condition:
        case Call(fn="and", args=(a, b)):
            return min(_bound(a, place), _bound(b, place))
        case Call(fn="lt", args=(a, Const(value=limit))):
            constant, terms = linear(a)
            return limit - constant if terms == {place: 1} else math.inf
    return math.inf


def _filled(
    printer: CPrinter, known: Mapping[Expr, str], value: Expr, lane: Var, width: int, to: str, prefix: str
) -> list[str]:
    """Statements that put the lanes of ``value`` into the array ``to``."""
    emitter = Emitter(printer, known, prefix=prefix)
    if width == 1:
        lines, (text,) = emitter.values([value])
        return [*lines, f"{to} = {text};"]
    head, lines, (text,) = emitter.lanes([value], lane, width)
    return [*head, *lane_loop([*lines, f"{to}[{LANE}] = {text};"], width)]


def _epilogue(
    kernel: Kernel,
    printer: CPrinter,
    found: Sliding,
    s: SimpleNamespace,
    p: SimpleNamespace,
    known: Mapping[Expr, str],
    variables: tuple[Var, Var, Var],
    at: Mapping[Expr, Expr],
    acc: str,
    into: str,
) -> list[str]:
    """Statements for the output at ``out_y``, ``out_x``, whose sum is ``acc``; they leave it in ``into`` if that is one."""
    lead, channel, lane = variables
    bound: dict[Expr, str] = dict(known)
    for slide, name in ((found.y, "out_y"), (found.x, "out_x")):
        if slide.out is not None:
            bound[slide.out] = name
    rewriter = Rewriter(kernel.params, at)
    stores = flat_stores(stores_of(kernel, found), rewriter)
    bound[hole("acc", found.total.dtype)] = f"{acc}[{LANE}]" if s.vector > 1 else acc
    groups = (frozenset({lead, channel}), frozenset(v for v in (found.y.out, found.x.out) if v))
    stores = [FlatStore(t.target, split(t.offset, groups), regroup(t.value, groups)) for t in stores]
    if s.vector > 1:
        bound[lane] = LANE
    if into:
        (only,) = stores
        return Emitter(printer, bound).kept(only.target, only.value, into, lane, s.vector)
    return Emitter(printer, bound).store(stores, lane, s.vector)
