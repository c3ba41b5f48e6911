"""Graphs that are none: cycles, names twice or missing, operators and versions that do not exist, opsets of domains."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.hostile.corpus import OK, compile_cpu, listed, proto
from tests.onnx_builders import model, node, value

X = value("x")
RELU = node("Relu", ["x"], ["y"], name="act")


def changed(**fields: object) -> onnx.ModelProto:
    """The good model with fields of the model, or opset or IR version, replaced."""
    good = model([RELU], [X])
    for name, content in fields.items():
        if name == "opset":
            good.opset_import[0].version = content
        elif content is None:
            good.ClearField(name)
        else:
            setattr(good, name, content)
    return good


def edited(edit) -> onnx.ModelProto:
    good = model([RELU], [X])
    edit(good)
    return good


def ring(length: int) -> onnx.ModelProto:
    nodes = [node("Add", ["x", f"v{(k + 1) % length}"], [f"v{k}"], name=f"n{k}") for k in range(length)]
    return model([*nodes, node("Neg", ["x"], ["y"])], [X])


def chain(length: int, op: str = "Neg", backwards: bool = False) -> onnx.ModelProto:
    names = ["x", *(f"v{k}" for k in range(length - 1)), "y"]
    nodes = [node(op, [a], [b], name=f"n{b}") for a, b in itertools.pairwise(names)]
    return model(nodes[::-1] if backwards else nodes, [X])


def one(op: str, inputs=("x",), outputs=("y",), weights=(), **attributes: object) -> onnx.ModelProto:
    return model([node(op, list(inputs), list(outputs), name="n", **attributes)], [X], weights=dict(weights))


I64 = np.zeros(3, np.int64)

listed(
    "graph",
    [
        ("opset_0", "GPC3016", lambda: changed(opset=0)),
        ("opset_negative", "GPC3016", lambda: changed(opset=-1)),
        ("opset_least", "GPC3016", lambda: changed(opset=-(1 << 63))),
        ("opset_999", "GPC4004", lambda: changed(opset=999)),
        ("opset_2_62", "GPC4004", lambda: changed(opset=1 << 62)),
        ("opset_missing", "GPC3016", lambda: edited(lambda m: m.ClearField("opset_import"))),
        ("opset_twice", "GPC3016", lambda: edited(lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 7)))),
        (
            "opset_of_another_domain_only",
            "GPC3016",
            lambda: edited(lambda m: setattr(m.opset_import[0], "domain", "a.b")),
        ),
        ("ir_0", "GPC3002", lambda: changed(ir_version=0)),
        ("ir_missing", "GPC3002", lambda: changed(ir_version=None)),
        ("ir_negative", "GPC3002", lambda: changed(ir_version=-7)),
        ("ir_999", "GPC3002", lambda: changed(ir_version=999)),
        ("no_graph", "GPC3002", lambda: changed(graph=None)),
        ("no_outputs", "GPC3010", lambda: edited(lambda m: m.graph.ClearField("output"))),
        ("no_nodes", "GPC3012", lambda: edited(lambda m: m.graph.ClearField("node")), "'y'"),
        ("nothing_at_all", "GPC3010", lambda: onnx.helper.make_model(onnx.GraphProto(name="g"), ir_version=8)),
        ("cycle_of_two", "GPC3018", lambda: ring(2), "'n0'"),
        ("cycle_of_two_thousand", "GPC3018", lambda: ring(2000), "'n0'"),
        ("node_reads_itself", "GPC3018", lambda: one("Relu", ["y"]), "'n'"),
        (
            "cycle_through_a_subgraph",
            "GPC3018",
            lambda: model(
                [
                    node(
                        "If",
                        ["c"],
                        ["a"],
                        name="choice",
                        then_branch=helper.make_graph(
                            [node("Neg", ["b"], ["t"])], "t", [], [onnx.ValueInfoProto(name="t")]
                        ),
                        else_branch=helper.make_graph(
                            [node("Neg", ["x"], ["e"])], "e", [], [onnx.ValueInfoProto(name="e")]
                        ),
                    ),
                    node("Relu", ["a"], ["b"]),
                    node("Neg", ["b"], ["y"]),
                ],
                [X],
                weights={"c": np.array(True)},
            ),
            "'choice'",
        ),
        ("input_nowhere", "GPC3012", lambda: one("Relu", ["q"]), "'n'"),
        ("output_nowhere", "GPC3012", lambda: one("Relu", outputs=["z"]), "'y'"),
        ("output_without_a_name", "GPC3012", lambda: edited(lambda m: setattr(m.graph.output[0], "name", ""))),
        ("value_twice", "GPC3011", lambda: model([RELU, node("Neg", ["x"], ["y"])], [X]), "'y'"),
        ("value_named_as_an_input", "GPC3011", lambda: model([node("Neg", ["x"], ["x"]), RELU], [X]), "'x'"),
        (
            "value_named_as_a_weight",
            "GPC3011",
            lambda: model([node("Neg", ["x"], ["w"]), RELU], [X], weights={"w": I64}),
            "'w'",
        ),
        (
            "two_outputs_of_a_node_of_one_name",
            "GPC3011",
            lambda: one("Split", outputs=["y", "y"], axis=1, num_outputs=2),
            "'y'",
        ),
        ("input_twice", "GPC3011", lambda: model([RELU], [X, X]), "'x'"),
        ("output_twice", "GPC3011", lambda: model([RELU], [X], ["y", "y"]), "'y'"),
        (
            "weight_twice",
            "GPC3011",
            lambda: model([RELU], [X], weights=[helper.make_tensor("w", 1, [1], [1.0])] * 2),
            "'w'",
        ),
        (
            "weight_without_a_name",
            "GPC3011",
            lambda: model([RELU], [X], weights=[helper.make_tensor("", 1, [1], [1.0])]),
        ),
        ("input_without_a_name", OK, lambda: model([RELU], [X, value("")])),
        ("input_without_a_type", "GPC3015", lambda: model([RELU], [onnx.ValueInfoProto(name="x")]), "'x'"),
        ("input_without_a_shape", "GPC2102", lambda: model([RELU], [value("x", None)]), "'x'"),
        ("input_of_open_shape", "GPC2102", lambda: model([RELU], [value("x", ["N", 3])]), "'x'"),
        ("input_of_negative_shape", "GPC3033", lambda: model([RELU], [value("x", [-5, 3])]), "'x'"),
        ("input_of_least_shape", "GPC3033", lambda: model([RELU], [value("x", [-(1 << 63), 3])]), "'x'"),
        ("input_of_2_62", "GPC3033", lambda: model([RELU], [value("x", [1 << 62])]), "'x'"),
        ("input_whose_size_wraps", "GPC3033", lambda: model([RELU], [value("x", [1 << 32, 1 << 32])]), "'x'"),
        ("input_of_no_and_2_62_elements", "GPC3033", lambda: model([RELU], [value("x", [0, 1 << 62])]), "'x'"),
        ("input_of_rank_300", "GPC3033", lambda: model([RELU], [value("x", [1] * 300)]), "'x'"),
        ("input_of_element_type_0", "GPC3030", lambda: model([RELU], [value("x", [3], 0)]), "'x'"),
        ("input_of_element_type_999", "GPC3030", lambda: model([RELU], [value("x", [3], 999)]), "'x'"),
        ("input_of_element_type_negative", "GPC3030", lambda: model([RELU], [value("x", [3], -3)]), "'x'"),
        ("input_of_type_complex", "GPC4001", lambda: model([RELU], [value("x", [3], TensorProto.COMPLEX64)]), "'x'"),
        ("output_of_another_type", "GPC3015", lambda: model([RELU], [X], [value("y", None, TensorProto.INT64)]), "'y'"),
        ("unknown_operator", "GPC4001", lambda: one("Frobnicate"), "'n'"),
        ("operator_without_a_name", "GPC4001", lambda: one(""), "'n'"),
        ("unknown_domain", "GPC3016", lambda: one("Relu", domain="com.example"), "'n'"),
        (
            "unknown_operator_of_a_domain",
            "GPC4001",
            lambda: model([node("Relu", ["x"], ["y"], name="n", domain="com.example")], [X], domains=["com.example"]),
            "'n'",
        ),
        (
            "operator_of_a_later_opset",
            "GPC3017",
            lambda: model([node("Gelu", ["x"], ["y"], name="n")], [X], opset=13),
            "'n'",
        ),
        ("operator_of_an_earlier_opset", "GPC3017", lambda: one("Upsample", scales=[1.0]), "'n'"),
        ("too_few_inputs", "GPC3013", lambda: one("Add"), "'n'"),
        ("too_many_inputs", "GPC3013", lambda: one("Relu", ["x", "x"]), "'n'"),
        ("too_many_outputs", "GPC3013", lambda: one("Relu", outputs=["y", "z"]), "'n'"),
        ("no_outputs_of_a_node", "GPC3013", lambda: model([node("Relu", ["x"], [], name="n"), RELU], [X]), "'n'"),
        ("required_input_absent", "GPC3013", lambda: one("Add", ["", "x"]), "'n'"),
        ("operands_of_mixed_types", "GPC3015", lambda: one("Add", ["x", "w"], weights={"w": I64}), "'n'"),
        ("operand_of_a_wrong_type", "GPC3015", lambda: one("Not"), "'n'"),
        ("two_thousand_operands_of_a_wrong_axis", "GPC3101", lambda: one("Concat", ["x"] * 2000, axis=7), "'n'"),
        ("training_information", OK, lambda: edited(lambda m: m.training_info.add())),
        ("a_chain_of_two_thousand", OK, lambda: chain(2000)),
        ("a_chain_of_two_thousand_backwards", OK, lambda: chain(2000, backwards=True)),
    ],
)
proto("graph/a_chain_of_three_hundred_compiled", OK, lambda: chain(300, "Softplus"), act=compile_cpu)
proto("graph/three_hundred_operands_compiled", OK, lambda: one("Concat", ["x"] * 300, axis=0), act=compile_cpu)
proto("graph/two_thousand_operands_in_place", OK, lambda: one("Concat", ["x"] * 2000, axis=0))
proto("graph/an_output_that_is_an_input", OK, lambda: model([], [X], ["x"]), act=compile_cpu)
