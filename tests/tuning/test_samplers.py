"""Every sampler: nothing twice, nothing illegal, an end, the same again by seed; and the default finds more."""

import numpy as np
import optuna
import pytest
from optuna.distributions import IntDistribution

from gpucomp.errors import UsageError
from gpucomp.tuning.gaussian import TARGETS
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.replay import Faults, search
from gpucomp.tuning.samplers import model, named
from gpucomp.tuning.samplers.base import PointSampler
from gpucomp.tuning.samplers.points import Points
from gpucomp.tuning.samplers.view import Sameness, View
from tests.tuning.spaces import empty, made, table, tiled

NAMES = sorted(named.NAMES)
GRID = table(*[[a, b, c] for a in (1, 2, 3, 4) for b in (8, 16, 48) for c in (0, 1)])


def times(space, seed=0):
    rng = np.random.default_rng(seed)
    return 1 + rng.random(len(space)) + np.abs(space.ordinals - 1).sum(1)


def walk(sampler, seconds, count, batch=1):
    """The points in the order they were asked for."""
    points = []
    while len(points) < count and (asked := sampler.ask(batch)):
        points += asked
        for point in asked:
            sampler.tell(point, None if np.isnan(seconds[point]) else float(seconds[point]))
    return points


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("name", NAMES)
def test_a_sampler_takes_every_point_once_and_ends(name, batch):
    sampler = made(name, GRID, seed=1)

    points = walk(sampler, times(GRID), 1000, batch)

    assert sorted(points) == list(range(len(GRID)))
    assert sampler.ask(3) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_sampler_is_deterministic_by_its_seed(name):
    space = tiled()

    first, again, other = (walk(made(name, space.candidates, seed), space.seconds, 45) for seed in (7, 7, 8))

    assert first == again
    assert len(set(first)) == 45
    assert first != other or name == "grid"


@pytest.mark.parametrize("name", NAMES)
def test_points_under_way_are_not_asked_for_again(name):
    sampler = made(name, GRID, seed=2)

    asked = [point for _ in range(3) for point in sampler.ask(7)]

    assert len(asked) == len(set(asked)) == 21


@pytest.mark.parametrize("name", NAMES)
def test_a_space_in_which_everything_fails_ends_too(name):
    points = walk(made(name, GRID, seed=3), np.full(len(GRID), np.nan), 1000, 4)

    assert sorted(points) == list(range(len(GRID)))


@pytest.mark.parametrize("name", NAMES)
def test_equal_times_are_no_fault(name):
    points = walk(made(name, GRID, seed=3), np.full(len(GRID), 1e-9), 1000, 2)

    assert sorted(points) == list(range(len(GRID)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("space", "points"), [(empty(), []), (table([4, 2]), [0]), (table([4], [8]), [0, 1])])
def test_spaces_of_no_one_and_two_points(name, space, points):
    sampler = made(name, space, seed=0)

    assert sorted(walk(sampler, np.ones(len(space)), 10, 3)) == points


@pytest.mark.parametrize("name", NAMES)
def test_results_from_records_are_not_asked_for(name):
    sampler = made(name, GRID, seed=4)
    for point, seconds in [(0, 2.0), (5, None), (9, 1.0), (9, 1.5)]:
        sampler.tell(point, seconds)

    points = walk(sampler, times(GRID), 1000)

    assert sorted(points) == sorted(set(range(len(GRID))) - {0, 5, 9})


@pytest.mark.parametrize("name", NAMES)
def test_with_a_prior_nothing_is_asked_for_twice_either(name):
    prior = Prior(GRID, times(GRID)[:, None])

    points = walk(made(name, GRID, 5, prior), times(GRID, 1), 1000, 2)

    assert sorted(points) == list(range(len(GRID)))


@pytest.mark.parametrize("proposed", [0, -1, 10**6])
def test_a_proposal_that_is_taken_or_not_there_is_refused(proposed):
    class Stubborn(PointSampler):
        def propose(self, study, trial):
            return proposed

    points = Points.of({"a": IntDistribution(0, 9)})
    study = optuna.create_study(sampler=Stubborn(points))

    with pytest.raises(UsageError, match=f"sampler Stubborn proposed point {proposed}, which is taken or not there"):
        study.optimize(lambda trial: trial.suggest_int("a", 0, 9), n_trials=2)


def test_an_unknown_sampler_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="sampler 'simplex': one of model, genetic, random, grid, tpe, cmaes, or"):
        made("simplex", GRID)


@pytest.mark.parametrize(
    ("point", "seconds"), [(-1, 1.0), (99, 1.0), (0, 0.0), (0, -2.0), (0, float("nan")), (0, float("inf"))]
)
def test_impossible_results_are_refused(point, seconds):
    with pytest.raises(UsageError):
        made("random", GRID).tell(point, seconds)


def test_the_default_of_an_untuned_build_is_measured_first():
    space = tiled().candidates
    space.default = 321

    assert made("model", space, 0).ask(1) == [321]


def test_what_is_expected_to_be_fast_is_measured_first_and_little_of_the_rest():
    """The best of it first, then far from each other; a few points of the whole space last."""
    space = tiled().candidates
    space.expected = np.random.default_rng(5).permutation(len(space)).astype(float)
    space.expected[17] = np.nan
    space.default = 321

    asked = made("model", space, 0).ask(17)

    assert asked[0] == 321
    assert asked[1] == int(np.nanargmin(space.expected))
    assert all(space.expected[row] < 48 for row in asked[1:13])
    assert sum(bool(space.expected[row] < 48) for row in asked[13:]) <= 1
    chosen = space.encoding.matrix[asked[1:13]]
    among = space.encoding.matrix[np.argsort(space.expected)[:48]]
    assert _least_distance(chosen) > 3 * _least_distance(among)


def _least_distance(x):
    distances = ((x[:, None] - x) ** 2).sum(2)
    return np.sqrt(distances[~np.eye(len(x), dtype=bool)].min())


def test_the_default_search_finds_clearly_more_than_random():
    reached = {
        name: np.mean([search(tiled(k), name, trials=60, seed=k).fractions[-1] for k in range(5)])
        for name in ("model", "genetic", "random")
    }

    assert reached["model"] > reached["random"] + 0.15
    assert reached["model"] > reached["genetic"] + 0.03
    assert reached["model"] > 0.97


@pytest.mark.parametrize("scale", TARGETS)
def test_a_fit_sees_values_in_their_order_only_where_that_explains_the_times(scale):
    space = table(*[[a, b] for a in range(20, 32) for b in range(40, 50)])
    rng = np.random.default_rng(3)
    points = rng.permutation(len(space))[:60].tolist()
    orders = ((np.arange(12), np.arange(10)), 0), ((rng.permutation(12), rng.permutation(10)), 1)

    for (first, second), number in orders:
        times = 1.0 + first[space.ordinals[:, 0]] + 0.3 * second[space.ordinals[:, 1]]
        view = View(scale, space)
        view.fit(points, np.log(times[points]))
        assert view.lens is view.lenses[number]


def test_points_are_as_far_apart_as_there_are_values_in_which_they_differ():
    features = Sameness(table([7, 2, 9], [7, 4, 1], [8, 4, 9], [7, 2, 1]))

    x = features([0, 1, 3])

    assert ((x[0] - x[1]) ** 2).sum() == pytest.approx(2)
    assert ((x[0] - x[2]) ** 2).sum() == pytest.approx(1)
    assert features.groups.tolist() == [0, 0, 1, 1, 2, 2]


def test_the_default_search_stands_noise_failures_and_batches():
    faults = Faults(noise=0.05, failing=0.1)

    found = [search(tiled(k), trials=80, seed=k, faults=faults, batch=4).fractions[-1] for k in range(3)]

    assert np.mean(found) > 0.93


def test_the_default_search_learns_where_points_fail():
    """A third of this space fails, all of it with one value of a switch: in the end hardly any of it is tried."""
    space = table(*[[a, b, c] for a in range(10) for b in range(10) for c in (0, 1, 2)])
    seconds = 1.0 + space.values[:, 0] + space.values[:, 1] + 9 * np.random.default_rng(0).random(len(space))
    seconds[space.values[:, 2] == 2] = np.nan

    points = walk(made("model", space, 0), seconds, 80)

    failing = np.isnan(seconds[points])
    assert failing[:16].sum() > 2
    assert failing[40:].sum() < 40 / 6  # a third of them by chance


def test_what_is_next_to_a_failure_is_as_unsure_as_before():
    space = table(*[[a, b] for a in range(8) for b in range(9)])
    neighbour = space.find({"p0": 5, "p1": 4})
    deviations = []
    for failed in ((), [(5, 3), (5, 5), (4, 4), (6, 4)]):
        sampler = made("model", space, 0)
        for point in range(0, 27, 2):
            sampler.tell(point, 1.0 + point % 5)
        for a, b in failed:
            sampler.tell(space.find({"p0": a, "p1": b}), None)
        assert sampler.sampler.left(sampler.study) == len(space) - 14 - len(failed)
        pool = sampler.sampler._fit()
        deviations.append(sampler.sampler.views[0].posterior.deviation()[pool.rows.tolist().index(neighbour)])

    assert deviations[0] == pytest.approx(deviations[1])


def test_a_large_space_is_searched_through_a_pool(monkeypatch):
    monkeypatch.setattr(model, "POOL", 64)
    space = tiled()

    found = [search(space, trials=80, seed=seed).fractions[-1] for seed in range(3)]

    assert np.mean(found) > 0.9


def test_more_measurements_than_a_process_takes(monkeypatch):
    monkeypatch.setattr(model, "MEMBERS", 24)
    monkeypatch.setattr(model, "UNDER_WAY", 4)
    space = tiled()

    points = walk(made("model", space.candidates, 0), space.seconds, 90, 6)

    assert len(set(points)) == len(points) >= 90


def test_fits_stay_rare_however_many_points_failed(monkeypatch):
    """Hundreds of failures do not fill the room of the processes: a search among them is as fast as any."""
    monkeypatch.setattr(model, "UNDER_WAY", 16)
    space = table(*[[a, b] for a in range(30) for b in range(20)])
    seconds = np.where(space.values[:, 1] % 4 > 0, np.nan, 1.0 + space.values[:, 0])
    sampler = made("model", space, 0)
    fits = []
    fitting = sampler.sampler._fit
    monkeypatch.setattr(sampler.sampler, "_fit", lambda: fits.append(1) or fitting())

    points = walk(sampler, seconds, 240)

    assert np.isnan(seconds[points]).sum() > 40
    assert len(fits) < 40
