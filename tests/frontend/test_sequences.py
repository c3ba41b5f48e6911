"""Sequences and optionals are resolved during translation. As inputs and outputs they are lists and ``None``."""

import numpy as np
import pytest
from onnx import TensorProto, TypeProto, helper

from gpucomp import compile
from gpucomp.errors import InputError, ModelError, ShapeError, UnsupportedError, UsageError
from gpucomp.frontend.onnx import load
from gpucomp.loading import load as load_artefact
from gpucomp.ops.interpreter import interpret
from tests.onnx_builders import model, node, value
from tests.onnx_cases import InterpreterBackend

A, B, C = (np.arange(n, dtype=np.float32).reshape(s) + n for n, s in ((6, (2, 3)), (5, (1, 5)), (0, (0, 3))))
FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
SEQUENCE = helper.make_sequence_type_proto(FLOATS)
INT = TensorProto.INT64


def sequence(name: str, proto: TypeProto = SEQUENCE):
    return helper.make_value_info(name, proto)


def maybe(name: str, proto: TypeProto = FLOATS):
    return helper.make_value_info(name, helper.make_optional_type_proto(proto))


def number(n: int) -> np.ndarray:
    return np.array(n, np.int64)


def run(proto, *inputs):
    return InterpreterBackend.prepare(proto).run(list(inputs))


@pytest.mark.parametrize(
    ("place", "expected"),
    [(None, [A, B, C]), (0, [C, A, B]), (1, [A, C, B]), (2, [A, B, C]), (-1, [A, C, B]), (-2, [C, A, B])],
)
def test_a_tensor_is_inserted_before_the_place_that_is_named(place, expected):
    names = ["s", "t"] if place is None else ["s", "t", "p"]
    proto = model(
        [node("SequenceInsert", names, ["y"])],
        [sequence("s"), value("t", None)],
        weights={} if place is None else {"p": number(place)},
    )

    (result,) = run(proto, [A, B], C)

    assert [r.shape for r in result] == [e.shape for e in expected]
    assert all(np.array_equal(r, e) for r, e in zip(result, expected, strict=True))


@pytest.mark.parametrize(
    ("operator", "place"),
    [("SequenceAt", 2), ("SequenceAt", -3), ("SequenceErase", 2), ("SequenceInsert", 3), ("SequenceInsert", -3)],
)
def test_a_place_outside_the_sequence_is_refused(operator, place):
    names = ["s", "t", "p"] if operator == "SequenceInsert" else ["s", "p"]
    inputs = [sequence("s"), value("t", None)] if operator == "SequenceInsert" else [sequence("s")]
    proto = model([node(operator, names, ["y"])], inputs, weights={"p": number(place)})

    with pytest.raises(ShapeError, match=f"in a sequence of 2 tensors; {place} given"):
        run(proto, [A, B], *[C] * (len(inputs) - 1))


def test_a_place_that_is_an_input_is_fixed_to_its_value():
    proto = model([node("SequenceAt", ["s", "p"], ["y"])], [sequence("s"), value("p", (), INT)])
    prepared = InterpreterBackend.prepare(proto)

    for place, expected in ((0, A), (-1, B)):
        assert np.array_equal(prepared.run([[A, B], number(place)])[0], expected)
    with pytest.raises(
        UnsupportedError, match="its position must be known at compile time, but depends on the value of 'p'"
    ):
        load(proto, shapes={"s": [A.shape, B.shape]})


@pytest.mark.parametrize(
    ("split", "lengths"), [(number(2), [2, 2, 1]), (number(7), [5]), (np.array([1, 0, 4]), [1, 0, 4]), (None, [1] * 5)]
)
def test_a_tensor_is_split_into_parts(split, lengths):
    weights = {} if split is None else {"n": split}
    proto = model([node("SplitToSequence", ["x", *weights], ["y"], axis=-1)], [value("x", (1, 5))], weights=weights)

    (parts,) = run(proto, B)

    assert [p.shape for p in parts] == [(1, n) for n in lengths]
    assert np.array_equal(np.concatenate(parts, 1), B)


@pytest.mark.parametrize(
    ("split", "message"), [(number(0), "at least 1 element"), (np.array([3, 3]), r"parts \[3, 3\] do not")]
)
def test_parts_that_do_not_make_up_the_whole_are_refused(split, message):
    proto = model([node("SplitToSequence", ["x", "n"], ["y"], axis=1)], [value("x", (1, 5))], weights={"n": split})

    with pytest.raises(ShapeError, match=message):
        run(proto, B)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("SequenceEmpty", [], ["s"]), node("SequenceErase", ["s"], ["y"])], "nothing can be erased"),
        ([node("SequenceEmpty", [], ["s"]), node("ConcatFromSequence", ["s"], ["y"], axis=0)], "an empty sequence"),
        (
            [node("SequenceEmpty", [], ["s"], dtype=INT), node("SequenceInsert", ["s", "x"], ["y"])],
            "of i64 cannot hold f32",
        ),
        ([node("Optional", [], ["y"], type=helper.make_optional_type_proto(FLOATS))], "an optional of an optional"),
        ([node("Optional", [], ["y"])], "needs its type"),
        ([node("Optional", [], ["o"], type=FLOATS), node("OptionalGetElement", ["o"], ["y"])], "the optional is empty"),
    ],
)
def test_what_makes_no_sense_is_refused(nodes, message):
    with pytest.raises((ShapeError, ModelError), match=message):
        load(model(nodes, [value("x")]))


def test_elements_of_other_types_are_no_sequence():
    proto = model([node("SequenceConstruct", ["x", "n"], ["y"])], [value("x"), value("n", (2,), INT)])

    with pytest.raises(ModelError, match="input 1 is i64, but another input of the same type variable is f32"):
        load(proto)


def test_a_sequence_where_a_tensor_belongs_is_refused():
    with pytest.raises(ModelError, match=r"input 0 must not be of type seq\(f32\)"):
        load(model([node("Relu", ["s"], ["y"])], [sequence("s")]), shapes={"s": [(2,)]})


def test_what_is_in_a_sequence_has_to_be_said():
    proto = model([node("Identity", ["s"], ["y"])], [sequence("s")])

    with pytest.raises(
        UsageError, match=r"input 's' is seq\(f32\); give the shapes of its contents: shapes={'s': a list of shapes}"
    ):
        load(proto)
    with pytest.raises(UsageError, match="a list expected"):
        load(proto, shapes={"s": 3})
    assert load(proto, shapes={"s": []}).outputs == ()


def test_sequences_of_sequences_are_refused():
    deep = helper.make_sequence_type_proto(SEQUENCE)

    with pytest.raises(UnsupportedError, match="sequence values of this kind are not supported"):
        load(model([node("Identity", ["s"], ["y"])], [sequence("s", deep)]), shapes={"s": []})


def test_names_of_elements_that_are_taken_are_refused():
    proto = model([node("Identity", ["s"], ["y"])], [sequence("s"), value("s[0]", (2,))])

    with pytest.raises(ModelError, match=r"input 's\[0\]' is declared twice"):
        load(proto, shapes={"s": [(2,)]})


@pytest.mark.parametrize("content", [None, A])
def test_an_optional_input_holds_a_tensor_or_nothing(content):
    proto = model(
        [node("OptionalHasElement", ["o"], ["y"]), node("Identity", ["o"], ["same"])], [maybe("o")], ["y", "same"]
    )

    has, same = run(proto, content)

    assert has == (content is not None)
    assert (same is None) if content is None else np.array_equal(same, A)


def test_a_branch_is_chosen_by_an_optional_that_is_there_or_not():
    get = helper.make_graph([node("OptionalGetElement", ["o"], ["g"])], "get", [], [value("g", None)])
    other = helper.make_graph([node("Identity", ["x"], ["h"])], "other", [], [value("h", None)])
    nodes = [node("OptionalHasElement", ["o"], ["c"]), node("If", ["c"], ["y"], then_branch=get, else_branch=other)]
    proto = model(nodes, [maybe("o"), value("x", None)])

    assert np.array_equal(run(proto, A, B)[0], A)
    assert np.array_equal(run(proto, None, B)[0], B)


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_compiled_models_take_and_give_lists(target, tmp_path):
    nodes = [
        node("SequenceAt", ["s", "one"], ["b"]),
        node("Exp", ["b"], ["e"]),
        node("SequenceInsert", ["s", "e"], ["y"]),
        node("SequenceEmpty", [], ["none"]),
        node("Optional", [], ["absent"], type=FLOATS),
        node("ReduceSum", ["e"], ["total"], keepdims=0),
    ]
    proto = model(nodes, [sequence("s")], ["total", "y", "none", "absent"], weights={"one": number(1)})
    made = compile(proto, target=target, shapes={"s": [A.shape, B.shape]})
    made.save(tmp_path / "model.gpuc")

    for exe in (made, load_artefact(tmp_path / "model.gpuc")):
        results = exe.run({"s": [A, B]})

        assert results["none"] == []
        assert results["absent"] is None
        np.testing.assert_allclose(results["total"], np.exp(B).sum(), rtol=1e-5)
        assert [r.shape for r in results["y"]] == [A.shape, B.shape, B.shape]
        assert np.array_equal(results["y"][0], A)
        np.testing.assert_allclose(results["y"][2], np.exp(B), rtol=1e-5)
    for wrong, message in (
        ({"s": [A]}, "a list of 2 arrays expected, found 1"),
        ({"s": A}, "a list of 2 arrays expected, found ndarray"),
        ({"s": None}, "a list of 2 arrays expected, found NoneType"),
        ({}, "missing: 's'"),
        ({"s": [B, A]}, r"input 's\[0\]': shape \[2, 3\] expected, found \[1, 5\]"),
    ):
        with pytest.raises(InputError, match=message):
            made.run(wrong)


@pytest.mark.parametrize("weights", [{}, {"n": number(3)}])
def test_tensors_are_not_split_into_very_many_parts(weights):
    proto = model([node("SplitToSequence", ["x", *weights], ["y"])], [value("x", (1 << 40,))], weights=weights)

    with pytest.raises(UnsupportedError, match="at most 4096 are supported"):
        load(proto)


def test_an_output_of_another_kind_than_is_declared_is_refused():
    with pytest.raises(ModelError, match=r"declared as a sequence, but is f32\[2,3\]"):
        load(model([node("Identity", ["x"], ["y"])], [value("x")], [sequence("y")]))
    with pytest.raises(ModelError, match=r"declared as a tensor, but is seq\(f32\)"):
        load(model([node("SequenceConstruct", ["x"], ["y"])], [value("x")], [value("y")]))


@pytest.mark.parametrize("shape", [None, 3, [(2, 3)], "no", [1.5, None]])
def test_shapes_that_are_none_are_refused(shape):
    with pytest.raises(UsageError, match="input 'x': whole numbers, or names such as 'n'"):
        load(model([node("Relu", ["x"], ["y"])], [value("x", ("a", "b"))]), shapes={"x": shape})
    with pytest.raises(UsageError, match="input 's': whole numbers, or names such as 'n'"):
        load(model([node("Identity", ["s"], ["y"])], [sequence("s")]), shapes={"s": [shape]})


@pytest.mark.parametrize("given", [[1.0, 2.0], (1, 2), np.array([1.0, 2.0], np.float32)])
def test_constants_may_be_numbers(given):
    graph = load(model([node("Relu", ["x"], ["y"])], [value("x", (2,))]), constants={"x": given})

    assert interpret(graph, {})[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("shape", "found"), [((), 8000), ((1,), [8000]), ((1, 1), [[8000]])])
def test_a_number_takes_the_shape_of_one_element(shape, found):
    graph = load(
        model(
            [node("Identity", ["x"], ["y"])],
            [value("x", shape, TensorProto.INT64)],
            [value("y", shape, TensorProto.INT64)],
        ),
        constants={"x": 8000},
    )

    assert interpret(graph, {})[0].tolist() == found


@pytest.mark.parametrize(
    ("element", "given"),
    [
        (TensorProto.INT64, 0.5),
        (TensorProto.UINT8, 256),
        (TensorProto.UINT8, -1),
        (TensorProto.BOOL, 2),
        (TensorProto.FLOAT, 1e39),
        (TensorProto.INT64, float("nan")),
    ],
)
def test_numbers_that_the_element_type_cannot_hold_are_refused(element, given):
    x = value("x", (), element)
    with pytest.raises(UsageError, match=r"input 'x': .* cannot hold"):
        load(model([node("Identity", ["x"], ["y"])], [x]), constants={"x": given})


@pytest.mark.parametrize("given", ["text", None, [[1.0], [1.0, 2.0]], {"a": 1}, [2**70, 1]])
def test_constants_that_are_no_arrays_are_refused(given):
    with pytest.raises(UsageError, match="input 'x': an array, a number or a list of numbers expected"):
        load(model([node("Relu", ["x"], ["y"])], [value("x", (2,))]), constants={"x": given})


def test_constants_of_sequences_that_are_no_arrays_are_refused():
    with pytest.raises(UsageError, match="input 's': an array expected, str given"):
        load(model([node("Identity", ["s"], ["y"])], [sequence("s")]), constants={"s": ["text"]})
    with pytest.raises(UsageError, match="f32 expected, i64 given"):
        load(model([node("Identity", ["s"], ["y"])], [sequence("s")]), constants={"s": [np.zeros(2, np.int64)]})
