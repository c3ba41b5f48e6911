"""Functions that call each other without end, or so often that inlining them would never be over."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import onnx
from onnx import helper

from tests.hostile.corpus import OK, listed
from tests.onnx_builders import model, node, value

OPSET = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
X = value("x")


def function(name: str, callees: Sequence[str], op: str = "Identity", **options: object) -> onnx.FunctionProto:
    """One input, one output: the callees one after the other, or ``op`` where there are none."""
    names = ["a", *(f"b{k}" for k in range(1, max(len(callees), 1))), "z"]
    nodes = [
        node(callee or op, [i], [o], domain="f" if callee else "", name=f"{name}.{k}")
        for k, (callee, i, o) in enumerate(zip(callees or [""], names, names[1:], strict=False))
    ]
    return helper.make_function("f", name, ["a"], ["z"], nodes, OPSET, **options)


def calling(functions: Sequence[onnx.FunctionProto], callee: str = "f0", **attributes: object) -> onnx.ModelProto:
    call = node(callee, ["x"], ["y"], domain="f", name="call", **attributes)
    return model([call], [X], functions=functions, domains=["f"])


def tower(depth: int, times: int) -> onnx.ModelProto:
    """Each function calls the next one so many times."""
    levels = [function(f"f{k}", [f"f{k + 1}"] * times) for k in range(depth)]
    return calling([*levels, function(f"f{depth}", [])])


def in_a_branch(callee: str) -> onnx.FunctionProto:
    """A function that calls ``callee`` only in a subgraph of a subgraph."""
    inner = node(callee, ["a"], ["r"], domain="f")
    for level in range(3):
        graph = helper.make_graph([inner], f"g{level}", [], [onnx.ValueInfoProto(name="r")])
        inner = node("If", ["c"], ["r"], then_branch=graph, else_branch=graph)
    constant = node("Constant", [], ["c"], value=helper.make_tensor("c", onnx.TensorProto.BOOL, [], [True]))
    return helper.make_function("f", "f0", ["a"], ["r"], [constant, inner], OPSET)


def long_names(depth: int, letters: int, nodes: int) -> onnx.ModelProto:
    """Names of nodes that would be joined to a path of ``depth * letters`` letters for each of the innermost nodes."""
    levels = [function(f"f{k}", [f"f{k + 1}"]) for k in range(depth)]
    for level in levels:
        level.node[0].name = "n" * letters
    last = function(f"f{depth}", [])
    names = ["a", *(f"v{k}" for k in range(nodes - 1)), "z"]
    del last.node[:]
    last.node.extend(node("Neg", [i], [o], name=f"n{o}") for i, o in itertools.pairwise(names))
    return calling([*levels, last])


def with_attribute(**given: object) -> onnx.ModelProto:
    made = function("f0", [], "Softmax", attributes=["axis"])
    reference = made.node[0].attribute.add(name="axis", ref_attr_name="axis", type=onnx.AttributeProto.INT)
    assert reference.ref_attr_name
    return calling([made], **given)


listed("functions", [
    ("calls_itself", "GPC3019", lambda: calling([function("f0", ["f0"])]), "'f0'"),
    ("calls_itself_through_three", "GPC3019", lambda: calling([
        function("f0", ["f1"]), function("f1", ["f2"]), function("f2", ["f0"])]), "'f"),
    ("calls_itself_in_a_branch", "GPC3019", lambda: calling([in_a_branch("f0")]), "'f0'"),
    ("calls_itself_and_nobody_calls_it", "GPC3019", lambda: model([node("Relu", ["x"], ["y"])], [X], functions=[
        function("f0", ["f0"])], domains=["f"]), "'f0'"),
    ("billion_laughs_2_40", "GPC4006", lambda: tower(40, 2)),
    ("billion_laughs_10_9", "GPC4006", lambda: tower(9, 10)),
    ("billion_laughs_2_18", "GPC4006", lambda: tower(18, 2)),
    ("billion_laughs_2_3000", "GPC4006", lambda: tower(3000, 2)),
    ("wide_and_flat", "GPC4006", lambda: tower(2, 400)),
    ("depth_5000", "GPC4006", lambda: tower(5000, 1)),
    ("depth_90", OK, lambda: tower(90, 1)),
    ("two_to_the_10", OK, lambda: tower(10, 2)),
    ("paths_of_long_names", OK, lambda: long_names(90, 10_000, 2000)),
    ("twice", "GPC3011", lambda: calling([function("f0", []), function("f0", [])]), "'f0'"),
    ("named_as_an_operator", OK, lambda: model([node("Relu", ["x"], ["y"])], [X], functions=[
        helper.make_function("", "Relu", ["a"], ["z"], [node("Neg", ["a"], ["z"])], OPSET)])),
    ("too_many_inputs", "GPC3013", lambda: model([node("f0", ["x", "x"], ["y"], domain="f", name="call")], [X],
        functions=[function("f0", [])], domains=["f"]), "'call'"),
    ("too_many_outputs", "GPC3013", lambda: model([node("f0", ["x"], ["y", "z"], domain="f", name="call")], [X],
        functions=[function("f0", [])], domains=["f"]), "'call'"),
    ("no_inputs_given", "GPC3013", lambda: model([node("f0", [], ["y"], domain="f", name="call")], [X],
        functions=[function("f0", [])], domains=["f"]), "'call/f0.0'"),
    ("unknown_attribute", "GPC3014", lambda: calling([function("f0", [])], alpha=1.0), "'call'"),
    ("missing_attribute", "GPC3014", lambda: with_attribute(), "'call'"),
    ("attribute_of_another_type", "GPC3014", lambda: with_attribute(axis="one"), "'call/f0.0'"),
    ("attribute_out_of_range", "GPC3101", lambda: with_attribute(axis=1 << 62), "'call/f0.0'"),
    ("unknown_callee", "GPC4001", lambda: calling([function("f0", ["f9"])]), "'call/f0.0'"),
    ("without_an_opset", "GPC3016", lambda: calling([helper.make_function(
        "f", "f0", ["a"], ["z"], [node("Neg", ["a"], ["z"])], [])])),
    ("of_opset_2_62", "GPC4001", lambda: calling([helper.make_function(
        "f", "f0", ["a"], ["z"], [node("Neg", ["a"], ["z"])], [helper.make_opsetid("", 1 << 62)])])),
    ("output_not_computed", "GPC3012", lambda: calling([helper.make_function(
        "f", "f0", ["a"], ["q"], [node("Neg", ["a"], ["z"])], OPSET)]), "'call/q'"),
    ("reads_the_caller", "GPC3012", lambda: calling([helper.make_function(
        "f", "f0", ["a"], ["z"], [node("Add", ["a", "x"], ["z"], name="n")], OPSET)]), "'call/n'"),
    ("inputs_of_one_name", "GPC3011", lambda: model([node("f0", ["x", "x"], ["y"], domain="f", name="call")], [X],
        functions=[helper.make_function("f", "f0", ["a", "a"], ["z"], [node("Neg", ["a"], ["z"])], OPSET)],
        domains=["f"]), "'f0'"),
    ("cycle_inside", "GPC3018", lambda: calling([helper.make_function(
        "f", "f0", ["a"], ["z"], [node("Add", ["a", "z"], ["z"], name="n")], OPSET)]), "'call/n'"),
])  # fmt: skip
