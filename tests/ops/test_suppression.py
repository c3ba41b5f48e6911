"""NonMaxSuppression against onnxruntime: the same boxes in the same order, to the last bit of an overlap."""

import numpy as np
import pytest
from onnx import TensorProto

from gpucomp import ops
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.errors import ShapeError
from gpucomp.ir.graph import infer
from gpucomp.ir.types import F32, TensorType
from gpucomp.ops import suppression
from tests.onnx_builders import model, node, value

FREE = (None, None, None)


def session(centred):
    proto = model(
        [node("NonMaxSuppression", ["b", "s", "m", "t", "l"], ["y"], center_point_box=centred)],
        [value("b", FREE), value("s", FREE), value("m", (1,), TensorProto.INT64), value("t", (1,)), value("l", (1,))],
        [value("y", (None, 3), TensorProto.INT64)],
        opset=11,
    )
    return onnxruntime_session(proto.SerializeToString())


SESSIONS = (session(0), session(1))


def kept(boxes, scores, *, limit=1 << 62, overlap=0.5, least=None, centred=False):
    reference = ops.NonMaxSuppression.meaning["reference"]
    rows, count = reference(boxes, scores, limit=limit, overlap=overlap, least=least, centred=centred)
    return rows[: int(count)]


def strange(rng, boxes):
    some = rng.random(boxes.shape) < 0.05
    boxes[some] = rng.choice([np.nan, np.inf, -np.inf, 0, 1e38, -1e38, 1e-30], some.sum())


def of_all_sizes(rng, boxes):
    boxes[..., 2:] *= np.float32(10.0) ** rng.integers(-3, 3, (*boxes.shape[:2], 1))


CHANGES = {
    "as they are": lambda rng, boxes: None,
    "on a grid": lambda rng, boxes: np.round(boxes, out=boxes),
    "tiny": lambda rng, boxes: np.multiply(boxes, np.float32(1e-18), out=boxes),
    "strange": strange,
    "of all sizes": of_all_sizes,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("centred", [0, 1])
def test_the_same_boxes_are_kept(change, centred):
    rng = np.random.default_rng(7 + centred)
    for batches, classes, n in ((1, 2, 0), (2, 1, 1), (1, 3, 65), (2, 2, 700)):
        low = rng.uniform(0, rng.choice([3, 30, 300]), (batches, n, 2))
        size = rng.uniform(0.5, 9, low.shape) if centred else low + rng.uniform(-5, 5, low.shape)
        boxes = np.concatenate([low, size], 2).astype(np.float32)
        change(rng, boxes)
        scores = np.round(rng.uniform(0, 1, (batches, classes, n)), rng.choice([1, 7])).astype(np.float32)
        for limit, overlap, least in ((10_000, 0.3, -1), (10_000, 0.7, 0.2), (50, 0, 0.2), (3, 1, 0.6), (0, 0.5, -1)):
            numbers = {"t": np.float32([overlap]), "l": np.float32([least])}
            feeds = {"b": boxes, "s": scores, "m": np.int64([limit]), **numbers}

            (expected,) = SESSIONS[centred].run(None, feeds)

            found = kept(
                boxes,
                scores,
                limit=limit,
                centred=bool(centred),
                **{k: float(numbers[n][0]) for k, n in (("overlap", "t"), ("least", "l"))},
            )
            np.testing.assert_array_equal(found, expected)


def line(n):
    """``n`` boxes that do not touch each other."""
    begin = np.arange(n)[:, None] * np.float32([10, 0])
    return np.concatenate([begin, begin + np.float32([9, 1])], 1)[None]


@pytest.mark.parametrize("turned", [False, True])
def test_boxes_apart_are_not_compared(turned, monkeypatch):
    boxes = line(5003)[..., [1, 0, 3, 2] if turned else [0, 1, 2, 3]].copy()
    scores = np.random.default_rng(3).permutation(5003).astype(np.float32)[None, None]
    compared = []
    overlaps = suppression._overlaps
    monkeypatch.setattr(suppression, "_overlaps", lambda a, b, t: (compared.append(a.areas.size), overlaps(a, b, t))[1])

    found = kept(boxes, scores)

    assert found[:, 2].tolist() == np.argsort(-scores[0, 0]).tolist()
    assert sum(compared) < 8 * 5003  # of 12,500,000 pairs


def test_the_best_of_a_crowd_covers_the_rest():
    boxes = np.tile(np.float32([0, 0, 1, 1]), (1, 3001, 1))
    scores = np.linspace(0, 1, 3001, dtype=np.float32)[None, None]

    assert kept(boxes, scores).tolist() == [[0, 0, 3000]]


def test_at_a_threshold_of_one_nothing_is_compared(monkeypatch):
    monkeypatch.setattr(suppression, "_overlaps", None)
    boxes = np.tile(np.float32([0, 0, 1, 1]), (1, 3001, 1))
    scores = np.linspace(0, 1, 3001, dtype=np.float32)[None, None]

    assert kept(boxes, scores, overlap=1.0)[:, 2].tolist() == list(range(3001))[::-1]
    assert kept(boxes, scores, overlap=1.0, limit=7, least=0.5)[:, 2].tolist() == list(range(2994, 3001))[::-1]
    assert kept(boxes, scores, overlap=1.0, limit=-1).shape == (0, 3)


@pytest.mark.parametrize("overlap", [-0.1, 1.5, np.nan, np.inf])
def test_a_threshold_outside_its_range_is_refused(overlap):
    types = TensorType(F32, (1, 7, 4)), TensorType(F32, (1, 2, 7))

    with pytest.raises(ShapeError, match="between 0 and 1"):
        infer(ops.NonMaxSuppression, types, {"limit": 3, "overlap": overlap, "least": None, "centred": False})


def test_scores_that_are_nan_come_last_and_are_below_every_threshold():
    scores = np.array([[[0.3, np.nan, 0.5, -np.inf, np.nan, 0.3, np.inf]]], np.float32)

    assert kept(line(7), scores)[:, 2].tolist() == [6, 2, 0, 5, 3, 1, 4]
    assert kept(line(7), scores, least=-1.0)[:, 2].tolist() == [6, 2, 0, 5]
    assert kept(line(7), scores, limit=6)[:, 2].tolist() == [6, 2, 0, 5, 3, 1]
