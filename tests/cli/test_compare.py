"""``gpucomp compare`` of results with NaN and of what ONNX does not define, and what other programs get of it."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto

from gpucomp.cli import show
from gpucomp.cli.compare import Tolerance, distance
from gpucomp.cli.undefined import undefined
from tests.onnx_builders import model, node, value


@pytest.fixture
def saved(tmp_path):
    def save(nodes, outputs, x):
        x = np.asarray(x, np.float32)
        onnx.save(model(nodes, [value("x", x.shape)], outputs), tmp_path / "m.onnx")
        np.save(tmp_path / "x.npy", x)
        return tmp_path / "m.onnx", "--input", f"x={tmp_path / 'x.npy'}", "--target", "cpu"

    return save


@pytest.mark.parametrize(
    ("x", "told"),
    [([[-1, -2]], "all 2 values NaN, in both results"), ([[-1, 4]], "1 of 2 values NaN, in both results")],
)
def test_values_that_are_nan_are_counted(saved, command, tmp_path, x, told):
    model = saved([node("Sqrt", ["x"], ["y"])], ["y"], x)

    done = command("compare", *model, "--json", tmp_path / "r.json")

    assert (done.code, done.out.splitlines()[1].split()[-1]) == (0, "ok")
    assert f"output 'y': {told}" in done.out.splitlines()
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["outputs"][0]["NaN"] == int(told.split()[0].replace("all", "2"))


def test_nan_on_one_side_is_not_said_of_both():
    outputs = {"y": np.array([np.nan, 1.0])}
    far = {"y": distance(outputs["y"], np.array([1.0, 1.0]))}

    assert show.errors(far, Tolerance(), outputs)[-1] == "output 'y': 1 of 2 values NaN"
    assert show.errors(far, Tolerance(), {"y": [outputs["y"], np.array([1, 2])]})[-1] == "output 'y': 1 of 4 values NaN"


def test_other_programs_get_names_that_are_the_same_every_time(saved, command, tmp_path):
    model = saved([node("Relu", ["x"], ["r"]), node("Neg", ["r"], ["y"])], ["y"], [[-1, 2]])

    command("compare", *model, "--tolerance", "0.02", "--json", tmp_path / "r.json")

    found = json.loads((tmp_path / "r.json").read_text())
    assert list(found) == ["outputs", "tolerance", "comparison"]
    columns = ["output", "relative L2 error", "root mean square", "largest", "NaN", "verdict"]
    assert [*found["outputs"][0]] == columns
    assert found["outputs"][0]["verdict"] == "ok"
    assert found["tolerance"] == [{"relative": 0.02, "absolute": 1e-6}]
    of_tensors = {"tensors": 2, "wrong": 0, "first wrong": None, "operator": None, "verdict": None}
    assert found["comparison"] == [{"against": "onnxruntime", **of_tensors}]


@pytest.mark.parametrize("x", [np.nan, -np.inf])
def test_nobody_is_blamed_for_what_onnx_does_not_define(saved, command, tmp_path, x):
    model = saved([node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])], ["y", "s", "z"], [[1, 2, x, -3]])

    done = command("compare", *model, "--bisect", "-o", tmp_path / "found", "--json", tmp_path / "r.json")

    assert done.code == 0, done.err
    assert "4 of 4 elements come from NaN or a number out of range, of which ONNX defines no result" in done.out
    assert "neither is wrong" in done.out
    assert "not bisected" in done.out
    assert done.out.splitlines()[-1].startswith("gpucomp is not wrong: ")
    (found,) = json.loads((tmp_path / "r.json").read_text())["comparison"]
    assert (found["first wrong"], found["verdict"]) == ("'y'", "neither is wrong")


BIG = [np.nan, np.inf, -np.inf, 3e9, 1.0]


@pytest.mark.parametrize(
    ("operator", "x", "result", "wanted"),
    [
        ("Cast", BIG, np.zeros(5, np.int32), [1, 1, 1, 1, 0]),
        ("Cast", [-1.0, -0.5, 15.9, 16.0], np.zeros(4, ml_dtypes.uint4), [1, 0, 0, 1]),
        ("Cast", [2.0**63, -(2.0**63), 2.0**62], np.zeros(3, np.int64), [1, 0, 0]),
        ("Cast", [2.0**64, 2.0**63], np.zeros(2, np.uint64), [1, 0]),
        ("Cast", BIG, np.zeros(5, bool), None),
        ("Cast", BIG, np.zeros(5, np.float16), None),
        ("QuantizeLinear", BIG, np.zeros(5, np.int8), [1, 0, 0, 0, 0]),
        ("DynamicQuantizeLinear", [1.0, np.inf], np.zeros(2, np.uint8), [0, 1]),
        ("DynamicQuantizeLinear", [1.0, -np.inf], np.zeros(2, np.uint8), [1, 1]),
        ("DynamicQuantizeLinear", [0.0, 0.0], np.zeros(2, np.uint8), None),
        ("Relu", BIG, np.zeros(5, np.float32), None),
    ],
)
def test_what_is_undefined(operator, x, result, wanted):
    tensors = {"x": np.array(x, np.float32), "y": result}

    found = undefined(node(operator, ["x"], ["y"]), tensors, "y")

    assert (found if wanted is None else found.tolist()) == wanted


@pytest.mark.parametrize(("output", "wanted"), [("s", None), ("z", True)])
def test_the_scale_of_an_infinite_range_is_defined_and_its_zero_point_is_not(output, wanted):
    tensors = {"x": np.array([1, -np.inf], np.float32), "s": np.float32(np.inf), "z": np.uint8(3)}

    found = undefined(node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"]), tensors, output)

    assert (found if wanted is None else bool(found)) == wanted


def test_a_wrong_element_beside_an_undefined_one_is_blamed(saved, command, monkeypatch):
    from gpucomp.cli import bisect as bisecting

    run = bisecting.Question.run

    def off_by_one(question, model, inputs):
        return {name: array + array.dtype.type(1) for name, array in run(question, model, inputs).items()}

    monkeypatch.setattr(bisecting.Question, "run", off_by_one)
    model = saved([node("Cast", ["x"], ["y"], to=TensorProto.INT32)], ["y"], [[np.nan, 100.0]])

    done = command("compare", *model)

    assert done.code == 6
    assert "1 of 2 elements come from NaN" in done.out
    assert ": gpucomp is wrong" in done.out
