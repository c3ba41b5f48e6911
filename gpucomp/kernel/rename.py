"""Kernels with other axes and parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpucomp.expr.core import Expr, Load, Reduce, Var, load, reduce, transform, var, walk
from gpucomp.kernel.ir import Store


def canonical_names(expressions: Sequence[Expr], domains: dict[str, tuple[Var, ...]]) -> dict[Expr, Expr]:
    """Fresh variables named by role and position; ``domains`` gives the prefixes, bound axes become ``r0 ...``."""
    names: dict[Expr, Expr] = {}
    for prefix, axes in domains.items():
        for position, axis in enumerate(axes):
            names[axis] = var(f"{prefix}{position}", axis.extent)
    for expr in expressions:
        for node in walk(expr):
            if isinstance(node, Reduce):
                for axis in node.axes:
                    names.setdefault(axis, var(f"r{len(names)}", axis.extent))
    return names


def rename(expr: Expr, names: dict[Expr, Expr]) -> Expr:
    """``expr`` with every variable of ``names`` replaced, bound reduction axes included."""

    def change(node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return names.get(node)
        if isinstance(node, Reduce) and any(a in names for a in node.axes):
            return reduce(node.op, tuple(names.get(a, a) for a in node.axes), node.body)  # type: ignore[misc]
        return None

    return transform(expr, change)


def renumbered(expr: Expr, numbers: Mapping[int, int]) -> Expr:
    """``expr`` with its loads from other parameters."""

    def change(node: Expr) -> Expr | None:
        return load(numbers[node.source], node.index, node.dtype) if isinstance(node, Load) else None

    return transform(expr, change)


def moved(store: Store, numbers: Mapping[int, int]) -> Store:
    """``store`` with its loads from other parameters, and to another one."""
    index = tuple(renumbered(e, numbers) for e in store.index)
    return Store(numbers[store.target], index, renumbered(store.value, numbers))
