"""Models as torch exports them, with weights of our own: right on the CPU beside onnxruntime.

``tests/models/exports`` holds what ``python -m bench.exports --skeletons`` wrote; that command checks them all, afresh and
on every target.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import gpucomp
from bench.exports.skeleton import KEPT, filled, inputs, skeleton
from bench.exports.verdict import LIMIT, verdict
from gpucomp.cli.compare import distances, onnxruntime_outputs
from gpucomp.frontend.onnx import check

FOLDER = Path(__file__).parent / "exports"
NAMES = sorted(path.stem for path in FOLDER.glob("*.onnx"))
ON_CPU = ["gpt2-dynamo", "mixtral-dynamo", "resnet-dynamo", "lstm-script", "unet-script", "whisper-dynamo"]


@pytest.mark.parametrize("name", ON_CPU)
def test_an_exported_model_is_right(name):
    model = filled(onnx.load(FOLDER / f"{name}.onnx"))

    found = verdict(model, inputs(model), "cpu")

    assert found.startswith("right"), found


@pytest.mark.parametrize("name", NAMES)
def test_everything_in_an_exported_model_is_supported(name):
    problems, rest = check(filled(onnx.load(FOLDER / f"{name}.onnx")))

    assert problems == []
    assert bool(rest) == name.startswith(("detector", "spotter"))  # all others are compiled as a whole


@pytest.mark.parametrize("exporter", ["dynamo", "script"])
def test_a_detector_is_right_with_its_suppression(exporter):
    model = filled(onnx.load(FOLDER / f"detector-{exporter}.onnx"))

    assert verdict(model, inputs(model), "cpu").startswith("right")


def test_masks_of_a_detector_written_in_torch_are_right_for_every_image():
    model = filled(onnx.load(FOLDER / "spotter-script.onnx"))
    exe, counts = gpucomp.compile(model, target="cpu"), set()

    for seed in range(3):
        feeds = {
            info.name: a * (1 + seed) for info, a in zip(model.graph.input, inputs(model, seed).values(), strict=True)
        }
        found, expected = exe.run(feeds), onnxruntime_outputs(model.SerializeToString(), feeds)
        assert max(far.l2 for far in distances(found, expected).values()) < LIMIT
        counts.add(len(found[model.graph.output[0].name]))

    assert len(counts) == 3


def test_a_skeleton_has_its_weights_again_when_it_is_filled():
    weight, axes = np.arange(40, dtype=np.float32).reshape(5, 8), np.arange(3, dtype=np.float32)
    arrays = {"w": weight, "few": axes, "many": np.arange(40)}
    tensors = [onnx.numpy_helper.from_array(a, name) for name, a in arrays.items()]
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], tensors))

    bare = skeleton(model)
    whole = {t.name: onnx.numpy_helper.to_array(t) for t in filled(bare).graph.initializer}

    assert weight.size > KEPT
    assert not bare.graph.initializer[0].raw_data
    assert whole["w"].shape == weight.shape
    assert 0.1 < whole["w"].std() < 1
    np.testing.assert_array_equal(whole["few"], axes)
    np.testing.assert_array_equal(whole["many"], arrays["many"])
