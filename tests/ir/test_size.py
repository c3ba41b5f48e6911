"""Arithmetic of sizes: every formula has the value of the same Python arithmetic, and no decision differs from its run."""

import math
import operator
import random
from fractions import Fraction

import pytest

from gpucomp.ir.conditions import Assumed, assuming
from gpucomp.ir.extremes import largest, smallest
from gpucomp.ir.size import Dim, Size, bounds, hint, names_in, quotient, same, size_of, value_at

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


@pytest.mark.parametrize("seed", range(300))
def test_what_was_learnt_is_so_wherever_the_conditions_hold(seed):
    rng = random.Random(5000 + seed)
    relations = [operator.lt, operator.le, operator.eq, operator.ne]
    decisions, formulas = [], []

    with assuming(Assumed()) as notes:
        for _ in range(4):
            (first, one), (second, other) = grown(rng, rng.randrange(1, 3)), grown(rng, rng.randrange(1, 3))
            if rng.random() < 0.5:  # an equality that the example satisfies
                apart = hint(first) - hint(second)
                second, other = second + apart, lambda s, other=other, apart=apart: other(s) + apart
            relation = rng.choice(relations)
            decisions.append((relation, one, other, relation(first, second)))
            size, plain = grown(rng, rng.randrange(1, 4))
            formulas.append((size, plain, bounds(size)))
    for _ in range(200):
        sizes = drawn(rng)
        if notes.hold_at(sizes):
            for relation, one, other, answer in decisions:
                assert relation(one(sizes), other(sizes)) == answer, f"{notes} at {sizes}"
            for size, plain, (low, high) in formulas:
                assert value_at(size, sizes) == plain(sizes), f"{size} at {sizes}, where {notes}"
                assert low <= plain(sizes) <= high, f"{size} at {sizes}, where {notes}"
    assert notes.hold_at(EXAMPLE)


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


def test_what_follows_from_a_condition_is_no_other_condition():
    with assuming(Assumed()) as notes:
        assert (W + 64) // 16 >= 5
        assert W >= 16
        assert W // 16 >= 1
        assert N == 3
        assert N < 4
        assert N + W >= 19

    assert notes.texts() == ["floor(w/16) >= 1", "n == 3"]


def test_a_condition_that_another_one_implies_is_not_told():
    with assuming(Assumed()) as notes:
        assert W >= 4
        assert W // 16 >= 1  # so w is at least 16
        assert N + H >= 7
        assert N + H > 10
        assert N != 9
        assert N + H <= 40

    assert len(notes.conditions) == 6
    assert notes.texts() == ["floor(w/16) >= 1", "h + n > 10", "n != 9", "h + n <= 40"]


@pytest.mark.parametrize("seed", range(200))
def test_the_conditions_that_are_told_are_all(seed):
    rng = random.Random(seed)
    with assuming(Assumed()) as notes:
        for _ in range(6):
            first, second = (grown(rng, 1)[0] for _ in range(2))
            assert rng.choice([operator.lt, operator.le, operator.eq])(first, second) in (True, False)
    told = [c for c, truth in notes.conditions.items() if c.text(truth) in notes.texts()]

    for _ in range(100):
        sizes = drawn(rng)
        if all(c.holds_at(sizes) == notes.conditions[c] for c in told):
            assert notes.hold_at(sizes), (notes.conditions, sizes)


def test_an_equality_replaces_the_longer_formula_from_then_on():
    with assuming(Assumed()) as notes:
        assert N != 17
        assert W - smallest(W, 30) == 0
        assert same(smallest(W, 30) * N, N * W)
        assert H == 4 * (H // 4)
        assert (W + 3) // 4 * 2 == (W + 1) // 2 + 1
        assert same((W + 1) // 2 * 3, (W + 3) // 4 * 6 - 3)

    assert notes.texts() == ["w == min(30, w)", "2*floor((w + 3)/4) == floor((w + 1)/2) + 1"]


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


def test_a_quotient_by_what_may_be_zero_has_wide_bounds():
    a, b, c = (
        size_of(Dim(name, 1, high), example) for name, high, example in (("a", 10, 5), ("b", 10, 3), ("c", 100, 7))
    )
    with assuming(Assumed()) as notes:
        found = c // (a - b)
        assert found <= 11
    sizes = {"a": 5, "b": 4, "c": 100}

    assert value_at(found, sizes) == 100
    assert not notes.hold_at(sizes)


def test_a_quotient_uses_what_was_learnt_after_its_operands_were_made():
    a, b, c = (size_of(Dim(name, 1, 40), example) for name, example in (("a", 4), ("b", 10), ("c", 3)))
    with assuming(Assumed()) as notes:
        top = b + 2 * c
        assert 2 * b == 5 * a
        found = top // 4

    assert notes.hold_at({"a": 4, "b": 10, "c": 1})
    assert value_at(found, {"a": 4, "b": 10, "c": 1}) == 3


def test_the_least_of_fractions_is_no_whole_number():
    half = smallest(W * Fraction(1, 2), N)

    assert [value_at(half, {"n": 9, "w": w}) for w in (1, 4, 50)] == [Fraction(1, 2), 2, 9]
    assert [value_at(math.floor(half), {"n": 9, "w": w}) for w in (1, 4, 50)] == [0, 2, 9]
    with assuming(Assumed()) as notes:
        assert 2 * half != 1
    assert len(notes.conditions) == 1


def test_what_one_block_knows_is_not_known_in_another():
    found = (W + 1) // 3
    with assuming(Assumed()):
        assert found <= 6
        assert bounds(found)[1] <= 6

    assert bounds(found)[1] == 17
    with pytest.raises(TypeError, match="differs from run to run"):
        found <= 6  # noqa: B015


def test_numbers_with_a_point_are_compared_exactly():
    with assuming(Assumed()) as notes:
        assert N == 3.0
        assert float(W * Fraction(1, 2)) == 8.5
    assert notes.texts() == ["n == 3", "w/2 == 17/2"]
    with pytest.raises(ValueError, match="power"):
        N**-1


def test_a_formula_has_a_limit():
    def grow():
        size = W
        for _ in range(60):
            size = size // 3 + (size + N) // 5

    with pytest.raises(ValueError, match="more than 2000 parts"):
        grow()


def test_quotients_that_are_no_formulas_are_errors():
    with pytest.raises(ZeroDivisionError):
        quotient(N, 0)
    with pytest.raises(ValueError, match=r"\(w \+ 1\) / n is not a polynomial"):
        (W + 1) / N
    assert same(N * W / N, W)
    assert same((2 * N + 2) / (N + 1), 2)
