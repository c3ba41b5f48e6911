"""Attention on AMD's matrix cores, in HIP: numpy's results in every thread order, on each kind of instruction."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp.ir.types import F16, F32
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.attention.amd.space import shared_bytes
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import hip, opencl
from testing.cases.attention_amd import CASES_MFMA, RACES, cases_of
from testing.cuda_on_cpu.harness import CudaOnCpuError, compile_many, hip_compiler
from testing.kernels import attention, random_inputs
from testing.launches import in_any_order, launched
from testing.tolerance import assert_matches

AMD = FAMILIES["attention/amd"]
# MFMA with bf16 in pairs, with bf16 in fours, the same with other sums, WMMA of RDNA3, and of RDNA4
ARCHES = ("gfx908", "gfx90a", "gfx942", "gfx1100", "gfx1201")
TARGETS = {arch: hip.manifest(arch) for arch in ARCHES}
OF = {arch: cases_of(target.features) for arch, target in TARGETS.items()}

pytestmark = pytest.mark.skipif(hip_compiler() is None, reason="needs clang 18 or newer: apt-get install clang-19 lld-19")


def assert_right(kernel, outputs, inputs):
    for actual, right in zip(outputs, expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=kernel.body.cols[0].extent)


@pytest.fixture(scope="module", params=ARCHES)
def built(request):
    arch = request.param
    sources = {n: render(k, s, TARGETS[arch], f"k{i}", AMD) for i, (n, (_, k, s)) in enumerate(OF[arch].items())}
    found = compile_many([(s.text, s.name) for s in sources.values()], arch=arch)
    return arch, dict(zip(sources, zip(sources.values(), found, strict=True), strict=True))


@pytest.mark.parametrize("name", OF["gfx90a"])
def test_it_gives_numpy_s_answer_in_any_thread_order(name, built):
    arch, found = built
    if name not in OF[arch]:
        assert "mfma" not in TARGETS[arch].features and name in CASES_MFMA
        return
    proof, kernel, schedule = OF[arch][name]
    problem = AMD.problem(kernel)
    sizes = {**problem.numbers, **AMD.derive(AMD.schedule(schedule), problem).numbers}
    if "mfma" in TARGETS[arch].features:
        assert {k: sizes[k] for k in proof} == proof
    inputs = random_inputs(kernel)

    assert_right(kernel, in_any_order(kernel, *found[name], inputs), inputs)
