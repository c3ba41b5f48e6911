"""What ``bench.new_shapes`` measures: plans are made quickly, arenas are small, and nothing is left over."""

import json

import pytest

from bench import new_shapes, packages
from gpucomp import Dim


def test_new_shapes_leave_nothing_over(tmp_path, capsys):
    assert new_shapes.main(["--shapes", "300", "--layers", "12", "--json", str(tmp_path / "n.json")]) == 0

    row = json.loads((tmp_path / "n.json").read_text())
    assert (row["kernels"], row["shapes"], row["more_threads"], row["more_files"]) == (12, 300, 0, 0)
    assert row["grown_bytes"] < 8 << 20
    assert row["plan_us"] < 5000  # some hundredths of that, on a machine that does nothing else
    assert "12 kernels" in capsys.readouterr().out


def test_sizes_are_all_different():
    found = new_shapes.all_sizes({"n": Dim("n", 1, 4), "h": Dim("h", 8, 40, 8)}, 20)

    assert len({tuple(sizes.items()) for sizes in found}) == 20
    with pytest.raises(SystemExit, match="there are 20 sets of sizes, 21 were asked for"):
        new_shapes.all_sizes({"n": Dim("n", 1, 4), "h": Dim("h", 8, 40, 8)}, 21)


def test_arenas_are_compared(monkeypatch, capsys):
    small = packages.Model("small==1", "small.onnx", {"x": new_shapes.DIMS}, {})
    monkeypatch.setattr(new_shapes, "MODELS", {"small": small})
    monkeypatch.setattr(new_shapes, "content", lambda model: new_shapes.chain(8).SerializeToString())

    assert new_shapes.main(["--arena", "small", "--draws", "5"]) == 0
    assert "arena at most 1.000 of the planned one" in capsys.readouterr().out
