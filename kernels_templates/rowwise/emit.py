"""How a rowwise kernel runs through memory, and blocks of statements for its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import highest, plain
from gpucomp.codegen.c.emit import Emitter, FlatStore, flat_stores, lane_loop
from gpucomp.codegen.c.epilogue import split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import guarded, over, plus
from gpucomp.expr.core import Expr, Hole, Load, Select, Var, hole, identity_of, literal, loads, substitute, var, walk
from gpucomp.ir.types import BOOL
from gpucomp.kernel import Kernel, Rowwise, Statistic
from gpucomp.kernel.forms.access import Rewriter, parts_within
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.rows import SHUFFLED, common_parts, early_parts
from gpucomp.kernel.forms.totals import at_least_one, by_reciprocals

if TYPE_CHECKING:
    from gpucomp.kernels_templates.rowwise.space import (
        RowsProblem,
        RowsSizes,
        RowwiseProblem,
        RowwiseSchedule,
        RowwiseSizes,
    )


BLOCK = 64  # accesses that a work-item adds up apart, where it has MANY: one sum of a long row loses its small terms
MANY = 256


@dataclass
class _Walk:
    """The kernel on the template's variables: ``row`` and ``col`` count groups of ``width`` along one of the two."""

    row: Var
    col: Var
    lane: Var
    width: int
    row_width: int
    known: dict[Expr, str]
    held: dict[Expr, Hole] = field(default_factory=dict)

    def scope(self, *, in_column: bool) -> dict[Expr, str]:
        lane = {self.lane: LANE} if self.width > 1 else {}
        return self.known | lane | ({self.col: "col"} if in_column else {})


@dataclass(frozen=True, slots=True)
class _Stages:
    """What is computed of each element on its way: a value for each statistic, in order, then the results."""

    values: list[Expr]
    row_stores: list[FlatStore]  # once a row
    stores: list[FlatStore]  # once an element

    @property
    def results(self) -> list[Expr]:
        return [e for store in self.stores for e in (store.offset, store.value)]

    @property
    def each(self) -> list[list[Expr]]:
        return [*([value] for value in self.values), self.results]


@dataclass(frozen=True, slots=True)
class _Kept:
    """Parts of an element that stay in registers, by their names."""

    between: Mapping[Expr, str]  # several stages need these: the first of them computes them
    early: Mapping[Expr, str]  # only results need these: they are fetched before the statistics

    def arrays(self, printer: CPrinter, elements: int) -> list[str]:
        names = {**self.between, **self.early}
        return [f"{printer.ctype(part)} {name}[{elements}];" for part, name in names.items()]


@dataclass(frozen=True, slots=True)
class StatisticText:
    """One statistic as the template prints it. Where an access takes several rows, texts are of row ``lane``.

    at          the text of its value
    start       the statement that begins again, with no access
    accesses    a work-item's accesses of the row
    shuffled    joins lanes of a warp; the rest goes through an array of slots in shared memory: ``to_slot``,
                ``from_slot``, ``add_slot`` of another lane, ``add_warp`` of another warp
    add_part    joins what another work-group has left
    """

    name: str
    op: str
    at: str
    declared: list[str]
    start: str
    accesses: list[str]
    shuffled: list[str]
    to_slot: list[str]
    from_slot: list[str]
    add_slot: list[str]
    add_warp: list[str]
    add_part: list[str]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How work-items share rows, as texts."""

    index: str
    s: RowwiseSchedule
    p: RowwiseProblem
    d: RowwiseSizes
    shuffles: bool
    in_warp: int  # lanes that join by shuffles; 1 where nothing shuffles

    @property
    def warps(self) -> int:
        """What is left to join through shared memory."""
        return self.s.lanes // self.in_warp

    @property
    def ragged(self) -> bool:
        """The last work-group has work-items without a row of their own."""
        d = self.d
        return self.s.rows_per_group > 1 and (d.row_groups % self.s.rows_per_group > 0 or d.row_groups == 0)

    @property
    def my_result(self) -> str:
        """Where a work-item's result is among those that a work-group leaves."""
        return f"row * {self.d.row_width} + {LANE}" if self.d.row_width > 1 else "row"

    def place(self) -> list[str]:
        """Where a work-item stands among those of its work-group."""
        lanes, rows = self.s.lanes, self.s.rows_per_group
        if lanes == 1:
            found = ["const int local_row = id;"] if rows > 1 else []
            found += ["const int lane_id = 0;"] if self.s.splits > 1 else []
        elif rows == 1:
            found = ["const int lane_id = id;"]
        elif self.p.rows_side_by_side:
            found = [f"const int local_row = id % {rows};", f"const int lane_id = id / {rows};"]
        else:
            found = [f"const int local_row = id / {lanes};", f"const int lane_id = id % {lanes};"]
        if self.warps > 1 and not self.shuffles:
            found.append(f"const int slot = {'lane_id' if rows == 1 else f'local_row * {lanes} + lane_id'};")
        return found

    def declared(self, ctype: str, name: str, start: str) -> list[str]:
        """A variable for each row of an access, which begins as ``start``."""
        if self.d.row_width == 1:
            return [f"{ctype} {name} = {start};"]
        return [f"{ctype} {name}[{self.d.row_width}];", *self.each_row(f"{name}[{LANE}] = {start};")]

    def each_row(self, *body: str) -> list[str]:
        """``body`` for each row of an access."""
        width = self.d.row_width
        if width == 1:
            return list(body)
        if len(body) == 1:
            return ["#pragma unroll", f"for (int {LANE} = 0; {LANE} < {width}; ++{LANE}) {body[0]}"]
        return lane_loop(body, width)

    @property
    def many(self) -> bool:
        """Whether a work-item may have many accesses of a row, and goes through them by a loop."""
        accesses = self.p.most_cols // (self.d.col_width * self.s.splits) if self.p.most_cols else self.d.part
        return not self.s.keep and accesses > MANY * self.s.lanes

    @property
    def ends(self) -> tuple[str, Any]:
        """The first access of a work-item, and where those of its work-group end."""
        begin = plus("begin" if self.s.splits > 1 else "0", "lane_id" if self.s.lanes > 1 else "0")
        return begin, "end" if self.s.splits > 1 else self.d.col_groups

    def in_blocks(self, before: Sequence[str], body: Sequence[str], after: Sequence[str]) -> list[str]:
        """As ``columns``, in blocks of accesses with statements ``before`` and ``after`` each."""
        (begin, end), stride = self.ends, BLOCK * self.s.lanes
        step = f"col += {self.s.lanes}" if self.s.lanes > 1 else "++col"
        return [
            f"for ({self.index} block = {begin}; block < {end}; block += {stride}) {{",
            f"const {self.index} stop = {end} - block > {stride} ? block + {stride} : {end};",
            *before,
            f"for ({self.index} col = block; col < stop; {step}) {{",
            *body,
            "}",
            *after,
            "}",
        ]

    def columns(self, body: Sequence[str]) -> list[str]:
        """``body`` for each of a work-item's accesses ``col`` of a row; where rows are kept, their number is ``step``."""
        if not body:
            return []
        lanes, steps, groups = self.s.lanes, self.d.steps, self.d.col_groups
        if not self.s.keep:
            begin, end = self.ends
            step = f"col += {lanes}" if lanes > 1 else "++col"
            return [f"for ({self.index} col = {begin}; col < {end}; {step}) {{", *body, "}"]
        if steps > 1:
            head = ["#pragma unroll", f"for (int step = 0; step < {steps}; ++step) {{"]
            col = f"lane_id + step * {lanes}" if lanes > 1 else "step"
        else:
            head = ["{", "const int step = 0;"]
            col = "lane_id" if lanes > 1 else "0"
        inside = guarded(f"col < {groups}" if self.p.most_cols or groups % lanes else "", body)
        return [*head, f"const {self.index} col = {col};", *inside, "}"]


def emit_rowwise(
    kernel: Kernel[Rowwise], printer: CPrinter, s: RowwiseSchedule, p: RowwiseProblem, derived: RowwiseSizes
) -> Mapping[str, Any]:
    """See ``kernels_templates/rowwise/kernel.j2`` for what each hook is."""
    body = kernel.body
    row_width, col_width = derived.row_width, derived.col_width
    row, col = var("row", plain(max(1, p.rows // row_width))), var("col", plain(max(1, p.cols // col_width)))
    walk_ = _Walk(row, col, var(LANE, s.vector), s.vector, row_width, {row: "row"})
    stages = _stages(kernel, walk_, p, col_width)
    row_body, named = Emitter(printer, walk_.known, prefix="r").named(
        parts_within([*stages.values, *stages.results], frozenset({row}))
    )
    walk_.known |= named
    kept = _kept(stages, col, s.keep)
    index = printer.dialect.index_type(
        highest(
            p.rows * s.splits, p.rows + s.rows_per_group * row_width, p.cols + s.lanes * col_width * s.splits * BLOCK
        )
    )
    shuffles = can_shuffle(printer, p, derived)
    layout = _Layout(index, s, p, derived, shuffles, derived.lanes_in_warp if shuffles else 1)
    early = layout.columns(_fetched_early(printer, walk_, kept.early))
    statistics = [
        _statistic(printer, walk_, layout, number, statistic, value, kept.between)
        for number, (statistic, value) in enumerate(zip(body.statistics, stages.values, strict=True))
    ]
    finals, elements = _results(printer, walk_, stages, {statistic.hole for statistic in body.statistics})
    row_stores = _row_stores(printer, walk_, stages.row_stores)
    writes = ([f"my_row < {derived.row_groups}"] if layout.ragged else []) + (["lane_id == 0"] if s.lanes > 1 else [])
    last = derived.last_row
    types = [_shared_type(printer, statistic) for statistic in body.statistics]
    return {
        "scratch": split_scratch(printer, types[0] if types else "int", s.splits),
        "index": index,
        "shuffles": shuffles,
        "in_warp": layout.in_warp,
        "warps": layout.warps,
        "shared_arrays": _shared_arrays(layout, types),
        "my_place": layout.place(),
        "clamped_row": [f"const {index} row = my_row < {last} ? my_row : {last};"] if layout.ragged else [],
        "each_row": layout.each_row,
        "leaves": " && ".join(writes),
        "my_result": layout.my_result,
        "row_body": row_body,
        "early": early,
        "before_all": _waits_for_nothing(kernel, kept.early, named),
        "statistics": statistics,
        "row_stores": guarded("lane_id == 0" if s.lanes > 1 else "", row_stores) if row_stores else [],
        "results": [*finals, *layout.columns(elements)] if elements else [],
        "kept": kept.arrays(printer, max(1, derived.steps) * s.vector),
    }


def _shared_type(printer: CPrinter, statistic: Statistic) -> str:
    """The type of a statistic in shared memory and in the workspace."""
    dtype = statistic.hole.dtype
    return "int" if dtype is BOOL else printer.dialect.value_type(dtype)


def _shared_arrays(layout: _Layout, types: Sequence[str]) -> list[tuple[str, str, list[int]]]:
    """Arrays in shared memory: type, name, extents."""
    width, warps = layout.d.row_width, layout.warps
    extents = [layout.s.rows_per_group * warps, *([width] if width > 1 else [])]
    slots = [(ctype, f"shared_s{number}", extents) for number, ctype in enumerate(types)] if warps > 1 else []
    return [*slots, *([("int", "is_last", [1])] if layout.s.splits > 1 else [])]


def _stages(kernel: Kernel[Rowwise], walk_: _Walk, p: RowwiseProblem, col_width: int) -> _Stages:
    """The kernel's expressions on the variables of the walk."""
    body = kernel.body
    flat_row, flat_col = var("flat_row", plain(max(1, p.rows))), var("flat_col", plain(max(1, p.cols)))
    placed = {
        **lanes_of(flat_row, walk_.row, walk_.lane, walk_.row_width),
        **lanes_of(flat_col, walk_.col, walk_.lane, col_width),
    }
    at = places(body.rows, flat_row) | places(body.cols, flat_col)
    rewriter = Rewriter(kernel.params, {v: substitute(e, placed) for v, e in at.items()})
    values = [rewriter(statistic.value) for statistic in body.statistics]
    stores = flat_stores(kernel.stores, rewriter)
    reciprocals = {total: literal(1.0, total.dtype) / total for total in at_least_one(body.statistics)}
    of_elements = [
        FlatStore(store.target, store.offset, by_reciprocals(store.value, reciprocals))
        for i, store in enumerate(stores)
        if i not in body.row_stores
    ]
    return _Stages(values, [stores[i] for i in sorted(body.row_stores)], of_elements)


def _kept(stages: _Stages, col: Var, keep: int) -> _Kept:
    """What the parameter ``keep`` leaves in registers: 0 nothing, 2 also what only the results read."""
    between = common_parts(stages.each, frozenset({col})) if keep else []
    early = early_parts(stages.each, frozenset({col})) if keep == 2 else []
    return _Kept(
        {part: f"kept{i}" for i, part in enumerate(between)}, {part: f"early{i}" for i, part in enumerate(early)}
    )


def _waits_for_nothing(kernel: Kernel, early: Mapping[Expr, str], named: Mapping[Expr, str]) -> bool:
    """Whether what is fetched ``early`` reads constants alone, and nothing that a row has computed before."""
    constants = {ld.source for part in early for ld in loads(part)} <= kernel.constants
    return bool(early) and constants and not any(n in named for part in early for n in walk(part))


def can_shuffle(printer: CPrinter, p: RowsProblem, derived: RowsSizes) -> bool:
    """Whether lanes exchange values by shuffles: CUDA's, of types that they take, by all threads of each warp."""
    return printer.dialect.shuffles and derived.threads % SHUFFLED == 0 and bool(p.shuffles)


def _fetched_early(printer: CPrinter, walk_: _Walk, names: Mapping[Expr, str]) -> list[str]:
    """Statements that keep an access's ``names``; from here on they are known."""
    if not names:
        return []
    emitter = Emitter(printer, walk_.scope(in_column=True), prefix="a")
    if walk_.width > 1:
        head, lines, texts = emitter.lanes(list(names), walk_.lane, walk_.width)
    else:
        head, (lines, texts) = [], emitter.values(list(names))
    kept = _keep(walk_, names, texts)
    return [*head, *(lane_loop([*lines, *kept], walk_.width) if walk_.width > 1 else [*lines, *kept])]


def _keep(walk_: _Walk, names: Mapping[Expr, str], texts: Sequence[str]) -> list[str]:
    """Statements that leave values in registers under their names, where what follows finds them."""
    step = f"step * {walk_.width} + {LANE}" if walk_.width > 1 else "step"
    for part, name in names.items():
        walk_.held[part] = hole(name, part.dtype)
        walk_.known[walk_.held[part]] = f"{name}[{step}]"
    return [f"{name}[{step}] = {text};" for name, text in zip(names.values(), texts, strict=True)]


def _statistic(
    printer: CPrinter,
    walk_: _Walk,
    layout: _Layout,
    number: int,
    statistic: Statistic,
    value: Expr,
    names: Mapping[Expr, str],
) -> StatisticText:
    """One statistic for the template; from here on its name and what it keeps are known."""
    name, op, dtype = f"s{number}", statistic.op, statistic.hole.dtype
    at = f"{name}[{LANE}]" if walk_.row_width > 1 else name
    value = substitute(value, walk_.held)
    emitter = Emitter(printer, walk_.scope(in_column=True))
    fresh = [part for part in names if part not in walk_.held and any(n is part for n in walk(value))]
    exprs = [*fresh, value]
    if walk_.width > 1:
        head, lines, (*parts, text) = emitter.lanes(exprs, walk_.lane, walk_.width)
    else:
        head, (lines, (*parts, text)) = [], emitter.values(exprs)
    inner = [*lines, *_keep(walk_, {part: names[part] for part in fresh}, parts)]
    ctype = printer.dialect.value_type(dtype)
    term = text
    if not text.isidentifier():
        term = "term"
        inner.append(f"const {ctype} term = {text};")
    in_blocks = op == "sum" and dtype.is_float and layout.many
    sum_at = f"{name}_block{at.removeprefix(name)}" if in_blocks else at
    inner.append(f"{sum_at} = {printer.combine(op, dtype, sum_at, term)};")
    walk_.known[statistic.hole] = at
    accesses = [*head, *(lane_loop(inner, walk_.width) if walk_.width > 1 else inner)]
    start = printer.dialect.literal(identity_of(op, dtype), dtype)
    if in_blocks:
        joined = layout.each_row(f"{at} = {printer.combine(op, dtype, at, sum_at)};")
        accesses = layout.in_blocks(layout.declared(ctype, f"{name}_block", start), accesses, joined)
    else:
        accesses = layout.columns(accesses)
    return _text(layout, name, op, ctype, at, start, accesses, printer.combine(op, dtype, at, "other"))


def _text(
    layout: _Layout, name: str, op: str, ctype: str, at: str, start: str, accesses: Sequence[str], combined: str
) -> StatisticText:
    """The text of a statistic with the loop over its accesses; ``combined`` is its value ``at`` with that of ``other``."""
    d, in_warp, several = layout.d, layout.in_warp, layout.d.row_width > 1
    side = f"[{LANE}]" if several else ""
    first = f"local_row * {layout.warps}" if layout.s.rows_per_group > 1 else "0"

    def slot(number: str) -> str:
        return f"shared_{name}[{number}]{side}"

    def add(text: str, *then: str) -> list[str]:
        return layout.each_row(f"const {ctype} other = {text};", f"{at} = {combined};", *then)

    shuffled: list[str] = []
    if in_warp > 1:
        stride = d.lane_stride
        mask = "mask" if in_warp > 2 else stride
        each = f"for (int mask = {in_warp * stride // 2}; mask > {stride // 2}; mask /= 2) {{" if in_warp > 2 else "{"
        shuffled = [each, *add(f"gc_shfl_xor({at}, {mask})"), "}"]
    if layout.shuffles:
        mine = plus(first, over("lane_id", in_warp))
        to_slot = guarded(f"lane_id % {in_warp} == 0" if in_warp > 1 else "", layout.each_row(f"{slot(mine)} = {at};"))
    else:
        to_slot = layout.each_row(f"{slot('slot')} = {at};")
    return StatisticText(
        name=name,
        op=op,
        at=at,
        declared=layout.declared(ctype, name, start),
        start=f"{at} = {start};",
        accesses=list(accesses) if d.col_groups else [],
        shuffled=shuffled,
        to_slot=to_slot,
        from_slot=layout.each_row(f"{at} = {slot(first)};"),
        add_slot=add(slot("slot + half_way"), f"{slot('slot')} = {at};"),
        add_warp=add(slot(plus(first, "warp"))),
        add_part=add(
            f"workspace[{'' if layout.index == 'int' else f'({layout.index})'}part * {layout.p.rows} + {layout.my_result}]"
        ),
    )


def _results(printer: CPrinter, walk_: _Walk, stages: _Stages, holes: set[Hole]) -> tuple[list[str], list[str]]:
    """Statements for each element's stores, behind those for what depends on the statistics alone, once a row."""
    if not stages.stores:
        return [], []
    each = [FlatStore(t.target, t.offset, substitute(t.value, walk_.held)) for t in stages.stores]
    finals, each = _finals(printer, walk_, each, holes)
    emitter = Emitter(printer, walk_.scope(in_column=True))
    return finals, emitter.store(each, walk_.lane, walk_.width)


def _row_stores(printer: CPrinter, walk_: _Walk, stores: Sequence[FlatStore]) -> list[str]:
    if not stores:
        return []
    return Emitter(printer, walk_.scope(in_column=False), prefix="o").store(stores, walk_.lane, walk_.row_width)


def _finals(
    printer: CPrinter, walk_: _Walk, each: Sequence[FlatStore], holes: set[Hole]
) -> tuple[list[str], list[FlatStore]]:
    """Statements for what the stores need of a row's statistics, and the stores reading those results."""
    row_vars = frozenset({walk_.row, walk_.lane} if walk_.row_width > 1 else {walk_.row})
    parts = _row_parts(each, row_vars, holes)
    emitter = Emitter(printer, walk_.scope(in_column=False), prefix="f")
    if walk_.row_width == 1 or not parts:
        lines, names = emitter.named(parts)
        walk_.known |= names
        return lines, list(each)
    head, lines, texts = emitter.lanes(parts, walk_.lane, walk_.width)
    arrays, stand_ins = [], {}
    for number, (part, text) in enumerate(zip(parts, texts, strict=True)):
        arrays.append(f"{printer.ctype(part)} final{number}[{walk_.width}];")
        lines.append(f"final{number}[{LANE}] = {text};")
        stand_ins[part] = hole(f"final{number}", part.dtype)
        walk_.known[stand_ins[part]] = f"final{number}[{LANE}]"
    changed = [FlatStore(t.target, t.offset, substitute(t.value, stand_ins)) for t in each]
    return [*head, *arrays, *lane_loop(lines, walk_.width)], changed


def _row_parts(stores: Sequence[FlatStore], row_vars: frozenset[Var], holes: set[Hole]) -> list[Expr]:
    """Parts of the stored values that no column changes and that need a statistic."""
    found: dict[Expr, None] = {}
    stack = [(s.value, False) for s in stores]
    while stack:
        node, guarded = stack.pop()
        inside = [n for n in walk(node) if isinstance(n, Hole)]
        reads = any(isinstance(n, Load) for n in walk(node))
        alone = node.free <= row_vars and node not in holes and inside and all(n in holes for n in inside)
        if alone and not (reads and guarded):
            found[node] = None
            continue
        stack += [(child, guarded or isinstance(node, Select)) for child in node.operands]
    return list(found)
