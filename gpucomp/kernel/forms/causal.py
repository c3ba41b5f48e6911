"""Recognises causal attention, in which rows give no weight to later columns, so that these can be skipped."""

from __future__ import annotations

from gpucomp.expr.core import Call, Const, Expr, Select, index
from gpucomp.expr.simplify import linear, same_form
from gpucomp.kernel import Attention

HIDDEN = -1e30  # scores up to this are masked: exp of their difference to any other score is 0
NOT_CAUSAL = -1


def causal_offset(body: Attention) -> int:
    """The ``offset`` for which row i gives no weight to columns after i + offset, else ``NOT_CAUSAL``.

    i counts along the last axis of the rows. ``offset`` is not negative, so a row always gives weight to column i.
    """
    match body.score:
        case Select(condition=Call(fn="le", args=(low, high)), otherwise=Const(value=value)) if value <= HIDDEN:
            return _offset(low, high, 0, body)
        case Select(condition=Call(fn="lt", args=(low, high)), otherwise=Const(value=value)) if value <= HIDDEN:
            return _offset(low, high, 1, body)
    return NOT_CAUSAL


def _offset(low: Expr, high: Expr, strictly: int, body: Attention) -> int:
    """The offset if the comparison of ``low`` and ``high`` is ``column <= row + offset``, else ``NOT_CAUSAL``."""
    if len(body.cols) != 1:
        return NOT_CAUSAL
    offset = linear(high - low)[0] - strictly
    row = body.rows[-1] if body.rows else index(0)
    diagonal = same_form(high - low, row - body.cols[0] + index(offset + strictly))
    return offset if diagonal and isinstance(offset, int) and offset >= 0 else NOT_CAUSAL
