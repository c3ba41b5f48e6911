"""The laboratory: what the device that only remembers answers, and how results are counted."""

import numpy as np
import pytest

from gpucomp.errors import UsageError
from gpucomp.tuning.recorded import Row, space_of
from gpucomp.tuning.replay import Faults, ReplayDevice, certainty, interval, notes, replay, search
from tests.tuning.spaces import tiled

FIVE = space_of("five", "", [Row({"t": t}, s, 2.0) for t, s in ((1, 8.0), (2, 4.0), (3, None), (4, 2.0), (5, 6.0))])


def test_without_faults_a_device_answers_what_was_recorded_and_counts_its_time():
    device = ReplayDevice(FIVE, run_s=0.5)

    assert [device.measure(point) for point in range(5)] == [8.0, 4.0, None, 2.0, 6.0]
    assert device.elapsed == 5 * 2.0 + 4 * 0.5


def test_noise_has_the_asked_deviation():
    device = ReplayDevice(FIVE, Faults(noise=0.1), seed=1)

    samples = np.log([device.measure(0) for _ in range(4000)]) - np.log(8.0)

    assert abs(samples.std() - 0.1) < 0.01
    assert abs(samples.mean()) < 0.01


def test_a_throttled_device_is_slower_for_a_while():
    device = ReplayDevice(FIVE, Faults(throttle=0.2, slowdown=1.5), seed=2)

    times = [device.measure(0) for _ in range(400)]

    assert set(times) == {8.0, 12.0}
    assert 100 < sum(t == 12.0 for t in times) < 300


def test_good_points_fail_at_the_asked_rate():
    device = ReplayDevice(FIVE, Faults(failing=0.25), seed=3)

    assert 400 < sum(device.measure(0) is None for _ in range(2000)) < 600


def test_fractions_never_fall_without_noise_and_end_at_one():
    found = search(FIVE, "random", trials=9, seed=4)

    assert (np.diff(found.fractions) >= 0).all()
    assert found.fractions[-1] == 1.0


def test_a_grid_search_counts_failures_as_trials():
    assert search(FIVE, "grid", trials=5).fractions.tolist() == [0.25, 0.5, 0.5, 1.0, 1.0]


def test_nothing_found_is_a_fraction_of_zero():
    late = space_of("late", "", [Row({"t": 1}, None), Row({"t": 2}, None), Row({"t": 3}, 5.0)])

    assert search(late, "grid", trials=3).fractions.tolist() == [0.0, 0.0, 1.0]


def test_noise_is_judged_by_what_the_choice_really_takes():
    found = [search(FIVE, "grid", trials=5, seed=k, faults=Faults(noise=1.0)).fractions[-1] for k in range(40)]

    assert set(found) <= {0.25, 0.5, 1.0, 2 / 6}
    assert min(found) < 1


def test_a_result_has_means_and_intervals_at_the_budgets_within_its_trials():
    found = replay(tiled(), "random", trials=60, seeds=3)

    assert list(found.fraction_of_optimum) == ["25", "50"]
    for budget, mean in found.fraction_of_optimum.items():
        assert found.interval[budget][0] <= mean <= found.interval[budget][1]
        assert mean == pytest.approx(found.curve[int(budget) - 1], abs=1e-5)
    assert (found.points, found.seeds, found.prior) == (1170, 3, ())


def test_fewer_trials_than_any_budget_are_one():
    assert list(replay(FIVE, "grid", trials=4, seeds=1).fraction_of_optimum) == ["4"]


def test_a_prior_without_a_common_point_is_refused():
    with pytest.raises(UsageError, match="five: no point in common with tiled"):
        replay(tiled(), trials=5, seeds=1, others=[FIVE])


def test_no_trials_are_refused():
    with pytest.raises(UsageError, match="at least one"):
        replay(FIVE, trials=0)


def test_an_interval_of_few_searches_is_called_a_range():
    for seeds in (2, 3):
        samples = np.linspace(0.2, 0.7, seeds)
        assert interval(samples) == pytest.approx((0.2, 0.7))
        assert certainty(seeds) == f"the range of {seeds} searches, too few for 95 %"
    assert interval(np.linspace(0.2, 0.7, 4))[0] > 0.2
    assert certainty(4) == "the 95 % interval of the mean"


def test_an_interval_holds_the_mean_and_shrinks_with_samples():
    rng = np.random.default_rng(0)
    few, many = (interval(rng.normal(0.5, 0.1, size)) for size in (8, 512))

    assert few[0] < 0.5 < few[1]
    assert many[1] - many[0] < (few[1] - few[0]) / 3


def test_notes_tell_of_whole_spaces_missing_neighbours_and_noise():
    diagonal = space_of("diagonal", "none", [Row({"a": k, "b": k}, 1.0 + k) for k in range(30)])

    assert notes([tiled()], 50, Faults()) == []
    (whole,) = notes([tiled(), FIVE], 5, Faults())
    assert whole.startswith(f"in 1 of 2 spaces ({FIVE.name}), there are no more points than a search has trials (5)")
    (sparse,) = notes([diagonal, tiled()], 20, Faults())
    assert sparse.startswith("in 1 of 2 spaces (diagonal), few points have a neighbour")
    assert "can fall with more trials" in notes([tiled()], 50, Faults(noise=0.1))[-1]
