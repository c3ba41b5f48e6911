"""What a measured space teaches, on spaces whose answers are known."""

import itertools

import numpy as np
import pytest

from gpucomp.errors import UsageError
from gpucomp.tuning.analysis import alone, dependence, importance, neighbours, source_difference
from gpucomp.tuning.page import space
from tests.tuning.spaces import table, tiled

SPACE = table(*itertools.product((1, 2, 4, 8), (0, 1), (3, 5, 7), (6,)), names=("tile", "fast", "noise", "constant"))
SECONDS = 2.0 ** SPACE.values[:, 0] * (1 + 3 * SPACE.values[:, 1])


def test_parameters_that_matter_come_first_and_those_that_do_not_explain_nothing():
    found = {i.name: i.overall for i in importance(SPACE, SECONDS)}

    assert list(found) == ["tile", "fast", "noise"]
    assert found["tile"] > 0.8 > 0.2 > found["fast"] > 0.05
    assert found["noise"] == 0.0


def test_importance_of_nothing_measured_or_nothing_different_is_zero():
    assert [i.overall for i in importance(SPACE, np.full(24, np.nan))] == [0, 0, 0]
    assert [i.overall for i in importance(SPACE, np.ones(24))] == [0, 0, 0]


def test_dependence_counts_times_and_failures_by_value():
    seconds, failed = SECONDS.copy(), np.zeros(24, bool)
    failed[:2], seconds[:3] = True, np.nan

    first, second, *_ = dependence(SPACE, seconds, "tile", failed)

    assert (first.value, first.count, first.failed, first.best, first.median) == (1, 3, 2, 2.0, 2.0)
    assert (second.value, second.count, second.failed, second.best, second.fast) == (2, 6, 0, 1.0, 0.5)


def test_dependence_of_no_parameter_is_refused():
    with pytest.raises(UsageError, match="'tiles': one of tile, fast, noise, constant"):
        dependence(SPACE, SECONDS, "tiles")


def test_neighbours_are_sorted_with_failures_last_and_unknown_left_out():
    seconds, failed = SECONDS.copy(), np.zeros(24, bool)
    seconds[1], seconds[2], failed[2] = np.nan, np.nan, True  # noise=5 unknown, noise=7 failed

    found = [(n.name, n.instead_of, n.value, n.ratio) for n in neighbours(SPACE, seconds, 0, failed)]

    assert found == [
        ("tile", 1, 2, 2.0),
        ("fast", 0, 1, 4.0),
        ("tile", 1, 4, 8.0),
        ("tile", 1, 8, 128.0),
        ("noise", 3, 7, None),
    ]


def test_the_difference_of_two_sources_names_what_changed():
    text = source_difference(lambda s: f"same\nfor {s['tile']}\n", {"tile": 1, "fast": 0}, {"tile": 4, "fast": 0})

    assert text == "--- tile=1\n+++ tile=4\n@@ -1,2 +1,2 @@\n same\n-for 1\n+for 4\n"


def test_a_page_on_a_space_says_what_changing_one_parameter_costs():
    assert "<td>1 → 2</td>" in "".join(space(SPACE, SECONDS, np.zeros(24, bool)))


def test_points_without_a_neighbour_are_counted():
    assert alone(table((1, 1), (1, 2), (3, 4), (5, 6))) == 0.5
    assert alone(tiled().candidates) == 0
    assert alone(table((1,), (2,))) == 0
