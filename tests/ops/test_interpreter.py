"""The interpreter, which rewrites and kernels are compared with."""

import numpy as np
import pytest

from gpucomp import ops
from gpucomp.errors import InputError, VerifyError
from gpucomp.ir import F32, Graph, Op, TensorType, constant, input_value
from gpucomp.ops.interpreter import evaluate, interpret

X = input_value("x", TensorType(F32, (2, 3)))
DATA = np.array([[1, -2, 3], [4, 5, -6]], np.float32)


def test_a_graph_gives_its_outputs_in_order_also_inputs_constants_and_repeats():
    weight = constant(np.float32(2))
    y = ops.Mul(X, weight)
    graph = Graph((X,), (y, X, weight, y))

    a, b, c, d = interpret(graph, {"x": DATA})

    assert np.array_equal(a, 2 * DATA)
    assert np.array_equal(b, DATA)
    assert c == 2
    assert np.array_equal(d, a)


def test_results_of_a_node_with_several_are_told_apart():
    top = ops.TopK.node(X, k=2, axis=1, largest=True)

    values, places = interpret(Graph((X,), (top[0], top[1])), {"x": DATA})

    assert values.tolist() == [[3, 1], [5, 4]]
    assert places.tolist() == [[2, 0], [1, 0]]


def test_a_deep_graph_is_no_recursion():
    y = X
    for _ in range(5_000):
        y = ops.Neg(y)

    assert np.array_equal(interpret(Graph((X,), (y,)), {"x": DATA})[0], DATA)


def test_values_are_freed_after_their_last_use():
    alive = []

    class Counted(np.ndarray):
        def __array_finalize__(self, other):
            alive.append(1)

        def __del__(self):
            alive.pop()

    peak = []
    step = Op("Step", lambda x: x)

    @step.define("reference")
    def _step(x):
        peak.append(len(alive))
        return np.array(x).view(Counted)

    y = X
    for _ in range(50):
        y = step(y)
    interpret(Graph((X,), (y,)), {"x": DATA})

    assert len(peak) == 50
    assert max(peak) < 10


@pytest.mark.parametrize(
    ("feed", "text"),
    [
        ({}, "input 'x' is missing; its inputs are 'x'"),
        ({"x": DATA, "z": DATA}, "the model has no input 'z'"),
        ({"x": DATA.T}, r"f32\[2,3\] expected, f32\[3,2\] given"),
        ({"x": DATA.astype(np.float64)}, r"f32\[2,3\] expected, f64\[2,3\] given"),
        ({"x": np.full((2, 3), "a")}, "element type"),
    ],
)
def test_a_wrong_input_is_refused(feed, text):
    with pytest.raises(InputError, match=text):
        interpret(Graph((X,), (ops.Neg(X),)), feed)


@pytest.mark.parametrize("result", [DATA.astype(np.float64), DATA[0]])
def test_a_reference_that_breaks_its_type_rule_is_found(result):
    wrong = Op("Wrong", lambda x: x)
    wrong.define("reference")(lambda x: result)

    with pytest.raises(VerifyError, match="the reference gives"):
        evaluate([wrong(X)], {X: DATA})
