"""Streams that only norms read lose their rows' means when the model is compiled, and their norms with them."""

import numpy as np
import pytest
from builders import graph_of, ops_of, tensor
from tolerance import assert_matches

from gpucomp import ops, targets
from gpucomp.interpreter import interpret
from gpucomp.ir import I64, Graph, constant, verify
from gpucomp.precision import rounding
from gpucomp.rewrite.centre import centre_streams

ROWS, DEEP, WIDE = 3, 5, 7
RNG = np.random.default_rng(5)
CUDA = targets.resolve("cuda:sm_90a")
FP16 = rounding("fp16", CUDA)
SQUARE = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}


def normal(*shape, mean=2.0):
    """A constant whose rows have means of about ``mean``."""
    return constant((mean + RNG.standard_normal(shape)).astype(np.float32))


def norm(x, **attrs):
    return ops.LayerNorm(x, **{"axis": x.type.rank - 1, "epsilon": 1e-3, **attrs})


def made(x=None, *, name=""):
    x = tensor("x", 2, ROWS, DEEP) if x is None else x
    return ops.Add(ops.MatMul(x, normal(x.shape[-1], WIDE), name=name), normal(WIDE), name=name)


def block(x):
    """A residual block with the norm in front."""
    return ops.Add(x, made(ops.Tanh(ops.MatMul(norm(x), normal(WIDE, 11)))))


def ended(x):
    return ops.Relu(ops.MatMul(norm(x), normal(x.shape[-1], 2)))


def checked(graph, norms, *, terms=400):
    after = centre_streams(graph, FP16)
    verify(after)
    rng = np.random.default_rng(0)
    feeds = {
        v.attrs["label"]: rng.standard_normal(v.shape).astype(np.float32)
        for v in graph.inputs
        if v.type.dtype is not I64
    }
    feeds |= {v.attrs["label"]: rng.integers(0, 9, v.shape) for v in graph.inputs if v.type.dtype is I64}
    for found, right in zip(interpret(after, feeds), interpret(graph, feeds), strict=True):
        assert_matches(found, right, terms=terms)
    assert (ops_of(after).count("RMSNorm"), ops_of(after).count("LayerNorm")) == (norms, 0)
    streams = tuple(n.inputs[0] for n in after.nodes() if n.op is ops.RMSNorm)
    for x in interpret(Graph(graph.inputs, streams), feeds):
        wide = x.astype(np.float64)
        assert (np.abs(wide.mean(axis=-1)) <= 1e-5 * wide.std(axis=-1)).all()
    return after


def test_a_product_with_a_bias():
    checked(graph_of(ended(made())), 1)


def test_residual_blocks_from_a_table_on():
    """As GPT-2 begins, goes on and ends."""
    words, places = normal(9, WIDE), normal(ROWS, WIDE)
    x = ops.Add(ops.Gather(words, tensor("ids", 2, ROWS, dtype=I64), axis=0), places)
    checked(graph_of(ended(block(block(x)))), 3)


def test_patches_behind_a_token():
    """As ViT begins; its last norm is of every row, and one is read."""
    conv = ops.Conv(tensor("image", 2, 2, 3, 2), normal(1, 1, 2, WIDE), layout="NHWC", **SQUARE)
    patches = ops.Reshape(ops.Add(conv, normal(WIDE)), shape=(2, 6, WIDE))
    x = ops.Add(ops.Concat(normal(2, 1, WIDE), patches, axis=1), normal(7, WIDE))
    last = ops.Slice(norm(block(block(x))), starts=(0, 0, 0), steps=(1, 1, 1), sizes=(2, 1, WIDE))
    checked(graph_of(ops.MatMul(last, normal(WIDE, 3))), 3)


def test_moves_of_rows_and_multiples_of_them():
    """One of two streams that are one has a norm of a part of its rows."""
    x = ops.Sub(
        ops.Mul(made(), constant(np.float32(3))), ops.Transpose(made(tensor("y", ROWS, 2, DEEP)), perm=(1, 0, 2))
    )
    part = ops.Slice(x, starts=(0, 1, 0), steps=(1, 1, 1), sizes=(2, 2, WIDE))
    graph = graph_of(ended(ops.Add(x, made(tensor("z", 2, ROWS, DEEP)))), ops.MatMul(norm(part), normal(WIDE, 3)))
    checked(graph, 2)


def test_columns_that_change_places():
    x = made()
    backwards = ops.Slice(x, starts=(0, 0, WIDE - 1), steps=(1, 1, -1), sizes=(2, ROWS, WIDE))
    checked(graph_of(ended(x), ops.Exp(norm(backwards))), 2)


def test_one_number_for_all_columns_is_gone():
    after = checked(graph_of(ended(ops.Add(made(), normal(ROWS, 1)))), 1)

    assert any(
        not n.attrs["value"].any() for n in after.nodes() if n.op is ops.Constant and n.types[0].shape == (ROWS, 1)
    )


@pytest.mark.parametrize("level", ["tf32", "bf16"])
def test_other_roundings_want_it_too(level):
    assert "RMSNorm" in ops_of(centre_streams(graph_of(ended(made())), rounding(level, CUDA)))


# it stays ----------------------------------------------------------------------------------------------------


def something_else_reads_the_sum():
    x = made()
    return graph_of(ended(x), ops.Exp(x))


def something_else_reads_a_later_sum():
    x = made()
    later = ops.Add(x, made())
    return graph_of(ended(x), ended(later), ops.Softmax(later, axis=2))


def a_sum_is_an_output():
    x = made()
    return graph_of(ended(x), x)


def a_later_sum_is_an_output():
    x = block(made())
    return graph_of(ended(x), ops.Add(x, made()))


def an_input_is_added():
    return graph_of(ended(ops.Add(made(), tensor("r", 2, ROWS, WIDE))))


def an_activation_is_added():
    return graph_of(ended(ops.Add(made(), ops.Relu(made()))))


def a_norm_is_added():
    y = ops.Mul(norm(made()), normal(WIDE))
    return graph_of(ended(ops.Add(y, made(ops.Tanh(ops.MatMul(y, normal(WIDE, 11)))))))


def a_number_a_row_is_added():
    return graph_of(ended(ops.Add(made(), tensor("r", 2, ROWS, 1))))


def columns_are_scaled():
    return graph_of(ended(ops.Mul(made(), normal(WIDE))))


def made_beside(x):
    """The norm's operand is made by a product all the same."""
    return ended(ops.Add(x, made(tensor("other", *x.shape[:-1], DEEP))))


def columns_are_moved():
    square = made(tensor("x", 2, WIDE, DEEP))
    return graph_of(made_beside(ops.Transpose(square, perm=(0, 2, 1))))


def columns_are_joined():
    parts = (ops.MatMul(tensor(f"x{n}", 2, ROWS, DEEP), normal(DEEP, n)) for n in (3, 4))
    return graph_of(made_beside(ops.Concat(*parts, axis=2)))


def columns_are_dropped():
    x = ops.MatMul(tensor("x", 2, ROWS, DEEP), normal(DEEP, WIDE + 1))
    return graph_of(made_beside(ops.Slice(x, starts=(0, 0, 1), steps=(1, 1, 1), sizes=(2, ROWS, WIDE))))


def rows_are_cut_anew():
    x = ops.MatMul(tensor("x", 2, DEEP), normal(DEEP, ROWS * WIDE))
    return graph_of(made_beside(ops.Reshape(x, shape=(2, ROWS, WIDE))))


def columns_of_a_table_are_gathered():
    return graph_of(made_beside(ops.Gather(normal(ROWS, WIDE), tensor("ids", WIDE, dtype=I64), axis=1)))


def channels_first():
    conv = ops.Conv(tensor("image", 1, 2, 3, WIDE), normal(4, 2, 1, 1), layout="NCHW", **SQUARE)
    return graph_of(made_beside(conv))


def groups_of_channels():
    conv = ops.Conv(tensor("image", 1, 2, 3, 2), normal(1, 1, 1, WIDE + 1), layout="NHWC", group=2, **SQUARE)
    return graph_of(ended(ops.Add(conv, ops.MatMul(tensor("x", 1, 2, 3, DEEP), normal(DEEP, WIDE + 1)))))


def weights_that_are_computed():
    return graph_of(ended(ops.MatMul(tensor("x", 2, ROWS, DEEP), tensor("w", DEEP, WIDE))))


def large_weights_that_others_read():
    w = normal(40_000, WIDE)
    x = ops.Gather(w, tensor("ids", 2, ROWS, dtype=I64), axis=0)
    return graph_of(ended(ops.Add(x, made())), ops.Exp(ops.Gather(w, tensor("more", 2, dtype=I64), axis=0)))


def a_norm_over_two_axes_reads_it():
    x = made()
    return graph_of(ended(x), ops.Exp(norm(x, axis=1)))


def a_number_that_has_no_mean():
    return graph_of(ended(ops.Add(made(), constant(np.array([1, 2, -np.inf, 3, 4, 5, 6], np.float32)))))


def nothing_to_fold():
    return graph_of(ops.Exp(norm(made())))


STAYS = [
    something_else_reads_the_sum,
    something_else_reads_a_later_sum,
    a_sum_is_an_output,
    a_later_sum_is_an_output,
    an_input_is_added,
    an_activation_is_added,
    a_norm_is_added,
    a_number_a_row_is_added,
    columns_are_scaled,
    columns_are_moved,
    columns_are_joined,
    columns_are_dropped,
    rows_are_cut_anew,
    weights_that_are_computed,
    large_weights_that_others_read,
    columns_of_a_table_are_gathered,
    channels_first,
    groups_of_channels,
    a_norm_over_two_axes_reads_it,
    a_number_that_has_no_mean,
    nothing_to_fold,
]


@pytest.mark.parametrize("graph", STAYS)
def test_means_stay_where(graph):
    before = graph()

    assert centre_streams(before, FP16) is before


@pytest.mark.parametrize("level", ["fp32", "3xtf32", "mixed"])
def test_means_stay_where_no_norm_would_go(level):
    graph = graph_of(ended(made()))

    assert centre_streams(graph, rounding(level, CUDA)) is graph


@pytest.mark.parametrize("pattern", ["LayerNorm", "first", "Gather"])
def test_means_stay_where_any_part_of_a_stream_stays_f32(pattern):
    table = ops.Gather(normal(9, WIDE), tensor("ids", 2, ROWS, dtype=I64), axis=0)
    graph = graph_of(ended(ops.Add(table, made(name="first"))))

    assert centre_streams(graph, rounding("fp16", CUDA, [pattern])) is graph
    assert centre_streams(graph, rounding("fp16", CUDA, ["second"])) is not graph
