"""Gradients compared with finite differences, and functions without a supported gradient."""

import numpy as np
import pytest
from onnx import helper

from gpucomp.errors import ShapeError, UnsupportedError
from gpucomp.frontend.onnx import load
from tests.onnx_builders import model, node, value
from tests.onnx_cases import InterpreterBackend

TRAINING = "ai.onnx.preview.training"
DOUBLE = 11
RNG = np.random.default_rng(3)
X, W = RNG.uniform(0.5, 2, (3, 5)), RNG.uniform(0.5, 2, (5, 7))

FUNCTIONS = {
    "product": [node("MatMul", ["x", "w"], ["y"])],
    "broadcast": [
        node("Add", ["x", "row"], ["s"]),
        node("Mul", ["s", "row"], ["t"]),
        node("MatMul", ["t", "w"], ["y"]),
    ],
    "shared": [node("Mul", ["x", "x"], ["s"]), node("Sub", ["s", "x"], ["t"]), node("MatMul", ["t", "w"], ["y"])],
    "moved": [
        node("Transpose", ["w"], ["v"]),
        node("Transpose", ["v"], ["u"]),
        node("MatMul", ["x", "u"], ["p"]),
        node("Reshape", ["p", "shape"], ["y"]),
    ],
    "functions": [
        node("Exp", ["x"], ["a"]),
        node("Log", ["x"], ["b"]),
        node("Div", ["a", "b"], ["c"]),
        node("Tanh", ["c"], ["d"]),
        node("Sigmoid", ["d"], ["e"]),
        node("Sqrt", ["x"], ["f"]),
        node("Neg", ["f"], ["g"]),
        node("Relu", ["x"], ["h"]),
        node("Sum", ["e", "g", "h"], ["i"]),
        node("MatMul", ["i", "w"], ["y"]),
    ],
}
WEIGHTS = {"row": RNG.uniform(0.5, 2, 5), "shape": np.array([7, 3])}


def built(nodes, outputs):
    proto = model(nodes, [value("x", X.shape, DOUBLE), value("w", W.shape, DOUBLE)], outputs, weights=WEIGHTS)
    proto.opset_import.append(helper.make_opsetid(TRAINING, 1))
    return proto


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gradient_is_the_slope_of_the_sum(name):
    step = node("Gradient", ["x", "w"], ["dx", "dw"], xs=["x", "w"], y="y", domain=TRAINING)
    function = InterpreterBackend.prepare(built(FUNCTIONS[name], ["y"]))

    found = InterpreterBackend.prepare(built([*FUNCTIONS[name], step], ["dx", "dw"])).run([X, W])

    for which, gradient in enumerate(found):
        for place in np.ndindex(*gradient.shape):
            values = []
            for change in (1e-6, -1e-6):
                moved = [X.copy(), W.copy()]
                moved[which][place] += change
                values.append(function.run(moved)[0].sum())
            assert gradient[place] == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5, abs=1e-7)


def test_what_does_not_depend_on_a_tensor_has_no_slope():
    nodes = [node("Exp", ["x"], ["y"]), node("Gradient", ["w"], ["dw"], xs=["w"], y="y", domain=TRAINING)]

    assert not InterpreterBackend.prepare(built(nodes, ["dw"])).run([X, W])[0].any()


def test_gradients_that_are_not_supported_are_refused():
    def gradient_of(*nodes, inputs=("x",)):
        return built([*nodes, node("Gradient", list(inputs), ["dx"], xs=["x"], y="y", domain=TRAINING)], ["dx"])

    with pytest.raises(UnsupportedError, match="the derivative of 'Erf' is not supported"):
        load(gradient_of(node("Erf", ["x"], ["y"])))
    with pytest.raises(UnsupportedError, match="at values other than"):
        load(gradient_of(node("Exp", ["x"], ["y"]), inputs=["y"]))
    with pytest.raises(ShapeError, match="must name tensors"):
        load(gradient_of(node("Exp", ["x"], ["z"])))


def statistics(x, spatial, momentum, epsilon, scale, bias, mean, variance):
    """Batch normalisation in training, by the standard's formulas."""
    axes = tuple(a for a in range(x.ndim) if a != 1) if spatial else (0,)
    shape = (1, -1, 1, 1) if spatial else (1, *x.shape[1:])
    now, spread = x.mean(axes), x.var(axes)
    y = (x - now.reshape(shape)) / np.sqrt(spread.reshape(shape) + epsilon) * scale.reshape(shape) + bias.reshape(shape)
    return y, mean * momentum + now * (1 - momentum), variance * momentum + spread * (1 - momentum), now, spread


@pytest.mark.parametrize("spatial", [1, 0])
@pytest.mark.parametrize("trains", [True, False])
def test_batch_normalisation_before_opset_14_by_channel_and_by_element(spatial, trains):
    x = RNG.standard_normal((3, 2, 5, 7))
    own = (2,) if spatial else x.shape[1:]
    parameters = [RNG.uniform(0.5, 2, own) for _ in range(4)]
    outputs = ["y", "m", "v", "nm", "nv"] if trains else ["y"]
    names = ["x", "scale", "bias", "mean", "var"]
    step = node("BatchNormalization", names, outputs, epsilon=0.25, momentum=0.75, spatial=spatial)
    inputs = [value("x", x.shape, DOUBLE), *(value(n, own, DOUBLE) for n in names[1:])]

    found = InterpreterBackend.prepare(model([step], inputs, outputs, opset=8)).run([x, *parameters])

    if trains:
        expected = statistics(x, spatial, 0.75, 0.25, *parameters)
    else:
        shape = (1, 2, 1, 1) if spatial else (1, *own)
        scale, bias, mean, variance = (p.reshape(shape) for p in parameters)
        expected = ((x - mean) / np.sqrt(variance + 0.25) * scale + bias,)
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-6)


def test_statistics_of_an_element_have_its_shape():
    names = ["x", "scale", "bias", "mean", "var"]
    step = node("BatchNormalization", names, ["y"], spatial=0)

    with pytest.raises(ShapeError, match=r"statistics of shape \[2, 5\] expected, f32\[2\] given"):
        load(model([step], [value("x", (3, 2, 5)), *(value(n, (2,)) for n in names[1:])], opset=8))
