"""The CUDA text of every family, run on the CPU by the harness: numpy's answer, in every thread order, without races."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cuda_on_cpu.harness import CudaOnCpu, RaceError, compile_many
from kernel_oracle import UNWRITTEN, expected
from kernels import matmul, random_inputs
from template_cases import CASES, default, is_empty, spread
from tolerance import assert_matches

from gpucomp.codegen.render import render
from gpucomp.kernel import Contraction, Rowwise
from gpucomp.targets import cuda

TARGET = cuda.manifest("sm_80")
LIVE = [c for c in CASES if not is_empty(CASES[c])]


def sources(case):
    kernel = CASES[case]
    schedules = [default(kernel, TARGET.limits), *spread(kernel, TARGET.with_limits(threads=256).limits, 1, seed=1)]
    return [render(kernel, s, TARGET, f"k{LIVE.index(case)}_{i}") for i, s in enumerate(schedules)]


@pytest.fixture(scope="module")
def compiled():
    rendered = {case: sources(case) for case in LIVE}
    pairs = [(s.text, s.name) for found in rendered.values() for s in found]
    built = dict(zip([name for _, name in pairs], compile_many(pairs), strict=True))
    return {case: [(s, built[s.name]) for s in found] for case, found in rendered.items()}


def arguments(kernel, source, inputs):
    """Inputs, outputs, then workspace and counters, as a launch has them."""
    outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    scratch = []
    if source.geometry.workspace_bytes:
        scratch = [np.full(source.geometry.workspace_bytes, 255, np.uint8), np.zeros(source.geometry.counter_bytes, np.uint8)]
    return outputs, [*(np.ascontiguousarray(a) for a in inputs), *outputs, *scratch]


def terms_of(kernel):
    match kernel.body:
        case Contraction(k=axes) | Rowwise(cols=axes):
            return max(1, math.prod(a.extent for a in axes))
    return 1


@pytest.mark.parametrize("case", LIVE)
def test_cuda_text_gives_numpy_s_answer_in_any_thread_order(case, compiled):
    kernel = CASES[case]
    inputs = random_inputs(kernel)
    wanted = expected(kernel, inputs)
    for source, built in compiled[case]:
        results = []
        for order in ("forward", "reversed", "shuffled"):
            outputs, args = arguments(kernel, source, inputs)
            built.run(source.geometry.groups, source.geometry.items, args, order=order, seed=5)
            results.append(outputs)
        for actual, right in zip(results[0], wanted, strict=True):
            assert_matches(actual, right, terms=terms_of(kernel))
        for other in results[1:]:
            for a, b in zip(results[0], other, strict=True):
                np.testing.assert_array_equal(a, b)


RACY = matmul(12, 20, 19)
SCHEDULE = dict(tile_m=8, tile_n=16, tile_k=8, reg_m=2, reg_n=2, stages=1, splits=2, lanes=1)


@pytest.mark.parametrize("stages", [1, 2])
def test_contraction_has_no_race(stages):
    source = render(RACY, SCHEDULE | {"stages": stages}, TARGET, "k0")
    _, args = arguments(RACY, source, random_inputs(RACY))

    CudaOnCpu(source.text, "k0", sanitizer="thread").run(source.geometry.groups, source.geometry.items, args)


def test_a_missing_barrier_in_the_contraction_is_seen():
    source = render(RACY, SCHEDULE, TARGET, "k0")
    _, args = arguments(RACY, source, random_inputs(RACY))
    first, _, rest = source.text.partition("__syncthreads();")
    text = first + "__syncthreads();" + rest.replace("__syncthreads();", "", 1)

    with pytest.raises(RaceError):
        CudaOnCpu(text, "k0", sanitizer="thread").run(source.geometry.groups, source.geometry.items, args)
