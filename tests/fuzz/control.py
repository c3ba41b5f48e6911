"""Draws control flow and local functions: If, Loop and Scan with small bodies that read what is around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.draft import BOOL, F32, TWINS, Draft, Value, names_read, onnx_type
from tests.fuzz.kinds import KINDS, draws


def _body(d: Draft, name: str, own: Sequence[Value], steps: int) -> Draft:
    """A draft for a body: ``own`` are its inputs, and it sees the values around."""
    inner = Draft(d.rng, d.opset, d.main, largest=d.largest, prefix=f"{d.prefix}{name}", refused=d.refused)
    around = [v for v in d.values if v.dtype == F32 and v.array.size]
    inner.values = [*d.some(around)[:2], *own] if around else list(own)
    smooth = [kind.function for kind in KINDS.values() if kind.smooth]
    for _ in range(steps):
        d.one(smooth)(inner)
    return inner


def _towards(d: Draft, inner: Draft, like: Value) -> Value:
    """A value of the body that has the type of ``like`` and stays small: the next state of a loop."""
    last = next(
        (v for v in reversed(inner.values) if v.dtype == like.dtype and v.shape == like.shape and v is not like), like
    )
    mixed = inner.add("Mul", [last, inner.constant(np.array(0.5, like.dtype))])
    bounded = inner.add("Tanh", mixed or [last])
    return bounded[0] if bounded else last


def _graph(
    inner: Draft, name: str, inputs: Sequence[tuple[str, np.ndarray]], outputs: Sequence[Value]
) -> onnx.GraphProto:
    info = helper.make_tensor_value_info
    used = inner.used_names() | {v.name for v in outputs}
    return helper.make_graph(
        inner.nodes,
        name,
        [info(n, onnx_type(a.dtype), a.shape) for n, a in inputs],
        [info(v.name, onnx_type(v.dtype), v.shape) for v in outputs],
        [w for w in inner.weights if w.name in used],
    )


def _captured(d: Draft, bodies: Sequence[onnx.GraphProto]) -> list[Value]:
    names = {name for body in bodies for node in body.node for name in names_read(node)}
    return [v for v in d.values if v.name in names]


def _own(d: Draft, name: str, array: np.ndarray) -> Value:
    return Value(f"{d.prefix}{name}", array, (array,) * TWINS)


@draws(1.5)
def condition(d: Draft) -> None:
    """If, decided at compile time or at run time. Both branches give one shape."""
    if d.prefix:
        return
    x = d.pick((F32,))
    if x is None:
        return
    mark = f"b{len(d.nodes)}"
    graphs, captured = [], []
    for side in ("t", "e"):
        inner = _body(d, f"{mark}{side}", [], d.number(0, 3))
        inner.values.append(x)
        result = _towards(d, inner, x)
        if not inner.nodes:
            return
        graphs.append(_graph(inner, side, [], [result]))
    captured = list(dict.fromkeys([x, *_captured(d, graphs)]))
    flag = d.pick((BOOL,), where=lambda v: v.array.size == 1 and v.rank <= 1) if d.chance(0.4) else None
    flag = flag or d.data(np.array(d.chance(0.5)))
    node = helper.make_node(
        "If", [flag.name], [d.fresh()], name=f"n{len(d.nodes)}", then_branch=graphs[0], else_branch=graphs[1]
    )
    d.append(node, list(dict.fromkeys([flag, *captured])))


@draws(1.5)
def loop(d: Draft) -> None:
    """A known number of trips, or a condition that the counter decides; a state and what each trip gives."""
    if d.prefix:
        return
    x = d.pick((F32,), range(4))
    if x is None:
        return
    mark, trips = f"b{len(d.nodes)}", d.number(0 if d.chance(0.1) else 1, 5)
    counter, state = _own(d, f"{mark}i", np.array(0, np.int64)), _own(d, f"{mark}s", x.array)
    inner = _body(d, mark, [state], d.number(1, 4))
    after = _towards(d, inner, state)
    going = f"{mark}go"
    outputs = [Value(going, np.array(True), ()), after]
    if d.chance(0.4):
        limit = inner.constant(np.array(d.number(0, 4), np.int64))
        inner.nodes.append(helper.make_node("Less", [counter.name, limit.name], [going]))
    else:
        inner.nodes.append(helper.make_node("Identity", [f"{mark}c"], [going]))
    scanned = d.chance(0.5)
    if scanned:
        copy = inner.add("Neg", [after])
        if not copy:
            return
        outputs.append(copy[0])
    inputs = [(counter.name, counter.array), (f"{mark}c", np.array(True)), (state.name, state.array)]
    body = _graph(inner, "body", inputs, outputs)
    count = d.constant(np.array(trips, np.int64))
    start = None
    if d.chance(0.5):
        begins = np.array(d.chance(0.9))  # known where something is scanned: how often sizes that
        start = d.constant(begins) if scanned else d.data(begins)
    node = helper.make_node(
        "Loop",
        [count.name, start.name if start else "", x.name],
        [d.fresh() for _ in outputs[1:]],
        name=f"n{len(d.nodes)}",
        body=body,
    )
    used = [count, x, *([start] if start else []), *_captured(d, [body])]
    d.append(node, list(dict.fromkeys(used)))


@draws(1.2)
def scan(d: Draft) -> None:
    """Over an axis of one or two values, either way, with a state or none."""
    if d.prefix:
        return
    x = d.pick((F32,), range(1, 5), lambda v: min(v.shape) > 0)
    if x is None:
        return
    axis = d.number(0, x.rank)
    if x.shape[axis] > 9:
        return
    mark = f"b{len(d.nodes)}"
    row = _own(d, f"{mark}r", np.take(x.array, 0, axis))
    stateful = d.chance(0.7)
    first = d.floats(*row.shape, dtype=F32) if stateful else None
    state = _own(d, f"{mark}s", first.array) if first else None
    inner = _body(d, mark, [row, *([state] if state else [])], d.number(1, 3))
    mixed = inner.add("Add", [row, state]) if state else inner.add("Neg", [row])
    if not mixed:
        return
    outputs = [_towards(d, inner, state)] if state else []
    copy = inner.add("Sin", [_towards(d, inner, row)])
    if not copy:
        return
    outputs.append(copy[0])
    inputs = [*([(state.name, state.array)] if state else []), (row.name, row.array)]
    body = _graph(inner, "body", inputs, outputs)
    attributes = {"scan_input_directions": [d.number(0, 2)]} if d.chance(0.5) else {}
    if axis or d.chance(0.3):
        attributes["scan_input_axes"] = [axis - (x.rank if d.chance(0.3) else 0)]
    if d.chance(0.4):
        attributes["scan_output_axes"] = [d.number(0, x.rank)]
    if d.chance(0.3):
        attributes["scan_output_directions"] = [1]
    operands = [*([first.name] if first else []), x.name]
    node = helper.make_node(
        "Scan",
        operands,
        [d.fresh() for _ in outputs],
        name=f"n{len(d.nodes)}",
        body=body,
        num_scan_inputs=1,
        **attributes,
    )
    used = [*([first] if first else []), x, *_captured(d, [body])]
    d.append(node, list(dict.fromkeys(used)))


@draws(0.5)
def function(d: Draft) -> None:
    """A call of a function that the model brings itself, with an attribute handed on; called again, it is the same."""
    if d.prefix:
        return
    x = d.pick((F32,))
    if x is None:
        return
    key = ("fuzz.local", "Blend")
    if key not in d.functions:
        scaled = helper.make_node("LeakyRelu", ["a"], ["scaled"])
        scaled.attribute.append(
            onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
        )
        nodes = [
            scaled,
            helper.make_node("Tanh", ["b"], ["small"]),
            helper.make_node("Add", ["scaled", "small"], ["c"]),
        ]
        opsets = [helper.make_opsetid("", d.opset)]
        d.functions[key] = helper.make_function("fuzz.local", "Blend", ["a", "b"], ["c"], nodes, opsets, ["slope"])
    like = [v for v in d.values if v.dtype == x.dtype and v.shape == x.shape]
    d.add("Blend", [x, d.one(like)], domain="fuzz.local", slope=d.one((0.125, 0.3, 2.0)))
