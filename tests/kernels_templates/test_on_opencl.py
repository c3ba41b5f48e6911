"""Every family on every OpenCL device here, compared with numpy: default and random schedules, awkward sizes.

PoCL runs all cases. Other drivers, which have another compiler front end, run each case with their own default, and a part
of the other schedules: every engine, and schedules that PoCL does not run.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace

import numpy as np
import pytest

from bench.kernel_sweep.cases import CELLS, Cell, draw
from bench.kernel_sweep.play import by_opencl, prepared
from gpucomp.errors import ScheduleError, UnsupportedError
from gpucomp.ir.types import F64
from gpucomp.kernel import Attention, Contraction, Rowwise, Scan
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.contraction.simt.space import PLAIN
from gpucomp.kernels_templates.render import render
from gpucomp.targets import opencl
from testing import opencl_device, opencl_drivers
from testing.kernels import random_inputs
from testing.opencl_drivers import DRIVERS, DriverError
from testing.template_cases import CASES, default, is_empty, spread
from testing.tolerance import assert_matches
from tests import opencl_params
from tests.opencl_params import DEVICES, OTHERS

WHOLE = [case for case in CASES if not is_empty(CASES[case])]
DRAWS = 100  # of cases for one that fits
PART = 4  # devices other than PoCL run one of this many cases with a GPU's schedule


def shared_out(cases, part=PART):
    """All ``cases`` for PoCL, and one in ``part`` for each other device. Devices have different cases."""
    own = {name: cases[k::part] for k, name in enumerate(DRIVERS)}
    return [opencl_params.param(name, case) for name in ("pocl", *DRIVERS) for case in own.get(name, cases)]


def terms_of(kernel) -> int:
    match kernel.body:
        case Contraction(k=axes) | Rowwise(cols=axes) | Attention(cols=axes):
            return max(1, math.prod(a.extent for a in axes))
        case Scan(axis=axis):
            return axis.extent
    return 1


def assert_right(kernel, schedule, target, device):
    if "fp64" not in target.features and any(t.dtype is F64 for t in kernel.params):
        with pytest.raises(UnsupportedError, match="no f64 arithmetic"):
            render(kernel, schedule, target, "k0")
        return
    inputs = random_inputs(kernel)
    found = opencl_device.run(kernel, render(kernel, schedule, target, "k0"), inputs, device=device)
    for actual, right in zip(found, expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=terms_of(kernel))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("device", DEVICES)
def test_the_default_for_the_device_gives_numpy_s_answer(device, case):
    kernel, target = CASES[case], opencl_device.target(device)

    assert_right(kernel, default(kernel, target.limits), target, device)


@pytest.mark.parametrize(("device", "case"), shared_out(WHOLE))
def test_the_default_for_a_gpu_gives_numpy_s_answer(device, case):
    kernel, gpu = CASES[case], opencl_device.gpu(device)

    assert_right(kernel, default(kernel, gpu.limits), gpu, device)


@pytest.mark.parametrize(("device", "case"), shared_out(WHOLE))
def test_schedules_over_the_whole_space_give_numpy_s_answer(device, case):
    """Schedules of a GPU's space, whose work-items a CPU runs one after another. Those that PoCL cannot run are left out."""
    kernel, gpu = CASES[case], opencl_device.gpu(device)
    besides = [opencl_device.target().limits] if device == "pocl" else []

    for schedule in spread(kernel, gpu.limits, 2, seed=len(case) + len(device), unrolled=64, besides=besides):
        assert_right(kernel, schedule, gpu, device)


@pytest.mark.parametrize("way", ["default", "drawn"])
@pytest.mark.parametrize("engine", CELLS["pocl"])
@pytest.mark.parametrize("device", OTHERS)
def test_every_engine_gives_float64_s_answer(device, engine, way):
    """A random kernel by the default for a GPU or by a random schedule, in a dtype that depends on the device.

    The schedule has several splits if the engine and the device support them. ``bench.kernel_sweep`` runs the rest on
    PoCL.
    """
    target = opencl_device.gpu(device)
    dtypes = [dtype for dtype in CELLS["pocl"][engine] if dtype != "f64" or "fp64" in target.features]
    cell = Cell("pocl", engine, dtypes[len(device + way) % len(dtypes)])

    def fits(case):
        split = case.schedule.get("splits", 2) > 1 or not target.limits.device_fence
        legal = not cell.family.reasons(case.schedule, cell.family.problem(case.kernel), target.limits)
        return legal and (way == "default" or split)

    cases = (draw(cell, number, seed=len(device)) for number in range(DRAWS))
    if way == "default":
        cases = (replace(case, schedule=default(case.kernel, target.limits, cell.family)) for case in cases)
    case = next(filter(fits, cases))

    assert by_opencl(prepared(case, target=target), device=device) == ""


@pytest.mark.parametrize("case", [c for c in CASES if is_empty(CASES[c])])
def test_a_result_without_elements_has_no_launch(case):
    kernel = CASES[case]

    source = render(kernel, default(kernel, opencl_device.gpu().limits), opencl_device.target(), "k0")

    assert 0 in source.geometry.groups


@pytest.mark.parametrize("device", DEVICES)
def test_split_k_is_deterministic_and_leaves_its_counters_ready(device):
    kernel = CASES["contraction-aligned"]
    schedule = {**PLAIN, "tile_m": 16, "tile_n": 16, "tile_k": 8, "reg_m": 2, "reg_n": 2, "stages": 1, "splits": 4}
    target, inputs = opencl_device.target(device), random_inputs(kernel)
    if not target.limits.device_fence:
        with pytest.raises(ScheduleError, match="no fence that orders memory between work-groups"):
            render(kernel, schedule, target, "k0")
        return
    source = render(kernel, schedule, target, "k0")

    once, again = (opencl_device.run(kernel, source, inputs, launches=n, device=device) for n in (1, 3))

    assert source.geometry.workspace_bytes > 0
    assert source.geometry.counter_bytes > 0
    for a, b in zip(once, again, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("device", OTHERS)
def test_a_driver_that_hangs_or_crashes_is_ended_and_told(device):
    process = opencl_drivers.process(device)

    with pytest.raises(DriverError, match=f"{device}: sum was not done after 0.5 s and was killed"):
        process.call(sum, range(1 << 60), limit_s=0.5)
    with pytest.raises(DriverError, match=f"{device}: abort ended the process"):
        process.call(os.abort)

    assert process.call(abs, -3) == 3


def no_buffer():
    cl = opencl.pyopencl()
    cl.Buffer(cl.Context(opencl.devices()), cl.mem_flags.READ_WRITE, 0)


@pytest.mark.parametrize("device", OTHERS)
def test_an_error_of_pyopencl_s_own_comes_from_the_driver_s_process(device):
    with pytest.raises(DriverError, match=r"pyopencl.*INVALID_BUFFER_SIZE"):
        opencl_drivers.process(device).call(no_buffer)
