"""Runs a function written for one schedule on many schedules at once. Each number becomes a column with one entry each.

If schedules take different branches, they are split like diverging lanes of a warp: some go on, and the others start
again later, from the beginning. Schedules of one part take the same branches, so the function runs once per part and
not once per schedule. Functions of a family (``objections``, ``registers``, ``work``) need no second, vectorised
version.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
Number = TypeVar("Number", int, float)


class _Run:
    """One run of the function: the points that still take part, and the masks that removed others, in order."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows
        self.masks: list[np.ndarray] = []
        self.left: list[np.ndarray] = []

    def one(self, values: np.ndarray) -> Any:
        """The first of ``values``. Points with another value leave the run."""
        first = values[0]
        same = values == first
        if not same.all():
            self.left += [self.rows[values == other] for other in np.unique(values[~same])]
            self.rows = self.rows[same]
            self.masks.append(same)
        return first.item()


class Column:
    """One number per point of a run. Arithmetic is elementwise. Anything that needs a single number splits the run."""

    __slots__ = ("_run", "_seen", "_values")

    def __init__(self, values: np.ndarray, run: _Run) -> None:
        self._values, self._run, self._seen = values, run, len(run.masks)

    @property
    def values(self) -> np.ndarray:
        """The numbers of the points that still take part."""
        while self._seen < len(self._run.masks):
            self._values = self._values[self._run.masks[self._seen]]
            self._seen += 1
        return self._values

    def __bool__(self) -> bool:
        return bool(self._run.one(self.values != 0))

    def __index__(self) -> int:
        return int(self._run.one(self.values))

    __int__ = __index__

    def __float__(self) -> float:
        return float(self._run.one(self.values))

    def __hash__(self) -> int:
        return hash(self._run.one(self.values))

    def __ceil__(self) -> Column:
        return Column(np.ceil(self.values).astype(np.int64), self._run)

    def __round__(self) -> Column:
        return Column(np.rint(self.values).astype(np.int64), self._run)

    def __abs__(self) -> Column:
        return Column(np.abs(self.values), self._run)

    def __format__(self, spec: str) -> str:
        return "various"

    def __neg__(self) -> Column:
        return Column(-self.values, self._run)

    def __divmod__(self, other: Any) -> tuple[Column, Column]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Column, Column]:
        return other // self, other % self


def _binary(function: Callable[[Any, Any], Any]) -> tuple[Callable[..., Column], Callable[..., Column]]:
    def forward(a: Column, b: Any) -> Column:
        run = a._run
        seen = len(run.masks)
        own = a._values if a._seen == seen else a.values
        other = (b._values if b._seen == seen else b.values) if type(b) is Column else b
        return Column(function(own, other), run)

    def backward(b: Column, a: Any) -> Column:
        return Column(function(a, b.values), b._run)

    return forward, backward


for _name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "pow"):
    _forward, _backward = _binary(getattr(operator, _name))
    setattr(Column, f"__{_name}__", _forward)
    setattr(Column, f"__r{_name}__", _backward)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Column, f"__{_name}__", _binary(getattr(operator, _name))[0])


def lockstep(
    function: Callable[[Mapping[str, Any]], T], points: Mapping[str, np.ndarray]
) -> Iterator[tuple[np.ndarray, T]]:
    """Call ``function`` for all ``points``, one column [count] per name. Yields (positions of points, result) per part.

    Every point is in exactly one part. Results are ``Column`` objects if they depend on the points: see ``array``.
    """
    count = len(next(iter(points.values())))
    waiting = [np.arange(count)] if count else []
    with np.errstate(divide="raise", invalid="raise"):
        while waiting:
            run = _Run(waiting.pop())
            result = function({name: _column(values[run.rows], run) for name, values in points.items()})
            yield run.rows, result
            waiting += run.left


def _column(values: np.ndarray, run: _Run) -> Any:
    """A plain number if all points have the same one, so that branches on it do not split the run."""
    return values[0].item() if (values == values[0]).all() else Column(values, run)


def array(number: Any, count: int) -> np.ndarray:
    """A number that the function returned for a part of ``count`` points, as an array [count]."""
    return number.values if isinstance(number, Column) else np.full(count, number)


def gcd(a: int, b: int) -> int:
    """``math.gcd``. Columns are not split into parts."""
    return _together(np.gcd, a, b) if isinstance(a, Column) or isinstance(b, Column) else math.gcd(a, b)


def least(a: Number, b: Number) -> Number:
    """``min``. Columns are not split into parts."""
    return _together(np.minimum, a, b) if isinstance(a, Column) or isinstance(b, Column) else min(a, b)


def most(a: Number, b: Number) -> Number:
    """``max``. Columns are not split into parts."""
    return _together(np.maximum, a, b) if isinstance(a, Column) or isinstance(b, Column) else max(a, b)


def either(condition: bool, a: Number, b: Number) -> Number:
    """``a if condition else b``, with both computed. Columns are not split into parts."""
    if not isinstance(condition, Column):
        return a if condition else b
    chosen: Any = Column(
        np.where(condition.values, *(x.values if isinstance(x, Column) else x for x in (a, b))), condition._run
    )
    return chosen


def _together(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    run = a._run if isinstance(a, Column) else b._run
    return Column(function(*(x.values if isinstance(x, Column) else x for x in (a, b))), run)
