"""Who answers: the first engine with a legal answer, the fastest of those that estimate, records before either."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
from kernels import matmul

from gpucomp.codegen.families import FAMILIES, engines_of
from gpucomp.errors import ScheduleError
from gpucomp.ir.types import F16
from gpucomp.schedule.choose import choose
from gpucomp.targets import cuda, resolve

SIMT = FAMILIES["contraction/simt"]
LIMITS = cuda.manifest("sm_80").limits
KERNEL = matmul(64, 96, 32)


def engine(name, estimate=None, *, legal=True):
    """The simt engine under another name; with ``estimate`` microseconds, or none."""

    def objections(s, p, limits):
        return iter(() if legal else ("it cannot",))

    return dataclasses.replace(
        SIMT, engine=name, objections=objections, estimate=(lambda s, p, limits: estimate) if estimate else None
    )


def test_without_estimates_the_preferred_engine_answers():
    choice = choose(KERNEL, [engine("first"), engine("second", 1.0)], LIMITS)

    assert (choice.tier, choice.family.engine) == ("default", "first")


def test_engines_that_estimate_are_compared():
    choice = choose(KERNEL, [engine("first", 3.0), engine("second", 2.0), engine("last")], LIMITS)

    assert (choice.tier, choice.family.engine) == ("analytic", "second")


def test_what_cannot_run_is_no_rival():
    choice = choose(KERNEL, [engine("first", 3.0), engine("second", 2.0, legal=False), engine("last")], LIMITS)

    assert (choice.tier, choice.family.engine) == ("default", "first")


def test_an_engine_that_cannot_run_leaves_it_to_the_next():
    choice = choose(KERNEL, [engine("first", legal=False), engine("last")], LIMITS)

    assert (choice.tier, choice.family.engine) == ("default", "last")


def test_no_engine_at_all_is_an_error_with_the_reasons():
    with pytest.raises(ScheduleError, match="it cannot"):
        choose(KERNEL, [engine("first", legal=False), engine("last", legal=False)], LIMITS)


def test_a_record_comes_before_the_model():
    schedule = dict(SIMT.default(SimpleNamespace(**SIMT.problem(KERNEL)), LIMITS))
    tiers = (("record", lambda kernel, family, problem, limits: schedule if family.engine == "last" else None),
             ("default", lambda kernel, family, problem, limits: schedule))  # fmt: skip

    choice = choose(KERNEL, [engine("first", 3.0), engine("second", 2.0), engine("last")], LIMITS, tiers=tiers)

    assert (choice.tier, choice.family.engine) == ("record", "last")


def test_tensor_cores_are_chosen_where_there_are_some():
    half = matmul(512, 512, 512, dtype=F16)

    for arch, engines in {"sm_75": {"mma"}, "sm_80": {"mma"}, "sm_90a": {"mma", "wgmma"}}.items():
        target = resolve(f"cuda:{arch}")
        assert choose(half, engines_of(half, target.features), target.limits).family.engine in engines
        strict = choose(KERNEL, engines_of(KERNEL, target.features), target.limits)
        assert strict.family.engine == "simt"
