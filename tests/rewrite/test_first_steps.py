"""Loops with a first step of their own: where that saves products, and where it must not be."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from gpucomp import Dim, ops
from gpucomp.errors import ShapeError
from gpucomp.ir import F32, Graph, constant
from gpucomp.ir.graph import Node, input_value
from gpucomp.ir.size import size_of
from gpucomp.ir.types import TensorType
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite.first_steps import MOST_STEPS, with_first_steps
from gpucomp.rewrite.pipeline import BASICS
from testing.tolerance import assert_matches
from tests.builders import graph_of, scalar, tensor, weights

ZEROS = ops.Expand(scalar(0), shape=(2, 5))


def loop(initial, count=6, *, times=None, reverse=False):
    """h becomes tanh(h r + x), which is also a row; ``times`` is r."""
    h, x = input_value("h", TensorType(F32, (2, 5))), input_value("row", TensorType(F32, (2, 5)))
    own, outer = ((), ()) if times is None else ((input_value("r", TensorType(F32, (5, 5))),), (times,))
    after = ops.Tanh(ops.Add(ops.MatMul(h, own[0] if own else weights(5, 5)), x))
    scanned = input_value("x", TensorType(F32, (count, 2, 5)))
    return ops.Repeat.node(
        initial,
        scanned,
        *outer,
        body=Graph((h, x, *own), (after, after)),
        count=count,
        states=1,
        scans=1,
        reverse=(reverse,),
        out_reverse=(reverse,),
    )


def test_the_two_bodies_have_no_value_in_common():
    h, x = input_value("h", TensorType(F32, (2, 5))), input_value("row", TensorType(F32, (2, 5)))
    both, row = ops.Exp(x), ops.MatMul(h, weights(5, 5))
    body = Graph((h, x), (both, ops.Add(row, both)))
    xs = input_value("xs", TensorType(F32, (6, 2, 5)))
    node = ops.Repeat.node(ZEROS, xs, body=body, count=6, states=1, scans=1, reverse=(False,), out_reverse=(False,))

    first = first_of(node)

    outside = {v for n in (*body.nodes(), ZEROS.node) for v in n.values if n.op is not ops.Constant} | {*body.inputs}
    assert not outside & {v for n in first.nodes() for v in n.values}
    assert not outside & {*first.inputs}


def with_count(count):
    node = loop(ZEROS)
    return Node(node.op, node.inputs, MappingProxyType({**node.attrs, "count": count}), node.types, "")


def first_of(node):
    (found,) = (n for n in with_first_steps(graph_of(*node.values), BASICS).nodes() if n.op is ops.Repeat)
    return found.attrs.get("first")


@pytest.mark.parametrize("reverse", [False, True])
def test_a_first_step_from_zeros_needs_no_product(reverse):
    graph = graph_of(*loop(ZEROS, reverse=reverse).values)

    found = with_first_steps(graph, BASICS)

    (node,) = (n for n in found.nodes() if n.op is ops.Repeat)
    assert ops.MatMul not in {n.op for n in node.attrs["first"].nodes()}
    assert ops.MatMul in {n.op for n in node.attrs["body"].nodes()}
    x = np.random.default_rng(0).standard_normal((6, 2, 5)).astype(np.float32)
    for one, other in zip(interpret(found, {"x": x}), interpret(graph, {"x": x}), strict=True):
        assert_matches(one, other)
    assert with_first_steps(found, BASICS) is found


def test_it_is_there_in_runs_of_at_least_one_step():
    time = size_of(Dim("time", 1, 1000), 7)
    assert first_of(with_count(time)) is not None
    assert first_of(with_count(time - 1)) is None


@pytest.mark.parametrize(
    "node",
    [
        loop(tensor("h0", 2, 5)),
        loop(weights(2, 5)),  # the product is still there
        loop(ZEROS, times=tensor("r0", 5, 5)),  # which may be infinite
        loop(ZEROS, times=constant(np.zeros((5, 5), np.float32))),  # not known to the body
        loop(ZEROS, 1),
        loop(ZEROS, MOST_STEPS + 1),
    ],
    ids=["given", "not one number", "open factor", "factor from outside", "one step", "many steps"],
)
def test_there_is_none_that_saves_nothing(node):
    assert first_of(node) is None


def test_a_first_step_of_other_types_is_refused():
    node = loop(ZEROS)
    other = Graph(node.attrs["body"].inputs, node.attrs["body"].outputs[:1])

    with pytest.raises(ShapeError, match="first step"):
        ops.Repeat.node(*node.inputs, **{**node.attrs, "first": other})
    none = loop(ZEROS, 0)
    with pytest.raises(ShapeError, match="0 steps"):
        ops.Repeat.node(*none.inputs, **{**none.attrs, "first": none.attrs["body"]})
