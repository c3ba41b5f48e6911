"""What other programs answer: ONNX's evaluator computes one operator wrongly, and that is mended."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp.cli import compare
from gpucomp.errors import DeviceError
from tests.onnx_builders import model, node, value

RNG = np.random.default_rng(0)
X = RNG.normal(1, 2, (2, 3, 5, 7)).astype(np.float32)
SCALE, BIAS, MEAN = RNG.normal(1, 1, (3, 3)).astype(np.float32)
VARIANCE = RNG.uniform(0.5, 2, 3).astype(np.float32)
WEIGHTS = {"s": SCALE, "b": BIAS, "m": MEAN, "v": VARIANCE}


def normalising(opset, outputs=("y",), **attributes):
    norm = node("BatchNormalization", ["x", *WEIGHTS], list(outputs), epsilon=1e-3, **attributes)
    return model([norm], [value("x", X.shape)], weights=WEIGHTS, opset=opset).SerializeToString()


@pytest.mark.parametrize("opset", [7, 8, 9, 13, 14, 15, 20])
@pytest.mark.parametrize("program", ["onnxruntime", "reference"])
def test_a_batch_normalisation_is_by_the_statistics_of_the_model(opset, program):
    scale, bias, mean, variance = (array[:, None, None] for array in WEIGHTS.values())

    found = compare.answers(normalising(opset), {"x": X}, program)["y"]

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, (X - mean) / np.sqrt(variance + 1e-3) * scale + bias, rtol=1e-4, atol=1e-5)


def test_statistics_of_each_element_are_refused_not_wrong():
    with pytest.raises(DeviceError, match=r"GPC5014 ONNX's reference evaluator cannot run the model: .*spatial=0"):
        compare.answers(normalising(8, spatial=0), {"x": X}, "reference")
