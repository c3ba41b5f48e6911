"""Starts of searches on published spaces: each is given what it is of, and they are compared by what a search costs."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bench import tuning_lab_starts as starts
from bench.measured.spaces import predicted
from gpucomp.schedule.uncertainty import SCHEDULES
from gpucomp.tuning.engines import EXPECTED
from gpucomp.tuning.samplers.model import GUIDED
from tests.bench.test_measured_order import space_in, written


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path)


def test_a_start_is_given_only_what_it_is_of(folder):
    (case,) = starts.published(folder)
    bounds, best, ends, none = (case.started(name).candidates for name in starts.STARTS)

    assert (bounds.error, best.error) == (SCHEDULES, None)
    assert list(bounds.expected) == list(best.expected) == list(predicted(space_in(folder)))
    assert list(best.leading) == np.argsort(case.us, kind="stable")[:EXPECTED].tolist()
    assert list(ends.leading) == np.argsort(case.ends, kind="stable")[:GUIDED].tolist()
    assert (none.leading, none.expected, ends.expected) == ((), None, None)


def test_the_cost_of_a_search_is_the_trial_that_came_near_enough():
    curves = np.array([[0.5, 0.96, 1.0, 1.0], [0.96, 0.96, 0.96, 0.96]])

    assert starts.trials_to(curves, 0.95) == pytest.approx(np.sqrt(2 * 1))
    assert starts.trials_to(curves, 0.99) == pytest.approx(np.sqrt(3 * 6))  # never: all four and half as many


def test_starts_are_compared_on_published_spaces(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["starts", str(folder), "--seeds", "1", "--made", "0", "--jobs", "1"])

    starts.main()

    text = capsys.readouterr().out
    assert all(f"| tensile_space_made | {name} | 1 |" in text for name in (*starts.STARTS, *starts.OTHERS))
    assert "worse" in text
    assert "made of" not in text
