"""Fused attention: numpy's results in every thread order, no races, mutations are detected, formulas match ptxas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpucomp.expr.core import select, substitute
from gpucomp.ir.types import F16, F32
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.precision import retyped
from gpucomp.kernels_templates.attention.simt.space import registers_taken, shared_bytes
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda, opencl
from testing.cases.attention import CASES, NAMES, RACES, tile
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpuError, RaceError, compile_many
from testing.kernels import attention, random_inputs
from testing.launches import in_any_order, launched
from testing.template_cases import SMALLEST, default, spread
from testing.tolerance import assert_matches
from tests import nvrtc

SIMT = FAMILIES["attention/simt"]
SM_80 = cuda.manifest("sm_80")


def loud_inputs(kernel):
    """Integers whose scores are exact and in the hundreds, for heads with a scale that is a power of two."""
    inputs = random_inputs(kernel)
    if kernel.body.depth[0].extent in (16, 64):
        inputs[:2] = [np.rint(a * 5) if a.dtype == np.float32 else a for a in inputs[:2]]
    return inputs


def assert_right(kernel, outputs, inputs):
    for actual, right in zip(outputs, expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=kernel.body.cols[0].extent)


@pytest.fixture(scope="module")
def built():
    sources = {name: render(k, s, SM_80, f"k{i}") for i, (name, (_, k, s)) in enumerate(CASES.items())}
    found = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(CASES, zip(sources.values(), found, strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_it_gives_numpy_s_answer_in_any_thread_order(name, built):
    proof, kernel, schedule = CASES[name]
    problem = SIMT.problem(kernel)
    sizes = {**problem.numbers, **SIMT.derive(SIMT.schedule(schedule), problem).numbers}
    assert {k: sizes[k] for k in proof} == proof
    inputs = random_inputs(kernel)

    found = in_any_order(kernel, *built[name], inputs)

    assert_right(kernel, found, inputs)


def test_a_row_whose_scores_are_all_infinitely_low_is_nan_and_no_other_is(built):
    kernel, (source, compiled) = CASES["an added mask"][1], built["an added mask"]
    inputs = random_inputs(kernel)
    inputs[3][4] = -np.inf  # all of a row
    inputs[3][5, :32] = -np.inf  # its first two stages
    inputs[3][6, 48:] = -np.inf  # its last

    (found,) = launched(kernel, source, compiled, inputs)

    assert np.isnan(found[:, :, 4]).all()
    assert np.isfinite(np.delete(found, 4, axis=2)).all()
    assert_right(kernel, [found], inputs)


def test_scores_that_are_all_the_least_float_weigh_the_same(built):
    """Exporters add the least float where an axis is padded. Multiplied by log2(e) it would be -inf."""
    kernel, (source, compiled) = CASES["an added mask"][1], built["an added mask"]
    inputs = random_inputs(kernel)
    inputs[3][4] = np.finfo(np.float32).min

    (found,) = launched(kernel, source, compiled, inputs)

    np.testing.assert_allclose(found[:, 0, 4], inputs[2].mean(axis=1), rtol=1e-5, atol=1e-6)
    assert_right(kernel, [found], inputs)


@pytest.mark.parametrize("name", ["a boolean mask", "one merged operand", "vit", "causal, split"])
def test_scores_of_any_size_neither_overflow_nor_vanish(name, built):
    kernel = CASES[name][1]
    inputs = loud_inputs(kernel)

    assert_right(kernel, launched(kernel, *built[name], inputs), inputs)


# ---- mistakes -----------------------------------------------------------------------------------------------

MISTAKES = {  # case, text, replacement
    "values keep an old maximum's scale": ("vit", "acc[i][j] *= factor;", ";"),
    "totals keep an old maximum's scale": ("vit", "total[i] *= factor;", ""),
    "a maximum of the first work-item alone": ("one merged operand", "lane < 8; ++lane) {", "lane < 1; ++lane) {"),
    "a total of the first work-item alone": ("one merged operand", "lane < 8; ++lane) sum", "lane < 1; ++lane) sum"),
    "a column past the end has weight": ("vit", "col < 197", "col < 198"),
    "the last column has none": ("vit", "col < 197", "col < 196"),
    "the diagonal is hidden": ("causal", "col <= row", "col < row"),
    "the next column is seen": ("causal", "col <= row", "col <= row + 1"),
    "a stage too few below the diagonal": ("causal", "seen = first_row + 16", "seen = first_row"),
    "a split is lost": ("one row, split", "part < 6", "part < 4"),
    "splits join without their scale": ("one row, split", "* factor;\n      #pragma", ";\n      #pragma"),
    "the next split's columns": ("one row, split", "begin = split * 32", "begin = split * 16"),
    "rows past the end are stored": ("vit", "if (row < 197)", "if (row < 224)"),
    "the head's tail is not zero": ("odd heads", "k_at < 5", "k_at < 6"),
}  # fmt: skip


@pytest.fixture(scope="module")
def mistaken():
    pairs = []
    for position, (case, right, wrong) in enumerate(MISTAKES.values()):
        _, kernel, schedule = CASES[case]
        source = render(kernel, schedule, SM_80, f"m{position}")
        assert right in source.text, (case, right, source.text)
        pairs.append((source.text.replace(right, wrong), source.name))
    return dict(zip(MISTAKES, compile_many(pairs), strict=True))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_text_is_seen(name, mistaken, built):
    case = MISTAKES[name][0]
    kernel, source = CASES[case][1], built[case][0]
    inputs = random_inputs(kernel) if "split" in case else loud_inputs(kernel)  # loud: one key has almost all weight
    assert_right(kernel, launched(kernel, *built[case], inputs), inputs)

    with pytest.raises((AssertionError, CudaOnCpuError)):
        assert_right(kernel, launched(kernel, source, mistaken[name], inputs), inputs)


# ---- races --------------------------------------------------------------------------------------------------

BARRIER = "__syncthreads();"
# work-groups run one after another on the CPU, so the barrier that orders sums between work-groups is not tested here
MISSING = [("one work-group", n) for n in range(5)] + [("splits", n) for n in (0, 1, 2, 3, 5, 6)]


def without(text, number):
    parts = text.split(BARRIER)
    return BARRIER.join([*parts[:number], parts[number] + parts[number + 1], *parts[number + 2 :]])


@pytest.fixture(scope="module")
def watched():
    sources = {name: render(k, s, SM_80, f"r{i}") for i, (name, (k, s, _)) in enumerate(RACES.items())}
    texts = {(name, None): source.text for name, source in sources.items()}
    texts |= {(name, number): without(sources[name].text, number) for name, number in MISSING}
    built = compile_many([(text, sources[key[0]].name) for key, text in texts.items()], sanitizer="thread")
    return {key: (sources[key[0]], found) for key, found in zip(texts, built, strict=True)}


@pytest.mark.parametrize("name", RACES)
def test_it_has_no_race(name, watched):
    kernel, _, barriers = RACES[name]
    source, built = watched[name, None]
    assert source.text.count(BARRIER) == barriers

    for order in ORDERS:
        launched(kernel, source, built, random_inputs(kernel), order=order)


@pytest.mark.parametrize(("name", "number"), MISSING)
def test_a_missing_barrier_is_a_race(name, number, watched):
    kernel = RACES[name][0]

    with pytest.raises(RaceError):
        launched(kernel, *watched[name, number], random_inputs(kernel))


# ---- space, budgets, defaults -------------------------------------------------------------------------------

REAL = {
    "bert": attention(128, 128, 64, 64, heads=12, mask="add"),
    "gpt2": attention(1024, 1024, 64, 64, heads=12, causal=0),
    "wide": attention(64, 64, 256, 256, heads=4),
    "decoding": attention(1, 2048, 128, 128, heads=8, group=4),
}


def used_by(kernel, schedule, target):
    source = render(kernel, schedule, target, "k0")
    return cuda.resources(cuda.compile_source(source, target)[1])["k0"]


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("arch", nvrtc.SPREAD)
def test_defaults_spill_nothing_and_fit_their_formulas(name, arch):
    target, kernel = cuda.manifest(arch), REAL[name]
    schedule = default(kernel, target.limits)
    s, p = SIMT.schedule(schedule), SIMT.problem(kernel)

    used = used_by(kernel, schedule, target)

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
    assert used.shared_bytes == shared_bytes(s, p)
    assert used.registers <= registers_taken(s, p)
    assert used.registers >= s.reg_m * (SIMT.derive(s, p).reg_n + SIMT.derive(s, p).reg_v)


@pytest.mark.parametrize("name", ["bert", "decoding"])
def test_schedules_over_the_whole_space_fit_their_formulas(name):
    kernel = REAL[name]
    p = SIMT.problem(kernel)
    for schedule in spread(kernel, SM_80.limits, 4, seed=3):
        s = SIMT.schedule(schedule)

        used = used_by(kernel, schedule, SM_80)

        assert used.shared_bytes == shared_bytes(s, p)
        if registers_taken(s, p) <= min(255, 65536 // SIMT.derive(s, p).threads):
            assert used.spill_stores == used.spill_loads == used.stack_bytes == 0


def test_few_rows_of_many_keys_are_split_and_many_rows_are_not():
    limits = cuda.manifest("sm_90a").limits

    assert default(REAL["decoding"], limits)["splits"] > 4
    assert default(REAL["gpt2"], limits)["splits"] == 1


def test_the_smallest_split_with_whole_waves_is_taken():
    """4 groups on 16 units: a split of 4 fills one wave. A split of 8 would fill two waves, which is no better."""
    limits = replace(SM_80.limits, units=16)
    kernel = attention(1, 4096, 64, 64, heads=4)

    assert default(kernel, limits)["splits"] == 4


@pytest.mark.parametrize(
    "device", [SMALLEST, SM_80.limits, opencl.manifest("mali").limits, opencl.manifest("pocl").limits]
)
@pytest.mark.parametrize("head", [1, 3, 64, 200, 256])
def test_defaults_are_legal_for_any_head(head, device):
    for rows, cols in ((1, 2), (3, 1 << 20), (1 << 20, 5)):
        problem = SIMT.problem(attention(rows, cols, max(2, head), head))

        assert SIMT.reasons(SIMT.default(problem, device).numbers, problem, device) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"reg_m": 8, "tile_m": 4}, "must divide"),
        ({"row_items": 1}, "one work-item per row"),
        ({"vector": 4}, "one work-item per row"),
        ({"vector": 4, "row_items": 1}, "run one work-item at a time"),
        ({"tile_m": 128, "reg_m": 1, "row_items": 16}, "2048 work-items per work-group"),
        ({"tile_n": 128, "tile_m": 64}, "in one array"),
        ({"tile_m": 128, "reg_m": 8, "tile_n": 128, "row_items": 4}, "registers per work-item"),
    ],
)
def test_it_objects_to_what_cannot_run(change, reason):
    problem = SIMT.problem(attention(300, 300, 64, 64))
    base = tile(32, 32, 2, 16, 1)

    assert SIMT.reasons(base, problem, SM_80.limits) == []
    assert any(reason in r for r in SIMT.reasons(base | change, problem, SM_80.limits))


def test_vectors_take_all_columns_by_whole_vectors():
    problem, limits = SIMT.problem(attention(30, 30, 64, 64)), opencl.manifest("pocl").limits
    base = dict(zip(NAMES, (16, 32, 4, 1, 1, 8), strict=True))

    assert SIMT.reasons(base, problem, limits) == []
    assert "whole vectors" in SIMT.reasons(base | {"splits": 2}, problem, limits)[0]
    assert "whole vectors" in SIMT.reasons(base | {"tile_n": 4}, problem, limits)[0]


def test_a_score_that_hides_little_is_not_causal():
    """Columns whose weight is not zero may not be skipped."""
    kernel = attention(9, 9, 8, 8, causal=0)
    score = kernel.body.score
    visible = replace(kernel, body=replace(kernel.body, score=select(score.condition, score.then, -5.0)))
    empty_rows = attention(9, 9, 8, 8, causal=-1)

    assert SIMT.problem(kernel).causal == 0
    assert SIMT.problem(visible).causal == SIMT.problem(empty_rows).causal == -1


def test_narrow_storage_keeps_f32_sums_and_rounds_operands_once():
    kernel = attention(9, 17, 16, 16, mask="add", residual=True)
    params = [replace(t, dtype=F16) for t in kernel.params]
    narrow = retyped(kernel, params, F16)
    inputs = [a.astype(np.float16) for a in random_inputs(kernel)]

    (found,) = expected(narrow, inputs)
    (exact,) = expected(kernel, [a.astype(np.float32) for a in inputs])

    assert narrow.body.acc.dtype is F32
    assert found.dtype == np.float16
    assert_matches(found, exact.astype(np.float16), terms=17)
    computed = replace(kernel, body=replace(kernel.body, q=substitute(kernel.body.q, {}) * 2.0))
    assert "f16" in retyped(computed, kernel.params, F16).text
