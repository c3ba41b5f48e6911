"""Detectors as ONNX models, built by hand: a backbone of known behaviour, decoded boxes, NonMaxSuppression, and what exporters
put behind it. How many objects an image has follows from how many of its cells are bright.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from gpucomp.cli.compare import onnxruntime_outputs
from tests.onnx_builders import model, node, value

CELL, ROWS, COLUMNS, CLASSES, CHANNELS = 8, 7, 9, 3, 11
SHAPE = (1, 3, CELL * ROWS, CELL * COLUMNS)
ANCHORS = ((10.0, 14.0), (19.0, 6.0))
MOST = 13  # detections of an image


def image(bright: int, seed: int = 0) -> np.ndarray:
    """An image of which so many cells, of ROWS * COLUMNS, are bright in one of the three colours: its class."""
    rng = np.random.default_rng(seed)
    cells = np.zeros((3, ROWS * COLUMNS), np.float32)
    places = rng.permutation(ROWS * COLUMNS)[:bright]
    cells[rng.integers(0, 3, bright), places] = rng.uniform(0.8, 1.2, bright)
    noise = rng.uniform(0.7, 1.0, (1, 3, ROWS, CELL, COLUMNS, CELL)).astype(np.float32)
    return (noise * cells.reshape(1, 3, ROWS, 1, COLUMNS, 1)).reshape(SHAPE)


def weights(seed: int = 3) -> dict[str, np.ndarray]:
    """A backbone that sees one cell at a time, and heads whose scores are low where there is nothing."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    n = len(ANCHORS)
    w0, w1 = np.abs(draw(CHANNELS, 3, 4, 4)), draw(CHANNELS, CHANNELS, 2, 2) / 4
    w_scores = draw(CLASSES + 1, CHANNELS, 1, 1) / 4
    w_scores = np.concatenate([w_scores, -w_scores])  # the first anchor sees what the second does not
    for colour in range(CLASSES):  # the first channels are the means of a colour
        w0[colour] = w1[colour] = 0
        w0[colour, colour], w1[colour, colour] = 1 / 16, 1 / 4
        w_scores[1 + colour, colour] += 9
    rows, columns = np.meshgrid(np.arange(ROWS), np.arange(COLUMNS), indexing="ij")
    centres = np.stack([rows, columns], -1).reshape(-1, 1, 2) * CELL + CELL / 2
    centres = np.broadcast_to(centres, (ROWS * COLUMNS, n, 2)).reshape(-1, 2)
    extents = np.tile(np.array(ANCHORS), (ROWS * COLUMNS, 1))
    return {
        "w0": w0,
        "w1": w1,
        "w_boxes": draw(4 * n, CHANNELS, 1, 1) * 0.5,
        "w_scores": w_scores,
        "b_scores": np.tile(np.array([3.0, *[-3.0] * CLASSES], np.float32), n),
        "centres": centres.astype(np.float32)[None],
        "extents": extents.astype(np.float32)[None],
        "half": np.array(0.5, np.float32),
        "s_boxes": np.array([1, -1, 4], np.int64),
        "s_scores": np.array([1, -1, CLASSES + 1], np.int64),
        "per_class": np.array([7], np.int64),
        "overlap": np.array([0.45], np.float32),
        "least": np.array([0.3], np.float32),
        "i0": np.array([0], np.int64),
        "i1": np.array([1], np.int64),
        "i2": np.array([2], np.int64),
        "i3": np.array([3], np.int64),
        "end": np.array([1 << 62], np.int64),
        "most": np.array([MOST], np.int64),
        "last": np.array([-1], np.int64),
    }


FRONT = [
    node("Conv", ["image", "w0"], ["c0"], strides=[4, 4]),
    node("Relu", ["c0"], ["r0"]),
    node("Conv", ["r0", "w1"], ["c1"], strides=[2, 2]),
    node("Relu", ["c1"], ["features"]),
    node("Conv", ["features", "w_boxes"], ["raw_boxes"]),
    node("Transpose", ["raw_boxes"], ["t_boxes"], perm=[0, 2, 3, 1]),
    node("Reshape", ["t_boxes", "s_boxes"], ["deltas"]),
    node("Split", ["deltas"], ["shift", "grow"], axis=2, num_outputs=2),
    node("Mul", ["shift", "extents"], ["moved"]),
    node("Add", ["moved", "centres"], ["middle"]),
    node("Exp", ["grow"], ["grown"]),
    node("Mul", ["grown", "extents"], ["sizes"]),
    node("Mul", ["sizes", "half"], ["halves"]),
    node("Sub", ["middle", "halves"], ["low"]),
    node("Add", ["middle", "halves"], ["high"]),
    node("Concat", ["low", "high"], ["boxes"], axis=2),
    node("Conv", ["features", "w_scores", "b_scores"], ["raw_scores"]),
    node("Transpose", ["raw_scores"], ["t_scores"], perm=[0, 2, 3, 1]),
    node("Reshape", ["t_scores", "s_scores"], ["logits"]),
    node("Softmax", ["logits"], ["all_scores"], axis=2),
    node("Slice", ["all_scores", "i1", "end", "i2"], ["class_scores"]),
    node("Transpose", ["class_scores"], ["scores"], perm=[0, 2, 1]),
]
TAIL = [
    node("NonMaxSuppression", ["boxes", "scores", "per_class", "overlap", "least"], ["kept"], name="nms"),
    node("Slice", ["kept", "i1", "i2", "i1"], ["label_column"]),
    node("Slice", ["kept", "i2", "i3", "i1"], ["box_column"]),
    node("Squeeze", ["label_column", "i1"], ["kept_labels"]),
    node("Squeeze", ["box_column", "i1"], ["kept_places"]),
    node("Squeeze", ["boxes", "i0"], ["flat_boxes"]),
    node("Gather", ["flat_boxes", "kept_places"], ["kept_boxes"], axis=0),
    node("GatherND", ["scores", "kept"], ["kept_scores"]),
    node("Shape", ["kept_scores"], ["how_many"]),
    node("Min", ["how_many", "most"], ["k"]),
    node("TopK", ["kept_scores", "k"], ["best_scores", "best"], axis=0),
    node("Gather", ["kept_boxes", "best"], ["best_boxes"], axis=0),
    node("Gather", ["kept_labels", "best"], ["best_labels"], axis=0),
    node("ReduceMax", ["best_boxes", "i1"], ["reach"], keepdims=0),
    node("Cast", ["best_labels"], ["float_labels"], to=TensorProto.FLOAT),
    node("Unsqueeze", ["float_labels", "last"], ["labels_"]),
    node("Unsqueeze", ["best_scores", "last"], ["scores_"]),
    node("Concat", ["best_boxes", "scores_", "labels_"], ["detections"], axis=1),
]


def ssd() -> onnx.ModelProto:
    """Boxes, scores and labels of the MOST best: f32[k, 6]; the features, which no value decides, are an output too."""
    outputs = [
        value("detections", ["k", 6]),
        value("best_labels", ["k"], TensorProto.INT64),
        value("reach", ["k"]),
        value("features", [1, CHANNELS, ROWS, COLUMNS]),
    ]
    return model([*FRONT, *TAIL], [value("image", SHAPE)], outputs, weights())


def masks() -> onnx.ModelProto:
    """Where NonZero and Compress select: the places of bright features, a slice for each, and a matrix product behind."""
    nodes = [
        *FRONT[:4],
        node("ReduceMax", ["features", "i1"], ["peak"], keepdims=0),
        node("Greater", ["peak", "half"], ["mask"]),
        node("NonZero", ["mask"], ["places"]),
        node("Transpose", ["places"], ["where"], perm=[1, 0]),
        node("Transpose", ["features"], ["last_features"], perm=[0, 2, 3, 1]),
        node("GatherND", ["last_features", "where"], ["rows"]),
        node("MatMul", ["rows", "matrix"], ["product"]),
        node("Shape", ["rows"], ["shape"]),
        node("Gather", ["shape", "i0"], ["count"], axis=0),
        node("ReduceMax", ["product", "i1"], ["strength"], keepdims=0),
        node("Greater", ["strength", "half"], ["strong"]),
        node("Compress", ["product", "strong"], ["chosen"], axis=0),
    ]
    rng = np.random.default_rng(5)
    extra = {"matrix": rng.standard_normal((CHANNELS, 5)).astype(np.float32)}
    outputs = [
        value("chosen", ["n", 5]),
        value("count", [1], TensorProto.INT64),
        value("where", ["m", 3], TensorProto.INT64),
    ]
    return model(nodes, [value("image", SHAPE)], outputs, weights() | extra)


def expected(proto: onnx.ModelProto, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What onnxruntime answers."""
    return onnxruntime_outputs(proto.SerializeToString(), given)
