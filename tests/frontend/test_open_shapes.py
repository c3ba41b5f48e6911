"""Declarations of dimensions: what they stand for in all inputs, and contradictions told."""

import pytest

from gpucomp import Dim
from gpucomp.errors import UsageError
from gpucomp.frontend.onnx.loader import load
from gpucomp.frontend.onnx.open_shapes import declared_outputs, open_shapes
from gpucomp.ir.dims import has_dims
from tests.onnx_builders import model, node, value


def two_inputs(x=("n", 3, "h", None), z=("n", 1, 1, 1), y=None):
    return model([node("Add", ["x", "z"], ["y"])], [value("x", x), value("z", z)], [value("y", y)])


def test_a_dimension_of_the_model_is_one_in_all_inputs():
    found = open_shapes(two_inputs(), {"x": (Dim("batch", 1, 9), 3, 8, "w")}, {})

    assert found.shapes == {"x": (Dim("batch", 1, 9), 3, 8, Dim("w")), "z": (Dim("batch", 1, 9), 1, 1, 1)}
    assert found.said == {"batch": "the given shape of input 'x'", "w": "the given shape of input 'x'"}


def test_an_input_without_a_given_shape_has_the_models_names_or_its_own():
    found = open_shapes(two_inputs(), {"z": (Dim("n", 2, 4), 1, 1, 1)}, {})

    assert found.shapes["x"] == (Dim("n", 2, 4), 3, Dim("h"), Dim("x.3"))
    assert found.said == {
        "n": "the given shape of input 'z'",
        "h": "the model's input 'x'",
        "x.3": "the model's input 'x'",
    }


def test_a_number_fixes_the_models_name_everywhere():
    assert open_shapes(two_inputs(), {"x": (2, 3, "h", "w")}, {}).shapes["z"] == (2, 1, 1, 1)


def test_a_declaration_under_the_models_name_serves_other_inputs():
    found = open_shapes(two_inputs(z=(None, 1, "h", 1)), {"z": ("n", 1, Dim("h", 4, 8), 1)}, {})

    assert found.shapes["x"] == (Dim("n"), 3, Dim("h", 4, 8), Dim("x.3"))


def test_a_name_is_the_dimension_that_is_declared_with_it():
    found = open_shapes(two_inputs(), {"x": ("n", 3, 4, 5), "z": (Dim("n", 2, 3), 1, 1, 1)}, {})

    assert found.dims == {"n": Dim("n", 2, 3)}


def test_constants_and_weights_have_no_dimensions():
    found = open_shapes(two_inputs(), {"x": ("n", 3, "h", "w")}, {"z": 1.0})

    assert list(found.shapes) == ["x"]


def test_outputs_have_the_dimensions_of_inputs_with_the_same_name():
    proto = two_inputs(y=("n", 3, "k", None))
    found = declared_outputs(proto, open_shapes(proto, {"x": (Dim("batch"), 3, "h", "w")}, {}))

    assert str(found["y"]) == str(("f32", (Dim("batch"), 3, Dim("k", 0, 2**31 - 1), Dim("?", 0, 2**31 - 1))))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            {"x": (Dim("n", 1, 4), 3, Dim("n", 1, 5), 1)},
            "GPC2018 dimension 'n' is 1 to 4 by the given shape of input 'x', and 1 to 5",
        ),
        (
            {"x": ("n", 3, "h", "w"), "z": ("k", 1, 1, 1)},
            "GPC2018 .* dimension 'n' is 'k' here and 'n' in input 'x'",
        ),
        ({"x": ("n", 3, "h", "w"), "z": (4, 1, 1, 1)}, "GPC2018 .* dimension 'n' is 4 here and 'n' in input 'x'"),
        ({"x": ("n", "c", "h", "w")}, "GPC2110 .* dimension 1 is 3 in the model, 'c' was given"),
        ({"x": ("n", 3, "h")}, "GPC2110 .* 4 dimensions expected, 3 given"),
        ({"x": ("n", 3, -1, "w")}, "GPC2110 .* whole numbers, or names such as 'n' and gpucomp"),
        ({"x": ("n", 3, True, "w")}, "GPC2110"),
        ({"x": ("n", 3, "", "w")}, "GPC2018 Dim: a name expected"),
        ({"x": ("n", 3, 1.5, "w")}, "GPC2110"),
        ({"x": "nchw"}, "GPC2110"),
        ({"y": ("n",)}, "GPC2101 .* no open input 'y'; its inputs are: 'x', 'z'"),
        (
            {"x": (Dim("n", 1, 2**31 - 1), 3, Dim("h", 1, 2**31 - 1), 7)},
            r"GPC2018 input 'x' would have 9\.7e\+19 elements at the ends of 'n' \(1 to 2147483647",
        ),
    ],
)
def test_a_contradiction_is_told(shapes, message):
    with pytest.raises(UsageError, match=message):
        open_shapes(two_inputs(), shapes, {})


def test_a_negative_size_is_told_with_what_may_stand_there():
    with pytest.raises(UsageError, match=r"GPC2110 .* give a number for each, or a name such as 'n'"):
        load(two_inputs(), shapes={"x": (-1, 3, 4, 5)})


def test_an_input_without_a_rank_must_be_given():
    with pytest.raises(UsageError, match="GPC2102 input 'z' has no shape in the model"):
        open_shapes(two_inputs(z=None), {"x": ("n", 3, 4, 5)}, {})


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dim("h", 40, 4),
        lambda: Dim("h", 5, 7, 8),
        lambda: Dim("h", -1, 7),
        lambda: Dim("h", 1, 7, 0),
        lambda: Dim("h", 1, 2**31),
        lambda: Dim("h", 1.5, 7),
        lambda: Dim("h", True, 7),
        lambda: Dim("", 1, 7),
        lambda: Dim(3, 1, 7),
    ],
)
def test_a_range_without_a_size_is_told(make):
    with pytest.raises(UsageError, match="GPC2018 Dim"):
        make()


def test_the_nearest_size_is_in_the_range():
    dim = Dim("h", 5, 100, 8)

    assert [dim.nearest(size) for size in (0, 8, 9, 95, 1000)] == [8, 8, 16, 96, 96]
    assert 96 in dim
    assert 97 not in dim
    assert 104 not in dim


@pytest.mark.parametrize(
    ("shapes", "declares"),
    [
        ({"x": (1, "h")}, True),
        ({"x": [1, Dim("h")]}, True),
        ({"x": (1, 2)}, False),
        ({"s": [(1, 2), (3, 4)]}, False),
        ({"o": None}, False),
        (None, False),
        ("x", False),
    ],
)
def test_dimensions_are_found_in_shapes(shapes, declares):
    assert has_dims(shapes) == declares
