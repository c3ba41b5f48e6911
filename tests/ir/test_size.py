"""Arithmetic of sizes: every formula has the value of the same Python arithmetic, and no decision differs from its run."""

import math
import operator
import random
from fractions import Fraction

import pytest

from gpucomp.ir.size import (
    Assumed,
    Dim,
    Size,
    assuming,
    bounds,
    hint,
    largest,
    names_in,
    quotient,
    same,
    size_of,
    smallest,
    value_at,
)

DIMS = {"n": Dim("n", 1, 9), "h": Dim("h", 4, 64, 4), "w": Dim("w", 0, 50)}
EXAMPLE = {"n": 3, "h": 28, "w": 17}
N, H, W = (size_of(DIMS[name], EXAMPLE[name]) for name in "nhw")


def drawn(rng: random.Random) -> dict[str, int]:
    return {name: rng.choice([s for s in range(dim.low, dim.high + 1) if s in dim]) for name, dim in DIMS.items()}


def grown(rng: random.Random, depth: int):
    """A random formula, and the function of plain sizes that computes it."""
    if depth == 0:
        name = rng.choice("nhw")
        return size_of(DIMS[name], EXAMPLE[name]), lambda sizes, name=name: sizes[name]
    first, one = grown(rng, depth - 1)
    if rng.random() < 0.5:
        number = rng.choice([1, 2, 3, 4, 5, 7, 8, 16, 32])
        second, other = number, lambda sizes: number
    else:
        second, other = grown(rng, rng.randrange(depth))
    kind = rng.choice(["+", "-", "*", "//", "%", "min", "max", "ceil"])
    if kind in ("//", "%", "ceil"):
        second, other = second * 1 + 1, lambda sizes, other=other: other(sizes) + 1
        if bounds(second)[0] <= 0:
            return first, one
    made = {
        "+": (operator.add, operator.add),
        "-": (operator.sub, operator.sub),
        "*": (operator.mul, operator.mul),
        "//": (operator.floordiv, operator.floordiv),
        "%": (operator.mod, operator.mod),
        "min": (smallest, min),
        "max": (largest, max),
        "ceil": (lambda a, b: -(-a // b), lambda a, b: -(-a // b)),
    }[kind]
    return made[0](first, second), lambda sizes: made[1](one(sizes), other(sizes))


@pytest.mark.parametrize("seed", range(150))
def test_a_formula_has_the_value_of_the_same_arithmetic_on_numbers(seed):
    rng = random.Random(seed)
    size, plain = grown(rng, rng.randrange(1, 5))
    low, high = bounds(size)

    assert hint(size) == plain(EXAMPLE)
    for _ in range(40):
        sizes = drawn(rng)
        assert value_at(size, sizes) == plain(sizes), f"{size} at {sizes}"
        assert low <= plain(sizes) <= high, f"{size} at {sizes} in {low} to {high}"
    if not isinstance(size, Size):
        assert isinstance(size, int)


@pytest.mark.parametrize("seed", range(150))
def test_a_decision_is_that_of_every_run_that_its_conditions_allow(seed):
    rng = random.Random(1000 + seed)
    (first, one), (second, other) = grown(rng, rng.randrange(1, 4)), grown(rng, rng.randrange(1, 4))
    relation = rng.choice([operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])

    with assuming(Assumed()) as notes:
        answer = relation(first, second)
    met = 0
    for _ in range(60):
        sizes = drawn(rng)
        if notes.hold_at(sizes):
            met += 1
            assert relation(one(sizes), other(sizes)) == answer, f"{first} {relation.__name__} {second} at {sizes}"
    assert notes.hold_at(EXAMPLE)
    assert met or notes.conditions


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (N + 1, "n + 1"),
        (3 * N * W - N * W - 2 * N * W, "0"),
        (H // 2 + 5, "h/2 + 5"),
        (H // 4, "h/4"),
        (H // 8, "floor((h/4)/2)"),
        ((W + 1) // 2, "floor((w + 1)/2)"),
        (((W + 1) // 2 + 1) // 2, "floor((w + 3)/4)"),
        (-(-W // 2), "floor((w + 1)/2)"),
        (-(-W // 3), "floor((w + 2)/3)"),
        (-W // 4, "-floor((w + 3)/4)"),
        (3 * W // 2, "w + floor(w/2)"),
        (smallest(smallest(W, 9), N, W), "min(n, w)"),
        ((2 * W + 1) // 4, "floor(w/2)"),
        ((N * W * 12) // (N * 3), "4*w"),
        ((N * W * 12) // N, "12*w"),
        (N * W % N, "0"),
        (H % 4, "0"),
        (W % 1, "0"),
        ((W + 100) // 200, "0"),
        (smallest(N, 9), "n"),
        (largest(N, W), "max(n, w)"),
        (smallest(W, W + 1, 60), "w"),
        ((N + W) * (N - W), "n*n - w*w"),
        (W - W // 2 * 2, "w - 2*floor(w/2)"),
        (1 - N, "-n + 1"),
        (math.ceil(W / 1), "w"),
        (math.floor((W + Fraction(1, 2)) * 2), "2*w + 1"),
        (math.floor(W * Fraction(1, 2)), "floor(w/2)"),
        (N**2, "n*n"),
    ],
)
def test_a_formula_has_one_text(size, text):
    assert str(size) == text


@pytest.mark.parametrize(
    ("holds", "answer"),
    [
        (lambda: N >= 1, True),
        (lambda: N < 10, True),
        (lambda: N == 0, False),
        (lambda: N != 10, True),
        (lambda: H % 4 == 0, True),
        (lambda: 2 * W == 7, False),
        (lambda: W - W // 2 >= 0, True),
        (lambda: W - W // 2 * 2 < 2, True),
        (lambda: N * W >= 0, True),
        (lambda: N == "n", False),
        (lambda: (W + 1) // 2 <= W + 1, True),
        (lambda: bool(N), True),
    ],
)
def test_what_is_so_in_every_run_is_decided_without_a_condition(holds, answer):
    assert holds() == answer


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda: N == 3, "n == 3"),
        (lambda: N == 4, "n != 4"),
        (lambda: W > 20, "w <= 20"),
        (lambda: N <= W, "n <= w"),
        (lambda: list(range(N)), "n == 3"),
        (lambda: [0] * 5 if W else [], "w != 0"),
        (lambda: int(W // 2), "floor(w/2) == 8"),
    ],
)
def test_what_differs_from_run_to_run_is_decided_for_the_example(use, text):
    with pytest.raises(TypeError, match="differs from run to run"):
        use()
    with assuming(Assumed()) as notes:
        use()

    assert str(notes) == text


def test_a_condition_is_noted_once():
    with assuming(Assumed()) as notes:
        assert [N == 3, N == 3, N - 3 == 0] == [True] * 3

    assert len(notes.conditions) == 1
    assert notes.hold_at({"n": 3})
    assert not notes.hold_at({"n": 4})


def test_a_range_of_one_size_is_a_number():
    assert size_of(Dim("h", 30, 40, 32), 32) == 32
    assert type(size_of(Dim("h", 30, 40, 32), 32)) is int


def test_equal_formulas_are_one_key_and_others_are_not():
    assert {N + W: 1}[W + N] == 1
    assert N // 2 not in {(N + 1) // 2: 1}
    assert same(N * (W + 1), N + N * W)
    assert not same(N, W)
    assert not same(N, 3)
    assert same(3, 3)


def test_dimensions_of_a_formula_are_found():
    assert names_in(largest(N, (W + 1) // 2)) == {"n", "w"}
    assert names_in(N // (H + W)) == {"n", "h", "w"}
    assert names_in(5) == set()


def test_quotients_that_are_no_formulas_are_errors():
    with pytest.raises(ZeroDivisionError):
        quotient(N, 0)
    with pytest.raises(ValueError, match=r"\(w \+ 1\) / n is not a polynomial"):
        (W + 1) / N
    assert same(N * W / N, W)
    assert same((2 * N + 2) / (N + 1), 2)
