"""Regions of interest with a number of samples that depends on their size, compared with onnxruntime."""

import numpy as np
import pytest
from onnx import TensorProto

import gpucomp
from gpucomp import ops
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.ops import regions as regions_module
from testing.tolerance import assert_matches
from tests.onnx_builders import model, node, value

ATTRS = {"output_height": 3, "output_width": 2, "spatial_scale": 0.5}
IMAGE = np.random.default_rng(5).standard_normal((2, 3, 17, 11)).astype(np.float32)


def proto(mode, how):
    attrs = {**ATTRS, "mode": mode, "coordinate_transformation_mode": how, "sampling_ratio": 0}
    inputs = [value("x", IMAGE.shape), value("r", (37, 4)), value("b", (37,), TensorProto.INT64)]
    return model([node("RoiAlign", ["x", "r", "b"], ["y"], **attrs)], inputs, opset=16)


def regions(seed):
    """Regions inside the image, across its edges, far away, and with zero or negative area."""
    rng = np.random.default_rng(seed)
    corner, size = rng.uniform(-20, 50, (37, 2)), rng.uniform(-3, 60, (37, 2))
    boxes = np.concatenate([corner, corner + size], 1).astype(np.float32)
    return {"x": IMAGE, "r": boxes, "b": rng.integers(0, 2, 37)}


@pytest.mark.parametrize("how", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_of_all_sizes_as_onnxruntime_has_them(mode, how):
    session = onnxruntime_session(proto(mode, how).SerializeToString())
    reference = ops.AdaptiveRoiAlign.meaning["reference"]
    for seed in range(5):
        feeds = regions(seed)

        found = reference(*feeds.values(), **ATTRS, mode=mode, coordinate_transformation_mode=how)

        assert_matches(found, session.run(None, feeds)[0], terms=900)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_a_pixel_that_is_no_number_is_seen_by_samples_beside_it_alone(mode):
    session = onnxruntime_session(proto(mode, "half_pixel").SerializeToString())
    feeds = regions(3)
    x = IMAGE.copy()
    x[:, :, 11, 9] = np.inf
    if mode == "avg":  # in onnxruntime, the maximum of several numbers and NaN depends on their order
        x[:, :, 5, 4] = np.nan

    found = ops.AdaptiveRoiAlign.meaning["reference"](x, feeds["r"], feeds["b"], **ATTRS, mode=mode)

    expected = session.run(None, feeds | {"x": x})[0]
    assert 0 < np.isfinite(expected).sum() < expected.size
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    finite = np.isfinite(expected)
    assert_matches(found[finite], expected[finite], terms=900)


def test_sums_do_not_depend_on_how_many_samples_are_taken_at_a_time(monkeypatch):
    feeds = regions(1)
    reference = ops.AdaptiveRoiAlign.meaning["reference"]
    whole = reference(*feeds.values(), **ATTRS)
    for few in (1, 200, 1000):
        monkeypatch.setattr(regions_module, "AT_A_TIME", few)

        assert_matches(reference(*feeds.values(), **ATTRS), whole, terms=900)


def test_the_host_runs_it_between_kernels():
    feeds = regions(7)
    it = proto("avg", "half_pixel")
    it.graph.node.insert(0, node("Exp", ["x"], ["e"]))
    it.graph.node[1].input[0] = "e"
    expected = onnxruntime_session(it.SerializeToString()).run(None, feeds)

    assert_matches(gpucomp.compile(it, target="cpu").run(feeds)["y"], expected[0], terms=900)


def test_regions_that_are_not_finite_or_huge():
    numbers = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e18, 2.0]
    boxes = np.array(np.meshgrid(numbers, [1.0], numbers, [5.0])).reshape(4, -1).T.astype(np.float32)
    zeros = np.zeros(len(boxes), np.int64)

    found = ops.AdaptiveRoiAlign.meaning["reference"](IMAGE, boxes, zeros, output_height=2, output_width=2)

    assert np.isfinite(found).all()
    assert (found[np.isnan(boxes).any(1)] == 0).all()
    whole = np.array([[-1e9, -1e9, 1e9, 1e9]], np.float32)  # the image is a speck of it, at a corner of four bins
    for mode in ("avg", "max"):
        found = ops.AdaptiveRoiAlign.meaning["reference"](
            IMAGE, whole, zeros[:1], output_height=2, output_width=2, mode=mode
        )
        assert (np.abs(found) < 1e-12).all() if mode == "avg" else np.isfinite(found).all()
