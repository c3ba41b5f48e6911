"""What the command says and writes of outputs that are no arrays of numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpucomp.cli import compare, show, tensors

TEXTS = np.array(["a", "b c", "d", "e"], object)
NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_texts_are_shown_as_they_are():
    assert show.tensor("y", TEXTS).endswith("'a' 'b c' 'd' ...")
    assert not show.tensor("y", TEXTS[:2]).endswith("...")


def test_a_sequence_has_a_line_for_each_tensor():
    first, *rest = show.tensor("y", [NUMBERS, TEXTS[:1]]).splitlines()
    assert first == "'y' a sequence of 2"
    assert [line.strip().split()[0] for line in rest] == ["'y[0]'", "'y[1]'"]
    assert "max 5" in rest[0]
    assert show.tensor("y", None) == "'y' nothing"
    assert show.tensor("y", []) == "'y' a sequence of 0"


@pytest.mark.parametrize(
    ("ours", "theirs", "l2"),
    [
        (TEXTS, TEXTS.copy(), 0.0),
        (TEXTS, np.array(["a", "b c", "d", "f"], object), math.inf),
        (TEXTS, TEXTS[:3], math.inf),
        ([NUMBERS, NUMBERS], [NUMBERS, NUMBERS], 0.0),
        ([NUMBERS, NUMBERS], [NUMBERS, 2 * NUMBERS], 0.5),
        ([NUMBERS], [NUMBERS, NUMBERS], math.inf),
        ([], [], 0.0),
        (None, None, 0.0),
        (None, NUMBERS, math.inf),
        (NUMBERS, [NUMBERS], math.inf),
    ],
)
def test_how_far_they_are_from_another_program_s(ours, theirs, l2):
    assert compare.distances({"y": ours}, {"y": theirs})["y"].l2 == pytest.approx(l2)


def test_each_tensor_is_a_file(tmp_path):
    written = tensors.write_outputs(tmp_path, {"s": [NUMBERS, NUMBERS + 1], "t": TEXTS, "n": None})

    assert sorted(path.name for path in tmp_path.iterdir()) == ["s-0.npy", "s-1.npy", "t.npy"]
    np.testing.assert_array_equal(np.load(written["s-1"]), NUMBERS + 1)
    assert np.load(written["t"]).tolist() == TEXTS.tolist()


def test_maps_of_the_same_keys_are_two_files(tmp_path):
    rows = [{"lo": 0.25, "hi": 0.75}, {"lo": 1.0, "hi": 0.0}]

    assert show.tensor("y", rows).splitlines()[1].split() == ["'y[0]'", "'lo':", "0.25", "'hi':", "0.75"]

    written = tensors.write_outputs(tmp_path, {"y": rows})
    assert np.load(written["y.keys"]).tolist() == ["lo", "hi"]
    np.testing.assert_array_equal(np.load(written["y.values"]), np.float32([[0.25, 0.75], [1, 0]]))
