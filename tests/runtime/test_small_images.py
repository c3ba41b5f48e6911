"""Convolutions of any size on small images, of which most taps are padding: those that no row has are left out."""

from __future__ import annotations

import numpy as np
import pytest

import gpucomp
from gpucomp import Dim
from gpucomp.frontend.onnx import load
from gpucomp.ops.interpreter import interpret
from testing.tolerance import assert_matches
from tests.onnx_builders import model, node, value


def convolution(taps, depth, count, extents, **attributes):
    rng = np.random.default_rng(taps + depth)
    made = node("Conv", ["x", "w", "b"], ["y"], kernel_shape=[taps, taps], **attributes)
    w = rng.uniform(-0.3, 0.3, (count, depth, taps, taps)).astype(np.float32)
    weights = {"w": w, "b": rng.standard_normal(count).astype(np.float32)}
    return model([made], [value("x", extents)], ["y"], weights=weights, opset=17)


@pytest.mark.parametrize(
    ("taps", "depth", "count", "attributes"),
    [
        (3, 48, 21, {"pads": [1] * 4, "strides": [2, 2]}),
        (5, 17, 40, {"pads": [2] * 4}),
        (3, 20, 33, {"pads": [3] * 4, "dilations": [3, 3]}),
        (3, 64, 72, {"pads": [1] * 4}),  # by Winograd's algorithm
    ],
)
def test_small_images_are_convolved_as_their_reference(taps, depth, count, attributes):
    dims = (Dim("n", 1, 5), depth, Dim("h", 1, 70), Dim("w", 1, 70))
    exe = gpucomp.compile(
        convolution(taps, depth, count, ("n", depth, "h", "w"), **attributes), target="cpu", shapes={"x": dims}
    )

    for shape in ((1, depth, 1, 1), (5, depth, 1, 2), (3, depth, 2, 1), (1, depth, 1, 70), (2, depth, 9, 4)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        (wanted,) = interpret(load(convolution(taps, depth, count, shape, **attributes)), {"x": x})
        assert_matches(exe.run({"x": x})["y"], wanted, terms=taps * taps * depth * 16)
