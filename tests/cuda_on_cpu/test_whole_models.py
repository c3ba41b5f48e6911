"""Small models end to end: their CUDA kernels run on the CPU and give onnxruntime's answer in any thread order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import gpucomp
from bench.models import build, inputs
from gpucomp.cli.compare import onnxruntime_session, relative_error
from testing.cuda_on_cpu.whole_models import ModelOnCpu

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
SHAPES = {"image": (2, 1, 8, 8)}
MODELS = {
    "convolutions": "resnet18",
    "depthwise": "mobilenet_v2",
    "separable": "mobilenet_v1",
    "patches": "vit_tiny",
    "tokens": "bert_base",
}


def model_of(case):
    """The model, the shapes of its open inputs, and what to feed it."""
    if case == "digits":
        image = np.random.default_rng(3).random(SHAPES["image"], np.float32)
        return onnx.load(DIGITS), SHAPES, {"image": image}
    model = build(MODELS[case], reduced=True)
    return model, None, inputs(model)


@pytest.mark.parametrize("case", [*MODELS, "digits"])
def test_a_model_gives_onnxruntime_s_answer_in_three_thread_orders(case):
    model, shapes, feeds = model_of(case)
    session = onnxruntime_session(model.SerializeToString())
    names = [o.name for o in session.get_outputs()]
    expected = dict(zip(names, session.run(None, feeds), strict=True))

    on_cpu = ModelOnCpu(gpucomp.compile(model, target="cuda:sm_80", shapes=shapes))
    forward, backward, shuffled = (on_cpu.run(feeds, order=o, seed=7) for o in ("forward", "reversed", "shuffled"))

    for output in names:
        assert relative_error(forward[output], expected[output]) <= 1e-5
        np.testing.assert_array_equal(backward[output], forward[output])
        np.testing.assert_array_equal(shuffled[output], forward[output])


LIMITS = {"tf32": 4e-3, "3xtf32": 1e-5, "fp16": 4e-3}
LOWER = [("convolutions", level, "sm_80") for level in ("tf32", "3xtf32")]
LOWER += [(case, "tf32", "sm_80") for case in ("tokens", "digits")]
LOWER += [(case, "fp16", "sm_80") for case in ("separable", "digits")]
LOWER += [(case, "fp16", "sm_90a") for case in ("convolutions", "tokens")]  # where every launch starts early


@pytest.mark.parametrize(("case", "level", "arch"), LOWER)
def test_a_model_keeps_its_answer_on_matrix_units_at_lower_precision(case, level, arch):
    model, shapes, feeds = model_of(case)
    exact = gpucomp.compile(model, target="cpu", shapes=shapes).run(feeds)

    executable = gpucomp.compile(model, target=f"cuda:{arch}", shapes=shapes, precision=level)
    assert all(k.programmatic == (arch == "sm_90a") for k in executable.plan.kernels)
    on_cpu = ModelOnCpu(executable)
    forward, backward = (on_cpu.run(feeds, order=o, seed=7) for o in ("forward", "reversed"))

    assert any("gc_mma_" in text for text in executable.sources.values())
    for output, right in exact.items():
        assert relative_error(forward[output], right) <= LIMITS[level]
        np.testing.assert_array_equal(backward[output], forward[output])


def test_a_whole_model_has_no_race():
    model, shapes, feeds = model_of("digits")
    executable = gpucomp.compile(model, target="cuda:sm_80", shapes=shapes)
    assert any("__syncthreads();" in text for text in executable.sources.values())

    watched = ModelOnCpu(executable, sanitizer="thread").run(feeds, order="shuffled", seed=3)

    for name, right in ModelOnCpu(executable).run(feeds).items():
        np.testing.assert_array_equal(watched[name], right)
