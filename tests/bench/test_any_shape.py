"""What ``bench.any_shape`` measures: right answers at every size, and formulas that every run checks."""

import json

import numpy as np
import pytest

from bench import any_shape, packages
from gpucomp import Dim
from tests.onnx_builders import model, node, value

SMALL = packages.Model("small==1", "small.onnx", {"x": (Dim("n", 1, 4), Dim("k", 2, 9))}, {"n": 1, "k": 2})


@pytest.fixture
def small(monkeypatch):
    proto = model(
        [node("Concat", ["x", "x"], ["y"], axis=1)],
        [value("x", ["n", "k"])],
        [value("y", ["n", "m"])],
    )
    monkeypatch.setattr(any_shape, "MODELS", {"small": SMALL})
    monkeypatch.setattr(any_shape, "content", lambda model: proto.SerializeToString())


def test_a_model_is_right_at_every_size(small, tmp_path, capsys):
    assert (
        any_shape.main(["--shapes", "5", "--json", str(tmp_path / "a.json"), "--markdown", str(tmp_path / "a.md")]) == 0
    )

    (row,) = json.loads((tmp_path / "a.json").read_text())
    assert (row["shapes"], row["worst"], row["formulas"], row["wrong"]) == (5, 0, [1, 1], [])
    assert "small" in (tmp_path / "a.md").read_text()
    assert "5 right of   5 sets of sizes   worst  0.0e+00" in capsys.readouterr().out


def test_an_answer_that_is_off_fails_and_is_told(small, monkeypatch, capsys):
    right = any_shape.reference

    def another(session, inputs):
        seconds, outputs = right(session, inputs)
        return seconds, {name: array * (1.001 if len(array) == 4 else 1) for name, array in outputs.items()}

    monkeypatch.setattr(any_shape, "reference", another)
    monkeypatch.setattr(any_shape, "right_in_f64", lambda *given: False)
    monkeypatch.setattr(any_shape, "neither_is_wrong", lambda *given: False)

    assert any_shape.main(["--shapes", "3", "--seed", "2"]) == 1
    told = capsys.readouterr().out
    assert "OFF at {'n': 4, 'k': 9}: 1.0e-03, compiled for these sizes alone 1.0e-03" in told


def test_what_onnxruntime_itself_does_not_decide_is_not_off(small, monkeypatch, capsys):
    monkeypatch.setattr(any_shape, "wrong", lambda apart, tolerance: ["y"])
    monkeypatch.setattr(any_shape, "farthest", lambda outputs, expected: 0.01)
    monkeypatch.setattr(
        any_shape, "right_in_f64", lambda *given: pytest.fail("it is unlike the program for these sizes")
    )

    assert any_shape.main(["--shapes", "3"]) == 0
    told = capsys.readouterr().out
    assert "0 right of   3 sets of sizes, 3 undecided" in told
    assert "3 sets of sizes of 1 models: 0 wrong, 3 undecided" in told


def test_what_is_right_in_f64_is_right_if_the_program_for_these_sizes_agrees(small, monkeypatch, capsys):
    apart = iter([["y"], []] * 3)  # unlike onnxruntime, like the program for these sizes
    monkeypatch.setattr(any_shape, "wrong", lambda found, tolerance: next(apart))

    assert any_shape.main(["--shapes", "3"]) == 0
    assert "3 right of   3 sets of sizes" in capsys.readouterr().out


def test_what_both_compute_right_is_undecided_if_the_program_for_these_sizes_agrees(small, monkeypatch, capsys):
    apart = iter([["y"], []] * 3)
    monkeypatch.setattr(any_shape, "wrong", lambda found, tolerance: next(apart))
    monkeypatch.setattr(any_shape, "right_in_f64", lambda *given: False)
    monkeypatch.setattr(any_shape, "moves_as_far", lambda *given: False)
    monkeypatch.setattr(any_shape, "neither_is_wrong", lambda *given: True)

    assert any_shape.main(["--shapes", "3"]) == 0
    assert "0 right of   3 sets of sizes, 3 undecided" in capsys.readouterr().out


def test_a_model_of_right_operators_is_not_told_apart_by_bisection(small):
    """Nothing differs, so nothing is between two rounded numbers."""
    assert not any_shape.neither_is_wrong(any_shape.content(SMALL), "cpu", {"x": np.ones((2, 3), np.float32)}, {})


def test_onnxruntime_moves_by_the_errors_of_its_inputs(small):
    session = any_shape.onnxruntime_session(any_shape.content(SMALL))
    inputs = {"x": np.ones((2, 3), np.float32)}
    _, expected = any_shape.reference(session, inputs)

    assert any_shape.moves_as_far(session, inputs, expected, 1e-7)
    assert not any_shape.moves_as_far(session, inputs, expected, 2e-6)


def test_a_wrong_formula_fails(small, monkeypatch, capsys):
    monkeypatch.setattr(any_shape, "value_at", lambda extent, sizes: 7)

    assert any_shape.main(["--shapes", "2"]) == 1
    assert "WRONG y: f32[n,2*k] at {'n': 1, 'k': 2}: (1, 4)" in capsys.readouterr().out


def test_the_ends_of_the_ranges_come_first():
    found = list(any_shape.drawn({"n": Dim("n", 1, 4), "h": Dim("h", 30, 100, 32)}, 9, np.random.default_rng(0)))

    assert found[:2] == [{"n": 1, "h": 32}, {"n": 4, "h": 96}]
    assert all(sizes["h"] in (32, 64, 96) and 1 <= sizes["n"] <= 4 for sizes in found)


def test_corners_are_all_pairs_of_ends():
    dims = {"n": Dim("n", 1, 4), "h": Dim("h", 30, 100, 32)}

    found = list(any_shape.drawn(dims, 3, np.random.default_rng(0), corners=True))

    assert [tuple(sizes.values()) for sizes in found[:4]] == [(1, 32), (1, 96), (4, 32), (4, 96)]
    assert len(found) == 5


def test_an_unknown_model_is_told(capsys):
    with pytest.raises(SystemExit):
        any_shape.main(["resnet"])
    assert "no model 'resnet': one of ppocr_det" in capsys.readouterr().err
