"""What ``bench.growth`` measures: each kind of model is legal, computes, and has about the nodes that were asked for."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gpucomp
from bench import growth
from gpucomp.cli.compare import onnxruntime_session
from testing.tolerance import assert_matches


@pytest.mark.parametrize("kind", growth.KINDS)
def test_each_kind_is_a_model_that_onnxruntime_agrees_on(kind):
    made = growth.model(kind, 20)
    feed = {"x": np.random.default_rng(3).standard_normal((1, 64)).astype(np.float32) / 9}

    (found,) = gpucomp.compile(made, target="cpu").run(feed).values()

    (wanted,) = onnxruntime_session(made.SerializeToString()).run(None, feed)
    assert_matches(found, wanted, terms=2000)
    assert 20 <= len(made.graph.node) <= 40


def test_layers_are_different_kernels_and_repeated_rows_are_one():
    assert len(gpucomp.compile(growth.model("layers", 120), target="cpu").plan.kernels) == 120
    assert len(gpucomp.compile(growth.model("rows", 7), target="cpu").plan.kernels) == 1


def test_a_run_prints_a_row_for_each_size_and_draws_them(tmp_path, capsys):
    page, table, figures = (tmp_path / name for name in ("out.html", "out.md", "out.json"))

    status = growth.main(
        ["chain", "--most", "100", "--html", str(page), "--markdown", str(table), "--json", str(figures)]
    )

    rows = json.loads(figures.read_text())
    told = capsys.readouterr().out.splitlines()
    assert status == 0
    assert [row["nodes"] for row in rows] == [10, 100]
    assert all(row["seconds"] > 0 and row["kernels"] > 0 and row["memory"] >= 0 for row in rows)
    assert "growth" not in told[0]
    assert f"growth {growth.power(*rows):4.2f}" in told[1]
    assert told[1] in table.read_text()
    assert page.read_text().count("<svg") == 2


def test_the_power_of_a_quadratic_cost_is_two():
    assert growth.power({"nodes": 10, "seconds": 0.3}, {"nodes": 1000, "seconds": 3000.0}) == pytest.approx(2)


def test_an_unknown_kind_and_a_child_that_fails_are_errors(capsys):
    with pytest.raises(SystemExit):
        growth.main(["triangles"])
    assert "no kind 'triangles'" in capsys.readouterr().err

    with pytest.raises(RuntimeError, match="GPC"):
        growth.main(["chain", "--most", "10", "--target", "nothing"])
