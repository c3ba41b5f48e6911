"""Control flow that does not end, nests without bound, or whose body does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.hostile.corpus import OK, listed
from tests.hostile.shapes import HUGE
from tests.onnx_builders import model, node, value

X = value("x")


def info(name: str) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name)


def graph(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str], weights=()
) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "body", [info(i) for i in inputs], [info(o) for o in outputs], list(weights))


def body(nodes: Sequence[onnx.NodeProto] | None = None, weights=()) -> onnx.GraphProto:
    """s' = s + s, for ever."""
    nodes = [node("Add", ["s", "s"], ["t"], name="double")] if nodes is None else nodes
    return graph([node("Identity", ["c"], ["d"]), *nodes], ["i", "c", "s"], ["d", "t"], weights)


def loop(
    trips: Any, inner: onnx.GraphProto | None = None, start: str = "x", condition: bool | None = None
) -> onnx.ModelProto:
    weights: dict[str, np.ndarray] = {}
    if trips is not None:
        weights["m"] = np.array(trips)
    if condition is not None:
        weights["k"] = np.array(condition)
    made = node(
        "Loop",
        ["m" if trips is not None else "", "k" if condition is not None else "", start],
        ["y"],
        name="loop",
        body=inner or body(),
    )
    return model([made], [X], weights=weights)


def loops_in_loops(depth: int, trips: int) -> onnx.ModelProto:
    inner = node("Add", ["s", "s"], ["t"])
    for _ in range(depth):
        inner = node("Loop", ["m", "", "s"], ["t"], body=body([inner]))
    made = node("Loop", ["m", "", "x"], ["y"], name="loop", body=body([inner]))
    return model([made], [X], weights={"m": np.array(trips)})


def ifs(depth: int, decided: bool = True) -> onnx.ModelProto:
    """A choice in a choice in a choice."""
    inner, other = node("Neg", ["x"], ["r"]), graph([node("Abs", ["x"], ["r"])], [], ["r"])
    for _ in range(depth):
        inner = node("If", ["c"], ["r"], name="choice", then_branch=graph([inner], [], ["r"]), else_branch=other)
    weights = {"c": np.array(True)} if decided else {}
    inputs = [X] if decided else [X, value("c", (), TensorProto.BOOL)]
    return model([inner, node("Relu", ["r"], ["y"])], inputs, weights=weights)


def scan(count: int, length: int, **attributes: Any) -> onnx.ModelProto:
    inner = graph([node("Add", ["s", "e"], ["t"]), node("Neg", ["t"], ["o"])], ["s", "e"], ["t", "o"])
    made = node("Scan", ["x", "z"], ["y", "w"], name="scan", body=inner, num_scan_inputs=count, **attributes)
    return model([made], [value("x", ()), value("z", (length,))])


def doubled() -> onnx.GraphProto:
    """s' = s beside s: a constant of 2^62 elements after 62 steps."""
    return body([node("Concat", ["s", "s"], ["t"], axis=0, name="double")])


def heavy(nbytes: int) -> onnx.GraphProto:
    """A body with a large weight of its own, as bytes and as numbers."""
    numbers = np.ones(nbytes // 8, np.float32)
    raw = numpy_helper.from_array(numbers, "w")
    listed_ = helper.make_tensor("v", TensorProto.FLOAT, numbers.shape, numbers)
    largest = [node("ReduceMax", [w], [f"{w}m"], keepdims=0) for w in ("w", "v")]
    return body([*largest, node("Sum", ["s", "wm", "vm"], ["t"])], [raw, listed_])


def of_scope(outer: str) -> onnx.GraphProto:
    return graph(
        [node("Identity", ["c"], ["d"]), node("Add", ["s", outer], ["t"], name="n")], ["i", "c", "s"], ["d", "t"]
    )


listed("loops", [
    ("trips_2_62", "GPC4001", lambda: loop(HUGE), "'loop'"),
    ("no_bound_at_all", "GPC4001", lambda: loop(None, condition=True), "'loop'"),
    ("trips_negative", OK, lambda: loop(-5)),
    ("trips_least", OK, lambda: loop(-(1 << 63))),
    ("trips_0", OK, lambda: loop(0)),
    ("trips_of_two_elements", "GPC3101", lambda: loop([3, 4]), "'loop'"),
    ("trips_of_a_float", "GPC3015", lambda: loop(3.5), "'loop'"),
    ("condition_of_a_number", "GPC3015", lambda: loop(3, condition=7), "'loop'"),
    ("loops_in_loops_of_few", "GPC4006", lambda: loops_in_loops(20, 2)),
    ("constant_doubled_for_ever", "GPC4006", lambda: model([
        node("Loop", ["m", "", "w"], ["y"], name="loop", body=doubled())], [X],
        weights={"m": np.array(4000), "w": np.ones(1000, np.float32)}), "'loop/double'"),
    ("input_doubled_for_ever", "GPC4006", lambda: model([
        node("Loop", ["m", "", "x"], ["y"], name="loop", body=doubled())], [X], weights={"m": np.array(4000)})),
    ("body_with_a_large_weight", OK, lambda: loop(200, heavy(1 << 20))),
    ("body_with_a_long_name", OK, lambda: loop(1000, body([node("Neg", ["s"], ["t"], name="n" * 10**6)]))),
    ("body_of_other_inputs", "GPC3013", lambda: loop(3, graph([node("Identity", ["c"], ["d"])], ["i", "c"], ["d", "c"])),
        "'loop'"),
    ("body_of_too_few_outputs", "GPC3101", lambda: loop(3, graph([], ["i", "c", "s"], ["c"])), "'loop'"),
    ("body_without_outputs", "GPC3101", lambda: loop(3, graph([], ["i", "c", "s"], [])), "'loop'"),
    ("body_whose_output_is_not_computed", "GPC3012", lambda: loop(3, graph([], ["i", "c", "s"], ["c", "q"])), "'loop/q'"),
    ("body_that_reads_itself", "GPC3018", lambda: loop(3, body([node("Add", ["s", "t"], ["t"], name="n")])), "'loop/n'"),
    ("body_that_reads_the_result", "GPC3018", lambda: loop(3, of_scope("y")), "'loop'"),
    ("body_that_reads_nothing_there", "GPC3012", lambda: loop(3, of_scope("nowhere")), "'loop/n'"),
    ("body_that_hides_a_name", "GPC3011", lambda: loop(3, body([node("Neg", ["s"], ["i"]), node("Neg", ["s"], ["t"])])),
        "'loop/i'"),
    ("body_inputs_of_one_name", "GPC3011", lambda: loop(3, graph([], ["i", "c", "c"], ["c", "c"])), "'c'"),
    ("body_weight_twice", "GPC3011", lambda: loop(3, body(weights=[helper.make_tensor("w", 1, [1], [1.0])] * 2)), "'w'"),
    ("body_that_is_missing", "GPC3014", lambda: model([node("Loop", ["", "", "x"], ["y"], name="loop")], [X]), "'loop'"),
    ("body_that_is_a_number", "GPC3014", lambda: model([
        node("Loop", ["", "", "x"], ["y"], name="loop", body=3)], [X]), "'loop'"),
    ("ifs_25_deep", OK, lambda: ifs(25)),
    ("ifs_25_deep_undecided", OK, lambda: ifs(25, decided=False)),
    ("if_of_two_conditions", "GPC3101", lambda: model([
        node("If", ["c"], ["y"], name="n", then_branch=graph([node("Neg", ["x"], ["r"])], [], ["r"]),
             else_branch=graph([node("Neg", ["x"], ["r"])], [], ["r"]))], [X], weights={"c": np.array([True, False])}), "'n'"),
    ("if_branch_with_inputs", "GPC3013", lambda: model([
        node("If", ["c"], ["y"], name="n", then_branch=graph([node("Neg", ["q"], ["r"])], ["q"], ["r"]),
             else_branch=graph([node("Neg", ["x"], ["r"])], [], ["r"]))], [X], weights={"c": np.array(True)}), "'n'"),
    ("if_branches_of_other_counts", "GPC4001", lambda: model([
        node("If", ["c"], ["y"], name="n", then_branch=graph([node("Neg", ["x"], ["r"])], [], ["r", "x"]),
             else_branch=graph([node("Neg", ["x"], ["r"])], [], ["r"]))],
        [X, value("c", (), TensorProto.BOOL)]), "'n'"),
    ("if_branch_of_no_outputs", "GPC4001", lambda: model([
        node("If", ["c"], ["y"], name="n", then_branch=graph([], [], []), else_branch=graph([], [], []))], [X],
        weights={"c": np.array(True)}), "'n'"),
    ("scan_2_40_steps", "GPC4001", lambda: scan(1, 1 << 40), "'scan'"),
    ("scan_of_nothing", "GPC3101", lambda: scan(0, 5), "'scan'"),
    ("scan_of_more_than_there_is", "GPC3101", lambda: scan(7, 5), "'scan'"),
    ("scan_of_2_62", "GPC3101", lambda: scan(HUGE, 5), "'scan'"),
    ("scan_of_least", "GPC3101", lambda: scan(-(1 << 63), 5), "'scan'"),
    ("scan_axis_2_62", "GPC3101", lambda: scan(1, 5, scan_input_axes=[HUGE]), "'scan'"),
    ("scan_too_many_axes", "GPC3101", lambda: scan(1, 5, scan_input_axes=[0, 0]), "'scan'"),
    ("scan_output_axis", "GPC3101", lambda: scan(1, 5, scan_output_axes=[9]), "'scan'"),
    ("scan_direction_2_62", OK, lambda: scan(1, 5, scan_input_directions=[HUGE])),
])  # fmt: skip
