"""The error of whole models beside double precision: the reference is in double precision, and errors are seen."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.cpu import accuracy
from bench.models import build, inputs


@pytest.mark.parametrize("name", ["mobilenet_v2", "vit_tiny"])
def test_a_model_is_as_exact_as_onnxruntime(name):
    found = accuracy.measure(name, "fp32", reduced=True)

    assert 0 < found.ours < 2e-6
    assert 0 < found.theirs < 2e-6
    assert sum(found.engines.values()) > 5
    assert f"| {name} |" in accuracy.page([found], "fp32")


def test_the_reference_is_a_model_in_double_precision():
    model = build("squeezenet1_1", reduced=True)
    wide = accuracy.in_double(model)

    assert {t.data_type for t in wide.graph.initializer} <= {TensorProto.DOUBLE, TensorProto.INT64}
    assert {t.data_type for t in model.graph.initializer} <= {TensorProto.FLOAT, TensorProto.INT64}, "left as it was"
    assert all(a.dtype == np.float64 for a in accuracy.reference(model, inputs(model)))


def test_casts_and_constants_and_branches_are_widened():
    third = numpy_helper.from_array(np.array([1 / 3], np.float32), "third")
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=third), helper.make_node("Add", ["x", "c"], ["z"])],
        "branch",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["i"], ["x"], to=TensorProto.FLOAT),
            helper.make_node("If", ["which"], ["y"], then_branch=branch, else_branch=branch),
        ],
        "g",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, [1]),
            helper.make_tensor_value_info("which", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])

    (found,) = accuracy.reference(model, {"i": np.array([2]), "which": np.array(True)})

    assert found.dtype == np.float64
    assert found[0] == 2 + np.float64(np.float32(1 / 3))


def test_an_output_that_stays_narrow_is_no_reference():
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT16)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [1])],
    )

    with pytest.raises(ValueError, match="float16"):
        accuracy.reference(helper.make_model(graph), {"x": np.ones(1, np.float32)})


def test_the_worst_output_counts():
    right = [np.ones(4), np.array([3.0, 4.0])]

    assert accuracy.worst([np.ones(4), np.array([3.0, 4.5])], right) == pytest.approx(0.1)
    assert accuracy.worst([np.ones(4), np.array([3.0, np.nan])], right) == np.inf
    assert accuracy.worst([np.ones(1), right[1]], right) == np.inf, "another shape"


@pytest.mark.parametrize(("error", "status"), [(2e-4, 1), (np.nan, 1), (np.inf, 1), (9e-5, 0)])
def test_an_error_above_the_bound_fails(error, status, monkeypatch, tmp_path):
    monkeypatch.setattr(accuracy, "measure", lambda name, *_, **__: accuracy.Error(name, error, 1e-7, {}))

    assert accuracy.main(["resnet18", "--out", str(tmp_path / "new" / "page")]) == status
    assert f"| resnet18 | {error:.1e} |" in (tmp_path / "new" / "page.md").read_text()


def test_unknown_models_are_named(capsys):
    with pytest.raises(SystemExit):
        accuracy.main(["resnet19"])

    assert "unknown: resnet19; models are resnet18" in capsys.readouterr().err
