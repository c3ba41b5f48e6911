"""Models compiled for AMD's GPUs run end to end: ``HipProgram`` launches kernels whose HIP text runs on this processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import gpucomp
from bench.models import build, inputs
from gpucomp.cli.compare import relative_error
from gpucomp.runtime.hip import HipProgram
from gpucomp.targets import amdgcn
from testing.cuda_on_cpu.harness import hip_compiler
from tests.fake_hip.kernels import on_this_processor
from tests.fake_hip.runtime import FakeHip

pytestmark = pytest.mark.skipif(
    amdgcn.compiler("hip") is None or amdgcn.linker() is None or hip_compiler() is None,
    reason="clang 18 or lld is not installed",
)
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
MODELS = ("digits", "resnet18", "bert_base")
CASES = [(case, arch) for arch in ("gfx90a", "gfx1100") for case in MODELS]
CASES += [("digits", arch) for arch in ("gfx908", "gfx942", "gfx1201")]  # other matrix instructions alone
LIMITS = {"fp32": 1e-5, "fp16": 4e-3, "bf16": 3e-2}
MATRIX = {
    "gfx908": {"fp32": "mfma_f32_16x16x4f32", "fp16": "mfma_f32_16x16x16f16", "bf16": "mfma_f32_16x16x8bf16("},
    "gfx90a": {"fp32": "mfma_f32_16x16x4f32", "fp16": "mfma_f32_16x16x16f16", "bf16": "mfma_f32_16x16x16bf16_1k"},
    "gfx1100": {"fp16": "wmma_f32_16x16x16_f16_w32(", "bf16": "wmma_f32_16x16x16_bf16_w32("},
    "gfx1201": {"fp16": "wmma_f32_16x16x16_f16_w32_gfx12(", "bf16": "wmma_f32_16x16x16_bf16_w32_gfx12("},
}
MATRIX["gfx942"] = MATRIX["gfx90a"]


def model_of(case):
    if case == "digits":
        image = np.random.default_rng(3).random((2, 1, 8, 8), np.float32)
        return onnx.load(DIGITS), {"image": image.shape}, {"image": image}
    model = build(case, reduced=True)
    return model, None, inputs(model)


@pytest.mark.parametrize("precision", sorted(LIMITS))
@pytest.mark.parametrize(("case", "arch"), CASES)
def test_a_model_gives_the_processor_s_answer_through_the_hip_program(case, precision, arch):
    model, shapes, feeds = model_of(case)
    exact = gpucomp.compile(model, target="cpu", shapes=shapes).run(feeds)
    exe = gpucomp.compile(model, target=f"hip:{arch}", shapes=shapes, precision=precision)
    if wanted := MATRIX[arch].get(precision):
        assert any(wanted in text for text in exe.sources.values())
    gpu = FakeHip(on_this_processor(exe.plan, exe.sources, arch), arch)

    program = HipProgram(exe.plan, exe.sources, exe.binaries, exe.weights, arrays=gpu.arrays)
    runs = [program.run(feeds) for _ in range(2)]  # launched, and replayed

    assert gpu.error is None
    assert "replay" in gpu.log
    for found in runs:
        for name, right in exact.items():
            assert relative_error(found[name], right) <= LIMITS[precision]
