"""The terms of a launch change as they do on a device, for one schedule and for many at once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpucomp.device.device import AMD, CUDA, OPENCL, Losses, measured, waiting
from gpucomp.errors import UsageError
from gpucomp.kernel.geometry import Geometry
from gpucomp.schedule.analytic import Demand, floor_us, traffic
from gpucomp.schedule.model import Launch, predict, resident_groups, terms
from gpucomp.schedule.rank import KINDS, NUMBERS, Facts
from gpucomp.schedule.space import Work, groups_for_registers
from testing.kernels import add_relu, matmul, softmax

H200 = CUDA["sm_90a"]
NOTHING = Demand(1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("registers", "threads", "groups"),
    [
        (168, 192, 2),
        (169, 192, 1),  # 176 of them: two warps in each part
        (200, 64, 4),  # 65536 registers are five times as many, but a part holds two warps
        (220, 48, 4),  # a warp and a half take two
        (32, 96, 10),  # as many work-items as every architecture holds
        (255, 1024, 1),
    ],
)
def test_a_warp_s_registers_are_in_one_part_of_a_multiprocessor(registers, threads, groups):
    assert groups_for_registers(registers, threads) == groups


def us(groups, work, *, threads=128, registers=64, device=H200):
    return float(predict(NOTHING, device, Launch(groups, threads, registers, work)).total_us)


def test_a_large_product_is_bound_by_arithmetic_and_a_sum_by_memory():
    geometry = Geometry((1024, 1, 1), (256, 1, 1))
    product = terms(matmul(4096, 4096, 4096), H200, geometry, registers=100, shared_bytes=32768)
    sum_ = terms(add_relu(1 << 14, 1 << 12), H200, geometry, registers=30, shared_bytes=0)

    assert product.limiter in ("math", "issue")
    assert sum_.limiter in ("memory", "cache")
    assert product.total_us > product.floor_us
    assert sum_.total_us > sum_.floor_us


def test_a_tiny_kernel_costs_its_launch():
    found = terms(add_relu(3, 5), H200, Geometry((1, 1, 1), (64, 1, 1)), registers=20, shared_bytes=0)

    assert found.limiter == "launch"
    assert found.total_us == pytest.approx(H200.launch_us, rel=0.5)


WITH_WEIGHTS = Demand(1.0, 1.0, 0.0, constant_bytes=1.0)
CONSTANTS_FIRST = Work(4096.0, 64.0, start_cycles=750.0, early_cycles=700.0)


def test_a_launch_that_overlaps_costs_less_and_hides_what_comes_before_its_wait():
    launch = Launch(98, 128, 64, CONSTANTS_FIRST)
    early, late = (predict(WITH_WEIGHTS, device, launch) for device in (H200, waiting(H200)))

    assert early.early_us == pytest.approx(H200.waits_us + 700e-3 / H200.ghz)
    assert late.total_us - early.total_us == pytest.approx(early.early_us)
    assert late.early_us == 0


def test_a_kernel_that_reads_no_constants_waits_at_once():
    found = predict(NOTHING, H200, Launch(98, 128, 64, CONSTANTS_FIRST))

    assert found.early_us == pytest.approx(H200.waits_us)


def test_a_schedule_that_does_not_overlap_waits_for_the_launch_before():
    launch = Launch(98, 128, 64, dataclasses.replace(CONSTANTS_FIRST, overlaps=0.0))
    found, late = (predict(WITH_WEIGHTS, device, launch) for device in (H200, waiting(H200)))

    assert found.early_us == 0
    assert found.total_us == pytest.approx(late.total_us)
    assert waiting(CUDA["sm_80"]) == CUDA["sm_80"]  # it has no such launches


def test_residency_is_limited_by_each_resource_in_turn():
    assert resident_groups(H200, 256, 32, 0) == 8  # threads
    assert resident_groups(H200, 256, 128, 0) == 2  # registers
    assert resident_groups(H200, 32, 16, 0) == 32  # work-groups
    assert resident_groups(H200, 128, 32, 100_000) == 2  # shared memory
    assert resident_groups(H200, 1024, 255, 0) == 0  # it cannot run


def test_a_simd_of_gcn_has_registers_of_its_own():
    device = AMD["gfx906"]

    assert resident_groups(device, 256, 128, 0) == 2  # two waves of each of four SIMDs
    assert resident_groups(device, 64, 136, 0) == 4  # 65536 registers are seven times as many, but each wave has a SIMD
    assert resident_groups(device, 96, 128, 0) == 4  # a wave and a half take two
    assert resident_groups(device, 320, 200, 0) == 1  # five waves: the compiler keeps them to 128


def test_what_a_schedule_says_of_its_work_groups_is_used():
    geometry, kernel = Geometry((264, 1, 1), (128, 1, 1)), matmul(512, 512, 512)

    def found(**work):
        return terms(
            kernel, H200, geometry, registers=64, shared_bytes=0, work=Work(**{"macs": 1, "cache_bytes": 0} | work)
        )

    assert found(macs=1e7).limiter == "math"
    assert found(cache_bytes=1e7).limiter == "cache"
    assert found(steps=100).limiter == "latency"
    assert found(shared_traffic=1e7).limiter == "shared"
    assert found(instructions=1e6).limiter == "issue"
    assert found(splits=2, joined_bytes=1e7).limiter == "join"
    assert found(out_bytes=1e7).limiter == "end"


def test_one_work_group_more_than_a_wave_costs_another_wave():
    """Each unit holds one: a work-group needs all 233472 bytes of shared memory."""
    work = Work(1e6, 0, shared_bytes=200_000, math="f16", chains=32)
    one, two, more = (us(n, work) - H200.launch_us for n in (132, 133, 264))

    assert two == pytest.approx(2 * one, rel=0.01)
    assert more == pytest.approx(two, rel=0.01)


def test_work_groups_that_fit_together_share_their_units_without_another_wave():
    waiting = Work(1e3, 1e3, steps=50, shared_bytes=50_000)  # latency bound: four of them wait at once

    assert us(4 * 132, waiting) < 1.1 * us(132, waiting)
    assert us(5 * 132, waiting) > 1.6 * us(132, waiting)


def test_tiles_ahead_hide_latency_until_all_of_them_are_under_way():
    times = [us(132, Work(1e3, 1e3, steps=12, ahead=ahead)) for ahead in (1, 2, 4, 12, 30)]

    assert times[:4] == sorted(times[:4], reverse=True)
    assert times[0] > 1.5 * times[3]
    assert times[3] == times[4]


def test_few_warps_and_few_independent_sums_leave_arithmetic_idle():
    def loop(threads, chains):
        launch = Launch(132, threads, 64, Work(1e7, 0, math="f16", chains=chains))
        return float(predict(NOTHING, H200, launch).math_us)

    assert loop(32, 64) > 3.5 * loop(128, 64)
    assert loop(128, 1) > 5 * loop(128, 16)
    assert loop(256, 16) == loop(512, 16)


def test_mma_sync_is_slower_than_wgmma_where_the_device_says_so():
    def math_us(device, by_warp):
        launch = Launch(132, 256, 64, Work(1e7, 0, math="f16", chains=32, by_warp=by_warp))
        return float(predict(NOTHING, device, launch).math_us)

    assert math_us(H200, True) == pytest.approx(math_us(H200, False) / 0.63)
    assert math_us(CUDA["sm_80"], True) == math_us(CUDA["sm_80"], False)


def test_a_cluster_adds_up_faster_than_the_last_to_arrive():
    last = Work(1e3, 0, splits=8, joined_bytes=1 << 14)

    assert us(64, dataclasses.replace(last, in_cluster=True)) < us(64, last)
    assert us(64, last) > us(64, dataclasses.replace(last, splits=1))


def test_statistics_of_rows_cost_what_the_last_of_their_work_groups_reads():
    plain = Work(1e5, 1e5, steps=10)
    rows = dataclasses.replace(plain, tail_bytes=1e5, tail_trips=2, tail_instructions=1e3)
    shared = dataclasses.replace(rows, tail_sharers=8)

    assert us(64, plain) < us(64, rows) < us(64, shared)  # that work-groups meet takes a while
    assert us(64, rows) < us(64, dataclasses.replace(rows, tail_bytes=2e5))
    assert us(64, rows) < us(64, dataclasses.replace(rows, tail_trips=4))
    assert us(64, plain) == us(64, dataclasses.replace(plain, tail_sharers=8))


def test_many_schedules_at_once_are_each_as_alone():
    rng, count = np.random.default_rng(0), 40
    columns = {name: rng.uniform(1, 1e6, count) for name in ("macs", "cache_bytes", "out_bytes", "instructions")}
    columns |= {name: rng.integers(1, 9, count) for name in ("steps", "ahead", "splits", "chains")}
    columns["shared_bytes"] = rng.integers(0, 60_000, count)
    groups, threads = rng.integers(1, 5000, count), 32 * rng.integers(1, 9, count)
    found = predict(NOTHING, H200, Launch(groups, threads, np.full(count, 72), Work(**columns)))

    for k in range(count):
        work = Work(**{name: column[k].item() for name, column in columns.items()})
        alone = predict(NOTHING, H200, Launch(groups[k].item(), threads[k].item(), 72, work))
        assert found.total_us[k] == pytest.approx(float(alone.total_us), rel=1e-12)
        assert found.row(k).limiter == alone.limiter


def test_every_architecture_has_a_device():
    from gpucomp.targets import cuda

    assert set(CUDA) == set(cuda.ARCHITECTURES)
    for device in (*CUDA.values(), *OPENCL.values()):
        assert device.rate("fma") > 0
        assert device.shared_bytes >= 32768 or (device.shared_bytes == 0 and "Mali" in device.name)


def test_measured_figures_replace_the_table_s():
    found = measured(H200, {"ghz": 1.7, "matrix": {"f16": 1800}})

    assert (found.ghz, found.units, found.matrix["f16"]) == (1.7, H200.units, 1800)
    assert found.matrix["tf32"] == H200.matrix["tf32"]
    nan = float("nan")
    for figures in (
        {"name": 3},
        {"ghz": -1.0},
        {"ghz": nan},
        {"ghz": True},
        {"matrix": {"f16": 0}},
        {"ghz": {"f16": 1}},
    ):
        with pytest.raises(UsageError, match="positive numbers"):
            measured(H200, figures)


def test_stores_of_work_groups_that_are_alone_on_their_units_hide_behind_nothing():
    """Results of 346 MB in 20 rounds: each stores at its end, at the speed of memory, unless others multiply meanwhile."""
    stores = Work(1e6, 0, math="f16", chains=32, out_bytes=128 << 10, shared_bytes=200_000)
    within = dataclasses.replace(stores, out_bytes=16 << 10)
    beside = dataclasses.replace(stores, shared_bytes=40_000)

    def end_us(work):
        return float(predict(NOTHING, H200, Launch(20 * 132, 128, 64, work)).end_us)

    assert end_us(stores) == pytest.approx(20 * 132 * stores.out_bytes / (H200.dram_gbs * 1e3), rel=0.5)
    assert end_us(stores) > 8 * end_us(within)  # eight times the bytes, and fewer of them stay in the cache
    assert end_us(beside) < 0.5 * end_us(stores)


def test_what_a_cache_has_room_for_is_not_read_from_memory():
    def memory_us(nbytes, constant=0.0):
        wanted = Demand(1.0, nbytes, 0.0, constant)
        return float(predict(wanted, H200, Launch(132, 128, 64, Work(1e3, 0))).memory_us)

    whole, part, ends = 2.0 * H200.l2_bytes, H200.l2_bytes / 4, memory_us(0.0)
    assert ends == pytest.approx(1.5e-3 * H200.latency_cycles / H200.ghz)
    assert memory_us(whole) - ends == pytest.approx(whole / (H200.dram_gbs * 1e3))
    assert memory_us(part) - ends == pytest.approx(part / (H200.l2_gbs * 1e3))
    assert memory_us(part, part) - ends == pytest.approx(
        part / (H200.dram_gbs * 1e3)
    )  # weights for which it has no room
    assert memory_us(part / 5, part / 5) - ends == pytest.approx(part / 5 / (H200.l2_gbs * 1e3))


def test_a_clock_that_is_not_held_under_load_slows_what_is_busy_all_the_time():
    held = dataclasses.replace(H200, loaded={"f16": 0.5})
    busy, idle = Work(1e7, 0, math="f16", chains=32), Work(1e3, 0, math="f16", steps=50)

    def loop_us(device, work):
        return float(predict(NOTHING, device, Launch(132, 256, 64, work)).loop_us)

    assert 1.8 * loop_us(H200, busy) < loop_us(held, busy) <= 2 * loop_us(H200, busy)
    assert loop_us(held, idle) < 1.01 * loop_us(H200, idle)


def test_waves_of_64_are_half_as_many_and_a_lone_one_on_each_scheduler_hides_little():
    device = dataclasses.replace(AMD["gfx906"], losses=Losses(lone=0.8))
    work = Work(1e6, 4e4, shared_traffic=1e6, instructions=3e4, chains=16)

    def loop_us(threads, where=device):
        return float(predict(NOTHING, where, Launch(60, threads, 64, work)).loop_us)

    assert loop_us(256) > 1.2 * loop_us(256, dataclasses.replace(device, losses=Losses()))
    assert loop_us(1024) < 0.85 * loop_us(256)


def test_idle_lanes_of_a_wave_of_64_take_their_time():
    def math_us(threads, device=AMD["gfx906"]):
        return float(predict(NOTHING, device, Launch(600, threads, 64, Work(1e6, 4e4, chains=64))).math_us)

    assert math_us(96) == pytest.approx(4 / 3 * math_us(128), rel=0.01)
    assert math_us(96, H200) == pytest.approx(math_us(128, H200), rel=0.05)


def test_what_a_wave_shares_is_in_scalar_registers_where_a_device_has_them():
    work = Work(1e6, 4e4, uniform=28)

    def resident(device, work=work):
        return float(predict(NOTHING, device, Launch(600, 256, 156, work)).resident)

    assert resident(AMD["gfx906"]) == 2 * resident(AMD["gfx906"], dataclasses.replace(work, uniform=0)) == 2
    assert resident(H200) == resident(H200, dataclasses.replace(work, uniform=0))
    made = terms(
        matmul(512, 512, 64), AMD["gfx906"], Geometry((64, 1, 1), (256, 1, 1)), registers=156, shared_bytes=0, work=work
    )
    assert made.resident == 1  # those that the compiler counted are all there are


def test_a_compiler_takes_no_more_registers_than_a_work_group_can_have():
    numbers = {name: np.ones(2) for name in ("groups", "threads", "keeps", *NUMBERS)}
    numbers |= {"threads": np.array([512, 512]), "keeps": np.array([100, 200]), "registers": np.array([250, 250])}
    facts = Facts(numbers, tuple(getattr(Work(0, 0), name) for name in KINDS), np.ones(2, bool))

    assert facts.launch().registers.tolist() == [128, 250]


def test_registers_that_a_compiler_has_no_room_to_take_are_not_left_out_a_second_time():
    numbers = {name: np.ones(2) for name in ("groups", "threads", "keeps", *NUMBERS)}
    numbers |= {"threads": np.array([1024, 256]), "keeps": np.array([56, 56]), "registers": np.array([88, 88])}
    facts = Facts(
        numbers | {"uniform": np.array([41, 41])}, tuple(getattr(Work(0, 0), name) for name in KINDS), np.ones(2, bool)
    )

    launch = facts.launch()

    assert (launch.registers - launch.work.uniform).tolist() == [47, 47]


def test_a_unit_with_more_work_groups_than_others_has_more_of_the_cache():
    """133 of them run at once on 132 units: the one unit with two does not halve the bandwidth of all."""
    reads = Work(1e3, 1 << 20, shared_bytes=40_000)

    def cache_us(groups):
        return float(predict(NOTHING, H200, Launch(groups, 128, 64, reads)).cache_us)

    assert cache_us(133) < 1.5 * cache_us(132)
    assert cache_us(264) == pytest.approx(2 * cache_us(132))
    assert cache_us(2) == pytest.approx(cache_us(1))  # each takes what a unit's port does


@pytest.mark.parametrize("shared_bytes", [100_000, 200_000])  # a unit holds two, or one
def test_only_work_groups_that_there_are_share_the_cache(shared_bytes):
    """The last one of 133 runs beside another on its unit, or after it: then it has the cache to itself."""
    reads = Work(1e3, 1 << 20, shared_bytes=shared_bytes)

    def cache_us(groups):
        return float(predict(NOTHING, H200, Launch(groups, 128, 64, reads)).cache_us)

    port, shared = 1 / H200.unit_bytes, 132 * H200.ghz / H200.l2_gbs  # cycles for a byte of each work-group
    last = port if shared_bytes == 200_000 else 2 * port - shared
    assert cache_us(133) / cache_us(132) == pytest.approx((shared + last) / shared)
    assert cache_us(264) == pytest.approx(2 * cache_us(132))


@pytest.mark.parametrize(("rows", "columns", "kept"), [(4096, 1024, True), (1 << 15, 1 << 12, False)])
def test_no_prediction_is_below_the_floor_of_a_kernel_whose_data_a_cache_may_have_kept(rows, columns, kept):
    device, kernel = CUDA["sm_89"], softmax(rows, columns)  # 32 MiB fit in half of its cache, 1 GiB do not fit at all
    from_memory, from_cache = (traffic(kernel) / (rate * 1e3) for rate in (device.dram_gbs, device.l2_gbs))

    found = terms(kernel, device, Geometry((4096, 1, 1), (256, 1, 1)), registers=32, shared_bytes=0)

    assert found.total_us > found.memory_us > found.floor_us
    assert found.floor_us == pytest.approx(from_cache if kept else from_memory)
    assert floor_us(kernel, device, cold=True) == pytest.approx(from_memory)


def test_only_register_tiles_pay_for_operands_that_lanes_read_twice():
    device = dataclasses.replace(H200, losses=Losses(fragments=2.0))

    def shared_us(**traffic):
        return float(predict(NOTHING, device, Launch(132, 256, 64, Work(1e3, 0, **traffic))).shared_us)

    assert shared_us(fragment_traffic=1e6) == pytest.approx(2 * shared_us(shared_traffic=1e6))
    halved = dataclasses.replace(device, shared_rate=64)
    slower = predict(NOTHING, halved, Launch(132, 256, 64, Work(1e3, 0, shared_traffic=1e6)))
    assert float(slower.shared_us) == pytest.approx(2 * shared_us(shared_traffic=1e6))


def test_what_a_warp_does_in_turn_only_other_work_groups_hide():
    softmax = Work(1e6, 0, math="f16", instructions=2e3, chains=32, shared_bytes=40_000)
    in_turn = dataclasses.replace(softmax, in_turn=1.0)

    def loop_us(work, groups):
        return float(predict(NOTHING, H200, Launch(groups, 128, 64, work)).loop_us)

    alone, beside = (loop_us(in_turn, n) / loop_us(softmax, n) for n in (132, 4 * 132))
    assert alone > 1.3
    assert 1 < beside < 1 + (alone - 1) / 2


def test_results_are_stored_as_narrow_as_they_are_and_partial_sums_are_not():
    stores = Work(1e6, 0, math="f16", chains=32, out_bytes=128 << 10, shared_bytes=200_000)
    whole = 20 * 132 * stores.out_bytes

    def end_us(result_bytes, work=stores):
        wanted = Demand(1.0, 1.0, 0.0, result_bytes=result_bytes)
        return float(predict(wanted, H200, Launch(20 * 132, 128, 64, work)).end_us)

    assert end_us(whole / 2) < 0.55 * end_us(whole)
    assert end_us(1.0) == end_us(whole / 4)  # no type is narrower than a byte
    split = dataclasses.replace(stores, splits=2)
    assert end_us(whole / 2, split) == end_us(whole, split)
