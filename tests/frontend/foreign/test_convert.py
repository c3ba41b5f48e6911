"""Paths of other formats: who reads each, what is refused, and converters that fail, crash, hang or write nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest

import gpucomp
from gpucomp import config
from gpucomp.frontend.foreign import convert, formats
from gpucomp.frontend.foreign.convert import as_onnx
from gpucomp.frontend.foreign.formats import REFUSED, SAVED_MODEL, Converter, converter_of
from tests.onnx_builders import model, node, value

FAKE = """
import sys
from pathlib import Path
name, source, target = sys.argv[1:]
text = Path(source).read_text()
with open(Path(source).with_name("calls"), "a") as file:
    file.write("x")
exec(text)
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A converter whose models are Python programs; it stands in for one that is not installed here."""
    (tmp_path / "fake_converter.py").write_text(FAKE)
    monkeypatch.setattr(convert, "PROGRAMS", "fake_converter")
    monkeypatch.setattr(
        formats,
        "CONVERTERS",
        {".fake": Converter("fake", "a model of Fake", "torch", ("json",), (f"PYTHONPATH={tmp_path}",))},
    )

    def written(text):
        path = tmp_path / "net.fake"
        path.write_text(text)
        return path

    return written


RELU = model([node("Relu", ["x"], ["y"])], [value("x", [2, 3])])
WRITES = f"Path(target).write_bytes(bytes.fromhex('{RELU.SerializeToString().hex()}'))"


def test_what_a_converter_writes_is_compiled_and_kept(fake, tmp_path):
    path = fake(WRITES)
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)

    for _ in range(2):
        exe = gpucomp.compile(path, target="cpu")
        np.testing.assert_array_equal(exe.run({"x": x})["y"], np.maximum(x, 0))

    assert (tmp_path / "calls").read_text() == "x"  # once
    fake(WRITES + "\n# another model")
    gpucomp.compile(path, target="cpu")
    assert (tmp_path / "calls").read_text() == "xx"


def test_without_a_cache_each_call_converts(fake, tmp_path):
    path = fake(WRITES)

    with config.using(cache=None):
        assert as_onnx(path)[0] == as_onnx(str(path))[0] == RELU.SerializeToString()
    assert (tmp_path / "calls").read_text() == "xx"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise ValueError('no such layer: Swirl')", "failed: ValueError: no such layer: Swirl"),
        ("pass", "failed: it wrote no model"),
        ("import os; os.kill(os.getpid(), 11)", "was ended by signal 11"),
        ("import os; os._exit(3)", "failed: it wrote no model"),
    ],
)
def test_a_converter_that_fails_is_an_error(fake, text, told):
    path = fake(text)

    with pytest.raises(gpucomp.ModelError, match="its converter ") as caught:
        gpucomp.compile(path)
    assert caught.value.code == "GPC3090"
    assert told in caught.value.message


def test_a_converter_that_hangs_is_ended(fake, monkeypatch):
    monkeypatch.setattr(convert, "LIMIT_S", 0.5)
    path = fake("import time; time.sleep(60)")

    with pytest.raises(gpucomp.ModelError, match=r"took more than 0\.5 s and was ended"):
        gpucomp.compile(path)


def test_a_converter_that_writes_no_onnx_is_an_error(fake):
    path = fake("Path(target).write_text('no model at all')")

    for _ in range(2):  # it is not kept
        with pytest.raises(gpucomp.ModelError, match="its converter wrote no model"):
            gpucomp.compile(path)


def test_a_converter_that_is_not_installed_is_named_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(
        formats, "CONVERTERS", {".fake": Converter("fake", "a model of Fake", "torch", ("no_such_module",))}
    )

    with pytest.raises(
        gpucomp.DeviceError, match=r"no_such_module, which reads it, is not installed: pip install 'torch"
    ) as caught:
        gpucomp.compile(tmp_path / "net.fake")
    assert caught.value.code == "GPC5003"


def test_a_file_that_is_not_there_is_an_error(fake, tmp_path):
    with pytest.raises(gpucomp.ModelError, match="cannot be read") as caught:
        gpucomp.compile(tmp_path / "none.fake")
    assert caught.value.code == "GPC3001"


@pytest.mark.parametrize("suffix", [*REFUSED, "-symbol.json", ".PKL"])
def test_what_nobody_converts_is_refused_with_what_to_do(suffix):
    with pytest.raises(gpucomp.UsageError) as caught:
        gpucomp.compile(f"net{suffix}")
    assert caught.value.code == "GPC2054"
    assert len(caught.value.message) > 60


def test_a_pickle_is_never_opened(tmp_path):
    path = tmp_path / "net.pkl"
    path.write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")

    with pytest.raises(gpucomp.UsageError, match=r"skl2onnx\.to_onnx"):
        gpucomp.compile(path)
    assert not (tmp_path / "ran").exists()


def test_a_folder_of_tensorflow_is_known_by_its_file(tmp_path):
    assert converter_of(tmp_path) is None
    (tmp_path / "saved_model.pb").touch()

    assert converter_of(tmp_path) is SAVED_MODEL


def test_a_model_of_paddle_is_known_by_the_weights_beside_it(tmp_path):
    path = tmp_path / "inference.json"
    assert converter_of(path) is None
    path.with_suffix(".pdiparams").touch()

    assert converter_of(path) is converter_of(tmp_path / "inference.pdmodel")


def test_other_paths_are_read_as_onnx():
    for path in ("model.onnx", "model", "model.onnx.data", "x/y.textproto"):
        assert converter_of(Path(path)) is None


def test_bytes_and_models_are_left_alone():
    assert as_onnx(RELU) == (RELU, None)
    assert as_onnx(b"x.pkl", {"x": (2, 3)}) == (b"x.pkl", {"x": (2, 3)})


def test_a_model_of_keras_is_compiled(tmp_path):
    if find_spec("keras") is None:  # it is not imported here: by itself it asks for TensorFlow
        pytest.skip("could not import 'keras'")
    program = (
        "import keras, numpy as np; keras.utils.set_random_seed(3);"
        "layers = [keras.layers.Conv2D(5, 3, activation='relu'), keras.layers.GlobalMaxPooling2D(), keras.layers.Dense(4)];"
        "m = keras.Sequential([keras.Input((7, 9, 3)), *layers]); m.save('net.keras');"
        "x = np.random.rand(2, 7, 9, 3).astype('float32'); np.savez('io', x=x, y=keras.ops.convert_to_numpy(m(x)))"
    )
    subprocess.run(
        ["env", "KERAS_BACKEND=torch", sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True
    )
    known = np.load(tmp_path / "io.npz")
    content, _ = as_onnx(tmp_path / "net.keras")
    name = onnx.load_model_from_string(content).graph.input[0].name

    exe = gpucomp.compile(tmp_path / "net.keras", target="cpu", shapes={name: ("n", 7, 9, 3)})

    (y,) = exe.run({name: known["x"]}).values()
    np.testing.assert_allclose(y, known["y"], rtol=1e-5, atol=1e-5)
