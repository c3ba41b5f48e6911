"""The report on what tuning gains: what was done is not done again, and a build that got slower is counted."""

from __future__ import annotations

import json
import subprocess

import pytest

from bench import tune_models
from gpucomp.runtime.inputs import random_inputs
from gpucomp.targets import resolve
from gpucomp.tuning import specs
from gpucomp.tuning.records import Store, everything
from tests.tuning.test_records import pick, trial


def done(folder, ratios, apart=0.999):
    """A model that was tuned and built so often, with 95 % intervals of 0.02 around these ratios.

    ``apart`` is the time of one untuned model over that of another.
    """
    folder.mkdir(parents=True)
    (folder / "tuned.json").write_text(json.dumps({"tasks": [{}, {}, {}]}))
    lines = [
        {
            "model": "resnet18",
            "untuned_ms": 10.0,
            "tuned_ms": 10.0 * r,
            "ratio": r,
            "low": r - 0.01,
            "high": r + 0.01,
            "processor_ratio": 0.75,
            "error": 3e-7,
            "apart": apart,
        }
        for r in ratios
    ]
    (folder / "builds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def searched(folder):
    """The records of a search that went on once: nine trials, picks of two kernels of which one is not the default."""
    with Store(folder / "records" / "tuning.jsonl") as store:
        for number in range(9):
            store.append("trial", trial(number))
        store.append("pick", pick(1, kernel="a" * 64, default=True))
        store.append("pick", pick(2, kernel="b" * 64, default=True))
        store.append("pick", pick(3, kernel="b" * 64, default=False))


def report(tmp_path, count):
    path = tmp_path / "r.md"
    code = tune_models.main(["resnet18", "--builds", str(count), "--work", str(tmp_path), "--report", str(path)])
    (row,) = [line for line in path.read_text().splitlines() if line.startswith("| resnet18")]
    return code, [cell.strip() for cell in row.strip("|").split("|")]


def test_what_was_done_is_read_and_slower_builds_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("it was done before"))
    done(tmp_path / "cpu" / "resnet18", [0.8, 1.02, 0.64, 1.005, 0.8])
    searched(tmp_path / "cpu" / "resnet18")

    code, cells = report(tmp_path, 5)

    assert code == 0
    gains = ["1.250", "0.980 to 1.562", "1.333"]
    assert cells == ["resnet18", "10.000", "8.000", *gains, "0.1 %", "1 of 5", "no", "1 of 3", "9", "3.0e-07"]


def test_no_build_is_slower_that_untuned_models_are_as_far_apart_as(tmp_path):
    done(tmp_path / "cpu" / "resnet18", [1.02, 1.02, 1.04], apart=1 / 1.02)
    searched(tmp_path / "cpu" / "resnet18")

    assert report(tmp_path, 3)[1][6:8] == ["2.0 %", "1 of 3"]


def test_builds_that_are_missing_are_made_and_a_wrong_one_fails(tmp_path, monkeypatch):
    done(tmp_path / "cpu" / "resnet18", [0.9, 0.9])
    searched(tmp_path / "cpu" / "resnet18")
    made = []

    def run(command, **options):
        made.append(command)
        line = json.loads((tmp_path / "cpu" / "resnet18" / "builds.jsonl").read_text().splitlines()[0]) | {"error": 0.5}
        return subprocess.CompletedProcess(command, 0, f"noise\n{json.dumps(line)}\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    code, cells = report(tmp_path, 3)

    assert code == 1
    assert len(made) == 1
    assert cells[7:9] == ["0 of 3", "yes"]
    assert len((tmp_path / "cpu" / "resnet18" / "builds.jsonl").read_text().splitlines()) == 3


def test_a_build_runs_both_in_turn_and_compares_what_they_give(tmp_path, monkeypatch):
    (tmp_path / "model.onnx").write_bytes(specs.model("matmul m=17 n=37 k=23 relu=1").SerializeToString())
    with Store(tmp_path / "records" / "tuning.jsonl"):
        pass
    compiled = []
    compile = tune_models.gpucomp.compile
    monkeypatch.setattr(
        tune_models.gpucomp, "compile", lambda *a, **k: compiled.append(compile(*a, **k)) or compiled[-1]
    )
    monkeypatch.setattr(tune_models, "inputs", lambda name: random_inputs(compiled[0].inputs))

    found = tune_models.compared("resnet18", "cpu", tmp_path / "records", 7, 0.0)

    assert len(compiled) == 2
    assert found["same"]
    assert found["error"] == 0
    assert found["apart"] > 0
    assert found["rounds"] == 8  # at least so many, though the time is over
    assert sum(found["tiers"].values()) == 1
    assert found["low"] <= found["ratio"] <= found["high"]


def test_what_is_shipped_is_of_models_that_no_build_got_slower_of(tmp_path, monkeypatch):
    monkeypatch.setattr(tune_models, "PORTFOLIO", 2)
    hashes = {"cpu": {"contraction": "t"}}
    monkeypatch.setattr(tune_models, "hashes", lambda: hashes)
    for model, ratios in (("resnet18", [0.9, 0.8]), ("bert_base", [0.9, 1.02])):
        done(tmp_path / "cpu" / model, ratios)
        with Store(tmp_path / "cpu" / model / "records" / "tuning.jsonl") as store:
            for number, ratio in enumerate([0.7, 0.5, 0.9, 0.6]):
                store.append("trial", trial(number, ratio=ratio, label=model, clocks={"mhz": 1}))
            store.append("trial", trial(7, ratio=0.3, label=model, template="older"))
            store.append("trial", trial(1, ratio=0.55, label=model))  # once more, by another run
            store.append("pick", pick(1, label=model))

    arguments = [
        "--builds",
        "2",
        "--work",
        str(tmp_path),
        "--report",
        str(tmp_path / "r.md"),
        "--ship",
        str(tmp_path / "s"),
    ]
    assert tune_models.main(["resnet18", "bert_base", *arguments]) == 0

    picks, damage = everything([tmp_path / "s"])
    trials, more = everything([tmp_path / "s" / "trials"])
    assert damage == more == []
    assert [(r["kind"], r["label"]) for r in picks] == [("pick", "resnet18")]
    assert [p.name for p in (tmp_path / "s").glob("*.jsonl")] == [f"cpu_{resolve('cpu').arch}.jsonl"]
    assert sorted(r["ratio"] for r in trials) == [0.55, 0.6]
    assert all("clocks" not in r for r in trials)


def test_a_model_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit):
        tune_models.main(["resnet17"])
    assert "resnet17: one of resnet18" in capsys.readouterr().err
