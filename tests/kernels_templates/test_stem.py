"""Convolutions of few channels: numpy's results in every thread order, edges, odd sizes, mutations, refusals."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gpucomp.ir.types import F16, F32
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernels_templates.contraction.stem_mma import space as stem_mma
from gpucomp.kernels_templates.contraction.stem_simt import space as stem_simt
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import cuda, opencl
from testing import opencl_device
from testing.cases.stem import MMA_CASES, REFUSED, SIMT_CASES, SIMT_SMALL, SM_75, SM_80, SMALL
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpuError, RaceError, compile_many
from testing.kernels import random_inputs, stem
from testing.launches import in_any_order, launched
from testing.tolerance import assert_matches
from tests import nvrtc
from tests.cuda_on_cpu.kernel_files import broken

MMA, SIMT = FAMILIES["contraction/stem_mma"], FAMILIES["contraction/stem_simt"]


shared_of = {"contraction/stem_mma": stem_mma.shared_bytes, "contraction/stem_simt": stem_simt.shared_bytes}


def compiled(family, kernel, schedule, inputs):
    """The kernel with packed filters, and its inputs."""
    made = pack(kernel, family.packing(kernel, family.schedule(schedule), family.problem(kernel)))
    return made.kernel, [*(inputs[k] for k in made.kept), packed_constant(made, inputs)]


def source_of(family, kernel, schedule, target, name="k0"):
    return render(compiled(family, kernel, schedule, random_inputs(kernel))[0], schedule, target, name, family)


def launch(family, kernel, schedule, source, built, inputs, how=launched):
    ready, arrays = compiled(family, kernel, schedule, inputs)
    return how(ready, source, built, arrays)


def rounded_to_tf32(x):
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def assert_right(kernel, outputs, inputs):
    """tf32 rounds the two operands and is exact from there; f16 and bf16 round the image."""
    narrow = kernel.params[1].dtype
    if kernel.body.math == "tf32":
        inputs = [*map(rounded_to_tf32, inputs[:2]), *inputs[2:]]
    elif inputs[0].dtype == np.float32 and narrow is not F32:
        inputs = [inputs[0].astype(narrow.numpy).astype(np.float32), *inputs[1:]]
    terms = math.prod(v.extent for v in kernel.body.k)
    for actual, right in zip(outputs, expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=terms)


@pytest.fixture(scope="module")
def built():
    sources = {name: source_of(MMA, *MMA_CASES[name][1:], name=f"k{i}") for i, name in enumerate(MMA_CASES)}
    kernels = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(MMA_CASES, zip(sources.values(), kernels, strict=True), strict=True))


@pytest.mark.parametrize("name", MMA_CASES)
def test_matrix_units_give_numpy_s_answer_in_any_thread_order(name, built):
    proof, kernel, schedule, target = MMA_CASES[name]
    assert MMA.accepts(kernel, target.features) == ""
    problem = MMA.problem(kernel)
    sizes = {**problem.numbers, **MMA.derive(MMA.schedule(schedule), problem).numbers}
    assert {k: sizes[k] for k in proof} == proof
    inputs = random_inputs(kernel)

    assert_right(kernel, launch(MMA, kernel, schedule, *built[name], inputs, in_any_order), inputs)


def test_a_pixel_that_is_no_number_spoils_only_the_outputs_that_read_it(built):
    _, kernel, schedule, _ = MMA_CASES["7 x 7 by 2"]
    inputs = random_inputs(kernel)
    inputs[0][0, 1, 9, 10] = np.nan
    inputs[0][0, 2, 4, 15] = np.inf

    (found,) = launch(MMA, kernel, schedule, *built["7 x 7 by 2"], inputs)

    reached = np.zeros(found.shape, bool)
    for y, x in ((9, 10), (4, 15)):
        for oy, ox in np.ndindex(found.shape[1:3]):
            reached[0, oy, ox] |= 0 <= y - (2 * oy - 3) < 7 and 0 <= x - (2 * ox - 3) < 7
    assert np.isfinite(found[~reached].astype(np.float32)).all()
    assert not np.isfinite(found[0, 5, 6].astype(np.float32)).all()


@pytest.fixture(scope="module")
def simt_built():
    sources = {
        name: source_of(SIMT, *case[1:], SM_75, name=f"k{i}") for i, (name, case) in enumerate(SIMT_CASES.items())
    }
    kernels = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(SIMT_CASES, zip(sources.values(), kernels, strict=True), strict=True))


@pytest.mark.parametrize("name", SIMT_CASES)
def test_multiply_adds_give_numpy_s_answer_in_any_thread_order(name, simt_built):
    proof, kernel, schedule = SIMT_CASES[name]
    assert SIMT.accepts(kernel, SM_75.features) == ""
    problem = SIMT.problem(kernel)
    sizes = {**problem.numbers, **SIMT.derive(SIMT.schedule(schedule), problem).numbers}
    assert {k: sizes[k] for k in proof} == proof
    inputs = random_inputs(kernel)

    assert_right(kernel, launch(SIMT, kernel, schedule, *simt_built[name], inputs, in_any_order), inputs)


@pytest.mark.parametrize(
    "name", ["7 x 7 by 2", "3 x 3 by 2, odd sizes", "one channel", "channels last", "f16, sums of f32"]
)
def test_opencl_text_gives_numpy_s_answer(name):
    _, kernel, schedule = SIMT_CASES[name]
    inputs = random_inputs(kernel)
    ready, arrays = compiled(SIMT, kernel, schedule, inputs)
    source = render(ready, schedule, opencl_device.target().with_limits(warp=32), "k0", SIMT)
    # PoCL, told to unroll loops around barriers, writes past what it keeps for work-items
    source = replace(source, text=re.sub(r"^ *#pragma unroll.*\n", "", source.text, flags=re.M))

    assert_right(kernel, opencl_device.run(ready, source, arrays), inputs)


def test_the_text_reads_like_one_written_by_hand(golden):
    _, kernel, schedule, target = MMA_CASES["four blocks a warp"]
    golden(source_of(MMA, kernel, schedule, target).text, "stem_mma.cu")
    _, kernel, schedule = SIMT_CASES["7 x 7 by 2"]
    golden(source_of(SIMT, kernel, schedule, opencl.manifest("generic")).text, "stem_simt.cl")


# ---- mistakes ----

MISTAKES = {  # mutation: engine, case, text, replacement
    "a pixel right of the image": (MMA, "7 x 7 by 2", "e5 < 20", "e5 < 24"),
    "a pixel left of the image": (MMA, "7 x 7 by 2", "0 <= e5", "-4 <= e5"),
    "a pixel above the image": (MMA, "7 x 7 by 2", "0 <= e0", "-1 <= e0"),
    "a pixel below the image": (SIMT, "3 x 3 by 2, odd sizes", "e0 < 9", "e0 < 10"),
    "groups not aligned": (MMA, "7 x 7 by 2", "* 4 + 1) * 4;", "* 4 + 2) * 4;"),
    "channels of planes": (MMA, "channels last", "pixels[i * 3 + c]", "pixels[c * 4 + i]"),
    "outputs past the end": (MMA, "7 x 7 by 2", " && out_x < 10", ""),
    "filters of the tile before": (MMA, "7 x 7 by 2", "+ first_column + number % 16", "+ number % 16"),
    "no wait for the filters": (MMA, "7 x 7 by 2", "gc_cp_async_wait<0>();", ""),
    "no barrier before the products": (SIMT, "7 x 7 by 2", "__syncthreads();", ""),
    "a tap twice": (SIMT, "7 x 7 by 2", "r * 24 + s)", "r * 24)"),
}


@pytest.fixture(scope="module")
def mistaken():
    sources = {}
    for number, (name, (family, case, old, new)) in enumerate(MISTAKES.items()):
        found = MMA_CASES[case][1:] if family is MMA else (*SIMT_CASES[case][1:], SM_75)
        source = source_of(family, *found, name=f"k{number}")
        sources[name] = replace(source, text=broken(source.text, replace=old, by=new))
    kernels = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(MISTAKES, zip(sources.values(), kernels, strict=True), strict=True))


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_show(name, mistaken):
    family, case, _, _ = MISTAKES[name]
    kernel, schedule = (MMA_CASES if family is MMA else SIMT_CASES)[case][1:3]
    inputs = random_inputs(kernel)
    with pytest.raises((CudaOnCpuError, RaceError, AssertionError)):  # noqa: PT012
        for order in ORDERS:
            found = launch(family, kernel, schedule, *mistaken[name], inputs, partial(launched, order=order))
            assert_right(kernel, found, inputs)


def test_no_two_threads_race_and_a_missing_barrier_is_seen():
    _, kernel, schedule, target = MMA_CASES["patches"]
    source, inputs = source_of(MMA, kernel, schedule, target), random_inputs(kernel)
    early = broken(source.text, replace="__syncthreads();  // shared memory is free")
    right, wrong = compile_many([(source.text, "k0"), (early, "k0")], sanitizer="thread")

    launch(MMA, kernel, schedule, source, right, inputs)
    with pytest.raises(RaceError):
        launch(MMA, kernel, schedule, source, wrong, inputs)


# ---- the space ----


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_convolution_of_few_channels_is_refused_by_both(name):
    kernel, reason = REFUSED[name]

    assert reason in MMA.accepts(kernel, SM_80.features)
    assert reason in SIMT.accepts(kernel, SM_80.features)


@pytest.mark.parametrize(
    ("kernel", "target", "engine"),
    [
        (stem((1, 64, 64, 3), 32, (7, 7), stride=2, pad=3, dtype=F16), SM_80, "contraction/stem_mma"),
        (stem((1, 64, 64, 3), 32, (7, 7), stride=2, pad=3, dtype=F16), SM_75, "contraction/stem_mma"),
        (stem((1, 224, 224, 3), 64, (7, 7), stride=2, pad=3), SM_80, "contraction/stem_simt"),
        (stem((1, 64, 64, 3), 32, (7, 7), stride=2, pad=3), opencl.manifest("generic"), "contraction/stem_simt"),
        (stem((1, 64, 64, 3), 32, (7, 7), stride=2, pad=3), opencl.manifest("pocl"), "contraction/simt"),
        (stem((1, 64, 64, 3), 32, (16, 16), stride=16, dtype=F16), SM_80, "contraction/mma"),
        # the least part of the image and of the filters is more than sm_75's shared memory
        (stem((1, 256, 256, 8), 32, (16, 16), stride=12, dtype=F16), SM_75, "contraction/mma"),
    ],
)
def test_the_engine_is_taken_where_it_can_run(kernel, target, engine):
    found = choose(kernel, engines_of(kernel, target.features), target.limits, target.device)

    assert found.family.title == engine


@pytest.mark.parametrize(
    ("family", "change", "limits", "reason"),
    [
        (MMA, {"warps_m": 2}, {}, "do not share 16 outputs by 16, 32 or 64"),
        (MMA, {"tile_y": 32, "tile_x": 64, "warps_m": 8}, {}, "do not share 2048"),
        (MMA, {}, {"warp": 64}, "the device's have 64"),
        (MMA, {"tile_y": 32, "tile_x": 16, "warps_m": 8, "warps_n": 4, "warp_n": 128}, {}, "B of shared memory"),
        (MMA, {"tile_y": 4, "tile_x": 16, "warp_n": 128}, {"registers": 255}, "registers per work-item"),
        (SIMT, {"tile_n": 4, "reg_n": 8}, {}, "must divide"),
        (SIMT, {"tile_y": 16, "tile_x": 64, "reg_m": 1}, {}, "2048 work-items per work-group"),
        (SIMT, {}, {"warp": 1}, "the device runs one at a time"),
        (SIMT, {"tile_n": 128}, {}, "compilers allow 49152"),
        (SIMT, {"reg_m": 8, "tile_n": 32, "reg_n": 16}, {"registers": 128}, "registers per work-item"),
    ],
)
def test_what_cannot_run_has_a_reason(family, change, limits, reason):
    kernel = stem((1, 64, 64, 3), 32, (7, 7), stride=2, pad=3, dtype=F16 if family is MMA else F32)
    small, problem = SMALL if family is MMA else SIMT_SMALL, family.problem(kernel)
    there = replace(SM_80.limits, **limits)

    assert family.reasons(small, problem, SM_80.limits) == []
    assert any(reason in r for r in family.reasons(small | change, problem, there))


# ---- resources ----


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_120"])
def test_default_schedules_take_no_more_than_is_reckoned(arch):
    target = cuda.manifest(arch)
    kernels = {
        "f16": (MMA, stem((1, 224, 224, 3), 64, (7, 7), stride=2, pad=3, dtype=F16)),
        "f32": (SIMT, stem((1, 112, 112, 3), 32, (3, 3), stride=2, pad=1)),
    }
    if "mma_sm80" in target.features:
        kernels["3xtf32"] = (MMA, stem((1, 112, 112, 3), 64, (7, 7), stride=2, pad=3, math="3xtf32"))
    sources = []
    for name, (family, kernel) in kernels.items():
        schedule = family.default(family.problem(kernel), target.limits).numbers
        sources.append((family, kernel, schedule, source_of(family, kernel, schedule, target, f"k_{name}")))

    found = nvrtc.compile(cuda.prelude() + "\n".join(s.text for *_, s in sources), arch).kernels

    for family, kernel, schedule, source in sources:
        s, p = family.schedule(schedule), family.problem(kernel)
        used = found[source.name]
        assert used.spill_store_bytes == used.spill_load_bytes == used.stack_bytes == 0
        assert used.registers <= family.registers(s, p)
        shared = used.shared_bytes + source.geometry.dynamic_shared_bytes
        assert 0 <= shared_of[family.title](s, p) - shared < 128


@pytest.mark.parametrize(
    ("arch", "kernel", "tile"),
    [
        ("sm_80", stem((1, 224, 224, 3), 64, (7, 7), stride=2, pad=3), (1, 64, 4, 2, 4)),
        ("sm_86", stem((1, 149, 149, 3), 32, (3, 3), stride=2), (4, 32, 64, 2, 4)),
    ],
)
def test_rows_of_taps_are_not_written_out_into_spills(arch, kernel, tile):
    """Otherwise ptxas takes 255 registers for the first and spills, and more than the 64 that each of 1024 work-items has."""
    schedule, target = dict(zip((p.name for p in SIMT.params), tile, strict=True)), cuda.manifest(arch)

    _, log = cuda.compile_source(source_of(SIMT, kernel, schedule, target), target)

    used = cuda.resources(log)["k0"]
    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
    assert used.registers <= SIMT.registers(SIMT.schedule(schedule), SIMT.problem(kernel))
