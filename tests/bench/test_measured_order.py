"""How sure the order of predictions is: of a kernel's schedules, and of the model's first beside a default."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from bench.measured import order
from bench.measured.__main__ import main
from bench.measured.spaces import predicted, spaces_of
from gpucomp.kernel_bench.formats import load
from tests.bench.test_measured import CLBLAST, THREADS

HEAD = THREADS.splitlines()[:2]


def written(folder):
    """``folder`` with a space of eight tiles whose times are made up: the larger a tile, the faster."""
    rows = [
        f"Ailk_Bjlk,1728,3136,128,1,{i},{j},8,,{tt},8_8_1,1,1,{1e5 / (i * j):.1f}"
        for i, j, tt in ((32, 32, "4_4"), (64, 32, "8_4"), (32, 64, "4_8"), (64, 64, "8_8"))
    ]
    rows += [row.replace(",8,,", ",16,,").replace(",1,1,", ",1,1,1") for row in rows]
    (folder / "tensile_space_made.csv").write_text("\n".join([*HEAD, *rows]) + "\n")
    return folder


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path)


def space_in(folder):
    (found,) = spaces_of(load(folder / "tensile_space_made.csv"))
    return found


def as_predicted(folder, factor=lambda us: np.ones(len(us))):
    """The space with the predicted times, times a factor."""
    found = space_in(folder)
    us = predicted(found)
    return replace(found, times=dict(zip(found.times, (us * factor(us)).tolist(), strict=True)))


def test_a_model_that_is_right_is_sure_of_any_gain(folder):
    (one,) = order.orders("made", [as_predicted(folder, lambda us: np.full(len(us), 7.0))])

    assert one.error == pytest.approx(0, abs=1e-9)
    assert one.clear < 1.02


def test_the_less_sure_the_order_is_the_larger_is_a_clear_gain():
    rng = np.random.default_rng(0)
    gain = rng.uniform(0, 1, 4000)

    for error in (0.1, 0.4):
        found = order.deviation(gain, gain + rng.normal(0, error, 4000) > 0)
        assert found == pytest.approx(error, rel=0.15)


def test_a_default_that_is_faster_is_kept_by_a_margin_that_is_large_enough(folder, monkeypatch):
    """The model is turned around, so that its first is the slowest."""
    space = as_predicted(folder)
    monkeypatch.setattr(order, "predicted", lambda space: 1 / predicted(space))
    monkeypatch.setattr(order, "MARGINS", (1.0, 1e9))

    found = order.default_of("made", [space])

    assert (found.problems, found.right) == (1, 0)
    assert found.first == found.chosen["1.0"] > found.default == found.chosen["1000000000.0"] >= 1.0


def test_the_order_of_a_folder_s_spaces_is_told(folder, capsys):
    (folder / "clblast_space.csv").write_text(CLBLAST)

    assert main([str(folder), "--order", "--json", str(folder / "r.json")]) == 0
    found = json.loads((folder / "r.json").read_text())["order"]

    assert {one["file"] for one in found} == {"clblast_space", "tensile_space_made"}
    assert "four of five in order from" in capsys.readouterr().out
