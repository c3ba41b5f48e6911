"""Commands with sizes that each run decides: those that take them, and those that say that they do not."""

import numpy as np
import onnx
import pytest

from tests.onnx_builders import model, node, value

SHAPES = "x:{n:1..8}x{h:8..64:8}"


@pytest.fixture
def saved(tmp_path):
    halves = model(
        [node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2), node("Add", ["a", "b"], ["y"])],
        [value("x", ["n", "k"])],
        [value("y", None)],
    )
    onnx.save(halves, tmp_path / "m.onnx")
    np.save(tmp_path / "array.npy", np.ones((3, 24), np.float32))
    np.save(tmp_path / "odd.npy", np.ones((3, 25), np.float32))
    return tmp_path


def test_check_says_what_each_run_decides(saved, command):
    told = command("check", saved / "m.onnx", "--shapes", SHAPES).out.splitlines()

    assert told[:3] == [
        "n: 1 to 8, in 'x', says the given shape of input 'x'",
        "h: 8 to 64, a multiple of 8, in 'x', says the given shape of input 'x'",
        "output y: f32[n,h/2]",
    ]
    assert told[-1].endswith("everything can be compiled for cpu")


def test_check_says_what_sizes_must_satisfy(saved, command):
    told = command("check", saved / "m.onnx", "--shapes", "x:{n}x{k}").out.splitlines()

    assert "where 2*floor((k + 1)/2) == k" in told


def test_run_takes_an_array_of_any_size_in_the_range(saved, command):
    done = command(
        "run", saved / "m.onnx", "--shapes", SHAPES, "--input", f"x={saved / 'array.npy'}", "--output-dir", saved
    )

    assert done.code == 0, done.err
    np.testing.assert_array_equal(np.load(saved / "y.npy"), np.full((3, 12), 2, np.float32))


def test_run_tells_a_size_outside_the_range(saved, command):
    done = command("run", saved / "m.onnx", "--shapes", SHAPES, "--input", f"x={saved / 'odd.npy'}")

    assert done.code == 2
    assert "GPC2111" in done.err
    assert "'h' is 25, 8 to 64, a multiple of 8 expected" in done.err


@pytest.mark.parametrize("name", ["compile", "bench", "inspect", "compare", "tune"])
def test_what_is_of_one_set_of_sizes_says_so(saved, command, name):
    more = ["-o", saved / "m.gpuc"] if name == "compile" else []
    done = command(name, saved / "m.onnx", "--shapes", SHAPES, *more)

    assert done.code == 2
    assert "GPC2017" in done.err
    assert not (saved / "m.gpuc").exists()
