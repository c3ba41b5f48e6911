"""Graphs whose sizes each run decides are rewritten for the whole range: no rule notes a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpucomp import ops
from gpucomp.ir import BOOL, F32, I64, Graph, TensorType, Value, constant, input_value, verify
from gpucomp.ir.conditions import assuming
from gpucomp.ir.dim import Dim
from gpucomp.ir.graph import Op
from gpucomp.ir.instance import instance
from gpucomp.ir.size import size_of
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite.attention import decompose_attention
from gpucomp.rewrite.pipeline import PIPELINE, run_pipeline
from gpucomp.rewrite.rule import apply_rules
from testing.any_size import Unconditional
from testing.tolerance import assert_matches

N, M = Dim("n", 1, 9), Dim("m", 1, 20)


def tensor(name: str, *shape: Any) -> Value:
    return input_value(name, TensorType(F32, shape))


def empty_parts(n: Any, m: Any) -> Value:
    return ops.Concat(tensor("x", n, m), tensor("y", n, m - m), tensor("z", n, n + m), axis=1)


def part_of_a_concat(n: Any, m: Any) -> Value:
    x, y = tensor("x", n, m), tensor("y", n, 3)
    return ops.Slice(ops.Concat(x, y, axis=1), starts=(0, m), steps=(1, 1), sizes=(n, 3))


def part_that_may_be_of_either(n: Any, m: Any) -> Value:
    both = ops.Concat(tensor("x", n, 5), tensor("y", n, m + 9), axis=1)
    return ops.Slice(both, starts=(0, n), steps=(1, 1), sizes=(n, m))


def parts_side_by_side(n: Any, m: Any) -> Value:
    x = tensor("x", n, n + m)
    left = ops.Slice(x, starts=(0, 0), steps=(1, 1), sizes=(n, n))
    return ops.Concat(left, ops.Slice(x, starts=(0, n), steps=(1, 1), sizes=(n, m)), axis=1)


def expanded(n: Any, m: Any) -> Value:
    return ops.Add(ops.Expand(tensor("x", 1, m), shape=(n, m)), tensor("y", n, m))


def expanded_for_itself(n: Any, m: Any) -> Value:
    return ops.Add(ops.Expand(tensor("x", 1, m), shape=(n, m)), tensor("y", 1, m))


def dropped_axis(n: Any, m: Any) -> Value:
    return ops.Reshape(ops.ReduceSum(tensor("x", n, m), axes=(1,), keepdims=True), shape=(n,))


def padded_twice(n: Any, m: Any) -> Value:
    once = ops.Pad(tensor("x", n, m), pads=(0, n, 0, 1), mode="constant", value=0.0)
    return ops.Pad(once, pads=(0, 0, 0, m), mode="constant", value=0.0)


def padded_convolution(n: Any, m: Any) -> Value:
    image = ops.Pad(tensor("x", n, 2, m, m), pads=(0, 0, n, 1, 0, 0, 1, 1), mode="constant", value=0.0)
    weights = constant(np.ones((3, 2, 1, 1), np.float32))
    attrs = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1}
    return ops.Conv(image, weights, **attrs)


def scaled_rows(n: Any, m: Any) -> Value:
    return ops.RMSNorm(tensor("x", n, m), axis=1, epsilon=1e-5)


def masked(n: Any, m: Any) -> Value:
    q, k, v = tensor("q", n, m, 4), tensor("k", n, m, 4), tensor("v", n, m, 4)
    mask = input_value("mask", TensorType(BOOL, (m, m)))
    scores = ops.MatMul(q, ops.Transpose(k, perm=(0, 2, 1)))
    scores = ops.Where(mask, scores, constant(np.float32(-np.inf)))
    return ops.MatMul(ops.Softmax(scores, axis=2), v)


def number_of_rows(n: Any, m: Any) -> Value:
    return ops.Add(ops.Iota(size=n, dtype=I64), constant(np.int64(1)))


GRAPHS: list[Callable[[Any, Any], Value]] = [
    empty_parts,
    part_of_a_concat,
    part_that_may_be_of_either,
    parts_side_by_side,
    expanded,
    expanded_for_itself,
    dropped_axis,
    padded_twice,
    padded_convolution,
    scaled_rows,
    masked,
    number_of_rows,
]


def operators(graph: Graph) -> list[Op]:
    return [node.op for node in graph.nodes() if node.inputs or node.op is ops.Iota]


def graph_of(result: Value) -> Graph:
    graph = Graph((), (result,))
    inputs = [node[0] for node in graph.nodes() if node.op.name == "Input"]
    return Graph(tuple(inputs), (result,))


def any_of(build: Callable[[Any, Any], Value]) -> Graph:
    return graph_of(build(size_of(N, 3), size_of(M, 7)))


def at(graph: Graph, n: int, m: int) -> Graph:
    """The graph at these sizes, with the inputs that it still reads."""
    return graph_of(instance(graph, {"n": n, "m": m}).outputs[0])


def drawn(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {}
    for name, value in zip(graph.input_names, graph.inputs, strict=True):
        numbers = rng.standard_normal(value.shape)
        found[name] = numbers > -1 if value.type.dtype is BOOL else numbers.astype(np.float32)
    return found


@pytest.mark.parametrize("build", GRAPHS, ids=lambda build: build.__name__)
def test_the_pipeline_notes_no_condition_and_keeps_the_meaning(build: Callable[[Any, Any], Value]) -> None:
    with assuming(Unconditional()) as notes:
        before = any_of(build)
        after = run_pipeline(before, PIPELINE)
        assert not notes.conditions
        for n, m in ((1, 1), (1, 20), (2, 3), (9, 5)):
            here, there = at(before, n, m), at(after, n, m)
            verify(there)
            inputs = drawn(here)
            read = {name: inputs[name] for name in there.input_names}
            for found, expected in zip(interpret(there, read), interpret(here, inputs), strict=True):
                assert_matches(found, expected, terms=40)


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (empty_parts, [ops.Concat]),
        (part_of_a_concat, []),
        (part_that_may_be_of_either, [ops.Concat, ops.Slice]),
        (parts_side_by_side, []),
        (expanded, [ops.Add]),
        (padded_twice, [ops.Pad]),
        (dropped_axis, [ops.ReduceSum]),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_rules_fire_where_it_is_proved(build: Callable[[Any, Any], Value], wanted: list[Op]) -> None:
    with assuming(Unconditional()):
        after = run_pipeline(any_of(build), PIPELINE)

    assert operators(after) == wanted


def test_causal_attention_is_decomposed_for_any_number_of_rows() -> None:
    def build(n: Any, m: Any) -> Value:
        q, k, v = tensor("q", n, m, 4), tensor("k", n, m + 2, 4), tensor("v", n, m + 2, 4)
        return ops.Attention(q, k, v, scale=0.5, masked=float("-inf"), causal=2)

    with assuming(Unconditional()):
        before = any_of(build)
        after = apply_rules(before, [decompose_attention])
        for n, m in ((1, 1), (2, 5), (9, 20)):
            here, there = at(before, n, m), at(after, n, m)
            inputs = drawn(here)
            assert_matches(interpret(there, inputs)[0], interpret(here, inputs)[0], terms=40)
