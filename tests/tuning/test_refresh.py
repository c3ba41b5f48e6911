"""Stale records that are refreshed: those whose source is what is rendered today, and no others."""

from __future__ import annotations

import pytest

from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.tuning.refresh import refreshed
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
