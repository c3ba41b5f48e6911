"""The contraction engine on matrix units: numpy's results in every thread order, no races, mutations are detected."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.ir.types import BF16, F16, F64, I8, I32, U8
from gpucomp.kernel import Contraction
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernels_templates.contraction.mma.space import dynamic_shared_bytes, registers, shared_bytes
from gpucomp.kernels_templates.engines import ENGINES, FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda, opencl
from testing.cases.mma import CASES, PACKED, SM_75, SM_80, SMALL, bytes_of, tile, with_math
from testing.cuda_on_cpu.harness import CudaOnCpuError, RaceError, compile_many
from testing.kernels import conv, matmul, random_inputs
from testing.launches import in_any_order, launched
from testing.template_cases import flat
from testing.tolerance import assert_matches
from tests.cuda_on_cpu.kernel_files import broken

MMA = FAMILIES["contraction/mma"]


def source_of(name, position=0):
    _, kernel, schedule, target = CASES[name]
    return render(kernel, schedule, target, f"k{position}", MMA)


@pytest.fixture(scope="module")
def built():
    sources = {name: source_of(name, position) for position, name in enumerate(CASES)}
    kernels = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(CASES, zip(sources.values(), kernels, strict=True), strict=True))


def rounded_to_tf32(x):
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def right_answer(kernel, inputs):
    """numpy's result. tf32 rounds the two operands; the products of rounded operands are exact."""
    if kernel.body.math == "tf32":
        inputs = [*map(rounded_to_tf32, inputs[:2]), *inputs[2:]]
    return expected(kernel, inputs)


def terms_of(kernel):
    assert isinstance(kernel.body, Contraction)
    return math.prod(v.extent for v in kernel.body.k)


def assert_right(kernel, outputs, inputs):
    for actual, right in zip(outputs, right_answer(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=terms_of(kernel))


@pytest.mark.parametrize("name", CASES)
def test_an_awkward_shape_gives_numpy_s_answer_in_any_thread_order(name, built):
    proof, kernel, schedule, target = CASES[name]
    assert MMA.accepts(kernel, target.features) == ""
    problem = MMA.problem(kernel)
    sizes = {**problem.numbers, **flat(MMA.derive(MMA.schedule(schedule), problem))}
    assert {k: sizes[k] for k in proof} == proof
    inputs = random_inputs(kernel)

    found = in_any_order(kernel, *built[name], inputs)

    assert_right(kernel, found, inputs)


def packed_for(name):
    kernel, operand = PACKED[name]
    kernel = replace(kernel, constants=frozenset({"ab".index(operand or "b")}))
    found = MMA.packing(kernel, MMA.schedule(SMALL), MMA.problem(kernel))
    return kernel, found


@pytest.mark.parametrize("name", PACKED)
def test_constants_are_laid_out_along_the_depth_where_that_helps(name):
    kernel, found = packed_for(name)
    operand = PACKED[name][1]

    assert (found.operand if found else "") == operand
    assert MMA.packing(PACKED[name][0], MMA.schedule(SMALL), MMA.problem(kernel)) is None
    if found:
        after = MMA.problem(pack(kernel, found).kernel)
        assert (after.numbers[f"{operand}_by_depth"], after.numbers[f"{operand}_copied"]) == (1, 1)


def test_packed_operands_give_numpy_s_answer():
    cases = {name: packed_for(name) for name, (_, operand) in PACKED.items() if operand}
    packed = {name: pack(kernel, found) for name, (kernel, found) in cases.items()}
    sources = [render(p.kernel, SMALL, SM_80, f"k{i}", MMA) for i, p in enumerate(packed.values())]
    compiled = compile_many([(s.text, s.name) for s in sources])
    for (name, (kernel, _)), source, built in zip(cases.items(), sources, compiled, strict=True):
        inputs = random_inputs(kernel)
        arrays = [x if i in kernel.constants else None for i, x in enumerate(inputs)]
        constant = packed_constant(packed[name], arrays)
        kept = [inputs[i] for i in packed[name].kept]

        outputs = launched(packed[name].kernel, source, built, [*kept, constant])

        assert_right(kernel, outputs, inputs)


# ---- precision ----------------------------------------------------------------------------------------------

DEEP = with_math(matmul(16, 16, 1024), "3xtf32")
DEEP_TILE = tile(16, 8, 1, 2, 1, 4, 3, 1, 1)
PROMOTED = "acc[0][j][r] += part[r]"


@pytest.fixture(scope="module")
def deep():
    whole = render(DEEP, DEEP_TILE, SM_80, "k0", MMA)
    in_units = broken(whole.text, replace="float part[4] = {};", by="float (&part)[4] = acc[0][j];")
    in_units = broken(in_units, replace=f"for (int r = 0; r < 4; ++r) {PROMOTED};")
    texts = {
        "3xtf32": whole.text,
        "summed in matrix units": in_units,
        "tf32": render(with_math(DEEP, "tf32"), DEEP_TILE, SM_80, "k0", MMA).text,
    }
    inputs = [np.abs(x) for x in random_inputs(DEEP)]
    compiled = compile_many([(text, "k0") for text in texts.values()])
    a, b, bias = (x.astype(np.float64) for x in inputs)
    found = {}
    for name, kernel in zip(texts, compiled, strict=True):
        y = launched(DEEP, whole, kernel, inputs)[0]
        found[name] = np.linalg.norm(y - (a @ b + bias)) / np.linalg.norm(y)
    total = np.zeros((16, 16), np.float32)
    for k in range(1024):  # as f32 hardware does: one sum, term by term
        total = (total.astype(np.float64) + np.outer(a[:, k], b[k])).astype(np.float32)
    found["f32"] = np.linalg.norm(total + bias - (a @ b + bias)) / np.linalg.norm(total)
    return found


def test_3xtf32_is_as_accurate_as_f32(deep):
    assert deep["3xtf32"] <= deep["f32"]
    assert deep["tf32"] > 20 * deep["f32"]


def test_sums_that_matrix_units_truncate_are_not_left_to_them(deep):
    assert deep["summed in matrix units"] > 3 * deep["3xtf32"]


# ---- mistakes -----------------------------------------------------------------------------------------------

WAIT, BARRIER = "gc_cp_async_wait<1>();", "__syncthreads();"
MISTAKES = {  # mutation: case, text, replacement, which occurrence
    "no wait in front of the loop": ("f16", WAIT, "", 0),
    "no wait in the loop": ("f16", WAIT, "", 1),
    "a wait that lets one more be on its way": ("f16", WAIT, "gc_cp_async_wait<2>();", 1),
    "no commit in the loop": ("f16", "gc_cp_async_commit();", "", 1),
    "another swizzle on the way in": ("f16", "(a_slow >> 1 & 3)", "(a_slow & 3)", 0),
    "another swizzle on the way out": ("f16", "(b_row >> 1 & 3)", "(b_row >> 2 & 3)", 0),
    "rows and depth of a fragment swapped": ("f16", "my_lane / 8 % 2 * 8", "my_lane / 16 * 8", 0),
    "halves of b swapped": (
        "b along the depth",
        "b_position = my_lane / 8 % 2",
        "b_position = (1 - my_lane / 8 % 2)",
        0,
    ),
    "a fragment that is not turned": ("a across the depth", "gc_ldmatrix_x4_trans(a_part", "gc_ldmatrix_x4(a_part", 1),
    "the step's fragments, not the next's": ("f16", "const int next = (k + 1) % 2", "const int next = k % 2", 0),
    "one chunk of depth too many": ("f16", "a_fast < 10", "a_fast < 11", 1),
    "the halo on the left": ("a window", "0 <= ae5", "-1 <= ae5", 0),
    "the halo below": ("a window", "< 9 &&", "< 10 &&", 1),
    "the first stage read late": ("f16", "int reading = 0", "int reading = 1", 0),
    "stages go round too early": ("six stages", "reading == 5", "reading == 4", 0),
    "rows that are not there": ("f16", "row < 37 && ", "", 0),
    "a slice of the depth left out": ("split-K and slice-K", "part < 3", "part < 2", 0),
    "a split left out": ("split-K", "part < 3", "part < 2", 0),
    "tf32 without rounding": (
        "tf32",
        "gc_float_to_tf32(__uint_as_float(a_part[k % 2][0][r]))",
        "a_part[k % 2][0][r]",
        0,
    ),
    "no small part of b": ("3xtf32", "gc_mma_m16n8k8_tf32(part, a_big, b_small + j * 2);", "", 0),
}


@pytest.fixture(scope="module")
def mistaken():
    pairs = {}
    for position, (name, (case, text, instead, occurrence)) in enumerate(MISTAKES.items()):
        source = source_of(case, position)
        pairs[name] = (broken(source.text, replace=text, by=instead, occurrence=occurrence), source.name)
    return dict(zip(pairs, compile_many(list(pairs.values())), strict=True))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_text_gives_a_wrong_answer(name, mistaken):
    case = MISTAKES[name][0]
    kernel = CASES[case][1]
    inputs = random_inputs(kernel)

    with pytest.raises((AssertionError, CudaOnCpuError)):
        assert_right(kernel, launched(kernel, source_of(case), mistaken[name], inputs), inputs)


# ---- races --------------------------------------------------------------------------------------------------

RACES = {
    "copies": ("f16", 3),
    "through registers": ("an operand that is computed", 5),
    "one step a stage": ("one step a stage", 2),
    "split-K and slice-K": ("split-K and slice-K", 6),
}
# work-groups run one after another on the CPU, so a missing barrier before one counts itself as arrived is not detected
UNSEEN = {("split-K and slice-K", 4)}


def without_barrier(text, number):
    return broken(text, replace=BARRIER, occurrence=number)


@pytest.fixture(scope="module")
def watched():
    pairs = {}
    for position, (name, (case, count)) in enumerate(RACES.items()):
        source = source_of(case, position)
        assert source.text.count(BARRIER) == count, name
        pairs[name, None] = (source.text, source.name)
        for number in range(count):
            if (name, number) not in UNSEEN:
                pairs[name, number] = (without_barrier(source.text, number), source.name)
    return dict(zip(pairs, compile_many(list(pairs.values()), sanitizer="thread"), strict=True))


@pytest.mark.parametrize("name", RACES)
def test_there_is_no_race_and_every_barrier_is_there_for_one(name, watched):
    case = RACES[name][0]
    kernel, source = CASES[case][1], source_of(case)
    inputs = random_inputs(kernel)

    assert_right(kernel, launched(kernel, source, watched[name, None], inputs), inputs)
    for (other, number), compiled in watched.items():
        if other == name and number is not None:
            with pytest.raises(RaceError):
                launched(kernel, source, compiled, inputs)


# ---- the space ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "target", "reason"),
    [
        (matmul(8, 8, 8, dtype=F16), SM_80, ""),
        (matmul(8, 8, 8, dtype=F16), SM_75, ""),
        (matmul(8, 8, 8, dtype=F16), opencl.manifest("pocl"), "no mma.sync"),
        (matmul(8, 8, 8, dtype=BF16), SM_80, ""),
        (matmul(8, 8, 8, dtype=BF16), SM_75, "no bf16"),
        (matmul(8, 8, 8), SM_80, "multiplied exactly"),
        (with_math(matmul(8, 8, 8), "tf32"), SM_80, ""),
        (with_math(matmul(8, 8, 8), "3xtf32"), SM_75, "no tf32"),
        (matmul(8, 8, 8, dtype=F64, acc=F64), SM_80, "do not multiply f64"),
        (matmul(8, 8, 8, dtype=I32, acc=I32), SM_80, "do not multiply i32"),
        (bytes_of(8, 8, 8, I8, U8), SM_75, ""),
        (matmul(8, 0, 8, dtype=F16), SM_80, "nothing to multiply"),
        (matmul(8, 8, 0, dtype=F16), SM_80, "nothing to multiply"),
    ],
)
def test_what_matrix_units_cannot_do_goes_to_another_engine(kernel, target, reason):
    said = MMA.accepts(kernel, target.features)

    assert bool(said) == bool(reason)
    assert reason in said
    engines = engines_of(kernel, target.features)
    assert engines[-1] is ENGINES[Contraction][-1]
    assert (MMA in engines) == (not reason)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"k_steps": 2, "warps_k": 4}, "cannot share k_steps=2"),
        ({"warps_m": 4, "warps_n": 4, "warps_k": 4, "k_steps": 4}, "2048 work-items"),
        ({"stages": 6, "k_steps": 8, "warp_m": 64, "warp_n": 64}, "shared memory"),
        ({"warp_m": 64, "warp_n": 128}, "registers per work-item, the device has 255 for each of 128"),
        ({"warp_m": 32, "warp_n": 64, "warps_m": 4, "warps_n": 4}, "the device has 128 for each of 512"),
        ({"splits": 32}, "2 GiB"),
    ],
)
def test_what_cannot_run_is_objected_to(change, reason):
    base = tile(32, 32, 2, 2, 1, 2, 3, 1, 1)
    problem = MMA.problem(matmul(8192, 8192, 4096, dtype=F16))

    assert MMA.reasons(base, problem, SM_80.limits) == []
    assert any(reason in r for r in MMA.reasons(base | change, problem, SM_80.limits))


def test_warps_of_another_size_hold_no_fragments():
    problem = MMA.problem(matmul(64, 64, 64, dtype=F16))

    assert any("warps of 32" in r for r in MMA.reasons(SMALL, problem, SM_80.with_limits(warp=64).limits))


REAL = {
    "3x3": conv((1, 28, 28, 128), 128, (3, 3), pad=1, dtype=F16),
    "3x3 of 7x7": conv((1, 7, 7, 512), 512, (3, 3), pad=1, dtype=F16),
    "stem": conv((1, 224, 224, 3), 64, (7, 7), stride=2, pad=3, dtype=F16),
    "1x1 in tf32": with_math(conv((1, 14, 14, 1024), 256, (1, 1)), "tf32"),
    "3x3 in 3xtf32": with_math(conv((1, 14, 14, 256), 256, (3, 3), pad=1), "3xtf32"),
    "feed forward": matmul(128, 3072, 768, dtype=F16),
    "heads": matmul(128, 128, 64, batch=(12,), b_transposed=True, dtype=F16),
    "large": matmul(4096, 4096, 4096, dtype=F16),
    "large in 3xtf32": with_math(matmul(2048, 2048, 2048), "3xtf32"),
    "classifier": matmul(1, 1000, 2048, dtype=F16),
}


problem_of = functools.cache(MMA.problem)


def default_of(kernel, target):
    return dict(MMA.default(problem_of(kernel), target.limits).numbers)


def resources_of(kernel, schedule, target):
    _, log = cuda.compile_source(render(kernel, schedule, target, "k0", MMA), target)
    return cuda.resources(log)["k0"]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_120"])
def test_defaults_are_legal_for_every_case(arch):
    target = cuda.manifest(arch)
    kernels = [kernel for _, kernel, _, _ in CASES.values()] + list(REAL.values())
    for kernel in (k for k in kernels if not MMA.accepts(k, target.features)):
        assert MMA.reasons(default_of(kernel, target), problem_of(kernel), target.limits) == [], kernel.text


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", REAL)
def test_defaults_of_real_shapes_spill_nothing(name, arch):
    target = cuda.manifest(arch)

    used = resources_of(REAL[name], default_of(REAL[name], target), target)

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0


@pytest.mark.parametrize("name", ["f16", "tf32", "3xtf32", "bytes", "split-K and slice-K"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_100", "sm_120"])
def test_every_kind_compiles_within_its_formulas(name, arch):
    _, kernel, schedule, _ = CASES[name]
    s, p = MMA.schedule(schedule), MMA.problem(kernel)
    target = cuda.manifest(arch)

    used = resources_of(kernel, schedule, target)

    assert used.shared_bytes == shared_bytes(s, p) - dynamic_shared_bytes(s, p)
    assert used.stack_bytes == 0
    assert used.registers >= 4 * s.warp_m * s.warp_n // 128


@pytest.mark.parametrize("name", ["f16", "bytes"])
def test_the_oldest_architecture_compiles(name):
    assert resources_of(CASES[name][1], SMALL | {"stages": 2}, SM_75).stack_bytes == 0


# as large as the formula lets a work-item be
FULL = {
    "f16": (REAL["large"], tile(64, 64, 2, 2, 1, 2, 4, 1, 8)),
    "3xtf32": (REAL["large in 3xtf32"], tile(32, 64, 2, 2, 1, 2, 3, 1, 8)),
    "a stem": (REAL["stem"], tile(64, 32, 2, 2, 1, 2, 4, 1, 1)),
}


@pytest.mark.parametrize("name", FULL)
def test_what_the_register_formula_admits_does_not_spill(name):
    kernel, schedule = FULL[name]
    s, p = MMA.schedule(schedule), MMA.problem(kernel)
    assert 190 <= registers(s, p) <= 255

    used = resources_of(kernel, schedule, cuda.manifest("sm_90a"))

    assert used.spill_stores == used.stack_bytes == 0


def test_a_small_result_of_a_deep_sum_is_shared_and_a_large_one_is_not():
    target = cuda.manifest("sm_90a")

    deep, large = (default_of(REAL[name], target) for name in ("3x3 of 7x7", "large"))

    assert deep["splits"] > 1
    assert large["splits"] == 1
    assert large["warp_m"] * large["warp_n"] == 64 * 64


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (matmul(100, 100, 100, dtype=F16), "f16"),
        (matmul(100, 100, 100, dtype=BF16), "f16"),
        (with_math(matmul(100, 100, 100), "tf32"), "tf32"),
        (with_math(matmul(100, 100, 100), "3xtf32"), "3xtf32"),
        (bytes_of(100, 100, 100, U8, I8), "s8"),
    ],
)
def test_work_counts_padding_and_names_what_multiplies(kernel, kind):
    p = MMA.problem(kernel)
    whole, split = (MMA.work(MMA.schedule(SMALL | {"splits": n}), p) for n in (1, 2))

    assert whole.math == kind
    assert whole.macs == 32 * 32 * -(-100 // (64 // p.element_bytes)) * (64 // p.element_bytes)
    assert split.macs <= whole.macs / 2 + 32 * 32 * 64
    assert (whole.splits, split.splits) == (1, 2)
    assert split.joined_bytes == 32 * 32 * 4


@pytest.mark.parametrize(("name", "file"), [("a window", "mma_conv.cu"), ("3xtf32 along", "mma_split.cu")])
def test_the_text_reads_like_one_written_by_hand(name, file, golden):
    golden(source_of(name).text, file)
