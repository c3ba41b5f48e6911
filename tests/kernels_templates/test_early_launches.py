"""Overlapping launches: a kernel reads the results of earlier launches only after it has waited for them.

The harness fills everything except constants with poison, also results and scratch memory, until no thread can continue
without that wait.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpucomp.kernel import Attention, Contraction, Rowwise, Scan, Separable
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda
from testing.cases.early_launches import KERNELS, LOOKS_BACK, MMA_KERNELS, ROWS
from testing.cuda_on_cpu.harness import CudaOnCpuError, compile_many
from testing.kernels import (
    random_inputs,
)
from testing.launches import in_any_order, launched
from testing.template_cases import default
from testing.tolerance import assert_matches
from tests.cuda_on_cpu.kernel_files import broken
from tests.nvrtc import OF_OTHER_GPUS

TARGET = cuda.manifest("sm_90a")


# the same engine if tiles of b wait too, if they go through registers, and with a workspace
MMA = FAMILIES["contraction/mma"]
OTHERS = MMA_KERNELS | ROWS | LOOKS_BACK


def prepared(kernel, family, changes, name):
    """The source, the packed kernel, and its inputs."""
    schedule = default(kernel, TARGET.limits, family) | changes
    inputs = random_inputs(kernel)
    wanted = family.packing(kernel, family.schedule(schedule), family.problem(kernel))
    packed = pack(kernel, wanted) if wanted else None
    given = [*(inputs[k] for k in packed.kept), packed_constant(packed, inputs)] if packed else inputs
    own = packed.kernel if packed else kernel
    return own, render(own, schedule, TARGET, name, family), [np.ascontiguousarray(x) for x in given]


@pytest.fixture(scope="module")
def played():
    found = {n: prepared(k, FAMILIES[n], c, f"e{i}") for i, (n, (k, c)) in enumerate(KERNELS.items())}
    found |= {n: prepared(k, MMA, c, f"m{i}") for i, (n, (k, c)) in enumerate(MMA_KERNELS.items())}
    found |= {n: prepared(k, FAMILIES["rowwise"], c, f"r{i}") for i, (n, (k, c)) in enumerate(ROWS.items())}
    found |= {n: prepared(k, FAMILIES["scan"], c, "s0") for n, (k, c) in LOOKS_BACK.items()}
    built = compile_many([(source.text, source.name) for _, source, _ in found.values()])
    return {name: (*case, b) for (name, case), b in zip(found.items(), built, strict=True)}


def terms_of(kernel):
    match kernel.body:
        case Contraction(k=axes) | Separable(k=axes) | Rowwise(cols=axes) | Attention(cols=axes):
            return max(1, math.prod(a.extent for a in axes))
        case Scan(axis=axis):
            return axis.extent
    return 1


@pytest.mark.parametrize("name", [*KERNELS, *OTHERS])
def test_whatever_launches_before_leave_is_read_after_they_have_ended(name, played):
    own, source, inputs, built = played[name]
    kernel = (KERNELS | OTHERS)[name][0]
    assert source.programmatic

    found = in_any_order(own, source, built, inputs)

    for actual, right in zip(found, expected(kernel, random_inputs(kernel)), strict=True):
        assert_matches(actual, right, terms=9 * terms_of(kernel) if "winograd" in name else terms_of(kernel))


def test_every_engine_of_cuda_is_here():
    wanted = {title for title in FAMILIES if not title.startswith("cpu")} - OF_OTHER_GPUS - {"tile_transform"}
    assert wanted == set(KERNELS), "KERNELS in testing/cases/early_launches.py has a kernel for each engine of CUDA"


WAIT = "gc_grid_wait();"


def test_a_kernel_that_does_not_wait_is_caught(played):
    own, source, inputs, _ = played["rowwise"]
    text = broken(source.text, replace=WAIT)
    (built,) = compile_many([(text, source.name)])

    with pytest.raises(CudaOnCpuError, match="nobody waits for the launches before this one"):
        launched(own, source, built, inputs)


EARLY = {  # engine, the statement that the wait is moved to, what the harness reports
    "copies": ("contraction/mma", "int reading = 0", "gc_cp_async: argument 0 is read before gc_grid_wait"),
    "tensor maps": ("contraction/wgmma", "return;", "TMA load: argument 0 is read before"),
    "loads": ("pool/window", "*reinterpret_cast<uint4*>(x1", ""),
    # the last work-group of the launch before may not have cleared its flags yet
    "flags": ("looks back", "int is_last = 0;", ""),
}


@pytest.mark.parametrize("case", EARLY)
def test_what_is_read_before_the_wait_is_caught(case, played):
    name, before, message = EARLY[case]
    own, source, inputs, right = played[name]
    late = broken(broken(source.text, replace=WAIT), replace=before, by=f"{WAIT}\n{before}")
    (built,) = compile_many([(late, source.name)])

    if message:
        with pytest.raises(CudaOnCpuError, match=message):
            launched(own, source, built, inputs)
    else:
        wrong, correct = (launched(own, source, b, inputs)[0] for b in (built, right))
        assert not np.array_equal(wrong, correct)


BLOCKS = """extern "C" __global__ void k_blocks(const int* x, int* y, int early, int silent) {
  const int block = (int)blockIdx.x;
  int found = block == early ? x[block] : 0;
  if (block != silent) gc_grid_wait();
  if (block != early) found = x[block];
  y[block] = found;
}"""


def test_every_block_meets_poison_until_it_waits():
    (kernel,) = compile_many([(BLOCKS, "k_blocks")])
    x, nobody = np.arange(5, 12, dtype=np.int32), np.int32(-1)

    def played(early=nobody, silent=nobody):
        y = np.full(7, -1, np.int32)
        kernel.run((7,), (1,), [x, y, np.int32(early), np.int32(silent)], late=(0, 1))
        return y

    np.testing.assert_array_equal(played(), x)
    for block in (0, 3, 6):
        assert np.flatnonzero(played(early=block) != x) == [block]
        with pytest.raises(CudaOnCpuError, match=rf"block \({block},.*nobody waits for the launches before this one"):
            played(silent=block)


def test_tiles_of_a_constant_set_out_before_the_wait(played):
    text = played["contraction/mma"][1].text

    assert text.index("&x1[") < text.index(WAIT) < text.index("&x0[")


def test_what_results_read_is_fetched_before_the_wait_where_all_of_it_is_constant(played):
    text, other = (played[name][1].text for name in ROWS)

    assert text.index("(x2 +") < text.index(WAIT) < text.index("(x0 +")
    assert text.index("(x3 +") < text.index(WAIT)
    assert other.index(WAIT) < other.index("(x2 +") < other.index("(x0 +")
    assert other.index(WAIT) < other.index("(x3 +")


@pytest.mark.parametrize("name", KERNELS)
def test_the_next_launch_may_start_once_this_one_has_waited(name, played):
    text = played[name][1].text

    assert text.index(WAIT) < text.index("gc_grid_launch_dependents();")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
def test_devices_without_early_launches_have_no_wait(arch):
    kernel, target = KERNELS["contraction/mma"][0], cuda.manifest(arch)
    source = render(kernel, default(kernel, target.limits, MMA), target, "k0", MMA)

    assert not source.programmatic
    assert WAIT not in source.text
