"""Three small models end to end: their CUDA kernels run on the CPU and give onnxruntime's answer in any thread order."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from cuda_on_cpu.whole_models import ModelOnCpu

import gpucomp
from bench.models import build, inputs
from bench.suite import relative_error

MODELS = {
    "convolutions": ("resnet18", {}),
    "depthwise": ("mobilenet_v2", {}),
    "attention": ("vit_tiny", {}),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_model_gives_onnxruntime_s_answer_in_three_thread_orders(case):
    name, sizes = MODELS[case]
    model = build(name, reduced=True, **sizes)
    feeds = inputs(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    expected = dict(zip(names, session.run(None, feeds), strict=True))

    on_cpu = ModelOnCpu(gpucomp.compile(model, target="cuda:sm_80"))
    forward, backward, shuffled = (on_cpu.run(feeds, order=o, seed=7) for o in ("forward", "reversed", "shuffled"))

    for output in names:
        assert relative_error(forward[output], expected[output]) <= 1e-5
        np.testing.assert_array_equal(backward[output], forward[output])
        np.testing.assert_array_equal(shuffled[output], forward[output])
