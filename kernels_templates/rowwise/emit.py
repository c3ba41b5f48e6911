"""How a rowwise kernel runs through memory, and blocks of statements for its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c.emit import Emitter, FlatStore, flat_stores, lane_loop
from gpucomp.codegen.c.epilogue import split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Expr, Hole, Load, Select, Var, hole, identity_of, loads, substitute, var, walk
from gpucomp.ir.types import BOOL
from gpucomp.kernel import Kernel, Rowwise
from gpucomp.kernel.forms.access import Rewriter, parts_within
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.rows import SHUFFLED, common_parts, early_parts

# the walk ---------------------------------------------------------------------------------------------------


# statements -------------------------------------------------------------------------------------------------


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


def rowwise_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/rowwise/kernel.j2`` for what each hook is."""
    body = kernel.body_as(Rowwise)
    row_width, col_width = derived.row_width, derived.col_width
    row, col = var("row", max(1, p.rows // row_width)), var("col", max(1, p.cols // col_width))
    walk_ = _Walk(row, col, var(LANE, s.vector), s.vector, row_width, {row: "row"})
    flat_row, flat_col = var("flat_row", max(1, p.rows)), var("flat_col", max(1, p.cols))
    placed = {
        **lanes_of(flat_row, row, walk_.lane, row_width),
        **lanes_of(flat_col, col, walk_.lane, col_width),
    }
    at = places(body.rows, flat_row) | places(body.cols, flat_col)
    rewriter = Rewriter(kernel.params, {v: substitute(e, placed) for v, e in at.items()})
    values = [rewriter(statistic.value) for statistic in body.statistics]
    stores = flat_stores(kernel.stores, rewriter)
    once = [stores[i] for i in sorted(body.row_stores)]
    each = [store for i, store in enumerate(stores) if i not in body.row_stores]
    each_parts = [e for store in each for e in (store.offset, store.value)]

    row_body, named = Emitter(printer, walk_.known, prefix="r").named(
        parts_within([*values, *each_parts], frozenset({row}))
    )
    walk_.known |= named
    stages = [*([v] for v in values), each_parts]
    kept = common_parts(stages, frozenset({col})) if s.keep else []
    names = {part: f"kept{i}" for i, part in enumerate(kept)}
    ahead = early_parts(stages, frozenset({col})) if s.keep == 2 else []
    early = {part: f"early{i}" for i, part in enumerate(ahead)}
    early_body = _fetched_early(printer, walk_, early)
    constants = {ld.source for part in ahead for ld in loads(part)} <= kernel.constants
    before_all = bool(ahead) and constants and not any(n in named for part in ahead for n in walk(part))

    statistics = []
    for number, (statistic, value) in enumerate(zip(body.statistics, values, strict=True)):
        statistics.append(_statistic(printer, walk_, number, statistic.op, statistic.hole, value, names))
    finals: list[str] = []
    element_body: list[str] = []
    if each:
        each = [FlatStore(t.target, t.offset, substitute(t.value, walk_.held)) for t in each]
        # what depends on the statistics alone is computed once a row
        finals, each = _finals(printer, walk_, each, {statistic.hole for statistic in body.statistics})
        element_body = _stored(Emitter(printer, walk_.scope(in_column=True)), each, walk_)
    row_stores: list[str] = []
    if once:
        emitter = Emitter(printer, walk_.scope(in_column=False), prefix="o")
        row_stores = emitter.store(once, walk_.lane, row_width) if row_width > 1 else emitter.store(once)
    shared_type = statistics[0]["shared_type"] if statistics else "int"
    return {
        "scratch": split_scratch(printer, shared_type, s.splits),
        "index": printer.dialect.index_type(
            max(p.rows * s.splits, p.rows + s.rows_per_group * row_width, p.cols + s.lanes * col_width * s.splits)
        ),
        **_joining(printer, s, p, derived),
        "row_body": row_body,
        "early_body": early_body,
        "before_all": before_all,
        "statistics": statistics,
        "row_stores": row_stores,
        "finals": finals,
        "element_body": element_body,
        "kept": [{"name": name, "type": printer.ctype(part)} for part, name in (names | early).items()],
    }


def can_shuffle(printer: CPrinter, p: SimpleNamespace, derived: SimpleNamespace) -> bool:
    """Whether lanes exchange values by shuffles: CUDA's, of types that they take, by all threads of each warp."""
    return printer.dialect.shuffles and derived.threads % SHUFFLED == 0 and bool(p.shuffles)


def _joining(printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace) -> dict[str, int]:
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
    printer: CPrinter, walk_: _Walk, number: int, op: str, which: Hole, value: Expr, names: Mapping[Expr, str]
) -> dict[str, Any]:
    """One statistic for the template; from here on its name and what it keeps are known."""
    name, dtype = f"s{number}", which.dtype
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
    walk_.known[which] = at
    return {
        "name": name,
        "type": ctype,
        "shared_type": "int" if dtype is BOOL else ctype,
        "identity": printer.dialect.literal(identity_of(op, dtype), dtype),
        "body": [*head, *(lane_loop(inner, walk_.width) if walk_.width > 1 else inner)],
        "combined": printer.combine(op, dtype, at, "other"),
    }


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


def _stored(emitter: Emitter, each: Sequence[FlatStore], walk_: _Walk) -> list[str]:
    return emitter.store(each, walk_.lane, walk_.width) if walk_.width > 1 else emitter.store(each)


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
