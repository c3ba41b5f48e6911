"""Guarded loads, and indices of the lanes of a vector."""

from __future__ import annotations

from gpucomp.expr.core import (
    Expr,
    Load,
    Var,
    call,
)
from gpucomp.kernel.forms.access import guarded_load, is_aligned

LANE = "lane"


def pure_load(expr: Expr, lane: Var | None = None, width: int = 1) -> tuple[Load, tuple[Expr, ...]] | None:
    """``expr`` as a load and its guards, with zero where a guard fails; ``None`` if it is not one.

    With ``lane``, the load must also be one access of ``width`` elements.
    """
    found = guarded_load(expr)
    if not found:
        return None
    ld, guards = found
    if lane is None or width == 1:
        return found
    together = is_aligned(ld.index[0], lane, width) and all(lane not in g.free for g in guards)
    return found if together else None


def lanes_of(variable: Var, quotient: Var, lane: Var, width: int) -> dict[Expr, Expr]:
    """Replaces ``variable`` by ``quotient * width + lane``."""
    return {variable: call("add", call("mul", quotient, width), lane)} if width > 1 else {variable: quotient}
