"""What is missing, a compiler, a package or a device, is told before anything is compiled, and only where it is needed."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from gpucomp import cli, compiler, config
from gpucomp.errors import DeviceError
from gpucomp.targets import cuda

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
OPEN = ("--shapes", "image:2x1x8x8")


@pytest.fixture
def command(monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((2, 1, 8, 8), np.float32))

    def run(*arguments):
        with config.using():
            code = cli.main([str(a) for a in arguments])
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def no_nvrtc(monkeypatch):
    def missing():
        raise DeviceError("NVRTC was not found", code="GPC5002")

    monkeypatch.setattr(cuda, "nvrtc", missing)


@pytest.fixture
def no_work(monkeypatch):
    """Fails the test if a model is lowered to kernels."""

    def lower(*arguments, **options):
        raise AssertionError("the model was compiled")

    monkeypatch.setattr(compiler, "lower", lower)


@pytest.mark.parametrize(
    "arguments", [("compile", DIGITS, *OPEN, "-o", "d.gpuc"), ("bench", DIGITS, *OPEN, "--static")]
)
def test_a_missing_compiler_is_told_first(command, no_nvrtc, no_work, arguments):
    code, _, err = command(*arguments, "--target", "cuda:sm_80")

    assert (code, err) == (5, "error GPC5002: NVRTC was not found\n")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sound.mp3", "error GPC2003: 'sound.mp3': a file of one of these kinds expected: .npy"),
        ("none.npy", "error GPC2004: cannot read 'none.npy': No such file or directory"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "bench"])
def test_a_file_that_cannot_be_an_input_is_told_first(command, no_work, verb, file, text):
    code, _, err = command(verb, DIGITS, *OPEN, "--input", f"image={file}")

    assert code == 2
    assert err.startswith(text)


def test_missing_inputs_are_told_before_the_model_is_compiled(command, no_work):
    code, out, err = command("run", DIGITS, *OPEN)

    assert (code, out) == (2, "")
    assert err == "error GPC2109: not all inputs are given, missing: 'image'; give each a file: --input NAME=FILE\n"


def packages(missing=""):
    """``find_spec`` on a machine with the packages that run CUDA kernels, except for one."""
    genuine, running = importlib.util.find_spec, ("cupy", "cuda.bindings")
    return lambda name, *more: (name != missing or None) if name in running else genuine(name, *more)


@pytest.mark.parametrize("name", ["run", "bench", "compare", "tune"])
def test_a_missing_driver_is_told_before_the_model_is_compiled(command, no_work, name, monkeypatch):
    def nothing():
        raise DeviceError("no CUDA driver was found", code="GPC5001")

    monkeypatch.setattr(importlib.util, "find_spec", packages())
    monkeypatch.setattr(cuda, "device_here", nothing)

    code, _, err = command(name, DIGITS, *OPEN, "--target", "cuda:sm_80")

    assert (code, err) == (5, "error GPC5001: no CUDA driver was found\n")


@pytest.mark.parametrize("missing", ["cupy", "cuda.bindings"])
def test_a_missing_package_of_cuda_is_told_before_the_model_is_compiled(command, no_work, missing, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", packages(missing))

    code, _, err = command("run", DIGITS, *OPEN, "--target", "cuda:sm_80")

    assert code == 5
    assert err.startswith(
        f"error GPC5002: {missing.replace('.', '-')} is not installed: pip install 'cupy-cuda13x>=14'"
    )


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("PIL.Image", ("run", DIGITS, *OPEN, "--input", "image=x.png")),
        ("PIL.Image", ("bench", DIGITS, *OPEN, "--input", "x.jpeg")),
        ("onnxruntime", ("run", DIGITS, *OPEN, "--input", "x.npy", "--compare", "onnxruntime")),
        ("onnxruntime", ("compare", DIGITS, *OPEN)),
        ("distributed", ("tune", DIGITS, *OPEN, "--fleet", "tcp://127.0.0.1:8786")),
    ],
)
def test_a_missing_package_is_told_before_the_model_is_compiled(command, no_work, module, arguments, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)

    code, _, err = command(*arguments)

    assert code == 5
    assert err.startswith("error GPC5003: ")
    assert "pip install '" in err


@pytest.mark.parametrize("options", [("--kernels",), ("--sources", "src"), ("--why",), ()])
def test_nothing_is_compiled_to_print_a_text(command, no_nvrtc, options):
    code, out, _ = command("inspect", DIGITS, *OPEN, "--target", "cuda:sm_80", *options)

    assert code == 0
    assert out


@pytest.mark.parametrize("options", [("--kernels",), ()])
def test_what_is_not_compiled_looks_like_what_is(command, options):
    made = command("compile", DIGITS, *OPEN, "--target", "cuda:sm_80", "-o", "d.gpuc")

    assert made[0] == 0
    unbuilt, built = (
        command("inspect", *of, *options)[1] for of in ((DIGITS, *OPEN, "--target", "cuda:sm_80"), ("d.gpuc",))
    )
    assert [sorted(line.split()) for line in unbuilt.splitlines()] == [
        sorted(line.split()) for line in built.splitlines()
    ]
