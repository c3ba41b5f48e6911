"""The matrices of Winograd's algorithms: exact in rational arithmetic, and their errors in f32."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from gpucomp.kernel.winograd_matrices import ALGORITHMS, ALL, floats, linear, toom_cook

EXPECTED = {
    "winograd23": (2, 4, 4, 1),
    "winograd43": (4, 6, 6, 1),
    "winograd63": (6, 8, 8, 1),
    "winograd23by2": (2, 5, 4, 2),
}


def exact(matrix):
    return np.array([[Fraction(x) for x in row] for row in matrix], dtype=object)


@pytest.mark.parametrize("name", ALL)
def test_an_algorithm_filters_exactly(name):
    a = ALL[name]
    g = [Fraction(2), Fraction(-3, 7), Fraction(5)]
    d = [Fraction(k * k - 11, k + 1) for k in range(a.positions)]

    factors = exact(a.filter) @ g

    found = exact(a.result) @ (factors[[min(k, a.factors - 1) for k in range(a.positions)]] * (exact(a.data) @ d))

    assert list(found) == [sum(g[k] * d[a.step * i + k] for k in range(3)) for i in range(a.outputs)]
    assert (a.outputs, a.positions, a.factors, a.step) == EXPECTED[name]


@pytest.mark.parametrize("name", ALL)
def test_a_filter_is_read_back_exactly(name):
    a = ALL[name]

    assert (exact(a.back) @ exact(a.filter) == np.eye(3, dtype=int)).all()


@pytest.mark.parametrize("name", ALL)
def test_pixels_and_results_are_transformed_by_numbers_that_f32_has(name):
    for matrix in (ALL[name].data, ALL[name].result):
        np.testing.assert_array_equal(np.float32(floats(matrix)), np.float64(floats(matrix)))
        assert (exact(matrix) == exact(floats(matrix))).all()


def test_the_first_algorithm_is_lavin_and_gray_s():
    assert floats(ALGORITHMS["winograd23"].filter) == ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
    assert floats(ALGORITHMS["winograd23"].data)[:3] == ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0))


def test_other_points_give_another_algorithm_that_filters_too():
    a = toom_cook((0, Fraction(1, 3), -Fraction(1, 3)))
    d, g = [Fraction(k) for k in (3, 1, 4, 1)], [Fraction(k) for k in (2, 7, 1)]

    assert list(exact(a.result) @ ((exact(a.filter) @ g) * (exact(a.data) @ d))) == [17, 31]
    assert a != ALGORITHMS["winograd23"]


class Counted:
    """A number that counts the operations that computed it."""

    operations = 0

    def __init__(self, value):
        self.value = value

    def _made(self, value):
        Counted.operations += 1
        return Counted(value)

    def __add__(self, other):
        return self._made(self.value + other.value)

    def __sub__(self, other):
        return self._made(self.value - other.value)

    def __mul__(self, factor):
        return self._made(self.value * Fraction(factor))

    def muladd(self, factor, addend):
        return self._made(self.value * Fraction(factor) + addend.value)


@pytest.mark.parametrize(
    ("name", "data", "products"), [("winograd23", 4, 4), ("winograd43", 13, 14), ("winograd63", 26, 30)]
)
def test_lines_are_transformed_exactly_with_what_rows_and_columns_share(name, data, products):
    values = [Fraction(k * k - 11, k + 1) for k in range(ALGORITHMS[name].positions)]
    for matrix, most in ((ALGORITHMS[name].data, data), (ALGORITHMS[name].result, products)):
        Counted.operations = 0

        found = linear(floats(matrix), [Counted(v) for v in values])

        assert [f.value for f in found] == list(exact(matrix) @ values)
        assert Counted.operations <= most < np.count_nonzero(floats(matrix))


def test_rows_that_share_nothing_are_each_summed():
    found = linear([[1, 2], [3, 5]], [Counted(Fraction(7)), Counted(Fraction(11))])

    assert [f.value for f in found] == [29, 76]
