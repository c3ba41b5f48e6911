"""Windows that slide over an image, channels last: depthwise convolutions and pooling, and statements for the template.

Recognition keeps a depthwise convolution as ``Loops`` with one ``Reduce`` inside, and pooling as a ``Window``. Here
that reduction is taken apart: along each window axis ``r`` the image is read at ``out * stride + r * dilation``, its
*place*, and nowhere else do the two appear; so an element of the image serves every output that its place touches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import highest, plain
from gpucomp.codegen.c.emit import Emitter, FlatStore, flat_stores, lane_loop
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import each, loop, over, plus, remainder, times
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
from gpucomp.ir.size import at_most, is_one, same
from gpucomp.kernel import Kernel, Loops
from gpucomp.kernel.forms.access import Rewriter, parts_within, regroup, split
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.sliding import Sliding, depthwise_of, pooling_of, stores_of
from gpucomp.refusal import required

if TYPE_CHECKING:
    from gpucomp.kernels_templates.depthwise.space import DepthwiseProblem, DepthwiseSchedule, DepthwiseSizes


@dataclass(frozen=True, slots=True)
class _Item:
    """What the text of a work-item counts with: its image, its vector of channels, and the place that it reads."""

    lead: Var
    channel: Var  # counts vectors
    lane: Var
    place_y: Var
    place_x: Var

    @property
    def width(self) -> int:
        """Channels of a vector."""
        return self.lane.extent

    @property
    def names(self) -> dict[Expr, str]:
        """What the text knows from its beginning."""
        return {self.channel: "channel", self.lead: "lead"}

    @property
    def lanes(self) -> dict[Expr, str]:
        """The lane, known in its loop."""
        return {self.lane: LANE} if self.width > 1 else {}

    def at(self, found: Sliding) -> dict[Expr, Expr]:
        """The kernel's own variables on these."""
        lanes = lanes_of(found.channel, self.channel, self.lane, self.width)
        return places(found.lead, self.lead) | dict(lanes)


@dataclass(frozen=True, slots=True)
class _Array:
    """An array in registers: how it is declared, and the text of an element without its lane."""

    declaration: str
    element: str
    at_lane: str  # "[lane]" where an element is a vector


@dataclass(frozen=True, slots=True)
class _ImageText:
    """Statements that read the image."""

    head: list[str]  # once a work-item
    row_lines: list[str]  # once a row of places
    load: list[str]  # one place, into ``line``
    uses_y: bool  # whether they read ``place_y``


@dataclass(frozen=True, slots=True)
class WindowText:
    """What ``depthwise/window.j2`` prints: the sums of one work-item."""

    head: list[str]  # once a work-item
    weights: list[str]  # all of them; none where each row of the image loads those that it meets
    sums: list[str]
    rows: int  # of the image
    unrolled: bool  # whether the loop over them is written out
    load_row: list[str]  # one row of places of the image, and its weights
    outputs_y: int  # rows of outputs
    tap_row: list[str]  # ``r``, the row of the window that meets row ``i`` of the outputs; else the loop goes on
    accumulate: list[str]  # the row of places into one row of sums


def emit_depthwise(
    kernel: Kernel,
    printer: CPrinter,
    s: DepthwiseSchedule,
    p: DepthwiseProblem,
    derived: DepthwiseSizes,
    into: str = "",
) -> Mapping[str, Any]:
    """``window``: the sums; ``store``: the epilogue of output (i, j), ``stores``: of all.

    ``into`` is an array that an output's channels go to instead of memory.
    """
    found = required(depthwise_of(kernel) if isinstance(kernel.body, Loops) else pooling_of(kernel))
    item = _Item(
        lead=var("lead", plain(max(1, p.lead))),
        channel=var("channel", p.channels // s.vector),
        lane=var(LANE, s.vector),
        # the last tile may reach past the image of the last output, where nothing is promised of it
        place_y=var("place_y", plain(found.y.reach(derived.tiles_y * s.tile_y))),
        place_x=var("place_x", plain(found.x.reach(derived.tiles_x * s.tile_x))),
    )
    rewriter = Rewriter(kernel.params, item.at(found))
    dtype = found.total.dtype
    ctype = printer.dialect.value_type(dtype)
    line = _array(ctype, "line", {"x": derived.columns}, s.vector)
    sums = _array(ctype, "acc", {"i": s.tile_y, "j": s.tile_x}, s.vector)
    rows_of_taps = {} if derived.weights_by_row else {"r": p.taps_y}
    weight = _array(ctype, "weight", {**rows_of_taps, "s": p.taps_x}, s.vector)
    image = _within(found.image, "place_y", item.place_y, plain(found.y.reach(p.out_y)))
    image = _within(image, "place_x", item.place_x, plain(found.x.reach(p.out_x)))
    of_image = f"line[{_place(s, p, derived)}]" if derived.columns > 1 else "line"
    text = _image_text(printer, rewriter(image), item, line)
    start = printer.dialect.literal(identity_of(found.op, dtype), dtype)
    clear = each(LANE, s.vector, f"{sums.element}{sums.at_lane} = {start};")
    add = each(LANE, s.vector, _accumulated(printer, found, sums, of_image + line.at_lane, weight))
    by_row = bool(derived.weights_by_row)
    load_weight = _weight_lines(printer, found, rewriter, item, weight, by_row=by_row)
    weights = [f"{weight.declaration};", *loop("s", p.taps_x, load_weight)]
    all_weights = [f"{weight.declaration};", *loop("r", p.taps_y, loop("s", p.taps_x, load_weight))]
    window = WindowText(
        head=text.head,
        weights=all_weights if p.weighted and not by_row else [],
        sums=[f"{sums.declaration};", *loop("i", s.tile_y, loop("j", s.tile_x, clear))],
        rows=derived.rows,
        unrolled=s.unroll == 1,
        load_row=[*_load_row(text, line, s, p, derived), *(weights if p.weighted and by_row else [])],
        outputs_y=s.tile_y,
        tap_row=_tap_row(s, p, derived),
        accumulate=loop("s", p.taps_x, loop("j", s.tile_x, add)),
    )
    store = _epilogue(kernel, printer, found, item, sums, into)
    index_type = printer.dialect.index_type(highest(derived.points + s.threads))
    return {
        "index": index_type,
        "window": window,
        "my_outputs": _my_outputs(index_type, p, s, derived),
        "store": store,
        "stores": _stores(store, s, p, derived),
    }


def _load_row(
    image: _ImageText, line: _Array, s: DepthwiseSchedule, p: DepthwiseProblem, d: DepthwiseSizes
) -> list[str]:
    """All places of row ``y`` of the image, into ``line``."""
    first_y, first_x = ("first_y" if d.tiles_y > 1 else "0"), ("first_x" if d.tiles_x > 1 else "0")
    place_y = plus(times(first_y, p.stride_y), times("y" if d.rows > 1 else "0", d.step_y))
    place_x = plus(times(first_x, p.stride_x), times("x" if d.columns > 1 else "0", d.step_x))
    return [
        *([f"const int place_y = {place_y};"] if image.uses_y else []),
        *image.row_lines,
        f"{line.declaration};",
        *loop("x", d.columns, [f"const int place_x = {place_x};", *image.load]),
    ]


def _tap_row(s: DepthwiseSchedule, p: DepthwiseProblem, d: DepthwiseSizes) -> list[str]:
    """The row ``r`` of the window that row ``y`` of the image meets, for row ``i`` of the outputs, if there is one."""
    if s.tile_y == 1:
        return []
    first, step = times("i", d.out_step_y), d.tap_step_y
    if step <= 1:
        return [f"const int r = y - {first};", f"if (r < 0 || r >= {p.taps_y}) continue;"]
    return [
        f"const int ahead = y - {first};",
        f"if (ahead < 0 || ahead > {(p.taps_y - 1) * step} || ahead % {step} != 0) continue;",
        *([f"const int r = ahead / {step};"] if p.weighted else []),
    ]


def _my_outputs(index_type: str, p: DepthwiseProblem, s: DepthwiseSchedule, d: DepthwiseSizes) -> list[str]:
    """Digits of ``point``: which channels, and which tile of which image."""

    def digit(name: str, before: int, count: int, after: int, tile: int) -> list[str]:
        if count == 1:
            return []
        text = over("point", before) if index_type == "int" or isinstance(before, int) else f"point / {before}"
        if after > 1:
            text = remainder(text, count) if index_type == "int" else f"{text} % {count}"
        text += f" * {tile}" if tile > 1 else ""
        return [f"const int {name} = {text};"]

    channels, columns = d.groups_of_channels, d.groups_of_channels * d.tiles_x
    return [
        *digit("channel", 1, channels, d.tiles_x * d.tiles_y * p.lead, 1),
        *digit("first_x", channels, d.tiles_x, d.tiles_y * p.lead, s.tile_x),
        *digit("first_y", columns, d.tiles_y, p.lead, s.tile_y),
        *digit("lead", columns * d.tiles_y, p.lead, 1, 1),
    ]


def _stores(store: list[str], s: DepthwiseSchedule, p: DepthwiseProblem, d: DepthwiseSizes) -> list[str]:
    """``store`` for each output of the tile that there is."""

    def place(name: str, first: str, index: str, count: int, tiles: int, tile: int) -> list[str]:
        at = plus(first if tiles > 1 else 0, index if tile > 1 else 0)
        return [
            *([f"const int {name} = {at};"] if count > 1 or count % tile else []),
            *([f"if ({name} >= {count}) continue;"] if count % tile else []),
        ]

    of_column = [*place("out_x", "first_x", "j", p.out_x, d.tiles_x, s.tile_x), *store]
    of_row = [*place("out_y", "first_y", "i", p.out_y, d.tiles_y, s.tile_y), *loop("j", s.tile_x, of_column)]
    return loop("i", s.tile_y, of_row)


def _image_text(printer: CPrinter, image: Expr, item: _Item, line: _Array) -> _ImageText:
    whole, y = frozenset({item.lead, item.channel}), frozenset({item.place_y})
    image = regroup(image, (whole, y, frozenset({item.place_x})))
    head, names = Emitter(printer, item.names, prefix="p").named(parts_within([image], whole))
    uses_y = item.place_y in image.free
    known = item.names | names | ({item.place_y: "place_y"} if uses_y else {})
    row_lines, names = Emitter(printer, known, prefix="v").named(parts_within([image], whole | y))
    known |= names | {item.place_x: "place_x"} | item.lanes
    load = _filled(Emitter(printer, known, prefix="u"), image, item, line)
    return _ImageText(head, row_lines, load, uses_y)


def _accumulated(printer: CPrinter, found: Sliding, sums: _Array, of_image: str, weight: _Array) -> str:
    """The statement that adds one place of the image to one sum."""
    total = sums.element + sums.at_lane
    if found.weight is None:
        return f"{total} = {printer.combine(found.op, found.total.dtype, total, of_image)};"
    return f"{total} += {of_image} * {weight.element}{weight.at_lane};"


def _weight_lines(
    printer: CPrinter, found: Sliding, rewriter: Rewriter, item: _Item, weight: _Array, *, by_row: bool
) -> list[str]:
    """Statements that load the weight of tap ``r``, ``s``; ``by_row``: of the image's row ``y``, which then is the tap's."""
    if found.weight is None:
        return []
    named = ((found.y.tap, "y" if by_row else "r"), (found.x.tap, "s"))
    taps: dict[Expr, str] = {tap: name for tap, name in named if tap is not None}
    emitter = Emitter(printer, item.names | taps | item.lanes, prefix="w")
    return _filled(emitter, rewriter(found.weight), item, weight)


def _place(s: DepthwiseSchedule, p: DepthwiseProblem, derived: DepthwiseSizes) -> str:
    """Which column of the image row tap ``s`` of output ``j`` reads."""
    output, tap = ("j" if s.tile_x > 1 else "0"), ("s" if p.taps_x > 1 else "0")
    return plus(times(output, derived.out_step_x), times(tap, derived.tap_step_x))


def _within(image: Expr, name: str, place: Var, limit: Any) -> Expr:
    """``image`` on another place variable; from ``limit`` on nothing is read, and what stands there is not used."""
    (old,) = [v for v in image.free if v.name == name] or [place]
    image = substitute(image, {old: place})
    if same(place.extent, limit) or place not in image.free:
        return image
    inside = call("lt", place, index(limit))
    if isinstance(image, Select):
        if _ends_before(image.condition, place, limit):
            return image
        return select(call("and", image.condition, inside), image.then, image.otherwise)
    return select(inside, image, literal(0, image.dtype))


def _array(ctype: str, name: str, extents: Mapping[str, int], width: int) -> _Array:
    """An array with a dimension for every extent above 1, and one for the lanes."""
    long = {i: n for i, n in extents.items() if n > 1}
    lanes = f"[{width}]" if width > 1 else ""
    element = name + "".join(f"[{i}]" for i in long)
    declaration = f"{ctype} {name}{''.join(f'[{n}]' for n in long.values())}{lanes}"
    return _Array(declaration, element, f"[{LANE}]" if width > 1 else "")


def _ends_before(condition: Expr, place: Var, limit: Any) -> bool:
    """Whether ``condition`` is false from a ``place`` up to ``limit`` on, by its comparisons with constants."""
    match condition:
        case Call(fn="and", args=(a, b)):
            return _ends_before(a, place, limit) or _ends_before(b, place, limit)
        case Call(fn="lt", args=(a, Const(value=end))):
            constant, terms = linear(a)
            return len(terms) == 1 and is_one(terms.get(place)) and at_most(end - constant, limit)
    return False


def _filled(emitter: Emitter, value: Expr, item: _Item, to: _Array) -> list[str]:
    """Statements that put the lanes of ``value`` into an element of ``to``."""
    if item.width == 1:
        lines, (text,) = emitter.values([value])
        return [*lines, f"{to.element} = {text};"]
    head, lines, (text,) = emitter.lanes([value], item.lane, item.width)
    return [*head, *lane_loop([*lines, f"{to.element}{to.at_lane} = {text};"], item.width)]


def _epilogue(kernel: Kernel, printer: CPrinter, found: Sliding, item: _Item, sums: _Array, into: str) -> list[str]:
    """Statements for the output at ``out_y``, ``out_x``, of which ``sums`` has the sum; they leave it in ``into`` if given."""
    named = ((found.y.out, "out_y"), (found.x.out, "out_x"))
    outputs: dict[Expr, str] = {out: name for out, name in named if out is not None}
    total: dict[Expr, str] = {hole("acc", found.total.dtype): sums.element + sums.at_lane}
    stores = flat_stores(stores_of(kernel, found), Rewriter(kernel.params, item.at(found)))
    groups = (frozenset({item.lead, item.channel}), frozenset(v for v in (found.y.out, found.x.out) if v))
    stores = [FlatStore(t.target, split(t.offset, groups), regroup(t.value, groups)) for t in stores]
    emitter = Emitter(printer, item.names | outputs | total | item.lanes)
    if into:
        (only,) = stores
        return emitter.kept(only.target, only.value, into, item.lane, item.width)
    return emitter.store(stores, item.lane, item.width)
