"""Which inputs are states, and which of them are proven to be updated in place."""

import numpy as np
import pytest

import gpucomp
from gpucomp import Dim, ops
from gpucomp.errors import UsageError
from gpucomp.ir.graph import Graph, input_value
from gpucomp.ir.types import F32, TensorType
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite.states import pairs_of
from tests.onnx_builders import model, node, value

PAST = ["b", 3, "past", 5]


def spec(nodes, past=PAST, outputs=("y", "new"), rows=("b", 3, "s", 5), more=(), dim=None, states=None):
    """The first state of a model with an input ``old`` that becomes ``new``."""
    inputs = [value("x", list(rows)), value("old", past), *more]
    shapes = {"x": tuple(rows), "old": tuple(dim if n == "past" and dim else n for n in past)}
    shapes |= {info.name: tuple(d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim) for info in more}
    outs = [value(name, None) for name in outputs]
    weights = {"two": np.array([2], np.int64), "half": np.float32(0.5)}
    exe = gpucomp.compile(model(nodes, inputs, outs, weights), shapes=shapes, states=states or {"old": "new"})
    return exe.states[0]


APPENDED = [node("Concat", ["old", "x"], ["new"], axis=2), node("ReduceSum", ["new", "two"], ["y"])]


def test_rows_behind_the_others_are_stored_in_place():
    found = spec(APPENDED, dim=Dim("past", 0, 77))

    assert (found.in_place, found.axis, found.capacity, found.why) == (True, 2, 77, "")


def test_several_parts_of_a_concat_are_stored_in_place():
    nodes = [node("Concat", ["old", "x", "x"], ["new"], axis=2), node("ReduceSum", ["new", "two"], ["y"])]

    assert spec(nodes).in_place


def test_a_dimension_that_only_states_have_can_be_0():
    assert spec(APPENDED).shape[2] == Dim("past", 0, 8192)
    assert spec(APPENDED, dim=Dim("past", 2, 77)).shape[2] == Dim("past", 2, 77)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("Concat", ["x", "old"], ["new"], axis=2), APPENDED[1]], "it is made by Concat"),
        (
            [node("Relu", ["x"], ["r"]), node("Concat", ["r", "x", "old"], ["new"], axis=2), APPENDED[1]],
            "made by Concat",
        ),
        ([APPENDED[0], node("ReduceSum", ["old", "two"], ["y"])], "ReduceSum reads it too"),
        ([node("Concat", ["old", "x", "old"], ["new"], axis=2), APPENDED[1]], "Concat reads it too"),
        (
            [node("Mul", ["old", "half"], ["h"]), node("Concat", ["h", "x"], ["new"], axis=2), APPENDED[1]],
            "it is made by Concat",
        ),
        (
            [node("Concat", ["old", "x"], ["c"], axis=2), node("Mul", ["c", "half"], ["new"]), APPENDED[1]],
            "it is made by Mul",
        ),
        ([APPENDED[0], node("Identity", ["new"], ["y"])], "it is an output as well"),
        ([APPENDED[0], node("Identity", ["old"], ["y"])], "it is an output as well"),
    ],
)
def test_what_is_no_proof_is_refused_by_name(nodes, why):
    found = spec(nodes)

    assert not found.in_place
    assert found.axis == -1
    assert why in found.why


def test_a_state_of_one_size_is_replaced():
    found = spec([node("Add", ["old", "x"], ["new"]), APPENDED[1]], past=["b", 3, "s", 5])

    assert (found.in_place, found.why) == (False, "it is made by Add, a scatter into the state expected")


def test_states_that_grow_by_other_numbers_of_rows_are_not_both_in_place():
    nodes = [
        *APPENDED,
        node("Concat", ["other", "x", "x"], ["other_new"], axis=2),
    ]
    inputs = [value("x", ["b", 3, "s", 5]), value("old", PAST), value("other", PAST)]
    outs = [value(name, None) for name in ("y", "new", "other_new")]
    graph = model(nodes, inputs, outs, {"two": np.array([2], np.int64)})

    exe = gpucomp.compile(graph, shapes={"old": tuple(PAST)}, states={"old": "new", "other": "other_new"})

    first, second = exe.states
    assert first.in_place
    assert not second.in_place
    assert second.why == "it grows by 2*s rows, 'old' by s"


def test_a_state_that_grows_needs_a_dimension():
    with pytest.raises(UsageError, match=r"'old' grows along its axis 2: a name or a gpucomp.Dim .* found 7") as error:
        gpucomp.compile(
            model(
                APPENDED, [value("x", [1, 3, 2, 5]), value("old", [1, 3, 7, 5])], ["y", "new"], {"two": np.array([2])}
            ),
            states={"old": "new"},
        )
    assert error.value.code == "GPC2040"


@pytest.mark.parametrize(
    ("inputs", "outputs", "found"),
    [
        (
            ["ids", "past_key_values.0.key", "past_key_values.0.value"],
            ["logits", "present.0.key", "present.0.value"],
            {"past_key_values.0.key": "present.0.key", "past_key_values.0.value": "present.0.value"},
        ),
        (["past_0"], ["present_0"], {"past_0": "present_0"}),
        (["input", "state", "sr"], ["output", "stateN"], {"state": "stateN"}),
        (["x", "h0", "c0"], ["y", "hn", "cn"], {"h0": "hn", "c0": "cn"}),
        (["x", "lstm_in"], ["x_out", "lstm_out"], {"lstm_in": "lstm_out"}),
    ],
)
def test_states_are_found_by_the_names_that_exporters_use(inputs, outputs, found):
    assert pairs_of("auto", inputs, outputs) == found


def test_a_star_is_the_same_text_in_both_names():
    given = {"past.*.k": "now.*.key"}

    assert pairs_of(given, ["past.3.k", "past.3.v"], ["now.3.key"]) == {"past.3.k": "now.3.key"}


@pytest.mark.parametrize(
    ("states", "told"),
    [
        ("all", "'auto', or the inputs with their outputs"),
        ("auto", "no input and output have names such as past"),
        ({"nothing": "y"}, "the model has no input 'nothing'; its inputs are 'a', 'b'"),
        ({"a": "z"}, "input 'a' becomes 'z', but the model's outputs are 'y'"),
        ({"a": "y", "b": "y"}, "output 'y' is that of two inputs"),
    ],
)
def test_wrong_states_are_refused(states, told):
    with pytest.raises(UsageError, match=told) as error:
        pairs_of(states, ["a", "b"], ["y"])
    assert error.value.code == "GPC2040"


def test_append_stores_rows_and_no_others():
    state, rows = (input_value(name, TensorType(F32, (2, n, 3))) for name, n in (("state", 7), ("rows", 2)))
    graph = Graph((state, rows), (ops.Append(state, rows, axis=1, at=4),))
    arrays = {"state": np.arange(42, dtype=np.float32).reshape(2, 7, 3), "rows": -np.ones((2, 2, 3), np.float32)}

    (found,) = interpret(graph, arrays)

    wanted = arrays["state"].copy()
    wanted[:, 4:6] = -1
    assert np.array_equal(found, wanted)


def test_rows_outside_a_state_are_refused():
    state, rows = (input_value(name, TensorType(F32, (2, n, 3))) for name, n in (("state", 7), ("rows", 2)))

    with pytest.raises(gpucomp.GpucompError, match="rows 6 to 7 at axis 1 are not inside"):
        ops.Append(state, rows, axis=1, at=6)


def test_what_cannot_be_the_next_state_is_none():
    graph = model(
        [node("Concat", ["image_in", "image_in"], ["image_out"], axis=1)], [value("image_in", [2, 3])], ["image_out"]
    )

    with pytest.raises(UsageError, match=r"'image_in' is f32\[2,3\], but 'image_out' is f32\[2,6\]") as error:
        gpucomp.compile(graph, states={"image_in": "image_out"})
    assert error.value.code == "GPC2040"
    assert gpucomp.compile(graph, states="auto").states == ()


def test_a_wrong_declaration_of_a_model_for_any_size_is_told():
    graph = model(
        APPENDED, [value("x", ["b", 3, "s", 5]), value("old", ["b", 3, 7, 5])], ["y", "new"], {"two": np.array([2])}
    )

    with pytest.raises(UsageError, match="'old' grows along its axis 2") as error:
        gpucomp.compile(graph, shapes={"x": ("b", 3, "s", 5), "old": ("b", 3, 7, 5)}, states={"old": "new"})
    assert error.value.code == "GPC2040"
