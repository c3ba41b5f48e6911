"""Operators asked for terabytes, for shapes that cannot be, or for a long computation at compile time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.hostile.corpus import OK, listed
from tests.onnx_builders import model, node, value

X = value("x")
IMAGE = value("x", (1, 3, 7, 5))
MIN, MAX, HUGE = -(1 << 63), (1 << 63) - 1, 1 << 62


def i64(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def f32(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def one(
    op: str,
    x: onnx.ValueInfoProto | None = X,
    outputs=("y",),
    opset: int = 20,
    domain: str = "",
    attributes: Mapping[str, Any] | None = None,
    **operands: np.ndarray | str,
) -> Callable[[], onnx.ModelProto]:
    """A model of one node ``n`` on x, where there is one, and constant operands in the order given."""

    def make() -> onnx.ModelProto:
        weights = {name: array for name, array in operands.items() if isinstance(array, np.ndarray)}
        inputs = [*(["x"] if x is not None else []), *(name if name in weights else "" for name in operands)]
        made = node(op, inputs, list(outputs), name="n", domain=domain, **(attributes or {}))
        return model(
            [made], [x] if x is not None else [], weights=weights, opset=opset, domains=[domain] if domain else ()
        )

    return make


def bomb(
    *steps: tuple[str, list[str], dict[str, Any]], size: int = 4096, start: str = "fill"
) -> Callable[[], onnx.ModelProto]:
    """Constants that grow: ``fill`` is size x size ones, made of a shape; each step is a node on earlier results."""

    def make() -> onnx.ModelProto:
        nodes = [node("ConstantOfShape", ["shape"], ["fill"], value=helper.make_tensor("v", 1, [1], [1.0]))]
        for k, (op, inputs, attributes) in enumerate(steps):
            nodes.append(node(op, inputs, [f"s{k}"], name=f"s{k}", **attributes))
        nodes.append(node("ReduceMax", [f"s{len(steps) - 1}" if steps else start], ["r"], keepdims=0))
        nodes.append(node("Add", ["x", "r"], ["y"]))
        return model(nodes, [X], weights={"shape": i64(size, size), "two": i64(2, 2)})

    return make


def doubling(op: str, times: int, **attributes: Any) -> Callable[[], onnx.ModelProto]:
    """A constant joined to itself again and again."""

    def make() -> onnx.ModelProto:
        names = ["w", *(f"v{k}" for k in range(times))]
        nodes = [node(op, [a, a], [b], name=f"n{b}", **attributes) for a, b in itertools.pairwise(names)]
        return model([*nodes, node("Relu", [names[-1]], ["y"])], weights={"w": f32(*range(1000))})

    return make


def grown(length: int) -> onnx.ModelProto:
    """A constant too large to be computed here, with a long chain behind it: none of it may be walked again and again."""
    nodes = [node("ConstantOfShape", ["shape"], ["v0"])]
    nodes += [node("Neg", [f"v{k}"], [f"v{k + 1}"]) for k in range(length)]
    return model([*nodes, node("Relu", [f"v{length}"], ["y"])], weights={"shape": i64(1 << 30)})


def boxes(count: int) -> onnx.ModelProto:
    """Non-maximum suppression of constant boxes that do not touch: each would be compared with each."""
    corners = np.zeros((1, count, 4), np.float32)
    corners[0, :, 0], corners[0, :, 2] = np.arange(count) * 2, np.arange(count) * 2 + 1
    corners[0, :, 3] = 1
    weights = {"b": corners, "s": np.linspace(1, 2, count, dtype=np.float32).reshape(1, 1, count), "m": i64(count)}
    return model([node("NonMaxSuppression", ["b", "s", "m"], ["y"], name="n")], weights=weights)


def lstm(steps: int, ways: int = 1, hidden: int = 2) -> onnx.ModelProto:
    weights = {"w": np.ones((ways, 4 * hidden, 3), np.float32), "r": np.ones((ways, 4 * hidden, hidden), np.float32)}
    direction = "bidirectional" if ways == 2 else "forward"
    made = node("LSTM", ["x", "w", "r"], ["y"], name="n", hidden_size=hidden, direction=direction)
    return model([made], [value("x", (steps, 1, 3))], weights=weights)


NODE = "'n"
listed(
    "shapes",
    [
        (what, code, make, NODE)
        for what, code, make in [
            ("reshape_2_62", "GPC3101", one("Reshape", s=i64(HUGE, 4))),
            ("reshape_that_wraps", "GPC3101", one("Reshape", s=i64(1 << 32, 1 << 32, 6))),
            ("reshape_two_open", "GPC3101", one("Reshape", s=i64(-1, -1))),
            ("reshape_open_that_does_not_fit", "GPC3101", one("Reshape", s=i64(-1, 4))),
            ("reshape_open_and_none", "GPC3101", one("Reshape", x=value("x", (0, 3)), s=i64(0, -1))),
            ("reshape_minus_2", "GPC3101", one("Reshape", s=i64(-2, -3))),
            ("reshape_least", "GPC3101", one("Reshape", s=i64(MIN))),
            ("reshape_copies_what_is_not_there", "GPC3101", one("Reshape", s=i64(2, 3, 0))),
            ("reshape_to_rank_a_hundred_thousand", "GPC3101", one("Reshape", s=np.ones(100_000, np.int64))),
            ("reshape_by_a_matrix", "GPC3101", one("Reshape", s=i64(2, 3).reshape(1, 2))),
            ("reshape_by_floats", "GPC3015", one("Reshape", s=f32(2, 3))),
            ("expand_2_62", "GPC3102", one("Expand", s=i64(HUGE, 2, 3))),
            ("expand_2_46", "GPC4006", one("Expand", s=i64(1 << 44, 2, 3))),
            ("expand_negative", "GPC3101", one("Expand", s=i64(-1, 3))),
            ("expand_that_wraps", "GPC3102", one("Expand", s=i64(1 << 32, 1 << 32, 1, 1))),
            ("expand_that_does_not_fit", "GPC3101", one("Expand", s=i64(5, 3))),
            ("expand_to_rank_ten_thousand", "GPC3102", one("Expand", s=np.ones(10_000, np.int64))),
            ("tile_2_62", "GPC3102", one("Tile", s=i64(HUGE, 1))),
            ("tile_that_wraps", "GPC3102", one("Tile", s=i64(1 << 32, 1 << 32))),
            ("tile_2_40", "GPC4006", one("Tile", s=i64(1 << 40, 1))),
            ("tile_negative", "GPC3101", one("Tile", s=i64(-1, 1))),
            ("tile_of_another_rank", "GPC3101", one("Tile", s=i64(2))),
            ("pad_2_62", "GPC3102", one("Pad", s=i64(HUGE, 0, 0, 0))),
            ("pad_2_44", "GPC4006", one("Pad", s=i64(1 << 44, 0, 0, 0))),
            ("pad_negative_beyond_the_size", "GPC3101", one("Pad", s=i64(-9, 0, 0, 0))),
            ("pad_negative_from_both_sides", "GPC3101", one("Pad", s=i64(-2, 0, -2, 0))),
            ("pad_least", "GPC3101", one("Pad", s=i64(MIN, 0, 0, 0))),
            (
                "pad_reflect_of_nothing",
                "GPC3101",
                one("Pad", value("x", (2, 0)), attributes={"mode": "reflect"}, s=i64(0, 3, 0, 3)),
            ),
            ("pad_too_few", "GPC3101", one("Pad", s=i64(1, 1))),
            ("pad_axis_twice", "GPC3101", one("Pad", s=i64(1, 1, 1, 1), v=f32(0).reshape(()), a=i64(0, 0))),
            ("range_2_62", "GPC4001", one("Range", None, a=np.array(0), b=np.array(HUGE), c=np.array(1))),
            ("range_over_all", "GPC4001", one("Range", None, a=np.array(MIN), b=np.array(MAX), c=np.array(1))),
            ("range_step_0", "GPC3101", one("Range", None, a=np.array(0), b=np.array(5), c=np.array(0))),
            (
                "range_of_tiny_steps",
                "GPC4001",
                one("Range", None, **{n: np.array(v, np.float32) for n, v in (("a", 0), ("b", 1), ("c", 1e-30))}),
            ),
            (
                "range_to_infinity",
                "GPC3101",
                one("Range", None, **{n: np.array(v, np.float32) for n, v in (("a", 0), ("b", np.inf), ("c", 1))}),
            ),
            (
                "range_of_nan",
                "GPC3101",
                one("Range", None, **{n: np.array(v, np.float32) for n, v in (("a", 0), ("b", np.nan), ("c", 1))}),
            ),
            ("range_of_a_vector", "GPC3101", one("Range", None, a=i64(0, 1), b=np.array(5), c=np.array(1))),
            ("constant_of_shape_2_62", "GPC3102", one("ConstantOfShape", None, s=i64(HUGE))),
            ("constant_of_shape_that_wraps", "GPC3102", one("ConstantOfShape", None, s=i64(1 << 32, 1 << 32))),
            ("constant_of_shape_2_40", "GPC4006", one("ConstantOfShape", None, s=i64(1 << 40))),
            ("constant_of_shape_negative", "GPC3101", one("ConstantOfShape", None, s=i64(-1))),
            (
                "constant_of_shape_of_two_values",
                "GPC3101",
                one(
                    "ConstantOfShape", None, attributes={"value": helper.make_tensor("v", 1, [2], [1.0, 2.0])}, s=i64(2)
                ),
            ),
            ("one_hot_2_62", "GPC4001", one("OneHot", None, i=i64(1), d=np.array(HUGE), v=f32(0, 1))),
            ("one_hot_2_31", "GPC4001", one("OneHot", None, i=i64(1), d=np.array(1 << 31), v=f32(0, 1))),
            ("one_hot_negative", "GPC3101", one("OneHot", None, i=i64(1), d=np.array(-1), v=f32(0, 1))),
            (
                "one_hot_axis",
                "GPC3101",
                one("OneHot", None, attributes={"axis": 9}, i=i64(1), d=np.array(3), v=f32(0, 1)),
            ),
            ("one_hot_of_one_value", "GPC3101", one("OneHot", None, i=i64(1), d=np.array(3), v=f32(0))),
            ("eye_2_40", "GPC4001", one("EyeLike", value("x", (1 << 20, 1 << 20)))),
            ("eye_of_a_vector", "GPC3101", one("EyeLike", value("x", (3,)))),
            (
                "resize_2_62",
                "GPC3101",
                one("Resize", IMAGE, r=np.zeros(0, np.float32), s=np.zeros(0, np.float32), z=i64(1, 3, HUGE, HUGE)),
            ),
            (
                "resize_2_20_each",
                "GPC4006",
                one(
                    "Resize", IMAGE, r=np.zeros(0, np.float32), s=np.zeros(0, np.float32), z=i64(1, 3, 1 << 20, 1 << 20)
                ),
            ),
            (
                "resize_negative",
                "GPC3101",
                one("Resize", IMAGE, r=np.zeros(0, np.float32), s=np.zeros(0, np.float32), z=i64(1, 3, -1, -1)),
            ),
            (
                "resize_by_infinity",
                "GPC3101",
                one("Resize", IMAGE, r=np.zeros(0, np.float32), s=f32(1, 1, np.inf, np.inf)),
            ),
            ("resize_by_nan", "GPC3101", one("Resize", IMAGE, r=np.zeros(0, np.float32), s=f32(1, 1, np.nan, 1))),
            ("resize_by_0", "GPC3101", one("Resize", IMAGE, r=np.zeros(0, np.float32), s=f32(1, 1, 0, 0))),
            ("resize_by_a_negative", "GPC3101", one("Resize", IMAGE, r=np.zeros(0, np.float32), s=f32(1, 1, -2, -2))),
            ("resize_by_1e30", "GPC3101", one("Resize", IMAGE, r=np.zeros(0, np.float32), s=f32(1, 1, 1e30, 1e30))),
            (
                "resize_of_nothing",
                "GPC3101",
                one(
                    "Resize",
                    value("x", (1, 3, 0, 5)),
                    r=np.zeros(0, np.float32),
                    s=np.zeros(0, np.float32),
                    z=i64(1, 3, 7, 7),
                ),
            ),
            ("upsample_by_1e30", "GPC3101", one("Upsample", IMAGE, opset=9, s=f32(1, 1, 1e30, 1e30))),
            ("slice_step_0", "GPC3101", one("Slice", a=i64(0), b=i64(1), c=i64(0), s=i64(0))),
            ("slice_of_a_matrix_of_starts", "GPC3101", one("Slice", a=i64(0).reshape(1, 1), b=i64(1))),
            ("slice_axis_2_62", "GPC3101", one("Slice", a=i64(0), b=i64(1), c=i64(HUGE))),
            ("slice_axis_twice", "GPC3101", one("Slice", a=i64(0, 0), b=i64(1, 1), c=i64(0, 0))),
            ("slice_more_ends", "GPC3101", one("Slice", a=i64(0), b=i64(1, 1))),
            ("split_negative", "GPC3101", one("Split", outputs=["y", "z"], s=i64(5, -3))),
            ("split_that_wraps", "GPC3101", one("Split", outputs=["y", "z", "q"], s=i64(MAX, MAX, 4))),
            ("split_into_0", "GPC3101", one("Split", attributes={"num_outputs": 0})),
            ("split_into_2_62", "GPC3101", one("Split", attributes={"num_outputs": HUGE})),
            ("unsqueeze_2_40", "GPC3101", one("Unsqueeze", a=i64(1 << 40))),
            ("unsqueeze_twice", "GPC3101", one("Unsqueeze", a=i64(0, 0))),
            ("unsqueeze_to_rank_ten_thousand", "GPC3102", one("Unsqueeze", a=np.arange(10_000))),
            ("squeeze_what_is_not_1", "GPC3101", one("Squeeze", a=i64(0))),
            ("transpose_axis_twice", "GPC3101", one("Transpose", attributes={"perm": [0, 0]})),
            ("transpose_axis_negative", "GPC3101", one("Transpose", attributes={"perm": [-1, 0]})),
            ("transpose_axis_2_62", "GPC3101", one("Transpose", attributes={"perm": [HUGE, 0]})),
            ("transpose_too_many", "GPC3101", one("Transpose", attributes={"perm": [0, 1, 2]})),
            ("depth_to_space_0", "GPC3101", one("DepthToSpace", IMAGE, attributes={"blocksize": 0})),
            ("depth_to_space_2_40", "GPC3101", one("DepthToSpace", IMAGE, attributes={"blocksize": 1 << 40})),
            ("space_to_depth_0", "GPC3101", one("SpaceToDepth", IMAGE, attributes={"blocksize": 0})),
            ("centre_crop_pad_2_62", "GPC3102", one("CenterCropPad", s=i64(HUGE, HUGE))),
            ("centre_crop_pad_negative", "GPC3101", one("CenterCropPad", s=i64(-1, 2))),
            ("top_k_2_62", "GPC3101", one("TopK", outputs=["y", "i"], k=i64(HUGE))),
            ("top_k_negative", "GPC3101", one("TopK", outputs=["y", "i"], k=i64(-1))),
            ("top_k_of_two", "GPC3101", one("TopK", outputs=["y", "i"], k=i64(1, 2))),
            ("dft_2_40", "GPC4001", one("DFT", value("x", (1, 5, 1)), l=np.array(1 << 40))),
            ("dft_negative", "GPC3101", one("DFT", value("x", (1, 5, 1)), l=np.array(-1))),
            ("dft_of_a_longer_axis", "GPC4001", one("DFT", value("x", (1, 1 << 24, 1)), attributes={})),
            ("dft_of_a_long_prime", "GPC4001", one("DFT", value("x", (1, (1 << 31) - 1, 1)), attributes={})),
            ("stft_step_0", "GPC3101", one("STFT", value("x", (1, 64, 1)), s=np.array(0), w=np.ones(8, np.float32))),
            (
                "stft_2_30_frames",
                "GPC4001",
                one("STFT", value("x", (1, 1 << 30, 1)), s=np.array(1), w=np.ones(8, np.float32)),
            ),
            (
                "mel_weights_2_40",
                "GPC4001",
                one(
                    "MelWeightMatrix",
                    None,
                    b=np.array(1 << 20),
                    d=np.array(1 << 20),
                    r=np.array(8000),
                    lo=np.array(0, np.float32),
                    hi=np.array(4e3, np.float32),
                ),
            ),
            (
                "mel_weights_of_nan",
                "GPC3101",
                one(
                    "MelWeightMatrix",
                    None,
                    b=np.array(8),
                    d=np.array(16),
                    r=np.array(8000),
                    lo=np.array(np.nan, np.float32),
                    hi=np.array(4e3, np.float32),
                ),
            ),
            (
                "mel_weights_of_minus_700",
                "GPC3101",
                one(
                    "MelWeightMatrix",
                    None,
                    b=np.array(8),
                    d=np.array(16),
                    r=np.array(8000),
                    lo=np.array(-1e3, np.float32),
                    hi=np.array(4e3, np.float32),
                ),
            ),
            (
                "col2im_that_wraps",
                "GPC3101",
                one("Col2Im", value("x", (1, 4, 4)), i=i64(1 << 32, 1 << 32), b=i64(2, 2)),
            ),
            ("affine_grid_negative", "GPC3101", one("AffineGrid", value("x", (1, 2, 3)), s=i64(1, 1, -5, 5))),
            ("window_2_40", "GPC4001", one("HannWindow", None, n=np.array(1 << 40))),
            ("lstm_of_2_40_steps", "GPC4001", lambda: lstm(1 << 40)),
            ("many_boxes", "GPC4001", lambda: boxes(50_000)),
            ("reduce_axis_2_62", "GPC3101", one("ReduceSum", a=i64(HUGE))),
            ("reduce_axis_twice", "GPC3101", one("ReduceSum", a=i64(0, 0))),
            ("reduce_axis_twice_by_sign", "GPC3101", one("ReduceSum", a=i64(0, -2))),
            ("cumsum_axis_2_62", "GPC3101", one("CumSum", a=np.array(HUGE))),
            ("trilu_of_a_vector", "GPC3101", one("Trilu", value("x", (3,)))),
            ("matmul_of_scalars", "GPC3101", one("MatMul", w=np.array(1, np.float32))),
            ("matmul_that_does_not_fit", "GPC3101", one("MatMul", w=np.ones((5, 2), np.float32))),
            ("matmul_result_2_44", "GPC4006", one("MatMul", value("x", (1 << 40, 1)), w=np.ones((1, 16), np.float32))),
            ("flatten_axis", "GPC3101", one("Flatten", attributes={"axis": -9})),
            ("broadcast_to_2_40", "GPC4006", one("Add", value("x", (1 << 40, 1)), w=np.ones((1, 64), np.float32))),
        ]
    ],
)
listed("shapes", [
    ("dft_of_a_long_axis", OK, one("DFT", value("x", (1, 1 << 20, 1)), attributes={})),
    ("window_negative", OK, one("BlackmanWindow", None, n=np.array(-5))),
    ("trilu_diagonal_least", OK, one("Trilu", k=np.array(MIN))),
    ("slice_from_least_to_largest", OK, one("Slice", a=i64(MIN), b=i64(MAX))),
    ("slice_backwards_from_largest_to_least", OK, one("Slice", a=i64(MAX), b=i64(MIN), c=i64(0), s=i64(-1))),
    ("slice_step_least", OK, one("Slice", a=i64(MAX), b=i64(MIN), c=i64(0), s=i64(MIN))),
    ("lstm_of_4096_steps_both_ways", OK, lambda: lstm(4096, ways=2)),
    ("lstm_of_2_32_steps", "GPC4001", lambda: lstm(1 << 32)),
    ("chain_behind_a_large_constant", OK, lambda: grown(5000)),
    ("constants_doubled_by_concat", "GPC4006", doubling("Concat", 40, axis=0)),
    ("constants_doubled_22_times", OK, doubling("Concat", 22, axis=0)),
    ("product_of_large_constants", OK, bomb(("MatMul", ["fill", "fill"], {}), size=8192)),
    ("many_products_of_constants", OK, bomb(*[("MatMul", ["fill", "fill"], {})] * 50, size=1024)),
    ("long_arithmetic_of_constants", OK, bomb(*[("Exp", ["fill"], {})] * 200, size=2048)),
    ("square_of_a_column", OK, bomb(("Transpose", ["fill"], {}), ("Mul", ["fill", "s0"], {}), size=4000)),
    ("tiled_constants", OK, bomb(("Tile", ["fill", "two"], {}), ("Tile", ["s0", "two"], {}), size=4000)),
    ("softmax_of_constants", OK, bomb(("Softmax", ["fill"], {"axis": 0}), size=8192)),
    ("convolution_of_constants", OK, lambda: model([
        node("ConstantOfShape", ["a"], ["im"]), node("ConstantOfShape", ["b"], ["w"]),
        node("Conv", ["im", "w"], ["c"]), node("ReduceMax", ["c"], ["r"], keepdims=0), node("Add", ["x", "r"], ["y"])],
        [X], weights={"a": i64(1, 64, 128, 128), "b": i64(64, 64, 9, 9)})),
    ("pool_of_constants", OK, lambda: model([
        node("ConstantOfShape", ["a"], ["im"]), node("MaxPool", ["im"], ["c"], kernel_shape=[511, 511]),
        node("ReduceMax", ["c"], ["r"], keepdims=0), node("Add", ["x", "r"], ["y"])],
        [X], weights={"a": i64(1, 1, 1500, 1500)})),
    ("ranges_of_32_megabytes_each", "GPC4006", lambda: model(
        [node("Range", ["a", "b", "c"], [f"r{k}"], name=f"n{k}") for k in range(50)]
        + [node("Concat", [f"r{k}" for k in range(50)], ["y"], axis=0)],
        weights={"a": np.array(0), "b": np.array(4_000_000), "c": np.array(1)})),
    ("unique_of_a_large_range", OK, lambda: model([
        node("Range", ["a", "b", "c"], ["r"]), node("Unique", ["r"], ["u"]), node("ReduceMax", ["u"], ["y"])],
        weights={"a": np.array(0), "b": np.array(1_500_000), "c": np.array(1)})),
    ("hundreds_of_types", OK, lambda: model([
        node("Cast", ["x"], [f"c{k}"], to=t) for k, t in enumerate((1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 16))
    ] + [node("Cast", ["c5"], ["y"], to=TensorProto.FLOAT)], [X])),
])  # fmt: skip
