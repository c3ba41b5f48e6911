"""Layout, movement and folding together, on parts of networks that need several rules."""

from collections import Counter

from gpucomp import ops
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite.pipeline import run_pipeline
from testing.tolerance import assert_matches
from tests.builders import graph_of, ops_of, tensor, weights
from tests.rewrite.examples import SQUARE, draw

TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def checked(graph, terms):
    after = run_pipeline(graph)
    inputs = draw(graph)
    for found, expected in zip(interpret(after, inputs), interpret(graph, inputs), strict=True):
        assert_matches(found, expected, terms=terms)
    return Counter(ops_of(after))


def converted_conv(x, channels, seed):
    """A convolution with padding and normalisation, as written by a converter from a channels-last framework."""
    x = ops.Pad(x, pads=(0, 0, 1, 0, 0, 1, 0, 0))
    w = weights(channels, x.shape[-1], 2, 2, seed=seed)
    y = ops.Transpose(ops.Conv(ops.Transpose(x, perm=TO_FIRST), w, **SQUARE), perm=TO_LAST)
    return ops.Relu(ops.Add(ops.Mul(y, weights(channels, seed=seed)), weights(channels, seed=seed + 1)))


def test_a_channels_last_model_between_transposes_loses_all_of_them():
    x = tensor("image", 2, 7, 5, 3)
    y = converted_conv(converted_conv(x, 4, 0), 6, 2)
    y = ops.Add(y, converted_conv(y, 6, 4))

    found = checked(graph_of(ops.ReduceMean(y, axes=(1, 2), keepdims=False)), 200)

    assert found == {"Conv": 3, "Add": 4, "Relu": 3, "ReduceMean": 1}


def test_squeeze_and_excite_has_no_transposes_inside():
    x = tensor("image", 2, 3, 7, 5)
    y = ops.Relu(ops.Conv(x, weights(6, 3, 2, 2), **SQUARE))
    gate = ops.ReduceMean(y, axes=(2, 3), keepdims=True)
    gate = ops.Relu(ops.Conv(gate, weights(2, 6, 1, 1), **SQUARE))
    gate = ops.Sigmoid(ops.Conv(gate, weights(6, 2, 1, 1), **SQUARE))

    found = checked(graph_of(ops.Conv(ops.Mul(y, gate), weights(3, 6, 1, 1), **SQUARE)), 100)

    assert found["Transpose"] == 2  # the image, the result
    assert found["Reshape"] == 0


def test_a_pixel_shuffle_between_convolutions_moves_elements_once():
    x = tensor("image", 2, 3, 4, 5)
    y = ops.Conv(x, weights(8, 3, 1, 1), **SQUARE)
    y = ops.Transpose(ops.Reshape(y, shape=(2, 2, 2, 2, 4, 5)), perm=(0, 1, 4, 2, 5, 3))
    y = ops.Conv(ops.Reshape(y, shape=(2, 2, 8, 10)), weights(3, 2, 2, 2), **SQUARE)

    found = checked(graph_of(y), 100)

    assert found == {"Transpose": 3, "Conv": 2, "Reshape": 2}


def test_one_and_three_spatial_axes_are_channels_last_too():
    line, volume = tensor("line", 2, 3, 11), tensor("volume", 1, 2, 5, 4, 3)
    attrs = {"strides": (1,), "pads": (1, 0), "dilations": (1,)}
    a = ops.Conv(ops.Relu(ops.Conv(line, weights(4, 3, 2), **attrs)), weights(2, 4, 2, seed=1), **attrs)
    attrs = {"strides": (1,) * 3, "pads": (0,) * 6, "dilations": (1,) * 3}
    b = ops.Conv(ops.Relu(ops.Conv(volume, weights(4, 2, 2, 1, 2), **attrs)), weights(2, 4, 1, 2, 1, seed=1), **attrs)

    found = checked(graph_of(a, b), 100)

    assert found == {"Transpose": 4, "Conv": 4, "Relu": 2}


def test_weights_that_are_computed_keep_their_convolution_channels_first():
    x, w = tensor("image", 2, 3, 7, 5), tensor("w", 4, 3, 2, 2)

    found = checked(graph_of(ops.Relu(ops.Conv(x, w, **SQUARE))), 12)

    assert found == {"Conv": 1, "Relu": 1}


def test_a_flattened_image_permutes_the_rows_of_the_weights():
    x = tensor("image", 2, 3, 7, 5)
    y = ops.Relu(ops.Conv(x, weights(4, 3, 2, 2), **SQUARE))

    found = checked(graph_of(ops.MatMul(ops.Reshape(y, shape=(2, 96)), weights(96, 3))), 1000)

    assert found == {"Transpose": 1, "Conv": 1, "Relu": 1, "Reshape": 1, "MatMul": 1}
