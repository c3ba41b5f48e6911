"""Attributes that are missing, of a wrong type, or numbers that no operator can work with; constants that divide by zero."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.hostile.corpus import OK, content, listed, run_cpu
from tests.hostile.shapes import HUGE, IMAGE, MAX, MIN, f32, i64, one
from tests.onnx_builders import model, node, value

WEIGHTS = np.ones((2, 3, 3, 2), np.float32)


def conv(op: str = "Conv", weights: np.ndarray = WEIGHTS, **attributes: Any):
    return one(op, IMAGE, attributes=attributes, w=weights)


def pool(op: str = "MaxPool", **attributes: Any):
    return one(op, IMAGE, attributes=attributes)


def altered(edit) -> Any:
    """y = softmax(x) with its attribute edited."""

    def make() -> onnx.ModelProto:
        found = one("Softmax", attributes={"axis": 1})()
        edit(found.graph.node[0].attribute)
        return found

    return make


def set_on(attribute: onnx.AttributeProto, **fields: Any) -> None:
    for name, wanted in fields.items():
        setattr(attribute, name, wanted)


NODE = "'n'"
listed(
    "attributes",
    [
        (what, code, make, NODE)
        for what, code, make in [
            ("unknown", "GPC3014", one("Relu", attributes={"alpha": 1.0})),
            ("missing", "GPC3014", one("Concat", w=f32(1))),
            ("of_another_type", "GPC3014", one("Softmax", attributes={"axis": 1.5})),
            ("list_for_a_number", "GPC3014", one("Softmax", attributes={"axis": [1]})),
            ("text_for_a_number", "GPC3014", one("Softmax", attributes={"axis": "1"})),
            (
                "tensor_for_a_number",
                "GPC3014",
                one("Softmax", attributes={"axis": helper.make_tensor("t", 7, [1], [1])}),
            ),
            ("graph_for_a_number", "GPC3014", one("Softmax", attributes={"axis": helper.make_graph([], "g", [], [])})),
            ("twice", "GPC3014", altered(lambda a: a.append(helper.make_attribute("axis", 0)))),
            ("without_a_type", "GPC3014", altered(lambda a: a[0].ClearField("type"))),
            ("type_that_lies", "GPC3014", altered(lambda a: set_on(a[0], type=onnx.AttributeProto.INT, f=2.0))),
            ("without_a_name", "GPC3014", altered(lambda a: set_on(a[0], name=""))),
            ("text_that_is_none", "GPC3014", one("Pad", attributes={"mode": b"\xff\xfe"}, s=i64(0, 0, 0, 0))),
            ("text_of_a_megabyte", "GPC3101", one("Pad", attributes={"mode": "q" * 10**6}, s=i64(0, 0, 0, 0))),
            ("text_with_escapes", "GPC3101", one("Pad", attributes={"mode": "\x1b[31m\n{{7*7}}%n"}, s=i64(0, 0, 0, 0))),
            (
                "twenty_thousand",
                "GPC3014",
                altered(lambda a: a.extend(onnx.AttributeProto(name=f"a{k}", type=2, i=k) for k in range(20_000))),
            ),
            ("a_list_of_a_hundred_thousand", "GPC3101", one("Transpose", attributes={"perm": [0] * 100_000})),
            ("axis_2_62", "GPC3101", one("Softmax", attributes={"axis": HUGE})),
            ("axis_least", "GPC3101", one("Softmax", attributes={"axis": MIN})),
            ("cast_to_0", "GPC3030", one("Cast", attributes={"to": 0})),
            ("cast_to_999", "GPC3030", one("Cast", attributes={"to": 999})),
            ("cast_to_2_62", "GPC3030", one("Cast", attributes={"to": HUGE})),
            ("strides_0", "GPC3101", conv(strides=[0, 1])),
            ("strides_negative", "GPC3101", conv(strides=[-1, 1])),
            ("strides_2_62", "GPC3101", conv(strides=[HUGE, 1])),
            ("strides_too_few", "GPC3101", conv(strides=[1])),
            ("strides_too_many", "GPC3101", conv(strides=[1] * 1000)),
            ("dilations_0", "GPC3101", conv(dilations=[0, 1])),
            ("dilations_2_40", "GPC3101", conv(dilations=[1, 1 << 40])),
            ("dilations_2_62", "GPC3101", conv(dilations=[1, HUGE])),
            ("dilations_negative", "GPC3101", conv(dilations=[1, -1])),
            ("group_0", "GPC3101", conv(group=0)),
            ("group_negative", "GPC3101", conv(group=-1)),
            ("group_2_62", "GPC3101", conv(group=HUGE)),
            ("group_least", "GPC3101", conv(group=MIN)),
            ("group_that_does_not_divide", "GPC3101", conv(group=2)),
            ("pads_2_62", "GPC3101", conv(pads=[HUGE] * 4)),
            ("pads_2_31", "GPC3101", conv(pads=[1 << 31] * 4)),
            ("pads_2_30", "GPC4006", conv(pads=[1 << 30, 0, 1 << 30, 0], strides=[1, 1])),
            ("pads_negative", "GPC3101", conv(pads=[-1, 0, 0, 0])),
            ("pads_least", "GPC3101", conv(pads=[MIN, 0, 0, 0])),
            ("pads_too_few", "GPC3101", conv(pads=[0, 0])),
            ("pads_negative_beyond_the_size", "GPC3101", pool(kernel_shape=[1, 1], pads=[-9, -9, -9, -9])),
            ("kernel_that_differs", "GPC3101", conv(kernel_shape=[1, 1])),
            ("kernel_0", "GPC3101", pool(kernel_shape=[0, 0])),
            ("kernel_negative", "GPC3101", pool(kernel_shape=[-1, 2])),
            ("kernel_2_62", "GPC3101", pool(kernel_shape=[HUGE, HUGE])),
            ("kernel_larger_than_the_image", "GPC3101", pool(kernel_shape=[9, 9])),
            ("kernel_missing", "GPC3014", pool()),
            ("kernel_of_another_rank", "GPC3101", pool(kernel_shape=[2])),
            ("average_of_nothing", "GPC3101", pool("AveragePool", kernel_shape=[0, 0])),
            ("lp_pool_p_0", "GPC3101", pool("LpPool", kernel_shape=[2, 2], p=0)),
            ("auto_pad", "GPC3101", conv(auto_pad="SOME")),
            ("weights_of_no_channels", "GPC3101", conv(weights=np.ones((2, 0, 3, 2), np.float32))),
            ("weights_of_another_rank", "GPC3101", conv(weights=np.ones((2, 3), np.float32))),
            (
                "transposed_output_padding_2_62",
                "GPC3102",
                conv("ConvTranspose", np.ones((3, 2, 3, 2), np.float32), output_padding=[HUGE, 0]),
            ),
            (
                "transposed_output_negative",
                "GPC3101",
                conv("ConvTranspose", np.ones((3, 2, 3, 2), np.float32), output_shape=[-5, -5]),
            ),
            (
                "transposed_pads_2_62",
                "GPC3101",
                conv("ConvTranspose", np.ones((3, 2, 3, 2), np.float32), pads=[HUGE] * 4),
            ),
            (
                "transposed_strides_2_62",
                "GPC3102",
                conv("ConvTranspose", np.ones((3, 2, 3, 2), np.float32), strides=[HUGE, 1]),
            ),
            ("lrn_size_0", "GPC3101", one("LRN", IMAGE, attributes={"size": 0})),
            ("lrn_size_largest", "GPC3101", one("LRN", IMAGE, attributes={"size": MAX})),
            (
                "groups_of_channels_0",
                "GPC3101",
                one(
                    "GroupNormalization", IMAGE, opset=21, attributes={"num_groups": 0}, s=f32(1, 1, 1), b=f32(0, 0, 0)
                ),
            ),
            ("batch_dims_2_62", "GPC3101", one("GatherND", attributes={"batch_dims": HUGE}, i=i64(0).reshape(1, 1))),
            ("batch_dims_negative", "GPC3101", one("GatherND", attributes={"batch_dims": -1}, i=i64(0).reshape(1, 1))),
            (
                "block_size_negative",
                "GPC3101",
                one(
                    "DequantizeLinear",
                    None,
                    opset=21,
                    attributes={"block_size": -1, "axis": 0},
                    a=np.zeros((2, 3), np.int8),
                    s=np.ones((1, 3), np.float32),
                ),
            ),
            ("einsum_result_of_no_operand", "GPC3101", one("Einsum", attributes={"equation": "i->j"})),
            ("einsum_other_count", "GPC3101", one("Einsum", attributes={"equation": "ij,jk->ik"})),
            ("einsum_empty", "GPC3101", one("Einsum", attributes={"equation": ""})),
            ("einsum_arrow_alone", "GPC3101", one("Einsum", attributes={"equation": "->"})),
            ("einsum_two_arrows", "GPC3101", one("Einsum", attributes={"equation": "ij->i->j"})),
            ("einsum_letter_twice_in_the_result", "GPC3101", one("Einsum", attributes={"equation": "ij->ii"})),
            ("einsum_digits", "GPC3101", one("Einsum", attributes={"equation": "12->1"})),
            ("einsum_no_letters", "GPC3101", one("Einsum", attributes={"equation": "éß->é"})),
            ("einsum_dots", "GPC3101", one("Einsum", attributes={"equation": "..ij->ij"})),
            ("einsum_many_dots", "GPC3101", one("Einsum", attributes={"equation": "." * 999 + "->"})),
            ("einsum_ellipsis_twice", "GPC3101", one("Einsum", attributes={"equation": "...i...->i"})),
            ("einsum_diagonal_of_other_sizes", "GPC3101", one("Einsum", attributes={"equation": "ii->i"})),
            ("einsum_a_million_letters", "GPC3101", one("Einsum", attributes={"equation": "i" * 10**6 + "->i"})),
            ("einsum_a_million_commas", "GPC3101", one("Einsum", attributes={"equation": "," * 10**6})),
            ("einsum_nul", "GPC3101", one("Einsum", attributes={"equation": "i\0j->ij"})),
            ("gather_outside", "GPC3101", one("Gather", i=i64(2))),
            ("gather_below", "GPC3101", one("Gather", i=i64(-3))),
            ("gather_largest", "GPC3101", one("Gather", i=i64(MAX))),
            ("gather_least", "GPC3101", one("Gather", i=i64(MIN))),
            ("gather_of_nothing", "GPC3101", one("Gather", value("x", (0, 3)), i=i64(0))),
            ("gather_axis", "GPC3101", one("Gather", attributes={"axis": 7}, i=i64(0))),
            ("gather_elements_outside", "GPC3101", one("GatherElements", i=i64(5, 0, 0).reshape(1, 3))),
            ("gather_elements_larger", "GPC3101", one("GatherElements", i=np.zeros((9, 9), np.int64))),
            ("gather_nd_outside", "GPC3101", one("GatherND", i=i64(0, 3).reshape(1, 2))),
            ("gather_nd_least", "GPC3101", one("GatherND", i=i64(MIN, 0).reshape(1, 2))),
            ("gather_nd_deeper_than_the_rank", "GPC3101", one("GatherND", i=np.zeros((1, 9), np.int64))),
            ("scatter_nd_outside", "GPC3101", one("ScatterND", i=i64(9).reshape(1, 1), u=np.zeros((1, 3), np.float32))),
            (
                "scatter_nd_largest",
                "GPC3101",
                one("ScatterND", i=i64(MAX).reshape(1, 1), u=np.zeros((1, 3), np.float32)),
            ),
            ("scatter_nd_least", "GPC3101", one("ScatterND", i=i64(MIN).reshape(1, 1), u=np.zeros((1, 3), np.float32))),
            (
                "scatter_nd_other_updates",
                "GPC3101",
                one("ScatterND", i=i64(0).reshape(1, 1), u=np.zeros((4, 4), np.float32)),
            ),
            ("scatter_nd_scalar_index", "GPC3101", one("ScatterND", i=np.array(0), u=np.zeros(3, np.float32))),
            (
                "scatter_elements_outside",
                "GPC3101",
                one("ScatterElements", i=i64(2).reshape(1, 1), u=f32(1).reshape(1, 1)),
            ),
            (
                "scatter_elements_least",
                "GPC3101",
                one("ScatterElements", i=i64(MIN).reshape(1, 1), u=f32(1).reshape(1, 1)),
            ),
            (
                "scatter_elements_reduction",
                "GPC3101",
                one("ScatterElements", attributes={"reduction": "xor"}, i=i64(0).reshape(1, 1), u=f32(1).reshape(1, 1)),
            ),
            ("compress_longer", "GPC3101", one("Compress", attributes={"axis": 0}, c=np.array([False, False, True]))),
            (
                "bit_shift_sideways",
                "GPC3101",
                one(
                    "BitShift",
                    value("x", (3,), TensorProto.UINT8),
                    attributes={"direction": "SIDEWAYS"},
                    s=np.array([1, 1, 1], np.uint8),
                ),
            ),
            (
                "sparse_value_outside",
                "GPC3034",
                one(
                    "Constant",
                    None,
                    attributes={
                        "sparse_value": helper.make_sparse_tensor(
                            helper.make_tensor("v", 1, [1], [1.0]), helper.make_tensor("i", 7, [1], [99]), [2, 3]
                        )
                    },
                ),
            ),
            ("constant_without_a_value", "GPC3101", one("Constant", None)),
            (
                "constant_of_two_values",
                "GPC3101",
                one("Constant", None, attributes={"value_int": 1, "value_float": 1.0}),
            ),
        ]
    ],
)

# operators that have no schema, or whose schema asks for less than they need
listed("attributes", [(what, code, make, NODE) for what, code, make in [
    ("of_microsoft_without_an_input", "GPC3013", one("BiasGelu", None, domain="com.microsoft", a="", b=f32(1))),
    ("of_microsoft_with_too_many_inputs", "GPC3013", one(
        "BiasGelu", domain="com.microsoft", a=f32(1), b=f32(1), c=f32(1), d=f32(1))),
    ("of_microsoft_text_for_a_number", "GPC3014", one(
        "LayerNormalization", domain="com.microsoft", attributes={"axis": "x"}, s=f32(1, 1, 1))),
    ("of_microsoft_list_for_a_number", "GPC3014", one(
        "LayerNormalization", domain="com.microsoft", attributes={"axis": [1]}, s=f32(1, 1, 1))),
    ("of_microsoft_graph_for_a_text", "GPC3014", one("GridSample", IMAGE, domain="com.microsoft", attributes={
        "mode": helper.make_graph([], "g", [], [])}, g=np.zeros((1, 2, 2, 2), np.float32))),
    ("of_microsoft_scalar_for_a_list", "GPC3014", one("NhwcConv", IMAGE, domain="com.microsoft", attributes={
        "pads": 1}, w=WEIGHTS)),
    ("of_ml_without_coefficients", "GPC3014", one("LinearRegressor", domain="ai.onnx.ml")),
    ("of_ml_trees_without_nodes", "GPC3101", one("TreeEnsembleRegressor", domain="ai.onnx.ml", attributes={
        "target_treeids": [0], "target_nodeids": [0], "target_ids": [0], "target_weights": [1.0]})),
]])  # fmt: skip


# --- arithmetic that ends processes elsewhere: of constants, and at run time


def arithmetic(op: str, a: Any, b: Any, dtype: type, constant: bool, **attributes: Any) -> bytes:
    arrays = {"a": np.array([a, 7], dtype), "b": np.array([b, 2], dtype)}
    made = node(op, ["a", "b"], ["y"], name="n", **attributes)
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    if constant:
        return model([made], weights=arrays).SerializeToString()
    return model([made], [value(n, (2,), number) for n in arrays]).SerializeToString()


# what the second pair gives shows that the first one has spoilt nothing
for op, a, b, dtype, second, options in [
    ("Div", MIN, -1, np.int64, 3, {}),
    ("Div", -(1 << 31), -1, np.int32, 3, {}),
    ("Div", -128, -1, np.int8, 3, {}),
    ("Div", 5, 0, np.int64, 3, {}),
    ("Div", 5, 0, np.int32, 3, {}),
    ("Div", 5, 0, np.uint8, 3, {}),
    ("Mod", MIN, -1, np.int64, 1, {}),
    ("Mod", 5, 0, np.int64, 1, {}),
    ("Mod", -(1 << 31), -1, np.int32, 1, {}),
    ("Mod", 5, 0, np.uint32, 1, {}),
    ("Mod", MIN, -1, np.int64, 1, {"fmod": 1}),
    ("Mod", 5, 0, np.int32, 1, {"fmod": 1}),
    ("Pow", 0, -1, np.int64, 49, {}),
    ("Pow", 3, MAX, np.int64, 49, {}),
    ("BitShift", 1, 200, np.uint8, 28, {"direction": "LEFT"}),
    ("BitShift", 1, (1 << 64) - 1, np.uint64, 28, {"direction": "LEFT"}),
    ("BitShift", 255, 64, np.uint64, 1, {"direction": "RIGHT"}),
]:
    for constant in (True, False):
        name = f"attributes/{op}_{np.dtype(dtype)}_{a}_{b}".lower().replace("-", "m") + "".join(
            f"_{k}" for k in options
        )
        act = partial(
            run_cpu,
            inputs={} if constant else {"a": np.array([a, 7], dtype), "b": np.array([b, 2], dtype)},
            expected={},
            last={"y": second},
        )
        made = partial(arithmetic, op, a, b, dtype, constant, **options)
        content(name + ("_constant" if constant else "_at_run_time"), OK, made, act=act)

for what, op, dtype in (
    ("nan_to_i64", np.nan, TensorProto.INT64),
    ("infinity_to_i32", np.inf, TensorProto.INT32),
    ("minus_infinity_to_u8", -np.inf, TensorProto.UINT8),
    ("1e30_to_i8", 1e30, TensorProto.INT8),
    ("nan_to_bool", np.nan, TensorProto.BOOL),
):
    for constant in (True, False):
        made = lambda v=op, d=dtype, c=constant: model(  # noqa: E731
            [node("Cast", ["a"], ["y"], to=d)],
            [] if c else [value("a", (3,))],
            weights={"a": f32(v, 7, 2)} if c else {},
        ).SerializeToString()
        act = partial(run_cpu, inputs={} if constant else {"a": f32(op, 7, 2)}, expected={})
        content(f"attributes/cast_{what}" + ("_constant" if constant else "_at_run_time"), OK, made, act=act)
