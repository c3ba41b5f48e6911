"""Paths of other formats: who reads each, what is refused, and converters that fail, crash, hang or write nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest

import gpucomp
from gpucomp import config
from gpucomp.frontend.foreign import convert, formats, installed, own_code
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
    (tmp_path / "net.fake").write_text("")

    with pytest.raises(
        gpucomp.DeviceError, match=r"no_such_module, which reads it, is not installed: pip install 'torch"
    ) as caught:
        gpucomp.compile(tmp_path / "net.fake")
    assert caught.value.code == "GPC5003"


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("kind", ["missing", "pipe", "device", "folder", "NUL"])
def test_what_is_no_file_is_an_error_at_once(fake, tmp_path, kind, cache):
    path = tmp_path / ("none\0.fake" if kind == "NUL" else "none.fake")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()

    with config.using(**({} if cache else {"cache": None})), pytest.raises(gpucomp.ModelError) as caught:
        gpucomp.compile(path)
    assert caught.value.code == "GPC3001"


def test_a_file_that_is_written_again_meanwhile_is_not_kept(fake, tmp_path):
    first = WRITES + "\nPath(source).write_text('another model')"
    for _ in range(2):
        as_onnx(fake(first))

    assert (tmp_path / "calls").read_text() == "xx"


def test_a_converter_sees_a_link_by_its_own_name(fake, tmp_path):
    path = fake(WRITES + "\nassert source.endswith('/net.fake'), source")
    path.rename(tmp_path / "blob")
    path.symlink_to("blob")

    assert as_onnx(path)[0] == RELU.SerializeToString()


def test_the_files_of_a_folder_are_followed_through_links_once(tmp_path):
    converter = Converter("saved_model", "a folder", "torch", ("json",), folder=True)
    place, elsewhere = tmp_path / "model", tmp_path / "elsewhere"
    place.mkdir()
    elsewhere.mkdir()
    (place / "saved_model.pb").write_bytes(b"x")
    (elsewhere / "weights").write_bytes(b"1")
    (place / "variables").symlink_to(elsewhere)
    (elsewhere / "above").symlink_to(place)
    before = convert._key(place, converter, {})
    assert before == convert._key(place, converter, {})

    (elsewhere / "weights").write_bytes(b"2")

    assert convert._key(place, converter, {}) != before


def test_the_key_has_versions_of_packages_by_any_name(monkeypatch):
    known = {"tensorflow-cpu": "2.19.1", "tf2onnx": "1.17.0", "onnx": "1.21", "onnx_ir": "1.1"}

    def version(name):
        if name not in known:
            raise installed.PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr(installed, "version", version)
    monkeypatch.setattr(installed, "packages_distributions", lambda: {"tensorflow": ["tensorflow-cpu"]})
    monkeypatch.setattr(installed.importlib.util, "find_spec", lambda name: name != "paddle" or None)

    assert installed.versions([*SAVED_MODEL.modules, "paddle"]) == {
        "tensorflow": "tensorflow-cpu 2.19.1",
        "tf2onnx": "tf2onnx 1.17.0",
        "paddle": None,
    }


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """The Python of an environment without any packages but a stand-in for paddle's."""
    folder = tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "paddle.py").write_text("")
    text = f"def export(source, weights, target): open(target, 'wb').write(bytes.fromhex('{RELU.SerializeToString().hex()}'))"
    (packages / "paddle2onnx.py").write_text("import beside\n" + text)
    (packages / "beside.py").write_text("")
    return folder / "bin" / "python"


def test_converters_of_another_environment_need_nothing_else_there(elsewhere, tmp_path, monkeypatch):
    (tmp_path / "inference.json").write_text("{}")
    (tmp_path / "inference.pdiparams").write_text("")
    (tmp_path / "net.keras").write_text("")

    # gpucomp as it is installed, with a package beside it that the other environment has too
    (tmp_path / "gpucomp").symlink_to(convert.PACKAGE)
    (tmp_path / "beside.py").write_text("raise ImportError('of the other environment')")
    monkeypatch.setattr(convert, "PACKAGE", tmp_path / "gpucomp")

    with config.using(converters=elsewhere, cache=None):
        exe = gpucomp.compile(tmp_path / "inference.json", target="cpu")
        with pytest.raises(gpucomp.DeviceError, match="keras, which reads it, is not installed"):
            gpucomp.compile(tmp_path / "net.keras")

    np.testing.assert_array_equal(exe.run({"x": -np.ones((2, 3), np.float32)})["y"], np.zeros((2, 3)))


def test_packages_that_do_not_fit_beside_gpucomp_are_told_an_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(installed, "versions", lambda modules: dict.fromkeys(modules))
    (tmp_path / "inference.pdmodel").write_text("")

    with pytest.raises(gpucomp.DeviceError, match=r"python -m venv converters && .*'paddle2onnx>=2.1,<3'.*CONVERTERS="):
        gpucomp.compile(tmp_path / "inference.pdmodel")


@pytest.mark.parametrize("python", ["no/such/python", "/bin/false", "/bin/echo"])
def test_a_python_that_is_none_is_an_error(tmp_path, python):
    (tmp_path / "net.keras").write_text("")

    with config.using(converters=Path(python)), pytest.raises(gpucomp.DeviceError, match="cannot be asked what it has"):
        gpucomp.compile(tmp_path / "net.keras")


def fails_with(told):
    return f"Path(target).with_name('error.json').write_text({told!r}); raise SystemExit(1)"


@pytest.mark.parametrize(("code", "error"), [("GPC3091", gpucomp.ModelError), ("GPC4022", gpucomp.UnsupportedError)])
def test_an_error_that_the_converter_found_has_its_own_code(fake, code, error):
    path = fake(fails_with(json.dumps({"code": code, "message": "has something"})))

    with pytest.raises(error, match=r"net\.fake.*has something") as caught:
        gpucomp.compile(path)
    assert caught.value.code == code


@pytest.mark.parametrize("told", ["", "[]", "{}", '{"code": "GPC9001", "message": "x"}', "3"])
def test_an_error_that_cannot_be_read_is_a_failure(fake, told):
    with pytest.raises(gpucomp.ModelError) as caught:
        gpucomp.compile(fake(fails_with(told)))
    assert caught.value.code == "GPC3090"


GRANDCHILD = """
import subprocess
child = subprocess.Popen(["sleep", "600"])
Path(source).with_name("pid").write_text(str(child.pid))
"""


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def has_ended(pid):
    """Within a minute: who kills a process that is not its child cannot wait for its end."""
    limit = time.monotonic() + 60
    while is_running(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    return not is_running(pid)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it asks Linux for the state of a process")
@pytest.mark.parametrize("hangs", [False, True])
def test_what_a_converter_starts_is_ended_with_it(fake, tmp_path, monkeypatch, hangs):
    monkeypatch.setattr(convert, "LIMIT_S", 2 if hangs else 30)
    path = fake(GRANDCHILD + ("child.wait()" if hangs else WRITES))
    start = time.monotonic()

    if hangs:
        with pytest.raises(gpucomp.ModelError, match="took more than 2 s"):
            as_onnx(path)
    else:
        as_onnx(path)
    assert time.monotonic() - start < 25
    assert has_ended((tmp_path / "pid").read_text())


def test_the_last_line_of_many_is_told(fake):
    text = (
        "for _ in range(1000):\n    print('x' * 9999, file=sys.stderr); print('y' * 9999)\nraise ValueError('at last')"
    )

    with pytest.raises(gpucomp.ModelError, match="failed: ValueError: at last"):
        gpucomp.compile(fake(text))


def test_a_converter_that_cannot_be_started_is_an_error(fake, monkeypatch):
    def none(*args, **named):
        raise OSError(12, "Cannot allocate memory")

    path = fake(WRITES + "\n# which is not in the cache")
    monkeypatch.setattr(subprocess, "Popen", none)

    with pytest.raises(gpucomp.ModelError, match="cannot be started: Cannot allocate memory") as caught:
        gpucomp.compile(path)
    assert caught.value.code == "GPC3090"


def test_a_model_with_files_beside_it_is_too_large(fake):
    with pytest.raises(gpucomp.ModelError, match="larger than 2 GiB") as caught:
        gpucomp.compile(fake(WRITES + "\nPath(target + '.data').touch()"))
    assert caught.value.code == "GPC3090"


def test_an_onnx_model_may_be_called_pb(tmp_path):
    path = tmp_path / "model.pb"
    path.write_bytes(RELU.SerializeToString())
    assert gpucomp.compile(path, target="cpu").inputs[0].shape == (2, 3)

    path.write_bytes(b"\x0a\x05graph")
    with pytest.raises(gpucomp.UsageError, match="frozen graph"):
        gpucomp.compile(path)


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


def keras_files(folder, program):
    if find_spec("keras") is None:  # it is not imported here: by itself it asks for TensorFlow
        pytest.skip("could not import 'keras'")
    start = "import keras, numpy as np; L = keras.layers; keras.utils.set_random_seed(3);"
    command = ["env", "KERAS_BACKEND=torch", sys.executable, "-c", start + program]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize(
    "layers",
    [
        "keras.Input((7, 9, 3)), L.Conv2D(5, 3, activation='relu'), L.GlobalMaxPooling2D(), L.Dense(4)",
        "keras.Input((6, 4)), L.LSTM(5, return_sequences=True), L.TimeDistributed(L.Dense(3)), L.Bidirectional(L.GRU(3))",
        "keras.Input((9,)), L.Rescaling(400, -200), L.Activation('log_sigmoid')",
        "keras.Input((5, 5, 2)), L.Resizing(6, 7, interpolation='nearest')",
    ],
    ids=["images", "steps", "numbers", "sizes"],
)
def test_a_model_of_keras_is_compiled(tmp_path, layers):
    keras_files(
        tmp_path,
        f"m = keras.Sequential([{layers}]); m.save('net.keras');"
        "x = np.random.rand(2, *m.input_shape[1:]).astype('float32');"
        "np.savez('io', x=x, y=keras.ops.convert_to_numpy(m(x)))",
    )
    known = np.load(tmp_path / "io.npz")
    content, _ = as_onnx(tmp_path / "net.keras")
    name = onnx.load_model_from_string(content).graph.input[0].name

    exe = gpucomp.compile(tmp_path / "net.keras", target="cpu", shapes={name: ("n", *known["x"].shape[1:])})

    (y,) = exe.run({name: known["x"]}).values()
    np.testing.assert_allclose(y, known["y"], rtol=1e-5, atol=1e-5)


def test_a_model_of_keras_with_open_sizes_beyond_the_batch_is_refused(tmp_path):
    keras_files(
        tmp_path,
        "inner = keras.Sequential([keras.Input((None, 4)), L.LSTM(5)]);"
        "x, y = keras.Input((8, 2)), keras.Input((None, 4), name='steps');"
        "keras.Model([x, y], L.Dense(2)(inner(y)) + L.Dense(2)(L.Flatten()(x))).save('net.keras')",
    )

    with pytest.raises(gpucomp.ModelError, match=r"'steps' of shape \(None, None, 4\).* fixed sizes") as caught:
        gpucomp.compile(tmp_path / "net.keras")
    assert caught.value.code == "GPC3090"


def test_what_another_release_converted_is_not_taken(fake, tmp_path, monkeypatch):
    path = fake(WRITES + "\n# converted by two releases")
    as_onnx(path)

    monkeypatch.setattr(own_code, "digest", lambda *others: "of other code")
    as_onnx(path)

    assert (tmp_path / "calls").read_text() == "xx"


def test_the_digest_of_the_code_has_each_file(tmp_path):
    other = tmp_path / "other.py"
    other.write_text("1")

    assert len({own_code.digest(), own_code.digest(other), own_code.digest(Path(own_code.__file__))}) == 3


def test_a_model_of_keras_with_several_inputs_has_their_names(tmp_path):
    keras_files(
        tmp_path,
        "x, y = keras.Input((3,), name='x'), keras.Input((4,), name='y');"
        "keras.Model([y, x], [L.Concatenate()([y, x]), x * 2]).save('net.keras')",
    )

    exe = gpucomp.compile(tmp_path / "net.keras", target="cpu")

    x, y = np.ones((2, 3), np.float32), np.full((2, 4), 7, np.float32)
    joined, doubled = exe.run({"x": x, "y": y}).values()
    np.testing.assert_array_equal(joined, np.concatenate([y, x], 1))
    np.testing.assert_array_equal(doubled, 2 * x)


def test_a_model_of_keras_that_asks_for_its_batch_is_refused(tmp_path):
    keras_files(tmp_path, "keras.Sequential([keras.Input((5, 4)), L.Masking(0.0), L.LSTM(4)]).save('net.keras')")

    with pytest.raises(gpucomp.UnsupportedError, match=r"torch\.export: .*batch") as caught:
        gpucomp.compile(tmp_path / "net.keras", target="cpu")
    assert caught.value.code == "GPC4022"
