"""Totals of a row by which its elements are divided, and when a product with their reciprocal will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpucomp.expr.core import Call, Expr, Hole, transform
from gpucomp.kernel import Statistic


def at_least_one(statistics: Sequence[Statistic]) -> list[Hole]:
    """Statistics that are sums of ``exp(value - largest value)``. The largest value adds 1, so the sum is at least 1."""
    return [total for total, _ in powers_of_totals(statistics)]


def powers_of_totals(statistics: Sequence[Statistic]) -> list[tuple[Hole, Expr]]:
    """The totals of ``at_least_one``, each with its ``value - largest value``, which is at most 0, or NaN."""
    maxima = {s.hole: s.value for s in statistics if s.op == "max"}
    found: list[tuple[Hole, Expr]] = []
    for statistic in statistics:
        match statistic.value:
            case Call(fn="exp", args=(Call(fn="sub", args=(value, Hole() as largest)) as power,)):
                if statistic.op == "sum" and maxima.get(largest) is value:
                    found.append((statistic.hole, power))
    return found


def by_reciprocals(value: Expr, reciprocals: Mapping[Hole, Expr]) -> Expr:
    """a / total  ->  a * reciprocal, for each total in ``reciprocals``

    Only for totals of ``at_least_one``: the reciprocal of a tiny total is infinite. It costs at most one rounding more.
    """

    def change(node: Expr) -> Expr | None:
        match node:
            case Call(fn="div", args=(a, Hole() as total)) if total in reciprocals:
                return a * reciprocals[total]
        return None

    return transform(value, change)
