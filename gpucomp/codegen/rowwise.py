"""Blocks of statements for the rowwise template: statistics, what a row keeps in registers, stores."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.access import Rewriter, parts_within
from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.emit import Emitter, FlatStore, flat_stores
from gpucomp.expr.core import Expr, Load, Select, Var, identity_of, var, walk
from gpucomp.expr.simplify import unflatten
from gpucomp.ir.types import BOOL
from gpucomp.kernel import Kernel, Rowwise


def rowwise_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/rowwise/kernel.j2`` for what each hook is."""
    body = kernel.body
    assert isinstance(body, Rowwise)
    row, col = var("row", max(1, p.rows)), var("col", max(1, p.cols))
    places = _places(body.rows, row) | _places(body.cols, col)
    rewriter = Rewriter(kernel.params, places)
    values = [rewriter(statistic.value) for statistic in body.statistics]
    stores = flat_stores(kernel.stores, rewriter)
    once = [stores[i] for i in sorted(body.row_stores)]
    each = [store for i, store in enumerate(stores) if i not in body.row_stores]
    each_parts = [e for store in each for e in (store.offset, store.value)]

    known: dict[Expr, str] = {row: "row"}
    holes = {statistic.hole: f"s{i}" for i, statistic in enumerate(body.statistics)}
    everything = [*values, *each_parts]
    row_body, named = Emitter(printer, known, prefix="r").named(parts_within(everything, frozenset({row})))
    known |= named
    kept = _kept([*([v] for v in values), each_parts], col) if s.keep else []
    names = {load: f"kept{i}" for i, load in enumerate(kept)}

    held: set[Load] = set()
    statistics = []
    for statistic, value in zip(body.statistics, values, strict=True):
        name, dtype = holes[statistic.hole], statistic.hole.dtype
        emitter = Emitter(printer, known | {col: "col"} | _held(names, held))
        lines = _keep(emitter, [value], names, held)
        more, (text,) = emitter.values([value])
        ctype = printer.dialect.value_type(dtype)
        lines += [
            *more,
            f"const {ctype} term = {text};",
            f"{name} = {printer.combine(statistic.op, dtype, name, 'term')};",
        ]
        statistics.append(
            {
                "name": name,
                "type": ctype,
                "shared_type": "int" if dtype is BOOL else ctype,
                "identity": printer.dialect.literal(identity_of(statistic.op, dtype), dtype),
                "body": lines,
                "combined": printer.combine(statistic.op, dtype, "mine", "other"),
            }
        )
        known[statistic.hole] = name
    element_body: list[str] = []
    if each:
        # what depends on the statistics alone is computed once a row
        finals, final_names = Emitter(printer, known, prefix="f").named(_row_parts(each, row, set(holes)))
        known |= final_names
        emitter = Emitter(printer, known | {col: "col"} | _held(names, held))
        element_body = [*_keep(emitter, each_parts, names, held), *emitter.store(each)]
    else:
        finals = []
    row_stores = Emitter(printer, known, prefix="o").store(once) if once else []
    return {
        "index": printer.dialect.index_type(max(p.rows + s.rows_per_group, p.cols + s.lanes)),
        "row_body": row_body,
        "statistics": statistics,
        "row_stores": row_stores,
        "finals": finals,
        "element_body": element_body,
        "kept": [{"name": names[load], "type": printer.dialect.value_type(load.dtype)} for load in kept],
    }


def _places(axes: tuple[Var, ...], flat: Var) -> dict[Expr, Expr]:
    return dict(zip(axes, unflatten(flat, tuple(a.extent for a in axes)), strict=True)) if axes else {}


def _row_parts(stores: list[FlatStore], row: Var, holes: set[Any]) -> list[Expr]:
    """Parts of the stored values that no column changes and that need a statistic."""
    found: dict[Expr, None] = {}
    stack = [(s.value, False) for s in stores]
    while stack:
        node, guarded = stack.pop()
        nodes = list(walk(node))
        reads = any(isinstance(n, Load) for n in nodes)
        if node.free <= {row} and node not in holes and any(n in holes for n in nodes) and not (reads and guarded):
            found[node] = None
            continue
        stack += [(child, guarded or isinstance(node, Select)) for child in node.operands]
    return list(found)


def _kept(stages: list[list[Expr]], col: Var) -> list[Load]:
    """Loads that depend on the column, are read without a guard, and are needed by more than one stage."""
    seen: dict[Load, set[int]] = {}
    guarded: set[Load] = set()
    for number, stage in enumerate(stages):
        everywhere = {n for e in stage for n in walk(e) if isinstance(n, Load) and col in n.free}
        free = {n for e in stage for n in _unguarded(e)}
        guarded |= everywhere - free
        for load in everywhere:
            seen.setdefault(load, set()).add(number)
    return [load for load, numbers in seen.items() if len(numbers) > 1 and load not in guarded]


def _unguarded(expr: Expr) -> set[Load]:
    found: set[Load] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Load):
            found.add(node)
        stack += [node.condition] if isinstance(node, Select) else list(node.operands)
    return found


def _held(names: Mapping[Load, str], held: set[Load]) -> dict[Expr, str]:
    return {load: f"{names[load]}[step]" for load in held}


def _keep(emitter: Emitter, exprs: list[Expr], names: Mapping[Load, str], held: set[Load]) -> list[str]:
    """Statements that load what is to be kept and is needed here for the first time."""
    wanted = [n for e in exprs for n in walk(e) if isinstance(n, Load) and n in names and n not in held]
    fresh = list(dict.fromkeys(wanted))
    lines, texts = emitter.named(fresh)
    held.update(fresh)
    return [*lines, *(f"{names[load]}[step] = {texts[load]};" for load in fresh)]
