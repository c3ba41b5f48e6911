"""Which kernels the tcgen05 engine accepts, its schedules, and its registers and machine code by ptxas and nvdisasm."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpucomp.errors import ScheduleError
from gpucomp.expr.core import cast
from gpucomp.ir.types import F16, F64, I8, I32
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.pack_weights import pack
from gpucomp.kernels_templates.contraction.tcgen05 import space as tcgen05
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule import rank
from gpucomp.schedule.analytic import demand
from gpucomp.schedule.choose import choose
from gpucomp.targets import cuda, sass
from testing.cases.wgmma_space import LARGE
from testing.cases.wgmma_space import REAL as OF_WGMMA
from testing.kernels import matmul
from testing.tcgen05_kernels import FAMILY, TARGET, TILE, TMA_STORE, TWO, WIDE
from testing.wgmma_kernels import constant_b, image, one_result, with_math

REAL = {name: kernel for name, kernel in OF_WGMMA.items() if name != "i8"}


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (matmul(64, 64, 64, dtype=F16, b_transposed=True), ""),
        (matmul(64, 64, 64, dtype=F16), "b is not contiguous in depth"),
        (constant_b(matmul(64, 64, 64, dtype=F16)), ""),
        (matmul(1, 64, 63, dtype=F16, b_transposed=True), "rows of b do not start at multiples of 16 bytes"),
        (matmul(64, 64, 64, b_transposed=True), "tcgen05 does not multiply f32 by f32 into f32 (strict)"),
        (with_math(matmul(64, 64, 64, b_transposed=True)), ""),
        (with_math(matmul(64, 64, 64, b_transposed=True), "3xtf32"), "into f32 (3xtf32)"),
        (matmul(64, 64, 64, dtype=I8, acc=I32, b_transposed=True), "tcgen05 does not multiply i8 by i8"),
        (matmul(64, 64, 64, dtype=F64, acc=F64, b_transposed=True), "does not multiply f64"),
        (matmul(64, 64, 0, dtype=F16, b_transposed=True), "nothing to multiply"),
        (image((1, 9, 9, 8), 8, (3, 3), pad=1, dtype=F16), ""),
        (image((1, 9, 9, 4), 8, (3, 3), pad=1, dtype=F16), "4 channels of f16 are not a multiple of 16 bytes"),
    ],
)
def test_what_the_engine_refuses_and_why(kernel, reason):
    found = FAMILY.accepts(kernel, TARGET.features)

    assert bool(found) == bool(reason)
    assert reason in found


def test_what_it_does_not_multiply_is_not_rendered():
    with pytest.raises(ScheduleError, match="the instruction does not multiply its types"):
        render(matmul(64, 64, 64, b_transposed=True), TILE, TARGET, "k0", FAMILY)


@pytest.mark.parametrize(("arch", "takes"), [("sm_80", False), ("sm_90a", False), ("sm_100", True), ("sm_120", False)])
def test_only_sm_100_has_the_engine(arch, takes):
    kernel = matmul(64, 64, 64, dtype=F16, b_transposed=True)

    found = engines_of(kernel, cuda.manifest(arch).features)

    assert (FAMILY in found) == takes
    assert found[-1] is FAMILIES["contraction/simt"]
    if takes:
        assert found[0] is FAMILY, "it comes before the engines that every architecture has"


def test_weights_are_packed_by_columns():
    kernel = constant_b(matmul(64, 24, 40, batch=(3,), dtype=F16))

    wanted = FAMILY.packing(kernel, FAMILY.schedule(TILE), FAMILY.problem(kernel))

    assert wanted == Packing("b", (Digit("batch", 1, 3), Digit("span", 1, 24), Digit("k", 1, 40)))


# ---- the space ----


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"tile_m": 256, "tile_n": 128}, ""),
        ({"tile_m": 256, "tile_n": 256}, "B of shared memory, the device has 232448 B"),
        ({"tile_m": 128, "tile_n": 256, "stages": 4}, ""),
        ({"tile_m": 128, "tile_n": 256, "stages": 5}, "B of shared memory, the device has 232448 B"),
        ({"multicast": 1}, ""),
        ({"multicast": 2, "splits": 2}, "a cluster shares the depth or the loads, not both"),
        ({"multicast": 3}, "a pair multiplies 128 rows of each work-group at once, the tile has 64"),
        ({"multicast": 3, "tile_m": 128}, ""),
        ({"multicast": 3, "tile_m": 128, "splits": 2}, "a cluster shares the depth or the loads, not both"),
        ({"multicast": 3, "tile_m": 128, "tile_n": 256, "stages": 6}, ""),
        ({"turns": 2}, "several tiles of a work-group are stored by TMA"),
        ({"turns": 2, "tma_store": 1, "splits": 2}, "the loads of one tile, not of several"),
        ({"turns": 2, "tma_store": 1, "multicast": 1}, "the loads of one tile, not of several"),
        ({"tma_store": 1}, "TMA cannot store the result: not a matrix of f16, bf16 or f32 with rows of whole 16 bytes"),
        ({"overlap": 1}, ""),
        ({"overlap": 2}, "b is the result of another kernel"),
    ],
)
def test_schedules_that_cannot_run_say_why(change, reason):
    found = FAMILY.reasons(TILE | change, FAMILY.problem(LARGE), TARGET.limits)

    assert bool(found) == bool(reason)
    assert reason in "; ".join(found)


def test_a_result_that_tma_stores_leaves_room_for_the_largest_tile():
    problem = FAMILY.problem(one_result(LARGE))
    largest = TWO | {"tile_n": 256, "tma_store": 1, "stages": 3}

    assert not FAMILY.reasons(largest, problem, TARGET.limits)
    assert tcgen05.derive(FAMILY.schedule(largest), problem).tensor_columns == tcgen05.TENSOR_COLUMNS


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        ({"tile_n": 16}, 32),
        ({"tile_n": 48}, 64),
        ({"tile_n": 192}, 256),
        ({"tile_m": 256, "tile_n": 48}, 128),
        ({"tile_m": 256, "tile_n": 48, "turns": 3}, 256),
    ],
)
def test_columns_of_tensor_memory_are_a_power_of_two(change, columns):
    found = tcgen05.derive(FAMILY.schedule(TILE | change), FAMILY.problem(LARGE))

    assert found.tensor_columns == columns


def ptxas(kernel, schedule):
    """The registers that ptxas takes for the kernel, with packed weights if the engine requires it; and its cubin."""
    wanted = FAMILY.packing(kernel, FAMILY.schedule(schedule), FAMILY.problem(kernel))
    source = render(pack(kernel, wanted).kernel if wanted else kernel, schedule, TARGET, "k0", FAMILY)
    assert not [r for m in source.tensor_maps for r in m.objections()]
    cubin, log = cuda.compile_source(source, TARGET)
    assert "for 'sm_100f'" in log
    return cuda.resources(log)["k0"], cubin


def assert_fits(used, schedule, problem):
    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0, schedule
    assert used.registers <= tcgen05.registers(FAMILY.schedule(schedule), problem), schedule


@pytest.mark.parametrize("name", REAL)
def test_defaults_are_legal_spill_nothing_and_multiply_by_tcgen05(name):
    p = FAMILY.problem(REAL[name])
    schedule = dict(FAMILY.default(p, TARGET.limits).numbers)
    assert not FAMILY.reasons(schedule, p, TARGET.limits)

    used, cubin = ptxas(REAL[name], schedule)

    assert_fits(used, schedule, p)
    found = sass.instructions(cubin)
    products = max(1, schedule["tile_m"] // 128) * 4  # of a stage; ptxas may write the loop out several times
    count = sass.count(found, "UTCHMMA")
    assert count
    assert count % products == 0
    assert not sass.count(found, "HMMA")


@pytest.mark.parametrize("seed", range(10))
def test_a_spread_of_schedules_spills_nothing_and_keeps_to_the_formula(seed):
    draw = random.Random(seed)
    kernel = REAL[draw.choice(list(REAL))]
    problem, schedule = FAMILY.problem(kernel), None
    while schedule is None or FAMILY.reasons(schedule, problem, TARGET.limits):
        schedule = {param.name: draw.choice(param.choices) for param in FAMILY.params}

    used, _ = ptxas(kernel, schedule)

    assert_fits(used, schedule, problem)


def test_machine_code_has_what_the_schedule_says():
    kernel = one_result(matmul(512, 512, 512, dtype=F16, b_transposed=True))

    def has(found, *parts):
        return any(all(part in name for part in parts) for name in found)

    plain = sass.instructions(ptxas(kernel, WIDE)[1])
    assert all(has(plain, name) for name in ("LDTM", "UTCBAR", "UTCATOMSWS"))
    for change, parts in (
        ({"multicast": 1}, ("UTMALDG", "MULTICAST")),
        ({"multicast": 1}, ("UTCBAR", "MULTICAST")),
        ({"tma_store": 1}, ("UTMASTG",)),
        ({"tma_store": 1}, ("STSM",)),
        ({"multicast": 3}, ("UTMALDG", "2CTA")),
        ({"multicast": 3}, ("UTCHMMA", "2CTA")),
        ({"multicast": 3}, ("UTCBAR", "2CTA")),
        ({"multicast": 3}, ("UTCATOMSWS", "2CTA")),
    ):
        assert has(sass.instructions(ptxas(kernel, WIDE | change)[1]), *parts)
        assert not has(plain, *parts)


def test_deep_layers_are_split_and_large_ones_are_not():
    deep, large = (dict(FAMILY.default(FAMILY.problem(REAL[n]), TARGET.limits).numbers) for n in ("deep", "large"))

    assert deep["splits"] > 1
    assert large["splits"] == 1
    assert large["tile_m"] * large["tile_n"] >= 128 * 128


def test_work_groups_multiply_in_pairs_where_their_memory_would_be_too_slow_for_one():
    def chosen(kernel):
        return dict(FAMILY.default(FAMILY.problem(kernel), TARGET.limits).numbers)

    large = one_result(matmul(4096, 4096, 4096, dtype=F16, b_transposed=True))
    p, device = FAMILY.problem(large), TARGET.device
    wanted = demand(large, device)
    pair = chosen(large)
    alone = pair | {"multicast": 0, "stages": 3}
    assert not FAMILY.reasons(alone, p, TARGET.limits)

    assert pair["multicast"] == 3
    us = [rank.predicted(FAMILY, p, s, device, wanted).us for s in (pair, alone)]
    assert us[0] < us[1]
    # a step of 128 bytes: 256 rows and the columns for each half of these are read, and what is loaded was written
    traffic = [FAMILY.work(FAMILY.schedule(s), p).shared_traffic - 2 * 256 * 256 * 2 for s in (pair, alone)]
    rows = [256 + 2 * 128 + 256 + 128, 256 + 2 * 256 + 256 + 256]
    assert traffic == [64 * 128 * n for n in rows]
    assert chosen(matmul(128, 1024, 4096, dtype=F16, b_transposed=True))["multicast"] != 3


def test_loads_are_shared_where_there_is_more_than_a_wave_and_tma_stores_what_reads_nothing():
    def chosen(kernel):
        return FAMILY.default(FAMILY.problem(kernel), TARGET.limits).numbers

    biased = one_result(LARGE)
    plain = replace(biased, stores=(replace(biased.stores[0], value=cast(biased.body.acc, F16)),))
    wave = one_result(matmul(1024, 1024, 4096, dtype=F16, b_transposed=True))

    assert (chosen(plain)["multicast"] > 0, chosen(plain)["tma_store"]) == (True, 1)
    assert chosen(wave)["multicast"] == 0


@pytest.mark.parametrize("name", ["large", "deep", "wide", "strided", "tf32"])
def test_it_is_chosen_for_large_products(name):
    kernel = REAL[name]

    found = choose(kernel, engines_of(kernel, TARGET.features), TARGET.limits, TARGET.device)

    assert found.family is FAMILY


def test_an_analytic_model_is_told_what_a_work_group_does():
    p = FAMILY.problem(LARGE)
    schedule = FAMILY.schedule(WIDE | {"tile_n": 128, "stages": 4})

    found = FAMILY.work(schedule, p)

    assert (found.macs, found.math, found.steps) == (128 * 128 * 4096, "f16", 64)
    assert found.cache_bytes == 64 * 128 * 256
    assert found.ahead == 4
    assert not found.by_warp
    half = FAMILY.work(schedule.replace(tile_m=64), p)
    assert half.macs == found.macs, "64 rows take the matrix unit as long as 128"


def test_defaults_are_legal_at_every_size_and_ranked():
    for m, n, k in ((1, 1, 8), (1, 8, 1 << 16), (1 << 16, 8, 8), (3, 50000, 768), (1 << 14, 1 << 14, 1 << 14)):
        kernel = matmul(m, n, k, dtype=F16, b_transposed=True)
        p, wanted = FAMILY.problem(kernel), demand(kernel, TARGET.device)
        schedule = FAMILY.default(p, TARGET.limits).numbers

        assert not FAMILY.reasons(schedule, p, TARGET.limits)
        assert 0 < rank.predicted(FAMILY, p, schedule, TARGET.device, wanted).us < 1e5


def test_a_default_that_cannot_run_leaves_the_kernel_to_another_engine():
    p = FAMILY.problem(LARGE).replace(batch=1 << 40)

    assert FAMILY.reasons(FAMILY.default(p, TARGET.limits).numbers, p, TARGET.limits)


def test_short_rows_are_not_stored_by_tma():
    found = FAMILY.reasons(
        TMA_STORE, FAMILY.problem(one_result(matmul(64, 44, 64, dtype=F16, b_transposed=True))), TARGET.limits
    )

    assert "rows of whole 16 bytes" in "; ".join(found)
