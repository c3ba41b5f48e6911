"""Attention by warpgroups: numpy's results in every thread order, no races, mutations are detected, budgets, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpucomp.ir.types import BF16, F16
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.attention.panels import launch_registers
from gpucomp.kernels_templates.attention.wgmma.space import BESIDE, registers, shared_bytes
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import cuda
from testing.cases.attention_wgmma import CASES, RACES, tile
from testing.cuda_on_cpu.harness import CudaOnCpuError, RaceError, compile_many
from testing.kernels import attention, random_inputs
from testing.launches import in_any_order, launched
from testing.template_cases import default
from testing.tolerance import assert_matches
from tests.cuda_on_cpu.kernel_files import broken

WGMMA = FAMILIES["attention/wgmma"]
HOPPER = cuda.manifest("sm_90a")


def assert_right(kernel, outputs, inputs):
    for actual, right in zip(outputs, expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=kernel.body.cols[0].extent)


@pytest.fixture(scope="module")
def built():
    sources = {name: render(k, s, HOPPER, f"k{i}", WGMMA) for i, (name, (_, k, s)) in enumerate(CASES.items())}
    found = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(CASES, zip(sources.values(), found, strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_it_gives_numpy_s_answer_in_any_thread_order(name, built):
    proof, kernel, schedule = CASES[name]
    assert WGMMA.accepts(kernel, HOPPER.features) == ""
    problem = WGMMA.problem(kernel)
    sizes = {**problem.numbers, **WGMMA.derive(WGMMA.schedule(schedule), problem).numbers}
    assert {k: sizes[k] for k in proof} == proof
    inputs = random_inputs(kernel)

    found = in_any_order(kernel, *built[name], inputs)

    assert_right(kernel, found, inputs)


def test_a_row_whose_scores_are_all_infinitely_low_is_nan_and_no_other_is(built):
    kernel = CASES["bf16, added mask"][1]
    inputs = random_inputs(kernel)
    inputs[3][4], inputs[3][5, :32], inputs[3][6, 32:] = -np.inf, -np.inf, -np.inf

    assert_right(kernel, launched(kernel, *built["bf16, added mask"], inputs), inputs)


def test_a_row_that_the_least_numbers_hide_has_equal_weights(built):
    kernel = CASES["bf16, added mask"][1]
    inputs = random_inputs(kernel)
    inputs[3][5] = -3e38

    found = launched(kernel, *built["bf16, added mask"], inputs)

    assert_right(kernel, found, inputs)
    assert np.isfinite(found[0].astype(np.float32)[..., 5, :]).all()


@pytest.mark.parametrize("name", ["f16", "overlapped"])
def test_queries_and_values_that_are_no_numbers_spoil_their_own_rows_and_columns_only(name, built):
    kernel = CASES[name][1]
    inputs = random_inputs(kernel)
    inputs[0][..., 3, 5], inputs[2][..., 7, 2] = np.nan, np.inf

    (found, *_) = launched(kernel, *built[name], inputs)

    assert_right(kernel, [found], inputs)
    bad = ~np.isfinite(found.astype(np.float32))[0, 0]
    assert bad[3].all()
    assert bad[:, 2].all()
    assert bad.sum() == bad.shape[1] + bad.shape[0] - 1


@pytest.mark.parametrize("name", ["f16", "overlapped"])
def test_large_scores_are_as_exact_as_small_ones(name, built):
    """A maximum that is scaled and rounded is the same number for all weights of a row, so the rounding cancels."""
    kernel = CASES[name][1]
    inputs = random_inputs(kernel)
    inputs[0] = (inputs[0] * 16).astype(inputs[0].dtype)

    assert_right(kernel, launched(kernel, *built[name], inputs), inputs)


@pytest.mark.parametrize(
    ("how", "once"),
    [({}, True), ({"causal": 0}, True), ({"mask": "bool"}, True), ({"mask": "add"}, False)],
    ids=["plain", "causal", "hidden", "added"],
)
def test_scores_are_scaled_in_the_exponent_unless_a_mask_is_added(how, once):
    text = render(attention(64, 64, 16, 16, dtype=F16, **how), tile(1, 32), HOPPER, "k0", WGMMA).text

    assert (f"gc_exp2(fmaf(weight, {np.float32(0.25 * np.log2(np.e))!s}f, -shift))" in text) == once


def test_a_negative_scale_is_a_part_of_the_scores():
    """The largest product is then not the largest score."""
    kernel = attention(20, 40, 16, 16, dtype=F16)
    kernel = replace(kernel, body=replace(kernel.body, score=kernel.body.dot * -0.25))
    source = render(kernel, tile(1, 32), HOPPER, "k0", WGMMA)
    inputs = random_inputs(kernel)

    assert "fmaf" not in source.text
    assert_right(kernel, launched(kernel, source, *compile_many([(source.text, source.name)]), inputs), inputs)


MISTAKES = {
    "no wait for the queries": ("f16", {"replace": "gc_mbarrier_wait(full_q, 0);"}),
    "no wait for the keys": ("f16", {"replace": "gc_mbarrier_wait(full_k + stage, parity);"}),
    "no wait for the values": ("f16", {"replace": "gc_mbarrier_wait(full_v + stage, parity);"}),
    "no wait for the next keys": (
        "overlapped",
        {"replace": "gc_mbarrier_wait(full_k + next_stage, next_parity);", "occurrence": 1},
    ),
    "no wait for the scores": ("overlapped", {"replace": "gc_wgmma_wait<1>();"}),
    "no wait for the sums": ("overlapped", {"replace": "gc_wgmma_wait<0>();", "occurrence": 1}),
    "keys that are never given back": ("overlapped", {"replace": "gc_mbarrier_arrive(empty_k + next_stage);", "by": ";"}),
    "values that are never given back": ("f16", {"replace": "gc_mbarrier_arrive(empty_v + stage);", "by": ";"}),
    "another step of depth": ("f16", {"replace": "_first<32>(s, my_q", "by": "_first<32>(s, my_q + 2"}),
    "values of the first rows": ("f16", {"replace": " + 128 * j);", "by": ");"}),
    "panels of values too near": (
        "heads that are no whole panels",
        {"replace": "gc_wgmma_turned(tile_v, 4096)", "by": "gc_wgmma_turned(tile_v, 2048)"},
    ),
    "values keep an old maximum's scale": ("overlapped", {"replace": "*= factors[i];", "by": "*= 1.0f;"}),
    "totals keep an old maximum's scale": ("f16", {"replace": "total[i] *= factor;"}),
    "a column past the end has weight": ("f16", {"replace": "col < 100", "by": "col < 128"}),
    "the next column is seen": ("causal", {"replace": "col <= row", "by": "col <= row + 1"}),
    "a tile too few below the diagonal": ("causal", {"replace": "seen = first_row + 64", "by": "seen = first_row + 32"}),
    "rows past the end are stored": ("f16", {"replace": "if (row < 70)", "by": "if (row < 128)"}),
    "nobody takes registers": ("heads of 128", {"replace": "gc_setmaxnreg_inc<232>();"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def mistaken(built):
    pairs = [(broken(built[case][0].text, **change), built[case][0].name) for case, change in MISTAKES.values()]
    return dict(zip(MISTAKES, compile_many(pairs), strict=True))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_text_is_seen(name, mistaken, built):
    case = MISTAKES[name][0]
    kernel, source = CASES[case][1], built[case][0]
    inputs = random_inputs(kernel)
    if "maximum" in name:  # it grows from tile to tile
        inputs[0] = (inputs[0] * 4).astype(inputs[0].dtype)
    assert_right(kernel, launched(kernel, *built[case], inputs), inputs)

    with pytest.raises((AssertionError, CudaOnCpuError)):
        assert_right(kernel, in_any_order(kernel, source, mistaken[name], inputs), inputs)


EARLY = {
    "in turn": {"replace": "gc_mbarrier_wait(empty_v + stage, parity);"},
    "overlapped": {"replace": "gc_mbarrier_wait(empty_k + stage, parity);"},
}


@pytest.fixture(scope="module")
def watched():
    sources = {name: render(*RACES[name], HOPPER, f"r{i}", WGMMA) for i, name in enumerate(RACES)}
    texts = [(s.text, s.name) for s in sources.values()]
    texts += [(broken(s.text, **EARLY[name]), s.name) for name, s in sources.items()]
    found = compile_many(texts, sanitizer="thread")
    return {name: (s, found[i], found[len(RACES) + i]) for i, (name, s) in enumerate(sources.items())}


@pytest.mark.parametrize("name", RACES)
def test_it_has_no_race(name, watched):
    source, right, _ = watched[name]

    launched(RACES[name][0], source, right, order="shuffled")


@pytest.mark.parametrize("name", RACES)
def test_a_stage_that_is_loaded_before_it_was_read_is_a_race(name, watched):
    source, _, wrong = watched[name]

    with pytest.raises((RaceError, CudaOnCpuError)):
        launched(RACES[name][0], source, wrong)


REAL = {
    "bert": attention(128, 128, 64, 64, heads=192, mask="add", dtype=F16),
    "gpt2": attention(1024, 1024, 64, 64, heads=24, causal=0, dtype=BF16),
    "llama": attention(2048, 2048, 128, 128, heads=8, group=4, dtype=BF16),
    "wide": attention(512, 512, 256, 256, heads=16, dtype=F16),
}


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("name", REAL)
def test_defaults_spill_nothing_and_fit_their_formulas(name, overlap):
    kernel = REAL[name]
    schedule = dict(default(kernel, HOPPER.limits, WGMMA)) | {"overlap": overlap}
    s, p = WGMMA.schedule(schedule), WGMMA.problem(kernel)
    d = WGMMA.derive(s, p)
    source = render(kernel, schedule, HOPPER, "k0", WGMMA)

    _, log = cuda.compile_source(source, HOPPER)
    used = cuda.resources(log)["k0"]

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
    assert "serialized" not in log  # ptxas says so where products cannot be in flight together
    assert used.shared_bytes + source.geometry.dynamic_shared_bytes == shared_bytes(s, p)
    # where there are fewer than the formula says, ptxas may use all that a launch has
    assert d.values_pad // 2 <= used.registers <= max(registers(s, p), launch_registers(s, BESIDE))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_model_prefers_it_where_there_are_many_rows_and_not_where_there_are_few(name):
    engines = engines_of(REAL[name], HOPPER.features)
    assert [e.title for e in engines] == ["attention/wgmma", "attention/mma", "attention/simt"]

    assert choose(REAL[name], engines, HOPPER.limits, HOPPER.device).family is WGMMA

    few = attention(1, 2048, 128, 128, heads=8, group=4, dtype=F16)
    found = choose(few, engines_of(few, HOPPER.features), HOPPER.limits, HOPPER.device)
    assert found.family.title == "attention/mma"
    assert found.schedule["splits"] > 1


@pytest.mark.parametrize(
    ("kernel", "arch", "reason"),
    [
        (attention(9, 16, 16, 16, dtype=F16), "sm_100", "no wgmma"),
        (attention(9, 16, 16, 16), "sm_90a", "f16, or all of bf16"),
        (attention(9, 16, 272, 16, dtype=F16), "sm_90a", "heads of 1 to 256"),
        (attention(9, 16, 16, 16, dtype=F16, transposed=True), "sm_90a", "not contiguous"),
        (attention(9, 16, 20, 16, dtype=F16), "sm_90a", "16 bytes"),
    ],
    ids=["device", "f32", "wide", "turned keys", "unaligned rows"],
)
def test_what_it_refuses_another_engine_takes(kernel, arch, reason):
    target = cuda.manifest(arch)

    assert reason in WGMMA.accepts(kernel, target.features)
    assert WGMMA not in engines_of(kernel, target.features)


def test_it_refuses_operands_that_are_computed():
    kernel = attention(9, 16, 16, 16, dtype=F16)

    assert "f16, or all of bf16" in WGMMA.accepts(
        replace(kernel, body=replace(kernel.body, q=kernel.body.q * 2.0)), HOPPER.features
    )


@pytest.mark.parametrize("change", [{"consumers": 3, "tile_n": 128}, {"stages": 4, "tile_n": 96}])
def test_it_objects_to_what_cannot_run(change):
    problem = WGMMA.problem(attention(300, 300, 256, 256, dtype=F16))

    assert WGMMA.reasons(tile(1, 32), problem, HOPPER.limits) == []
    assert WGMMA.reasons(tile(1, 32) | change, problem, HOPPER.limits) != []
