"""Every family on PoCL: its default and schedules spread over its space, on awkward sizes, against numpy."""

from __future__ import annotations

import math

import numpy as np
import opencl_device
import pytest
from kernel_oracle import expected
from kernels import random_inputs
from template_cases import CASES, default, is_empty, spread
from tolerance import assert_matches

from gpucomp.codegen.render import render
from gpucomp.kernel import Attention, Contraction, Rowwise, Scan
from gpucomp.kernels_templates.contraction.simt import PLAIN
from gpucomp.schedule.space import Limits

# what a GPU allows: PoCL runs its schedules too, work-group by work-group
GPU = Limits(threads=256, shared_bytes=49152, warp=32, registers=255, units=8)


def terms_of(kernel) -> int:
    match kernel.body:
        case Contraction(k=axes) | Rowwise(cols=axes) | Attention(cols=axes):
            return max(1, math.prod(a.extent for a in axes))
        case Scan(axis=axis):
            return axis.extent
    return 1


def assert_right(kernel, schedule):
    target = opencl_device.target()
    inputs = random_inputs(kernel)
    found = opencl_device.run(kernel, render(kernel, schedule, target, "k0"), inputs)
    for actual, right in zip(found, expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=terms_of(kernel))


@pytest.mark.parametrize("case", CASES)
def test_the_default_for_pocl_gives_numpy_s_answer(case):
    kernel, limits = CASES[case], opencl_device.target().limits

    assert_right(kernel, default(kernel, limits))


@pytest.mark.parametrize("case", [c for c in CASES if not is_empty(CASES[c])])
def test_the_default_for_a_gpu_gives_numpy_s_answer(case):
    kernel = CASES[case]

    assert_right(kernel, default(kernel, GPU))


@pytest.mark.parametrize("case", [c for c in CASES if not is_empty(CASES[c])])
def test_schedules_over_the_whole_space_give_numpy_s_answer(case):
    """Of a GPU's, whose threads PoCL plays one after another; what it could not compute with at all is not among them."""
    kernel, here = CASES[case], opencl_device.target().limits

    for schedule in spread(kernel, GPU, 2, seed=len(case), unrolled=64, besides=[here]):
        assert_right(kernel, schedule)


@pytest.mark.parametrize("case", [c for c in CASES if is_empty(CASES[c])])
def test_a_result_without_elements_has_no_launch(case):
    kernel = CASES[case]

    source = render(kernel, default(kernel, GPU), opencl_device.target(), "k0")

    assert 0 in source.geometry.groups


def test_split_k_is_deterministic_and_leaves_its_counters_ready():
    kernel = CASES["contraction-aligned"]
    schedule = {**PLAIN, "tile_m": 16, "tile_n": 16, "tile_k": 8, "reg_m": 2, "reg_n": 2, "stages": 1, "splits": 4}
    source = render(kernel, schedule, opencl_device.target(), "k0")
    inputs = random_inputs(kernel)

    once, again = (opencl_device.run(kernel, source, inputs, launches=n) for n in (1, 3))

    assert source.geometry.workspace_bytes > 0
    assert source.geometry.counter_bytes > 0
    for a, b in zip(once, again, strict=True):
        np.testing.assert_array_equal(a, b)
