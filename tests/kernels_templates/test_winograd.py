"""The contraction family's `winograd` engine, compared with the oracle: awkward sizes, thread orders, mutations."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.device.device import typical
from gpucomp.errors import ScheduleError
from gpucomp.ir.types import BF16, F16, F32
from gpucomp.kernel.interpreter import UNWRITTEN, expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernels_templates.contraction.winograd.space import (
    PLENTY,
    TILES,
    registers,
    registers_taken,
    shared_bytes,
    uniform,
)
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule import rank
from gpucomp.schedule.analytic import Demand
from gpucomp.schedule.choose import choose
from gpucomp.schedule.space import STATIC_SHARED
from gpucomp.targets import amdgcn, cuda, hip, opencl, sass
from testing import opencl_device
from testing.cases.winograd import CASES, FOUR, ODD, SMALL, THREE
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpuError, RaceError, compile_many, hip_compiler
from testing.kernels import conv, matmul, random_inputs
from testing.tolerance import winograd_bound
from tests import nvrtc

FAMILY = FAMILIES["contraction/winograd"]
TARGET = cuda.manifest("sm_80")
FEW = SMALL | {"columns": 16, "blocks": 8}  # 64 threads


def constant(kernel):
    return replace(kernel, constants=frozenset({1}))


def compiled(kernel, schedule, inputs):
    """The kernel with transformed filters, and its inputs."""
    made = pack(kernel, FAMILY.packing(kernel, FAMILY.schedule(schedule), FAMILY.problem(kernel)))
    return made.kernel, [*(inputs[k] for k in made.kept), packed_constant(made, inputs)]


def source_of(kernel, schedule, name="k0", target=TARGET):
    kernel = constant(kernel)
    return render(compiled(kernel, schedule, random_inputs(kernel))[0], schedule, target, name, FAMILY)


def launch(kernel, schedule, source, built, order="forward"):
    ready, arrays = compiled(constant(kernel), schedule, random_inputs(kernel))
    outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in ready.params[ready.inputs :]]
    g = source.geometry
    scratch = (
        [np.full(g.workspace_bytes, 255, np.uint8), np.zeros(g.counter_bytes, np.uint8)] if g.counter_bytes else []
    )
    built.run(g.groups, g.items, [*arrays, *outputs, *scratch], order=order, seed=5)
    assert not scratch or not scratch[1].any()  # counters are zero again
    return outputs[0]


def error_of(kernel, found):
    """The relative error in the L2 norm of the elements that the kernel writes. All others must be unchanged."""
    (right,) = expected(kernel, random_inputs(kernel))
    written = right != UNWRITTEN
    np.testing.assert_array_equal(found[~written], right[~written])
    right = right[written].astype(np.float64)
    return np.linalg.norm(found[written] - right) / np.linalg.norm(right)


def bound_of(kernel, schedule):
    stored = kernel.params[kernel.stores[0].target].dtype.numpy.name
    return winograd_bound(schedule["outputs"], FAMILY.problem(constant(kernel)).depth, stored)


# ---- results ----


def check_in_any_order(name, built):
    results = [launch(*CASES[name], *built[name], order) for order in ORDERS]

    assert error_of(CASES[name][0], results[0]) < bound_of(*CASES[name])
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@pytest.fixture(scope="module")
def built():
    sources = {name: source_of(*case, f"k{number}") for number, (name, case) in enumerate(CASES.items())}
    kernels = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(CASES, zip(sources.values(), kernels, strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_cuda_text_gives_numpy_s_answer_in_any_thread_order(name, built):
    check_in_any_order(name, built)


@pytest.mark.parametrize(
    "name",
    [
        "two stages",
        "no padding, columns one by one, a tail of channels",
        "splits of two stages, one with nothing",
        "into a part of a Concat",
        "halves of eight channels, a tail of channels",
        "halves, splits, one with nothing",
        "4: odd sizes, two images",
        "4: splits of four columns, one with nothing",
        "f16: columns one by one, a tail of channels, two stages",
        "f16: 4, more work-items than lines",
    ],
)
def test_opencl_text_gives_numpy_s_answer(name):
    kernel, schedule = CASES[name]
    ready, arrays = compiled(constant(kernel), schedule, random_inputs(kernel))
    source = render(ready, schedule, opencl_device.target().with_limits(warp=32), "k0", FAMILY)
    # PoCL, told to unroll loops around barriers, writes past what it keeps for work-items
    source = replace(source, text=re.sub(r"^ *#pragma unroll.*\n", "", source.text, flags=re.M))

    assert error_of(kernel, opencl_device.run(ready, source, arrays)[0]) < bound_of(kernel, schedule)


@pytest.fixture(scope="module", params=["gfx906", "gfx1030"])  # waves of 64, and of 32
def built_for_hip(request):
    if hip_compiler() is None:
        pytest.skip("clang 18 or newer is not installed")
    target = hip.manifest(request.param).with_limits(threads=512)
    sources = {name: source_of(*case, f"k{number}", target) for number, (name, case) in enumerate(CASES.items())}
    kernels = compile_many([(s.text, s.name) for s in sources.values()], arch=request.param)
    return dict(zip(CASES, zip(sources.values(), kernels, strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_hip_text_gives_numpy_s_answer_in_any_thread_order(name, built_for_hip):
    check_in_any_order(name, built_for_hip)


@pytest.mark.parametrize(
    "schedule", [FEW | {"splits": 2, "stages": 2}, THREE | {"splits": 2}, FOUR | {"splits": 2, "blocks": 8, "reg_b": 2}]
)
def test_no_two_threads_race(schedule):
    kernel = conv((1, 3, 3, 12), 18, (3, 3), pad=1)
    source = source_of(kernel, schedule)
    (built,) = compile_many([(source.text, source.name)], sanitizer="thread")

    launch(kernel, schedule, source, built)


def test_the_error_of_deep_sums_is_no_larger_than_that_of_direct_ones():
    """This is about F(2, 3). The error of F(4, 3) is three times as large, within its bound."""
    kernel = conv((1, 6, 6, 128), 16, (3, 3))  # without the border, where direct sums have fewer terms
    sources = [source_of(kernel, FEW), source_of(kernel, FOUR, "k1")]
    built, four = compile_many([(s.text, s.name) for s in sources])
    pixels, filters, bias, residual = random_inputs(kernel)
    direct = np.zeros((1, 4, 4, 16), np.float32)
    for r, s, c in np.ndindex(3, 3, 128):
        direct += pixels[:, r : r + 4, s : s + 4, c, None] * filters[r, s, c]
    direct = np.maximum(direct + bias + residual, 0)

    found = error_of(kernel, launch(kernel, FEW, sources[0], built))

    assert 0 < found < error_of(kernel, direct) < 1e-6
    assert found < error_of(kernel, launch(kernel, FOUR, sources[1], four)) < bound_of(kernel, FOUR)


OUTPUTS = "    // A^T times these values, for each output\n"
IN_ROWS = "    // rows of B^T d times B, in place\n"
NEXT = "    // load the next channels while these are multiplied\n"
ROWS = "    #pragma unroll\n    for (int i = 0; i < 2; ++i) {\n      {\n        const float d0 = tile_v"
MISTAKES = {
    "a sign of the pixels' transform": ("two stages", "= d3 - d1", "= d1 - d3"),
    "a pixel past the edge": ("two stages", "from_x < 7", "from_x < 8"),
    "a pixel before the edge": ("two stages", "from_y + y >= 0 &&", "from_y + y >= -1 &&"),
    "a sign of the outputs' transform": ("two stages", "sign_y * m1", "sign_x * m1"),
    "the stage before": ("two stages", "now ^= 1;", ""),
    "the pixels of other channels": ("two stages", "x0 + v_at + following +", "x0 + v_at +"),
    "a tail of channels": ("no padding, columns one by one, a tail of channels", "v_channel + following < 20", "true"),
    "a position twice": ("two stages", "&tile_u[now][my_position + q][k]", "&tile_u[now][my_position][k]"),
    "columns past the end": ("two stages", " && col < 5", ""),
    "rows past the end": ("odd sizes, two images", " && out_y < 9", ""),
    "a split left out": ("splits, one with a shorter share", "split < 3;", "split < 2;"),
    "a split's part": ("splits, one with a shorter share", "(int)blockIdx.y * 8;", "(int)blockIdx.y * 4;"),
    "no barrier before the outputs": ("two stages", f"__syncthreads();\n\n{OUTPUTS}    if (id < 128)", "if (id < 128)"),
    "no barrier between stages": (
        "odd sizes, two images",
        "const int following = channel + 4;\n    __syncthreads();",
        "const int following = channel + 4;",
    ),
    "halves: a sign of the inner column": ("halves", "-l0 : l2", "l0 : l2"),
    "halves: a sign of the outer column": ("halves", "v_half ? l2 - l0", "v_half ? l0 - l2"),
    "halves: a sign of a line": ("halves", "= pixels[9] - pixels[3]", "= pixels[9] + pixels[3]"),
    "halves: columns of the other half": ("halves", "from_x + y % 3 >= 0", "from_x + y % 3 >= 1"),
    "halves: the line before": ("halves", "(y / 3) * 84", "(y / 3) * 72"),
    "halves: blocks that are not moved": ("halves of sixteen blocks", "(v_block ^ (v_channel / 2) * 4)", "v_block"),
    "halves: the buffer that is read": ("halves", "tile_v[now ^ 1][0 + 3", "tile_v[now][0 + 3"),
    "halves: filters to the buffer that is read": (
        "halves",
        "&tile_u[now ^ 1][u_position][",
        "&tile_u[now][u_position][",
    ),
    "halves: the stage before": ("halves", "now ^= 1;", ""),
    "halves: one stage too few": ("halves", "following = channel + 8", "following = channel + 4"),
    "halves: a tail of channels": (
        "halves of eight channels, a tail of channels",
        "v_channel + following < 20",
        "true",
    ),
    "halves: no barrier": ("halves", "following = channel + 8;\n    __syncthreads();", "following = channel + 8;"),
    "4: a factor of the pixels' transform": ("4: odd sizes, two images", "1.265625f * d0", "1.25f * d0"),
    "4: a column past the edge": ("4: odd sizes, two images", "from_x < 7", "from_x < 8"),
    "channels one after the other": ("two stages", "(v_channel + c) * 16", "v_channel * 16"),
    "4: a row of positions for another": (
        "4: odd sizes, two images",
        "(row_line + i * 3) * 6 +",
        "(row_line + i) * 6 +",
    ),
    "4: the pixels of another line": ("4: odd sizes, two images", "y * 84", "y * 72"),
    "4: the mask of another line": ("4: odd sizes, two images", "inside >> y & 1u", "inside >> (y ^ 1) & 1u"),
    "4: rows that are transformed too early": (
        "4: odd sizes, two images",
        f"__syncthreads();\n\n{IN_ROWS}{ROWS}",
        ROWS,
    ),
    "4: rows that are read too early": (
        "4: odd sizes, two images",
        f"__syncthreads();\n\n{NEXT}    if (following",
        "if (following",
    ),
    "4: a line stored over another": ("4: odd sizes, two images", "tile_u[my_line * 4 + x]", "tile_u[my_line * 3 + x]"),
    "4: a factor of a line's outputs": ("4: odd sizes, two images", "3.375f * t", "2.25f * t"),
    "4: rows past the end": ("4: more work-items than lines", "out_y < 3 && ", ""),
    "4: a work-item too many": ("4: more work-items than lines", "id < 192", "id < 224"),
    "4: a split's part": ("4: splits, one with a shorter share", "blockIdx.y * 8192", "blockIdx.y * 4096"),
    "4: a split left out": ("4: splits, one with a shorter share", "split < 3;", "split < 2;"),
}


@pytest.fixture(scope="module")
def mistaken():
    sources = {}
    for number, (name, (case, old, new)) in enumerate(MISTAKES.items()):
        source = source_of(*CASES[case], f"k{number}")
        assert old in source.text, f"{name}: the text has changed"
        sources[name] = replace(source, text=source.text.replace(old, new))
    kernels = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(MISTAKES, zip(sources.values(), kernels, strict=True), strict=True))


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_show(name, mistaken):
    case = CASES[MISTAKES[name][0]]
    try:
        wrong = any(not error_of(case[0], launch(*case, *mistaken[name], order)) < bound_of(*case) for order in ORDERS)
    except (CudaOnCpuError, RaceError, AssertionError):
        wrong = True

    assert wrong


# ---- resources ----


@pytest.mark.parametrize("arch", nvrtc.SPREAD)
def test_registers_and_shared_memory_are_as_reckoned(arch):
    kernel, target = conv((2, 15, 13, 36), 70, (3, 3), pad=1), cuda.manifest(arch)
    problem = FAMILY.problem(kernel)
    # with splits some of them have more than fits beside
    some = [t.replace(splits=i % 2 * 3 + 1) for i, t in enumerate(TILES)]
    tiles = [(t if shared_bytes(t, problem) <= STATIC_SHARED else t.replace(splits=1)).numbers for t in some]
    schedules = {f"k{i}": t for i, t in enumerate(tiles) if not FAMILY.reasons(t, problem, target.limits)}
    texts = [source_of(kernel, s, name, target).text for name, s in schedules.items()]

    found = nvrtc.compile(cuda.prelude() + "\n".join(texts), arch).kernels

    assert len(schedules) == len(TILES)
    for name, numbers in schedules.items():
        schedule = FAMILY.schedule(numbers)
        assert found[name].spill_store_bytes == found[name].spill_load_bytes == 0
        assert found[name].registers <= registers_taken(schedule, problem)
        shared = shared_bytes(schedule, problem)
        assert shared - 16 < found[name].shared_bytes <= shared


@pytest.mark.parametrize(
    ("image", "n", "arch", "schedule"),
    [
        ((1, 28, 28, 128), 128, "sm_90a", SMALL | {"channels": 8, "reg_n": 8, "splits": 4}),
        ((1, 7, 7, 512), 512, "sm_100", SMALL | {"columns": 16, "blocks": 8, "reg_n": 8, "stages": 2, "splits": 16}),
        ((1, 56, 56, 64), 64, "sm_80", SMALL | {"columns": 16, "channels": 2, "reg_n": 8, "reg_b": 2, "splits": 3}),
        ((1, 56, 56, 256), 256, "sm_90a", SMALL | {"columns": 64, "reg_n": 8, "reg_b": 8, "stages": 2, "splits": 4}),
    ],
)
def test_operands_of_a_large_tile_are_not_read_ahead_into_spills(image, n, arch, schedule):
    kernel, target = constant(conv(image, n, (3, 3), pad=1)), cuda.manifest(arch)

    used = cuda.resources(cuda.compile_source(source_of(kernel, schedule, "k0", target), target)[1])["k0"]

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0


@pytest.mark.skipif(sass.disassembler() is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize(("change", "wide"), [({}, True), ({"channels": 2}, False), (FOUR, True)])
def test_every_load_takes_16_bytes_where_a_stage_has_four_channels(change, wide):
    kernel, target = constant(conv((1, 28, 28, 128), 128, (3, 3), pad=1)), cuda.manifest("sm_90a")

    cubin, _ = cuda.compile_source(source_of(kernel, SMALL | change, "k0", target), target)
    found = sass.instructions(cubin)

    assert (sass.wide_share(found) == 1) is wide
    assert sass.count(found, "LDL", "STL") == 0


@pytest.mark.skipif(amdgcn.compiler() is None, reason="clang is not installed")
@pytest.mark.parametrize("arch", ["gfx906", "gfx1030"])
def test_amd_s_gpus_without_matrix_units_keep_larger_blocks_in_registers(arch):
    kernel, target = conv((1, 112, 112, 128), 128, (3, 3), pad=1), opencl.manifest(arch)
    problem = FAMILY.problem(constant(kernel))
    schedule = FAMILY.default(problem, target.limits).numbers

    found = amdgcn.resources(source_of(kernel, schedule, target=target), arch)

    assert schedule["outputs"] == 4
    assert found.spilled == found.private_bytes == 0
    assert found.vector <= registers(FAMILY.schedule(schedule), problem) + PLENTY
    assert found.local_bytes == shared_bytes(FAMILY.schedule(schedule), problem)


@pytest.mark.skipif(amdgcn.compiler("hip") is None, reason="clang is not installed")
@pytest.mark.parametrize("arch", ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100"])
@pytest.mark.parametrize(("side", "channels"), [(56, 64), (28, 128), (14, 256), (7, 512)])
@pytest.mark.parametrize("images", [1, 64])
def test_what_hip_is_given_does_not_spill(arch, side, channels, images):
    target = hip.manifest(arch)
    for dtype in (F32, F16) if not {"mfma", "wmma"} & target.features else (F32,):
        kernel = constant(conv((images, side, side, channels), channels, (3, 3), pad=1, dtype=dtype))
        assert FAMILY in engines_of(kernel, target.features)
        best = rank.best(kernel, [(FAMILY, FAMILY.problem(kernel))], target.limits, target.device)[0]

        found = amdgcn.resources(source_of(kernel, dict(best.schedule), target=target), arch)

        assert found.spilled == found.private_bytes == 0
        assert found.local_bytes <= target.limits.shared_bytes
        if target.device.scalars:  # as many waves of a SIMD as the model counts on
            schedule = FAMILY.schedule(best.schedule)
            counted = best.registers - uniform(schedule, FAMILY.problem(kernel))
            assert 256 // found.vector >= 256 // (-(-counted // 8) * 8), best.schedule


# ---- the space ----

PROBLEM = FAMILY.problem(constant(ODD))


@pytest.mark.parametrize(
    ("change", "limits", "reason"),
    [
        ({}, {"warp": 1}, "one work-item at a time"),
        ({"blocks": 16, "reg_b": 4, "columns": 64, "positions": 1}, {}, "1024 work-items per work-group"),
        (
            {"positions": 4, "blocks": 32, "reg_n": 8, "channels": 8},
            {},
            "256 columns to read, 256 rows to transform at a time, 128 work-items",
        ),
        (
            {"columns": 64, "reg_n": 8, "positions": 4, "reg_b": 8, "blocks": 8, "channels": 8},
            {},
            "cannot share filters",
        ),
        ({"channels": 8}, {"shared_bytes": 16384}, "25600 B of shared memory, the device has 16384 B"),
        ({"channels": 8, "stages": 2}, {"shared_bytes": 1 << 20}, "51200 B of shared memory in arrays of fixed size"),
        ({}, {"registers": 96}, "about 108 registers"),
        ({"positions": 6}, {}, "positions=6 does not divide a line of F(2, 3)'s positions"),
        ({"outputs": 4}, {}, "the outputs of F(4, 3) are computed from whole lines, positions=6"),
        (FOUR | {"columns": 16, "reg_b": 8}, {}, "96 columns to read, 64 rows to transform at a time, 48 work-items"),
        (FOUR | {"columns": 64}, {}, "about 196 registers per work-item, 384 of them may have 168"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(change, limits, reason):
    plain = replace(TARGET.limits, threads=256)
    allowed = replace(plain, **limits)

    assert FAMILY.reasons(SMALL, PROBLEM, plain) == []
    assert any(reason in r for r in FAMILY.reasons(SMALL | change, PROBLEM, allowed))


def test_more_work_groups_than_a_launch_takes_are_refused():
    many = PROBLEM.replace(images=1 << 20, height=512, width=512, out_y=512, out_x=512)

    assert FAMILY.reasons(SMALL, PROBLEM.replace(images=1 << 10), TARGET.limits) == []
    assert any("a launch has at most" in r for r in FAMILY.reasons(SMALL, many.replace(n=4096), TARGET.limits))
    assert any("more than 2 GiB" in r for r in FAMILY.reasons(SMALL | {"splits": 2}, many, TARGET.limits))


@pytest.mark.parametrize(
    "target",
    [*map(cuda.manifest, nvrtc.ARCHITECTURES), opencl.manifest("generic"), opencl.manifest("amd")],
    ids=lambda t: t.name,
)
@pytest.mark.parametrize("size", [1, 7, 56, 500])
def test_defaults_are_legal_at_every_size_and_ranked(target, size):
    for depth, n in ((4, 1), (12, 20), (512, 512), (2048, 4096)):
        sizes = {"height": size, "width": size, "out_y": size, "out_x": size, "depth": depth, "n": n}
        problem = PROBLEM.replace(**sizes, out_wide=4 if n % 4 == 0 else 1)
        schedule = FAMILY.default(problem, target.limits).numbers

        assert FAMILY.reasons(schedule, problem, target.limits) == []
        assert 0 < rank.predicted(FAMILY, problem, schedule, typical(target.limits.units), Demand(1, 1, 0)).us < 1e8


def with_math(kernel, math):
    return replace(kernel, body=replace(kernel.body, math=math))


@pytest.mark.parametrize(
    ("kernel", "features", "reason"),
    [
        (constant(ODD), (), ""),
        (constant(conv((1, 6, 6, 8), 8, (3, 3), pad=2)), (), ""),
        (constant(ODD), ("mali",), "local memory"),
        (constant(with_math(ODD, "tf32")), (), "f32 that is not rounded"),
        (constant(conv((2, 9, 7, 16), 20, (3, 3), pad=1, dtype=F16)), ("fdot2",), ""),
        (constant(conv((2, 9, 7, 16), 20, (3, 3), pad=1, dtype=F16)), ("mma",), "matrix units for f16"),
        (constant(conv((2, 9, 7, 16), 20, (3, 3), pad=1, dtype=F16)), ("wmma",), "matrix units for f16"),
        (constant(conv((2, 9, 7, 12), 20, (3, 3), pad=1, dtype=F16)), (), "12 channels of f16"),
        (
            constant(conv((2, 9, 7, 16), 20, (3, 3), pad=1, dtype=BF16)),
            (),
            "pixels and filters of f32 or f16 expected, found bf16 and bf16",
        ),
        (constant(conv((2, 9, 7, 12), 20, (3, 3), pad=1, stride=2)), (), "3 x 3, strides of 1 and no dilation"),
        (constant(conv((2, 9, 7, 12), 20, (3, 3), pad=1, dilation=2)), (), "3 x 3, strides of 1 and no dilation"),
        (constant(conv((2, 9, 7, 12), 20, (5, 3), pad=1)), (), "3 x 3, strides of 1 and no dilation"),
        (constant(conv((2, 9, 7, 12), 20, (3, 3), pad=1, nchw=True)), (), "NHWC"),
        (constant(conv((2, 9, 7, 3), 20, (3, 3), pad=1)), (), "3 channels"),
        (constant(matmul(5, 6, 7)), (), "while it is loaded"),
        (ODD, (), "not constants"),
        (constant(conv((2, 9, 7, 12), 0, (3, 3), pad=1)), (), "nothing to multiply"),
    ],
)
def test_kernels_that_it_cannot_compute_are_left_to_others(kernel, features, reason):
    said = FAMILY.accepts(kernel, frozenset(features))

    assert reason in said
    assert bool(said) is bool(reason)


def test_filters_that_are_not_transformed_are_an_error():
    with pytest.raises(ScheduleError, match="pack the kernel"):
        render(constant(ODD), SMALL, TARGET, "k0", FAMILY)


def test_hip_chooses_it_where_it_has_fewer_products_than_anything_else():
    def engine(arch, images, side, channels, dtype):
        kernel = constant(conv((images, side, side, channels), channels, (3, 3), pad=1, dtype=dtype))
        target = hip.manifest(arch)
        return choose(kernel, engines_of(kernel, target.features), target.limits, target.device).family.engine

    for arch in ("gfx900", "gfx906", "gfx1010", "gfx1030", "gfx1100"):
        assert engine(arch, 64, 28, 128, F32) == "winograd"
        assert engine(arch, 1, 3, 4, F32) == "simt"
    assert engine("gfx900", 64, 28, 128, F16) == engine("gfx1010", 64, 28, 128, F16) == "winograd"
    assert engine("gfx906", 1, 14, 256, F16) == "simt_pairs"  # two products an instruction
    assert engine("gfx90a", 64, 28, 128, F16) == engine("gfx1100", 64, 28, 128, F16) == "amd"


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_it_is_chosen_for_strict_f32_where_its_model_says_that_it_wins(arch):
    target = cuda.manifest(arch)

    def engine(kernel):
        return choose(kernel, engines_of(kernel, target.features), target.limits, target.device).family.engine

    layer = constant(conv((1, 28, 28, 128), 128, (3, 3), pad=1))
    assert engine(constant(conv((1, 3, 3, 4), 4, (3, 3), pad=1))) == "simt"
    assert engine(layer) == "winograd"
    assert engine(with_math(layer, "3xtf32")) != "winograd"
    assert engine(constant(conv((1, 28, 28, 128), 128, (3, 3), pad=1, stride=2))) == "simt"


@pytest.mark.parametrize(
    "target",
    [*map(cuda.manifest, nvrtc.ARCHITECTURES), opencl.manifest("generic"), opencl.manifest("amd")],
    ids=lambda t: t.name,
)
@pytest.mark.parametrize(
    ("side", "channels", "outputs"),
    [
        (112, 128, 4),
        (224, 64, 4),
        (7, 512, 2),  # blocks of four reach a row and a column past the end: 64 outputs for 49
        (5, 256, 2),
        (1, 512, 2),
    ],
)
def test_larger_blocks_are_chosen_where_they_are_not_mostly_padding(target, side, channels, outputs):
    problem = FAMILY.problem(constant(conv((1, side, side, channels), channels, (3, 3), pad=1)))

    assert FAMILY.default(problem, target.limits).numbers["outputs"] == outputs


def test_a_cpu_behind_opencl_keeps_to_vectors():
    target = opencl_device.target()
    kernel = constant(conv((1, 28, 28, 128), 128, (3, 3), pad=1))

    assert choose(kernel, engines_of(kernel, target.features), target.limits).family.engine == "simt"
