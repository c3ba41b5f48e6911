"""How a rowwise kernel runs through memory, and blocks of statements for its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.emit import Emitter, FlatStore, flat_stores, lane_loop
from gpucomp.codegen.c.epilogue import split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Expr, Hole, Load, Select, Var, hole, identity_of, loads, substitute, var, walk
from gpucomp.ir.types import BOOL
from gpucomp.kernel import Kernel, Rowwise, Statistic
from gpucomp.kernel.forms.access import Rewriter, parts_within
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.rows import SHUFFLED, common_parts, early_parts

if TYPE_CHECKING:
    from gpucomp.kernels_templates.rowwise.space import (
        RowsProblem,
        RowsSizes,
        RowwiseProblem,
        RowwiseSchedule,
        RowwiseSizes,
    )


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

    def arrays(self, printer: CPrinter) -> list[dict[str, str]]:
        names = {**self.between, **self.early}
        return [{"name": name, "type": printer.ctype(part)} for part, name in names.items()]


def emit_rowwise(
    kernel: Kernel[Rowwise], printer: CPrinter, s: RowwiseSchedule, p: RowwiseProblem, derived: RowwiseSizes
) -> Mapping[str, Any]:
    """See ``kernels_templates/rowwise/kernel.j2`` for what each hook is."""
    body = kernel.body
    row_width, col_width = derived.row_width, derived.col_width
    row, col = var("row", max(1, p.rows // row_width)), var("col", max(1, p.cols // col_width))
    walk_ = _Walk(row, col, var(LANE, s.vector), s.vector, row_width, {row: "row"})
    stages = _stages(kernel, walk_, p, col_width)
    row_body, named = Emitter(printer, walk_.known, prefix="r").named(
        parts_within([*stages.values, *stages.results], frozenset({row}))
    )
    walk_.known |= named
    kept = _kept(stages, col, s.keep)
    early_body = _fetched_early(printer, walk_, kept.early)
    statistics = [
        _statistic(printer, walk_, number, statistic, value, kept.between)
        for number, (statistic, value) in enumerate(zip(body.statistics, stages.values, strict=True))
    ]
    finals, element_body = _results(printer, walk_, stages, {statistic.hole for statistic in body.statistics})
    shared_type = statistics[0]["shared_type"] if statistics else "int"
    return {
        "scratch": split_scratch(printer, shared_type, s.splits),
        "index": printer.dialect.index_type(
            max(p.rows * s.splits, p.rows + s.rows_per_group * row_width, p.cols + s.lanes * col_width * s.splits)
        ),
        **_joining(printer, s, p, derived),
        "row_body": row_body,
        "early_body": early_body,
        "before_all": _waits_for_nothing(kernel, kept.early, named),
        "statistics": statistics,
        "row_stores": _row_stores(printer, walk_, stages.row_stores),
        "finals": finals,
        "element_body": element_body,
        "kept": kept.arrays(printer),
    }


def _stages(kernel: Kernel[Rowwise], walk_: _Walk, p: RowwiseProblem, col_width: int) -> _Stages:
    """The kernel's expressions on the variables of the walk."""
    body = kernel.body
    flat_row, flat_col = var("flat_row", max(1, p.rows)), var("flat_col", max(1, p.cols))
    placed = {
        **lanes_of(flat_row, walk_.row, walk_.lane, walk_.row_width),
        **lanes_of(flat_col, walk_.col, walk_.lane, col_width),
    }
    at = places(body.rows, flat_row) | places(body.cols, flat_col)
    rewriter = Rewriter(kernel.params, {v: substitute(e, placed) for v, e in at.items()})
    values = [rewriter(statistic.value) for statistic in body.statistics]
    stores = flat_stores(kernel.stores, rewriter)
    of_elements = [store for i, store in enumerate(stores) if i not in body.row_stores]
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


def _joining(printer: CPrinter, s: RowwiseSchedule, p: RowwiseProblem, derived: RowwiseSizes) -> dict[str, int]:
    """How lanes join: ``in_warp`` of them by shuffles, the rest through shared memory; 1 where nothing shuffles."""
    can = can_shuffle(printer, p, derived)
    in_warp = derived.lanes_in_warp if can else 1
    return {"shuffles": int(can), "in_warp": in_warp, "warps": s.lanes // in_warp}


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
    printer: CPrinter, walk_: _Walk, number: int, statistic: Statistic, value: Expr, names: Mapping[Expr, str]
) -> dict[str, Any]:
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
    inner.append(f"{at} = {printer.combine(op, dtype, at, term)};")
    walk_.known[statistic.hole] = at
    return {
        "name": name,
        "type": ctype,
        "shared_type": "int" if dtype is BOOL else ctype,
        "identity": printer.dialect.literal(identity_of(op, dtype), dtype),
        "body": [*head, *(lane_loop(inner, walk_.width) if walk_.width > 1 else inner)],
        "combined": printer.combine(op, dtype, at, "other"),
    }


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
