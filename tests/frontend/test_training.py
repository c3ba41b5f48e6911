"""Gradients against differences of the function itself, and what a gradient cannot be taken of."""

import numpy as np
import pytest
from onnx import helper
from onnx_builders import model, node, value
from onnx_cases import InterpreterBackend

from gpucomp.errors import ShapeError, UnsupportedError
from gpucomp.frontend.onnx import load

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
    with pytest.raises(UnsupportedError, match="at other values"):
        load(gradient_of(node("Exp", ["x"], ["y"]), inputs=["y"]))
    with pytest.raises(ShapeError, match="have to name tensors"):
        load(gradient_of(node("Exp", ["x"], ["z"])))
