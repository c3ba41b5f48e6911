"""Blocks of statements for the `mali` contraction template: named vectors, wide loads, everything written out.

A Mali compiler does not keep private arrays in registers, so every sum and every load has a name of its own. Loads are
found by address: of the elements that a step needs, those that stand side by side come in one access of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.dialect import INT32
from gpucomp.codegen.c.dots import Dot, dot_of, enabled
from gpucomp.codegen.c.emit import Emitter, FlatStore, flat_stores
from gpucomp.codegen.c.helpers import FP16
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import guarded, plus, stage, times
from gpucomp.codegen.c.vectors import ACCESS_BYTES, HEX, component, fetch, load_vectors, store_vectors, wide_loads
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import Const, Expr, Load, Var, cast, index, substitute, var
from gpucomp.expr.simplify import bounds, coefficient, simplify, unflatten
from gpucomp.ir.types import F16, I8, I32, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.access import Rewriter, parts_within, regroup, split
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.plain_loads import depth_axes, padded, plain

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.mali.space import MaliProblem, MaliSchedule, MaliSizes

PIXEL = 4  # elements of an image's pixel
WIDTHS = (16, 8, 4, 3, 2, 1)


def emit_mali(
    kernel: Kernel[Contraction], printer: CPrinter, s: MaliSchedule, p: MaliProblem, derived: MaliSizes
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/mali/kernel.j2`` for what each hook is."""
    body = kernel.body
    work = _Work(kernel, printer, s, p, derived)
    rows = _operand(work, "a", body.a, body.m, p.m, s.m0)
    columns = _image(work) if s.image else _operand(work, "b", body.b, body.n, p.n, s.n0)
    work.dot = _dot(work, rows, columns)
    steps = _steps(work, rows, columns)
    if work.half and not any(text.startswith(FP16) for text in printer.helpers.values()):
        printer.helpers = {"half": FP16} | printer.helpers
    if work.dot is not None:
        printer.helpers = {"dot": enabled(work.dot)} | printer.helpers
    sums = [f"{work.vector(derived.vector)} {name} = {work.zero};" for name in work.sums]
    return {
        "outside": _outside(s, derived),
        "before": [*_row_numbers(work), *rows.before, *columns.before],
        "sums": sums,
        "tap_lines": [*columns.per_tap, *rows.per_tap],
        "steps": steps,
        "images": [printer.params[columns.source][0]] if s.image else [],
        "finish": _finish(work),
        "index": printer.dialect.index_type(max(p.m + s.m0 * s.lws_y, p.n + s.n0 * s.lws_x, p.k)),
    }


@dataclass
class _Work:
    """What one work-item computes, and how its values are called."""

    kernel: Kernel[Contraction]
    printer: CPrinter
    s: MaliSchedule
    p: MaliProblem
    derived: MaliSizes
    batch: Var = field(init=False)
    tap: Var = field(init=False)
    inner: Var = field(init=False)
    dot: Dot | None = None

    def __post_init__(self) -> None:
        self.batch = var("batch", max(1, self.p.batch))
        self.tap = var("tap", max(1, self.p.taps))
        self.inner = var("depth", max(1, self.p.run))

    @property
    def body(self) -> Contraction:
        return self.kernel.body

    @property
    def acc(self) -> DType:
        return self.body.acc.dtype

    @property
    def half(self) -> bool:
        """Whether sums and products are halves: asked for by the kernel, and the device can."""
        return self.acc is F16 and "fp16" in self.printer.features

    @property
    def grain(self) -> int:
        """Depth steps that an operand may hold in an order of their own: the bytes of a dot product."""
        return 4 if self.p.dot and self.s.k0 % 4 == 0 else 1

    @property
    def ctype(self) -> str:
        return "half" if self.half else self.printer.dialect.value_type(self.acc)

    @property
    def zero(self) -> str:
        return "0" if self.half else self.printer.dialect.literal(0, self.acc)

    def vector(self, width: int) -> str:
        return self.ctype if width == 1 else f"{self.ctype}{width}"

    @property
    def sums(self) -> list[str]:
        return [self.sum(i, j)[0] for i in range(self.s.m0) for j in range(0, self.s.n0, self.derived.vector)]

    def sum(self, i: int, j: int) -> tuple[str, str]:
        """The vector that holds the sum of row ``i`` and column ``j``, and the text of that sum."""
        part, lane = divmod(j, self.derived.vector)
        name = f"c{i}" if self.derived.vector == self.s.n0 else f"c{i}_{part}"
        return name, component(name, lane, self.derived.vector)

    def depth_places(self, inner: Expr) -> dict[Expr, Expr]:
        outer, last = depth_axes(self.body)
        at: dict[Expr, Expr] = {a: index(0) for a in self.body.k}
        tap: Expr = self.tap if self.p.taps > 1 else index(0)
        at |= dict(zip(outer, unflatten(tap, tuple(a.extent for a in outer)), strict=True)) if outer else {}
        return at | ({last: inner} if last is not None else {})

    def batch_places(self) -> dict[Expr, Expr]:
        return places(self.body.batch, self.batch if self.p.batch > 1 else index(0))

    @property
    def known(self) -> dict[Expr, str]:
        return {self.batch: "batch"}


def _dot(work: _Work, a: _Operand, b: _Operand) -> Dot | None:
    """The device's dot product of four bytes, where both operands are bytes as they stand in memory."""
    usable = work.grain > 1 and a.element is None and b.element is None
    return dot_of(work.printer.features) if usable else None


def _row_numbers(work: _Work) -> list[str]:
    """``row0``, ``row1`` ...: rows past the end repeat the last one."""
    lines = []
    for i in range(work.s.m0):
        at = plus(times("row_block", work.s.m0), i)
        clamped = f"min({at}, {work.p.m - 1})" if i and work.p.m % work.s.m0 else at
        lines.append(f"const int row{i} = {clamped};")
    return lines


def _outside(s: MaliSchedule, d: MaliSizes) -> str:
    """The condition under which a work-item has no block; empty where all have one."""
    columns = [] if d.whole_n else [f"column_block >= {d.blocks_n}"]
    return " || ".join([*columns, *([] if d.whole_m else [f"row_block >= {d.blocks_m}"])])


# ---- operands ----


@dataclass(frozen=True)
class Element:
    """Where the element of a place along the span at one depth stands: ``delta`` elements behind ``base``."""

    base: str
    delta: int


@dataclass
class _Operand:
    """One operand of a work-item's tile.

    before, per_tap   statements in front of the loops, and once a tap
    bases             for each place of the span the name of its base, and its distance from that
    stride            elements from one depth to the next, on average over a grain
    within, grain     elements from one depth to the next inside of a grain of so many
    guards            of a base, the name of the condition under which it may be read; ``pad``: what is there else
    elements          for what is no plain load: the statements and text of an element, by place and depth
    """

    name: str
    before: list[str] = field(default_factory=list)
    per_tap: list[str] = field(default_factory=list)
    bases: list[tuple[str, int]] = field(default_factory=list)
    stride: int = 0
    within: int = 0
    grain: int = 1
    guards: dict[str, str] = field(default_factory=dict)
    pad: int = 0
    source: int = -1
    element: Expr | None = None
    spans: list[tuple[Var, str]] = field(default_factory=list)
    names: list[dict[Expr, str]] = field(default_factory=list)
    image: bool = False

    def ahead(self, depth: int) -> int:
        """Elements from the base to ``depth`` steps further."""
        return depth // self.grain * self.grain * self.stride + depth % self.grain * self.within


def _operand(work: _Work, name: str, value: Expr, axes: Sequence[Var], extent: int, size: int) -> _Operand:
    found = padded(value, work.acc)
    if found is not None:
        guard, ld, pad = found
        for shared in (True, False):  # all places behind one base, else a base each
            operand = _plain(work, name, guard, ld, (axes, extent, size), shared=shared)
            if operand is not None:
                operand.pad = pad
                return operand
    return _computed(work, name, value, axes, extent, size)


def _image(work: _Work) -> _Operand:
    """The packed weights through an image: a row a block of columns, a pixel four neighbours of it at one depth.

    Raises ``ScheduleError`` when the weights are not packed yet.
    """
    found, s, p = plain(work.body.b, work.acc), work.s, work.p
    blocks = -(-p.n // s.n0)
    size = blocks * s.n0 * p.k * (p.batch if p.b_batched else 1)
    if found is None or found[0] is not None or work.kernel.params[found[1].source].size != size:
        raise ScheduleError("contraction/mali: image=1 reads packed weights, these are not", code="GPC8001")
    row = f"batch * {blocks} + column_block" if p.b_batched and p.batch > 1 else "column_block"
    operand = _Operand("b", before=[f"const int b_row = {row};"], source=found[1].source, image=True)
    if p.taps > 1:
        operand.per_tap.append(f"const int b_at = tap * {p.run * s.n0 // PIXEL};")
    return operand


def _pixels(
    work: _Work, operand: _Operand, depths: int, at: int | None
) -> tuple[list[str], dict[tuple[int, int], Piece]]:
    """As ``_loads``, through the image."""
    each = work.s.n0 // PIXEL
    name = work.printer.params[operand.source][0]
    moving = ["b_at"] if work.p.taps > 1 else []
    moving += [] if at is not None else [f"depth * {each}" if each > 1 else "depth"]
    lines: list[str] = []
    found: dict[tuple[int, int], Piece] = {}
    for k in range(depths):
        for part in range(each):
            constant = ((at or 0) + k) * each + part
            x = " + ".join([*moving, *([str(constant)] if constant or not moving else [])])
            pixel = f"b{len(lines)}"
            read = "read_imageh" if work.half else "read_imagef"
            lines.append(f"const {work.vector(PIXEL)} {pixel} = {read}({name}, (int2)({x}, b_row));")
            found |= {(part * PIXEL + lane, k): Piece(pixel, lane, PIXEL) for lane in range(PIXEL)}
    return lines, found


def _span(name: str, extent: int, size: int, *, shared: bool) -> tuple[Var, Var, Expr]:
    """(the variable that the text knows, the lane, the flat index along the span)."""
    lane = var(LANE, size)
    if shared:
        block = var("row_block" if name == "a" else "column_block", max(1, -(-extent // size)))
        return block, lane, block * size + lane
    span = var("span", max(1, extent))
    return span, lane, span


def _span_name(work: _Work, name: str, place: int) -> tuple[str, list[str]]:
    """The name of a place's own number, and the statement that computes it where no other has."""
    if name == "a":
        return f"row{place}", []
    at = plus(times("column_block", work.s.n0), place)
    clamped = f"min({at}, {work.p.n - 1})" if place and work.p.n % work.s.n0 else at
    return f"column{place}", [f"const int column{place} = {clamped};"]


@dataclass(frozen=True)
class _Address:
    """Where plain loads read: constant distances from a start."""

    start: Expr  # of the first place and depth
    condition: Expr | None  # under which the first element may be read; ``None``: always
    variable: Var  # what the text knows of the span
    step: int  # elements from one grain of the depth to the next
    within: int  # elements from one depth to the next inside of a grain
    apart: int  # elements from one place of the span to the next


def _plain(
    work: _Work, name: str, guard: Expr | None, ld: Load, span: tuple[Sequence[Var], int, int], *, shared: bool
) -> _Operand | None:
    """An operand of plain loads; ``None`` where its addresses are no bases with constant distances."""
    address = _address(work, name, guard, ld, span, shared=shared)
    if address is None:
        return None
    size = span[2]
    stride = address.step // work.grain
    operand = _Operand(name, source=ld.source, stride=stride, within=address.within, grain=work.grain)
    groups = (frozenset({address.variable, work.batch}), frozenset({work.tap}))
    parts = [split(address.start, groups)]
    if address.condition is not None:
        parts.append(regroup(address.condition, groups))
    tap_lines, tap_names = Emitter(work.printer, work.known | {work.tap: "tap"}, prefix=f"{name}t").named(
        parts_within(parts, groups[1])
    )
    operand.per_tap += tap_lines
    for place in range(1 if shared else size):
        base = f"{name}_at" if shared or size == 1 else f"{name}{place}_at"
        spelled, lines = (address.variable.name, []) if shared else _span_name(work, name, place)
        operand.before += lines
        known = work.known | {address.variable: spelled}
        prefix = f"{name}s" if shared else f"{name}{place}s"
        outside = parts_within(parts, groups[0]) if work.p.taps > 1 else []  # else there is no loop to leave
        more, names = Emitter(work.printer, known, prefix=prefix).named(outside)
        operand.before += more
        inside = Emitter(work.printer, known | {work.tap: "tap"} | tap_names | names, prefix=f"{prefix}t")
        more, texts = inside.values(parts)
        operand.per_tap += more
        ctype = work.printer.ctype(address.start)
        if address.condition is not None:
            operand.guards[base] = base.replace("_at", "_in")
            operand.per_tap.append(f"const bool {operand.guards[base]} = {texts[1]};")
            operand.per_tap.append(f"const {ctype} {base} = {operand.guards[base]} ? {texts[0]} : 0;")
        else:
            operand.per_tap.append(f"const {ctype} {base} = {texts[0]};")
        operand.bases += [(base, i * address.apart) for i in range(size)] if shared else [(base, 0)]
    return operand


def _address(
    work: _Work, name: str, guard: Expr | None, ld: Load, span: tuple[Sequence[Var], int, int], *, shared: bool
) -> _Address | None:
    """Where ``ld`` reads; ``None`` where distances are not constant, or where loads of a step could leave the operand."""
    axes, extent, size = span
    variable, lane, flat = _span(name, extent, size, shared=shared)
    whole = var("flat", max(1, extent))
    at = {v: simplify(substitute(e, {whole: flat})) for v, e in places(axes, whole).items()}
    quad, byte = var("quad", max(1, work.p.run // work.grain)), var("byte", work.grain)
    inner = quad * work.grain + byte
    rewriter = Rewriter(work.kernel.params, at | work.depth_places(inner) | work.batch_places())
    placed = rewriter(ld)
    condition = None if guard is None else rewriter(guard)
    if not isinstance(placed, Load):
        return None  # nothing is there to be read
    (offset,) = placed.index
    step, within = coefficient(offset, quad), coefficient(offset, byte) if work.grain > 1 else 0
    apart = coefficient(offset, lane) if shared else 0
    if step is None or within is None or apart is None:
        return None
    if condition is not None and {quad, byte, lane} & condition.free:
        return None
    elements = work.kernel.params[ld.source].size
    if step % work.grain or not -INT32[1] <= step * work.p.run <= INT32[1]:
        return None  # ``depth`` times the stride is an int
    if shared and extent % size:
        low, high = bounds(offset)
        if condition is not None or low < 0 or high >= elements:
            return None
    reach = step * (work.p.run // work.grain - 1) + within * (work.grain - 1) + apart * (size - 1)
    if condition is not None and not 0 <= reach < elements:
        return None  # where the condition fails, the step's loads start at the first element
    if isinstance(condition, Const) and condition.value:
        condition = None
    start = simplify(substitute(offset, {quad: index(0), byte: index(0), lane: index(0)}))
    return _Address(start, condition, variable, step, within, apart)


def _computed(work: _Work, name: str, value: Expr, axes: Sequence[Var], extent: int, size: int) -> _Operand:
    """An operand that computes, or whose addresses follow no rule: element by element."""
    variable, _, flat = _span(name, extent, size, shared=False)
    operand = _Operand(name)
    rewriter = Rewriter(work.kernel.params, places(axes, flat) | work.depth_places(work.inner) | work.batch_places())
    element = rewriter(cast(value, work.acc))
    groups = (frozenset({variable, work.batch}), frozenset({work.tap}))
    operand.element = regroup(element, groups)
    tap_lines, tap_names = Emitter(work.printer, work.known | {work.tap: "tap"}, prefix=f"{name}t").named(
        parts_within([operand.element], groups[1])
    )
    operand.per_tap += tap_lines
    for place in range(size):
        spelled, lines = _span_name(work, name, place)
        operand.before += lines
        known = work.known | {variable: spelled}
        more, names = Emitter(work.printer, known, prefix=f"{name}{place}s").named(
            parts_within([operand.element], groups[0])
        )
        operand.before += more
        operand.names.append(known | {work.tap: "tap"} | tap_names | names)
    return operand


# ---- one step along the depth ----


@dataclass(frozen=True)
class Piece:
    """An element in a register: component ``lane`` of the vector ``name``."""

    name: str
    lane: int
    width: int

    @property
    def text(self) -> str:
        return component(self.name, self.lane, self.width)


def _steps(work: _Work, a: _Operand, b: _Operand) -> list[str]:
    """The whole depth of a tap: steps of ``k0``, in a loop where there are several, and what these leave over."""
    k0, full, rest = work.s.k0, work.derived.full, work.derived.rest
    looped = full > k0
    step = _step(work, a, b, k0, None if looped else 0) if full else []
    left = _step(work, a, b, rest, full) if rest else []
    if looped:
        return [f"for (int depth = 0; depth < {full}; depth += {k0}) {{", *step, "}", *left]
    # both use the same names
    return ["{", *step, "}", "{", *left, "}"] if step and left else [*step, *left]


def _step(work: _Work, a: _Operand, b: _Operand, depths: int, at: int | None) -> list[str]:
    """``depths`` steps: loads, then products. ``at`` is the depth of the first, ``None`` for the loop's ``depth``."""
    rows, left = _loads(work, a, work.s.m0, depths, at)
    columns, right = _loads(work, b, work.s.n0, depths, at)
    loads = [*stage("load from the rows of a", rows), *stage("load from the columns of b", columns)]
    products = _dots(work, left, right, depths) if work.dot else _products(work, left, right, depths)
    return [*loads, *stage("add their products to the sums", products)]


def _products(
    work: _Work, left: Mapping[tuple[int, int], Piece], right: Mapping[tuple[int, int], Piece], depths: int
) -> list[str]:
    lines: list[str] = []
    width = work.derived.vector
    for k in range(depths):
        for j in range(0, work.s.n0, width):
            factor = join([right[j + lane, k] for lane in range(width)], work.vector(width))
            if work.s.m0 > 1 and factor.startswith("("):
                name = f"right{k}" if work.s.n0 == width else f"right{k}_{j // width}"
                lines.append(f"const {work.vector(width)} {name} = {factor};")
                factor = name
            lines += [f"{work.sum(i, j)[0]} += {left[i, k].text} * {factor};" for i in range(work.s.m0)]
    return lines


def _dots(
    work: _Work, left: Mapping[tuple[int, int], Piece], right: Mapping[tuple[int, int], Piece], depths: int
) -> list[str]:
    assert work.dot is not None
    lines = []
    signed = work.kernel.params[padded(work.body.a, I32)[1].source].dtype is I8  # type: ignore[index]
    ctype = "char4" if signed else "uchar4"
    for k in range(0, depths, 4):
        for i in range(work.s.m0):
            row = join([left[i, k + lane] for lane in range(4)], ctype)
            for j in range(work.s.n0):
                column = join([right[j, k + lane] for lane in range(4)], ctype)
                total = work.sum(i, j)[1]
                lines.append(f"{total} = {work.dot.text(row, column, total, (signed, signed))};")
    return lines


def join(pieces: Sequence[Piece], ctype: str) -> str:
    """One vector of the pieces: the loaded one itself, a part of it, or put together."""
    first = pieces[0]
    if len(pieces) == 1:
        return first.text
    if all(x.name == first.name and x.lane == first.lane + i for i, x in enumerate(pieces)):
        if len(pieces) == first.width:
            return first.name
        return f"{first.name}.s{''.join(HEX[x.lane] for x in pieces)}"
    whole = [pieces[i].name for i in range(0, len(pieces), first.width)]
    if [(n, lane) for n in whole for lane in range(first.width)] == [(x.name, x.lane) for x in pieces]:
        return f"({ctype})({', '.join(whole)})"
    return f"({ctype})({', '.join(x.text for x in pieces)})"


def _loads(
    work: _Work, operand: _Operand, size: int, depths: int, at: int | None
) -> tuple[list[str], dict[tuple[int, int], Piece]]:
    """Statements that load the operand's part of a step, and where each element is then, by place and depth."""
    if operand.image:
        return _pixels(work, operand, depths, at)
    if operand.element is not None:
        return _elements(work, operand, size, depths, at)
    wanted: dict[str, dict[int, list[tuple[int, int]]]] = {}
    for i, (base, apart) in enumerate(operand.bases):
        for k in range(depths):
            wanted.setdefault(base, {}).setdefault(apart + operand.ahead(k), []).append((i, k))
    moving = "" if at is not None else ("depth" if operand.stride == 1 else f"depth * {operand.stride}")
    start = operand.ahead(at or 0)
    dtype = work.kernel.params[operand.source].dtype
    lines: list[str] = []
    found: dict[tuple[int, int], Piece] = {}
    for number, (base, deltas) in enumerate(wanted.items()):
        for delta, width in runs(sorted(deltas), ACCESS_BYTES // dtype.nbytes):
            mine = len(lines) if len(wanted) == 1 else number
            part = f"_{delta // max(1, operand.stride)}" if len(wanted) > 1 and len(deltas) > width else ""
            name = f"{operand.name}{mine}{part}"
            address = [work.printer.params[operand.source][0], base, *filter(None, [moving])]
            if start + delta:
                address.append(str(start + delta))
            lines.append(_load(work, name, dtype, width, address, operand.guards.get(base), operand.pad))
            for lane in range(width):
                found |= {key: Piece(name, lane, width) for key in deltas[delta + lane]}
    return lines, found


def runs(deltas: Sequence[int], most: int) -> Iterable[tuple[int, int]]:
    """(start, width) of the accesses that fetch ``deltas``, which are sorted: neighbours share one."""
    position = 0
    while position < len(deltas):
        length = 1
        while position + length < len(deltas) and deltas[position + length] == deltas[position] + length:
            length += 1
        width = next(w for w in WIDTHS if w <= min(length, most))
        yield deltas[position], width
        position += width


def _load(work: _Work, name: str, dtype: DType, width: int, address: Sequence[str], guard: str | None, pad: int) -> str:
    pointer, *offset = address
    at = " + ".join(offset)
    n = "" if width == 1 else str(width)
    if work.dot:
        ctype, zero = f"{work.printer.dialect.storage_type(dtype)}{n}", str(pad)
    else:
        ctype, zero = work.vector(width), work.printer.dialect.literal(pad, work.acc) if pad else work.zero
    text = fetch(work.printer, dtype, width, pointer, at, raw=bool(work.dot) or work.half, value=work.acc)
    if guard is not None:
        text = f"{guard} ? {text} : {zero if width == 1 else f'({ctype})({zero})'}"
    return f"const {ctype} {name} = {text};"


def _elements(
    work: _Work, operand: _Operand, size: int, depths: int, at: int | None
) -> tuple[list[str], dict[tuple[int, int], Piece]]:
    assert operand.element is not None
    lines: list[str] = []
    found: dict[tuple[int, int], Piece] = {}
    start = var("start", max(1, work.p.run))
    for i in range(size):
        known = operand.names[i] | {start: "depth"}
        emitter = Emitter(work.printer, known, prefix=f"{operand.name}{i}e")
        for k in range(depths):
            inner = index((at or 0) + k) if at is not None else start + k
            more, (text,) = emitter.values([simplify(substitute(operand.element, {work.inner: inner}))])
            name = f"{operand.name}{i}_{k}"
            lines += [*more, f"const {work.ctype} {name} = {text};"]
            found[i, k] = Piece(name, 0, 1)
    return lines, found


# ---- the epilogue ----


def _finish(work: _Work) -> list[str]:
    """The stores of a work-item's rows, each vector of columns on its own."""
    s, p, width = work.s, work.p, work.derived.store
    column = var("column_block", max(1, -(-p.n // s.n0)))
    lines: list[str] = []
    shared: dict[int, dict[Expr, str]] = {}
    for j in range(0, s.n0, width):
        if p.n % s.n0 == 0 and s.m0 > 1:
            more, shared[j] = _column_vectors(work, column, j)
            lines += stage("load what the stores of all rows read", more)
    for i in range(s.m0):
        row: list[str] = []
        for j in range(0, s.n0, width):
            chunk = _chunk(work, column, i, j, shared.get(j, {}))
            guard = f"{plus(times('column_block', s.n0), j)} < {p.n}" if j and p.n % s.n0 else ""
            row += guarded(guard, chunk)
        guard = f"{plus(times('row_block', s.m0), i)} < {p.m}" if i and p.m % s.m0 else ""
        lines += stage(f"store row {i}" if s.m0 > 1 else "store the sums", guarded(guard, row))
    return lines


def _stores(work: _Work, column: Var, j: int) -> tuple[list[FlatStore], Var, Var]:
    """The stores of columns ``j`` and on, in terms of the row, the column block and the lane."""
    row, lane, flat = var("row", max(1, work.p.m)), var(LANE, work.derived.store), var("flat", max(1, work.p.n))
    place: Expr = column * work.s.n0 + j + lane
    columns = {v: substitute(e, {flat: place}) for v, e in places(work.body.n, flat).items()}
    rewriter = Rewriter(work.kernel.params, places(work.body.m, row) | columns | work.batch_places())
    return flat_stores(work.kernel.stores, rewriter), row, lane


def _column_vectors(work: _Work, column: Var, j: int) -> tuple[list[str], dict[Expr, str]]:
    """What a column alone decides, a bias say: loaded once for all rows."""
    stores, row, lane = _stores(work, column, j)
    loads = [n for n in wide_loads(work.printer, stores, lane, work.derived.store) if row not in n.free]
    known, tag = work.known | {column: "column_block"}, f"n{j}" if j else "n"
    return load_vectors(work.printer, known, loads, lane, work.derived.store, tag)


def _chunk(work: _Work, column: Var, i: int, j: int, shared: Mapping[Expr, str]) -> list[str]:
    """Columns ``j`` to ``j + width`` of row ``i``."""
    printer, width = work.printer, work.derived.store
    stores, row, lane = _stores(work, column, j)
    known = {**work.known, row: f"row{i}", column: "column_block", **shared}
    tag = f"r{i}" if width == work.s.n0 else f"r{i}_{j}"
    vectors, sums = zip(*(work.sum(i, j + k) for k in range(width)), strict=True)
    texts = [f"convert_float({text})" if work.half else text for text in sums]
    longer = vectors if work.derived.vector > width else ()
    return store_vectors(printer, stores, lane, width, known, (work.body.acc, texts), tag, shared, longer)
