"""Concats that share a prefix are chained, wide ones are split, and others do not change."""

from __future__ import annotations

import numpy as np

from gpucomp import ops
from gpucomp.ir import F32, Graph, TensorType, format_graph, input_value, verify
from gpucomp.kernel.grouping import MAX_PARAMS
from gpucomp.kernel.interpreter import run_steps
from gpucomp.kernel.partition import partition
from gpucomp.rewrite.concat import WIDEST, share_prefixes, split_wide


def tensor(name, *shape):
    return input_value(name, TensorType(F32, shape))


def test_a_longer_concat_continues_the_shorter_one():
    a, b, c = tensor("a", 2, 3), tensor("b", 2, 1), tensor("c", 2, 2)
    graph = Graph((a, b, c), (ops.Concat(a, b, axis=1), ops.Concat(a, b, c, axis=1)))

    after = share_prefixes(graph)

    assert format_graph(after) == (
        "graph(%a: f32[2,3], %b: f32[2,1], %c: f32[2,2]) {\n"
        "  %1 = Concat(%a, %b, axis=1) : f32[2,4]\n"
        "  %2 = Concat(%1, %c, axis=1) : f32[2,6]\n"
        "  return %1, %2\n"
        "}\n"
    )


def test_the_longest_prefix_is_found_along_a_chain():
    parts = [tensor(f"x{i}", 2, i + 1) for i in range(5)]
    graph = Graph(tuple(parts), tuple(ops.Concat(*parts[:n], axis=1) for n in range(2, 6)))

    after = share_prefixes(graph)

    assert [len(n.inputs) for n in after.nodes() if n.op is ops.Concat] == [2, 2, 2, 2]
    verify(after)


def test_another_axis_or_another_order_is_no_prefix():
    a, b, c = tensor("a", 2, 2), tensor("b", 2, 2), tensor("c", 2, 2)
    graph = Graph((a, b, c), (ops.Concat(a, b, axis=0), ops.Concat(b, a, axis=1), ops.Concat(a, b, c, axis=1)))

    assert share_prefixes(graph) is graph


def test_a_wide_concat_becomes_kernels_that_take_few_buffers():
    rng = np.random.default_rng(0)
    parts = tuple(tensor(f"x{i}", 1 + i % 3, 2) for i in range(301))
    graph = Graph(parts, (ops.Concat(*parts, axis=0),))
    inputs = {v.attrs["label"]: rng.standard_normal(v.shape).astype(np.float32) for v in parts}

    after = split_wide(graph)
    steps = partition(after)

    assert all(len(n.inputs) <= WIDEST for n in after.nodes())
    assert all(len(s.kernel.params) <= MAX_PARAMS for s in steps)
    np.testing.assert_array_equal(run_steps(after, steps, inputs)[0], np.concatenate(list(inputs.values())))


def test_a_narrow_concat_stays():
    parts = tuple(tensor(f"x{i}", 2) for i in range(WIDEST))
    graph = Graph(parts, (ops.Concat(*parts, axis=0),))

    assert split_wide(graph) is graph
