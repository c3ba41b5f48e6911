"""The rowwise family: which work-items share a row, what is kept in registers, wide reads; and mutations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.expr.core import call, load, select
from gpucomp.ir.dim import Dim
from gpucomp.ir.size import size_of
from gpucomp.ir.types import F16, F32
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.kernels_templates.rowwise.space import OTHER_REGISTERS, registers, registers_taken, shared_bytes
from gpucomp.targets import cuda, opencl, sass
from testing import opencl_device
from testing.any_size_cases import source_at
from testing.cases.rowwise import BASE, FEATURES, LONG
from testing.cuda_on_cpu.errors import CudaOnCpuError
from testing.cuda_on_cpu.harness import RaceError, compile_many
from testing.kernels import layer_norm, random_inputs, reduction, softmax
from testing.launches import in_any_order, launched
from testing.tolerance import assert_matches
from tests import nvrtc
from tests.sass_paths import loads_together

FAMILY = FAMILIES["rowwise"]
TARGET = cuda.manifest("sm_80")
GENERIC = opencl.manifest("generic")


def problem(kernel):
    return FAMILY.problem(kernel)


def terms(kernel):
    return max(1, math.prod(a.extent for a in kernel.body.cols))


def assert_right(kernel, outputs):
    for actual, right in zip(outputs, expected(kernel, random_inputs(kernel)), strict=True):
        assert_matches(actual, right, terms=terms(kernel))


@pytest.fixture(scope="module")
def built():
    sources = {n: render(k, s, TARGET, f"f{i}") for i, (n, (k, s)) in enumerate(FEATURES.items())}
    made = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(FEATURES, zip(sources.values(), made, strict=True), strict=True))


@pytest.mark.parametrize("name", FEATURES)
def test_cuda_text_gives_numpy_s_answer_in_any_thread_order(name, built):
    kernel, _ = FEATURES[name]

    assert_right(kernel, in_any_order(kernel, *built[name]))


@pytest.mark.parametrize("name", FEATURES)
def test_opencl_text_gives_numpy_s_answer(name):
    kernel, schedule = FEATURES[name]
    schedule = schedule | {"rows_per_group": max(schedule["rows_per_group"], 32 // schedule["lanes"])}
    target = opencl_device.target().with_limits(warp=32)

    source = render(kernel, schedule, target, "k0")

    assert_right(
        kernel, opencl_device.run(kernel, source, random_inputs(kernel), launches=2 if schedule["splits"] > 1 else 1)
    )


@pytest.mark.parametrize("cols", [20001, Dim("n", 1, 30000)], ids=str)
def test_small_terms_are_not_lost_in_the_sum_of_a_long_row(cols):
    """One work-item adds up a whole row. In a single sum the first term, 1, would round all others alike: an error of 1e-3."""
    target, schedule = opencl_device.target(), BASE | {"lanes": 1, "rows_per_group": 16, "keep": 0}
    source = render(softmax(2, size_of(cols, 20001) if isinstance(cols, Dim) else cols), schedule, target, "k0")
    if isinstance(cols, Dim):
        source, numbers = source_at(source, {"n": 20001})
    else:
        numbers = []
    kernel = softmax(2, 20001)
    x = np.full((2, 20001), math.log(7e-8), np.float32)
    x[:, 0] = 0

    found = opencl_device.run(kernel, source, [x], numbers=numbers)[0]

    terms = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(found, terms / terms.sum(axis=1, keepdims=True), rtol=3e-5)


def test_a_sum_over_millions_is_shared_by_many_work_groups():
    schedule = FAMILY.default(problem(reduction("sum", 1, 1 << 22)), TARGET.limits).numbers

    assert schedule["splits"] >= 32
    assert schedule["vector"] == 4


def test_rows_of_a_transformer_are_kept_and_not_split():
    for kernel, keep in ((layer_norm(128, 768), 2), (softmax(1536, 128), 1), (layer_norm(197, 192), 2)):
        schedule = FAMILY.default(problem(kernel), TARGET.limits).numbers

        assert (schedule["keep"], schedule["splits"], schedule["vector"]) == (keep, 1, 4)
        assert schedule["lanes"] >= 8


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"vector": 4}, "vectors of 4 do not divide the 37 columns"),
        ({"lanes": 1, "keep": 1}, "37 accesses of a row per work-item, 32 can be written out"),
        ({"splits": 2, "keep": 0}, "only where one statistic"),
        ({"splits": 2}, "nothing to keep"),
        ({"keep": 2}, "the results read nothing that the statistics do not"),
        ({"lanes": 1024}, "4096 work-items per work-group"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(change, reason):
    sizes = FAMILY.problem(softmax(11, 37))

    assert FAMILY.reasons(BASE, sizes, TARGET.limits) == []
    assert any(reason in r for r in FAMILY.reasons(BASE | change, sizes, TARGET.limits))


def test_one_access_takes_what_every_array_allows():
    widths = {
        "aligned": (layer_norm(3, 48), 4),
        "f16": (layer_norm(3, 48, dtype=F16), 8),
        "even": (layer_norm(3, 50), 2),
        "odd": (layer_norm(3, 49), 1),
        "rows": (reduction("sum", 12, 7, rows_inside=True), 4),
        "odd rows": (reduction("sum", 9, 8, rows_inside=True), 1),
    }
    for name, (kernel, width) in widths.items():
        assert FAMILY.problem(kernel).widest == width, name


def test_a_sum_that_two_stages_need_is_kept_once():
    text = render(layer_norm(3, 128), BASE | {"lanes": 32, "vector": 4}, TARGET, "k0").text

    assert FAMILY.problem(layer_norm(3, 128)).kept == 1
    assert text.count("kept0[4]") == 1
    assert "kept1" not in text
    assert text.count("x0 +") == text.count("x1 +") == 1


@pytest.mark.skipif(sass.disassembler() is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize(("keep", "least", "most"), [(1, 12, 12), (2, 24, 24)])
def test_what_a_row_s_results_read_is_under_way_with_the_row_itself(keep, least, most):
    """x, the residual, scale and shift: six accesses of each. By itself ptxas reads the last two between stores."""
    source = render(layer_norm(128, 768), BASE | {"lanes": 32, "vector": 4, "keep": keep}, TARGET, "k0")

    cubin, _ = cuda.compile_source(source, TARGET)

    assert least <= loads_together(sass.listing(cubin)) <= most


def test_only_what_the_results_read_unguarded_of_every_column_is_fetched_first():
    at = layer_norm(3, 40)
    (row,), (column,) = at.body.rows, at.body.cols
    assert FAMILY.problem(at).early == 2
    assert FAMILY.problem(softmax(3, 40)).early == FAMILY.problem(reduction("sum", 3, 40)).early == 0

    (store,) = at.stores
    rest = load(2, (column,), F32)

    def early(value):
        return FAMILY.problem(replace(at, stores=(replace(store, value=value),))).early

    total = at.body.statistics[0].hole
    assert early(select(call("lt", column, 20), rest * total, 0.0)) == 0  # it may not be there to be read
    assert early(select(call("lt", column, 20), rest * total, 0.0) + load(3, (column,), F32)) == 1
    assert early(select(call("lt", column, 20), rest, 0.0) * total) == 1  # with its condition
    assert early(total * load(2, (row,), F32)) == 0
    assert early(load(0, (row, column), F32) + load(1, (row, column), F32) - total) == 0  # the statistics keep it


@pytest.mark.parametrize("arch", nvrtc.SPREAD)
def test_rows_of_4096_columns_are_kept_without_a_spill(arch):
    target = cuda.manifest(arch)
    for kernel in (softmax(64, 4096), layer_norm(64, 4096), layer_norm(4096, 49, rows_inside=True)):
        schedule = dict(FAMILY.default(problem(kernel), target.limits).numbers)
        source = render(kernel, schedule, target, "k0")

        used = cuda.resources(cuda.compile_source(source, target)[1])["k0"]

        assert schedule["keep"] >= 1
        assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
        assert 0 <= shared_bytes(FAMILY.schedule(schedule), problem(kernel), shuffles=True) - used.shared_bytes < 16


def test_results_of_many_warps_are_not_read_together_into_spills():
    """With 1024 work-items of 64 registers, ptxas would unroll all 31 reads of four rows, and spill."""
    kernel, target = reduction("sum", 1280, 49, rows_inside=True), cuda.manifest("sm_120")
    (store,) = kernel.stores
    kernel = replace(kernel, stores=(replace(store, value=store.value / 49.0),))
    schedule = LONG | {"lanes": 512, "rows_per_group": 2, "vector": 4}

    used = cuda.resources(cuda.compile_source(render(kernel, schedule, target, "k0"), target)[1])["k0"]

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
    assert used.registers <= registers_taken(FAMILY.schedule(schedule), problem(kernel))


@pytest.mark.parametrize(
    ("kernel", "schedule"),
    [
        (layer_norm(64, 4096), BASE | {"lanes": 128, "rows_per_group": 1, "vector": 4}),
        (layer_norm(64, 3072), BASE | {"lanes": 32, "rows_per_group": 2, "vector": 4}),
        (layer_norm(64, 768), BASE | {"lanes": 32, "rows_per_group": 2, "vector": 4, "keep": 2}),
        (softmax(64, 512), BASE | {"lanes": 32, "vector": 4}),
        (layer_norm(512, 49, rows_inside=True), BASE | {"vector": 4}),
        (reduction("sum", 8, 100_000), LONG | {"vector": 4}),
    ],
)
def test_registers_and_shared_memory_agree_with_the_formulas(kernel, schedule):
    source = render(kernel, schedule, TARGET, "k0")
    sizes, numbers = problem(kernel), FAMILY.schedule(schedule)

    used = cuda.resources(cuda.compile_source(source, TARGET)[1])["k0"]

    assert 0 <= shared_bytes(numbers, sizes, shuffles=True) - used.shared_bytes < 16
    assert used.spill_stores == used.stack_bytes == 0
    assert registers(numbers, sizes) - OTHER_REGISTERS <= used.registers <= registers_taken(numbers, sizes)


def test_a_total_of_at_least_one_divides_a_row_by_one_reciprocal():
    text = render(softmax(64, 512), BASE | {"lanes": 32, "vector": 4}, TARGET, "k0").text

    assert text.count(" / s1") == 1
    assert "= 1.0f / s1;" in text


def test_a_total_that_may_be_tiny_divides_every_element():
    """exp(-100) 37 times is 1.4e-42: the reciprocal of that is infinite."""
    kernel = softmax(3, 37)
    top, total = kernel.body.statistics
    x = top.value
    body = replace(kernel.body, statistics=(top, replace(total, value=call("exp", x))))
    first, second = kernel.stores
    stores = (replace(first, value=call("exp", x) / total.hole), second)
    kernel = replace(kernel, body=body, stores=stores)

    source = render(kernel, BASE, TARGET, "k0")

    assert "1.0f / s1" not in source.text
    found = launched(kernel, source, compile_many([(source.text, "k0")])[0], [np.full((3, 37), -100.0, np.float32)])
    assert np.isfinite(found[0]).all()


def test_the_reciprocal_is_within_two_ulps_of_the_quotient():
    """One rounding of the reciprocal, and one of the product in the place of the quotient's."""
    kernel = softmax(5, 1000)
    source = render(kernel, BASE | {"lanes": 32, "rows_per_group": 1, "keep": 0}, TARGET, "k0")
    x = (4 * np.random.default_rng(0).standard_normal((5, 1000))).astype(np.float32)
    divided = changed(source.text, " * f0;", " / s1;")

    made = compile_many([(text, "k0") for text in (source.text, divided)])
    product, quotient = (launched(kernel, source, one, [x])[0] for one in made)

    ulps = np.abs(product.astype(np.float64) - quotient) / np.spacing(quotient)
    assert 0 < ulps.max() <= 2


def test_a_row_is_not_written_out_beyond_the_instruction_cache_if_others_are_as_fast():
    kernel = softmax(4096, 1024, dtype=F16)
    schedule = FAMILY.default(problem(kernel), TARGET.limits).numbers

    assert schedule["keep"] == 1
    assert 1024 // schedule["lanes"] <= 64


# ---- seeded mistakes ----


def changed(text, old, new, count=1):
    assert text.count(old) >= 1, old
    return text.replace(old, new, count)


ACROSS = (layer_norm(3, 260), BASE | {"lanes": 64, "rows_per_group": 2, "vector": 2})
SPLIT = FEATURES["split by vectors"]
FIRST = FEATURES["scale and shift first"]
MISTAKES = {
    "wrong shuffle mask": (FEATURES["a warp"], "int mask = 16; mask > 0", "int mask = 8; mask > 0"),
    "row mask among rows": (FEATURES["rows beside each other"], "int mask = 16; mask > 2", "int mask = 8; mask > 1"),
    "a tail one too long": (FEATURES["rows beside each other"], "if (col < 13)", "if (col < 14)"),
    "a tail one too short": (FEATURES["half a warp"], "if (col < 39)", "if (col < 38)"),
    "one warp's result left out": (ACROSS, "warp < 2", "warp < 1"),
    "a scale of another step": (FIRST, "* early0[step]", "* early0[0]"),
    "a shift for a scale": (FIRST, "* early0[", "* early1["),
    "partial results of one split only": (SPLIT, "part < 4", "part < 3"),
    "the last split cut short": (SPLIT, "int begin = (int)blockIdx.y * 63", "int begin = (int)blockIdx.y * 62"),
    "a counter that is not wound back": (
        SPLIT,
        "gc_atomic_inc_wrap(counters + (int)blockIdx.x, 3)",
        "gc_atomic_add(counters + (int)blockIdx.x, 1u)",
    ),
}


@pytest.fixture(scope="module")
def broken():
    pairs = []
    for number, ((kernel, schedule), old, new) in enumerate(MISTAKES.values()):
        source = render(kernel, schedule, TARGET, f"m{number}")
        pairs.append((source, changed(source.text, old, new)))
    made = compile_many([(text, source.name) for source, text in pairs])
    return {name: (source, one) for name, (source, _), one in zip(MISTAKES, pairs, made, strict=True)}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(name, broken):
    (kernel, _), _, _ = MISTAKES[name]

    with pytest.raises((AssertionError, CudaOnCpuError)):
        assert_right(kernel, launched(kernel, *broken[name]))


def test_missing_barriers_are_races_and_the_text_has_none():
    barrier = "__syncthreads();"
    source = render(*ACROSS, TARGET, "r0")
    split = render(*SPLIT[:1], LONG | {"vector": 2, "lanes": 64}, TARGET, "r1")
    whole = [(source.text, "r0"), (split.text, "r1")]
    missing = [(source.text.replace(barrier, "", 1), "r0"), (split.text.replace(barrier, "", 1), "r1")]
    made = compile_many([*whole, *missing], sanitizer="thread")
    kernels = [ACROSS[0], SPLIT[0]]

    for kernel, one, source_ in zip(kernels, made[:2], (source, split), strict=True):
        launched(kernel, source_, one)
    for kernel, one, source_ in zip(kernels, made[2:], (source, split), strict=True):
        with pytest.raises(RaceError):
            launched(kernel, source_, one)
