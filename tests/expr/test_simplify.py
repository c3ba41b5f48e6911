"""Index arithmetic: simplification keeps the value, and important expressions reach the form that a person would write."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gpucomp.expr.core import (
    Call,
    Expr,
    Load,
    axes_of,
    call,
    index,
    literal,
    load,
    reduce,
    select,
    substitute,
    transform,
    var,
    walk,
)
from gpucomp.expr.evaluate import evaluate, grid_of
from gpucomp.expr.simplify import bounds, coefficient, flatten, linear, simplify, unflatten
from gpucomp.ir.types import BOOL, F32, I64

AXES = (var("i", 3), var("j", 5), var("k", 7))
CONSTANTS = (1, 2, 3, 4, 6, 7, 12, 35)


def random_index(rng: np.random.Generator, depth: int) -> Expr:
    """A random index expression over ``AXES``; quotients and remainders have positive divisors."""
    if depth == 0 or rng.random() < 0.2:
        return AXES[rng.integers(3)] if rng.random() < 0.8 else index(int(rng.integers(-5, 40)))
    kind = rng.integers(6)
    inner = random_index(rng, depth - 1)
    if kind == 0:
        return inner + random_index(rng, depth - 1)
    if kind == 1:
        return inner - random_index(rng, depth - 1)
    if kind == 2:
        return inner * int(rng.choice(CONSTANTS))
    if kind == 3:
        return inner // int(rng.choice(CONSTANTS))
    if kind == 4:
        return inner % int(rng.choice(CONSTANTS))
    return call("min" if rng.random() < 0.5 else "max", inner, random_index(rng, depth - 1))


@pytest.mark.parametrize("seed", range(8))
def test_simplify_keeps_the_value_and_stays_within_its_bounds(seed):
    rng = np.random.default_rng(seed)
    for _ in range(150):
        expr = random_index(rng, 5)

        simple = simplify(expr)

        expected = np.broadcast_to(evaluate(expr, [], grid_of(AXES)), (3, 5, 7))
        actual = np.broadcast_to(evaluate(simple, [], grid_of(AXES)), (3, 5, 7))
        np.testing.assert_array_equal(actual, expected, err_msg=f"{expr!r} -> {simple!r}")
        low, high = bounds(simple)
        assert low <= expected.min()
        assert high >= expected.max()


@pytest.mark.parametrize("seed", range(4))
def test_comparisons_and_selects_keep_their_value(seed):
    rng = np.random.default_rng(100 + seed)
    for _ in range(100):
        a, b = random_index(rng, 3), random_index(rng, 3)
        fn = str(rng.choice(["lt", "le", "eq", "ne"]))
        expr = select(call(fn, a, b), random_index(rng, 2), random_index(rng, 2))

        simple = simplify(expr)

        expected = np.broadcast_to(evaluate(expr, [], grid_of(AXES)), (3, 5, 7))
        np.testing.assert_array_equal(np.broadcast_to(evaluate(simple, [], grid_of(AXES)), (3, 5, 7)), expected)


def test_a_reshape_and_back_is_nothing():
    shape, other = (3, 5, 7), (15, 7)

    there = unflatten(flatten(AXES, shape), other)
    back = unflatten(flatten(there, other), shape)

    assert back == AXES


@pytest.mark.parametrize("other", [(7, 15), (35, 3), (105,), (5, 21), (1, 105, 1), (3, 35)])
def test_any_reshape_and_back_is_nothing(other):
    shape = (3, 5, 7)

    back = unflatten(flatten(unflatten(flatten(AXES, shape), other), other), shape)

    assert back == AXES


def test_quotient_of_a_multiple_leaves_no_division():
    i, j, _ = AXES

    assert simplify((i * 5 + j) // 5) is i
    assert simplify((i * 5 + j) % 5) is j


def test_division_stays_where_the_remainder_may_carry():
    i, j, _ = AXES

    assert any(isinstance(n, Call) and n.fn == "floordiv" for n in walk(simplify((i * 4 + j) // 4)))


def test_negative_numerators_round_down():
    i = var("i", 9)

    for expr in ((i - 4) // 3, (i - 4) % 3, (i * 6 - 7) // 3, (i * 6 - 7) % 3):
        expected = evaluate(expr, [], grid_of((i,)))
        np.testing.assert_array_equal(np.broadcast_to(evaluate(simplify(expr), [], grid_of((i,))), (9,)), expected)


def test_guards_that_always_hold_disappear():
    i, _, _ = AXES
    value = load(0, (i,), F32)

    assert simplify(select(call("lt", i, 3), value, 0.0)) is value
    assert simplify(select(call("lt", i, 2), value, 0.0)) is not value


def test_interning_makes_equality_identity():
    i, j, _ = AXES

    assert (i * 5 + j) is (i * 5 + j)
    assert (i * 5 + j) is not (j + i * 5)
    assert simplify(j + i * 5) is simplify(i * 5 + j)


def test_floats_are_left_alone():
    i, _, _ = AXES
    value = load(0, (i,), F32)
    expr = (value + 0.0) * 1.0

    assert simplify(expr) is expr


def test_linear_and_coefficient_read_strides():
    i, j, _ = AXES

    constant, terms = linear(simplify(i * 10 + j * 2 - 3))

    assert (constant, terms) == (-3, {i: 10, j: 2})
    assert coefficient(simplify(i * 10 + j), i) == 10
    assert coefficient(simplify(i // 2 + j), i) is None
    assert coefficient(simplify(j + 1), i) == 0


def test_bounds_of_memory_are_those_of_its_type():
    low, high = bounds(load(0, (index(0),), I64))

    assert (low, high) == (-(2**63), 2**63 - 1)


def test_substitution_leaves_bound_axes_alone():
    i, j, _ = AXES
    total = reduce("sum", (j,), load(0, (i, j), F32))

    moved = substitute(total, {i: i + 1})

    assert moved is reduce("sum", (j,), load(0, (i + 1, j), F32))


@pytest.mark.parametrize("known", [True, False])
def test_a_replacement_that_folding_makes_the_whole_is_not_replaced_again(known):
    i, j, _ = AXES
    expr = select(load(0, (i,), BOOL), load(1, (i,), F32), load(2, (i,), F32))
    moved = {0: literal(known, BOOL), 1: load(2, (j,), F32), 2: load(1, (j,), F32)}

    result = transform(expr, lambda node: moved[node.source] if isinstance(node, Load) else None)

    assert result is moved[1 if known else 2]


def test_what_is_rebuilt_on_replaced_operands_is_replaced_itself():
    i, j, _ = AXES
    expr = load(0, (load(1, (i,), I64),), F32)
    moved = {0: lambda at: load(4, (at, i), F32), 1: lambda at: j}

    result = transform(expr, lambda node: moved[node.source](*node.index) if isinstance(node, Load) else None)

    assert result is load(4, (j, i), F32)


def test_unflatten_covers_every_element_once():
    axes = axes_of((4, 9))

    at = unflatten(flatten(axes, (4, 9)), (6, 6))

    values = [np.broadcast_to(evaluate(e, [], grid_of(axes)), (4, 9)).ravel() for e in at]
    assert set(zip(*map(list, values), strict=True)) == set(itertools.product(range(6), range(6)))


def test_a_group_of_fine_terms_leaves_a_coarse_quotient():
    quotient, lane = var("q", 15), var("l", 4)
    place = quotient * 4 + lane

    assert simplify(call("floordiv", place, 20)) is simplify(call("floordiv", quotient, 5))
    assert simplify(place % 20) is simplify((quotient % 5) * 4 + lane)


def test_fine_terms_that_may_carry_stay_in_the_quotient():
    quotient, lane = var("q", 15), var("l", 6)
    place = quotient * 4 + lane

    found = simplify(call("floordiv", place, 20))

    grid = grid_of((quotient, lane))
    np.testing.assert_array_equal(evaluate(found, [], grid), evaluate(place, [], grid) // 20)
    assert lane in found.free
