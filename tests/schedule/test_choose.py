"""Which tier and engine answer: records first, then the engine with the lowest estimate, then the first legal one."""

from __future__ import annotations

import dataclasses

import pytest

from gpucomp.errors import ScheduleError
from gpucomp.ir.types import F16
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.schedule import rank, uncertainty
from gpucomp.schedule.analytic import demand
from gpucomp.schedule.choose import choose
from gpucomp.targets import cuda, resolve
from testing.kernels import matmul

SIMT = FAMILIES["contraction/simt"]
TARGET = cuda.manifest("sm_80")
LIMITS, DEVICE = TARGET.limits, TARGET.device
KERNEL = matmul(64, 96, 32)


def engine(name, estimate=None, *, legal=True):
    """The simt engine under another name, with an estimate of ``estimate`` microseconds or without one."""

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
    schedule = dict(SIMT.default(SIMT.problem(KERNEL), LIMITS).numbers)
    tiers = (
        ("record", lambda kernel, family, problem, limits: schedule if family.engine == "last" else None),
        ("default", lambda kernel, family, problem, limits: schedule),
    )

    choice = choose(KERNEL, [engine("first", 3.0), engine("second", 2.0), engine("last")], LIMITS, tiers=tiers)

    assert (choice.tier, choice.family.engine) == ("record", "last")


def slowed(name, factor):
    """The simt engine under another name that declares a multiple of the work."""

    def work(s, p):
        found = SIMT.work(s, p)
        return dataclasses.replace(found, macs=factor * found.macs, instructions=factor * found.instructions)

    return dataclasses.replace(SIMT, engine=name, work=work)


LAYER = matmul(784, 128, 1152)


def test_on_a_gpu_the_model_compares_engines_and_schedules():
    choice = choose(LAYER, [slowed("first", 9), slowed("second", 1)], LIMITS, DEVICE)
    start = rank.defaults(LAYER, rank.problems(LAYER, [SIMT]), LIMITS, DEVICE)[0]
    problem, wanted = SIMT.problem(LAYER), demand(LAYER, DEVICE)
    chosen = rank.predicted(SIMT, problem, choice.schedule, DEVICE, wanted)

    assert (choice.tier, choice.family.engine) == ("analytic", "second")
    assert chosen.us <= start.us
    assert chosen.registers <= rank.PRESSURE


def test_a_default_that_the_model_finds_little_wrong_with_is_left_alone(monkeypatch):
    monkeypatch.setattr(uncertainty, "FIRST", 1e9)

    assert choose(LAYER, [SIMT], LIMITS, DEVICE).tier == "default"
    monkeypatch.setattr(uncertainty, "FIRST", 1.0)
    assert choose(LAYER, [SIMT], LIMITS, DEVICE).tier == "analytic"


def test_a_default_under_register_pressure_is_not(monkeypatch):
    keeps = dataclasses.replace(SIMT, registers=lambda s, p: 100 + 2 * s.tile_m)  # over 240 from 128 rows
    wide = dataclasses.replace(keeps, default=lambda p, limits: SIMT.default(p, limits).replace(**WIDE))
    monkeypatch.setattr(uncertainty, "FIRST", 1e9)

    choice = choose(LAYER, [wide], LIMITS, DEVICE)

    assert choice.tier == "analytic"
    assert keeps.registers(keeps.schedule(choice.schedule), None) <= rank.PRESSURE


WIDE = {"tile_m": 128, "tile_n": 64, "tile_k": 8, "reg_m": 8, "reg_n": 8, "slices": 1, "splits": 1}


def test_an_engine_that_the_model_does_not_know_keeps_its_place():
    unknown = dataclasses.replace(SIMT, engine="unknown", work=None)

    assert choose(LAYER, [unknown, SIMT], LIMITS, DEVICE).family is unknown
    assert choose(LAYER, [slowed("first", 1), unknown], LIMITS, DEVICE).family.engine == "first"


def test_without_a_device_only_defaults_are_compared():
    choice = choose(LAYER, [slowed("first", 9), slowed("second", 1)], LIMITS)

    assert choice.family.engine == "second"
    assert choice.schedule == SIMT.default(SIMT.problem(LAYER), LIMITS).numbers


def test_nothing_to_compute_has_the_default():
    assert choose(matmul(0, 96, 32), [SIMT], LIMITS, DEVICE).tier == "default"


def test_tensor_cores_are_chosen_where_there_are_some():
    half = dataclasses.replace(matmul(512, 512, 512, dtype=F16), constants=frozenset({1}))

    units = {"sm_75": {"mma"}, "sm_80": {"mma"}, "sm_90a": {"mma", "wgmma"}, "sm_100": {"tcgen05"}}
    for arch, engines in units.items():
        target = resolve(f"cuda:{arch}")
        assert choose(half, engines_of(half, target.features), target.limits, target.device).family.engine in engines
        strict = choose(KERNEL, engines_of(KERNEL, target.features), target.limits, target.device)
        assert strict.family.engine == "simt"
