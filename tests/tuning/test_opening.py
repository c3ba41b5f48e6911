"""How a search starts from an analytic model that says how far it may be off: low and uncertain first, and not the same twice."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.schedule.uncertainty import SCHEDULES
from gpucomp.targets import resolve
from gpucomp.tuning.engines import candidates
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.samplers.ledger import Ledger
from gpucomp.tuning.samplers.model import BESIDES, GUIDED
from gpucomp.tuning.samplers.opening import lowest
from tests.tuning.spaces import made, tiled
from tests.tuning.test_study import task

PAIRS = np.array([[0.0], [0.02], [1.0], [0.98]], np.float32)  # two pairs of neighbours
TIMES = np.array([1.0, 1.01, 1.05, 1.06])


def ledger(*asked, **measured):
    found = Ledger(len(PAIRS), np.random.default_rng(0))
    for point in asked:
        found.take(point)
    for point, value in measured.items():
        found.tell(int(point[1:]), value)
    return found


def test_the_first_is_what_is_expected_to_be_fastest():
    assert lowest(PAIRS, TIMES, SCHEDULES, ledger()) == 0


@pytest.mark.parametrize("known", [ledger(0), ledger(p0=1.0), ledger(p0=None)], ids=["asked", "measured", "failed"])
def test_the_second_is_not_its_neighbour_but_one_that_may_be_faster_still(known):
    assert lowest(PAIRS, TIMES, SCHEDULES, known) == 2
    assert lowest(PAIRS, TIMES, 1e-3, known) == 1  # where the model is sure, its order holds


def test_where_the_model_was_right_the_search_goes_on():
    far = np.array([1.0, 1.01, 1.8, 1.9])  # too slow to be the fastest, as far as the model may be off

    assert lowest(PAIRS, far, SCHEDULES, ledger(p0=1.0, p2=1.8)) == 1
    assert lowest(PAIRS, far, SCHEDULES, ledger(p0=2.5, p2=1.8)) == 3  # it was wrong: its neighbours are as slow


def test_a_kernel_that_is_predicted_too_fast_as_a_whole_is_searched_alike():
    """What was not measured yet is then too fast as well."""
    far = np.array([1.0, 1.01, 5.0, 5.0])

    for factor in (1e-3, 1.0, 40.0):
        assert lowest(PAIRS, far, SCHEDULES, ledger(p0=factor)) == 1


def test_what_is_not_predicted_is_not_named():
    times = np.array([np.nan, np.inf, 0.0, 7.0])

    assert lowest(PAIRS, times, SCHEDULES, ledger()) == 3
    assert lowest(PAIRS, times, SCHEDULES, ledger(3)) is None
    assert lowest(PAIRS, times, SCHEDULES, ledger(p0=1.0, p1=2.0, p2=3.0, p3=None)) is None


def guided():
    space = tiled()
    found = space.candidates
    found.expected = np.where(np.isfinite(space.seconds), space.seconds, 1.0)
    found.expected[5] = np.nan
    found.error, found.default = SCHEDULES, 321
    return found


def test_a_search_measures_the_default_then_what_may_be_fastest_then_a_few_others():
    found = guided()

    asked = made("model", found, 0).ask(1 + GUIDED + BESIDES)

    assert asked[:2] == [321, int(np.nanargmin(found.expected))]
    own, others = found.expected[asked[1 : 1 + GUIDED]], found.expected[asked[1 + GUIDED :]]
    assert own.max() < np.quantile(found.expected[np.isfinite(found.expected)], 0.2)
    assert np.median(others) > own.max()


def test_a_search_with_records_starts_from_these():
    found = guided()
    seconds = np.arange(len(found), 0, -1.0)[:, None]  # elsewhere the last point was fastest

    asked = made("model", found, 0, Prior(found, seconds)).ask(2)

    assert asked == [321, len(found) - 1]


def test_a_search_that_goes_on_later_does_not_start_again():
    found, times = guided(), tiled().seconds
    first, again = made("model", found, 0), made("model", found, 0)
    for _ in range(1 + GUIDED + BESIDES):
        (point,) = first.ask(1)
        value = None if np.isnan(times[point]) else float(times[point])
        first.tell(point, value)
        again.tell(point, value)

    assert again.ask(1) == first.ask(1)


@pytest.mark.parametrize(("name", "error"), [("cuda:sm_80", SCHEDULES), ("cpu", None)])
def test_only_the_model_of_a_device_says_how_far_it_is_off(name, error):
    subject = task()
    family = subject.engines[0] if name == "cpu" else FAMILIES["contraction/simt"]

    found = candidates(subject.kernel, family, resolve(name), most=40)

    assert found.error == error
    assert found.expected is not None
