"""The CUDA text of every family, run on the CPU by the harness: numpy's answer, in every thread order, without races."""

from __future__ import annotations

import math

import pytest

from gpucomp.ir.types import BF16, F16, I8, I16, I32, U8
from gpucomp.kernel import Attention, Contraction, Rowwise, Scan
from gpucomp.kernels_templates.contraction.simt.space import PLAIN
from gpucomp.kernels_templates.engines import family_of
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda
from testing.cuda_on_cpu.harness import CudaOnCpuError, RaceError, compile_many
from testing.kernel_oracle import expected
from testing.kernels import (
    add_relu,
    conv,
    grouped_conv,
    into_part,
    joined,
    matmul,
    max_pool,
    padded,
    random_inputs,
    reduction,
    softmax,
)
from testing.launches import in_any_order, launched
from testing.template_cases import CASES, default, flat, is_empty, spread
from testing.tolerance import assert_matches
from tests.cuda_on_cpu.kernel_files import broken

TARGET = cuda.manifest("sm_80")
LIVE = [c for c in CASES if not is_empty(CASES[c])]


def sources(case):
    kernel = CASES[case]
    schedules = [default(kernel, TARGET.limits), *spread(kernel, TARGET.with_limits(threads=256).limits, 1, seed=1)]
    return [render(kernel, s, TARGET, f"k{LIVE.index(case)}_{i}") for i, s in enumerate(schedules)]


@pytest.fixture(scope="module")
def compiled():
    rendered = {case: sources(case) for case in LIVE}
    pairs = [(s.text, s.name) for found in rendered.values() for s in found]
    built = dict(zip([name for _, name in pairs], compile_many(pairs), strict=True))
    return {case: [(s, built[s.name]) for s in found] for case, found in rendered.items()}


def terms_of(kernel):
    match kernel.body:
        case Contraction(k=axes) | Rowwise(cols=axes) | Attention(cols=axes):
            return max(1, math.prod(a.extent for a in axes))
        case Scan(axis=axis):
            return axis.extent
    return 1


@pytest.mark.parametrize("case", LIVE)
def test_cuda_text_gives_numpy_s_answer_in_any_thread_order(case, compiled):
    kernel = CASES[case]
    inputs = random_inputs(kernel)
    wanted = expected(kernel, inputs)
    for source, built in compiled[case]:
        for actual, right in zip(in_any_order(kernel, source, built, inputs), wanted, strict=True):
            assert_matches(actual, right, terms=terms_of(kernel))


TILE = {**PLAIN, "tile_m": 8, "tile_n": 16, "tile_k": 8, "reg_m": 2, "reg_n": 4, "stages": 1}
ROW = {"lanes": 8, "rows_per_group": 4, "vector": 1, "keep": 1, "splits": 1}
POINTS = {"threads": 32, "vector": 4, "items": 2}

# what a template can do, each at a schedule that makes it: derived sizes that prove it, kernel, schedule
FEATURES = {
    "split-K": ({"tiles_per_split": 4}, matmul(13, 22, 90), TILE | {"splits": 3}),
    "split-K with a tail that has nothing": ({"tiles_per_split": 1}, matmul(5, 7, 13), TILE | {"splits": 4}),
    "split-K of two stages": ({"stages": 2}, matmul(9, 20, 70, batch=(2,)), TILE | {"splits": 2, "stages": 2}),
    "two stages": ({"stages": 2}, matmul(19, 37, 45), TILE | {"stages": 2}),
    "vector loads": ({"a_vector": 4, "b_vector": 4, "out_vector": 4}, matmul(11, 24, 36), TILE),
    "vector loads of two stages": ({"a_vector": 4, "stages": 2}, conv((2, 6, 5, 8), 12, (3, 3), pad=1),
                                   TILE | {"stages": 2}),
    "vectors of f16": ({"a_vector": 8, "b_vector": 8}, matmul(11, 24, 32, dtype=F16), TILE),
    "vectors of bf16": ({"a_vector": 8, "b_vector": 8}, matmul(11, 24, 32, dtype=BF16), TILE | {"stages": 2}),
    "operands across": ({"a_vector": 4, "b_vector": 4}, matmul(12, 20, 17, a_transposed=True), TILE),
    "both along the depth": ({"a_by_depth": 1, "b_by_depth": 1}, matmul(11, 18, 20, b_transposed=True), TILE),
    "int8": ({"acc_bytes": 4}, matmul(13, 20, 3, dtype=I8, acc=I32), TILE),
    "int16": ({"acc_bytes": 4}, matmul(13, 20, 19, dtype=I16, acc=I32), TILE | {"splits": 2}),
    "groups": ({"batch": 3}, grouped_conv((2, 7, 5, 12), 3, 6, (3, 2), pad=1), TILE),
    "depthwise": ({"n": 1}, grouped_conv((1, 7, 9, 6), 6, 1, (3, 3), pad=1), TILE | {"tile_n": 4, "stages": 2}),
    "contraction into a part": ({"threads": 16}, into_part(matmul(9, 22, 17), 1, 5, 3), TILE),
    "groups into a part": ({"batch": 2}, into_part(grouped_conv((1, 5, 6, 8), 2, 5, (2, 2)), 3, 7, 2), TILE),
    "vector of points": ({"points": 55}, add_relu(5, 11, 4), POINTS),
    "vector of f16 points": ({"points": 21}, add_relu(7, 24, dtype=F16), POINTS | {"vector": 8}),
    "a choice of inputs": ({"points": 77}, joined(7, 3, 1, 5, 2), POINTS | {"vector": 1}),
    "a choice of f16 inputs": ({"points": 30}, joined(5, 2, 4, dtype=F16), POINTS | {"vector": 1}),
    "zeros around": ({"points": 44}, padded(38, 3), POINTS | {"vector": 1}),
    "points into a part": ({"points": 65}, into_part(add_relu(13, 5), 1, 4, 2), POINTS | {"vector": 1}),
    "points into a part by vectors": ({"points": 26}, into_part(add_relu(13, 8), 0, 3, 1), POINTS),
    "rows kept": ({"steps": 5}, softmax(11, 37), ROW),
    "rows read again": ({"steps": 5}, softmax(11, 37), ROW | {"keep": 0}),
    "rows side by side": ({"rows_side_by_side": 1}, softmax(2, 19, 7, axis=1), ROW),
    "rows into a part": ({"steps": 3}, into_part(softmax(7, 21), 0, 2, 5), ROW),
    "rows of u8": ({"steps": 4}, reduction("max", 9, 29, dtype=U8), ROW),
    "a work-item a row": ({"steps": 9}, softmax(41, 9), ROW | {"lanes": 1, "rows_per_group": 32}),
    "window unrolled": ({"points": 24}, max_pool((1, 9, 7, 8), 3, 2, 0), POINTS | {"unroll": 1}),
    "window in a loop": ({"points": 150}, max_pool((1, 9, 14, 4), 2, 1, 1), POINTS | {"unroll": 0, "vector": 4}),
    "window of f16": ({"taps": 9}, max_pool((2, 5, 7, 8), 3, 1, 1, dtype=F16), POINTS | {"unroll": 1, "vector": 8}),
    "window into a part": ({"taps": 4}, into_part(max_pool((2, 6, 8, 5), 2, 2, 0), 3, 2, 9),
                           POINTS | {"unroll": 1, "vector": 1}),
}  # fmt: skip


@pytest.fixture(scope="module")
def features():
    found = {
        name: render(kernel, schedule, TARGET, f"f{number}")
        for number, (name, (_, kernel, schedule)) in enumerate(FEATURES.items())
    }
    built = compile_many([(s.text, s.name) for s in found.values()])
    return dict(zip(FEATURES, zip(found.values(), built, strict=True), strict=True))


@pytest.mark.parametrize("name", FEATURES)
def test_what_a_template_can_do_gives_numpy_s_answer_in_any_thread_order(name, features):
    proof, kernel, schedule = FEATURES[name]
    problem = family_of(kernel).problem(kernel)
    family = family_of(kernel)
    sizes = {**problem.numbers, **schedule, **flat(family.derive(family.schedule(schedule), problem))}
    assert {k: sizes[k] for k in proof} == proof

    found = in_any_order(kernel, *features[name])

    for actual, right in zip(found, expected(kernel, random_inputs(kernel)), strict=True):
        assert_matches(actual, right, terms=terms_of(kernel))


def test_a_choice_of_inputs_is_one_load_and_no_branch():
    """Loads in nested branches cost ptxas its convergence registers, and then a stack."""
    text = render(joined(7, 3, 1, 5, 2), POINTS | {"vector": 1}, TARGET, "k0").text

    assert text.count("else") == 0
    assert text.count(" = *") == 1


# of the two engines that take every point by itself: feature, text, what stands there instead
MISTAKES = {
    "a group past the end": ("points into a part by vectors", "point < 26", "point < 27"),
    "a group that is left out": ("points into a part by vectors", "point < 26", "point < 25"),
    "an item's points are the other's": ("vector of points", "first + item * 32", "first + item * 16"),
    "the place of a part": ("points into a part by vectors", "x2 + e0 + 24", "x2 + e0"),
    "columns of the other half": ("points into a part by vectors", "point % 2 * 4", "(point + 1) % 2 * 4"),
    "a point before the first": ("zeros around", "3 <= point", "2 <= point"),
    "a point behind the last": ("zeros around", "point < 41", "point < 42"),
    "a halo one too wide": ("window in a loop", "0 <= e6", "-1 <= e6"),
    "padding that wins": ("window in a loop", "- 60] : (-__int_as_float(0x7f800000))", "- 60] : 3.0f"),
    "a row of the window left out": ("window in a loop", "e2 < 2", "e2 < 1"),
    "a tap read twice": ("window unrolled", "x0 + e9 + 120", "x0 + e9 + 112"),
}


@pytest.fixture(scope="module")
def mistaken(features):
    pairs = []
    for number, (name, text, instead) in enumerate(MISTAKES.values()):
        source, _ = features[name]
        pairs.append((broken(source.text, replace=text, by=instead).replace(source.name, f"m{number}"), f"m{number}"))
    return dict(zip(MISTAKES, compile_many(pairs), strict=True))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_text_is_seen(mistake, features, mistaken):
    name = MISTAKES[mistake][0]
    kernel, (source, _) = FEATURES[name][1], features[name]
    inputs = random_inputs(kernel)

    def check():
        outputs = launched(kernel, source, mistaken[mistake], inputs)
        for actual, right in zip(outputs, expected(kernel, inputs), strict=True):
            assert_matches(actual, right)

    with pytest.raises((AssertionError, CudaOnCpuError)):
        check()


BARRIER = "__syncthreads();"
RACES = {
    "loops": (add_relu(5, 11, 4), POINTS),
    "pool": (max_pool((1, 9, 7, 8), 3, 2, 0), POINTS | {"unroll": 1}),
    "rowwise": (softmax(5, 67), ROW | {"lanes": 64, "rows_per_group": 2}),
    "contraction": (matmul(12, 20, 19), TILE | {"splits": 2}),
    "contraction of two stages": (matmul(12, 20, 27), TILE | {"splits": 2, "stages": 2}),
}
BARRIERS = {"rowwise": 2, "contraction": 4, "contraction of two stages": 3}
# The one before a work-group counts itself in orders its sums against those that another group reads. Blocks run one
# after another on the CPU, so nothing here can show its lack.
ARRIVING = {("contraction", 2), ("contraction of two stages", 1)}
MISSING = [(name, n) for name, count in BARRIERS.items() for n in range(count) if (name, n) not in ARRIVING]


def without(text, number):
    """``text`` without its barrier ``number``."""
    parts = text.split(BARRIER)
    return BARRIER.join([*parts[:number], parts[number] + parts[number + 1], *parts[number + 2 :]])


@pytest.fixture(scope="module")
def watched():
    """Kernels built with ThreadSanitizer, by family and missing barrier; ``None`` for the text as rendered."""
    texts = {
        (name, None): render(kernel, schedule, TARGET, f"r{number}")
        for number, (name, (kernel, schedule)) in enumerate(RACES.items())
    }
    pairs = {key: (source.text, source.name) for key, source in texts.items()}
    for name, number in MISSING:
        source = texts[name, None]
        pairs[name, number] = (without(source.text, number), source.name)
    built = dict(zip(pairs, compile_many(list(pairs.values()), sanitizer="thread"), strict=True))
    return {key: (texts[key[0], None], found) for key, found in built.items()}


def launch(name, source, built):
    kernel, _ = RACES[name]
    launched(kernel, source, built)


@pytest.mark.parametrize("name", RACES)
def test_a_family_has_no_race(name, watched):
    source, built = watched[name, None]
    assert source.text.count(BARRIER) == BARRIERS.get(name, 0)

    launch(name, source, built)


@pytest.mark.parametrize(("name", "number"), MISSING)
def test_a_missing_barrier_is_seen(name, number, watched):
    with pytest.raises(RaceError):
        launch(name, *watched[name, number])
