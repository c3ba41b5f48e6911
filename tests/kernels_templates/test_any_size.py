"""One source for every size: the engines' kernels at several sizes, in OpenCL on PoCL and in CUDA on the CPU.

Sources are rendered where no condition can be noted: a comparison that is not the same in every run raises ``TypeError``.
"""

from __future__ import annotations

import math
from functools import cache

import pytest

from gpucomp.kernel import Attention, Contraction, Rowwise, Scan
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda
from testing import opencl_device
from testing.cases.any_size import CASES, SIZES, at, source_at
from testing.cuda_on_cpu.harness import compile_many
from testing.kernels import random_inputs
from testing.launches import launched
from testing.template_cases import spread
from testing.tolerance import assert_matches
from tests import nvrtc

CUDA = cuda.manifest("sm_80")


@cache
def rendered(case, target):
    """A source with the default schedule of each engine, and with another schedule."""
    kernel, found = CASES[case], []
    for family in engines_of(kernel, target.features):
        schedules = [
            dict(family.default(family.problem(kernel), target.limits).numbers),
            *spread(kernel, target.with_limits(threads=128).limits, 1, seed=2, family=family),
        ]
        found += [render(kernel, s, target, f"k{len(found) + n}", family) for n, s in enumerate(schedules)]
    return found


def assert_right(case, source, run):
    for sizes in SIZES:
        kernel = at(CASES[case], sizes)
        launch, numbers = source_at(source, sizes)
        inputs = random_inputs(kernel)
        for actual, right in zip(run(kernel, launch, inputs, numbers), expected(kernel, inputs), strict=True):
            assert_matches(actual, right, terms=terms_of(kernel))


def terms_of(kernel):
    match kernel.body:
        case Contraction(k=axes) | Rowwise(cols=axes) | Attention(cols=axes):
            return max(1, math.prod(a.extent for a in axes))
        case Scan(axis=axis):
            return axis.extent
    return 1


@pytest.mark.parametrize("case", CASES)
def test_one_source_in_opencl_is_right_at_every_size(case):
    sources = rendered(case, opencl_device.gpu())
    built = opencl_device.built_together(sources)

    for source in sources:
        assert_right(
            case,
            source,
            lambda kernel, launch, inputs, numbers: opencl_device.run(
                kernel, launch, inputs, built=built[launch.name], numbers=numbers
            ),
        )


@pytest.mark.parametrize("case", CASES)
def test_so_is_the_default_of_a_processor(case):
    kernel, target = CASES[case], opencl_device.target()
    family = engines_of(kernel, target.features)[0]
    source = render(kernel, family.default(family.problem(kernel), target.limits).numbers, target, "k0", family)

    assert_right(
        case,
        source,
        lambda kernel, launch, inputs, numbers: opencl_device.run(kernel, launch, inputs, numbers=numbers),
    )


@pytest.mark.parametrize("case", CASES)
def test_one_source_in_cuda_is_right_at_every_size(case):
    sources = rendered(case, CUDA)
    built = {s.name: b for s, b in zip(sources, compile_many([(s.text, s.name) for s in sources]), strict=True)}

    for source in sources:
        assert_right(
            case,
            source,
            lambda kernel, launch, inputs, numbers: launched(
                kernel, launch, built[launch.name], inputs, numbers=numbers
            ),
        )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvrtc_compiles_them(arch):
    for case in CASES:
        for source in rendered(case, cuda.manifest(arch))[::2]:
            nvrtc.compile(cuda.prelude() + source.text, arch)
