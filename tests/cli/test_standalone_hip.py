"""The program of a wrong kernel of HIP, which needs no gpucomp: compiled by clang, run on the fake GPU."""

from __future__ import annotations

import ctypes
import json
import runpy
import sys

import numpy as np
import pytest

import gpucomp
from gpucomp import targets
from gpucomp.cli import reproduce
from gpucomp.cli.blame import Alone
from gpucomp.cli.compare import Tolerance
from gpucomp.targets import amdgcn
from testing.cuda_on_cpu.harness import hip_compiler
from tests.fake_hip.kernels import on_this_processor
from tests.fake_hip.runtime import FakeHip
from tests.onnx_builders import model, node, value

TARGET = "hip:gfx90a"
needs_compilers = pytest.mark.skipif(
    hip_compiler() is None or amdgcn.linker() is None, reason="clang 18 or newer, or lld, is not installed"
)


@pytest.fixture
def written(tmp_path):
    """The folder of a kernel, and its plan and sources."""
    weights = np.linspace(-2, 2, 6 * 5, dtype=np.float32).reshape(6, 5)
    made = model(
        [node("MatMul", ["x", "w"], ["s"]), node("Relu", ["s"], ["y"])], [value("x", (7, 6))], ["y"], {"w": weights}
    )
    exe = gpucomp.compile(made, target=TARGET)
    x = np.random.default_rng(3).standard_normal((7, 6)).astype(np.float32)
    alone = Alone(exe, {"x": x}, {"y": np.maximum(x @ weights, 0)})
    reproduce._write_kernel(tmp_path, alone, targets.resolve(TARGET), Tolerance())
    return tmp_path, exe


def run(folder, gpu, monkeypatch, capsys):
    load = ctypes.CDLL
    monkeypatch.setattr(
        ctypes, "CDLL", lambda name, *more: gpu.library if "amdhip64" in str(name) else load(name, *more)
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "common", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(folder / "run.py"))
    monkeypatch.delitem(sys.modules, "common", raising=False)
    return ended.value.code, capsys.readouterr().out


@needs_compilers
@pytest.mark.parametrize("wrong", [False, True])
def test_the_kernel_alone_says_whether_it_is_wrong(written, wrong, monkeypatch, capsys):
    folder, exe = written
    sources = dict(exe.sources)
    if wrong:  # what the fake GPU runs
        sources = {name: text.replace("total < 0.0f ?", "total < 0.5f ?") for name, text in sources.items()}
        assert sources != dict(exe.sources)
    gpu = FakeHip(on_this_processor(exe.plan, sources, "gfx90a"))

    code, out = run(folder, gpu, monkeypatch, capsys)

    assert (code, "WRONG" in out, "ok" in out) == ((6, True, False) if wrong else (0, False, True))
    assert gpu.code()[:4] == b"\x7fELF"
    assert gpu.done("launch")


@needs_compilers
def test_the_text_is_compiled_as_it_was_for_the_model(written):
    folder, exe = written
    launches = json.loads((folder / "launch.json").read_text())["launches"]

    assert {launch["source"] for launch in launches} == set(exe.sources)
    assert all("--offload-arch=gfx90a" in launch["flags"] for launch in launches)
    assert all("__global__" in (folder / launch["source"]).read_text() for launch in launches)


def test_without_rocm_it_is_said_what_is_missing(written, monkeypatch, capsys):
    folder, _ = written

    def missing(name, *more):
        raise OSError(f"{name} is not here")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "common", raising=False)
    with pytest.raises(SystemExit, match=r"libamdhip64\.so was not found: install ROCm's HIP runtime"):
        runpy.run_path(str(folder / "run.py"))
