"""Renames the axes of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpucomp.expr.core import Expr, Reduce, Var, reduce, transform, var, walk
from gpucomp.kernel.ir import Kernel


def canonical(kernel: Kernel) -> Kernel:
    """``kernel`` with its axes named by role and position, so that equal kernels have equal texts.

    The axes of reductions inside expressions become ``r0 ...``.
    """
    axes = kernel.body.axes()
    names: dict[Var, Var] = {}
    for role, group in axes.items():
        for position, axis in enumerate(group):
            names[axis] = var(f"{kernel.body.AXES[role]}{position}", axis.extent)
    for expr in kernel.expressions():
        for node in walk(expr):
            if isinstance(node, Reduce):
                for axis in node.axes:
                    names.setdefault(axis, var(f"r{len(names)}", axis.extent))

    def renamed(expr: Expr) -> Expr:
        return rename(expr, names)

    body = kernel.body.with_axes({role: tuple(names[axis] for axis in group) for role, group in axes.items()})
    return replace(kernel, body=body.mapped(renamed), stores=tuple(s.mapped(renamed) for s in kernel.stores))


def rename(expr: Expr, names: Mapping[Var, Var]) -> Expr:
    """``expr`` with every variable of ``names`` replaced, including the axes of reductions."""

    def change(node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return names.get(node)
        if isinstance(node, Reduce) and any(a in names for a in node.axes):
            return reduce(node.op, tuple(names.get(a, a) for a in node.axes), node.body)
        return None

    return transform(expr, change)
