"""Attention in which a row has no weight on the columns behind its own: which columns need not be looked at."""

from __future__ import annotations

from gpucomp.expr.core import Call, Const, Expr, Select, Var
from gpucomp.expr.simplify import linear
from gpucomp.kernel import Attention

HIDDEN = -1e30  # a score beside which exp of any other score's difference is 0
NOT_CAUSAL = -1


def causal_offset(body: Attention) -> int:
    """``offset`` where the rows of index i along their last axis have no weight on columns past i + offset.

    They have some on their own. ``NOT_CAUSAL`` where that is not so.
    """
    match body.score:
        case Select(condition=Call(fn="le", args=(low, high)), otherwise=Const(value=value)) if value <= HIDDEN:
            return _offset(low, high, 0, body)
        case Select(condition=Call(fn="lt", args=(low, high)), otherwise=Const(value=value)) if value <= HIDDEN:
            return _offset(low, high, 1, body)
    return NOT_CAUSAL


def _offset(low: Expr, high: Expr, strictly: int, body: Attention) -> int:
    """``column <= row + offset`` as the comparison of ``low`` and ``high``; ``NOT_CAUSAL`` where it is another."""
    if len(body.cols) != 1:
        return NOT_CAUSAL
    constant, terms = linear(high - low)
    wanted: dict[Var, int] = {body.cols[0]: -1} | dict.fromkeys(body.rows[-1:], 1)
    offset = constant - strictly
    return offset if terms == wanted and offset >= 0 else NOT_CAUSAL
