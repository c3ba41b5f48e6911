import pytest

from gpucomp import ops
from gpucomp.ir import format_graph, verify
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite.siblings import merge_siblings
from testing.tolerance import assert_matches
from tests.builders import graph_of, ops_of, tensor, weights
from tests.rewrite.examples import SQUARE, draw

X = tensor("x", 2, 3, 5)
IMAGE = tensor("image", 2, 6, 7, 5)
LAST = tensor("last", 2, 7, 5, 6)


def linear(width, *, bias=True, seed=0):
    product = ops.MatMul(X, weights(5, width, seed=seed))
    return ops.Add(product, weights(width, seed=seed)) if bias else product


def heads(value):
    return ops.Reshape(value, shape=(2, 3, value.shape[-1], 1))


def branch(channels, *, kernel=(1, 1), layout="NCHW", seed=0):
    if layout == "NCHW":
        conv = ops.Conv(IMAGE, weights(channels, 6, *kernel, seed=seed), **SQUARE)
        return ops.Relu(ops.Add(conv, weights(channels, 1, 1, seed=seed)))
    conv = ops.Conv(LAST, weights(*kernel, 6, channels, seed=seed), **SQUARE, layout="NHWC")
    return ops.Relu(ops.Add(conv, weights(channels, seed=seed)))


def checked(graph, terms):
    after = merge_siblings(graph)
    inputs = draw(graph)
    verify(after)
    for found, expected in zip(interpret(after, inputs), interpret(graph, inputs), strict=True):
        assert_matches(found, expected, terms=terms)
    return after


def test_projections_of_one_operand_become_one_and_their_biases_too():
    after = checked(graph_of(heads(linear(7)), heads(linear(11, seed=1)), heads(linear(2, seed=2))), 5)

    assert ops_of(after) == ["MatMul", "Add", *["Slice", "Reshape"] * 3]
    assert format_graph(after, constants=False).splitlines()[1:4] == [
        "  %2 = MatMul(%x, %1) : f32[2,3,20]",
        "  %4 = Add(%2, %3) : f32[2,3,20]",
        "  %5 = Slice(%4, starts=(0, 0, 0), steps=(1, 1, 1), sizes=(2, 3, 7)) : f32[2,3,7]",
    ]


def test_projections_in_layers_are_merged_in_every_layer():
    parts = [heads(linear(5)), heads(linear(5, seed=1))]
    x = ops.Exp(ops.Add(*(ops.Reshape(p, shape=(2, 3, 5)) for p in parts)))
    again = [heads(ops.MatMul(x, weights(5, width, seed=9))) for width in (7, 2)]

    after = checked(graph_of(*again), 25)

    assert ops_of(after).count("MatMul") == 2


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_branches_with_the_same_epilogue_become_one(layout):
    pool = {"kernel": (2, 2), "strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "out": (6, 4), "layout": layout}
    ends = [ops.MaxPool(branch(c, layout=layout, seed=c), **pool) for c in (4, 3)]

    after = checked(graph_of(*ends), 6)

    assert ops_of(after) == ["Conv", "Add", "Relu", "Slice", "MaxPool", "Slice", "MaxPool"]


def different_epilogues():
    return graph_of(ops.Sqrt(ops.Relu(linear(7))), ops.Sqrt(ops.Sigmoid(linear(7, seed=1))))


def one_without_bias():
    return graph_of(heads(linear(7)), heads(linear(7, bias=False, seed=1)))


def stored_into_a_concat():
    return graph_of(ops.Concat(branch(4), branch(3, seed=1), axis=1))


def other_kernels():
    return graph_of(*(ops.Exp(branch(4, kernel=k)) for k in ((1, 1), (2, 1))))


def a_graph_output():
    return graph_of(linear(7), linear(11))


def followed_by_a_product():
    return graph_of(ops.Mul(linear(7, bias=False), linear(7, bias=False, seed=1)))


def read_twice():
    products = [linear(7, bias=False, seed=seed) for seed in (0, 1)]
    return graph_of(*map(heads, products), *map(ops.Exp, products))


def batched_weights():
    return graph_of(*(heads(ops.MatMul(X, weights(2, 5, w))) for w in (7, 11)))


def grouped():
    return graph_of(
        *(ops.Exp(ops.Relu(ops.Conv(IMAGE, weights(4, 3, 1, 1, seed=s), group=2, **SQUARE))) for s in (0, 1))
    )


@pytest.mark.parametrize(
    "graph",
    [
        different_epilogues,
        one_without_bias,
        stored_into_a_concat,
        other_kernels,
        a_graph_output,
        followed_by_a_product,
        read_twice,
        batched_weights,
        grouped,
    ],
)
def test_siblings_stay_apart_with(graph):
    before = graph()

    assert merge_siblings(before) is before
