"""Every family's space: defaults are legal everywhere, objections have a reason, and schedules fit in the device."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpucomp.device.limits import Limits
from gpucomp.ir.types import F16
from gpucomp.kernels_templates.contraction.simt.space import PLAIN
from gpucomp.kernels_templates.engines import FAMILIES, engines_of, family_of
from gpucomp.targets import cuda, opencl
from testing.kernels import add_relu, attention, average_pool, conv, layer_norm, matmul, max_pool, reduction, softmax
from testing.template_cases import CASES, SMALLEST, default, is_empty, spread

MANIFESTS = [*map(cuda.manifest, cuda.ARCHITECTURES), *map(opencl.manifest, opencl.FLAVOURS)]
DEVICES = {"smallest": SMALLEST, **{t.name: t.limits for t in MANIFESTS}}


@pytest.mark.parametrize("device", DEVICES)
def test_defaults_are_legal_at_every_size(device):
    for kernel in CASES.values():
        family = family_of(kernel)

        reasons = family.reasons(default(kernel, DEVICES[device]), family.problem(kernel), DEVICES[device])

        assert reasons == [], kernel.text


def test_near_a_schedule_are_the_legal_ones_by_their_steps():
    kernel = CASES["pool-3x3"]
    family = family_of(kernel)
    problem, start = family.problem(kernel), default(kernel, SMALLEST)

    def steps(schedule):
        places = [(p.choices.index(schedule[p.name]), p.choices.index(start[p.name])) for p in family.params]
        return sum(abs(here - there) for here, there in places)

    near = list(family.near(start, problem, SMALLEST))

    assert [start, *near] == sorted([start, *near], key=steps)
    legal = list(family.legal(problem, SMALLEST))
    assert {tuple(s.values()) for s in near} | {tuple(start.values())} <= {tuple(s.values()) for s in legal}
    assert len(near) == len({tuple(s.values()) for s in near}) > 4
    assert {tuple(s.values()) for s in legal if steps(s) == 1} == {tuple(s.values()) for s in near if steps(s) == 1}


def test_defaults_are_legal_at_sizes_no_machine_has():
    problem = FAMILIES["contraction/simt"].problem(matmul(64, 64, 64))
    p = problem.replace(m=1 << 20, n=1 << 16, k=1 << 20)
    for limits in DEVICES.values():
        family = FAMILIES["contraction/simt"]

        assert family.reasons(family.default(p, limits).numbers, p, limits) == []


@pytest.mark.parametrize("case", [case for case, kernel in CASES.items() if not is_empty(kernel)])
def test_no_work_groups_meet_where_there_is_no_fence_between_them(case):
    """For every OpenCL engine: the default has no counters, and schedules with counters are only legal with a fence."""
    kernel, target = CASES[case], opencl.manifest("gfx90a")
    without = replace(target.limits, device_fence=False)
    for family in engines_of(kernel, target.features):
        problem = family.problem(kernel)
        schedule = family.default(problem, without).numbers
        if not family.reasons(schedule, problem, target.limits):
            assert family.reasons(schedule, problem, without) == []
            assert family.geometry(family.schedule(schedule), problem).counter_bytes == 0
        rng = random.Random(case)
        for _ in range(200):
            drawn = {param.name: rng.choice(param.choices) for param in family.params}
            if family.reasons(drawn, problem, target.limits):
                continue
            meets = family.geometry(family.schedule(drawn), problem).counter_bytes > 0
            refused = family.reasons(drawn, problem, without)
            assert bool(refused) == meets
            assert not refused or "no fence that orders memory between work-groups" in refused[0]


@pytest.mark.parametrize("case", CASES)
def test_a_launch_is_skipped_only_when_there_is_nothing_to_store(case):
    kernel = CASES[case]
    family = family_of(kernel)
    problem = family.problem(kernel)

    geometry = family.geometry(family.schedule(default(kernel, SMALLEST)), problem)

    assert (0 in geometry.groups) == is_empty(kernel)


@pytest.mark.parametrize(
    ("name", "kernel", "param"),
    [
        ("contraction/simt", matmul(64, 64, 64), "lanes"),
        ("attention/simt", attention(30, 32, 64, 64), "vector"),
        ("loops", add_relu(3, 64), "vector"),
        ("pool", max_pool((1, 9, 19, 64), 3, 1, 0), "vector"),
    ],
)
def test_pocl_computes_with_vectors_that_the_processor_has(name, kernel, param):
    """PoCL 3.0 aborts the process for wider vectors if its LLVM does not know the processor."""
    family, narrow = FAMILIES[name], opencl.manifest("pocl").limits
    problem, wide = family.problem(kernel), replace(narrow, vector_bytes=64)
    schedule = {**family.default(problem, wide).numbers, param: 16}
    schedule |= {"reg_n": 16, "tile_n": 32} if param == "lanes" else {}

    assert family.reasons(schedule, problem, wide) == []
    assert family.reasons(schedule, problem, narrow) == ["16 lanes of 4 bytes, the processor has 32-byte vectors"]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda f: f.name)
def test_every_parameter_says_what_it_means_and_has_a_choice(family):
    for param in family.params:
        assert len(param.choices) > 1
        assert list(param.choices) == sorted(param.choices)
        assert len(param.meaning) > 10


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tile_m": 8, "reg_m": 16}, "must divide"),
        ({"tile_m": 128, "tile_n": 128, "reg_m": 2, "reg_n": 2}, "4096 work-items per work-group"),
        ({"tile_k": 128, "tile_m": 128, "tile_n": 128}, "shared memory"),
        ({"reg_m": 16, "reg_n": 16, "tile_m": 256, "tile_n": 256}, "registers per work-item"),
        ({"lanes": 4, "splits": 1}, "run one work-item at a time"),
    ],
)
def test_contraction_objects_to_what_cannot_run(change, reason):
    base = {**PLAIN, "tile_m": 64, "tile_n": 64, "tile_k": 16, "reg_m": 4, "reg_n": 4, "stages": 2}
    family = FAMILIES["contraction/simt"]
    problem = family.problem(matmul(300, 300, 300))

    assert family.reasons(base, problem, DEVICES["cuda:sm_80"]) == []
    assert any(reason in r for r in family.reasons(base | change, problem, DEVICES["cuda:sm_80"]))


def test_a_vector_wider_than_the_innermost_axis_divides_cannot_run():
    family = FAMILIES["pool"]
    problem = family.problem(max_pool((1, 4, 4, 6), 2, 2, 0))
    schedule = {"threads": 64, "vector": 2, "items": 1, "unroll": 1}

    assert family.reasons(schedule, problem, SMALLEST) == []
    assert family.reasons(schedule | {"vector": 4}, problem, SMALLEST) != []


@pytest.mark.parametrize(
    ("threads", "registers"),
    [(1, 255), (256, 255), (257, 168), (384, 168), (512, 128), (513, 96), (768, 80), (1024, 64)],
)
def test_work_items_of_a_group_share_one_register_file(threads, registers):
    assert Limits(registers=255).registers_for(threads) == registers
    assert Limits(registers=64).registers_for(threads) == 64


KEPT = {"lanes": 16, "rows_per_group": 64, "vector": 4, "keep": 1, "splits": 1}
WIDE = {"threads": 1024, "vector": 8, "items": 1, "unroll": 1}


@pytest.mark.parametrize(
    ("kernel", "schedule", "change", "registers"),
    [
        (layer_norm(128, 768), KEPT, {"rows_per_group": 16}, "may have 64"),
        (max_pool((1, 19, 19, 64), 5, 2, 2, F16), WIDE, {"threads": 256}, "about 132 registers per work-item"),
        (max_pool((1, 19, 19, 64), 5, 2, 2, F16), WIDE, {"unroll": 0}, "may have 64"),
        (average_pool((1, 19, 19, 64), (5, 5), 2, 0), WIDE | {"vector": 16}, {"vector": 8}, "about 72 registers"),
        (
            matmul(999, 999, 999),
            {**PLAIN, "tile_m": 256, "tile_n": 256, "tile_k": 8, "reg_m": 8, "reg_n": 8, "stages": 1},
            {"tile_n": 64},
            "may have 64",
        ),
    ],
)
def test_large_groups_of_work_items_with_many_registers_cannot_run(kernel, schedule, change, registers):
    family, limits = family_of(kernel), DEVICES["cuda:sm_80"]
    problem = family.problem(kernel)

    assert any(registers in reason for reason in family.reasons(schedule, problem, limits))
    assert not any("registers" in reason for reason in family.reasons(schedule | change, problem, limits))


def test_a_window_that_does_not_fit_written_out_is_a_loop_by_default():
    padded, valid = (average_pool((1, 19, 19, 64), (4, 4), 2, pad) for pad in (2, 0))
    few = replace(DEVICES["cuda:sm_80"], registers=64, units=1)

    assert [default(k, few)["unroll"] for k in (padded, valid)] == [0, 1]
    assert default(padded, DEVICES["cuda:sm_80"])["unroll"] == 1


def test_a_small_result_of_a_deep_sum_is_split():
    problem = FAMILIES["contraction/simt"].problem(conv((1, 7, 7, 512), 512, (3, 3), pad=1))

    schedule = FAMILIES["contraction/simt"].default(problem, DEVICES["cuda:sm_90a"]).numbers

    assert schedule["splits"] > 1


def test_a_large_result_is_not_split():
    problem = FAMILIES["contraction/simt"].problem(matmul(4096, 4096, 4096))

    schedule = FAMILIES["contraction/simt"].default(problem, DEVICES["cuda:sm_90a"]).numbers

    assert schedule["splits"] == 1
    assert schedule["reg_m"] * schedule["reg_n"] == 64


def test_accesses_are_as_wide_as_the_layout_allows():
    widths = {
        "aligned": (matmul(8, 16, 12), (1, 4, 0, 4)),
        "odd columns": (matmul(8, 15, 12), (1, 4, 0, 1)),
        "a transposed": (matmul(8, 16, 12, a_transposed=True), (0, 4, 0, 4)),
        "b transposed": (matmul(8, 16, 12, b_transposed=True), (1, 4, 1, 4)),
        "channels of a window": (conv((1, 9, 9, 8), 16, (3, 3), pad=1), (1, 4, 0, 4)),
        "three channels": (conv((1, 9, 9, 3), 16, (3, 3), pad=1), (1, 1, 0, 4)),
    }
    for name, (kernel, expected) in widths.items():
        problem = family_of(kernel).problem(kernel)

        found = tuple(problem.numbers[k] for k in ("a_by_depth", "a_wide", "b_by_depth", "b_wide"))

        assert found == expected, name


def test_rows_that_are_neighbours_in_memory_are_seen():
    problems = {
        inside: family_of(k := reduction("sum", 9, 7, rows_inside=inside)).problem(k) for inside in (True, False)
    }

    assert problems[True].rows_side_by_side == 1
    assert problems[False].rows_side_by_side == 0


def test_legal_schedules_are_spread_over_the_space():
    kernel = softmax(6, 100)
    limits = Limits()

    found = spread(kernel, limits, 5)

    assert len({tuple(s.items()) for s in found}) == 5
