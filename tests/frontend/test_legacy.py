"""Operators of opsets 1 to 6: the meaning of their attributes, compared with numpy, and invalid models."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from gpucomp.errors import GpucompError
from gpucomp.frontend.onnx import load
from gpucomp.ir import verify
from gpucomp.ops.interpreter import interpret
from tests.onnx_builders import model, node, value

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3, 5, 4)).astype(np.float32)
ROWS, ONE = RNG.standard_normal((3, 5)).astype(np.float32), np.full((1, 1), 1.5, np.float32)
COLUMNS, CHANNELS = RNG.standard_normal(4).astype(np.float32), RNG.random(3).astype(np.float32)
LINE = np.arange(4, dtype=np.float32)
BN = [CHANNELS, CHANNELS - 1, CHANNELS * 2, CHANNELS + 1]


def run(opset, op, *weights, outputs=("y",), x=X, **attributes):
    names = [f"w{k}" for k in range(len(weights))]
    made = [node(op, ["x", *names], list(outputs), **attributes)]
    graph = load(
        model(made, [value("x", x.shape)], outputs, dict(zip(names, map(np.asarray, weights), strict=True)), opset)
    )
    verify(graph)
    return interpret(graph, {"x": x})


def normalised(x, scale, bias, mean, variance):
    scale, bias, mean, variance = (v[:, None, None] for v in (scale, bias, mean, variance))
    return (x - mean) / np.sqrt(variance + np.float32(1e-5)) * scale + bias


@pytest.mark.parametrize(
    ("opset", "op", "weights", "attributes", "expected"),
    [
        (6, "Add", [X], {}, X + X),
        (6, "Add", [ROWS], {"broadcast": 1, "axis": 1}, X + ROWS[:, :, None]),
        (6, "Add", [CHANNELS], {"broadcast": 1, "axis": -3}, X + CHANNELS[:, None, None]),
        (6, "Mul", [COLUMNS], {"broadcast": 1}, X * COLUMNS),
        (1, "Sub", [ONE], {"broadcast": 1, "axis": 0}, X - 1.5),
        (1, "Sub", [np.float32(2)], {"broadcast": 1, "consumed_inputs": [0, 0]}, X - 2),
        (6, "Less", [COLUMNS], {"broadcast": 1}, X < COLUMNS),
        (6, "Greater", [COLUMNS], {"broadcast": 1}, X > COLUMNS),
        (6, "Pow", [np.float32(2)], {"broadcast": 1}, X**2),
        (6, "PRelu", [CHANNELS], {}, np.where(X < 0, X * CHANNELS[:, None, None], X)),
        (6, "PRelu", [np.array([0.25], np.float32)], {}, np.where(X < 0, X / 4, X)),
        (6, "BatchNormalization", BN, {"is_test": 1}, normalised(X, *BN)),
        (6, "Dropout", [], {"is_test": 1, "ratio": 0.4}, X),
        (6, "Dropout", [], {"ratio": 0.0}, X),
        (1, "Cast", [], {"to": "INT32"}, X.astype(np.int32)),
        (1, "Cast", [], {"to": "Double"}, X.astype(np.float64)),
        (6, "Cast", [], {"to": TensorProto.INT32}, X.astype(np.int32)),
        (1, "Concat", [X], {}, np.concatenate([X, X], 1)),
        (1, "Pad", [], {"paddings": [0, 0, 1, 0, 0, 0, 0, 2]}, np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2)))),
        (1, "Reshape", [], {"shape": [0, -1, 2]}, X.reshape(2, 30, 2)),
        (5, "Reshape", [np.array([6, 20])], {}, X.reshape(6, 20)),
        (1, "Tile", [np.float32(3), np.float32(2)], {}, np.tile(X, (1, 1, 3, 1))),
        (6, "Tile", [np.array([1, 2, 1, 1])], {}, np.tile(X, (1, 2, 1, 1))),
        (1, "Upsample", [], {"height_scale": 2.0, "width_scale": 3.0}, X.repeat(2, 2).repeat(3, 3)),
        (1, "LpPool", [], {"kernel_shape": [5, 4], "p": 1.0}, np.abs(X).sum((2, 3), keepdims=True)),
        (1, "GlobalLpPool", [], {}, np.sqrt((X**2).sum((2, 3), keepdims=True))),
        (1, "Relu", [], {"consumed_inputs": [1]}, np.maximum(X, 0)),
    ],
)
def test_an_old_operator_means_what_its_opset_says(opset, op, weights, attributes, expected):
    (y,) = run(opset, op, *weights, **attributes)

    assert y.dtype == expected.dtype
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("weights", [[], [np.array([1, 2], np.float32)]])
def test_the_first_split_takes_its_sizes_by_input_or_attribute(weights):
    sizes = {} if weights else {"split": [1, 2]}

    first, second = run(1, "Split", *weights, outputs=("y", "z"), axis=1, **sizes)

    assert np.array_equal(first, X[:, :1])
    assert np.array_equal(second, X[:, 1:])


def test_an_average_leaves_out_the_padding():
    (y,) = run(6, "AveragePool", x=LINE.reshape(1, 1, 4), kernel_shape=[2], pads=[1, 0])

    assert np.array_equal(y.ravel(), [0, 0.5, 1.5, 2.5])


@pytest.mark.parametrize("broadcast", [0, 1])
def test_the_addend_of_a_product_is_fitted_where_that_is_asked_for(broadcast):
    a, b = ROWS, COLUMNS[None, :] + np.arange(5, dtype=np.float32)[:, None]
    c = COLUMNS if broadcast else np.ones((3, 4), np.float32)

    (y,) = run(6, "Gemm", b, c, x=a, beta=0.5, broadcast=broadcast)

    np.testing.assert_allclose(y, a @ b + c / 2, rtol=2e-6)


def test_a_recurrent_layer_may_say_that_its_sequence_is_an_output():
    x, w, r = RNG.random((3, 1, 2)), RNG.random((1, 4, 2)), RNG.random((1, 4, 4))
    x, w, r = (v.astype(np.float32) for v in (x, w, r))

    y, last = run(6, "RNN", w, r, x=x, outputs=("y", "h"), hidden_size=4, output_sequence=1)

    h = np.zeros((1, 4), np.float32)
    for step in range(3):
        h = np.tanh(x[step] @ w[0].T + h @ r[0].T)
        np.testing.assert_allclose(y[step, 0], h, rtol=1e-5)
    np.testing.assert_allclose(last[0], h, rtol=1e-5)


@pytest.mark.parametrize(
    ("opset", "op", "weights", "attributes", "message"),
    [
        (6, "Add", [COLUMNS], {}, "equal shapes expected where broadcast is not 1"),
        (6, "Add", [ROWS], {"broadcast": 1}, r"does not fit the axes of f32\[2,3,5,4\] from 2 on"),
        (6, "Add", [ROWS], {"broadcast": 1, "axis": 3}, "does not fit the axes"),
        (6, "Add", [ROWS], {"broadcast": 1, "axis": 4}, "axis"),
        (6, "Add", [np.ones((1, 2, 3, 5, 4), np.float32)], {"broadcast": 1}, "does not fit the axes"),
        (6, "PRelu", [COLUMNS], {}, "one slope, or one for each channel"),
        (6, "BatchNormalization", BN, {}, "is_test=0 trains"),
        (6, "Dropout", [], {}, "is_test=0 trains"),
        (1, "Cast", [], {"to": "NUMBER"}, "the name of an element type expected"),
        (1, "LpPool", [], {}, "kernel_shape is required"),
        (1, "Upsample", [], {"height_scale": 2.0}, "width_scale"),
        (7, "Add", [X], {"broadcast": 1}, "unknown attribute 'broadcast'"),
        (6, "Relu", [], {"consumed_inputs": [0]}, "unknown attribute 'consumed_inputs'"),
    ],
)
def test_what_an_old_operator_does_not_say_is_refused(opset, op, weights, attributes, message):
    with pytest.raises(GpucompError, match=message):
        run(opset, op, *weights, **attributes)


def test_an_image_is_scaled_and_nothing_else():
    with pytest.raises(GpucompError, match=r"\[N, C, H, W\] expected"):
        run(1, "Upsample", x=LINE, height_scale=2.0, width_scale=2.0)


def test_a_product_whose_addend_does_not_fit_is_refused():
    with pytest.raises(GpucompError, match="c is f32"):
        run(6, "Gemm", ROWS.T.copy(), CHANNELS, x=ROWS)


@pytest.mark.parametrize("opset", [18, 20])
def test_a_withdrawn_version_that_exporters_wrote_is_read(opset):
    """GroupNormalization of opset 18 scales groups. ONNX deprecated it when opset 21 scaled channels."""
    x = RNG.standard_normal((2, 6, 5)).astype(np.float32)
    scale, bias = np.float32([0.5, -2]), np.float32([1, 3])

    (found,) = run(opset, "GroupNormalization", scale, bias, x=x, num_groups=2)

    groups = x.reshape(2, 2, 15).astype(np.float64)
    centred = groups - groups.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found.reshape(groups.shape), normal * scale[:, None] + bias[:, None], atol=1e-6)


@pytest.mark.parametrize(("opset", "op"), [(10, "Upsample"), (18, "Upsample")])
def test_a_withdrawn_operator_that_nothing_stands_for_is_refused(opset, op):
    with pytest.raises(GpucompError, match=r"GPC3017 Upsample .*the operator does not exist in this opset"):
        run(opset, op, np.float32([1, 1, 2, 2]))
