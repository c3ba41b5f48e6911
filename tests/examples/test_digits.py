"""The committed digits network reads handwriting that training has not seen, and is made as promised."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from examples.digits import data
from gpucomp.cli.compare import onnxruntime_session

MODEL = Path(data.__file__).with_name("digits.onnx")


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(MODEL)


def logits(images: np.ndarray) -> np.ndarray:
    session = onnxruntime_session(MODEL)
    return session.run(["logits"], {"image": images})[0]


def test_the_network_reads_the_held_back_digits():
    images, labels = data.held_back()

    predicted = logits(images).argmax(1)

    assert (predicted == labels).mean() >= 0.985


def test_the_network_reads_one_digit_as_it_reads_many():
    images, _ = data.held_back()

    one, many = logits(images[7:8]), logits(images[:11])

    assert one.shape == (1, 10)
    assert np.linalg.norm(one[0] - many[7]) < 1e-5 * np.linalg.norm(one)


def test_the_model_is_valid_small_and_of_any_batch(model):
    onnx.checker.check_model(model, full_check=True)

    shapes = [
        [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (model.graph.input[0], model.graph.output[0])
    ]
    assert shapes == [["batch", 1, 8, 8], ["batch", 10]]
    assert MODEL.stat().st_size < 1_000_000
    assert model.opset_import[0].version == 17


def test_the_model_leaves_its_batch_norms_to_the_compiler(model):
    operators = [node.op_type for node in model.graph.node]

    block = ["Conv", "BatchNormalization", "Relu", "MaxPool"]
    assert operators == [*block, *block, "Flatten", "Gemm", "Relu", "Gemm"]


def test_held_back_digits_are_images_of_every_digit_in_proportion():
    images, labels = data.held_back()

    assert images.shape == (450, 1, 8, 8)
    assert images.dtype == np.float32
    assert (images.min(), images.max()) == (0, 1)
    assert labels.dtype == np.int64
    counts = np.bincount(labels, minlength=10)
    assert counts.min() >= 43
    assert counts.max() <= 46


def test_no_held_back_digit_is_among_the_training_digits():
    seen, unseen = data.training()[0], data.held_back()[0]

    assert len(seen) + len(unseen) == 1797
    assert not {image.tobytes() for image in seen} & {image.tobytes() for image in unseen}


def test_the_split_is_the_same_every_time():
    first, second = data.held_back(), data.held_back()

    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
