"""Fused attention on matrix units: numpy's results in every thread order, no races, mutations are detected, budgets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpucomp.ir.types import BF16, F16, F32
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.precision import retyped
from gpucomp.kernels_templates.attention.mma.space import registers_taken, shared_bytes
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import cuda, opencl
from testing.cases.attention_mma import CASES, RACES, tile, with_math
from testing.cuda_on_cpu.harness import CudaOnCpuError, RaceError, compile_many
from testing.kernels import attention, random_inputs
from testing.launches import in_any_order, launched
from testing.template_cases import default
from testing.tolerance import assert_matches
from tests import nvrtc

MMA = FAMILIES["attention/mma"]
SM_80 = cuda.manifest("sm_80")


def assert_right(kernel, outputs, inputs):
    for actual, right in zip(outputs, expected(kernel, inputs), strict=True):
        if kernel.body.math == "tf32" and actual.dtype == np.float32:
            actual, right = actual.astype(np.float16), right.astype(np.float16)  # tf32 has f16's fraction
        assert_matches(actual, right, terms=kernel.body.cols[0].extent)


@pytest.fixture(scope="module")
def built():
    sources = {name: render(k, s, SM_80, f"k{i}", MMA) for i, (name, (_, k, s)) in enumerate(CASES.items())}
    found = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(CASES, zip(sources.values(), found, strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_it_gives_numpy_s_answer_in_any_thread_order(name, built):
    proof, kernel, schedule = CASES[name]
    problem = MMA.problem(kernel)
    sizes = {**problem.numbers, **MMA.derive(MMA.schedule(schedule), problem).numbers}
    assert {k: sizes[k] for k in proof} == proof
    inputs = random_inputs(kernel)

    found = in_any_order(kernel, *built[name], inputs)

    assert_right(kernel, found, inputs)


def test_a_row_whose_scores_are_all_infinitely_low_is_nan_and_no_other_is(built):
    kernel = CASES["bf16"][1]
    inputs = random_inputs(kernel)
    inputs[3][4], inputs[3][5, :32], inputs[3][6, 32:] = -np.inf, -np.inf, -np.inf

    assert_right(kernel, launched(kernel, *built["bf16"], inputs), inputs)


def test_a_row_that_the_least_numbers_hide_has_equal_weights(built):
    """Times log2(e) they would be infinite: scores with a mask that is added stay as they are."""
    kernel = CASES["bf16"][1]
    inputs = random_inputs(kernel)
    inputs[3][5] = -3e38

    found = launched(kernel, *built["bf16"], inputs)

    assert_right(kernel, found, inputs)
    assert np.isfinite(found[0].astype(np.float32)[..., 5, :]).all()


@pytest.mark.parametrize(
    ("how", "powers_of_two"),
    [({}, True), ({"causal": 0}, True), ({"mask": "bool"}, True), ({"mask": "add"}, False)],
    ids=["plain", "causal", "hidden", "added"],
)
def test_scores_are_times_log2_e_unless_a_mask_is_added(how, powers_of_two):
    kernel = attention(64, 64, 16, 16, dtype=F16, **how)

    text = render(kernel, tile(1, 32, 1), SM_80, "k0", MMA).text

    scale = f"{np.float32(0.25 * np.log2(np.e))!s}f"
    assert (f"gc_exp2(fmaf(weight, {scale}, -shift))" in text) == powers_of_two
    assert ("gc_exp2((weight - shift) * 1.442695f)" in text) != powers_of_two


MISTAKES = {  # case, text, replacement
    "values keep an old maximum's scale": ("vit", "acc[0][j / 2][i * 2 + j % 2] *= factor;", ";"),
    "totals keep an old maximum's scale": ("vit", "total[i] *= factor;", ""),
    "weights of the other row": ("vit", "+ r % 2 * 2", "+ (1 - r % 2) * 2"),
    "halves of weights swapped": ("vit", "gc_pair_of_f16(pair[0], pair[1])", "gc_pair_of_f16(pair[1], pair[0])"),
    "values not turned": ("vit", "gc_ldmatrix_x4_trans", "gc_ldmatrix_x4"),
    "fragments of keys swapped": ("vit", "q_part[c][0], k_part + 2", "q_part[c][0], k_part"),
    "weights of the other 16 rows": ("32 rows", "w_part[i], v_part + 2", "w_part[1 - i], v_part + 2"),
    "queries of the other 16 rows": ("32 rows", "my_q + i *", "my_q + (1 - i) *"),
    "totals of the other 16 rows": ("32 rows, causal, split", "(from + 4 + i)", "(from + 4 + (i ^ 2))"),
    "keys not waited for": ("vit", "gc_cp_async_wait<0>();", "gc_cp_async_wait<1>();"),
    "a column past the end has weight": ("vit", "col < 197", "col < 198"),
    "the diagonal is hidden": ("causal", "col <= row", "col < row"),
    "the next column is seen": ("causal", "col <= row", "col <= row + 1"),
    "a stage too few below the diagonal": ("causal", "seen = first_row + 16", "seen = first_row"),
    "a split is lost": ("one row, split", "part < 4", "part < 3"),
    "a total of one lane": ("vit", "sum += gc_shfl_xor(sum, 2);", ""),
    "queries as they are": ("tf32", "q_big[r] = gc_float_to_tf32(q_value)", "q_big[r] = 0x3f800000u"),
    "weights of the other column": ("tf32", "s[0][j][r % 2 * 2 + r / 2]", "s[0][j][r]"),
    "values of another column": ("tf32", "my_pair * 68", "my_lane % 4 * 68"),
    "keys' halves swapped": ("tf32", "q_big, k_big + 2", "q_big, k_big"),
    "small parts of queries lost": ("3xtf32", "gc_mma_m16n8k8_tf32(part, q_small, k_big);", ""),
    "small parts of keys lost": ("3xtf32", "gc_mma_m16n8k8_tf32(part, q_big, k_small + 2);", ""),
    "small parts of weights lost": ("3xtf32", "gc_mma_m16n8k8_tf32(part, w_small, v_big);", ""),
    "small parts of values lost": ("3xtf32", "gc_mma_m16n8k8_tf32(part, w_big, v_small);", ""),
    "rows past the end are stored": ("vit", "if (row < 197)", "if (row < 256)"),
}  # fmt: skip


@pytest.fixture(scope="module")
def mistaken():
    pairs = []
    for position, (case, right, wrong) in enumerate(MISTAKES.values()):
        _, kernel, schedule = CASES[case]
        source = render(kernel, schedule, SM_80, f"m{position}", MMA)
        assert right in source.text, (case, right, source.text)
        pairs.append((source.text.replace(right, wrong), source.name))
    return dict(zip(MISTAKES, compile_many(pairs), strict=True))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_text_is_seen(name, mistaken, built):
    case = MISTAKES[name][0]
    kernel, source = CASES[case][1], built[case][0]
    inputs = random_inputs(kernel)
    inputs[0] = (inputs[0] * 4).astype(inputs[0].dtype)  # maxima that grow from stage to stage
    if "split" in case:
        inputs = random_inputs(kernel)
    assert_right(kernel, launched(kernel, *built[case], inputs), inputs)

    with pytest.raises((AssertionError, CudaOnCpuError)):
        assert_right(kernel, launched(kernel, source, mistaken[name], inputs), inputs)


BARRIER = "__syncthreads();"
MISSING = [("one work-group", 0), ("one work-group", 1)]


@pytest.fixture(scope="module")
def watched():
    sources = {name: render(k, s, SM_80, f"r{i}", MMA) for i, (name, (k, s, _)) in enumerate(RACES.items())}
    texts = {(name, None): source.text for name, source in sources.items()}
    for name, number in MISSING:
        parts = sources[name].text.split(BARRIER)
        parts[number : number + 2] = [parts[number] + parts[number + 1]]
        texts[name, number] = BARRIER.join(parts)
    built = compile_many([(text, sources[key[0]].name) for key, text in texts.items()], sanitizer="thread")
    return {key: (sources[key[0]], found) for key, found in zip(texts, built, strict=True)}


@pytest.mark.parametrize("name", RACES)
def test_it_has_no_race(name, watched):
    kernel, _, barriers = RACES[name]
    source, built = watched[name, None]
    assert source.text.count(BARRIER) == barriers

    launched(kernel, source, built, random_inputs(kernel), order="shuffled")


@pytest.mark.parametrize(("name", "number"), MISSING)
def test_a_missing_barrier_is_a_race(name, number, watched):
    kernel = RACES[name][0]

    with pytest.raises(RaceError):
        launched(kernel, *watched[name, number], random_inputs(kernel))


REAL = {
    "bert": attention(128, 128, 64, 64, heads=12, mask="add", dtype=F16),
    "gpt2": attention(1024, 1024, 64, 64, heads=12, causal=0, dtype=BF16),
    "wide": attention(512, 512, 256, 256, heads=4, dtype=F16),
    "bert tf32": with_math(attention(128, 128, 64, 64, heads=12, mask="add")),
    "bert 3xtf32": with_math(attention(128, 128, 64, 64, heads=12, mask="add"), "3xtf32"),
    "wide tf32": with_math(attention(512, 512, 256, 256, heads=4)),
    "decoding": attention(1, 2048, 128, 128, heads=8, group=4, dtype=F16),
}


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("arch", [a for a in nvrtc.SPREAD if "mma_sm80" in cuda.FEATURES[a]])
def test_defaults_spill_nothing_and_fit_their_formulas(name, arch):
    target, kernel = cuda.manifest(arch), REAL[name]
    schedule = default(kernel, target.limits, MMA)
    s, p = MMA.schedule(schedule), MMA.problem(kernel)
    source = render(kernel, schedule, target, "k0", MMA)

    used = cuda.resources(cuda.compile_source(source, target)[1])["k0"]

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
    assert used.shared_bytes + source.geometry.dynamic_shared_bytes == shared_bytes(s, p)
    assert MMA.derive(s, p).values_pad // 2 <= used.registers <= registers_taken(s, p)


def test_it_takes_what_matrix_units_multiply_and_copies_move():
    half = attention(9, 16, 16, 16, dtype=F16)
    computed = replace(half, body=replace(half.body, q=half.body.q * 2.0))
    stays_wide = attention(9, 16, 16, 16)
    narrowed = retyped(stays_wide, [replace(t, dtype=F16) for t in stays_wide.params], F16)

    for kernel in (half, narrowed, with_math(stays_wide), with_math(attention(9, 16, 5, 7), "3xtf32")):
        assert engines_of(kernel, SM_80.features)[0] is MMA
        assert narrowed.body.acc.dtype is F32
    for kernel, features, reason in (
        (half, cuda.FEATURES["sm_75"], "no mma.sync"),
        (half, opencl.FEATURES["amd"], "no mma.sync"),
        (stays_wide, SM_80.features, "f32 is multiplied exactly"),
        (with_math(stays_wide, "3xtf32"), cuda.FEATURES["sm_75"], "no mma.sync"),
        (with_math(attention(9, 16, 16, 16, transposed=True)), SM_80.features, "along its heads"),
        (
            replace(with_math(stays_wide), body=replace(with_math(stays_wide).body, q=stays_wide.body.q * 2.0)),
            SM_80.features,
            "it is computed, not just read",
        ),
        (computed, SM_80.features, "f16, or all of bf16 or f32"),
        (attention(9, 16, 16, 16, dtype=F16, transposed=True), SM_80.features, "along its heads"),
        (attention(9, 16, 5, 16, dtype=F16), SM_80.features, "along its heads"),
    ):
        assert reason in MMA.accepts(kernel, features)


@pytest.mark.parametrize(("width", "takes"), [(128, True), (136, False)])
def test_3xtf32_of_wide_heads_is_left_to_the_engine_of_every_device(width, takes):
    kernel = with_math(attention(33, 40, width, width), "3xtf32")
    problem = MMA.problem(kernel)

    reasons = MMA.reasons(default(kernel, SM_80.limits, MMA), problem, SM_80.limits)

    assert not reasons if takes else reasons
    assert takes or choose(kernel, engines_of(kernel, SM_80.features), SM_80.limits).family.title == "attention/simt"


@pytest.mark.parametrize("change", [{"tile_n": 128}, {"warps": 8}])
def test_it_objects_to_what_cannot_run(change):
    problem = MMA.problem(attention(300, 300, 256, 256, dtype=F16))
    limits = cuda.manifest("sm_86").limits

    assert MMA.reasons(tile(1, 16, 1), problem, limits) == []
    assert MMA.reasons(tile(1, 16, 1) | change | {"tile_n": 128}, problem, limits) != []


def test_few_rows_of_many_keys_are_split_and_many_rows_are_not():
    limits = cuda.manifest("sm_90a").limits

    assert default(REAL["decoding"], limits, MMA)["splits"] > 4
    assert default(REAL["gpt2"], limits, MMA) == tile(4, 64, 1)
