"""Invalid operands of operators, and their messages: one line that states what was expected and what was found."""

import re

import pytest

from gpucomp import ops
from gpucomp.errors import ShapeError
from gpucomp.ir.graph import infer
from gpucomp.ir.types import BOOL, F8E4M3, F16, F32, I8, I32, I64, U8, TensorType
from gpucomp.ops.registry import OPS


def f32(*shape):
    return TensorType(F32, shape)


def i64(*shape):
    return TensorType(I64, shape)


WINDOW = {"kernel": (3, 3), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "out": (2, 2)}
CONV = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
ROI = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
RESIZE = {"sizes": (4, 6), "scales": (2.0, 2.0)}

REFUSED = [
    ("Add", [f32(2), f32(3)], {}, "shapes do not broadcast: (2,), (3,)"),
    ("Add", [f32(2), i64(2)], {}, "operands of one element type expected, got f32, i64"),
    ("Add", [f32(2)], {}, "2 operands expected, 1 given"),
    ("Add", [TensorType(BOOL, (2,))] * 2, {}, "numeric elements expected, got bool"),
    ("Add", [TensorType(F8E4M3, (2,))] * 2, {}, "f8e4m3fn can be stored but not computed with: cast it first"),
    ("And", [f32(2), f32(2)], {}, "bool elements expected, got f32"),
    ("BitwiseAnd", [f32(2), f32(2)], {}, "integer elements expected, got f32"),
    ("BitShift", [i64(2), i64(2)], {"direction": "LEFT"}, "unsigned elements expected, got i64"),
    ("BitShift", [TensorType(U8, (2,))] * 2, {"direction": "UP"}, "direction LEFT or RIGHT expected, got 'UP'"),
    ("Neg", [TensorType(U8, (2,))], {}, "signed elements expected, got u8"),
    ("Exp", [i64(2)], {}, "float elements expected, got i64"),
    ("Celu", [f32(2)], {"alpha": 0.0}, "alpha above 0 expected, got 0.0"),
    ("Gelu", [f32(2)], {"approximate": "erf"}, "approximate none or tanh expected, got 'erf'"),
    ("Mod", [f32(2), f32(2)], {}, "fmod=1 expected, because f32 elements are not integers"),
    ("Clip", [TensorType(I8, (2,))], {"low": 0, "high": 300}, "limits that i8 can hold expected, got 300"),
    ("Clip", [TensorType(I8, (2,))], {"low": 0.5, "high": 3}, "limits that i8 can hold expected, got 0.5"),
    ("Where", [f32(2), f32(2), f32(2)], {}, "bool elements expected, got f32"),
    ("Where", [TensorType(BOOL, (2,)), f32(2), i64(2)], {}, "one element type expected, got f32 and i64"),
    ("Reshape", [f32(2, 3)], {"shape": (7,)}, "6 elements do not fit in shape [7]"),
    ("Transpose", [f32(2, 3)], {"perm": (0, 0)}, "perm [0, 0] is not a permutation of 2 axes"),
    ("Concat", [], {"axis": 0}, "one part or more expected, got none"),
    ("Concat", [f32(2, 3), f32(2, 3)], {"axis": 2}, "axis of 0 to 1 expected, got 2"),
    ("Concat", [f32(2, 3), f32(3, 3)], {"axis": 1}, "f32[3,3] and f32[2,3] differ outside axis 1"),
    ("Append", [f32(2, 7), f32(2, 3)], {"axis": 1, "at": 5}, "rows 5 to 7 at axis 1 are not inside f32[2,7]"),
    ("Append", [f32(2, 7), f32(3, 3)], {"axis": 1, "at": 0}, "f32[3,3] and f32[2,7] differ outside axis 1"),
    ("Append", [f32(2, 7), i64(2, 3)], {"axis": 1, "at": 0}, "differ in element type or rank"),
    ("Slice", [f32(5)], {"starts": (3,), "steps": (1,), "sizes": (3,)}, "elements of 0 to 4 expected at axis 0"),
    ("Slice", [f32(5)], {"starts": (1,), "steps": (-1,), "sizes": (3,)}, "at axis 0, got 1 to -1"),
    ("Slice", [f32(5)], {"starts": (3,), "steps": (0,), "sizes": (1,)}, "a step other than 0"),
    ("Slice", [f32(5)], {"starts": (), "steps": (), "sizes": ()}, "1 starts, steps and sizes expected, got 0, 0, 0"),
    ("Pad", [f32(5)], {"pads": (1,)}, "2 pads expected, got 1"),
    ("Pad", [f32(5)], {"pads": (-3, -3)}, "pads -3 and -3 at axis 0 leave nothing of 5 elements"),
    ("Pad", [f32(0)], {"pads": (1, 0), "mode": "edge"}, "pads 1 and 0 at axis 0 leave nothing of 0 elements"),
    ("Pad", [f32(5)], {"pads": (1, 1), "mode": "mirror"}, "expected, got 'mirror'"),
    ("Expand", [f32(3, 2)], {"shape": (3, 1)}, "a shape that [3, 2] broadcasts to expected, got [3, 1]"),
    ("Iota", [], {"size": -1, "dtype": I64}, "integers and a size of at least 0 expected, got i64 and -1"),
    ("Iota", [], {"size": 3, "dtype": F32}, "integers and a size of at least 0 expected, got f32 and 3"),
    ("Tile", [f32(3)], {"repeats": (-1,)}, "1 repeats of at least 0 expected, got [-1]"),
    ("Gather", [f32(3), f32(2)], {"axis": 0}, "integer elements expected, got f32"),
    ("Gather", [f32(0, 3), i64(2)], {"axis": 0}, "one element or more expected along axis 0 of f32[0,3], got none"),
    ("GatherElements", [f32(3, 2), i64(2)], {"axis": 0}, "indices of rank 2 expected, got i64[2]"),
    ("GatherElements", [f32(3, 2), i64(2, 5)], {"axis": 0}, "indices no larger than [3, 2] outside axis 0"),
    ("GatherND", [f32(3, 2), i64(4, 3)], {}, "index tuples of at most 2 expected, got 3"),
    ("GatherND", [f32(3, 2), i64(4, 1)], {"batch_dims": 1}, "1 equal leading axes expected"),
    ("GatherND", [f32(3, 2), i64(4, 1)], {"batch_dims": 2}, "batch_dims of 0 to 1 expected, got 2"),
    ("ScatterElements", [f32(3), i64(2), i64(2)], {"axis": 0}, "updates of f32 expected, got i64[2]"),
    ("ScatterElements", [f32(3), i64(2), f32(3)], {"axis": 0}, "indices and updates of one shape and rank 1 expected"),
    ("ScatterElements", [f32(3), i64(2), f32(2)], {"axis": 0, "reduction": "avg"}, "expected, got 'avg'"),
    ("ScatterND", [f32(3, 2), i64(4, 1), f32(4)], {}, "updates of shape [4, 2] expected, got [4]"),
    ("ScatterND", [f32(3), i64(4, 2), f32(4)], {}, "index tuples of at most 1 expected, got i64[4,2]"),
    ("ReverseSequence", [f32(3, 2), i64(3)], {"batch_axis": 1, "time_axis": 0}, "lengths of shape [2] expected"),
    ("ReduceSum", [f32(3, 2)], {"axes": (2,)}, "axis of 0 to 1 expected, got 2"),
    ("ReduceSum", [f32(3, 2)], {"axes": (-1,)}, "axis of 0 to 1 expected, got -1"),
    ("ReduceSum", [f32(3, 2)], {"axes": (1, 1)}, "distinct axes expected, got [1, 1]"),
    ("ReduceSum", [TensorType(BOOL, (2,))], {"axes": (0,)}, "numeric elements expected, got bool"),
    ("ArgMax", [f32(3, 0)], {"axis": 1}, "one element or more expected along axis 1, got none"),
    ("CumSum", [f32(3)], {"axis": 1}, "axis of 0 to 0 expected, got 1"),
    ("TopK", [f32(3)], {"axis": 0, "k": 4}, "k of 0 to 3 expected, got 4"),
    ("Softmax", [i64(3)], {"axis": 0}, "float elements expected, got i64"),
    ("LayerNorm", [f32(3)], {"axis": 1}, "axis of 0 to 0 expected, got 1"),
    ("MaxPool", [f32(1, 1, 4)], WINDOW, "pads of 2 expected for f32[1,1,4], got [3, 3], "),
    ("MaxPool", [f32(1, 1, 4, 4)], {**WINDOW, "layout": "CHWN"}, "layout NCHW or NHWC expected, got 'CHWN'"),
    ("AveragePool", [f32(1, 1, 4, 4)], {**WINDOW, "strides": (0, 1)}, "of at least 1, and pads and out of at least 0"),
    ("AveragePool", [TensorType(I32, (1, 1, 4, 4))], WINDOW, "float elements expected, got i32"),
    ("MatMul", [f32(2, 3), f32(4, 5)], {}, "inner sizes differ: 3 and 4"),
    ("MatMul", [f32(3), f32(3, 5)], {}, "operands of rank 2 or more expected"),
    ("Conv", [f32(1, 3, 4, 4), f32(2, 2, 3, 3)], CONV, "3 input and 2 output channels do not fit group=1"),
    ("Conv", [f32(1, 3, 4, 4), f32(2, 3, 5, 3)], CONV, "kernel 5 with dilation 1 is larger than the padded"),
    ("Conv", [f32(1, 3, 4, 4), TensorType(F16, (2, 3, 3, 3))], CONV, "one element type expected, got f32 and f16"),
    ("ConvTranspose", [f32(1, 3, 4, 4), f32(2, 2, 3, 3)], {**CONV, "out": (6, 6)}, "3 input channels and weights"),
    (
        "ConvTranspose",
        [f32(1, 3, 4, 4), f32(3, 2, 3, 3)],
        {**CONV, "out": (6,)},
        "strides and dilations of 2 numbers, pads of 4 and",
    ),
    ("Einsum", [f32(2, 3)], {"equation": "ij,jk->ik"}, "2 operands expected by 'ij,jk->ik', got 1"),
    ("Einsum", [f32(2, 3)], {"equation": "ijk->i"}, "an operand of rank 3 expected for 'ijk' of 'ijk->i', got 2"),
    ("Einsum", [f32(2, 3), f32(4, 5)], {"equation": "ij,jk"}, "equal extents for each label of 'ij,jk' expected"),
    ("Einsum", [f32(2, 3)], {"equation": "ij->ii"}, "distinct labels of the operands expected after the arrow"),
    ("Einsum", [f32(2, 3)], {"equation": "i1->i"}, "letters and one ellipsis expected in 'i1'"),
    ("GridSample", [f32(2, 3, 4, 5), f32(2, 6, 7, 3)], {}, "a grid [2, ..., 2] of rank 4 expected, got f32[2,6,7,3]"),
    ("GridSample", [f32(2, 3, 4), f32(2, 6, 1)], {"mode": "bilinear"}, "linear or cubic expected, got 'bilinear'"),
    ("GridSample", [i64(2, 3, 4), f32(2, 6, 1)], {}, "float elements expected, got i64"),
    ("RoiAlign", [f32(1, 2, 3, 3), f32(5, 3), i64(5)], ROI, "rois [R, 4] and batch_indices [R] expected, got f32[5,3]"),
    ("RoiAlign", [f32(1, 2, 3, 3), f32(5, 4), i64(5)], {**ROI, "sampling_ratio": 0}, "of at least 1 expected, got 0"),
    (
        "DeformConv",
        [f32(1, 2, 5, 5), f32(3, 2, 3, 3), f32(1, 9, 3, 3), f32(1, 9, 3, 3)],
        CONV,
        "offset [1, 18, 3, 3] and mask [1, 9, 3, 3] expected, got f32[1,9,3,3] and f32[1,9,3,3]",
    ),
    ("Rank", [f32(3)], {"axis": 2}, "axis of 0 to 0 expected, got 2"),
    ("Resize", [f32(2, 3)], {**RESIZE, "sizes": (4,)}, "2 sizes and scales expected, got 1 and 2"),
    ("Resize", [f32(2, 3)], {**RESIZE, "mode": "lanczos"}, "mode nearest or linear or cubic expected, got 'lanczos'"),
    ("Resize", [f32(2, 3)], {**RESIZE, "scales": (0.0, 2.0)}, "scales above 0"),
    ("Resize", [f32(2, 0)], RESIZE, "one element or more along every axis expected, got f32[2,0]"),
    ("Resize", [f32(2, 3)], {**RESIZE, "scales": (1e-15, 2.0)}, "has too many digits for exact positions: round it"),
]


@pytest.mark.parametrize(("name", "types", "attrs", "message"), REFUSED, ids=[f"{r[0]}-{r[3][:40]}" for r in REFUSED])
def test_a_bad_operand_is_refused_with_a_message(name, types, attrs, message):
    with pytest.raises(ShapeError, match=re.escape(message)) as caught:
        infer(OPS[name], types, attrs, "layer/7")

    assert "at node 'layer/7'" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "attrs", "message"),
    [("Elu", {"beta": 1.0}, "unexpected keyword argument 'beta'"), ("Clip", {}, "missing a required argument: 'low'")],
)
def test_attributes_that_an_operator_does_not_have_are_a_bug_and_no_bad_model(name, attrs, message):
    with pytest.raises(TypeError, match=message):
        infer(OPS[name], [f32(2)], attrs)


@pytest.mark.parametrize(
    ("name", "types", "attrs", "expected"),
    [
        ("Add", [f32(2, 1, 3), f32(5, 1)], {}, f32(2, 5, 3)),
        ("Less", [f32(2), f32(2)], {}, TensorType(BOOL, (2,))),
        ("Gather", [f32(5, 7, 3), i64(2, 4)], {"axis": 1}, f32(5, 2, 4, 3)),
        ("GatherND", [f32(2, 3, 5), i64(2, 7, 1)], {"batch_dims": 1}, f32(2, 7, 5)),
        ("ReduceSum", [f32(2, 3, 5)], {"axes": (0, 2)}, f32(1, 3, 1)),
        ("ArgMin", [f32(2, 3)], {"axis": 0, "keepdims": False}, i64(3)),
        ("MaxPool", [f32(2, 7, 5, 3)], {**WINDOW, "layout": "NHWC"}, f32(2, 2, 2, 3)),
        ("Conv", [f32(1, 5, 5, 4), f32(3, 3, 4, 7)], {**CONV, "layout": "NHWC"}, f32(1, 3, 3, 7)),
        ("Einsum", [f32(2, 3, 5), f32(5, 7)], {"equation": "...j,jk"}, f32(2, 3, 7)),
    ],
)
def test_a_type_is_inferred(name, types, attrs, expected):
    assert infer(OPS[name], types, attrs) == (expected,)


def test_the_package_exports_every_operator():
    assert {name for name in ops.__all__ if name not in {"OPS", "Input", "Constant"}} == set(OPS)
