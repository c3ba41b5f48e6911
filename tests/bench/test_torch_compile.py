"""``bench.torch_compile`` on a small model: what it measures, and its table."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="could not import 'torch'")
pytest.importorskip("onnxscript", reason="could not import 'onnxscript'")

from bench import torch_compile

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch about torch


@pytest.mark.slow  # two processes import torch
def test_a_small_model_is_measured(tmp_path):
    table, results = tmp_path / "t.md", tmp_path / "t.json"

    torch_compile.main(
        [
            "spotter",
            "--backends",
            "eager,gpucomp",
            "--seconds",
            "0.05",
            "--markdown",
            str(table),
            "--json",
            str(results),
        ]
    )

    (row,) = json.loads(results.read_text())["rows"]
    assert row["errors"]["gpucomp"] < 1e-5
    assert row["ms"].keys() == {"eager", "gpucomp"}
    assert row["first gpucomp"]["breaks"] == row["again gpucomp"]["breaks"] > 0
    assert "| spotter |" in table.read_text()


def test_the_error_is_relative_to_the_largest_number():
    torch = pytest.importorskip("torch")

    assert torch_compile.error([torch.tensor([1.0, 4.5])], [torch.tensor([1.0, 5.0])]) == pytest.approx(0.1)


def test_a_model_that_does_not_exist_is_an_error(capsys):
    with pytest.raises(SystemExit):
        torch_compile.arguments(["resnet1000"])
    assert "no model 'resnet1000'" in capsys.readouterr().err
