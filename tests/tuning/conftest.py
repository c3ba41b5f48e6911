"""Fixtures of tests that tune on this machine."""

from __future__ import annotations

import pytest

from gpucomp.tuning import choice, tuner
from gpucomp.tuning.study import Rules


@pytest.fixture
def quick(monkeypatch):
    """Few samples: what is measured is of no interest here."""
    monkeypatch.setattr(tuner, "RULES", Rules(least=2, most=2))
    monkeypatch.setattr(tuner, "PROFILES", 1)
    monkeypatch.setattr(tuner, "MODEL_S", 0.05)
    monkeypatch.setattr(choice, "PROCESSES", 1)
    monkeypatch.setattr(choice.final, "__kwdefaults__", {"processes": 1, "rounds": 3, "seconds": 0.05})
