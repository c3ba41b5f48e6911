"""Row-wise kernels on the CPU: exponentials and divisions of a softmax, rows that are not finite, the axis of lanes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.ir import tables
from gpucomp.codegen.llvm.ir.types import spell
from gpucomp.codegen.llvm.loops.rowwise import KEPT_ELEMENTS
from gpucomp.expr.core import axes_of, call, cast, hole, load
from gpucomp.ir.types import F32, I32, U8, TensorType
from gpucomp.kernel import Kernel, Rowwise, Statistic, Store
from gpucomp.kernel.interpreter import expected
from gpucomp.targets import cpu, resolve
from testing.kernels import layer_norm, softmax
from testing.tolerance import assert_matches
from tests.native import WIDEST, default_schedule, run_kernel


def passes(kernel: Kernel) -> int:
    """How often a statistic of a costly function is in the text: by four accumulators, and for what they leave; or by one, if a
    value has two registers.
    """
    return 1 if default_schedule(kernel)["lanes"] > WIDEST else 1 + 4


def exponentials(kernel: Kernel) -> int:
    """How often exp is in the text. It multiplies by 1/log(2), or by a multiple of that if it has a table of powers."""
    text = emit(kernel, default_schedule(kernel), cpu.host(), "k").text
    return sum(text.count(spell(n / math.log(2), "float")) for n in (1, tables.INTERVALS))


def unshifted(rows: int, cols: int) -> Kernel:
    """exp(x) divided by the sum of exp(x), which may be anything from 0 to infinity."""
    (r, c), total = axes_of((rows, cols)), hole("s0", F32)
    value = call("exp", load(0, (r, c), F32))
    body = Rowwise((r,), (c,), (Statistic(total, "sum", value),))
    params = (TensorType(F32, (rows, cols)),) * 2
    return Kernel("norm", params, 1, body, (Store(1, (r, c), value / total),))


def test_the_stores_of_a_softmax_compute_no_exponential() -> None:
    few, many = softmax(3, 10 * WIDEST), softmax(2, KEPT_ELEMENTS + 2 * WIDEST)
    copies = passes(few)

    assert exponentials(few) == copies
    assert exponentials(many) == copies + 1


@pytest.mark.parametrize("kernel", [softmax(3, 7), softmax(5, 4 * WIDEST + 3), softmax(2, KEPT_ELEMENTS + 5), softmax(1, 1),
                                    unshifted(3, 6 * WIDEST + 1)], ids=lambda k: str(k.params[0]))  # fmt: skip
def test_softmax_of_any_length(kernel: Kernel) -> None:
    rng = np.random.default_rng(0)
    x = (3 * rng.standard_normal(kernel.params[0].shape)).astype(np.float32)

    found, *_ = run_kernel(kernel, [x])

    assert_matches(found, expected(kernel, [x])[0], terms=kernel.params[0].shape[1])


def test_rows_that_are_not_finite_are_what_their_expressions_say() -> None:
    kernel = softmax(5, 2 * WIDEST + 3)
    x = np.zeros(kernel.params[0].shape, np.float32)
    x[1, 4] = np.nan
    x[2] = -np.inf
    x[3, 2:] = -np.inf
    x[4, 7] = 3e38

    found, *_ = run_kernel(kernel, [x])

    np.testing.assert_allclose(found[0], 1 / x.shape[1], rtol=1e-6)
    assert np.isnan(found[1]).all()
    assert np.isnan(found[2]).all()
    np.testing.assert_array_equal(found[3], [0.5, 0.5] + [0.0] * (x.shape[1] - 2))
    np.testing.assert_array_equal(found[4], np.arange(x.shape[1]) == 7)


def test_a_total_that_may_be_tiny_is_divided_by() -> None:
    kernel = unshifted(2, 3 * WIDEST)
    x = np.full(kernel.params[0].shape, -100.0, np.float32)  # a total of about 1.8e-42: its reciprocal is infinite

    found, *_ = run_kernel(kernel, [x])

    np.testing.assert_allclose(found, 1 / x.shape[1], rtol=0.02)  # denormal numbers have few digits


def test_a_norm_keeps_nothing() -> None:
    kernel = layer_norm(3, 4 * WIDEST)

    assert "float]" not in emit(kernel, default_schedule(kernel), cpu.host(), "k").text


@pytest.mark.parametrize("place", [lambda r, c: (r, 2 * c), lambda r, c: (c, r)], ids=["every other", "down"])
def test_columns_that_lie_apart_leave_the_lanes_to_the_rows(place) -> None:
    (r, c), total = axes_of((37, 67)), hole("s0", F32)
    body = Rowwise((r,), (c,), (Statistic(total, "sum", load(0, place(r, c), F32)),))
    x = np.random.default_rng(0).standard_normal((67, 134)).astype(np.float32)
    kernel = Kernel("reduce", (TensorType(F32, x.shape), TensorType(F32, (37,))), 1, body, (Store(1, (r,), total),))

    found, *_ = run_kernel(kernel, [x])
    text = emit(kernel, {**default_schedule(kernel), "lanes": 16}, resolve("cpu:skylake-avx512"), "k").text

    right = np.array([[x[place(row, column)] for column in range(67)] for row in range(37)], np.float64).sum(1)
    assert_matches(found, right.astype(np.float32), terms=67)
    assert "<16 x float>" in text


@pytest.mark.parametrize(("cols", "gathers"), [(3, True), (16, False), (67, False)])
def test_lanes_run_over_the_columns_of_a_sum_where_there_are_many(cols: int, gathers: bool) -> None:
    (r, c), total = axes_of((37, cols)), hole("s0", I32)
    body = Rowwise((r,), (c,), (Statistic(total, "sum", cast(load(0, (r, c), U8), I32)),))
    params = (TensorType(U8, (37, cols)), TensorType(I32, (37,)))
    kernel = Kernel("reduce", params, 1, body, (Store(1, (r,), total),))
    x = np.random.default_rng(0).integers(0, 256, (37, cols)).astype(np.uint8)

    found, *_ = run_kernel(kernel, [x])
    text = emit(kernel, {**default_schedule(kernel), "lanes": 16}, resolve("cpu:skylake-avx512"), "k").text

    np.testing.assert_array_equal(found, x.sum(axis=1))
    assert ("masked.gather" in text) == gathers


def ranged(rows: int, cols: int, second: str = "x") -> Kernel:
    """tanh(x) with the least and the greatest of each row, or of its distances from the least if ``second`` is ``x - min``."""
    (r, c), least, most = axes_of((rows, cols)), hole("s0", F32), hole("s1", F32)
    value = call("tanh", load(0, (r, c), F32))
    statistics = Statistic(least, "min", value), Statistic(most, "max", value if second == "x" else value - least)
    params = (*((TensorType(F32, (rows, cols)),) * 2), *((TensorType(F32, (rows,)),) * 2))
    stores = Store(1, (r, c), value), Store(2, (r,), least), Store(3, (r,), most)
    return Kernel("norm", params, 3, Rowwise((r,), (c,), statistics, frozenset({1, 2})), stores)


def hyperbolic(kernel: Kernel) -> int:
    """How often tanh is in the text: it ends with the sign of its operand."""
    lines = emit(kernel, default_schedule(kernel), cpu.host(), "k").text.splitlines()
    return sum("call" in line and "@llvm.copysign" in line for line in lines)


def test_statistics_that_read_no_other_and_stores_share_one_pass() -> None:
    copies = passes(ranged(3, 10 * WIDEST))

    assert hyperbolic(ranged(3, 10 * WIDEST)) == copies
    assert hyperbolic(ranged(3, 5 * WIDEST, "x - min")) > copies  # the second waits for the first


@pytest.mark.parametrize("second", ["x", "x - min"])
@pytest.mark.parametrize(("rows", "cols"), [(3, 7), (5, 4 * WIDEST + 3), (1, 1), (2, 9 * WIDEST)])
def test_statistics_of_rows_that_are_stored(rows: int, cols: int, second: str) -> None:
    kernel = ranged(rows, cols, second)
    x = np.random.default_rng(0).standard_normal((rows, cols)).astype(np.float32)
    x[0, -1] = np.nan

    found = run_kernel(kernel, [x])

    for got, wanted in zip(found, expected(kernel, [x]), strict=True):
        assert_matches(got, wanted, terms=8)


def across_columns(op: str, rows: int, cols: int, lanes: int, *, centred: bool = False) -> Kernel:
    """``op`` over the middle axis; with ``centred`` also the sum of the squares of what its elements differ from it by."""
    (i, j), (c,) = axes_of((rows, lanes)), axes_of((cols,))
    total, squares = hole("s0", F32), hole("s1", F32)
    element = load(0, (i, c, j), F32)
    statistics = [Statistic(total, op, element), Statistic(squares, "sum", (element - total) * (element - total))]
    out = TensorType(F32, (rows, lanes))
    body = Rowwise((i, j), (c,), tuple(statistics[: 1 + centred]), row_stores=frozenset(range(1 + centred)))
    stores = tuple(Store(1 + k, (i, j), s.hole) for k, s in enumerate(statistics[: 1 + centred]))
    params = (TensorType(F32, (rows, cols, lanes)), *[out] * len(stores))
    return Kernel("reduce", params, len(stores), body, stores)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("lanes", [WIDEST // 2 + 1, 4 * WIDEST, 9 * WIDEST + 3, 1003])
@pytest.mark.parametrize("cols", [1, 3, 4, 11])
def test_rows_in_the_lanes_take_a_cache_line_and_some_columns_at_a_time(cols: int, lanes: int, centred: bool) -> None:
    kernel = across_columns("max", 2, cols, lanes, centred=centred)
    x = np.random.default_rng(0).standard_normal(kernel.params[0].shape).astype(np.float32)

    found = run_kernel(kernel, [x])

    for actual, wanted in zip(found, expected(kernel, [x]), strict=True):
        assert_matches(actual, wanted, terms=cols)


@pytest.mark.parametrize("op", ["max", "min"])
def test_an_extreme_of_columns_keeps_each_nan(op: str) -> None:
    cols = 7
    kernel = across_columns(op, 1, cols, 4 * WIDEST + 1)
    x = np.random.default_rng(0).standard_normal(kernel.params[0].shape).astype(np.float32)
    for column in range(cols):
        x[0, column, 3 * column % x.shape[2]] = -np.nan if column % 2 else np.nan

    (found, *_) = run_kernel(kernel, [x])

    np.testing.assert_array_equal(found, expected(kernel, [x])[0])
    assert np.isnan(found).sum() == cols
