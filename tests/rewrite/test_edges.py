"""NaN, infinities and the sign of zero through the rules that claim to be exact."""

import math

import numpy as np
import pytest

from gpucomp import config, ops
from gpucomp.ir import BOOL, F32, F64, constant
from gpucomp.ir.types import BF16, DTYPES, F16, I8, I32, I64, U8
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite import canonicalize, fold, simplify
from gpucomp.rewrite.canonicalize import holds
from gpucomp.rewrite.pipeline import run_pipeline
from gpucomp.rewrite.rule import apply_rules
from testing.tolerance import assert_identical
from tests.builders import graph_of, ops_of, scalar, tensor

EDGES = np.array(
    [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-38, 3e38, -3e38, 0.1, -7.5, 6.0, 2.0**24 + 2], np.float32
)
X = tensor("x", len(EDGES))

EXACT = {
    "x - 0.1": ops.Sub(X, scalar(0.1)),
    "x / 2^-30": ops.Div(X, scalar(2.0**-30)),
    "x / -4": ops.Div(X, scalar(-4)),
    "x * 1": ops.Mul(X, scalar(1)),
    "1 / x": ops.Div(scalar(1), X),
    "x^2": ops.Pow(X, scalar(2)),
    "--x": ops.Neg(ops.Neg(X)),
    "x + -y": ops.Add(X, ops.Neg(ops.Sqrt(X))),
    "max(x, -1)": ops.Max(X, scalar(-1)),
    "min(max(x, -1), 5)": ops.Min(ops.Max(X, scalar(-1)), scalar(5)),
    "clip(clip(x, -1, 6), 0.5, 7)": ops.Clip(ops.Clip(X, low=-1.0, high=6.0), low=0.5, high=7.0),
    "disjoint clips": ops.Clip(ops.Clip(X, low=-2.0, high=-1.0), low=1.0, high=2.0),
    "clip(relu(x), none, 6)": ops.Clip(ops.Relu(X), low=None, high=6.0),
    "relu(clip(x, -1, 5))": ops.Relu(ops.Clip(X, low=-1.0, high=5.0)),
    "floor(floor(x))": ops.Floor(ops.Floor(X)),
    "f32 through f64": ops.Cast(ops.Cast(X, to=F64), to=F16),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_rules_keep_every_bit_but_the_sign_of_zero(name):
    before = graph_of(EXACT[name])

    after = apply_rules(before, (*canonicalize.RULES, *simplify.RULES))

    assert after is not before
    found, expected = (interpret(g, {"x": EDGES})[0] for g in (after, before))
    assert_identical(found + 0, expected + 0)  # -0 + 0 is 0


def test_adding_zero_is_dropped_and_may_only_change_the_sign_of_zero():
    after = apply_rules(graph_of(ops.Add(X, scalar(0.0))), canonicalize.RULES)

    assert after.outputs[0] is X


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (lambda: ops.Div(constant(np.array([1, 2], np.int32)), constant(np.zeros(2, np.int32))), "a division by zero"),
        (lambda: ops.Mod(constant(np.array([1, 2], np.int32)), constant(np.zeros(2, np.int32))), "a remainder of zero"),
        (lambda: ops.Log(constant(np.array([-1.0, 0.0], np.float32))), "a logarithm of nothing"),
        (lambda: ops.Cast(constant(np.array([math.nan, 1e30], np.float32)), to=I8), "a cast of NaN"),
        (lambda: ops.Pow(constant(np.array([0, 2])), constant(np.array([-1, 70]))), "an integer power that wraps"),
        (
            lambda: ops.ReduceMax(constant(np.zeros((0, 3), np.float32)), axes=(0,), keepdims=False),
            "the maximum of nothing",
        ),
    ],
)
def test_folding_raises_nothing_for(node, why):
    before = graph_of(node())

    after = apply_rules(before, fold.RULES)

    if after is not before:
        assert_identical(interpret(after, {})[0], interpret(before, {})[0])


def test_folding_stops_at_the_limit():
    graph = graph_of(ops.Concat(*[constant(np.ones((10, 100), np.float32))] * 5, axis=0))

    with config.using(fold_limit=20_000 - 1):
        assert apply_rules(graph, fold.RULES) is graph
    with config.using(fold_limit=20_000):
        assert ops_of(apply_rules(graph, fold.RULES)) == []


def test_folding_never_multiplies_enormous_matrices():
    side = constant(np.broadcast_to(np.float32(1), (4096, 4096)))
    graph = graph_of(ops.MatMul(side, side))

    assert apply_rules(graph, fold.RULES) is graph


def test_a_folded_constant_is_row_major_and_owns_its_memory():
    big = constant(np.arange(700 * 500, dtype=np.float32).reshape(700, 500))

    after = apply_rules(graph_of(ops.Transpose(big, perm=(1, 0))), fold.RULES)

    array = after.outputs[0].attrs["value"]
    assert array.flags.c_contiguous
    assert array.base is None
    np.testing.assert_array_equal(array, big.attrs["value"].T)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [(F64, F32), (F32, F16), (F32, BF16), (F64, I32), (F32, I8), (I32, U8), (I64, BOOL), (F16, BOOL), (BF16, U8)],
)
def test_a_type_holds_a_narrower_one(wide, narrow):
    assert holds(wide, narrow)
    assert not holds(narrow, wide)


@pytest.mark.parametrize(
    ("wide", "narrow"), [(F32, I32), (F16, BF16), (BF16, F16), (U8, I8), (I8, U8), (F64, I64), (I64, F16)]
)
def test_a_type_does_not_hold_one_with_other_numbers(wide, narrow):
    assert not holds(wide, narrow)


def test_what_a_type_holds_it_keeps():
    for wide in DTYPES.values():
        for narrow in DTYPES.values():
            if holds(wide, narrow) and wide is not narrow and narrow.bits <= 16 and not narrow.storage_only:
                bits = np.arange(1 << narrow.bits, dtype=np.uint32).astype(f"u{narrow.nbytes}")
                numbers = bits.astype(bool) if narrow is BOOL else bits.view(narrow.numpy)
                with np.errstate(invalid="ignore"):  # some of the NaNs signal
                    numbers = numbers[~np.isnan(numbers)] if narrow.is_float else numbers
                graph = graph_of(
                    ops.Cast(ops.Cast(v := tensor("v", len(numbers), dtype=narrow), to=wide), to=v.type.dtype)
                )
                assert_identical(interpret(graph, {"v": numbers})[0], numbers)


def test_a_whole_pipeline_on_an_empty_tensor():
    x = tensor("x", 0, 3, 5, dtype=F32)
    graph = graph_of(ops.Transpose(ops.Softmax(ops.Add(x, scalar(1.0)), axis=1), perm=(2, 0, 1)))

    after = run_pipeline(graph)

    assert interpret(after, {"x": np.zeros((0, 3, 5), np.float32)})[0].shape == (5, 0, 3)
