"""The contraction family's `simt` engine: stages of asynchronous copies, slices of the depth, fragments read ahead."""

from __future__ import annotations

import random

import pytest

from gpucomp.ir.types import F16
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.contraction.simt.space import (
    PLAIN,
    registers,
    registers_taken,
    shared_bytes,
)
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.space import STATIC_SHARED
from gpucomp.targets import cuda
from testing import opencl_device
from testing.cases.simt import FEATURES, LATE, TILE
from testing.cuda_on_cpu.harness import CudaOnCpuError, RaceError, compile_many
from testing.kernels import conv, matmul, random_inputs
from testing.launches import in_any_order, launched
from testing.template_cases import default
from testing.tolerance import assert_matches

SIMT = FAMILIES["contraction/simt"]
TARGET = cuda.manifest("sm_80")


def assert_right(kernel, inputs, found):
    for actual, right in zip(found, expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=max(1, SIMT.problem(kernel).k))


@pytest.fixture(scope="module")
def built():
    sources = {
        name: render(kernel, schedule, TARGET, f"k{number}", SIMT)
        for number, (name, (kernel, schedule)) in enumerate(FEATURES.items())
    }
    compiled = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(sources, zip(sources.values(), compiled, strict=True), strict=True))


@pytest.mark.parametrize("name", FEATURES)
def test_cuda_text_gives_numpy_s_answer_in_any_thread_order(name, built):
    kernel, _ = FEATURES[name]
    inputs = random_inputs(kernel)

    found = in_any_order(kernel, *built[name], inputs)

    assert_right(kernel, inputs, found)


@pytest.mark.parametrize("name", [n for n, (_, s) in FEATURES.items() if not s["asynchronous"]])
def test_opencl_text_gives_numpy_s_answer(name):
    kernel, schedule = FEATURES[name]
    target = opencl_device.target().with_limits(warp=32)
    inputs = random_inputs(kernel)

    found = opencl_device.run(kernel, render(kernel, schedule, opencl_device.target(), "k0", SIMT), inputs)

    assert SIMT.reasons(schedule, SIMT.problem(kernel), target.limits) == []
    assert_right(kernel, inputs, found)


def test_features_are_what_they_say():
    def sizes(name):
        kernel, schedule = FEATURES[name]
        return SIMT.derive(SIMT.schedule(schedule), SIMT.problem(kernel))

    assert sizes("lanes in quads").quads == sizes("quads of runs of two").quads == 1
    assert sizes("three stages").quads == 0
    assert sizes("tiles past 48 KiB").dynamic_shared_bytes > STATIC_SHARED
    assert sizes("three stages").dynamic_shared_bytes == 0
    rows = ("three stages", "copies of f64", "lanes in quads", "slices of rows")
    assert {name: (sizes(name).a_rows, sizes(name).a.vector, sizes(name).a_deep) for name in rows} == {
        "three stages": (1, 4, 4),
        "copies of f64": (1, 2, 2),
        "lanes in quads": (1, 4, 2),
        "slices of rows": (1, 4, 4),
    }
    for name in ("two stages of copies", "four slices of copies"):  # an odd depth; slices of less than a chunk
        assert (sizes(name).a_rows, sizes(name).a.vector) == (0, 1), name
    assert sizes("copies across").a.vector == 4


# mutations of the source, and how each must be detected: by wrong numbers or by a race
BUGS = {
    "a wait that leaves one copy too many": ("gc_cp_async_wait<1>", "gc_cp_async_wait<2>", "numbers"),
    "no wait": ("gc_cp_async_wait<1>();", "", "numbers"),
    "a tile copied over the one in use": ("[free_stage]", "[now]", "numbers"),
    "a halo one too wide": ("0 <= ", "-1 <= ", "numbers"),
    "a depth one too long": ("b_depth < 45", "b_depth <= 45", "memory"),
    "a slice read twice": ("slice_sums[other]", "slice_sums[0]", "numbers"),
    "a slice that takes another's depth": ("first_k = slice * 2", "first_k = 0", "numbers"),
    "a row stored past the end": ("if (row < 60)", "if (row < 61)", "memory"),
    "no barrier before a tile is used": (
        "gc_cp_async_wait<1>();\n    __syncthreads();",
        "gc_cp_async_wait<1>();",
        "race",
    ),
    "no barrier before the slices meet": (
        "  }\n  __syncthreads();\n  if (slice > 0) return;",
        "  }\n  if (slice > 0) return;",
        "race",
    ),
}
SEEDED = (conv((2, 6, 5, 5), 12, (3, 3), pad=1), LATE | {"slices": 4, "tile_n": 8, "tile_k": 8})
SANITIZER = {"numbers": None, "race": "thread", "memory": "address"}


@pytest.fixture(scope="module")
def seeded():
    kernel, schedule = SEEDED
    source = render(kernel, schedule, TARGET, "k0", SIMT)
    texts = {(bug, kind): source.text.replace(old, new) for bug, (old, new, kind) in BUGS.items()}
    texts |= {("nothing", kind): source.text for kind in SANITIZER}
    built = {}
    for kind, sanitizer in SANITIZER.items():
        keys = [k for k in texts if k[1] == kind]
        built |= dict(zip(keys, compile_many([(texts[k], "k0") for k in keys], sanitizer=sanitizer), strict=True))
    return source, texts, built


@pytest.mark.parametrize("kind", SANITIZER)
def test_a_kernel_without_a_bug_passes(kind, seeded):
    source, _, built = seeded
    kernel, _ = SEEDED
    inputs = random_inputs(kernel)

    assert_right(kernel, inputs, launched(kernel, source, built["nothing", kind], inputs))


@pytest.mark.parametrize("bug", BUGS)
def test_a_seeded_bug_is_seen(bug, seeded):
    source, texts, built = seeded
    kernel, kind = SEEDED[0], BUGS[bug][2]
    assert texts[bug, kind] != source.text
    inputs = random_inputs(kernel)

    def check():
        assert_right(kernel, inputs, launched(kernel, source, built[bug, kind], inputs, "shuffled"))

    error = {"numbers": (AssertionError, CudaOnCpuError), "race": RaceError, "memory": CudaOnCpuError}[kind]
    with pytest.raises(error):
        check()


def test_the_default_copies_asynchronously_where_the_device_and_the_operands_allow_it():
    plain, converted = matmul(512, 512, 512), matmul(512, 512, 512, dtype=F16)

    assert default(plain, TARGET.limits)["asynchronous"] == 1
    assert default(plain, TARGET.limits)["stages"] > 2
    assert default(converted, TARGET.limits)["asynchronous"] == 0
    assert default(plain, cuda.manifest("sm_75").limits)["asynchronous"] == 0


# 128 sums a work-item, of four slices, that four work-groups add up
JOINED = {
    "tile_m": 32,
    "tile_n": 16,
    "tile_k": 16,
    "reg_m": 8,
    "reg_n": 16,
    "stages": 1,
    "asynchronous": 0,
    "slices": 4,
    "splits": 4,
}


@pytest.mark.parametrize("change", [{"splits": 2}, {"slices": 1, "tile_m": 128, "tile_n": 64}, {"reg_n": 8}])
def test_sums_that_fit_where_they_are_joined_are_legal(change):
    problem = SIMT.problem(matmul(99, 99, 99))

    assert SIMT.reasons(TILE | JOINED | change, problem, TARGET.limits) == []


@pytest.mark.parametrize(
    ("change", "kernel", "arch", "reason"),
    [
        ({"stages": 3, "asynchronous": 0}, matmul(99, 99, 99), "sm_80", "registers hold one tile"),
        ({}, matmul(99, 99, 99), "sm_75", "no asynchronous copies"),
        ({}, matmul(99, 99, 99, dtype=F16), "sm_80", "cannot be copied"),
        ({"stages": 1}, matmul(99, 99, 99), "sm_80", "second stage"),
        ({"slices": 4, "tile_k": 8, "tile_m": 64, "tile_n": 128}, matmul(99, 99, 99), "sm_80", "arrays of fixed size"),
        ({"lanes": 4, "slices": 2}, matmul(99, 99, 99), "sm_80", "a single slice"),
        (JOINED, matmul(99, 99, 99), "sm_80", "about 282 registers"),
    ],
)
def test_what_cannot_run_is_objected_to(change, kernel, arch, reason):
    legal, limits = LATE | {"stages": 4}, cuda.manifest("sm_80").limits
    assert SIMT.reasons(legal, SIMT.problem(matmul(99, 99, 99)), limits) == []

    assert any(reason in r for r in SIMT.reasons(legal | change, SIMT.problem(kernel), cuda.manifest(arch).limits))


def drawn(kernel, target, count, seed):
    """``count`` legal schedules of reasonable sizes: whole warps, at most 64 sums per work-item."""
    draw, problem, found = random.Random(seed), SIMT.problem(kernel), []
    while len(found) < count:
        s = {p.name: draw.choice(p.choices) for p in SIMT.params} | {"lanes": 1}
        threads = (s["tile_m"] // s["reg_m"]) * (s["tile_n"] // s["reg_n"]) * s["slices"]
        sensible = 32 <= threads <= 512 and s["reg_m"] * s["reg_n"] <= 64 and s["tile_k"] <= 32
        if sensible and not SIMT.reasons(s, problem, target.limits):
            assert s["tile_m"] >= s["reg_m"]
            found.append(s)
    return found


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_120"])
def test_shared_memory_and_registers_agree_with_the_formulas(arch):
    target = cuda.manifest(arch)
    kernel = matmul(1024, 1024, 1024)
    p = SIMT.problem(kernel)
    for schedule in drawn(kernel, target, 6, seed=int(arch[3:5])):
        s = SIMT.schedule(schedule)
        source = render(kernel, schedule, target, "k0", SIMT)
        _, log = cuda.compile_source(source, target)
        used = cuda.resources(log)["k0"]

        static = shared_bytes(s, p) - source.geometry.dynamic_shared_bytes
        assert static - 12 <= used.shared_bytes <= static, "the flag of the last to arrive is 4 bytes, perhaps 16"
        assert s.reg_m * s.reg_n <= used.registers <= min(255, registers_taken(s, p)), schedule


def test_ptxas_spills_nothing_for_one_work_group_more(monkeypatch):
    """By itself ptxas takes 64 registers for each of 256 work-items and spills 12 bytes (nvrtc 13.5)."""
    target, kernel = cuda.manifest("sm_80"), conv((1, 14, 14, 384), 64, (1, 1))
    schedule = PLAIN | {"tile_m": 64, "tile_n": 32, "tile_k": 128, "reg_m": 8, "reg_n": 1, "splits": 32}
    source = render(kernel, schedule | {"stages": 2, "asynchronous": 1, "fragments": 2}, target, "k0", SIMT)

    used = cuda.resources(cuda.compile_source(source, target)[1])["k0"]
    monkeypatch.setattr(cuda, "ONE_BLOCK_PER_SM", r"\g<0>")
    alone = cuda.resources(cuda.compile_source(source, target)[1])["k0"]

    assert used.spilt == used.stack_bytes == 0 < alone.spilt
    assert alone.registers < used.registers <= 65536 // 256 // 2


def test_a_loop_of_few_stages_is_not_written_out():
    """Otherwise ptxas unrolls a loop of three iterations: 184 registers on sm_86, and 16 bytes of spills on sm_80."""
    kernel, schedule = matmul(3136, 58, 24), PLAIN | {"tile_m": 32, "tile_n": 32, "tile_k": 8, "reg_m": 4, "reg_n": 4}
    schedule |= {"asynchronous": 1, "stages": 4}
    s, p = SIMT.schedule(schedule), SIMT.problem(kernel)
    for arch in ("sm_80", "sm_86"):
        target = cuda.manifest(arch)

        _, log = cuda.compile_source(render(kernel, schedule, target, "k0", SIMT), target)

        used = cuda.resources(log)["k0"]
        assert used.registers < 80 < registers_taken(s, p)
        assert used.spill_stores == used.spill_loads == used.stack_bytes == 0


@pytest.mark.parametrize(
    ("change", "joined"),
    [({}, True), ({"splits": 2}, True), ({"splits": 1}, False), ({"reg_n": 4, "tile_n": 16}, False)],
    ids=["eight splits", "two", "none", "64 sums"],
)
def test_128_sums_that_are_joined_with_other_work_groups_may_have_all_registers(change, joined):
    """Eight splits would spill 8 bytes on sm_89, with 204 registers before the reads of other parts are counted."""
    kernel, target = conv((1, 16, 16, 256), 256, (3, 3), pad=1), cuda.manifest("sm_89")
    schedule = PLAIN | {
        "tile_m": 64,
        "tile_n": 32,
        "tile_k": 8,
        "reg_m": 16,
        "reg_n": 8,
        "stages": 2,
        "asynchronous": 1,
    }
    schedule |= {"splits": 8} | change
    s, p = SIMT.schedule(schedule), SIMT.problem(kernel)

    _, log = cuda.compile_source(render(kernel, schedule, target, "k0", SIMT), target)

    assert SIMT.reasons(schedule, p, target.limits) == []
    assert (registers(s, p) == 255) == joined
    assert cuda.resources(log)["k0"].spilt == 0 or joined


def test_addresses_of_many_columns_of_pixels_are_counted():
    """64 of them, with halo tests, spill 1900 bytes on sm_86 with 16 x 4 sums and four slices."""
    schedule = PLAIN | {"tile_m": 64, "tile_n": 4, "tile_k": 32, "reg_m": 16, "reg_n": 4, "slices": 4, "splits": 16}
    schedule |= {"asynchronous": 1, "stages": 4}
    deep, limits = conv((1, 64, 64, 31), 64, (3, 3), pad=1), cuda.manifest("sm_86").limits

    found = SIMT.reasons(schedule, SIMT.problem(deep), limits)

    assert [r for r in found if "registers per work-item" in r]
    assert SIMT.reasons(schedule | {"tile_n": 16}, SIMT.problem(deep), limits) == []


@pytest.mark.parametrize(("change", "bounds"), [({"tile_m": 8, "tile_n": 16}, "(8, 1)"), ({}, "(32)")])
def test_ptxas_saves_no_registers_for_more_work_groups_of_less_than_a_warp(change, bounds):
    assert f"__launch_bounds__{bounds}" in render(matmul(19, 37, 45), TILE | change, TARGET, "k0", SIMT).text
