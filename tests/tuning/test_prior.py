"""What others measured: matched by schedule, filled in, and believed only while it is right."""

import dataclasses

import numpy as np
import pytest

from gpucomp.errors import UsageError
from gpucomp.tuning import gaussian
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.replay import search
from tests.tuning.spaces import table, tiled

SPACE = table(*[[a, b] for a in (1, 2, 4, 8) for b in (0, 1)], names=("tile", "flag"))


def test_records_are_matched_by_schedule_and_strangers_left_out():
    records = [
        ({"tile": 4, "flag": 1}, 3.0),
        ({"tile": 1, "flag": 0}, None),
        ({"tile": 8, "flag": 0}, 2.0),
        ({"tile": 2, "flag": 1}, 9.0),
        ({"tile": 32, "flag": 1}, 0.1),
    ]

    prior = Prior.from_records(SPACE, [records])

    assert prior.seconds[5, 0] == 3.0
    assert prior.seconds[0, 0] == np.inf
    assert np.isnan(prior.seconds[:, 0]).sum() == 4
    assert prior.fastest(1) == [6]


def test_too_few_records_say_nothing():
    prior = Prior.from_records(SPACE, [[({"tile": 4, "flag": 1}, 3.0)]])

    assert not prior
    assert prior.fastest(3) == []


def test_what_failed_elsewhere_is_worst():
    seconds = np.arange(1.0, 9.0)
    seconds[2] = np.inf
    prior = Prior(SPACE, seconds[:, None])

    assert prior.fastest(8)[-1] == 2
    assert prior.ranks[2, 0] == 1.0


def test_sources_name_their_best_in_turn():
    rising = np.arange(1.0, 9.0)

    assert Prior(SPACE, np.stack([rising, rising[::-1]], 1)).fastest(4) == [0, 7, 1, 6]


SWITCHED = table(*[[a, b, c] for a in (1, 2, 4, 8) for b in (0, 1) for c in (3, 5)], names=("tile", "flag", "way"))


def test_each_combination_of_the_switches_names_its_fastest():
    seconds = 10.0 + np.arange(16.0)
    seconds[SWITCHED.find({"tile": 4, "flag": 1, "way": 3})] = 1.0
    seconds[SWITCHED.find({"tile": 2, "flag": 0, "way": 5})] = 2.0
    prior = Prior(SWITCHED, seconds[:, None])

    named = [SWITCHED.schedule(point) for point in prior.fastest_by_switches(9)]

    assert named[0] == {"tile": 4, "flag": 1, "way": 3}
    assert {(s["flag"], s["way"]): s["tile"] for s in named} == {(0, 3): 1, (0, 5): 2, (1, 3): 4, (1, 5): 1}


def test_of_many_combinations_those_that_differ_most_are_named():
    seconds = 1.0 + np.arange(16.0)
    prior = Prior(SWITCHED, seconds[:, None])

    first, second = (SWITCHED.schedule(point) for point in prior.fastest_by_switches(2))

    assert (first, second) == ({"tile": 1, "flag": 0, "way": 3}, {"tile": 1, "flag": 1, "way": 5})


def test_a_combination_in_which_everything_failed_is_not_named():
    seconds = np.where(SWITCHED.values[:, 1] == 1, np.inf, 2.0 + np.arange(16.0))

    assert [SWITCHED.values[p, 1] for p in Prior(SWITCHED, seconds[:, None]).fastest_by_switches(9)] == [0, 0]


@pytest.mark.parametrize("ran", [True, False])
def test_a_combination_that_failed_wherever_it_was_measured_is_not_named(ran):
    """Two of the four points with the flag and the first way are measured; where one of them ran, the two others count."""
    points = np.flatnonzero((SWITCHED.values[:, 1] == 1) & (SWITCHED.values[:, 2] == 3))
    seconds = 2.0 + np.arange(16.0)
    seconds[points] = [np.inf, 40.0 if ran else np.inf, np.nan, np.nan]
    seconds = np.stack([seconds, np.where(np.isinf(seconds), np.nan, seconds)], 1)  # another source tried fewer

    named = {tuple(SWITCHED.values[p, 1:]) for p in Prior(SWITCHED, seconds).fastest_by_switches(9)}

    assert ((1, 3) in named) == ran
    assert named >= {(0, 3), (0, 5), (1, 5)}


def test_a_combination_that_nobody_measured_is_named():
    seconds = np.where(SWITCHED.values[:, 1] == 1, np.nan, 2.0 + np.arange(16.0))

    assert len(Prior(SWITCHED, seconds[:, None]).fastest_by_switches(9)) == 4


def test_without_switches_nothing_is_named_by_them():
    sizes = table(*[[a, b] for a in (1, 2, 4) for b in (3, 5, 7)])

    assert Prior(sizes, np.arange(1.0, 10.0)[:, None]).fastest_by_switches(9) == []


@pytest.mark.parametrize("scale", gaussian.TARGETS)
def test_what_matters_elsewhere_is_expected_to_matter(scale):
    space = table(*[[a, b] for a in range(30, 42) for b in range(50, 61)])  # each its value, and nothing else
    seconds = np.exp(np.sin(space.values[:, 0] * 1.1))
    seconds[::7] = np.nan

    found = Prior(space, seconds[:, None]).lengths(scale, 0.5)

    assert found[0] < 0.5 < found[1]


def test_a_device_with_other_switches_is_learned_from_all_the_same():
    """There every fast point has the flag, here none of them: within a value of the flag both agree."""
    space = tiled(0, failing=0.0)
    flag = space.candidates.values[:, space.candidates.names.index("cached")]
    here = dataclasses.replace(space, seconds=space.seconds * np.where(flag, 6.0, 1.0))
    prior = Prior(space.candidates, (space.seconds * np.where(flag, 1.0, 6.0))[:, None])

    found = [search(here, trials=8, seed=k, prior=prior).fractions[-1] for k in range(2)]

    assert found == [1.0, 1.0]


def test_a_sparse_source_is_filled_in_by_its_model():
    space = tiled(failing=0.0)
    rng = np.random.default_rng(0)
    sparse = np.where(rng.random(len(space.seconds)) < 0.15, space.seconds, np.nan)

    filled = Prior(space.candidates, sparse[:, None]).logarithms[:, 0]

    known = np.isfinite(space.seconds)
    assert np.corrcoef(filled[known], np.log(space.seconds[known]))[0, 1] > 0.9


def test_a_prior_of_another_space_is_refused():
    with pytest.raises(UsageError, match="8 points in rows expected"):
        Prior(SPACE, np.ones((5, 1)))


def test_a_sibling_finds_the_optimum_within_a_few_trials():
    space, sibling = tiled(0), tiled(0, failing=0.0)
    slower = Prior(
        space.candidates,
        3.7 * sibling.seconds[:, None] * np.random.default_rng(1).uniform(0.9, 1.1, (len(sibling.seconds), 1)),
    )

    cold = np.mean([search(space, trials=25, seed=k).fractions[[9, 24]] for k in range(3)], axis=0)
    warm = np.mean([search(space, trials=25, seed=k, prior=slower).fractions[[9, 24]] for k in range(3)], axis=0)

    assert warm[0] > cold[0] + 0.1
    assert warm[1] > 0.95


def test_a_misleading_source_is_given_up():
    space = tiled(0)
    backwards = Prior(space.candidates, 1 / np.nan_to_num(space.seconds, nan=1.0)[:, None])

    found = [search(space, trials=80, seed=k, prior=backwards).fractions[-1] for k in range(3)]

    assert np.mean(found) > 0.93
