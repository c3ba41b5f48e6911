"""``bench.ort_applications``: how answers are compared, and what is reported. No application is installed."""

from __future__ import annotations

import numpy as np
import pytest

from bench.ort_applications import __main__ as bench
from bench.ort_applications import applications, environment

LINES = [
    {"box": [[10, 20], [30, 40]], "text": "a line", "score": 0.91},
    {"box": [[1, 2], [3, 4]], "text": "b", "score": 0.5},
]


def changed(**parts):
    return [{**LINES[0], **parts}, LINES[1]]


@pytest.mark.parametrize(
    ("found", "differ"),
    [
        (LINES, 0),
        (changed(score=0.9105), 0),
        (changed(score=0.95), 1),
        (changed(box=[[10.6, 20], [30, 41]]), 0),
        (changed(box=[[10.6, 20], [30, 41.5]]), 1),
        (changed(text="a lime"), 1),
        (changed(score=float("nan")), 1),
        (LINES[:1], 1),
        ([LINES[0], {"text": "b"}], 1),
    ],
)
def test_texts_are_compared_exactly_boxes_and_scores_nearly(found, differ):
    assert bench.compared(found, LINES)[1] == differ


def test_every_plain_value_is_counted():
    assert bench.compared(LINES, LINES) == (12, 0)
    assert bench.compared([], []) == (0, 0)


def test_a_row_has_the_ratio_and_an_application_that_failed_its_reason():
    first = {"cold": 2.0, "warm": 0.5, "onnxruntime": 0.25}
    row = {"application": "m", "answers": 18, "differ": 0, "gpucomp_s": 0.05, "onnxruntime_s": 0.1, "first_s": first}

    assert bench.line(row) == "| m | 18 | 0 | 50.0 | 100.0 | 2.00 | 2.0, 0.5, 0.2 |"
    assert bench.line({"application": "m", "failure": "cannot be installed: no wheel"}).startswith(
        "| m | cannot be installed"
    )


def test_turns_alternate_and_answers_of_the_first_two_are_compared(monkeypatch):
    asked, modules = [], {"gpucomp": "gpucomp.ort", "onnxruntime": "onnxruntime"}

    def answers(name, engine, runs, cores, cache):
        asked.append(engine)
        slow = 2 if engine == "onnxruntime" else 1
        return {
            "answers": [engine == "gpucomp"],
            "run_s": [0.1 * slow] * runs,
            "first_s": slow,
            "version": "1",
            "module": modules[engine],
        }

    monkeypatch.setattr(bench, "answers", answers)
    row = bench.measure("magika", 3, [0])

    assert asked == ["onnxruntime", "gpucomp", "gpucomp", "onnxruntime"]
    assert (row["answers"], row["differ"]) == (1, 1)
    assert row["onnxruntime_s"] == 2 * row["gpucomp_s"]
    modules["gpucomp"] = "onnxruntime"
    with pytest.raises(environment.Failed, match="did not use the engine"):
        bench.measure("magika", 1, [0])


def test_an_unknown_application_is_told(capsys):
    with pytest.raises(SystemExit):
        bench.main(["abacus"])
    assert "no application 'abacus'" in capsys.readouterr().err


def test_inputs_are_the_same_each_time():
    for made in (lambda: applications.picture(2), lambda: applications.scene(1), lambda: applications.sound(3, 1.5)):
        assert np.array_equal(made(), made())
    assert applications.picture(0, 320, 200).shape == (200, 320, 3)
    assert 0.05 < float(np.abs(applications.sound(1, 4.0)).max()) <= 1


def test_versions_are_pinned():
    assert all("==" in package for one in applications.APPLICATIONS.values() for package in one.packages)
    assert environment.python().name == "python"
