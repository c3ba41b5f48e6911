"""What is found in a folder of models, and what their configurations can say."""

from pathlib import Path

import pytest

from gpucomp.errors import ServingError, UsageError
from gpucomp.ir.dim import Dim
from gpucomp.serving.repository import ModelConfig, read_config, scan


def files(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def test_models_and_their_versions(tmp_path):
    files(tmp_path, "a.onnx", "b.gpuc", "c/1/model.onnx", "c/10/model.gpuc", "c/2/model.onnx", "c/notes.txt")

    found = scan(tmp_path)

    assert {name: [entry.version for entry in one.entries] for name, one in found.items()} == {
        "a": [1],
        "b": [1],
        "c": [1, 2, 10],
    }
    assert [entry.version for entry in found["c"].wanted()] == [10]


def test_versions_that_are_chosen(tmp_path):
    files(tmp_path, "c/1/model.onnx", "c/2/model.onnx", "c/3/model.onnx")
    (tmp_path / "c" / "config.toml").write_text("versions = [3, 1, 7]")

    assert [entry.version for entry in scan(tmp_path)["c"].wanted()] == [1, 3]


@pytest.mark.parametrize(
    "name",
    [
        "read me.onnx",
        ".hidden.onnx",
        "-x.onnx",
        "x.pt",
        "d/0/model.onnx",
        "d/01/model.onnx",
        "d/v1/model.onnx",
        "d/1/other.onnx",
        "ä.onnx",
        "e/model.onnx",
    ],
)
def test_what_is_no_model(tmp_path, name):
    files(tmp_path, name)

    assert scan(tmp_path) == {}


def test_links_that_leave_the_folder_are_no_models(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "models"
    files(outside, "m.onnx", "1/model.onnx", "config.toml")
    (outside / "config.toml").write_text("max_batch = 9")
    files(folder, "kept/1/model.onnx", "real.onnx")
    (folder / "file.onnx").symlink_to(outside / "m.onnx")
    (folder / "folder").symlink_to(outside)
    (folder / "up").symlink_to(tmp_path)
    (folder / "loop.onnx").symlink_to("loop.onnx")
    (folder / "gone.onnx").symlink_to("nothing.onnx")
    (folder / "kept" / "2").symlink_to(outside / "1")
    (folder / "kept" / "config.toml").symlink_to(outside / "config.toml")
    (folder / "inside.onnx").symlink_to("real.onnx")

    found = scan(folder)

    assert set(found) == {"kept", "real", "inside"}
    assert [entry.version for entry in found["kept"].entries] == [1]
    assert found["kept"].config == ModelConfig()


def test_a_name_that_two_have_is_refused(tmp_path):
    files(tmp_path, "a.onnx", "a.gpuc", "b/1/model.onnx", "b/1/model.gpuc")

    found = scan(tmp_path)

    assert "there are several" in str(found["a"].fault)
    assert "both are there" in str(found["b"].fault)


def test_a_folder_that_is_not_there():
    with pytest.raises(UsageError, match="GPC2050 cannot read the models in 'none': No such file"):
        scan(Path("none"))


def test_a_model_whose_folder_cannot_be_read(tmp_path, monkeypatch):
    files(tmp_path, "a/1/model.onnx", "b.onnx")
    listed = Path.iterdir

    def refusing(path):
        if path.name == "a":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refusing)

    found = scan(tmp_path)

    assert "its folder cannot be read: Permission denied" in str(found["a"].fault)
    assert len(found["b"].entries) == 1


def config(tmp_path, text):
    path = tmp_path / "config.toml"
    path.write_text(text)
    return read_config(path)


def test_everything_that_a_configuration_can_say(tmp_path):
    text = """
# a comment
target = "opencl"
precision = "fp16"
versions = [1, 2]
max_batch = 16
rows = "independent"
delay_us = 500
instances = 3
queue = 40
timeout_s = 2.5

[shapes]
x = ["n", 3, {name = "h", low = 8, high = 64, multiple = 8}, 32]
"""
    shapes = {"x": ("n", 3, Dim("h", 8, 64, 8), 32)}

    assert config(tmp_path, text) == ModelConfig("opencl", "fp16", shapes, (1, 2), 16, "independent", 500, 3, 40, 2.5)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("queue = 1\n\nmax_batches = 4", "line 3: unknown key 'max_batches'; known are target, precision"),
        ("[shape]\nx = [1]", "line 1: unknown key 'shape'"),
        ("a = 1\na = 2", "TOML expected"),
        ("max_batch = 0", "line 1: max_batch: a whole number from 1 to 1000000 expected"),
        ("max_batch = true", "line 1: max_batch: a whole number"),
        ("\ninstances = 1.5", "line 2: instances: a whole number"),
        ("timeout_s = 0", "line 1: timeout_s: seconds above 0 expected"),
        ("timeout_s = nan", "line 1: timeout_s: seconds above 0 expected"),
        ("versions = []", "line 1: versions: a list of whole numbers"),
        ("versions = [0]", "line 1: versions: a list of whole numbers"),
        ('rows = "dependent"', "line 1: rows: 'independent' expected"),
        ("target = 3", "line 1: target: a text expected"),
        ("shapes = 3", "line 1: shapes: a table of inputs expected"),
        ('[shapes]\nx = "1x3"', "line 1: shapes: a list of sizes expected for 'x'"),
        ("[shapes]\nx = [1.5]", "shapes: 'x': whole numbers, names and dimensions expected"),
        ("[shapes]\nx = [{name = 'n', most = 3}]", "shapes: 'x': a dimension has name, low, high and multiple"),
        ("[shapes]\nx = [{name = 'n', low = 5, high = 3}]", "shapes: 'x': Dim 'n': there is no size"),
        ("a = " + "[" * 5000, "TOML expected"),
    ],
)
def test_configurations_that_are_refused_with_their_line(tmp_path, text, told):
    with pytest.raises(ServingError, match="GPC1210") as caught:
        config(tmp_path, text)
    assert told in caught.value.message


def test_a_configuration_that_is_no_text(tmp_path):
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(ServingError, match=r"GPC1210 .*TOML expected"):
        read_config(tmp_path / "config.toml")
