"""The device that sleeps: it computes what the processor does, and takes as long as a source says, not as it runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bench import fleet


@pytest.fixture
def slept(monkeypatch):
    found = []
    monkeypatch.setattr(fleet.time, "sleep", found.append)
    return found


class Processor:
    target, cache_bytes = "cpu", 1 << 12

    def facts(self):
        return {"kind": "cpu", "device": "a processor"}

    def open(self, plan, sources, binaries, weights):
        return SimpleNamespace(run=lambda inputs: {"y": inputs["x"] + 1}, time_launches=lambda *a: pytest.fail("timed"))


def test_it_computes_and_sleeps_in_place_of_being_timed(slept):
    device = fleet.Sleeping(Processor())
    short, long = (device.open(None, {"k": text}, {}, {}) for text in ("@", "A"))

    assert device.facts() == {"kind": "cpu", "device": "one that sleeps"}
    assert short.run({"x": 4}) == {"y": 5}
    assert short.time_launches({}, 3) == 3 * [fleet.SAMPLE_S]
    assert long.time_launches({}, 1) == [fleet.SAMPLE_S * (1 + 1 / 128)]
    assert slept == [3 * fleet.SAMPLE_S, fleet.SAMPLE_S * (1 + 1 / 128)]
