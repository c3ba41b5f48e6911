"""The tcgen05 engine on the CPU harness: numpy's results in any thread order, mutations are detected, a whole model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpucomp
from gpucomp import compiler
from gpucomp.kernel.interpreter import UNWRITTEN, expected
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda
from testing.cases.tcgen05 import CASES
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpuError, Mapped, RaceError, compile_many
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from testing.kernels import random_inputs
from testing.tolerance import assert_matches
from testing.wgmma_kernels import f16_model, prepared
from tests.cuda_on_cpu.kernel_files import broken

FAMILY = FAMILIES["contraction/tcgen05"]
TARGET = cuda.manifest("sm_100")


def schedule_of(name):
    kernel, schedule = CASES[name]
    return schedule or dict(FAMILY.default(FAMILY.problem(kernel), TARGET.limits).numbers)


def source_of(name):
    kernel, _, _ = prepared(CASES[name][0], schedule_of(name), FAMILY)
    return render(kernel, schedule_of(name), TARGET, f"t{list(CASES).index(name)}", FAMILY)


@pytest.fixture(scope="module")
def compiled():
    sources = {name: source_of(name) for name in CASES}
    built = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(sources, zip(sources.values(), built, strict=True), strict=True))


def launch(name, source, built, order="forward", change=lambda spec: spec):
    """The outputs of one launch."""
    kernel, _, inputs = prepared(CASES[name][0], schedule_of(name), FAMILY)
    outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    args = [*(np.ascontiguousarray(x) for x in inputs), *outputs]
    args += [Mapped(change(spec), args[spec.parameter]) for spec in source.tensor_maps]
    g = source.geometry
    built.run(g.groups, g.items, args, order=order, seed=5, dynamic_shared=g.dynamic_shared_bytes)
    return outputs


@pytest.mark.parametrize("name", CASES)
def test_numpy_s_answer_in_any_thread_order(name, compiled):
    kernel, _ = CASES[name]
    assert FAMILY.accepts(kernel, TARGET.features) == ""
    assert not FAMILY.reasons(schedule_of(name), FAMILY.problem(kernel), TARGET.limits)

    results = [launch(name, *compiled[name], order=order) for order in ORDERS]

    _, inputs, _ = prepared(kernel, schedule_of(name), FAMILY)
    terms = int(np.prod([v.extent for v in kernel.body.k]))
    for actual, right in zip(results[0], expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=terms)
    for other in results[1:]:
        for x, y in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(x, y)
