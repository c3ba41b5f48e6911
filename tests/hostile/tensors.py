"""Initialisers that lie about themselves: sizes, fields, types, sparse indices."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.hostile.corpus import OK, check, listed
from tests.onnx_builders import model, node, value

X = value("x")


def weight(**fields: object) -> onnx.ModelProto:
    """y = x + w with a tensor w of these fields."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3])
    for name, content in fields.items():
        if isinstance(content, list | tuple):
            tensor.ClearField(name)
            getattr(tensor, name).extend(content)
        else:
            setattr(tensor, name, content)
    return model([node("Add", ["x", "w"], ["y"], name="sum")], [X], weights=[tensor])


def segmented() -> onnx.ModelProto:
    found = weight(raw_data=bytes(24))
    found.graph.initializer[0].segment.begin = 0
    return found


def sparse(indices: object, dims=(2, 3), values=(1.0, 2.0), dtype=np.int64) -> onnx.ModelProto:
    """y = x + w with a sparse w."""
    w = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32), "w"),
        numpy_helper.from_array(np.array(indices, dtype), "i"),
        list(dims),
    )
    found = model([node("Add", ["x", "w"], ["y"], name="sum")], [X])
    found.graph.sparse_initializer.append(w)
    return found


U8, I4, STRING = TensorProto.UINT8, TensorProto.INT4, TensorProto.STRING

listed(
    "tensors",
    [
        (what, code, make, "'w'", check)
        for what, code, make in [
            ("raw_data_short", "GPC3032", lambda: weight(raw_data=bytes(23))),
            ("raw_data_long", "GPC3032", lambda: weight(raw_data=bytes(25))),
            ("raw_data_empty", "GPC3032", lambda: weight(raw_data=b"")),
            ("raw_data_of_a_megabyte_for_six", "GPC3032", lambda: weight(raw_data=bytes(1 << 20))),
            ("numbers_short", "GPC3032", lambda: weight(float_data=[1.0] * 5)),
            ("numbers_long", "GPC3032", lambda: weight(float_data=[1.0] * 7)),
            ("no_data", "GPC3032", lambda: weight()),
            ("another_field", "GPC3031", lambda: weight(int32_data=[1] * 6)),
            ("two_fields", "GPC3031", lambda: weight(float_data=[1.0] * 6, raw_data=bytes(24))),
            ("text_where_numbers_belong", "GPC3031", lambda: weight(string_data=[b"1"] * 6)),
            ("dims_negative", "GPC3033", lambda: weight(dims=[-1, 6], raw_data=bytes(24))),
            ("dims_both_negative", "GPC3033", lambda: weight(dims=[-2, -3], raw_data=bytes(24))),
            ("dims_least", "GPC3033", lambda: weight(dims=[-(1 << 63)], raw_data=bytes(24))),
            ("dims_2_62", "GPC3033", lambda: weight(dims=[1 << 62], raw_data=bytes(24))),
            ("dims_largest", "GPC3033", lambda: weight(dims=[(1 << 63) - 1], raw_data=bytes(24))),
            ("dims_that_wrap_to_six", "GPC3033", lambda: weight(dims=[(1 << 62) + 3, 2, 2], raw_data=bytes(24))),
            ("dims_that_wrap_to_zero", "GPC3033", lambda: weight(dims=[1 << 32, 1 << 32], raw_data=b"")),
            ("dims_2_40_without_data", "GPC3032", lambda: weight(dims=[1 << 40])),
            ("dims_no_and_2_62", "GPC3033", lambda: weight(dims=[0, 1 << 62])),
            ("rank_300", "GPC3033", lambda: weight(dims=[1] * 300, float_data=[1.0])),
            ("type_0", "GPC3030", lambda: weight(data_type=0)),
            ("type_999", "GPC3030", lambda: weight(data_type=999)),
            ("type_negative", "GPC3030", lambda: weight(data_type=-3)),
            ("type_least", "GPC3030", lambda: weight(data_type=-(1 << 31))),
            ("type_complex", "GPC4001", lambda: weight(data_type=TensorProto.COMPLEX128, raw_data=bytes(96))),
            ("number_too_large", "GPC3032", lambda: weight(data_type=U8, int32_data=[0, 1, 2, 3, 4, 256])),
            ("number_negative", "GPC3032", lambda: weight(data_type=U8, int32_data=[0, 1, 2, 3, 4, -1])),
            (
                "f16_wider_than_16_bits",
                "GPC3032",
                lambda: weight(data_type=TensorProto.FLOAT16, int32_data=[1 << 16] * 6),
            ),
            ("nibbles_short", "GPC3032", lambda: weight(data_type=I4, raw_data=b"\0\0")),
            ("nibbles_long", "GPC3032", lambda: weight(data_type=I4, raw_data=b"\0" * 6)),
            ("nibbles_that_are_none", "GPC3032", lambda: weight(data_type=I4, int32_data=[300, 0, 0])),
            ("segment", "GPC3031", segmented),
            ("sparse_index_negative", "GPC3034", lambda: sparse([-1, 2])),
            ("sparse_index_least", "GPC3034", lambda: sparse([-(1 << 63), 2])),
            ("sparse_index_outside", "GPC3034", lambda: sparse([0, 6])),
            ("sparse_index_largest", "GPC3034", lambda: sparse([0, (1 << 63) - 1])),
            ("sparse_indices_that_wrap_their_difference", "GPC3034", lambda: sparse([(1 << 63) - 1, -(1 << 63)])),
            ("sparse_indices_descending", "GPC3034", lambda: sparse([3, 1])),
            ("sparse_index_twice", "GPC3034", lambda: sparse([3, 3])),
            ("sparse_row_outside", "GPC3034", lambda: sparse([[0, 0], [1, 3]])),
            ("sparse_row_negative", "GPC3034", lambda: sparse([[0, -1], [1, 2]])),
            ("sparse_rows_of_another_rank", "GPC3034", lambda: sparse([[0, 0, 0], [1, 1, 1]])),
            ("sparse_fewer_indices", "GPC3034", lambda: sparse([0])),
            ("sparse_indices_of_i32", "GPC3034", lambda: sparse([0, 1], dtype=np.int32)),
            ("sparse_indices_of_f32", "GPC3034", lambda: sparse([0.0, 1.0], dtype=np.float32)),
            ("sparse_2_40_elements", "GPC4001", lambda: sparse([0, 1], dims=[1 << 40])),
            ("sparse_2_28_elements", "GPC4001", lambda: sparse([0, 1], dims=[1 << 28])),
            ("sparse_of_negative_dims", "GPC3033", lambda: sparse([0, 1], dims=[-2, -3])),
            ("sparse_of_no_elements", "GPC3034", lambda: sparse([0, 1], dims=[0, 3])),
            ("sparse_scalar", "GPC3034", lambda: sparse(np.zeros((2, 0)), dims=[])),
        ]
    ],
)
listed(
    "tensors",
    [
        ("bool_of_seven", "GPC3015", lambda: weight(data_type=TensorProto.BOOL, int32_data=[7] * 6), "'sum'"),
        (
            "a_weight_of_no_elements_and_2_40",
            OK,
            lambda: model(
                [node("Concat", ["w", "w"], ["y"], axis=0)],
                [X],
                weights=[TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[0, 1 << 40], raw_data=b"")],
            ),
        ),
    ],
)
