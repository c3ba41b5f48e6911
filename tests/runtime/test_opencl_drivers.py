"""Plans and models on the OpenCL drivers beside PoCL: one device, which gpucomp finds and describes itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpucomp
from bench.models import build, inputs
from gpucomp.backend import Backend
from gpucomp.cli.compare import onnxruntime_session, relative_error
from gpucomp.errors import KernelBuildError, ScheduleError
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.runtime.opencl import OpenCLProgram
from gpucomp.targets import opencl, opencl_build
from gpucomp.targets.cache import KernelCache
from testing import opencl_drivers
from testing.opencl_drivers import DRIVERS
from tests.kernel.passes.test_dots import MODELS as QUANTISED
from tests.onnx_cases import cases, listed, verdict
from tests.opencl_params import OTHERS, param
from tests.plans import COLUMNS, ROWS, answer, split_products, two_layers

X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
SPREAD = listed(Path(__file__).parents[1] / "onnx_spread_opencl.txt")
FOREIGN = b"\x7fELF of another driver, which rusticl aborts over"
NODE_CASES = 12  # of ONNX's own for each driver, no two of which have the same ones


class OpenclBackend(Backend):
    @classmethod
    def prepare(cls, model, device="OPENCL", **kwargs):
        return super().prepare(model, device, **kwargs)


# ---- in the driver's process ----


def answers(make, feeds, **options):
    """What the program of a plan gives for each of ``feeds``, its times, and the spans of its launches."""
    plan, sources, weights = make(opencl.resolve(""), **options)
    program = OpenCLProgram(plan, sources, {}, weights)
    return (
        [program.run({"x": x}) for x in feeds],
        program.profile({"x": feeds[0]}),
        program.timeline({"x": feeds[0]})[1],
    )


def built(text, folder):
    """What was built of ``text``, from the source and then from the cache: the names of kernels, the size of the binary."""
    (device,) = opencl.devices()
    context, source = (
        opencl.pyopencl().Context([device]),
        KernelSource("k0", "opencl", text, Geometry((1, 1, 1), (1, 1, 1))),
    )
    made = [opencl_build.program(context, device, source, KernelCache(folder)) for _ in range(2)]
    loaded = [opencl_build.load_all(context, device, [(source, binary)], None)[0] for binary in (made[0][1], FOREIGN)]
    return [program.kernel_names for program in (*(program for program, _ in made), *loaded)], len(made[0][1])


def outputs(model, feeds, path):
    """What a model gives, compiled, and once more from its file; its kernels' text."""
    executable = gpucomp.compile(model, target="opencl")
    executable.save(path)
    text = "\n".join(source for _, source in sorted(executable.sources.items()))
    return executable.run(feeds), gpucomp.load(path).run(feeds), text


def verdicts(names):
    """What is wrong with ONNX's cases; f64 on a device that has none is not."""
    found = {name: verdict(cases()[name], OpenclBackend) for name in names}
    lacks = "no f64 arithmetic" if "fp64" not in opencl.resolve("").features else "nothing"
    return {name: fault for name, fault in found.items() if fault and lacks not in fault}


# ---- plans ----


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("device", OTHERS)
def test_a_plan_gives_its_answer_run_after_run(device, host):
    feeds = [X * np.float32(scale) for scale in (1, -2, 3)]

    found, times, spans = opencl_drivers.process(device).call(answers, two_layers, feeds, host=host)

    for x, outputs_ in zip(feeds, found, strict=True):
        for name, wanted in answer(x, host=host).items():
            np.testing.assert_array_equal(outputs_[name], wanted, err_msg=name)
    assert [time > 0 for time in times] == ([True, False, True] if host else [True, True])
    assert [span.launch for span in spans] == ([0, 2] if host else [0, 1])


@pytest.mark.parametrize("device", OTHERS)
def test_split_sums_are_whole_run_after_run(device):
    x = np.random.default_rng(5).integers(-9, 10, (19, 53)).astype(np.float32)
    _, _, weights = split_products(opencl.manifest("pocl"))
    process = opencl_drivers.process(device)
    if not process.call(opencl.resolve, "").limits.device_fence:
        with pytest.raises(ScheduleError, match="no fence that orders memory between work-groups"):
            process.call(answers, split_products, [x])
        return

    found, _, _ = process.call(answers, split_products, [x, -x, x])

    for sign, outputs_ in zip((1, -1, 1), found, strict=True):
        np.testing.assert_array_equal(outputs_["y"], np.maximum(sign * x @ weights["w0"] + weights["w1"], 0))


@pytest.mark.parametrize("device", OTHERS)
def test_a_binary_is_loaded_and_another_driver_s_is_built_from_the_source(device, tmp_path):
    names, size = opencl_drivers.process(device).call(
        built, "__kernel void k0(__global float* x) { x[0] = 1; }", tmp_path
    )

    assert names == ["k0"] * 4
    assert size > 100


@pytest.mark.parametrize("device", OTHERS)
def test_what_a_driver_s_compiler_refuses_is_told_in_its_words(device, tmp_path):
    with pytest.raises(KernelBuildError, match=r"GPC51.*use of undeclared identifier 'nonsense'"):
        opencl_drivers.process(device).call(built, "__kernel void k0(__global float* x) { x[0] = nonsense; }", tmp_path)


# ---- models ----


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize("device", OTHERS)
def test_quantised_layers_give_the_processor_s_codes(device, name, tmp_path):
    model, x, _ = QUANTISED[name]

    first, loaded, text = opencl_drivers.process(device).call(outputs, model, {"x": x}, tmp_path / "m.gpuc")

    assert ("dot_4x8packed_us_int(" in text) is (
        "khr_dot" in opencl_drivers.process(device).call(opencl.resolve, "").features
    )
    right = gpucomp.compile(model, target="cpu").run({"x": x})["y"]
    np.testing.assert_array_equal(first["y"], right)
    np.testing.assert_array_equal(loaded["y"], right)


@pytest.mark.parametrize(("device", "name"), [param("intel", "shufflenet_v2"), param("rusticl", "vit_tiny")])
def test_a_whole_model_gives_onnxruntime_s_answer(device, name, tmp_path):
    model = build(name, reduced=True)
    feeds = inputs(model)
    session = onnxruntime_session(model.SerializeToString())

    first, loaded, _ = opencl_drivers.process(device).call(outputs, model, feeds, tmp_path / "m.gpuc")

    for output, right in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        assert relative_error(first[output.name], right) <= 1e-5
        np.testing.assert_array_equal(loaded[output.name], first[output.name])


@pytest.mark.parametrize("device", OTHERS)
def test_a_driver_passes_a_spread_of_onnx_s_own_cases(device):
    part = len(SPREAD) // NODE_CASES
    names = SPREAD[list(DRIVERS).index(device) :: part]

    assert opencl_drivers.process(device).call(verdicts, names) == {}
