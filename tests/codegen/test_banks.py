"""The exchange of half runs avoids bank conflicts: the lanes of a warp access different banks. Counted exactly."""

from __future__ import annotations

from collections import Counter

import pytest

from gpucomp.codegen.c.banks import accesses, best_exchange, exchanged, half_offset

PAD = 8


@pytest.mark.parametrize("runs", [2, 4, 8, 12, 16, 32])
def test_runs_that_fill_rows_are_taken_without_conflicts(runs):
    pitch = 8 * runs + PAD

    assert accesses((), runs, pitch) == 8
    assert accesses(best_exchange(runs, pitch), runs, pitch) == 4


@pytest.mark.parametrize("runs", range(1, 33))
def test_an_exchange_is_never_worse_than_none(runs):
    pitch = 8 * runs + PAD

    assert accesses(best_exchange(runs, pitch), runs, pitch) <= accesses((), runs, pitch)


@pytest.mark.parametrize("runs", [2, 4, 8, 12, 32])
def test_pairs_are_left_without_conflicts(runs):
    """Sixteen lanes store pairs of a fragment: four rows of eight floats."""
    pitch = 8 * runs + PAD
    terms = best_exchange(runs, pitch)
    for c in range(runs):
        places = [(lane // 4, lane % 4 * 2) for lane in range(16)]
        banks = [
            (row * pitch + c * 8 + (pair ^ 4 * exchanged(terms, c, row)) + k) % 32
            for row, pair in places
            for k in (0, 1)
        ]
        assert max(Counter(banks).values()) == 1


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 8, 12])
def test_the_text_is_what_is_counted(runs):
    terms = best_exchange(runs, 8 * runs + PAD)
    text = half_offset(terms, {"c": "i % RUNS", "row": "i / RUNS"}).replace("RUNS", str(runs)).replace("/", "//")

    for lane in range(64):
        assert eval(text, {"i": lane}) == 4 * exchanged(terms, lane % runs, lane // runs)
