"""Altered spaces are what their names say, another one for each seed; and a kernel can be recorded."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bench import tuning_lab_record
from bench.tuning_lab import Cache, held_out, held_out_table
from bench.tuning_lab_held_out import ALTERATIONS, FAILING, altered, differs, rows_of
from gpucomp.errors import UsageError
from gpucomp.tuning.recorded import read
from gpucomp.tuning.replay import interval, search
from tests.tuning.spaces import tiled

SPACE = tiled(2)


def sorted_times(space):
    return np.sort(space.seconds[np.isfinite(space.seconds)])


@pytest.mark.parametrize("name", ALTERATIONS)
def test_an_alteration_is_the_same_by_its_seed_and_another_by_another(name):
    first, again, other = (altered(SPACE, name, seed) for seed in (3, 3, 4))

    def same(a, b):
        return np.array_equal(a.candidates.values, b.candidates.values) and np.array_equal(a.seconds, b.seconds, True)

    assert same(first, again)
    assert same(first, other) == (name in ("as recorded", "times squared", "square roots of times", "failures dropped"))
    assert len(first.seconds) == len(first.candidates) == len(first.overhead)
    assert first.name == f"tiled {name}"


def test_a_subset_keeps_what_its_configurations_took():
    part = altered(SPACE, "60% of the configurations", 0)

    assert len(part.candidates) == round(0.6 * len(SPACE.candidates))
    rows = [SPACE.candidates.find(part.candidates.schedule(point)) for point in range(len(part.candidates))]
    assert np.array_equal(SPACE.seconds[rows], part.seconds, equal_nan=True)


@pytest.mark.parametrize("name", ["renamed", "values scrambled"])
def test_other_names_change_no_time(name):
    found = altered(SPACE, name, 1)

    assert np.array_equal(found.seconds, SPACE.seconds, equal_nan=True)
    shapes = (sorted(len(levels) for levels in space.candidates.levels) for space in (found, SPACE))
    assert next(shapes) == next(shapes)
    assert not np.array_equal(found.candidates.values, SPACE.candidates.values)


def test_scrambled_values_are_the_same_where_they_were_the_same():
    found = altered(SPACE, "values scrambled", 1)

    for before, after in zip(SPACE.candidates.values.T, found.candidates.values.T, strict=True):
        assert len(set(zip(before.tolist(), after.tolist(), strict=True))) == len(set(before.tolist()))


def test_a_fixed_parameter_has_one_value():
    found = altered(SPACE, "a parameter fixed", 2).candidates

    assert sum(len(levels) == 1 for levels in found.levels) == 1
    assert 300 <= len(found) < len(SPACE.candidates)


def test_powers_keep_order_and_optimum():
    for name, power in (("times squared", 2.0), ("square roots of times", 0.5)):
        found = altered(SPACE, name, 0)
        ratios = sorted_times(SPACE) / SPACE.optimum
        assert sorted_times(found) / found.optimum == pytest.approx(ratios**power)


def test_failures_are_added_and_dropped():
    before = int(np.isnan(SPACE.seconds).sum())
    more, none = altered(SPACE, "20% more failures", 0), altered(SPACE, "failures dropped", 0)

    assert 0 < before < 0.15 * len(SPACE.seconds)
    assert np.isnan(more.seconds).mean() > FAILING * 0.8
    assert np.array_equal(sorted_times(none), sorted_times(SPACE))
    assert not np.isnan(none.seconds).any()
    assert not differs(none, "failures dropped")
    assert differs(SPACE, "failures dropped")


def test_the_table_names_each_space_and_search():
    row = {"spaces": "renamed", "sampler": "model", "25": 0.7, "50": 0.8, "100": 0.9, "200": 1.0, "least at 100": 0.85}
    row |= {f"interval at {budget}": [row[budget] - 0.02, row[budget]] for budget in ("25", "50", "100", "200")}

    assert held_out_table([row], 5)[2] == (
        "| renamed | model | 0.700 (0.68-0.70) | 0.800 (0.78-0.80) | 0.900 (0.88-0.90) | 1.000 (0.98-1.00) | 0.850 |"
    )


def test_a_space_in_which_there_is_nothing_to_alter_is_left_out():
    """Of so few points no parameter leaves enough when it is fixed, and all of them ran."""
    ran = np.flatnonzero(np.isfinite(SPACE.seconds))
    small = rows_of(SPACE, ran[:280])
    cache = Cache(None, {small.name: "content"}, [])

    rows = held_out([small], [], ["random"], 3, cache)

    assert [differs(small, name) for name in ("a parameter fixed", "failures dropped")] == [False, False]
    assert {row["spaces"] for row in rows} == {*ALTERATIONS} - {"as recorded", "a parameter fixed", "failures dropped"}
    (subset,) = [row for row in rows if row["spaces"] == "60% of the configurations"]
    curves = [
        search(altered(small, subset["spaces"], seed), "random", trials=200, seed=seed).fractions for seed in range(3)
    ]
    low, high = subset["interval at 25"]
    assert [low, high] == pytest.approx(interval(np.array([c[24] for c in curves])), abs=1e-5)
    assert subset["25"] == pytest.approx(np.mean([c[24] for c in curves]), abs=1e-5)


def test_a_space_in_which_a_parameter_can_be_fixed_differs():
    assert differs(SPACE, "a parameter fixed")


def test_a_kernel_is_recorded_as_a_space_that_is_read_again(tmp_path, monkeypatch, capsys):
    path = tmp_path / "m.json.gz"
    monkeypatch.setattr(tuning_lab_record, "SAMPLES", 2)
    monkeypatch.setattr(sys, "argv", ["record", "matmul m=5 n=7 k=11", "--points", "3", "-o", str(path)])

    tuning_lab_record.main()
    before = read(path)[0].seconds
    monkeypatch.setattr(tuning_lab_record, "entry", lambda *arguments: pytest.fail("recorded again"))
    tuning_lab_record.main()

    (space,) = read(path)
    assert np.array_equal(space.seconds, before)
    assert capsys.readouterr().out.startswith("3 of ")
    assert len(space.candidates) == 3
    assert np.isfinite(space.seconds).all()
    assert space.device.endswith("matmul m=5 n=7 k=11")


def test_a_wrong_kernel_has_no_time_in_it(tmp_path, monkeypatch):
    path = tmp_path / "m.json.gz"
    monkeypatch.setattr(tuning_lab_record, "error_of", lambda *arguments: (9.0, "wrong"))
    monkeypatch.setattr(sys, "argv", ["record", "matmul m=5 n=7 k=11", "--points", "2", "-o", str(path)])

    tuning_lab_record.main()

    with pytest.raises(UsageError, match="it has no successful measurement"):
        read(path)
