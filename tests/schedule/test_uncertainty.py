"""Intervals around predictions: of which kernels there are some, what they are, and how they add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.schedule.model import Terms
from gpucomp.schedule.rank import Ranked
from gpucomp.schedule.uncertainty import (
    CLEAR,
    FIRST,
    FIRST_OF_MEASURED,
    MATRIX,
    MEASURED,
    RATIOS,
    clearly_faster,
    gain_over_default,
    interval,
    kind_of,
    together,
    told,
    vendor_of,
)
from gpucomp.targets import resolve

LOOP = Terms(
    flops=1e6, bytes=1e4, floor_us=1.0, occupancy=0.5, resident=2, waves=1.0, math_us=9.0, issue_us=1.0, shared_us=1.0,
    cache_us=1.0, latency_us=0.0, loop_us=9.0, start_us=0.5, end_us=0.5, join_us=0.0, tail_us=0.0, memory_us=2.0, launch_us=2.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "terms", "kind"),
    [
        ("contraction/mma", LOOP, "matrix"),
        ("contraction/simt", LOOP, "lanes"),
        ("depthwise", LOOP, "lanes"),
        ("contraction/mma", replace(LOOP, memory_us=20.0), "memory"),
        ("contraction/mma", replace(LOOP, launch_us=20.0), "launch"),
        ("rowwise", replace(LOOP, memory_us=20.0), "memory"),
        ("attention/mma", replace(LOOP, memory_us=20.0), "attention"),
    ],
)
def test_a_kernel_is_of_the_kind_that_takes_its_time(engine, terms, kind):
    assert kind_of(engine, terms) == kind


def test_no_published_launch_begins_early_so_the_upper_end_is_as_if_none_did():
    target = resolve("cuda:sm_90a")
    low, high = interval("contraction/mma", replace(LOOP, early_us=1.5), target)

    assert (low, high) == pytest.approx((LOOP.total_us / 1.15, (LOOP.total_us + 1.5) / 0.86))


def test_kinds_name_engines_that_there_are():
    assert set(FAMILIES) >= MATRIX
    assert {kind for _, kind in RATIOS} == {"attention", "lanes", "launch", "matrix", "memory"}
    assert all(0 < low < high for low, high in RATIOS.values())


@pytest.mark.parametrize(
    ("target", "vendor"),
    [("cuda:sm_80", "nvidia"), ("hip:gfx942", "amd"), ("opencl:gfx90a", "amd"), ("opencl:mali", ""), ("cpu", "")],
)
def test_a_target_has_the_intervals_of_its_vendor(target, vendor):
    found = interval("contraction/mma", LOOP, resolve(target))

    assert vendor_of(resolve(target)) == vendor
    if not vendor:
        assert found is None
        return
    low, high = RATIOS[vendor, "matrix"]
    assert found == pytest.approx((LOOP.total_us / high, LOOP.total_us / low))  # measured is predicted over the ratio
    assert found[0] < LOOP.total_us < found[1]


def test_numbers_are_plain_whatever_the_terms_are():
    terms = replace(LOOP, loop_us=np.float32(9.0), memory_us=np.float64(2.0))

    assert {type(end) for end in interval("depthwise", terms, resolve("cuda:sm_80"))} == {float}


def test_attention_of_amd_has_none_because_none_is_published():
    assert interval("attention/simt", LOOP, resolve("hip:gfx942")) is None


def test_intervals_of_a_run_add_up_where_all_are_known():
    assert together([(1.0, 2.0), (3.0, 5.0)]) == (4.0, 7.0)
    assert together([(1.0, 2.0), None]) is None
    assert together([]) is None
    assert told((1.0, 2.5)) == " (1.00 to 2.50)"
    assert told((1.4, 2.6), ".0f") == " (1 to 3)"
    assert told(None) == ""


def spending(us, engine="contraction/simt", launch_us=2.0):
    """A kernel that takes ``us`` beside its launch; more than its memory takes."""
    terms = replace(LOOP, start_us=0.0, end_us=0.0, loop_us=us, math_us=us, memory_us=0.0, launch_us=launch_us)
    return Ranked(FAMILIES[engine], {}, terms, 32)


@pytest.mark.parametrize(("engine", "kind"), [("contraction/simt", "lanes"), ("contraction/mma", "matrix")])
def test_a_gain_is_clear_from_where_measured_pairs_are_in_order(engine, kind):
    one, gain = spending(10.0, engine), CLEAR[kind]

    assert clearly_faster([one], [spending(gain * 10.0 + 0.1)])
    assert not clearly_faster([one], [spending(gain * 10.0 - 0.1)])
    assert clearly_faster([one], [spending(11.1)], gain=1.1)


def test_kernels_together_have_the_gain_of_what_takes_their_time():
    these = [spending(10.0, "contraction/mma"), spending(30.0)]
    wanted = 10.0 * CLEAR["matrix"] + 30.0 * CLEAR["lanes"] + 4.0 - 2.0  # two launches beside one

    assert clearly_faster(these, [spending(wanted + 0.1)])
    assert not clearly_faster(these, [spending(wanted - 0.1)])


def test_a_launch_that_is_spared_is_certain():
    """Not so the arithmetic that this costs."""
    apart = [spending(1.0), spending(1.0)]

    assert clearly_faster([spending(2.9)], apart)
    assert not clearly_faster([spending(3.0)], apart)
    assert not clearly_faster([spending(2.9, launch_us=1.0)], [spending(1.0, launch_us=1.0)] * 2)


def test_what_cannot_run_is_not_faster_and_nothing_is_than_what_is_not_known():
    one, never = spending(1.0), spending(np.inf)

    assert not clearly_faster([never], [one])
    assert not clearly_faster([one], [never])


def test_an_order_that_was_measured_is_believed():
    amd, nvidia = resolve("hip:gfx942").device, resolve("cuda:sm_90a").device

    assert set(FAMILIES) >= MEASURED
    assert gain_over_default("contraction/amd", amd) == FIRST_OF_MEASURED < FIRST
    assert gain_over_default("depthwise", amd) == gain_over_default("contraction/simt", nvidia) == FIRST
