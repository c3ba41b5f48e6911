"""Index arithmetic whose extents each run decides: simplified once, it has the value of the plain arithmetic at every size."""

import itertools
import random

import numpy as np
import pytest

from gpucomp.expr.core import Const, Var, call, cast, index, literal, substitute, var, walk
from gpucomp.expr.evaluate import evaluate
from gpucomp.expr.printer import format_expr
from gpucomp.expr.simplify import bounds, coefficient, flatten, simplify, unflatten
from gpucomp.ir.conditions import Assumed, assuming
from gpucomp.ir.dim import Dim
from gpucomp.ir.extremes import largest
from gpucomp.ir.size import Size, size_of, value_at
from gpucomp.ir.types import BOOL, F32, I64

DIMS = {"n": Dim("n", 1, 5), "h": Dim("h", 4, 24, 4), "w": Dim("w", 1, 13)}
EXAMPLE = {"n": 3, "h": 12, "w": 7}
N, H, W = (size_of(DIMS[name], EXAMPLE[name]) for name in "nhw")


@pytest.fixture(autouse=True)
def unconditional():
    """No test may decide anything for the example only."""
    notes = Assumed()
    with assuming(notes):
        yield
    assert not notes.conditions


def at(expr, sizes, axes):
    """The value of ``expr`` at every point of ``axes``."""
    numbers = {node: index(value_at(node.value, sizes)) for node in walk(expr) if isinstance(node, Const)}
    numbers = {node: new for node, new in numbers.items() if isinstance(node.value, Size)}
    plain = substitute(expr, numbers)
    extents = [value_at(axis.extent, sizes) for axis in axes]
    grids = np.meshgrid(*(np.arange(n) for n in extents), indexing="ij") if axes else []
    return np.broadcast_to(evaluate(plain, [], dict(zip(axes, grids, strict=True))), extents)


def every_size():
    ranges = ([s for s in range(dim.low, dim.high + 1) if s in dim] for dim in DIMS.values())
    return [dict(zip(DIMS, sizes, strict=True)) for sizes in itertools.product(*ranges)]


def drawn_size(rng):
    return rng.choice(
        [index(s) for s in (N, H, W, H * W, H // 4, W + 3, 2 * W, (W + 1) // 2, N * H)] + [index(3), index(8)]
    )


def grown(rng, axes, depth):
    if depth == 0:
        return rng.choice([*axes, drawn_size(rng), index(rng.randrange(6))])
    a, b = grown(rng, axes, depth - 1), grown(rng, axes, rng.randrange(depth))
    kind = rng.choice(["add", "add", "sub", "mul", "floordiv", "mod", "min", "max"])
    if kind in ("floordiv", "mod"):
        b = drawn_size(rng)
    return call(kind, a, b) if isinstance(a, (Var, Const)) or a.dtype is I64 else a


@pytest.mark.parametrize("seed", range(200))
def test_a_simplified_expression_has_the_value_of_the_plain_one(seed):
    rng = random.Random(seed)
    axes = (var("i", N), var("j", H), var("k", W))
    expr = grown(rng, axes, rng.randrange(1, 5))
    if rng.random() < 0.3:
        expr = call(rng.choice(["lt", "le", "eq", "ne"]), expr, grown(rng, axes, 2))
    found = simplify(expr)

    low, high = bounds(expr)
    for sizes in rng.sample(every_size(), 8):
        wanted = at(expr, sizes, axes)
        np.testing.assert_array_equal(at(found, sizes, axes), wanted, err_msg=f"{format_expr(expr)} at {sizes}")
        if expr.dtype is not BOOL:
            assert low <= wanted.min()
            assert wanted.max() <= high


def test_a_reshape_and_its_inverse_cancel():
    i, j, k = var("i", N), var("j", H), var("k", W)
    flat = flatten((i, j, k), (N, H, W))

    assert unflatten(flat, (N, H, W)) == (i, j, k)
    assert simplify(call("floordiv", flat, W)) is simplify(call("add", call("mul", i, H), j))


def test_merged_axes_are_divided_by_what_is_inside():
    flat = var("flat", N * H * W)

    assert format_expr(simplify(call("mod", call("floordiv", flat, W), H))) == "((flat // w) % h)"
    assert format_expr(simplify(call("floordiv", call("floordiv", flat, W), H))) == "(flat // h*w)"


def test_an_index_that_can_reach_the_size_keeps_its_division():
    i, j = var("i", H), var("j", W + 1)
    flat = call("add", call("mul", i, index(W)), j)

    assert any(
        node.fn == "floordiv" for node in walk(simplify(call("floordiv", flat, index(W)))) if hasattr(node, "fn")
    )


def test_a_guard_is_dropped_only_if_every_size_satisfies_it():
    j = var("j", W)

    assert simplify(call("lt", j, index(W))) is literal(True, BOOL)
    assert simplify(call("lt", j, index(W + 2))) is literal(True, BOOL)
    assert simplify(call("lt", j, index(W - 1))) is not literal(True, BOOL)
    assert simplify(call("lt", j, index(H))) is not literal(True, BOOL)


def test_an_axis_that_can_be_longer_than_one_is_kept():
    i = var("i", N)

    assert simplify(i) is i
    assert simplify(call("add", i, 0)) is i


def test_a_stride_can_be_a_size():
    i, j = var("i", H), var("j", W)
    offset = flatten((i, j), (H, W))

    assert coefficient(offset, j) == 1
    assert str(coefficient(offset, i)) == "w"


def test_a_size_is_a_float_by_a_conversion():
    mean = call("div", cast(var("i", W), F32), W)

    assert format_expr(mean) == "(f32(i) / f32(w))"


def test_equal_sizes_are_one_constant_and_conditions_keep_them_apart():
    assert index(H * 2) is index(H + H)
    inside = index(W)
    with assuming(Assumed()):
        assert index(W) is not inside  # what is simplified in there may use what is assumed there


def test_extents_of_at_least_one():
    assert str(largest(W, 1)) == "w"
