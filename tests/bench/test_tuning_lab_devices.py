"""Made devices: as far from the recorded one as asked, another one each time; and pairs of them are searched."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bench import tuning_lab_devices
from bench.tuning_lab_devices import AMOUNTS, CHANGES, Pair, agreement, pairs, table
from tests.tuning.spaces import tiled, write_cache

SPACE = tiled(1)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_made_device_is_the_same_one_where_nothing_is_to_change(change):
    made = change(SPACE, 0.0, np.random.default_rng(0))

    assert agreement(Pair("", SPACE, made)) == pytest.approx(1)
    assert np.nanstd(np.log(made.seconds)) == pytest.approx(np.nanstd(np.log(SPACE.seconds)))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_devices_lie_the_farther_apart_the_more_is_changed(change):
    agreed = [
        np.mean([agreement(Pair("", SPACE, change(SPACE, a, np.random.default_rng(k)))) for k in range(3)])
        for a in (0.1, 2.0)
    ]

    assert agreed[0] > 0.9
    assert agreed[1] < agreed[0] - 0.2


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_fails_on_the_recorded_device_fails_on_the_made_one(change):
    made = change(SPACE, 1.0, np.random.default_rng(2))

    assert (np.isnan(made.seconds) == np.isnan(SPACE.seconds)).all()
    assert (made.seconds[np.isfinite(made.seconds)] > 0).all()


def test_a_pair_is_a_recorded_and_a_made_device_by_turns_and_all_differ():
    found = list(pairs([SPACE], 2))

    assert len(found) == 2 * len(AMOUNTS) * len(CHANGES)
    assert [pair.target is SPACE for pair in found] == [k >= len(found) // 2 for k in range(len(found))]
    assert all((pair.target is SPACE) != (pair.source is SPACE) for pair in found)
    assert len({round(agreement(pair), 9) for pair in found}) == len(found)


def test_a_table_has_the_mean_of_each_sort_and_of_all():
    rows = [("a", 0.5, np.full((2, 3), 0.25)), ("b", 0.25, np.full((2, 3), 0.75)), ("a", 1.0, np.full((2, 3), 0.5))]

    lines = table(rows)

    assert [line.split(" | ")[:4] for line in lines[2:]] == [
        ["| a", "2", "0.75", "0.375 (0.25-0.50)"],
        ["| b", "1", "0.25", "0.750 (0.75-0.75)"],
        ["| all", "3", "0.58", "0.500 (0.25-0.75)"],
    ]


def test_the_page_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning_lab_devices, "BUDGETS", (3, 5, 7))
    file = write_cache(tmp_path / "t.json", SPACE)
    monkeypatch.setattr(sys, "argv", ["devices", str(file), "--pairs", "1", "--output", str(tmp_path)])

    tuning_lab_devices.main()

    text = (tmp_path / "tuning_lab_devices.md").read_text()
    assert "| all | 4 |" in text
    assert "Files: t.json." in text
