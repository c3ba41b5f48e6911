"""CUDA sources of every family, run on the CPU by the harness: numpy's results in every thread order, without races."""

from __future__ import annotations

import math

import pytest

from gpucomp.kernel import Attention, Contraction, Rowwise, Scan
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.engines import family_of
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda
from testing.cases.on_harness import FEATURES, POINTS, RACES
from testing.cuda_on_cpu.harness import CudaOnCpuError, RaceError, compile_many
from testing.kernels import (
    joined,
    random_inputs,
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
    """For loads in nested branches, ptxas runs out of convergence registers and uses the stack."""
    text = render(joined(7, 3, 1, 5, 2), POINTS | {"vector": 1}, TARGET, "k0").text

    assert text.count("else") == 0
    assert text.count(" = *") == 1


# mutations of the two engines for independent points: feature, text, replacement
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
BARRIERS = {"rowwise": 2, "contraction": 4, "contraction of two stages": 3}
# the barrier before a work-group counts itself as arrived orders its sums for other work-groups. Work-groups run one after
# another on the CPU, so its absence cannot be detected here
ARRIVING = {("contraction", 2), ("contraction of two stages", 1)}
MISSING = [(name, n) for name, count in BARRIERS.items() for n in range(count) if (name, n) not in ARRIVING]


def without(text, number):
    """``text`` without barrier ``number``."""
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
