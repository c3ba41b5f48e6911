"""Models in files and their inputs, and the page of what exports and files give."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.exports import __main__ as bench
from bench.exports.files import opened
from bench.exports.report import Row, known, page
from bench.gpu.results import append

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def saved(path, *, shape=(2, 3)):
    info = helper.make_tensor_value_info
    weight = numpy_helper.from_array(np.float32([1, 2, 3]), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "one",
        [info("x", TensorProto.FLOAT, shape), info("w", TensorProto.FLOAT, (3,))],
        [info("y", TensorProto.FLOAT, shape)],
        [weight],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_inputs_beside_a_model_are_taken(tmp_path):
    first, second = saved(tmp_path / "a" / "model.onnx"), saved(tmp_path / "b.onnx")
    (tmp_path / "a" / "test_data_set_0").mkdir()
    tensor = numpy_helper.from_array(X)
    (tmp_path / "a" / "test_data_set_0" / "input_0.pb").write_bytes(tensor.SerializeToString())
    np.savez(tmp_path / "b.npz", x=X + 1, y=X)

    np.testing.assert_array_equal(opened(first)[1]["x"], X)
    np.testing.assert_array_equal(opened(second)[1]["x"], X + 1)


def test_inputs_are_made_where_there_are_none_and_initialisers_are_none(tmp_path):
    feeds = opened(saved(tmp_path / "c.onnx", shape=("n", 3)))[1]

    assert {name: (a.shape, a.dtype) for name, a in feeds.items()} == {"x": ((1, 3), np.dtype("float32"))}


def test_a_file_is_run_once_and_told_in_the_page(tmp_path, capsys, monkeypatch):
    saved(tmp_path / "models" / "tiny" / "model.onnx")
    journal = tmp_path / "found.jsonl"
    arguments = ["--file", str(tmp_path / "models"), "--journal", str(journal), "--write"]
    monkeypatch.setattr(bench, "PAGE", tmp_path / "exports.md")

    assert bench.main(arguments) == 0
    monkeypatch.setattr(bench, "verdict", None)
    assert bench.main(arguments) == 0

    (row,) = known(journal).values()
    assert (row.name, row.source, row.target, row.nodes, row.right) == ("tiny", "file", "cpu", 1, True)
    assert (tmp_path / "exports.md").read_text().splitlines()[-1].startswith("| tiny | file | 17 | 1 | right: y is")
    assert capsys.readouterr().out.count("tiny ") == 2


def test_what_is_wrong_or_was_not_run_is_told(tmp_path):
    rows = [
        Row("a", "script", "cpu", 20, 7, 1.0, "right: y is 0 off"),
        Row("a", "script", "opencl", 20, 7, 2.0, "WRONG: y"),
        Row("b", "file", "cpu", 9, 3, 1.0, "GPC4001 the model cannot be compiled"),
    ]
    for row in rows:
        append(tmp_path / "j.jsonl", asdict(row))

    text = page(known(tmp_path / "j.jsonl").values())

    assert "1 of 2 right on cpu; 0 of 1 right on opencl." in text
    assert "| a | script | 20 | 7 | right: y is 0 off | 1.0 | WRONG: y | 2.0 |" in text
    assert "| b | file | 9 | 3 | GPC4001 the model cannot be compiled | 1.0 | not run |  |" in text
