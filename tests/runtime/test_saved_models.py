"""Real models as files: for every target the same bytes each time, and the same answers after loading."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpucomp
from examples.digits import data
from gpucomp.runtime import artifact
from gpucomp.targets import amdgcn

DIGITS = Path(data.__file__).with_name("digits.onnx")
SHAPES = {"image": (3, 1, 8, 8)}


def build(target, path, seed):
    script = (
        "import sys, gpucomp\n"
        f"gpucomp.compile({str(DIGITS)!r}, target={target!r}, shapes={SHAPES!r}).save({str(path)!r})"
    )
    environment = os.environ | {"PYTHONHASHSEED": str(seed), "GPUCOMP_CACHE": ""}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    return path.read_bytes()


@pytest.mark.parametrize("target", ["cpu", "opencl", "cuda:sm_90a", "hip:gfx90a"])
def test_two_builds_are_equal_byte_for_byte(target, tmp_path):
    if target.startswith("hip") and (amdgcn.compiler("hip") is None or amdgcn.linker() is None):
        pytest.skip("clang 18 or lld is not installed")
    first, second = (build(target, tmp_path / f"{seed}.gpuc", seed) for seed in (1, 2))

    assert first == second


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_a_loaded_model_answers_as_the_compiled_one(target, tmp_path):
    exe = gpucomp.compile(DIGITS, target=target, shapes=SHAPES)
    x = {"image": data.held_back()[0][:3]}
    exe.save(tmp_path / "m.gpuc")

    answers = [gpucomp.load(tmp_path / "m.gpuc", trusted=trusted).run(x)["logits"] for trusted in (True, False)]

    assert np.array_equal(answers[0], exe.run(x)["logits"])
    assert np.array_equal(answers[0], answers[1])


def test_a_model_for_an_absent_gpu_is_saved_and_inspected(tmp_path):
    gpucomp.compile(DIGITS, target="cuda:sm_90a", shapes=SHAPES).save(tmp_path / "m.gpuc")

    exe = gpucomp.load(tmp_path / "m.gpuc")

    assert exe.target == "cuda:sm_90a"
    assert all("__global__" in text for text in exe.sources.values())
    assert all(binary[:4] == b"\x7fELF" for binary in exe.binaries.values())
    assert [k.ops for k in exe.kernels][2] == ("Conv", "Add", "Relu")


def test_running_and_profiling_a_loaded_cpu_model_imports_no_compiler(tmp_path):
    gpucomp.compile(DIGITS, shapes=SHAPES).save(tmp_path / "m.gpuc")
    np.save(tmp_path / "x.npy", data.held_back()[0][:3])
    script = (
        "import sys, numpy, gpucomp\n"
        f"exe = gpucomp.load({str(tmp_path / 'm.gpuc')!r})\n"
        f"x = {{'image': numpy.load({str(tmp_path / 'x.npy')!r})}}\n"
        "exe.run(x)\n"
        "assert all(seconds > 0 for _, seconds in exe.profile(x)) and exe.timeline(x) and exe.ceilings().flops > 0\n"
        "assert all(k.operations and k.traffic for k in exe.kernels if k.family == 'contraction')\n"
        "print(sorted({'onnx', 'onnx_ir', 'jinja2', 'optuna', 'llvmlite', 'click', 'rich'} & set(sys.modules)))"
    )

    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert out == "[]\n"


def test_weights_of_a_loaded_model_are_mapped_not_read(tmp_path):
    gpucomp.compile(DIGITS, shapes=SHAPES).save(tmp_path / "m.gpuc")

    weights = artifact.load(tmp_path / "m.gpuc").weights

    assert weights
    assert not any(w.flags.owndata or w.flags.writeable for w in weights.values())
