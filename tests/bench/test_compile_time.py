"""What ``bench.compile_time`` says of a small model: each state of the cache, stages, passes, and a peer that is missing."""

from __future__ import annotations

import json

import onnx
import pytest

from bench import compile_time
from tests.onnx_builders import model, node, value


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.onnx"
    onnx.save(model([node("MatMul", ["x", "x"], ["p"]), node("Tanh", ["p"], ["y"])], [value("x", (13, 13))]), path)
    return path


@pytest.fixture
def measured(small, tmp_path, capsys):
    to, nowhere = tmp_path / "out.json", str(tmp_path / "none")
    status = compile_time.main(
        [str(small), "--rounds", "1", "--passes", "--peers", "openvino", "--venvs", nowhere, "--json", str(to)]
    )
    (row,) = json.loads(to.read_text())
    return status, row, capsys.readouterr().out


def test_each_state_of_the_cache_is_measured(measured):
    status, row, told = measured

    assert status == 0
    assert {"read", "rewrite", "render", "compile"} < row["ours"]["cold"]["stages"].keys()
    assert row["ours"]["kernels"]["stages"].keys() == row["ours"]["cold"]["stages"].keys()
    assert row["ours"]["model"]["stages"].keys() == {"import", "cache", "first run"}  # no compiler was needed
    for found in row["ours"].values():
        assert found["kernels"] == row["ours"]["cold"]["kernels"] > 0
        assert 0 < sum(found["stages"].values()) <= found["wall"] * 1.001
        assert found["cpu"] > 0
        assert found["again"] > 0
    assert row["passes"]["canonicalize"] >= 0
    assert "small" in told
    assert "canonicalize" in told


def test_a_peer_that_is_missing_is_told_and_not_counted(measured):
    _, row, told = measured

    assert "not installed: python -m bench.cpu setup openvino" in row["peers"]["openvino"]
    assert "geometric mean" not in told


def test_an_unknown_peer_and_a_broken_model_are_errors(tmp_path, capsys):
    with pytest.raises(SystemExit):
        compile_time.main(["x.onnx", "--peers", "nobody"])
    assert "no peer 'nobody'" in capsys.readouterr().err

    onnx.save(model([node("Nothing", ["x"], ["y"])], [value("x", (2, 3))]), tmp_path / "bad.onnx")
    assert compile_time.main([str(tmp_path / "bad.onnx"), "--peers", "", "--rounds", "1"]) == 1
    assert "Nothing" in capsys.readouterr().err


def test_ratios_are_geometric_means_over_the_models_that_both_run(small):
    def row(ours, theirs):
        return {"ours": {state: {"wall": ours} for state in compile_time.STATES}, "peers": {"mnn": theirs}}

    options = type("Options", (), {"peers": ["mnn"]})
    (line,) = compile_time.summary([row(2.0, {"wall": 1.0}), row(8.0, {"wall": 1.0}), row(1.0, "it died")], options)

    assert line == "our time over that of mnn, geometric mean of 2 models: cold 4.00  kernels 4.00  model 4.00"
