"""Stale records that are refreshed: those whose source is what is rendered today, and no others."""

from __future__ import annotations

import pytest

from gpucomp import cli
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.tuning.engines import hashes
from gpucomp.tuning.refresh import refreshed, stale
from tests.tuning.fakes import Device
from tests.tuning.test_study import KERNEL, right, speeds, study, task


@pytest.fixture
def older(tmp_path):
    """Records of a search, all of an engine that has changed since: trials, launches and a pick."""
    device = Device(right(KERNEL))
    made = study(tmp_path, device)
    device.seconds = speeds(made).__getitem__
    made.batch(4)
    made.tools.store.append("pick", made.pick(made.leaders(1)[0], {"ratio": 0.7}))
    return [{**r, "template": "older"} if "template" in r else r for r in made.tools.store.read()]


def kinds(found, template):
    return [r["kind"] for r in found if r.get("template") == template]


def test_a_record_counts_again_where_its_source_is_what_is_rendered_today(older):
    found, count = refreshed(older, [task()])
    now = engine_hash(task().engines[0])

    assert count == len(kinds(older, "older")) == len(kinds(found, now))
    assert set(kinds(found, now)) == {"trial", "pick"}
    assert [{**r, "template": ""} for r in found] == [{**r, "template": ""} for r in older]  # nothing else changes
    assert refreshed(found, [task()]) == (found, 0)  # and then there is nothing to do
    assert [stale(each, hashes()) for each in (older, found)] == [count, 0]


@pytest.mark.parametrize(
    "changes",
    [{"source": "0" * 16}, {"rendered": "0" * 16}, {"kernel": "another"}, {"engine": "abacus"}, {"configuration": {}}],
    ids=["source", "packing", "kernel", "engine", "illegal"],
)
def test_a_record_of_anything_else_stays_stale(older, changes):
    one, *others = [r for r in older if r["kind"] == "trial"]

    found, count = refreshed([one | changes, *others], [task()])

    assert found[0] == one | changes
    assert count == len(others) > 0


def test_nothing_is_refreshed_without_the_model(older):
    assert refreshed(older, []) == (older, 0)


def test_records_are_refreshed_with_the_options_that_the_model_was_tuned_with(monkeypatch, capfd, tmp_path):
    asked = []
    monkeypatch.setattr(
        "gpucomp.tuning.tuner.tasks_in", lambda model, device, **given: asked.append(given) or (None, [])
    )
    options = ("--constants", "s=2", "--keep-fp32", "*norm*", "--precision", "fp16")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.jsonl").touch()

    assert cli.main(["records", "refresh", "r.jsonl", "m.onnx", *options]) == 0

    assert asked == [{"shapes": {}, "constants": {"s": 2}, "precision": "fp16", "keep_fp32": ("*norm*",)}]
    capfd.readouterr()
