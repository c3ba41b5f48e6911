"""The command line over the sample model: compiling is replaced, everything else is real."""

import numpy as np
import pytest

import gpucomp
from gpucomp import cli, config
from gpucomp.errors import ModelError
from tests.runtime.samples import executable, use_numpy

X = np.arange(15, dtype=np.float32).reshape(3, 5)


class Outcome:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def error(self):
        """The only line on stderr."""
        (line,) = self.err.splitlines()
        return line


@pytest.fixture
def compiled(monkeypatch):
    """Calls of ``gpucomp.compile``; each gives the sample."""
    use_numpy(monkeypatch)
    calls = []

    def compile(model, *, target, shapes, progress, precision, keep_fp32):
        call = {"model": model, "target": target, "shapes": shapes}
        calls.append(call | ({"precision": precision, "keep_fp32": keep_fp32} if precision != "fp32" else {}))
        if not model.exists():
            raise ModelError(f"model '{model}': no such file or directory", code="GPC3001")
        progress("kernels", 1, 2)
        return executable()

    monkeypatch.setitem(vars(gpucomp), "compile", compile)
    return calls


@pytest.fixture
def command(monkeypatch, tmp_path, capfd):
    """Runs ``gpucomp ARGUMENTS`` in a fresh folder with a model.onnx and an x.npy in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.excepthook", __import__("sys").excepthook)
    (tmp_path / "model.onnx").write_bytes(b"stands for a model")
    np.save(tmp_path / "x.npy", X)
    with config.using():

        def run(*arguments):
            code = cli.main([str(a) for a in arguments])
            out, err = capfd.readouterr()
            return Outcome(code, out, err)

        yield run
