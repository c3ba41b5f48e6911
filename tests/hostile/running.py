"""Valid models whose inputs are hostile: indices, lengths and positions that lie outside, at run time.

Nothing outside a tensor is read or written. What a wrong index gives is not promised, but the rest of the result is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.hostile.corpus import OK, content, run_cpu
from tests.hostile.shapes import MAX, MIN
from tests.onnx_builders import model, node, value

W = np.arange(15, dtype=np.float32).reshape(5, 3)
WILD = {"past_the_end": 5, "below": -6, "far": 1 << 40, "largest": MAX, "least": MIN, "wraps": (1 << 61) + 1}


def indexed(op: str, index: np.ndarray, updates: np.ndarray | None = None, **attributes: Any) -> bytes:
    inputs = [value("x", W.shape), value("i", index.shape, TensorProto.INT64)]
    names = ["x", "i"]
    if updates is not None:
        inputs.append(value("u", updates.shape))
        names.append("u")
    return model([node(op, names, ["y"], name="n", **attributes)], inputs).SerializeToString()


def case(
    what: str, op: str, index: np.ndarray, last: float, updates: np.ndarray | None = None, **attributes: Any
) -> None:
    inputs = {"x": W, "i": index} | ({} if updates is None else {"u": updates})
    act = partial(run_cpu, inputs=inputs, expected={}, last={"y": last})
    content(f"running/{op.lower()}_{what}", OK, partial(indexed, op, index, updates, **attributes), act=act)


for what, wild in WILD.items():
    case(what, "Gather", np.array([wild, 4]), 14, axis=0)
    case(what, "GatherElements", np.array([[wild, 0, 4]]), 14, axis=0)
    case(what, "GatherND", np.array([[wild, wild], [4, 2]]), 14)
    # an element that no update has to touch: past the end of x lies other memory, not the last row
    case(what, "ScatterND", np.array([[wild], [0]]), 14, np.full((2, 3), 99, np.float32))
    case(what, "ScatterElements", np.array([[wild, 0, 0]]), 14, np.full((1, 3), 99, np.float32), axis=0)
    case(f"{what}_added", "ScatterND", np.array([[wild], [4]]), 24, np.full((2, 3), 10, np.float32), reduction="add")


def one_hot(depths: np.ndarray) -> bytes:
    return model(
        [node("OneHot", ["i", "d", "v"], ["y"], name="n")],
        [value("i", depths.shape, TensorProto.INT64)],
        weights={"d": np.array(3), "v": np.array([0, 1], np.float32)},
    ).SerializeToString()


def reversed_(lengths: np.ndarray) -> bytes:
    made = node("ReverseSequence", ["x", "i"], ["y"], name="n", batch_axis=1, time_axis=0)
    return model([made], [value("x", W.shape), value("i", lengths.shape, TensorProto.INT64)]).SerializeToString()


def lstm(lengths: np.ndarray) -> bytes:
    weights = {"w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    made = node("LSTM", ["x", "w", "r", "", "i"], ["y"], name="n", hidden_size=2)
    inputs = [value("x", (4, 2, 3)), value("i", lengths.shape, TensorProto.INT32)]
    return model([made], inputs, weights=weights).SerializeToString()


def resized(points: np.ndarray) -> bytes:
    inputs = [value("x", (1, 1, 5, 3)), value("g", points.shape)]
    return model([node("GridSample", ["x", "g"], ["y"], name="n")], inputs).SerializeToString()


for what, wild in WILD.items():
    i = np.array([wild, 2])
    act = partial(run_cpu, inputs={"i": i}, expected={}, last={"y": 1})
    content(f"running/onehot_{what}", OK, partial(one_hot, i), act=act)
    lengths = np.array([wild, wild, 1])
    act = partial(run_cpu, inputs={"x": W, "i": lengths}, expected={}, last={"y": 14})
    content(f"running/reversesequence_{what}", OK, partial(reversed_, lengths), act=act)
for what, length in {"longer": 99, "negative": -1, "largest": (1 << 31) - 1, "least": -(1 << 31)}.items():
    i32 = np.array([length, 2], np.int32)
    act = partial(run_cpu, inputs={"x": np.ones((4, 2, 3), np.float32), "i": i32}, expected={}, last={"y": 0})
    content(f"running/lstm_length_{what}", OK, partial(lstm, i32), act=act)
for what, number in {
    "nan": np.nan,
    "infinity": np.inf,
    "minus_infinity": -np.inf,
    "1e30": 1e30,
    "least": -3.4e38,
}.items():
    grid = np.full((1, 2, 2, 2), number, np.float32)
    grid[0, 1, 1] = 0  # the middle
    act = partial(run_cpu, inputs={"x": W.reshape(1, 1, 5, 3), "g": grid}, expected={}, last={"y": 7})
    content(f"running/gridsample_{what}", OK, partial(resized, grid), act=act)
