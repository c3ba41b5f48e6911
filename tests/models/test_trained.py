"""Trained models of others, compiled and run: onnxruntime's answer, published outputs, and photos put in their class.

The models are not part of the project: where ``../shared/data`` is missing these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import gpucomp
from gpucomp.cli.compare import onnxruntime_session, relative_error

DATA = Path(__file__).parents[2].parent / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the trained models are not here")

MODELS = {
    "mnist_8/model.onnx": "normal",
    "super_resolution_10/model.onnx": "unit",
    "mobilenet_v2/mobilenetv2_dequant_fp32.onnx": "normal",
    "ultraface/version-RFB-320.onnx": "normal",
    "yunet/yunet_n_320_320.onnx": "bytes",
    "yolox_nano/yolox_nano.onnx": "bytes",
}
TARGETS = ["cpu", pytest.param("opencl", marks=pytest.mark.slow)]


def image(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(0)
    if kind == "bytes":
        return rng.integers(0, 256, shape).astype(np.float32)
    return (rng.standard_normal(shape) if kind == "normal" else rng.random(shape)).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_a_trained_model_gives_onnxruntime_s_answer(name, target):
    path = DATA / "models" / name
    session = onnxruntime_session(path)
    (wanted,) = session.get_inputs()
    shape = tuple(d if isinstance(d, int) else 1 for d in wanted.shape)
    feeds = {wanted.name: image(MODELS[name], shape)}

    actual = gpucomp.compile(path, target=target, shapes={wanted.name: shape}).run(feeds)

    for output, expected in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        assert relative_error(actual[output.name], expected) <= 1e-4


@pytest.mark.parametrize(
    "case",
    [
        "mnist_8/test_data_set_0",
        "mnist_8/test_data_set_1",
        "mnist_8/test_data_set_2",
        "super_resolution_10/test_data_set_0",
    ],
)
def test_the_published_outputs_are_met(case):
    folder = DATA / "models" / case
    given, expected = (
        numpy_helper.to_array(onnx.TensorProto.FromString((folder / name).read_bytes()))
        for name in ("input_0.pb", "output_0.pb")
    )

    path = folder.parent / "model.onnx"
    name = onnxruntime_session(path).get_inputs()[0].name
    (actual,) = gpucomp.compile(path, target="cpu", shapes={name: given.shape}).run({name: given}).values()

    assert relative_error(actual, expected) <= 1e-5


@pytest.mark.parametrize(
    ("photo", "label"),
    [("coral_cat.bmp", "Egyptian cat"), ("coral_sunflower.bmp", "daisy"), ("coral_parrot.jpg", "macaw")],
)
@pytest.mark.parametrize("network", ["mobilenetv2_dequant_fp32.onnx", "mobilenetv2-12-int8.onnx"])
def test_a_photo_is_put_in_its_class(network, photo, label):
    from PIL import Image

    labels = eval_labels((DATA / "images" / "imagenet1000_clsidx_to_labels.txt").read_text())
    pixels = np.asarray(Image.open(DATA / "images" / photo).convert("RGB").resize((224, 224)), np.float32) / 255
    pixels = (pixels - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    feeds = {"input": np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], np.float32)}
    path = DATA / "models" / "mobilenet_v2" / network

    (scores,) = gpucomp.compile(path, target="cpu", shapes={"input": (1, 3, 224, 224)}).run(feeds).values()

    assert labels[int(scores.argmax())] == label


def eval_labels(text: str) -> dict[int, str]:
    """``{0: 'tench, Tinca tinca', ...}``, one a line, to the first name of each class."""
    labels = {}
    for line in text.strip("{} \n").splitlines():
        number, _, names = line.strip(" {},").partition(":")
        labels[int(number)] = names.strip(" '\",").split(",")[0]
    return labels
