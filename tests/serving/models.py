"""Small models for the server's tests, each with a numpy twin where a test compares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.onnx_builders import model, node, value

RNG = np.random.default_rng(7)
W = RNG.standard_normal((5, 3)).astype(np.float32)


def save(proto: onnx.ModelProto, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, path)
    return path


def mlp(weights: np.ndarray = W) -> onnx.ModelProto:
    """Rows are independent: x[n,5] -> relu(x @ w)[n,3]."""
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])]
    return model(nodes, [value("x", ["n", 5])], [value("y", ["n", 3])], {"w": weights})


def mlp_of(x: np.ndarray, weights: np.ndarray = W) -> np.ndarray:
    return np.maximum(x @ weights, 0)


def centred() -> onnx.ModelProto:
    """Rows depend on each other: x - mean over the batch."""
    axes = np.array([0])
    nodes = [node("ReduceMean", ["x", "axes"], ["m"], keepdims=1), node("Sub", ["x", "m"], ["y"])]
    return model(nodes, [value("x", ["n", 5])], [value("y", ["n", 5])], {"axes": axes})


def every_type() -> onnx.ModelProto:
    """One input and output of each number type of the protocol, a copy of it; fixed shapes."""
    kinds = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]
    kinds += ["FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE"]
    pairs = [(f"in_{kind}", f"out_{kind}", getattr(TensorProto, kind)) for kind in kinds]
    nodes = [node("Identity", [a], [b]) for a, b, _ in pairs]
    inputs = [value(a, [2, 3], kind) for a, _, kind in pairs]
    return model(nodes, inputs, [value(b, [2, 3], kind) for _, b, kind in pairs])


def texts() -> onnx.ModelProto:
    """Texts in, the same out."""
    nodes = [node("Identity", ["t"], ["u"])]
    return model(nodes, [value("t", [4], TensorProto.STRING)], [value("u", [4], TensorProto.STRING)])


def reciprocal() -> onnx.ModelProto:
    """1 / x, which is infinite at 0."""
    return model([node("Reciprocal", ["x"], ["y"])], [value("x", [3])], [value("y", [3])])


def stateful() -> onnx.ModelProto:
    """A running sum: its state is an input and an output."""
    nodes = [node("Add", ["x", "state"], ["stateN"]), node("Identity", ["stateN"], ["y"])]
    return model(nodes, [value("x", [2, 3]), value("state", [2, 3])], [value("y", [2, 3]), value("stateN", [2, 3])])


def sequence() -> onnx.ModelProto:
    tensors = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    return model([node("SequenceConstruct", ["x", "x"], ["s"])], [value("x", [2])], [tensors])


def boxes() -> onnx.ModelProto:
    """The positions of what is not zero: its size depends on values, and with an open input each size is compiled."""
    nodes = [node("NonZero", ["x"], ["y"])]
    return model(nodes, [value("x", ["n", 4])], [value("y", None, TensorProto.INT64)])
