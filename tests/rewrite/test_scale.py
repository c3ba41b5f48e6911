"""Folding of scales and shifts into weights, for every contraction, layout and group."""

import math

import numpy as np
import pytest

from gpucomp import ops
from gpucomp.ir import constant
from gpucomp.ir.types import BF16, F16
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite import scale
from gpucomp.rewrite.rule import apply_rules
from testing.tolerance import assert_matches
from tests.builders import graph_of, ops_of, scalar, tensor, weights
from tests.rewrite.examples import SQUARE, draw

OUT = {"out": (8, 6)}


def contraction(kind, x, channels, group, layout):
    """A contraction of 6 operand channels with ``channels`` result channels."""
    first = layout == "NCHW"
    if kind == "MatMul":
        return ops.MatMul(x, weights(6, channels))
    if kind == "Conv":
        w = weights(channels, 6 // group, 2, 3) if first else weights(2, 3, 6 // group, channels)
        return ops.Conv(x, w, **SQUARE, group=group, layout=layout)
    w = weights(6, channels // group, 2, 2) if first else weights(2, 2, 6, channels // group)
    return ops.ConvTranspose(x, w, **SQUARE, **OUT, group=group, layout=layout)


def image(kind, layout):
    return tensor("image", 2, 6, 7, 5) if layout == "NCHW" and kind != "MatMul" else tensor("image", 2, 7, 5, 6)


def channels_of(n, kind, layout, seed=0):
    return weights(n, 1, 1, seed=seed) if layout == "NCHW" and kind != "MatMul" else weights(n, seed=seed)


CASES = [
    ("MatMul", 4, 1, "NCHW"),
    *[
        (kind, 4, group, layout)
        for kind in ("Conv", "ConvTranspose")
        for group in (1, 2)
        for layout in ("NCHW", "NHWC")
    ],
    ("Conv", 12, 6, "NCHW"),
    ("Conv", 12, 6, "NHWC"),
]


def folded(graph):
    after = apply_rules(graph, scale.RULES)
    inputs = draw(graph)
    for found, expected in zip(interpret(after, inputs), interpret(graph, inputs), strict=True):
        assert_matches(found, expected, terms=100)
    return ops_of(after)


@pytest.mark.parametrize(("kind", "channels", "group", "layout"), CASES)
def test_a_scale_behind_folds(kind, channels, group, layout):
    y = contraction(kind, image(kind, layout), channels, group, layout)
    c, d = (channels_of(channels, kind, layout, seed) for seed in (1, 2))

    assert folded(graph_of(ops.Mul(ops.Add(ops.Div(y, c), d), c))) == [kind, "Add"]


@pytest.mark.parametrize(("kind", "channels", "group", "layout"), CASES)
def test_a_scale_in_front_folds(kind, channels, group, layout):
    x = ops.Mul(image(kind, layout), channels_of(6, kind, layout))

    assert folded(graph_of(contraction(kind, x, channels, group, layout))) == [kind]


@pytest.mark.parametrize(("kind", "channels", "group", "layout"), [c for c in CASES if c[0] != "ConvTranspose"])
def test_a_shift_in_front_becomes_a_bias(kind, channels, group, layout):
    x = ops.Add(image(kind, layout), channels_of(6, kind, layout))

    assert folded(graph_of(contraction(kind, x, channels, group, layout))) == [kind, "Add"]


def test_batched_weights_take_scales_and_shifts():
    x = ops.Add(ops.Mul(tensor("x", 2, 3, 5), weights(5)), weights(5, seed=1))

    assert folded(graph_of(ops.Mul(ops.MatMul(x, weights(2, 5, 7)), scalar(3)))) == ["MatMul", "Add"]


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_sixteen_bit_weights_are_scaled_and_rounded_once(dtype):
    x = tensor("x", 3, 5, dtype=dtype)
    w, c = weights(5, 7, dtype=dtype), weights(7, dtype=dtype)

    after = apply_rules(graph_of(ops.Mul(ops.MatMul(x, w), c)), scale.RULES)

    found = after.outputs[0].inputs[1].attrs["value"]
    exact = w.attrs["value"].astype(np.float64) * c.attrs["value"].astype(np.float64)
    np.testing.assert_array_equal(found.astype(np.float64), exact.astype(dtype.numpy).astype(np.float64))


def test_weights_that_others_read_are_copied_when_small_and_left_alone_when_large():
    x = tensor("x", 2, 700)
    for width, kept in ((3, ["MatMul", "Exp", "MatMul"]), (700, ["MatMul", "Mul", "Exp", "MatMul"])):
        w = weights(700, width)
        graph = graph_of(ops.Mul(ops.MatMul(x, w), scalar(3)), ops.MatMul(ops.Exp(x), w))

        assert ops_of(apply_rules(graph, scale.RULES)) == kept


def test_nan_in_a_scale_stays_visible():
    y = ops.MatMul(tensor("x", 3, 5), weights(5, 7))
    graph = graph_of(ops.Mul(y, constant(np.array([1, math.nan, 1, 1, 1, 1, 1], np.float32))))

    assert apply_rules(graph, scale.RULES) is graph
