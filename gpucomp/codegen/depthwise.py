"""Windows that slide over an image, channels last: depthwise convolutions and pooling, and statements for the template.

Recognition keeps a depthwise convolution as ``Loops`` with one ``Reduce`` inside, and pooling as a ``Window``. Here
that reduction is taken apart: along each window axis ``r`` the image is read at ``out * stride + r * dilation``, its
*place*, and nowhere else do the two appear; so an element of the image serves every output that its place touches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.access import Rewriter, is_aligned, parts_within, regroup, split, vector_loads
from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.emit import LANE, Emitter, FlatStore, flat_stores, lane_loop, lanes_of
from gpucomp.codegen.operand import ACCESS_BYTES, WIDTHS, places
from gpucomp.expr.core import (
    Call,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Var,
    call,
    hole,
    identity_of,
    index,
    literal,
    loads,
    reduces,
    select,
    substitute,
    transform,
    var,
    walk,
)
from gpucomp.expr.simplify import coefficient, flatten, from_linear, linear, simplify
from gpucomp.ir.types import F32, F64, I64, DType
from gpucomp.kernel import Kernel, Loops, Store, Window


@dataclass(frozen=True)
class Slide:
    """One axis of the window: ``place = out * stride + tap * dilation``. ``out`` and ``tap`` are None where it is 1."""

    out: Var | None
    tap: Var | None
    stride: int = 1
    dilation: int = 1

    @property
    def outputs(self) -> int:
        return self.out.extent if self.out else 1

    @property
    def taps(self) -> int:
        return self.tap.extent if self.tap else 1

    def reach(self, outputs: int) -> int:
        """Places that ``outputs`` neighbouring outputs span."""
        return (outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    def uses(self, outputs: int) -> dict[int, list[tuple[int, int]]]:
        """For each place that ``outputs`` neighbouring outputs read, counted from the first: outputs and their taps."""
        found: dict[int, list[tuple[int, int]]] = {}
        for i in range(outputs):
            for tap in range(self.taps):
                found.setdefault(i * self.stride + tap * self.dilation, []).append((i, tap))
        return found


@dataclass(frozen=True)
class Sliding:
    """``op over taps of image(lead, place of y, place of x, channel)``, times ``weight(taps, channel)`` if there is one.

    ``total`` is what the stores hold for it.
    """

    lead: tuple[Var, ...]
    y: Slide
    x: Slide
    channel: Var
    total: Expr
    op: str
    image: Expr
    weight: Expr | None = None


def depthwise_of(kernel: Kernel, dtypes: tuple[DType, ...] = (F32, F64)) -> Sliding | str:
    """The parts of a depthwise convolution with channels last and sums in ``dtypes``, or why ``kernel`` is none."""
    body = kernel.body
    if not isinstance(body, Loops) or not body.domain:
        return "no loop over channels"
    totals = list(dict.fromkeys(r for s in kernel.stores for r in reduces(s.value)))
    if len(totals) != 1 or totals[0].op != "sum" or totals[0].dtype not in dtypes:
        return f"not one sum in {' or '.join(map(str, dtypes))}"
    (total,) = totals
    channel, outputs = body.domain[-1], frozenset(body.domain[:-1])
    match total.body:
        case Call(fn="mul", args=(a, b)) if loads(a) and loads(b):
            pass
        case _:
            return "not a sum of products of two arrays"
    if a.free & outputs and b.free & outputs:
        return "both factors change from output to output"
    image, weight = (a, b) if a.free & outputs else (b, a)
    if channel not in weight.free:
        return "the innermost axis is no channel of both factors"
    if any(_steps(kernel, weight, channel)):
        return "channels are no neighbours in memory, or several outputs share one"
    return _sliding(kernel, body.domain, total.axes, image, total, "sum", weight)


def pooling_of(kernel: Kernel) -> Sliding | str:
    """The parts of a pooling window with channels last, or why ``kernel`` has none."""
    body = kernel.body
    if not isinstance(body, Window) or not body.domain:
        return "no window over channels"
    return _sliding(kernel, body.domain, body.window, body.value, body.acc, body.op, None)


def _sliding(
    kernel: Kernel,
    domain: tuple[Var, ...],
    taps: tuple[Var, ...],
    image: Expr,
    total: Expr,
    op: str,
    weight: Expr | None,
) -> Sliding | str:
    channel = domain[-1]
    if any(isinstance(n, Reduce) for e in (image, weight) if e for n in walk(e)) or not 1 <= len(taps) <= 2:
        return "a window of one or two axes is expected"
    if any(r.extent == 0 for r in (*taps, *domain)):
        return "nothing to compute"
    if channel not in image.free:
        return "the innermost axis is no channel of the image"
    if any(_steps(kernel, image, channel)):
        return "channels are no neighbours in memory, or several outputs share one"
    slides = [_slide(image, tap, domain) for tap in taps]
    if None in slides:
        return "the window does not slide over one axis of the image"
    y, x = slides if len(slides) == 2 else (Slide(None, None), slides[0])
    assert y is not None
    assert x is not None
    used = [s.out for s in (y, x) if s.out]
    if len(set(used)) != len(used):
        return "two window axes slide along one output axis"
    for slide, name in ((y, "place_y"), (x, "place_x")):
        place = var(name, slide.reach(slide.outputs))
        image = _on_places(image, slide, place)
        if {v for v in (slide.out, slide.tap) if v} & image.free:
            return "the image depends on the window or the output apart from their place"
    lead = tuple(v for v in domain[:-1] if v not in used)
    return Sliding(lead, y, x, channel, total, op, image, weight)


def _steps(kernel: Kernel, value: Expr, channel: Var) -> list[Load]:
    """The loads that move with the channel otherwise than from neighbour to neighbour."""
    moving = [ld for ld in loads(value) if channel in ld.free]
    return [ld for ld in moving if coefficient(flatten(ld.index, kernel.params[ld.source].shape), channel) != 1]


def _slide(image: Expr, tap: Var, domain: tuple[Var, ...]) -> Slide | None:
    for ld in loads(image):
        for position in ld.index:
            if tap not in position.free:
                continue
            _, terms = linear(position)
            along = [v for v in domain if v in terms]
            if tap not in terms or len(along) > 1 or domain[-1] in along:
                return None
            stride, dilation = (terms[along[0]] if along else 0), terms[tap]
            if stride < 0 or dilation < 1:
                return None
            common = math.gcd(stride, dilation)
            return Slide(along[0] if along else None, tap, stride // common or 1, dilation // common)
    return None


def _on_places(image: Expr, slide: Slide, place: Var) -> Expr:
    """``image`` with every ``k * (out * stride + tap * dilation)`` as ``k * place``."""
    known: dict[Expr, Expr] = {}
    for node in walk(image):
        if node.dtype is not I64 or slide.tap is None or isinstance(node, Load):
            continue
        constant, terms = linear(node)
        by_out, by_tap = (terms.pop(slide.out, 0) if slide.out else 0), terms.pop(slide.tap, 0)
        factor, rest = divmod(by_tap, slide.dilation)
        apart = any({slide.out, slide.tap} & t.free for t in terms)
        if factor and not rest and not apart and (slide.out is None or by_out == factor * slide.stride):
            known[node] = from_linear(constant, {**terms, place: factor})
    return transform(image, lambda node: None, known)


def access_width(kernel: Kernel, found: Sliding) -> int:
    """Channels that every load and store that moves with them may take at once."""
    channels = found.channel.extent
    for width in WIDTHS:
        if channels % width:
            continue
        quotient, lane = var("quotient", channels // width), var(LANE, width)
        rewriter = Rewriter(kernel.params, lanes_of(found.channel, quotient, lane, width))
        stores = stores_of(kernel, found)
        values = [simplify(rewriter(e)) for e in (*_factors(found), *(s.value for s in stores))]
        moving = {n for e in values for n in walk(e) if isinstance(n, Load) and lane in n.free}
        wide = {f.load for f in vector_loads(values, lane, width)}
        aligned = all(is_aligned(rewriter.offset(s.target, s.index), lane, width) for s in stores)
        if moving <= wide and aligned and all(width * n.dtype.nbytes <= ACCESS_BYTES for n in moving):
            return width
    return 1


def _factors(found: Sliding) -> list[Expr]:
    return [found.image] if found.weight is None else [found.image, found.weight]


def stores_of(kernel: Kernel, found: Sliding) -> list[Store]:
    acc = hole("acc", found.total.dtype)
    return [Store(s.target, s.index, substitute(s.value, {found.total: acc})) for s in kernel.stores]


def depthwise_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace, into: str = ""
) -> Mapping[str, Any]:
    """See ``kernels_templates/depthwise/kernel.j2`` for what each hook is; ``w`` is all that its window has to know.

    ``into`` is an array that an output's channels go to instead of memory.
    """
    found = depthwise_of(kernel) if isinstance(kernel.body, Loops) else pooling_of(kernel)
    assert isinstance(found, Sliding)
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
