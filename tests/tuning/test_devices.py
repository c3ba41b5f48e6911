"""The devices behind their three methods: this processor, PoCL, and CUDA on the driver of the tests."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpucomp import targets
from gpucomp.kernel.interpreter import expected
from gpucomp.targets import cpu, cuda, opencl
from gpucomp.targets.back_end import back_end
from gpucomp.tuning import devices, worker
from gpucomp.tuning.checks import error_of, run_checked
from gpucomp.tuning.setups import setup
from testing.kernels import add_relu, matmul, random_inputs
from tests.fake_cupy import FakeCupy
from tests.fake_driver.cubins import cubin

HOST = cpu.host()
KERNEL = add_relu(5, 37)
INPUTS = random_inputs(KERNEL)


def made_for(target, sets=2, launches=3):
    engines_of, render = back_end(target.language)
    family = engines_of(KERNEL, target.features)[-1]
    schedule = family.default(family.problem(KERNEL), target.limits).numbers
    source = render(KERNEL, schedule, target, "k0", family)
    return source, setup(KERNEL, family, source, None, INPUTS, target, sets=sets, launches=launches)


def right(outputs):
    return [error_of(a, b, 1)[1] for a, b in zip(outputs, expected(KERNEL, INPUTS), strict=True)] == ["", ""]


def test_weights_take_turns_on_their_own():
    kernel = dataclasses.replace(matmul(5, 7, 3), constants=frozenset({1}))
    engines_of, render = back_end("llvm")
    family = engines_of(kernel)[-1]
    schedule = family.default(family.problem(kernel), HOST.limits).numbers
    source = render(kernel, schedule, HOST, "k0", family)
    inputs = random_inputs(kernel)

    made = setup(
        kernel, family, source, None, inputs, HOST, constants=kernel.constants, sets=2, launches=4, weight_sets=3
    )

    names = [[made.plan.buffers[b].name for b in launch.args] for launch in made.plan.launches]
    assert [row[1] for row in names] == ["w0_1", "w1_1", "w2_1", "w0_1"]
    assert [row[0] for row in names] == ["x0_0", "x1_0", "x0_0", "x1_0"]
    assert made.weights.keys() == {"w0_1", "w1_1", "w2_1"}
    assert len({id(w) for w in made.weights.values()}) == 3


@pytest.mark.parametrize("name", ["cpu", "opencl:pocl"])
def test_a_kernel_is_run_and_timed(name):
    if name != "cpu" and not opencl.devices():
        pytest.skip("no OpenCL device")
    target = targets.resolve(name)
    device = devices.open_device(target)
    source, made = made_for(target)
    binary = {made.plan.kernels[0].binary: worker.build(source, target)}

    program = device.open(made.plan, made.sources, binary, made.weights)
    outputs, fault = run_checked(program, made)
    seconds = program.time_launches(made.inputs, 4)

    assert fault == ""
    assert right(outputs)
    assert len(seconds) == 4
    assert min(seconds) > 0
    assert device.noisy
    assert device.cache_bytes > 0
    facts = device.facts()
    assert {"kind", "arch", "name", "device", "driver", "compiler"} <= facts.keys()
    assert (facts["kind"], facts["arch"]) == (target.kind, target.arch)
    assert facts["name"] == targets.resolve(target.kind).identity != ""  # of the open device, not of a flavour


class Nvml:
    """As much of pynvml as is asked for."""

    NVMLError, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = OSError, 1, 2, 0

    def __init__(self, reasons, *, broken=False):
        self.reasons, self.broken = reasons, broken

    def nvmlInit(self):
        if self.broken:
            raise OSError("driver not loaded")

    def nvmlDeviceGetHandleByIndex(self, number):
        return number

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return self.reasons

    def nvmlDeviceGetClockInfo(self, handle, which):
        return 1000 * which

    def nvmlDeviceGetTemperature(self, handle, which):
        return 71

    def nvmlDeviceGetPowerUsage(self, handle):
        return 250_000


def a_gpu(nvml):
    def function(x, bias, relu, total):
        arrays = [a.view(np.float32) for a in (x, bias, relu, total)]
        results = expected(KERNEL, [a[: i.size].reshape(i.shape) for a, i in zip(arrays, INPUTS, strict=False)])
        for array, result in zip(arrays[2:], results, strict=True):
            array[: result.size] = result.reshape(-1)

    cupy = FakeCupy({"k0": function})
    properties = {"name": b"NVIDIA H200", "l2CacheSize": 50 << 20}
    cupy.cuda.runtime.getDeviceProperties = lambda number: properties
    cupy.cuda.runtime.driverGetVersion = lambda: 13010
    return devices.Cuda(cuda.manifest("sm_80"), cupy=cupy, nvml=nvml)


@pytest.mark.parametrize(
    ("reasons", "held", "noted"),
    [
        (0, [], []),
        (0x1, [], []),
        (0x4, [], ["power cap"]),  # a card that is busy: no reason to refuse what it measures
        (0x60, ["software thermal", "hardware thermal"], []),
        (0x84, ["power brake"], ["power cap"]),
    ],
)
def test_cuda_says_what_holds_its_clocks_back(reasons, held, noted):
    found = a_gpu(Nvml(reasons)).clocks()

    assert found == {
        "sm_mhz": 1000,
        "memory_mhz": 2000,
        "celsius": 71,
        "watts": 250.0,
        "held_by": held,
        "noted": noted,
    }


def test_cuda_without_a_driver_to_ask_says_nothing():
    assert a_gpu(Nvml(0, broken=True)).clocks() == {}


def test_cuda_differs_in_its_device_only():
    device = a_gpu(Nvml(0))
    _, made = made_for(device.target, sets=1, launches=2)
    binaries = {k.binary: cubin("k0", [8] * len(made.plan.launches[0].args)) for k in made.plan.kernels}

    program = device.open(made.plan, made.sources, binaries, made.weights)
    seconds = program.time_launches(made.inputs, 3)
    outputs, fault = run_checked(program, made)

    assert fault == ""
    assert right(outputs)
    assert seconds == [2e-3] * 3
    assert device.facts()["device"] == "NVIDIA H200"
    assert device.facts()["name"] == cuda.identity("NVIDIA H200", 13010)  # whatever the target was called
    assert not device.noisy


def test_an_arena_that_is_a_model_s_input_is_brought_before_every_run():
    target = cpu.host()
    source, made = made_for(target, sets=1, launches=1)
    program = devices.open_device(target).open(
        made.plan, made.sources, {made.plan.kernels[0].binary: worker.build(source, target)}, made.weights
    )
    first = program.run(made.inputs)["arena"].copy()
    spoilt = {"arena": np.zeros_like(made.image)}
    program.run(spoilt)

    np.testing.assert_array_equal(program.run(made.inputs)["arena"], first)
