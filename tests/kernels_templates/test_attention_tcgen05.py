"""Attention in tensor memory: numpy's results in every thread order, no races, mutations are detected, budgets, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpucomp.device.limits import REGISTER_FILE
from gpucomp.ir.types import BF16, F16
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.attention.panels import launch_registers
from gpucomp.kernels_templates.attention.tcgen05.space import BESIDE, registers, shared_bytes
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import cuda
from testing.cases.attention_tcgen05 import CASES, RACES, tile
from testing.cuda_on_cpu.harness import CudaOnCpuError, RaceError, compile_many
from testing.kernels import attention, random_inputs
from testing.launches import in_any_order, launched
from testing.template_cases import default
from testing.tolerance import assert_matches
from tests.cuda_on_cpu.kernel_files import broken

TCGEN05 = FAMILIES["attention/tcgen05"]
BLACKWELL = cuda.manifest("sm_100")


def assert_right(kernel, outputs, inputs):
    for actual, right in zip(outputs, expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=kernel.body.cols[0].extent)


@pytest.fixture(scope="module")
def built():
    sources = {name: render(k, s, BLACKWELL, f"k{i}", TCGEN05) for i, (name, (_, k, s)) in enumerate(CASES.items())}
    found = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(CASES, zip(sources.values(), found, strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_it_gives_numpy_s_answer_in_any_thread_order(name, built):
    proof, kernel, schedule = CASES[name]
    assert TCGEN05.accepts(kernel, BLACKWELL.features) == ""
    problem = TCGEN05.problem(kernel)
    sizes = {**problem.numbers, **TCGEN05.derive(TCGEN05.schedule(schedule), problem).numbers}
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


@pytest.mark.parametrize("name", ["f16", "two warpgroups"])
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


@pytest.mark.parametrize("name", ["f16", "two warpgroups"])
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
    text = render(attention(64, 64, 16, 16, dtype=F16, **how), tile(1, 32), BLACKWELL, "k0", TCGEN05).text

    assert (f"order = fmaf(weight, {np.float32(0.25 * np.log2(np.e))!s}f, -shift);" in text) == once
    assert ("top + 8.0f" in text) == once


def test_a_negative_scale_is_a_part_of_the_scores():
    """The largest product is then not the largest score."""
    kernel = attention(20, 40, 16, 16, dtype=F16)
    kernel = replace(kernel, body=replace(kernel.body, score=kernel.body.dot * -0.25))
    source = render(kernel, tile(1, 32), BLACKWELL, "k0", TCGEN05)
    inputs = random_inputs(kernel)

    assert "fmaf" not in source.text
    assert_right(kernel, launched(kernel, source, *compile_many([(source.text, source.name)]), inputs), inputs)


def growing(*steps):
    """Each tile of 32 columns has scores that are larger by a step, in binary orders. The first row's do not grow."""
    kernel = CASES["f16"][1]
    inputs = random_inputs(kernel)
    rows = np.zeros(inputs[0].shape[-1], np.float16)
    rows[0] = 8.0
    inputs[0][...] = rows  # a score is the key's first element, as it is divided by eight
    inputs[0][..., 0, :] = 0
    first = np.cumsum([0, *steps]) * np.log(2)
    inputs[1][..., 0] = (np.repeat(first, [32, 32, 32, 4]) + np.linspace(0, 0.25, 100)).astype(np.float16)
    return kernel, inputs


@pytest.fixture(scope="module")
def never_scaled(built):
    source, _ = built["f16"]
    (library,) = compile_many([(broken(source.text, replace="part[j] *= factor;", by="part[j] *= 1e9f;"), source.name)])
    return source, library


@pytest.mark.parametrize(
    ("steps", "scaled"), [((2, 2, 2), False), ((7, -3, 3), False), ((7, 9, 1), True), ((30, 5, 30), True)]
)
def test_sums_are_scaled_only_where_scores_grow_by_more_than_eight_binary_orders(steps, scaled, built, never_scaled):
    kernel, inputs = growing(*steps)

    assert_right(kernel, launched(kernel, *built["f16"], inputs), inputs)
    if scaled:
        with pytest.raises(AssertionError):
            assert_right(kernel, launched(kernel, *never_scaled, inputs), inputs)
    else:
        assert_right(kernel, launched(kernel, *never_scaled, inputs), inputs)


MISTAKES = {
    "no wait for the queries": ("f16", {"replace": "gc_mbarrier_wait(full_q, 0);"}),
    "no wait for the first keys": ("f16", {"replace": "gc_mbarrier_wait(full_k, 0);"}),
    "no wait for the next keys": ("f16", {"replace": "gc_mbarrier_wait(full_k + next_stage, next_parity);", "by": ";"}),
    "no wait for the values": ("f16", {"replace": "gc_mbarrier_wait(full_v + stage, parity);"}),
    "no wait for the weights": ("two warpgroups", {"replace": "gc_mbarrier_wait(weighed + 0, turn);"}),
    "no wait for the scores": ("f16", {"replace": "gc_mbarrier_wait(my_scored, turn);"}),
    "no wait for the sums": ("f16", {"replace": "gc_mbarrier_wait(my_scored, turn);", "occurrence": 1}),
    "no fence after the scores": ("f16", {"replace": "gc_tcgen05_fence_after();\n    turn ^= 1;", "by": "turn ^= 1;"}),
    "no fence before the weights are told of": (
        "f16",
        {"replace": "gc_tcgen05_fence_before();\n    gc_syncwarp();", "by": "gc_syncwarp();"},
    ),
    "no fence after the weights": (
        "f16",
        {"replace": "turn);\n        gc_tcgen05_fence_after();", "by": "turn);"},
    ),
    "no wait for the stores": ("f16", {"replace": "gc_tcgen05_wait_store();"}),
    "keys that are never given back": ("f16", {"replace": "gc_tcgen05_commit(empty_k + next_stage);", "by": ";"}),
    "values that are never given back": ("f16", {"replace": "gc_tcgen05_commit(empty_v + stage);"}),
    "another step of depth": ("f16", {"replace": "queries + (c / 4", "by": "queries + 2 + (c / 4"}),
    "the first warpgroup's queries": ("two warpgroups", {"replace": "queries + (1024 + ", "by": "queries + ("}),
    "the first warpgroup's weights": ("two warpgroups", {"replace": "scores + 64 + 8 * j", "by": "scores + 0 + 8 * j"}),
    "values of the first rows": ("f16", {"replace": " + 128 * j, first", "by": ", first"}),
    "panels of values too near": (
        "heads that are no whole panels",
        {"replace": "gc_tcgen05_turned(tile_v, 4096)", "by": "gc_tcgen05_turned(tile_v, 2048)"},
    ),
    "sums of the first values alone": ("f16", {"replace": "first_column > 0 || j > 0", "by": "j > 0"}),
    "sums keep an old maximum's scale": ("f16", {"replace": "part[j] *= factor;", "by": "part[j] *= 1.0f;"}),
    "totals keep an old maximum's scale": ("f16", {"replace": "total[i] *= factor;", "by": ";"}),
    "a vote that each lane has for itself": ("f16", {"replace": "gc_any(highest > top + 8.0f)", "by": "highest > top + 8.0f"}),
    "a maximum that never grows": ("f16", {"replace": "gc_any(highest > top + 8.0f)", "by": "first_column == 0"}),
    "a column past the end has weight": ("f16", {"replace": "col < 100", "by": "col < 128"}),
    "the next column is seen": ("causal", {"replace": "col <= row", "by": "col <= row + 1"}),
    "a tile too few below the diagonal": ("causal", {"replace": "seen = first_row + 128", "by": "seen = first_row + 64"}),
    "rows past the end are stored": ("f16", {"replace": "first_row + my_row < 70;", "by": "true;"}),
    "tensor memory that is never freed": ("f16", {"replace": "gc_tcgen05_free(scores, 128);"}),
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
    if "maximum" in name or "vote" in name:  # it grows from tile to tile, for the vote not in all rows
        kernel, inputs = (
            growing(30, 5, 30) if "vote" in name else (kernel, [(inputs[0] * 16).astype(inputs[0].dtype), *inputs[1:]])
        )
    assert_right(kernel, launched(kernel, *built[case], inputs), inputs)

    with pytest.raises((AssertionError, CudaOnCpuError)):
        assert_right(kernel, in_any_order(kernel, source, mistaken[name], inputs), inputs)


EARLY = {
    "one warpgroup": {"replace": "gc_mbarrier_wait(empty_v + stage, parity);"},
    "two warpgroups": {"replace": "gc_mbarrier_wait(empty_k + stage, parity);"},
}


@pytest.fixture(scope="module")
def watched():
    sources = {name: render(*RACES[name], BLACKWELL, f"r{i}", TCGEN05) for i, name in enumerate(RACES)}
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


CHANGES = ({}, {"consumers": 2, "tile_n": 64}, {"consumers": 1, "tile_n": 32})
SCHEDULES = [(name, change) for name in REAL for change in CHANGES if (name, change.get("consumers")) != ("wide", 2)]


@pytest.mark.parametrize(("name", "change"), SCHEDULES, ids=str)
def test_schedules_spill_nothing_and_fit_their_formulas(name, change):
    """All but two warpgroups of heads of 256, whose sums are too many for tensor memory."""
    kernel = REAL[name]
    schedule = dict(default(kernel, BLACKWELL.limits, TCGEN05)) | change
    assert TCGEN05.reasons(schedule, TCGEN05.problem(kernel), BLACKWELL.limits) == []
    s, p = TCGEN05.schedule(schedule), TCGEN05.problem(kernel)
    source = render(kernel, schedule, BLACKWELL, "k0", TCGEN05)

    _, log = cuda.compile_source(source, BLACKWELL)
    used = cuda.resources(log)["k0"]

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
    assert used.shared_bytes + source.geometry.dynamic_shared_bytes == shared_bytes(s, p)
    most = max(registers(s, p), launch_registers(s, BESIDE))  # ptxas may use all that a launch has
    assert s.tile_n <= used.registers <= most
    d = TCGEN05.derive(s, p)
    if d.trades:  # what consumers take has to be there, or they wait forever
        assert d.workers * d.taken + 128 * d.given <= used.registers * d.threads <= REGISTER_FILE


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_model_prefers_it_where_there_are_many_rows_and_not_where_there_are_few(name):
    engines = engines_of(REAL[name], BLACKWELL.features)
    assert [e.title for e in engines] == ["attention/tcgen05", "attention/mma", "attention/simt"]

    assert choose(REAL[name], engines, BLACKWELL.limits, BLACKWELL.device).family is TCGEN05

    few = attention(1, 2048, 128, 128, heads=8, group=4, dtype=F16)
    found = choose(few, engines_of(few, BLACKWELL.features), BLACKWELL.limits, BLACKWELL.device)
    assert found.family.title == "attention/mma"
    assert found.schedule["splits"] > 1


@pytest.mark.parametrize(
    ("kernel", "arch", "reason"),
    [
        (attention(9, 16, 16, 16, dtype=F16), "sm_90a", "no tcgen05"),
        (attention(9, 16, 16, 16), "sm_100", "f16, or all of bf16"),
        (attention(9, 16, 272, 16, dtype=F16), "sm_100", "heads of 1 to 256"),
        (attention(9, 16, 16, 16, dtype=F16, transposed=True), "sm_100", "not contiguous"),
        (attention(9, 16, 20, 16, dtype=F16), "sm_100", "16 bytes"),
    ],
    ids=["device", "f32", "wide", "turned keys", "unaligned rows"],
)
def test_what_it_refuses_another_engine_takes(kernel, arch, reason):
    target = cuda.manifest(arch)

    assert reason in TCGEN05.accepts(kernel, target.features)
    assert TCGEN05 not in engines_of(kernel, target.features)


def test_it_refuses_operands_that_are_computed():
    kernel = attention(9, 16, 16, 16, dtype=F16)

    assert "f16, or all of bf16" in TCGEN05.accepts(
        replace(kernel, body=replace(kernel.body, q=kernel.body.q * 2.0)), BLACKWELL.features
    )


@pytest.mark.parametrize("change", [{"consumers": 2}, {"stages": 4, "tile_n": 96}])
def test_it_objects_to_what_cannot_run(change):
    problem = TCGEN05.problem(attention(300, 300, 256, 256, dtype=F16))

    assert TCGEN05.reasons(tile(1, 32), problem, BLACKWELL.limits) == []
    assert TCGEN05.reasons(tile(1, 32) | change, problem, BLACKWELL.limits) != []
