"""Parts of a program as graphs: which steps they are, and which of them can be computed for more rows than there are."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp import ops
from gpucomp.dynamic import outline
from gpucomp.ir import Graph, Input, TensorType, Value, constant, input_value, topological
from gpucomp.ir.types import F32, I64
from gpucomp.ops.interpreter import interpret
from testing.tolerance import assert_matches

N = 11
RNG = np.random.default_rng(1)


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


ROWS = input_value("rows", TensorType(F32, (N, 6, 5)))
PIXELS = input_value("pixels", TensorType(F32, (1, 3, 13, 17)))
BOXES = input_value("boxes", TensorType(F32, (N, 4)))
WHERE = input_value("where", TensorType(I64, (N,)))
FLAT = ops.Reshape(ROWS, shape=(N, 30))
GIVEN = {
    ROWS: drawn(N, 6, 5),
    PIXELS: drawn(1, 3, 13, 17),
    BOXES: np.sort(RNG.uniform(0, 12, (N, 2, 2)), 1).reshape(N, 4).astype(np.float32),
    WHERE: RNG.integers(-13, 13, N),
}


def part(*outputs: Value, counts=(2, N, 1 << 40)):
    nodes = [n for n in topological(v.node for v in outputs) if n.op not in (Input, ops.Constant)]
    position: dict[Value, int] = {}
    for node in topological(v.node for v in outputs):
        for v in node.values:
            position[v] = len(position)
    made = outline.part_of(frozenset(range(len(nodes))), nodes, outputs, position, counts)
    values = {p: v for v, p in position.items()}
    return made, [values[p] for p in made.reads]


def computed(made, reads):
    arrays = [v.attrs["value"] if v.op is ops.Constant else GIVEN[v] for v in reads]
    return made.cut(interpret(made.graph, made.padded(arrays)))


def wanted(*outputs):
    return interpret(Graph(tuple(GIVEN), outputs), {v.attrs["label"]: a for v, a in GIVEN.items()})


def roi():
    """The numbers of the images are a constant: with one image nothing reads them."""
    return ops.RoiAlign(
        PIXELS, BOXES, constant(np.zeros(N, np.int64)), output_height=3, output_width=2, sampling_ratio=2
    )


BY_ROWS = {
    "elementwise": lambda: [ops.Exp(ROWS)],
    "reshape and product": lambda: [ops.MatMul(FLAT, constant(drawn(30, 7)))],
    "rows that are not first": lambda: [ops.Transpose(ROWS, perm=(1, 0, 2))],
    "softmax of each": lambda: [ops.Softmax(FLAT, axis=1)],
    "gather by row": lambda: [ops.Gather(ops.Reshape(PIXELS, shape=(39, 17)), WHERE, axis=0)],
    "two results": lambda: [ops.Neg(ROWS), ops.ReduceMax(ROWS, axes=(1,), keepdims=False)],
    "a part of each": lambda: [ops.Slice(ROWS, starts=(0, 2, 0), steps=(1, 1, 1), sizes=(N, 3, 5))],
    "a constant of each": lambda: [ops.Add(FLAT, constant(drawn(N, 1)))],
    "regions of one image": lambda: [ops.Relu(ops.Reshape(roi(), shape=(N, 18)))],
}
AS_THEY_ARE = {
    "softmax over rows": lambda: [ops.Softmax(FLAT, axis=0)],
    "running sum": lambda: [ops.CumSum(FLAT, axis=0, exclusive=False, reverse=False)],
    "rows with rows": lambda: [ops.MatMul(FLAT, ops.Transpose(FLAT, perm=(1, 0)))],
    "the mean row": lambda: [ops.Sub(FLAT, ops.ReduceMean(FLAT, axes=(0,), keepdims=True))],
    "backwards": lambda: [ops.Slice(FLAT, starts=(N - 1, 0), steps=(-1, 1), sizes=(N, 30))],
    "rows merged with others": lambda: [ops.Reshape(ROWS, shape=(5, 6 * N))],
    "one result without rows": lambda: [ops.Neg(FLAT), ops.ReduceSum(FLAT, axes=(0,), keepdims=False)],
    "columns of a weight": lambda: [ops.MatMul(ops.Reshape(PIXELS, shape=(39, 17)), constant(drawn(17, N)))],
    "sorted": lambda: [ops.TopK(FLAT, k=3, axis=0, largest=True)],
    "on the host": lambda: [ops.NonZero(FLAT, count=N * 30)],
}


@pytest.mark.parametrize("name", BY_ROWS)
def test_independent_rows_are_computed_for_a_power_of_two(name):
    outputs = BY_ROWS[name]()
    made, reads = part(*outputs)

    assert (made.rows, made.count) == (16, N)
    for found, right in zip(computed(made, reads), wanted(*outputs), strict=True):
        assert_matches(found, right, terms=30)
    assert all(16 in v.shape for v in made.graph.outputs)


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_what_depends_on_other_rows_is_left_as_it_is(name):
    outputs = AS_THEY_ARE[name]()
    made, reads = part(*outputs)

    assert made.rows == 0
    for found, right in zip(computed(made, reads), wanted(*outputs), strict=True):
        assert_matches(found, right, terms=30)


def test_an_extent_that_is_always_the_same_is_no_number_of_rows():
    made, _ = part(ops.Exp(ROWS), counts=(6 * N, 7))

    assert made.rows == 0


def test_steps_of_much_work_are_taken_with_what_is_between_them(monkeypatch):
    big = constant(drawn(30, 500))
    a = ops.MatMul(FLAT, big)
    between = ops.ReduceMax(a, axes=(1,), keepdims=True)
    b = ops.MatMul(ops.Sub(a, between), constant(drawn(500, 400)))
    steps = [
        ops.Neg(FLAT).node,
        a.node,
        between.node,
        b.inputs[0].node,
        b.node,
        ops.ReduceMax(b, axes=(1,), keepdims=False).node,
    ]
    nodes = dict(enumerate(steps))
    reads = {0: [], 1: [], 2: [1], 3: [1, 2], 4: [3], 5: [4]}

    assert outline.expensive(nodes, reads) == frozenset()
    monkeypatch.setattr(outline, "PART_WORK", 1000)
    assert outline.expensive(nodes, reads) == {1, 2, 3, 4}
