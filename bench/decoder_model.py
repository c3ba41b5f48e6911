"""A decoder as exporters write it, with keys and values as inputs and outputs: Llama's layers, with grouped heads.

Each ``past_key_values.N.key`` [B, groups, P, h] becomes ``present.N.key`` [B, groups, P + S, h] by a Concat. Weights are random.
"""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOATS, INTEGERS = TensorProto.FLOAT, TensorProto.INT64


@dataclass(frozen=True)
class Sizes:
    layers: int = 2
    heads: int = 6
    groups: int = 2  # heads of keys and values
    size: int = 8  # of a head; even
    inner: int = 40
    vocabulary: int = 97
    positions: int = 64
    tied: bool = False  # the embedding is the last product's right side too

    @property
    def width(self) -> int:
        return self.heads * self.size


class _Graph:
    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.random = np.random.default_rng(seed)

    def emit(self, op: str, *inputs: str, name: str = "", **attributes: object) -> str:
        result = name or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [result], name=f"{op}_{len(self.nodes)}", **attributes))
        return result

    def constant(self, value: object, dtype: type = np.int64) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def weight(self, name: str, *shape: int, scale: float | None = None) -> str:
        array = self.random.standard_normal(shape, np.float32) * np.float32(
            shape[0] ** -0.5 if scale is None else scale
        )
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def norm(self, x: str, name: str, width: int) -> str:
        self.weights.append(numpy_helper.from_array(np.ones(width, np.float32), name))
        mean = self.emit("ReduceMean", self.emit("Mul", x, x), self.constant([-1]), keepdims=1)
        root = self.emit("Sqrt", self.emit("Add", mean, self.constant(1e-5, np.float32)))
        return self.emit("Mul", self.emit("Div", x, root), name)

    def slice(self, x: str, start: int, end: int, axis: int) -> str:
        return self.emit("Slice", x, *(self.constant([n]) for n in (start, end, axis)))


def decoder(s: Sizes, seed: int = 0, *, mask: bool = False) -> onnx.ModelProto:
    """The model. With ``mask``, an ``attention_mask`` [B, P + S] of ones and zeros too."""
    g = _Graph(seed)
    batch, length, past = "batch_size", "sequence_length", "past_sequence_length"
    inputs = [helper.make_tensor_value_info("input_ids", INTEGERS, (batch, length))]
    if mask:
        inputs.append(helper.make_tensor_value_info("attention_mask", INTEGERS, (batch, f"{past} + {length}")))
    outputs = [helper.make_tensor_value_info("logits", FLOATS, (batch, length, s.vocabulary))]
    for n in range(s.layers):
        for kind in ("key", "value"):
            shape = (batch, s.groups, past, s.size)
            inputs.append(helper.make_tensor_value_info(f"past_key_values.{n}.{kind}", FLOATS, shape))
            total = (batch, s.groups, f"{past} + {length}", s.size)
            outputs.append(helper.make_tensor_value_info(f"present.{n}.{kind}", FLOATS, total))
    table = g.weight("embed", s.vocabulary, s.width, scale=s.width**-0.5 if s.tied else 1.0)
    angles = np.outer(np.arange(s.positions), 10_000.0 ** -(np.arange(0, s.size, 2) / s.size))
    angles = np.concatenate([angles, angles], 1)
    cosines, sines = g.constant(np.cos(angles), np.float32), g.constant(np.sin(angles), np.float32)

    def extent(x: str, axis: int) -> str:
        return g.emit("Gather", g.emit("Shape", x), g.constant(axis))

    valid, new = extent("past_key_values.0.key", 2), extent("input_ids", 1)
    total = g.emit("Add", valid, new)
    keys = g.emit("Range", g.constant(0), total, g.constant(1))
    queries = g.emit("Range", valid, total, g.constant(1))
    turn = g.emit("Gather", cosines, queries), g.emit("Gather", sines, queries)
    seen = g.emit("LessOrEqual", keys, g.emit("Unsqueeze", queries, g.constant([1])))  # [S, P + S]
    if mask:
        given = g.emit("Cast", g.emit("Unsqueeze", "attention_mask", g.constant([1, 2])), to=TensorProto.BOOL)
        seen = g.emit("And", seen, given)
    x = g.emit("Gather", table, "input_ids")
    for n in range(s.layers):
        x = _layer(g, s, n, x, seen, turn)
    head = g.emit("Transpose", table, perm=(1, 0)) if s.tied else g.weight("head", s.width, s.vocabulary)
    logits = g.emit("MatMul", g.norm(x, "norm", s.width), head)
    g.emit("Identity", logits, name="logits")
    graph = helper.make_graph(g.nodes, "decoder", inputs, outputs, g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _layer(g: _Graph, s: Sizes, n: int, x: str, seen: str, turn: tuple[str, str]) -> str:
    y = g.norm(x, f"layers.{n}.norm1", s.width)

    def heads(name: str, count: int) -> str:
        product = g.emit("MatMul", y, g.weight(f"layers.{n}.{name}", s.width, count * s.size))
        return g.emit("Transpose", g.emit("Reshape", product, g.constant([0, 0, count, s.size])), perm=(0, 2, 1, 3))

    def turned(h: str) -> str:
        halves = g.slice(h, 0, s.size // 2, 3), g.slice(h, s.size // 2, s.size, 3)
        other = g.emit("Concat", g.emit("Neg", halves[1]), halves[0], axis=3)
        return g.emit("Add", g.emit("Mul", h, turn[0]), g.emit("Mul", other, turn[1]))

    query, key, value = turned(heads("q", s.heads)), turned(heads("k", s.groups)), heads("v", s.groups)
    whole = {}
    for kind, rows in (("key", key), ("value", value)):
        present = g.emit("Concat", f"past_key_values.{n}.{kind}", rows, axis=2, name=f"present.{n}.{kind}")
        wide = g.emit("Unsqueeze", present, g.constant([2]))
        shape = g.emit("Shape", present)
        parts = [g.emit("Gather", shape, g.constant([axis])) for axis in (0, 2)]
        full = [parts[0], g.constant([s.groups]), g.constant([s.heads // s.groups]), parts[1], g.constant([s.size])]
        wide = g.emit("Expand", wide, g.emit("Concat", *full, axis=0))
        joined = [parts[0], g.constant([s.heads]), parts[1], g.constant([s.size])]
        whole[kind] = g.emit("Reshape", wide, g.emit("Concat", *joined, axis=0))
    scores = g.emit("MatMul", query, g.emit("Transpose", whole["key"], perm=(0, 1, 3, 2)))
    scores = g.emit("Mul", scores, g.constant(s.size**-0.5, np.float32))
    scores = g.emit("Where", seen, scores, g.constant(-1e30, np.float32))
    attended = g.emit("MatMul", g.emit("Softmax", scores, axis=-1), whole["value"])
    attended = g.emit("Reshape", g.emit("Transpose", attended, perm=(0, 2, 1, 3)), g.constant([0, 0, s.width]))
    x = g.emit("Add", x, g.emit("MatMul", attended, g.weight(f"layers.{n}.o", s.width, s.width)))
    y = g.norm(x, f"layers.{n}.norm2", s.width)
    gate = g.emit("MatMul", y, g.weight(f"layers.{n}.gate", s.width, s.inner))
    gate = g.emit("Mul", gate, g.emit("Sigmoid", gate))
    up = g.emit("MatMul", y, g.weight(f"layers.{n}.up", s.width, s.inner))
    return g.emit("Add", x, g.emit("MatMul", g.emit("Mul", gate, up), g.weight(f"layers.{n}.down", s.inner, s.width)))
