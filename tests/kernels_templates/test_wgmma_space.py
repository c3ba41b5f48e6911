"""Which kernels the wgmma engine accepts, its schedules, and its registers and machine code by ptxas and nvdisasm."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpucomp.errors import ScheduleError
from gpucomp.expr.core import call, cast, load, select
from gpucomp.ir.types import F16, F32, F64, I8, I32, TensorType
from gpucomp.kernel.forms.convolution import Pixels
from gpucomp.kernel.forms.matrix import Matrix, form_of_a, matrix_of, result_matrix
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.pack_weights import pack
from gpucomp.kernels_templates.contraction.wgmma import space as wgmma
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.refusal import Refusal
from gpucomp.schedule import rank
from gpucomp.schedule.analytic import demand
from gpucomp.targets import cuda, sass
from testing.cases.wgmma_space import LARGE, REAL
from testing.kernels import conv, grouped_conv, into_part, matmul
from testing.wgmma_kernels import (
    FAMILY,
    TARGET,
    TILE,
    TMA_STORE,
    TWO,
    constant_b,
    image,
    one_result,
    problem_of,
    with_math,
)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (matmul(64, 64, 64, dtype=F16, b_transposed=True), ""),
        (matmul(64, 64, 64, dtype=F16), "b is not contiguous in depth"),
        (constant_b(matmul(64, 64, 64, dtype=F16)), ""),
        (matmul(64, 64, 64, dtype=F16, b_transposed=True, a_transposed=True), "a is not contiguous in depth"),
        (matmul(64, 64, 63, dtype=F16, b_transposed=True), "rows of a do not start at multiples of 16 bytes"),
        (matmul(1, 64, 63, dtype=F16, b_transposed=True), "rows of b do not start at multiples of 16 bytes"),
        (constant_b(matmul(1, 64, 63, dtype=F16)), "a depth of 63 f16 is not a multiple of 16 bytes"),
        (matmul(64, 64, 64, b_transposed=True), "does not multiply f32 by f32 into f32 (strict)"),
        (with_math(matmul(64, 64, 64, b_transposed=True)), ""),
        (with_math(matmul(64, 64, 64, b_transposed=True), "3xtf32"), "into f32 (3xtf32)"),
        (matmul(64, 64, 64, dtype=F64, acc=F64, b_transposed=True), "does not multiply f64"),
        (matmul(64, 64, 0, dtype=F16, b_transposed=True), "nothing to multiply"),
        (image((1, 9, 9, 8), 8, (3, 3), pad=1, dtype=F16), ""),
        (image((1, 9, 9, 4), 8, (3, 3), pad=1, dtype=F16), "4 channels of f16 are not a multiple of 16 bytes"),
        (image((1, 9, 9, 8), 8, (3, 3), pad=1, nchw=True, dtype=F16), "does not read the pixels of an NHWC image"),
        (image((1, 30, 30, 8), 8, (1, 1), stride=9, dtype=F16), "one load supports 1 to 8"),
        (image((1, 30, 300, 8), 8, (1, 2), dilation=256, dtype=F16), "too large for one load"),
        (image((1, 9, 9, 8), 8, (3, 3), pad=129, dtype=F16), "more than 127 pixels from the image's edge"),
        (constant_b(with_math(grouped_conv((1, 5, 6, 8), 2, 5, (2, 2)))), "does not read the pixels of an NHWC image"),
    ],
)
def test_what_the_engine_refuses_and_why(kernel, reason):
    found = FAMILY.accepts(kernel, TARGET.features)

    assert bool(found) == bool(reason)
    assert reason in found


def test_an_operand_that_is_computed_is_refused():
    kernel = matmul(64, 64, 64, dtype=F16, b_transposed=True)
    a = call("max", kernel.body.a.value, 0)
    computed = replace(kernel, body=replace(kernel.body, a=cast(a, F32)))

    assert "operand a is computed while it is loaded" in FAMILY.accepts(computed, TARGET.features)
    with pytest.raises(ScheduleError, match="operand a is computed while it is loaded"):
        render(computed, TILE, TARGET, "k0", FAMILY)


@pytest.mark.parametrize(("arch", "takes"), [("sm_80", False), ("sm_90a", True), ("sm_100", False), ("sm_120", False)])
def test_only_sm_90a_has_the_engine(arch, takes):
    kernel = matmul(64, 64, 64, dtype=F16, b_transposed=True)

    found = engines_of(kernel, cuda.manifest(arch).features)

    assert (FAMILY in found) == takes
    assert found[-1] is FAMILIES["contraction/simt"]
    if takes:
        assert found[0] is FAMILY, "it comes before the engines that every architecture has"


def test_a_condition_that_is_no_edge_is_refused():
    kernel = image((1, 9, 9, 8), 8, (3, 3), pad=1, dtype=F16)
    body = kernel.body
    narrower = select(call("and", body.a.condition, body.m[1] < 5), body.a.then, body.a.otherwise)
    assert isinstance(form_of_a(kernel), Pixels)

    found = form_of_a(replace(kernel, body=replace(body, a=narrower)))

    assert found == Refusal("operand a has a condition other than the edges of the image")


def test_rows_that_overlap_are_no_matrix():
    """A window along a row reads a matrix of 256 columns whose rows start 64 elements apart."""
    kernel = image((1, 1, 2003, 64), 8, (1, 4), dtype=F16)
    signal = matmul(500, 8, 64, dtype=F16, b_transposed=True)
    i, k = signal.body.m[0], signal.body.k[0]
    windows = replace(
        signal,
        params=(TensorType(F16, (500 * 16 + 48,)), *signal.params[1:]),
        body=replace(signal.body, a=cast(load(0, (i * 16 + k,), F16), F32)),
    )

    assert matrix_of(kernel, "a") == Refusal("rows of a overlap")
    assert isinstance(form_of_a(kernel), Pixels)
    assert "rows of a overlap" in FAMILY.accepts(windows, TARGET.features)
    assert engines_of(windows, TARGET.features)[0] is FAMILIES["contraction/mma"]


def test_forms_say_where_elements_lie():
    a = form_of_a(matmul(70, 17, 24, batch=(3, 2), dtype=F16, b_transposed=True))
    b = matrix_of(matmul(70, 17, 24, batch=(3, 2), dtype=F16, b_transposed=True), "b")
    pixels = form_of_a(conv((2, 9, 7, 8), 4, (3, 2), stride=2, pad=1, dilation=2, dtype=F16))

    assert a == Matrix(0, F16, 0, 24, 70, 24, 6, 1680)
    assert b == Matrix(1, F16, 0, 24, 17, 24, 6, 408)
    assert pixels == Pixels(0, F16, (2, 9, 7, 8), (4, 4), (3, 2), (2, 2), (-1, -1), (2, 2))


def test_weights_are_packed_by_columns():
    kernel = constant_b(matmul(64, 24, 40, batch=(3,), dtype=F16))

    wanted = FAMILY.packing(kernel, FAMILY.schedule(TILE), problem_of(kernel))

    assert wanted == Packing("b", (Digit("batch", 1, 3), Digit("span", 1, 24), Digit("k", 1, 40)))
    already = matmul(64, 24, 40, dtype=F16, b_transposed=True)
    assert FAMILY.packing(constant_b(already), FAMILY.schedule(TILE), problem_of(already)) is None


# ---- the space ----


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"tile_m": 192}, "1 warpgroups do not share 192 rows by 64 or 128"),
        ({"tile_m": 256, "consumers": 2, "tile_n": 128}, ""),
        ({"tile_m": 256, "consumers": 2, "tile_n": 256}, "registers per work-item"),
        ({"tile_m": 256, "consumers": 2, "tile_n": 192}, "about 224 registers per work-item, there are 168"),
        ({"tile_m": 128, "tile_n": 192}, ""),
        ({"tile_m": 128, "tile_n": 256}, "about 288 registers per work-item, there are 255"),
        ({"tile_m": 192, "consumers": 3, "tile_n": 192}, ""),
        ({"tile_m": 192, "consumers": 3, "tile_n": 256}, "about 160 registers per work-item, there are 128"),
        ({"tile_m": 192, "consumers": 3, "tile_n": 256, "setmaxnreg": 1}, "ptxas wants 154 registers for one wgmma"),
        ({"tile_m": 256, "consumers": 2, "tile_n": 192, "setmaxnreg": 1}, ""),
        (
            {"tile_m": 256, "consumers": 2, "tile_n": 256, "setmaxnreg": 1},
            "about 288 registers per work-item, there are 232",
        ),
        ({"setmaxnreg": 1}, "1 warpgroup that multiplies has all the registers it can use"),
        ({"multicast": 1}, ""),
        ({"multicast": 2, "tile_n": 8}, ""),
        ({"multicast": 1, "tile_n": 8}, "half of 8 columns of b is not a multiple of 8"),
        ({"multicast": 2, "splits": 2}, "a cluster shares the depth or the loads, not both"),
        ({"tma_store": 1}, "TMA cannot store the result: not a matrix of f16, bf16 or f32 with rows of whole 16 bytes"),
        ({"tile_m": 128, "consumers": 2, "tile_n": 256, "stages": 4}, ""),
        ({"tile_m": 128, "consumers": 2, "tile_n": 256, "stages": 5}, "B of shared memory, the device has 232448 B"),
        ({"overlap": 1}, ""),
        ({"overlap": 2}, "b is the result of another kernel"),
    ],
)
def test_schedules_that_cannot_run_say_why(change, reason):
    found = FAMILY.reasons(TILE | change, FAMILY.problem(LARGE), TARGET.limits)

    assert bool(found) == bool(reason)
    assert reason in "; ".join(found)


@pytest.mark.parametrize(
    ("kernel", "change", "reason"),
    [
        (one_result(LARGE), {}, ""),
        (one_result(LARGE), {"splits": 2}, "added in the order of the rows"),
        (one_result(LARGE), {"tile_n": 8}, "stmatrix takes 16 columns at a time"),
        (with_math(one_result(matmul(64, 44, 64, b_transposed=True))), {"tile_n": 8}, ""),
        (with_math(one_result(matmul(64, 42, 64, b_transposed=True))), {}, "rows of whole 16 bytes"),
        (into_part(one_result(matmul(64, 24, 64, dtype=F16, b_transposed=True)), 1, 8, 8), {}, ""),
        (
            into_part(one_result(matmul(64, 24, 64, dtype=F16, b_transposed=True)), 1, 4, 8),
            {},
            "rows of whole 16 bytes",
        ),
        (matmul(64, 64, 64, dtype=F16, b_transposed=True), {}, "TMA cannot store the result"),
    ],
)
def test_what_leaves_by_tma_is_one_aligned_matrix(kernel, change, reason):
    found = FAMILY.reasons(TMA_STORE | change, FAMILY.problem(kernel), TARGET.limits)

    assert bool(found) == bool(reason)
    assert reason in "; ".join(found)


def test_a_result_says_why_it_is_no_matrix():
    half, narrow = matmul(64, 24, 64, dtype=F16, b_transposed=True), matmul(64, 24, 64, dtype=I8, acc=I32)

    assert result_matrix(one_result(half)) == Matrix(3, F16, 0, 24, 64, 24, 1, 0)
    assert result_matrix(half) == Refusal("there are 2 results")
    assert result_matrix(one_result(narrow)) == Refusal("the result is i8, not f16, bf16, f32")
    nchw = conv((2, 9, 9, 8), 8, (3, 3), pad=1, nchw=True, dtype=F16)
    assert result_matrix(nchw) == Refusal("the result is not a matrix in memory")
    one_image = conv((1, 9, 9, 8), 8, (3, 3), pad=1, nchw=True, dtype=F16)
    assert result_matrix(one_image) == Refusal("the result is not contiguous in its columns")


def test_too_many_tiles_and_threads_are_refused():
    p = FAMILY.problem(LARGE).replace(batch=1 << 30)

    assert any("a launch has at most" in r for r in FAMILY.reasons(TILE, p, TARGET.limits))
    p = FAMILY.problem(LARGE).replace(m=(1 << 31) - 64, n=64)
    assert any("counted with 32 bits" in r for r in FAMILY.reasons(TILE, p, TARGET.limits))
    assert not FAMILY.reasons(TILE, p.replace(m=(1 << 31) - 65), TARGET.limits)
    small = replace(TARGET.limits, threads=128)
    assert any("the device allows 128" in r for r in FAMILY.reasons(TILE, FAMILY.problem(LARGE), small))


def ptxas(kernel, schedule):
    """The registers that ptxas takes for the kernel, with packed weights if the engine requires it; and the log."""
    wanted = FAMILY.packing(kernel, FAMILY.schedule(schedule), problem_of(kernel))
    source = render(pack(kernel, wanted).kernel if wanted else kernel, schedule, TARGET, "k0", FAMILY)
    assert not [r for m in source.tensor_maps for r in m.objections()]
    _, log = cuda.compile_source(source, TARGET)
    return cuda.resources(log)["k0"], log


@pytest.mark.parametrize("name", REAL)
def test_defaults_are_legal_and_spill_nothing(name):
    p = problem_of(REAL[name])
    schedule = dict(FAMILY.default(p, TARGET.limits).numbers)
    assert not FAMILY.reasons(schedule, p, TARGET.limits)

    used, _ = ptxas(REAL[name], schedule)

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
    assert_registers(used, schedule, p)


def assert_registers(used, schedule, p):
    """Registers match the formula. With setmaxnreg they are all that a launch has, else consumers would wait forever."""
    s = FAMILY.schedule(schedule)
    if s.setmaxnreg:
        assert used.registers == wgmma.launch_registers(s, TARGET.limits), schedule
        given, taken = wgmma.TRADES[s.consumers]
        assert given + s.consumers * taken <= (1 + s.consumers) * used.registers
    else:
        assert wgmma.accumulators(s) < used.registers <= wgmma.registers(s, p), schedule


def test_deep_layers_are_split_and_large_ones_are_not():
    deep, large = (dict(FAMILY.default(problem_of(REAL[n]), TARGET.limits).numbers) for n in ("deep", "large"))

    assert deep["splits"] > 1
    assert large["splits"] == 1
    assert large["tile_m"] * large["tile_n"] >= 128 * 128


def test_loads_are_shared_where_there_is_more_than_a_wave_and_results_leave_by_tma_where_nothing_is_read_beside():
    def chosen(kernel):
        return FAMILY.default(problem_of(kernel), TARGET.limits).numbers

    biased = one_result(LARGE)
    plain = replace(biased, stores=(replace(biased.stores[0], value=cast(biased.body.acc, F16)),))
    wave = one_result(matmul(1024, 1024, 4096, dtype=F16, b_transposed=True))

    assert (chosen(plain)["multicast"] > 0, chosen(plain)["tma_store"]) == (True, 1)
    assert problem_of(biased).out_bytes == 2
    assert chosen(biased)["tma_store"] == 0
    assert chosen(wave)["multicast"] == 0


def test_registers_are_taken_by_tiles_that_cannot_do_without():
    kernel = one_result(matmul(1 << 13, 3 << 11, 1 << 12, dtype=F16, b_transposed=True))

    schedule = FAMILY.default(problem_of(kernel), TARGET.limits).numbers

    assert schedule["setmaxnreg"] == (wgmma.accumulators(FAMILY.schedule(schedule)) + 32 > 168)


def machine_code(kernel, schedule):
    source = render(kernel, schedule, TARGET, "k0", FAMILY)
    return sass.instructions(cuda.compile_source(source, TARGET)[0])


def test_machine_code_has_what_the_schedule_says():
    kernel = one_result(matmul(512, 512, 512, dtype=F16, b_transposed=True))

    def has(found, *parts):
        return any(all(part in name for part in parts) for name in found)

    plain = machine_code(kernel, TWO)
    for change, parts in (
        ({"setmaxnreg": 1}, ("USETMAXREG",)),
        ({"multicast": 1}, ("UTMALDG", "MULTICAST")),
        ({"tma_store": 1}, ("UTMASTG",)),
        ({"tma_store": 1}, ("STSM",)),
        # waiting for the whole store, not only for its reads, invalidates the result in the first-level cache
        ({"tma_store": 1}, ("CCTL", "IVALL")),
    ):
        assert has(machine_code(kernel, TWO | change), *parts)
        assert not has(plain, *parts)


def test_a_default_that_cannot_run_leaves_the_kernel_to_another_engine():
    p = FAMILY.problem(LARGE).replace(batch=1 << 40)

    assert FAMILY.reasons(FAMILY.default(p, TARGET.limits).numbers, p, TARGET.limits)


@pytest.mark.parametrize("seed", range(10))
def test_a_spread_of_schedules_spills_nothing_and_keeps_to_the_formula(seed):
    draw = random.Random(seed)
    kernel = REAL[draw.choice(list(REAL))]
    problem = FAMILY.problem(kernel)
    schedule = None
    while schedule is None or FAMILY.reasons(schedule, problem, TARGET.limits):
        schedule = {param.name: draw.choice(param.choices) for param in FAMILY.params}

    used, log = ptxas(kernel, schedule)

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0, schedule
    assert_registers(used, schedule, problem)
    assert "serialized" not in log, "ptxas has wgmmas wait for each other"


def test_an_analytic_model_is_told_what_a_work_group_does():
    p = problem_of(LARGE)
    schedule = FAMILY.schedule(TILE | {"tile_m": 128, "consumers": 2, "tile_n": 128, "stages": 4})

    found = FAMILY.work(schedule, p)

    assert (found.macs, found.math, found.steps) == (128 * 128 * 4096, "f16", 64)
    assert found.cache_bytes == 64 * 128 * 256
    assert found.ahead == 4


def test_defaults_are_legal_at_every_size_and_ranked():
    for m, n, k in ((1, 1, 8), (1, 8, 1 << 16), (1 << 16, 8, 8), (3, 50000, 768), (1 << 14, 1 << 14, 1 << 14)):
        kernel = matmul(m, n, k, dtype=F16, b_transposed=True)
        p, wanted = problem_of(kernel), demand(kernel, TARGET.device)
        schedule = FAMILY.default(p, TARGET.limits).numbers

        assert not FAMILY.reasons(schedule, p, TARGET.limits)
        assert 0 < rank.predicted(FAMILY, p, schedule, TARGET.device, wanted).us < 1e5
