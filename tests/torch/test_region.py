"""How a compiled graph gets and gives tensors on a GPU, without one: the executable's part is played here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="could not import 'torch'")
pytest.importorskip("onnxscript", reason="could not import 'onnxscript'")

from gpucomp.torch import region  # noqa: E402
from gpucomp.torch.capture import Given, Taken  # noqa: E402
from gpucomp.torch.weights import Watch  # noqa: E402


class Executable:
    """Takes what a CUDA executable takes, and gives arrays that are not numpy's."""

    target = "cuda:sm_90a"

    def run(self, inputs, **how):
        self.inputs, self.how = inputs, how
        return {"y": inputs["x"] * inputs["n"].item()}


def test_tensors_on_a_gpu_stay_there_in_the_order_of_torchs_stream(monkeypatch):
    stream = SimpleNamespace(cuda_stream=7)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    exe = Executable()
    taken = [Taken(1, "x", (3, 2)), Taken(0, "n", None)]
    given = [Given("y", (1, 0), torch.float32, (3, 2))]
    state = region._State(exe, Watch({}), taken, given, torch.device("cuda"), None)
    x = torch.randn(2, 3).T

    *args, found = state.run([5, x])

    assert exe.how == {"outputs": "device", "stream": stream}
    assert isinstance(exe.inputs["x"], torch.Tensor)
    assert exe.inputs["x"].is_contiguous()
    assert args[0] == 5
    assert args[1] is x
    torch.testing.assert_close(found, x.T * 5)


def test_tensors_that_are_contiguous_are_given_without_a_copy():
    exe = Executable()
    exe.target = "cpu"
    x = torch.randn(3, 2)
    run = exe.run
    exe.run = lambda inputs: run(inputs) and {"y": inputs["x"]}
    taken = [Taken(0, "x", (3, 2)), Taken(1, "n", None)]
    given = [Given("y", (), torch.float32, (3, 2))]
    state = region._State(exe, Watch({}), taken, given, torch.device("cpu"), None)

    *_, found = state.run([x, 2])

    assert exe.inputs["x"].ctypes.data == x.data_ptr() == found.data_ptr()
