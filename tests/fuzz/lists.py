"""Draws sequences: tensors put into one, taken out, joined again. A sequence is no ``Value``: its nodes are one group."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.draft import ALL, Draft, Value
from tests.fuzz.kinds import draws
from tests.fuzz.movement import SOLID


class Group:
    """Nodes as they are put together, with the values and the initialisers that they read."""

    def __init__(self, d: Draft) -> None:
        self.d = d
        self.nodes: list[onnx.NodeProto] = []
        self.used: list[Value] = []
        self.weights: list[onnx.TensorProto] = []

    def value(self, v: Value) -> str:
        if v not in self.used:
            self.used.append(v)
        return v.name

    def constant(self, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, self.d.fresh()))
        return self.weights[-1].name

    def node(self, op: str, operands: list[str], **attributes: object) -> str:
        name = self.d.fresh()
        count = len(self.d.nodes) + len(self.nodes)
        self.nodes.append(helper.make_node(op, operands, [name], name=f"{self.d.prefix}n{count}", **attributes))
        return name

    def add(self, *, levels: bool = False) -> list[Value] | None:
        return self.d.group(self.nodes, self.used, self.weights, levels=levels)


@draws(1.2)
def sequence(d: Draft) -> None:
    """Split or constructed; some inserted and erased; then one of them, all of them joined, or their number."""
    x = d.pick(ALL, SOLID, lambda v: min(v.shape) > 0 and max(v.shape) < 8)
    if x is None:
        return
    g, rank, axis = Group(d), x.rank, d.axis(x.rank)
    extent = x.shape[axis]
    if d.chance(0.5):
        if d.chance(0.5):
            kept = d.number(0, 2)
            made, count = g.node("SplitToSequence", [g.value(x)], axis=axis, keepdims=kept), extent
            rank -= 1 - kept
        else:
            part = d.number(1, extent + 1)
            sizes = np.array(part) if d.chance(0.5) else np.diff([0, *range(part, extent, part), extent])
            made = g.node("SplitToSequence", [g.value(x), g.constant(sizes.astype(np.int64))], axis=axis)
            count = -(-extent // part)
    else:
        like = [v for v in d.values if v.dtype == x.dtype and v.shape == x.shape]
        parts = [x, *(d.one(like) for _ in range(d.number(0, 3)))]
        made, count = g.node("SequenceConstruct", [g.value(v) for v in parts]), len(parts)

    def place(low: int, high: int) -> str:
        return g.constant(np.array(d.number(low, high), d.one((np.int64, np.int32))))

    for _ in range(d.number(0, 3)):
        if d.chance(0.5) and count > 1:
            made = g.node("SequenceErase", [made, *([place(-count, count)] if d.chance(0.7) else [])])
            count -= 1
        else:
            one = g.node("SequenceAt", [made, place(-count, count)])
            made = g.node("SequenceInsert", [made, one, *([place(-count, count + 1)] if d.chance(0.7) else [])])
            count += 1
    end = d.one(("SequenceAt", "SequenceLength", "ConcatFromSequence", "ConcatFromSequence"))
    if end == "SequenceAt":
        g.node(end, [made, place(-count, count)])
    elif end == "SequenceLength":
        g.node(end, [made])
    else:
        new = int(rank == 0 or d.chance(0.4))
        g.node(end, [made], axis=d.axis(rank + new), new_axis=new)
    g.add()


@draws(0.4)
def optional(d: Draft) -> None:
    """A value made optional, asked for, taken out again; or none that is asked for."""
    x = d.pick(ALL)
    if x is None or d.opset < 18:
        return
    g = Group(d)
    made = g.node("Optional", [g.value(x)])
    g.node(d.one(("OptionalGetElement", "OptionalHasElement")), [made])
    g.add()
