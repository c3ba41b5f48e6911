"""Models as other exporters and converters write them, against onnxruntime, which their users run."""

import numpy as np
import pytest

import gpucomp
from gpucomp.cli.compare import onnxruntime_session
from tests.onnx_builders import model, node, value
from tests.onnx_cases import InterpreterBackend

RNG = np.random.default_rng(29)


def by_onnxruntime(proto, feeds):
    session = onnxruntime_session(proto.SerializeToString())
    return session.run(None, feeds)


@pytest.mark.parametrize("align_corners", [0, 1])
def test_a_cubic_sample_past_the_border_reads_the_border_four_times(align_corners):
    x = RNG.standard_normal((2, 3, 5, 7)).astype(np.float32)
    grid = RNG.uniform(-1.7, 1.7, (2, 4, 3, 2)).astype(np.float32)
    attributes = {"mode": "cubic", "padding_mode": "border", "align_corners": align_corners}
    proto = model(
        [node("GridSample", ["x", "g"], ["y"], **attributes)], [value("x", x.shape), value("g", grid.shape)], ["y"]
    )
    feeds = {"x": x, "g": grid}

    (expected,) = by_onnxruntime(proto, feeds)

    np.testing.assert_allclose(InterpreterBackend.prepare(proto).run([x, grid])[0], expected, atol=1e-5)
    np.testing.assert_allclose(gpucomp.compile(proto, target="cpu").run(feeds)["y"], expected, atol=1e-5)
