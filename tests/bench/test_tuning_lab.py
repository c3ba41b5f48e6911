"""The laboratory's cache: curves are taken from it only where nothing has changed that they depend on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import tuning_lab
from bench.tuning_lab import Cache, fingerprint, searchers
from tests.tuning.spaces import tiled, write_cache


def curves(folder, source, *, content="a", seeds=2, file="space"):
    """Whether the search was run, and not taken from the cache."""
    runs = []

    def run(seed):
        runs.append(seed)
        return SimpleNamespace(fractions=[0.25, 0.5 + seed / 8, 1.0], sampler_s=0.5)

    cache = Cache(folder, {"space": content, "other": "c"}, [source])
    found, _ = cache.curves("key", run, seeds, (file,))
    assert found.shape == (seeds, 3)
    return bool(runs)


@pytest.mark.parametrize("change", [{"content": "b"}, {"seeds": 3}, {"file": "other"}, {}])
def test_a_search_is_run_again_where_something_changed(tmp_path, change):
    source = tmp_path / "sampler.py"
    source.write_text("1")

    assert curves(tmp_path / "cache", source)
    assert not curves(tmp_path / "cache", source)
    if not change:
        source.write_text("2")
    assert curves(tmp_path / "cache", source, **change)


def test_a_file_is_named_by_its_content(tmp_path):
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).write_text(text)
    a, b, c = (fingerprint([tmp_path / name]) for name in "abc")

    assert a == b != c


def test_the_samplers_are_among_the_sources():
    assert {"genetic.py", "legal.py", "replay.py"} <= {path.name for path in searchers()}


def test_a_strategy_that_failed_on_a_file_is_left_out(tmp_path):
    rows = [{"file": f, "strategy": s, "best": [2.0]} for f, s in (("a", "ga"), ("b", "ga"), ("a", "ils"))]
    (tmp_path / "curves.json").write_text(json.dumps(rows))
    spaces = dict.fromkeys("ab", SimpleNamespace(optimum=1.0))

    assert list(tuning_lab.read_kernel_tuner(tmp_path / "curves.json", spaces, 1)) == ["kernel tuner ga"]


def test_a_report_goes_to_a_new_folder_and_leaves_nothing_else(tmp_path, monkeypatch, capfd):
    file = write_cache(tmp_path / "t.json", tiled())
    environments = []

    def made(folder):
        environments.append(folder)
        folder.mkdir(parents=True)
        return folder / "python"

    def run(command, check):
        curves = Path(command[command.index("--output") + 1])
        curves.write_text(json.dumps([{"file": "t.json", "strategy": "ga", "seed": 0, "best": [None, *[2.0] * 199]}]))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tuning_lab, "environment", made)
    monkeypatch.setattr(tuning_lab.subprocess, "run", run)
    monkeypatch.setattr(tuning_lab, "TOLD_S", 0.0)
    options = ("--seeds", "1", "--altered-seeds", "0", "--samplers", "random", "--output", "a/new/folder")
    monkeypatch.setattr("sys.argv", ["tuning_lab", *options, str(file)])

    tuning_lab.main()

    assert "kernel tuner ga" in (tmp_path / "a/new/folder/tuning_lab.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "t.json"]
    assert not environments[0].exists()
    assert "random-t.json: 1 of 1 searches" in capfd.readouterr().err


def test_the_report_is_not_written_over_the_recorded_one_by_default(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tuning_lab", "--help"])
    with pytest.raises(SystemExit):
        tuning_lab.main()

    told = " ".join(capsys.readouterr().out.split())
    assert "(default: tuning-lab)" in told
    assert "more than an hour" in told
