"""Ranking by the analytic model: legal schedules, schedules known to be fast, and effects of a device's size."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from gpucomp.device.device import CUDA, typical
from gpucomp.ir.types import F16, U64
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.schedule import points, rank
from gpucomp.schedule.analytic import demand
from gpucomp.targets import cuda, opencl
from testing.kernels import (
    add_relu,
    conv,
    joined,
    layer_norm,
    matmul,
    max_pool,
    padded,
    reduction,
    scan,
    softmax,
    transposed,
)

SIMT, MMA, WGMMA, GEMV = (FAMILIES[f"contraction/{e}"] for e in ("simt", "mma", "wgmma", "gemv"))
LOOPS, TRANSPOSE, ROWWISE, POOL, SCAN = (
    FAMILIES[title] for title in ("loops", "loops/transpose", "rowwise", "pool", "scan")
)
LARGE = matmul(4096, 4096, 4096, dtype=F16, b_transposed=True)
SEVEN = conv((1, 7, 7, 512), 512, (3, 3), pad=1, dtype=F16)


def constant(kernel):
    return dataclasses.replace(kernel, constants=frozenset({1}))


def ranking(kernel, family, arch="sm_80"):
    target = cuda.manifest(arch)
    return rank.ranking(family, family.problem(kernel), target.limits, target.device, demand(kernel, target.device))


def first(kernel, family, arch="sm_80"):
    return next(ranking(kernel, family, arch).best())


def fastest(found, **wanted):
    """The predicted time of the fastest schedule with these parameters, in microseconds."""
    columns = points.columns(found.family, found.values)
    return found.us[np.logical_and.reduce([columns[name] == value for name, value in wanted.items()])].min()


@pytest.mark.parametrize(
    ("kernel", "family", "arch"),
    [
        (SEVEN, MMA, "sm_80"),
        (conv((1, 13, 11, 24), 40, (3, 3), pad=1), SIMT, "sm_75"),
        (matmul(1, 1000, 512), GEMV, "sm_80"),
        (matmul(197, 136, 264, dtype=F16, b_transposed=True), WGMMA, "sm_90a"),
    ],
    ids=["mma", "simt", "gemv", "wgmma"],
)
def test_what_is_ranked_can_run_in_the_order_of_its_time_and_without_register_pressure(kernel, family, arch):
    target, found = cuda.manifest(arch), ranking(kernel, family, arch)
    problem, p = family.problem(kernel), family.problem(kernel)

    leading = list(itertools.islice(found.best(), 20))

    assert len(found) > 20
    assert [r.us for r in leading] == sorted(r.us for r in leading)
    assert leading[0].us == found.us.min()
    assert len({tuple(r.schedule.values()) for r in leading}) == 20
    for r in leading:
        assert family.reasons(r.schedule, problem, target.limits) == []
        assert family.registers(family.schedule(r.schedule), p) == r.registers <= rank.PRESSURE
        alone = rank.predicted(family, problem, r.schedule, target.device, demand(kernel, target.device))
        assert alone.us == pytest.approx(r.us, rel=1e-12)


def tile(ranked):
    p = ranked.family.problem(LARGE)
    d = {**ranked.family.derive(ranked.family.schedule(ranked.schedule), p).numbers, **ranked.schedule}
    return d["tile_m"], d["tile_n"]


def test_a_large_product_has_one_of_the_tiles_that_cutlass_has_for_it():
    for family, arch in ((MMA, "sm_80"), (MMA, "sm_90a"), (WGMMA, "sm_90a")):
        ranked = first(LARGE, family, arch)
        assert sorted(tile(ranked)) in ([128, 128], [128, 256]), ranked.schedule
        assert ranked.schedule["splits"] == 1

    target = cuda.manifest("sm_90a")
    engines = rank.problems(LARGE, engines_of(LARGE, target.features))
    best = rank.best(LARGE, engines, target.limits, target.device)
    assert [r.family.engine for r in best] == ["wgmma", "mma"]  # simt's multiply-adds alone take longer
    assert best[0].terms.limiter == "math"
    assert best[0].us < 2.5 * best[0].terms.floor_us


def test_larger_tiles_of_a_large_product_are_faster_until_registers_run_out():
    found = ranking(LARGE, MMA)
    shape = {"warps_m": 2, "warps_n": 2, "warps_k": 1}

    tiles = ((16, 16), (32, 16), (32, 32), (64, 32), (64, 64))
    times = [fastest(found, warp_m=m, warp_n=n, **shape) for m, n in tiles]

    assert times == sorted(times, reverse=True)
    assert times[0] > 2 * times[3]
    with pytest.raises(ValueError, match="zero-size"):
        fastest(found, warp_m=64, warp_n=64, warps_m=1, warps_n=1, warps_k=1, k_steps=4)  # 16 rows of copies


def test_few_tiles_share_their_depth_and_many_do_not():
    """A 7 x 7 layer has 64 tiles of 8 x 64 for 132 multiprocessors."""
    for kernel, family, arch in ((SEVEN, MMA, "sm_80"), (SEVEN, MMA, "sm_90a"), (constant(SEVEN), WGMMA, "sm_90a")):
        found, chosen = ranking(kernel, family, arch), first(kernel, family, arch)
        assert chosen.schedule["splits"] > 1 or chosen.schedule.get("warps_k", 1) > 1
        assert fastest(found, splits=1) > 1.2 * fastest(found, splits=4)

    wide = ranking(matmul(2048, 1024, 512, dtype=F16), MMA)
    assert fastest(wide, splits=1) < 0.95 * fastest(wide, splits=4)


def test_a_matrix_read_once_takes_about_as_long_as_its_bytes():
    device = cuda.manifest("sm_80").device
    kernel = matmul(1, 25088, 4096)
    found = first(kernel, GEMV)

    least = kernel.params[1].nbytes / (device.dram_gbs * 1e3)
    assert least < found.us < 1.15 * least + device.launch_us
    assert found.terms.limiter == "memory"


def test_every_engine_says_what_it_does_but_the_one_whose_parts_keep_it_linear():
    """The number of a scatter's work-groups keeps its time linear in data and updates, so it is not ranked by speed."""
    assert [title for title, family in FAMILIES.items() if not rank.can_rank(family)] == ["scatter"]


@pytest.mark.parametrize(
    ("kernel", "family"),
    [
        (softmax(37, 130), ROWWISE),
        (layer_norm(19, 44), ROWWISE),
        (reduction("sum", 3, 1001), ROWWISE),
        (add_relu(5, 11, 28), LOOPS),
        (max_pool((1, 9, 7, 12), 3, 2, 1), POOL),
        (scan("sum", 5, 370), SCAN),
        (transposed(61, 43), TRANSPOSE),
    ],
    ids=lambda x: x.title if hasattr(x, "title") else "",
)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_of_kernels_without_matrices_too_what_is_ranked_first_can_run_and_beats_the_default(kernel, family, arch):
    target, problem = cuda.manifest(arch), family.problem(kernel)
    default = family.default(problem, target.limits).numbers
    wanted = demand(kernel, target.device)

    chosen = first(kernel, family, arch)

    assert family.reasons(chosen.schedule, problem, target.limits) == []
    assert chosen.registers <= rank.PRESSURE
    assert chosen.us <= rank.predicted(family, problem, default, target.device, wanted).us * (1 + 1e-9)


def test_what_memory_bounds_takes_as_long_as_its_bytes_in_whole_accesses():
    device = cuda.manifest("sm_90a").device
    for kernel, family in (
        (add_relu(8192, 4096), LOOPS),
        (max_pool((8, 448, 448, 64), 2, 2, 0), POOL),
        (layer_norm(65536, 768), ROWWISE),
        (transposed(8192, 8000), TRANSPOSE),
    ):
        found = first(kernel, family, "sm_90a")

        assert found.terms.limiter == "memory"
        assert found.us == pytest.approx(found.terms.memory_us + device.launch_us)
        assert found.schedule.get("vector", 4) == 4
        assert found.schedule.get("threads", 256) * found.schedule.get("lanes", 1) >= 32


def test_points_that_lie_apart_cost_whole_sectors():
    """So a transpose uses tiles, unless a side is so short that adjacent elements share sectors anyway."""
    target = cuda.manifest("sm_90a")
    turned, straight = transposed(512, 3000), add_relu(512, 3000)

    assert LOOPS.problem(turned).moved_bytes == 32 + 4
    assert LOOPS.problem(transposed(3000, 3)).moved_bytes == 3 * 4 + 4
    beside = LOOPS.problem(straight)
    assert beside.moved_bytes == beside.read_bytes + beside.written_bytes
    by_points, by_tiles = first(turned, LOOPS, "sm_90a"), first(turned, TRANSPOSE, "sm_90a")
    assert by_points.us > 1.5 * by_tiles.us
    engines = rank.problems(turned, engines_of(turned, target.features))
    assert rank.best(turned, engines, target.limits, target.device)[0].family is TRANSPOSE


def test_a_long_row_is_shared_by_work_groups_and_many_rows_are_not():
    """One work-group alone reads what its unit's port takes: on a T4 that is 86 GB/s, over a third of memory's bandwidth."""
    long, many = reduction("sum", 1, 1 << 22), reduction("sum", 16384, 256)
    for arch, part in (("sm_75", 0.36), ("sm_90a", 0.3)):
        found, device = ranking(long, ROWWISE, arch), CUDA[arch]
        shared, alone = (fastest(found, splits=splits) for splits in (128, 1))
        assert shared < part * alone
        assert alone == pytest.approx((4 << 22) / (device.unit_bytes * device.ghz * 1e3), rel=0.25)
        assert first(many, ROWWISE, arch).schedule["splits"] == 1


def test_what_results_read_is_fetched_early_where_there_is_nothing_else_to_wait_for():
    few, many = ranking(layer_norm(128, 768), ROWWISE, "sm_90a"), ranking(layer_norm(65536, 768), ROWWISE, "sm_90a")

    times = [fastest(few, keep=keep) for keep in (2, 1, 0)]
    assert times == sorted(times)
    assert times[0] + 0.15 < times[1]
    assert fastest(many, keep=2) == pytest.approx(fastest(many, keep=1))  # bound by memory
    assert set(points.columns(ROWWISE, ranking(softmax(128, 768), ROWWISE).values)["keep"].tolist()) == {0, 1}


def test_a_window_that_is_not_written_out_is_waited_for_again_and_again():
    found = ranking(max_pool((1, 7, 7, 512), 7, 1, 0), POOL, "sm_90a")

    assert fastest(found, unroll=0) > 1.5 * fastest(found, unroll=1)


def test_few_long_rows_of_a_scan_have_many_lanes_and_short_ones_few():
    assert first(scan("sum", 3, 40000), SCAN, "sm_90a").schedule["lanes"] >= 128
    assert first(scan("sum", 40000, 24), SCAN, "sm_90a").schedule["lanes"] <= 16


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_long_row_of_a_scan_is_looked_back_at_and_short_or_many_rows_are_not(arch):
    target = cuda.manifest(arch)
    for rows, cols, wanted in ((1, 10_000_000, 1), (8, 1_000_003, 1), (1, 1021, 0), (1031, 16_384, 0), (40_000, 24, 0)):
        kernel = scan("sum", rows, cols)
        problem = SCAN.problem(kernel)

        assert first(kernel, SCAN, arch).schedule["look_back"] == wanted
        assert SCAN.default(problem, target.limits).numbers["look_back"] == wanted

    long = ranking(scan("sum", 1, 10_000_000), SCAN, arch)
    assert fastest(long, look_back=0) > 10 * fastest(long, look_back=1)
    assert fastest(long, look_back=1) < 1.2 * long.terms.memory_us + target.device.launch_us


def test_lanes_that_do_not_shuffle_wait_at_a_barrier_for_each_step():
    """OpenCL has no shuffles. In CUDA they need whole warps and a type that can be shuffled."""
    for family, kernel, wide, schedule in (
        (
            SCAN,
            scan("sum", 3, 40000),
            scan("sum", 3, 40000, dtype=U64),
            {"look_back": 0, "lanes": 64, "rows_per_group": 2, "vector": 1, "accesses": 4},
        ),
        (
            ROWWISE,
            reduction("sum", 3, 40000),
            reduction("sum", 3, 40000, dtype=U64),
            {"lanes": 64, "rows_per_group": 2, "vector": 1, "keep": 0, "splits": 1},
        ),
    ):

        def done(kernel, shuffles, family=family, schedule=schedule, **change):
            p, s = family.problem(kernel), family.schedule({**schedule, **change})
            return family.work_with(shuffles)(s, p)

        cuda_s, opencl_s = done(kernel, True), done(kernel, False)
        assert opencl_s.start_cycles + opencl_s.step_cycles > cuda_s.start_cycles + cuda_s.step_cycles + 3 * 60
        assert opencl_s.shared_traffic > cuda_s.shared_traffic
        assert opencl_s.shared_bytes == 64 * 2 * 4 > cuda_s.shared_bytes
        assert opencl_s.instructions > cuda_s.instructions
        for change in ({"lanes": 8, "rows_per_group": 1}, {"lanes": 1}):
            assert done(kernel, True, **change) == done(kernel, False, **change)
        assert done(wide, True) == done(wide, False)
        assert done(kernel, False, lanes=1).shared_traffic == 0


def test_only_cuda_s_text_shuffles():
    cuda_s = [cuda.manifest(arch) for arch in cuda.ARCHITECTURES]
    opencl_s = [opencl.manifest(flavour) for flavour in (*opencl.flavours(), *opencl.AMD)]

    assert all(t.limits.subgroups and t.device.shuffles for t in cuda_s)
    assert not any(t.limits.subgroups or (t.device and t.device.shuffles) for t in opencl_s)
    assert not typical(80).shuffles


def test_a_point_of_a_concat_reads_one_operand():
    loops = FAMILIES["loops"]
    kernel = joined(20_000, *[64] * 16)
    problem = loops.problem(kernel)

    assert problem.read_bytes == problem.moved_bytes - 4 == 4
    assert loops.problem(add_relu(40, 64)).read_bytes == 8
    assert loops.problem(padded(1000, 3)).read_bytes == 4


def test_equal_problems_are_ranked_once():
    again = conv((1, 7, 7, 512), 512, (3, 3), pad=1, dtype=F16)

    assert ranking(SEVEN, MMA) is ranking(again, MMA)
    assert ranking(SEVEN, MMA) is not ranking(SEVEN, MMA, "sm_90a")


def test_what_the_model_cannot_tell_apart_is_settled():
    chosen = first(matmul(4096, 4096, 512, dtype=F16, b_transposed=True), MMA)

    assert chosen.schedule["raster"] == 8  # CUTLASS's choice for as many columns of tiles
    assert set(points.columns(MMA, ranking(LARGE, MMA).values)["raster"].tolist()) == {1}


def test_an_engine_that_says_nothing_of_its_work_is_not_ranked():
    silent = dataclasses.replace(SIMT, work=None)
    target, kernel = cuda.manifest("sm_80"), matmul(64, 96, 32)

    assert rank.can_rank(SIMT)
    assert not rank.can_rank(silent)
    assert rank.leading(kernel, silent, target.limits, target.device, 5) == []
    assert rank.defaults(kernel, rank.problems(kernel, [silent]), target.limits, target.device) == []


def test_what_is_expected_of_any_schedules_is_what_the_ranking_says_of_its_own():
    target, kernel = cuda.manifest("sm_80"), matmul(64, 96, 32)
    found = rank.ranking(SIMT, SIMT.problem(kernel), target.limits, target.device, demand(kernel, target.device))
    some = np.flatnonzero(np.isfinite(found.us))[::97]
    greedy = {"tile_m": 256, "tile_n": 256, "tile_k": 8, "reg_m": 16, "reg_n": 64} | {
        name: min(found.values[:, [q.name for q in SIMT.params].index(name)].tolist())
        for name in ("stages", "asynchronous", "fragments", "slices", "splits", "lanes")
    }
    row = np.array([[greedy[q.name] for q in SIMT.params]])

    us = rank.expected_us(kernel, SIMT, np.concatenate([found.values[some], row]), target.device)

    assert us[:-1] == pytest.approx(found.us[some])
    assert len(some) > 10
    assert SIMT.registers(SIMT.schedule(greedy), SIMT.problem(kernel)) > rank.PRESSURE
    assert math.isnan(us[-1])
    assert rank.expected_us(kernel, dataclasses.replace(SIMT, work=None), row, target.device) is None


def test_no_time_is_spent_on_an_engine_that_cannot_win():
    target = cuda.manifest("sm_90a")

    def never(p, limits):
        raise AssertionError("asked for a default")

    slow = dataclasses.replace(SIMT, default=never)
    kernel = matmul(2048, 2048, 2048, dtype=F16)
    engines = rank.problems(kernel, [MMA, slow])

    assert [r.family for r in rank.best(kernel, engines, target.limits, target.device)] == [MMA]
    assert math.isfinite(rank.best(kernel, engines, target.limits, target.device)[0].us)
