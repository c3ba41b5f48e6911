"""Recognises attention in which rows give no weight to later columns, so that these can be skipped."""

from __future__ import annotations

from typing import Any

from gpucomp.expr.core import Call, Const, Expr, Load, Select, Var, walk
from gpucomp.expr.simplify import linear
from gpucomp.ir.size import at_most, same
from gpucomp.kernel import Attention

HIDDEN = -1e30  # scores up to this are masked: exp of their difference to any other score is 0
NOT_CAUSAL = -1


def causal_offset(body: Attention) -> Any:
    """The ``offset`` for which row i gives no weight to columns after i + offset, else ``NOT_CAUSAL``.

    i counts along the last axis of the rows. ``offset`` is not negative, so a row always gives weight to column i. It can be
    a size that each run decides.
    """
    match body.score:
        case Select(condition=Call(fn="le", args=(low, high)), otherwise=Const(value=value)) if value <= HIDDEN:
            return _offset(low, high, 0, body)
        case Select(condition=Call(fn="lt", args=(low, high)), otherwise=Const(value=value)) if value <= HIDDEN:
            return _offset(low, high, 1, body)
    return NOT_CAUSAL


def last_column(body: Attention) -> Expr | None:
    """The last column that a row gives weight to, over batch and rows; ``None`` if it has no such form.

    It is data, such as how many keys of a sentence are valid. Where it is negative, all scores of the row are equal, and all
    columns have weight. The other scores must be no more than scaled products: a mask could hide them all.
    """
    match body.score:
        case Select(condition=Call(fn=("le" | "lt") as fn, args=(low, high)), then=then, otherwise=Const(value=value)):
            seen = value <= HIDDEN and len(body.cols) == 1 and low is body.cols[0] and low not in high.free
            if seen and not any(isinstance(n, Load | Select) for n in walk(then)):
                return high if fn == "le" else high - 1
    return None


def _offset(low: Expr, high: Expr, strictly: int, body: Attention) -> Any:
    """The offset if the comparison of ``low`` and ``high`` is ``column <= row + offset``, else ``NOT_CAUSAL``."""
    if len(body.cols) != 1:
        return NOT_CAUSAL
    constant, terms = linear(high - low)
    wanted: dict[Var, int] = {body.cols[0]: -1} | dict.fromkeys(body.rows[-1:], 1)
    offset = constant - strictly
    found = terms.keys() == wanted.keys() and all(same(terms[axis], factor) for axis, factor in wanted.items())
    return offset if found and at_most(0, offset) else NOT_CAUSAL
