"""A model for any size is tuned at the sizes that its schedules are chosen for."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gpucomp
from gpucomp import cli
from gpucomp.errors import InputError, UsageError
from gpucomp.tuning import any_size, fleet
from gpucomp.tuning.tuner import TuneOptions
from tests.onnx_builders import model, node, value

WEIGHTS = np.random.default_rng(3).standard_normal((23, 37)).astype(np.float32)
PRODUCT = model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["m", 23])], [value("y", None)], {"w": WEIGHTS})
SHAPES = {"x": (gpucomp.Dim("m", 1, 300), 23)}


def test_each_set_of_sizes_is_searched_and_the_result_runs_at_all(tmp_path, quick):
    usual = [{"m": 9}] * 4 + [{"m": 50}] * 4 + [{"m": 201}] * 4
    tuned = gpucomp.tune(
        PRODUCT,
        target="cpu",
        shapes=SHAPES,
        shapes_from=usual,
        trials=9,
        records=tmp_path / "r",
        options=TuneOptions(sampler="random", builders=1, lock=tmp_path / "lock"),
    )

    assert [sizes for sizes, _ in tuned.parts] == [{"m": 50}, {"m": 9}, {"m": 201}]
    kernels = {study.task.kernel.digest for _, part in tuned.parts for study in part.state.studies}
    assert len(kernels) == 3
    assert all(part.state.trials >= 2 for _, part in tuned.parts)
    for m in (1, 9, 300):
        x = np.random.default_rng(m).standard_normal((m, 23)).astype(np.float32)
        np.testing.assert_allclose(tuned.executable.run({"x": x})["y"], x @ WEIGHTS, rtol=1e-4, atol=1e-4)


def test_without_a_trace_the_examples_of_the_ranges_are_searched():
    parts = any_size.parts_of(PRODUCT, SHAPES)

    assert parts[0].sizes == {"m": 17}
    assert [part.shapes for part in parts] == [{"x": (part.sizes["m"], 23)} for part in parts]
    assert min(p.sizes["m"] for p in parts) < 5 < 150 < max(p.sizes["m"] for p in parts)


def test_sizes_that_break_a_condition_are_not_searched():
    halves = model(
        [node("Reshape", ["x", "two"], ["y"])], [value("x", ["m"])], [value("y", None)], {"two": np.array([2, -1])}
    )

    parts = any_size.parts_of(halves, {"x": (gpucomp.Dim("m", 1, 99),)})

    assert parts
    assert all(part.sizes["m"] % 2 == 0 for part in parts)


def test_a_wrong_size_of_a_trace_is_told():
    with pytest.raises(InputError, match=r"GPC2111 dimension 'm' is 301, 1 to 300 expected"):
        any_size.parts_of(PRODUCT, SHAPES, shapes_from=[{"m": 301}])


def test_the_command_tunes_at_each_set_of_sizes(tmp_path, quick, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(PRODUCT.SerializeToString())
    (tmp_path / "trace.jsonl").write_text('{"m": 50}\n' * 3 + '{"x": [9, 23]}\n' * 2)
    tune = ["tune", "m.onnx", "--target", "cpu", "--shapes", "x:{m:1..300}x23", "--shapes-from", "trace.jsonl"]
    wanted = ["--trials", "4", "--sampler", "random", "--builders", "1", "--json", "r.json", "--csv", "t.csv"]

    code = cli.main([*tune, *wanted, "--lock", "lock"])
    out, err = capfd.readouterr()

    assert code == 0, err
    assert "1 of 2: m=50" in out
    assert "2 of 2: m=9" in out
    found = json.loads((tmp_path / "r.json").read_text())
    assert [one["sizes"] for one in found] == [{"m": 50}, {"m": 9}]
    assert all(len(one["tasks"]) == 1 for one in found)
    assert (tmp_path / "t.csv").exists()
    assert (tmp_path / "t-tasks-2.csv").exists()
    seen = ["--shapes", "x:{m:1..300}x23", "--shapes-from", "trace.jsonl"]
    assert cli.main(["records", "study", "tuning-records", "--model", "m.onnx", *seen, "-o", "study.html"]) == 0
    assert "2 of 2 kernels and devices" in capfd.readouterr().out
    assert cli.main(["records", "refresh", "tuning-records", "m.onnx", *seen]) == 0
    capfd.readouterr()
    assert cli.main([*tune, "--dry-run"]) == 0
    assert "MatMul f32[9,23] f32[23,37]" in capfd.readouterr().out


def test_a_trace_without_open_sizes_is_told(tmp_path, monkeypatch, capfd):
    (tmp_path / "m.onnx").write_bytes(PRODUCT.SerializeToString())

    code = cli.main(["tune", str(tmp_path / "m.onnx"), "--shapes", "x:3x23", "--shapes-from", "trace.jsonl"])

    assert code == 2
    assert "error GPC2028: --shapes-from needs a model for any size" in capfd.readouterr().err


def test_what_cannot_be_divided_is_told_before_anything_is_measured():
    with pytest.raises(UsageError, match="GPC2028 a fleet measures one set of sizes, here are 3"):
        any_size.Shares(TuneOptions(fleet=fleet.Wanted("tcp://0.0.0.0:1")), 3)
    any_size.Shares(TuneOptions(trials=1, fleet=fleet.Wanted("tcp://0.0.0.0:1")), 1)


def test_each_set_of_sizes_has_a_trial_or_is_left_out(tmp_path, quick, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(PRODUCT.SerializeToString())

    code = cli.main(
        ["tune", "m.onnx", "--shapes", "x:{m:1..300}x23", "--trials", "1", "--builders", "1", "--lock", "l"]
    )
    out, err = capfd.readouterr()

    assert code == 0, err
    assert "1 trial for 3 sets of sizes: only the first of them are tuned" in out
    assert "1 of 3: m=17" in out
    assert "2 of 3" not in out


def test_budget_and_trials_are_divided_by_what_is_left(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(any_size.time, "monotonic", lambda: now[0])
    shares = any_size.Shares(TuneOptions(budget=90.0, trials=10), 3)
    ended = type("Ended", (), {"state": type("State", (), {"trials": 2})})

    first = shares.next()
    shares.note(ended)
    now[0] = 10.0  # it ended early
    second = shares.next()

    assert (first.budget, first.trials, first.resume) == (30.0, 3, False)
    assert (second.budget, second.trials, second.resume) == (40.0, 4, True)
