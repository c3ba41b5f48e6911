"""The contraction family's `gemv` engine: few rows or columns, both layouts of the matrix, on every device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpucomp import ops
from gpucomp.device.limits import Limits
from gpucomp.ir.types import F16
from gpucomp.kernel import Kernel
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.partition import partition
from gpucomp.kernel.step import KernelStep
from gpucomp.kernels_templates.contraction.gemv.space import registers_ahead
from gpucomp.kernels_templates.engines import FAMILIES, engines_of, family_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import cuda, opencl, sass
from testing import opencl_device
from testing.cases.gemv import CASES, PLACES, WATCHED
from testing.cuda_on_cpu.harness import RaceError, compile_many
from testing.kernels import matmul, random_inputs
from testing.launches import in_any_order, launched
from testing.template_cases import default, spread
from testing.tolerance import assert_matches
from tests.builders import graph_of, tensor
from tests.sass_paths import loads_together

GEMV = FAMILIES["contraction/gemv"]


def conv_transposed() -> Kernel:
    """A ConvTranspose of f16 from the partition. A tap's index depends on the row number, a quotient of the lane index."""
    image, weights = tensor("x", 1, 4, 3, 2, dtype=F16), tensor("w", 4, 2, 3, 1, dtype=F16)
    window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "out": (3, 2)}
    (step,) = partition(graph_of(ops.ConvTranspose(image, weights, group=2, **window)))
    assert isinstance(step, KernelStep)
    return step.kernel


TARGET = cuda.manifest("sm_80")
GPU = Limits(threads=256, shared_bytes=49152, warp=32, registers=255, units=8, subgroups=False)


def schedules(name):
    kernel = CASES[name]
    limits = TARGET.with_limits(threads=128).limits
    return [default(kernel, TARGET.limits, GEMV), *spread(kernel, limits, 2, seed=len(name), family=GEMV)]


@pytest.fixture(scope="module")
def built():
    sources = {
        (name, number): render(CASES[name], schedule, TARGET, f"k{position}_{number}", GEMV)
        for position, name in enumerate(CASES)
        for number, schedule in enumerate(schedules(name))
    }
    kernels = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(sources, zip(sources.values(), kernels, strict=True), strict=True))


def terms_of(kernel):
    return max(1, GEMV.problem(kernel).k)


def assert_right(kernel, inputs, found):
    for actual, right in zip(found, expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=terms_of(kernel))


@pytest.mark.parametrize("name", CASES)
def test_cuda_text_gives_numpy_s_answer_in_any_thread_order(name, built):
    kernel = CASES[name]
    inputs = random_inputs(kernel)
    wanted = expected(kernel, inputs)
    for number in range(3):
        found = in_any_order(kernel, *built[name, number], inputs)
        for actual, right in zip(found, wanted, strict=True):
            assert_matches(actual, right, terms=terms_of(kernel))


@pytest.mark.parametrize("name", CASES)
def test_opencl_text_gives_numpy_s_answer(name):
    kernel, target = CASES[name], opencl_device.target()
    inputs = random_inputs(kernel)
    wanted = expected(kernel, inputs)
    for schedule in (default(kernel, target.limits, GEMV), default(kernel, GPU, GEMV)):
        found = opencl_device.run(kernel, render(kernel, schedule, target, "k0", GEMV), inputs)
        for actual, right in zip(found, wanted, strict=True):
            assert_matches(actual, right, terms=terms_of(kernel))


@pytest.mark.parametrize("accesses", [1, 4])
def test_the_number_of_an_access_is_known_of_each_of_several_rows(accesses):
    kernel = conv_transposed()
    schedule = {"many_items": 1, "depth_items": 1, "accesses": accesses, "unroll": 4, "shuffle": 0}
    inputs = random_inputs(kernel)
    source, text = (render(kernel, schedule, t, "k0", GEMV) for t in (TARGET, opencl_device.target()))

    assert_right(kernel, inputs, in_any_order(kernel, source, compile_many([(source.text, source.name)])[0], inputs))
    assert_right(kernel, inputs, opencl_device.run(kernel, text, inputs))


BUGS = {
    "a missing barrier": ("  __syncthreads();\n", ""),
    "a part left out of the sum": ("part = 1;", "part = 2;"),
    "a step too few": ("depth < ", "depth + 4 < "),
}


@pytest.fixture(scope="module")
def watched():
    sources = {
        name: render(kernel, schedule, TARGET, f"w{number}", GEMV)
        for number, (name, (kernel, schedule)) in enumerate(WATCHED.items())
    }
    pairs = {(name, None): (s.text, s.name) for name, s in sources.items()}
    pairs |= {(name, bug): (s.text.replace(*BUGS[bug], 1), s.name) for name, s in sources.items() for bug in BUGS}
    return sources, dict(zip(pairs, compile_many(list(pairs.values()), sanitizer="thread"), strict=True)), pairs


@pytest.mark.parametrize("name", WATCHED)
def test_no_work_item_races_another(name, watched):
    sources, compiled, _ = watched
    kernel, _ = WATCHED[name]
    inputs = random_inputs(kernel)

    found = launched(kernel, sources[name], compiled[name, None], inputs)

    assert_right(kernel, inputs, found)


@pytest.mark.parametrize("name", WATCHED)
def test_a_missing_barrier_is_seen(name, watched):
    sources, compiled, _ = watched

    with pytest.raises(RaceError):
        launched(WATCHED[name][0], sources[name], compiled[name, "a missing barrier"], random_inputs(WATCHED[name][0]))


@pytest.mark.parametrize("bug", ["a part left out of the sum", "a step too few"])
@pytest.mark.parametrize("name", WATCHED)
def test_a_wrong_sum_is_seen(name, bug, watched):
    sources, compiled, pairs = watched
    assert pairs[name, bug][0] != sources[name].text
    kernel = WATCHED[name][0]
    inputs = random_inputs(kernel)

    found = launched(kernel, sources[name], compiled[name, bug], inputs)

    with pytest.raises(AssertionError):
        assert_right(kernel, inputs, found)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_120"])
def test_defaults_of_classifiers_spill_nothing_and_read_16_bytes_at_once(arch):
    target = cuda.manifest(arch)
    for kernel in (matmul(1, 1000, 2048), matmul(8, 1000, 2048, b_transposed=True), matmul(4, 512, 512, dtype=F16)):
        schedule = default(kernel, target.limits, GEMV)
        source = render(kernel, schedule, target, "k0", GEMV)
        _, log = cuda.compile_source(source, target)
        used = cuda.resources(log)["k0"]

        assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
        assert "reinterpret_cast<const uint4*>(x1" in source.text
        problem = GEMV.problem(kernel)
        assert used.shared_bytes == GEMV.derive(GEMV.schedule(schedule), problem).parts * problem.few * (
            GEMV.derive(GEMV.schedule(schedule), problem).tile * problem.acc_bytes
        )


@pytest.mark.parametrize(
    "schedule",
    [
        {"many_items": 1, "depth_items": 32, "accesses": 1, "unroll": 8, "shuffle": 1},
        {"many_items": 4, "depth_items": 64, "accesses": 1, "unroll": 8, "shuffle": 1},
    ],
)
def test_nothing_spills_where_more_reads_would_be_under_way_than_registers_hold(schedule):
    target = cuda.manifest("sm_90a")
    kernel = matmul(8, 1000, 2048, b_transposed=True)
    source = render(kernel, schedule, target, "k0", GEMV)

    used = cuda.resources(cuda.compile_source(source, target)[1])["k0"]

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0


def test_work_groups_of_less_than_a_warp_may_take_all_registers():
    """Otherwise ptxas leaves registers for as many of them as fit on a unit, and spills 80 and 32 bytes."""
    target = cuda.manifest("sm_89")
    schedule = {"many_items": 1, "depth_items": 4, "accesses": 4, "unroll": 8, "shuffle": 0}
    source = render(matmul(1, 1000, 512), schedule, target, "k0", GEMV)

    used = cuda.resources(cuda.compile_source(source, target)[1])["k0"]

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0


STEPS = {"many_items": 2, "depth_items": 64, "accesses": 1, "shuffle": 0}


@pytest.mark.skipif(sass.disassembler() is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize("unroll", [2, 8])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_the_reads_of_the_steps_that_are_written_out_are_under_way_together(arch, place, unroll):
    """Each step reads the matrix once and the vector once. By itself ptxas takes 32 registers and has 2 to 4 in flight."""
    target = cuda.manifest(arch)
    source = render(PLACES[place], STEPS | {"unroll": unroll}, target, "k0", GEMV)

    cubin, log = cuda.compile_source(source, target)
    together = loads_together(sass.listing(cubin))

    assert 2 * unroll <= together < 2 * unroll + 4
    assert cuda.resources(log)["k0"].registers <= registers_ahead(
        GEMV.schedule(STEPS | {"unroll": unroll}), GEMV.problem(PLACES[place])
    )


MANIFESTS = [*map(cuda.manifest, cuda.ARCHITECTURES), *map(opencl.manifest, opencl.FLAVOURS)]


@pytest.mark.parametrize("target", MANIFESTS, ids=lambda t: t.name)
def test_every_device_gets_a_schedule_and_a_gpu_with_registers_this_engine_s(target):
    for kernel in CASES.values():
        choice = choose(kernel, engines_of(kernel), target.limits)

        assert choice.family.reasons(choice.schedule, choice.family.problem(kernel), target.limits) == []
        assert choice.family is GEMV or target.limits.registers < 128


def test_a_row_is_gemv_s_and_a_tile_is_simt_s():
    row, tile, empty = matmul(1, 1000, 2048), matmul(64, 1000, 2048), matmul(0, 5, 9)

    assert choose(row, engines_of(row), TARGET.limits).family is GEMV
    for kernel in (tile, empty):
        assert GEMV.accepts(kernel, frozenset()) != ""
        assert choose(kernel, engines_of(kernel), TARGET.limits).family is family_of(kernel)


LEGAL = {"many_items": 4, "depth_items": 64, "accesses": 1, "unroll": 4, "shuffle": 1}


@pytest.mark.parametrize(
    ("change", "kernel", "limits", "reason"),
    [
        ({"many_items": 64, "depth_items": 256}, CASES["row"], TARGET.limits, "work-items per work-group"),
        ({"depth_items": 16}, CASES["matrix along the depth"], TARGET.limits, "whole warps"),
        ({}, CASES["row"], TARGET.limits, "share no sum"),
        ({}, CASES["matrix along the depth"], GPU, "shuffles need"),
        ({}, CASES["matrix along the depth"], opencl.manifest("gfx1030").limits, "shuffles need"),  # though its waves are of 32
        ({"many_items": 64, "depth_items": 16, "shuffle": 0, "accesses": 4}, CASES["eight rows"], TARGET.limits,
         "shared memory"),
        ({"accesses": 4, "unroll": 8, "shuffle": 0}, matmul(8, 96, 32), replace(GPU, registers=128), "registers per work-item"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_objected_to(change, kernel, limits, reason):
    along = matmul(1, 512, 512, b_transposed=True)
    assert GEMV.reasons(LEGAL, GEMV.problem(along), TARGET.limits) == []

    assert any(reason in r for r in GEMV.reasons(LEGAL | change, GEMV.problem(kernel), limits))
