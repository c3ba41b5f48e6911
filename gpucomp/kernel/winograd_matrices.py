"""The matrices of Winograd's minimal filtering. F(m, r) computes m outputs of an r-tap filter by m + r - 1 products.

``result @ ((filter @ g) * (data @ d))`` is the ``m`` outputs ``sum over k of g[k] d[i + k]``. Nested over rows and
columns it computes square blocks. The matrices come from the Toom-Cook algorithm: polynomials are multiplied by their
values at ``m + r - 2`` points and at infinity, and the result is transposed. Lavin and Gray, Fast Algorithms for
Convolutional Neural Networks (2016), introduced them to neural networks.

The points determine the floating-point error. It grows with the largest power of a point and of its inverse, so points
should be near 1 in magnitude, each with its negative: Barabasz, Anderson, Soodhalter and Gregg, Error Analysis and
Improving the Accuracy of Winograd Convolution for Deep Neural Networks (2020). All points here are short binary
fractions, so ``data`` and ``result`` are exact in f32. Only the transformed filters are rounded, once.

Relative error in the L2 norm of strict f32, for 256 channels of normally distributed data: direct sum 3e-7;
F(2, 3) 5e-7; F(4, 3) 1.5e-6 (3e-6 with the more common points 0, 1, -1, 2, -2); F(6, 3) 6e-6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, Self, TypeVar

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Algorithm:
    """F(``outputs``, 3) in one dimension, exactly.

    filter   [factors, 3]: transforms a filter
    data     [positions, positions]: transforms the data
    result   [outputs, positions]: transforms the products
    back     [3, factors]: restores a filter: ``back @ filter`` is the identity
    step     distance between the data of adjacent outputs

    If there are fewer factors than positions, all positions after the last factor are multiplied by that factor.
    """

    filter: Matrix
    data: Matrix
    result: Matrix
    back: Matrix
    step: int = 1

    @property
    def positions(self) -> int:
        return len(self.data)

    @property
    def outputs(self) -> int:
        return len(self.result)

    @property
    def factors(self) -> int:
        return len(self.filter)


def toom_cook(points: Sequence[Fraction | int]) -> Algorithm:
    """F(len(points) - 1, 3) that interpolates at 0, at each of ``points`` after it with its negative, and at infinity.

    ``points`` are zero, then a, -a, b, -b ... Row ``i`` of ``data`` has the coefficients of the product of
    ``x - points[k]`` over all ``k != i``. The denominator of the Lagrange polynomial is in ``filter``. Signs are chosen
    so that the first element of each row of ``filter`` is positive.
    """
    outputs, taps = len(points) - 1, 3
    exact = [Fraction(p) for p in points]
    forward, data = [], []
    for i, point in enumerate(exact):
        others = [p for k, p in enumerate(exact) if k != i]
        scale = math.prod((point - p for p in others), start=Fraction(1))
        sign = 1 if scale > 0 else -1
        forward.append([sign * point**j / scale for j in range(taps)])
        data.append([sign * c for c in (*_product(others), Fraction(0))])
    forward.append([Fraction(0), Fraction(0), Fraction(1)])
    data.append(_product(exact))
    last = [Fraction(0)] * len(exact) + [Fraction(1)]
    result = [[p**k for p in exact] + [Fraction(k == outputs - 1)] for k in range(outputs)]
    # the value at 0, the difference of the values at a and -a, and the value at infinity are each a multiple of one tap
    back = [
        [1 / forward[0][0], *([Fraction(0)] * outputs), Fraction(0)],
        [Fraction(0), 1 / (2 * forward[1][1]), -1 / (2 * forward[1][1]), *([Fraction(0)] * (outputs - 1))],
        last,
    ]
    return Algorithm(_matrix(forward), _matrix(data), _matrix(result), _matrix(back))


def two_phases() -> Algorithm:
    """Two outputs of a 3-tap filter with steps of 2, by 5 products instead of 6.

    Taps 0 and 2 read only even data, in steps of 1. They are a 2-tap filter with two outputs: 3 products, by the points
    0, 1 and infinity, with signs chosen so that all taps are added. Tap 1 reads only odd data: one product per output.
    """
    return Algorithm(
        filter=_integers("100 101 001 010"),
        data=_integers("10-00 00100 00-01 01000 00010"),
        result=_integers("11010 01101"),
        back=_integers("1000 0001 0010"),
        step=2,
    )


def _integers(rows: str) -> Matrix:
    """A matrix from digits: ``0``, ``1``, and ``-`` for minus one."""
    return _matrix([[Fraction({"0": 0, "1": 1, "-": -1}[digit]) for digit in row] for row in rows.split()])


def _product(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the product of ``x - root`` over ``roots``, lowest power first."""
    found = [Fraction(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return found


def _matrix(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(tuple(row) for row in rows)


def floats(matrix: Matrix) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(x) for x in row) for row in matrix)


ALGORITHMS: Mapping[str, Algorithm] = {
    "winograd23": toom_cook((0, 1, -1)),
    "winograd43": toom_cook((0, Fraction(3, 4), -Fraction(3, 4), Fraction(3, 2), -Fraction(3, 2))),
    "winograd63": toom_cook((0, 1, -1, Fraction(1, 2), -Fraction(1, 2), 2, -2)),
}


ALL: Mapping[str, Algorithm] = {**ALGORITHMS, "winograd23by2": two_phases()}  # also with steps other than 1


class Term(Protocol):
    """An operand of ``linear``: a number, or a value in generated code."""

    def __add__(self, other: Self, /) -> Self: ...
    def __sub__(self, other: Self, /) -> Self: ...
    def __mul__(self, factor: float, /) -> Self: ...
    def muladd(self, factor: float, addend: Self, /) -> Self:
        """``self * factor + addend``."""


T = TypeVar("T", bound=Term)


def linear(matrix: Sequence[Sequence[float]], values: Sequence[T]) -> list[T]:
    """``matrix @ values``. Rows that differ only in signs share sums; so do columns."""
    pairs = _paired_columns(matrix)
    if pairs:
        return _by_columns(matrix, values, pairs)
    found: list[T] = []
    while len(found) < len(matrix):
        row = matrix[len(found)]
        after = matrix[len(found) + 1] if len(found) + 1 < len(matrix) else ()
        if after and after != row and all(abs(x) == abs(y) for x, y in zip(row, after, strict=True)):
            even = _dot([x if x == y else 0 for x, y in zip(row, after, strict=True)], values)
            odd = [x if x != y else 0 for x, y in zip(row, after, strict=True)]
            scale = _last_nonzero(odd)
            rest = _dot([x / scale for x in odd], values)
            found += [_plus(even, rest, scale), _plus(even, rest, -scale)]
        else:
            found.append(_dot(row, values))
    return found


def _by_columns(matrix: Sequence[Sequence[float]], values: Sequence[T], pairs: Sequence[int]) -> list[T]:
    """Computes the sum and the difference of the values of each column pair, then each row from these."""
    sums = {k: values[k] + values[k + 1] for k in pairs}
    differences = {k: values[k] - values[k + 1] for k in pairs}
    found = []
    for row in matrix:
        factors, terms = [], []
        for k, value in enumerate(values):
            if k - 1 in sums:
                continue
            factors.append(row[k])
            if k in sums:
                value = sums[k] if row[k] == row[k + 1] else differences[k]
            terms.append(value)
        found.append(_dot(factors, terms))
    return found


def _paired_columns(matrix: Sequence[Sequence[float]]) -> list[int]:
    """The first column of each pair of adjacent columns that differ only in signs."""
    columns = list(zip(*matrix, strict=True))
    found: list[int] = []
    k = 0
    while k + 1 < len(columns):
        one, other = columns[k], columns[k + 1]
        if one != other and all(abs(x) == abs(y) for x, y in zip(one, other, strict=True)):
            found.append(k)
            k += 1
        k += 1
    return found


def _last_nonzero(factors: Sequence[float]) -> float:
    return next(x for x in reversed(factors) if x)


def _plus(value: T, other: T, factor: float) -> T:
    if factor == 1:
        return value + other
    if factor == -1:
        return value - other
    return other.muladd(factor, value)


def _dot(factors: Sequence[float], values: Sequence[T]) -> T:
    """The sum of products. It starts with a factor of 1 if there is one, which saves a multiplication."""
    terms = sorted(((x, v) for x, v in zip(factors, values, strict=True) if x), key=lambda term: term[0] != 1)
    (factor, value), *rest = terms
    total = value if factor == 1 else value * factor
    for factor, value in rest:
        total = _plus(total, value, factor)
    return total
