"""Families are recognised by the structure of the algorithm, and recognised kernels give the operators' results."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp import ops
from gpucomp.expr.core import Call, Load, load, reduces, transform
from gpucomp.expr.evaluate import evaluate_algorithm
from gpucomp.ir import F32, TensorType
from gpucomp.ir.types import F16, I32, I64
from gpucomp.kernel import Attention, Contraction, Loops, Rowwise, Store, Window
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.recognise import Composed, recognise


def f32(*shape):
    return TensorType(F32, shape)


CONV = {"strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (1, 2), "layout": "NHWC"}
LINE = {"strides": (1, 3), "pads": (0, 2, 0, 4), "dilations": (1, 1), "layout": "NHWC"}
POOL = {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1), "dilations": (1, 1)}

I64_3x7, F16_5x7, F16_3x7 = TensorType(I64, (3, 7)), TensorType(F16, (5, 7)), TensorType(F16, (3, 7))
CASES = {
    "conv": (ops.Conv, (f32(2, 9, 7, 5), f32(3, 2, 5, 4)), CONV, "contraction"),
    "conv_nchw": (ops.Conv, (f32(1, 5, 9, 7), f32(4, 5, 3, 2)), {**CONV, "layout": "NCHW"}, "contraction"),
    "conv_grouped": (ops.Conv, (f32(1, 9, 7, 6), f32(3, 2, 3, 4)), {**CONV, "group": 2}, "contraction"),
    "conv_depthwise": (ops.Conv, (f32(1, 9, 7, 6), f32(3, 2, 1, 6)), {**CONV, "group": 6}, "loops"),
    "conv_of_one_channel": (ops.Conv, (f32(1, 9, 7, 11), f32(3, 2, 11, 1)), CONV, "reduce"),
    "conv_of_one_channel_of_few": (ops.Conv, (f32(1, 9, 7, 6), f32(3, 2, 6, 1)), CONV, "loops"),
    "conv_of_one_channel_nchw": (
        ops.Conv,
        (f32(1, 11, 9, 7), f32(1, 11, 3, 2)),
        {**CONV, "layout": "NCHW"},
        "contraction",
    ),
    "conv_of_one_channel_in_depth": (ops.Conv, (f32(1, 9, 7, 22), f32(3, 2, 11, 2)), {**CONV, "group": 2}, "loops"),
    "conv_along_a_line_in_steps": (ops.Conv, (f32(1, 1, 41, 1), f32(1, 13, 1, 1)), LINE, "reduce"),
    "conv_along_a_line": (ops.Conv, (f32(1, 1, 41, 1), f32(1, 13, 1, 1)), {**LINE, "strides": (1, 1)}, "contraction"),
    "matmul": (ops.MatMul, (f32(5, 7), f32(7, 3)), {}, "contraction"),
    "matmul_batched": (ops.MatMul, (f32(2, 1, 5, 7), f32(3, 7, 4)), {}, "contraction"),
    "matmul_f16": (ops.MatMul, (TensorType(F16, (5, 7)), TensorType(F16, (7, 3))), {}, "contraction"),
    "matmul_i32": (ops.MatMul, (TensorType(I32, (5, 7)), TensorType(I32, (7, 3))), {}, "contraction"),
    "matmul_one_row": (ops.MatMul, (f32(1, 7), f32(7, 3)), {}, "contraction"),
    "matmul_one_column": (ops.MatMul, (f32(5, 7), f32(7, 1)), {}, "reduce"),
    "matmul_dot": (ops.MatMul, (f32(1, 7), f32(7, 1)), {}, "reduce"),
    "matmul_empty_inner": (ops.MatMul, (f32(5, 0), f32(0, 3)), {}, "loops"),
    "softmax": (ops.Softmax, (f32(2, 3, 7),), {"axis": 2}, "norm"),
    "softmax_inner_axis": (ops.Softmax, (f32(2, 5, 7),), {"axis": 1}, "norm"),
    "softmax_square": (ops.Softmax, (f32(5, 5),), {"axis": 0}, "norm"),
    "softmax_of_one": (ops.Softmax, (f32(5, 1),), {"axis": 1}, "loops"),
    "layer_norm": (ops.LayerNorm, (f32(3, 2, 5, 7),), {"axis": 2, "epsilon": 1e-5}, "norm"),
    "mean": (ops.ReduceMean, (f32(1, 5, 7, 3),), {"axes": (1, 2), "keepdims": True}, "reduce"),
    "max_of_all": (ops.ReduceMax, (f32(5, 7),), {"axes": (0, 1), "keepdims": False}, "reduce"),
    "argmax": (ops.ArgMax, (f32(5, 7),), {"axis": 1, "keepdims": False, "select_last_index": False}, "reduce"),
    "max_pool": (ops.MaxPool, (f32(1, 9, 7, 4),), {**POOL, "out": (5, 7), "layout": "NHWC"}, "pool"),
    "attention": (ops.Attention, (f32(2, 3, 5, 4), f32(2, 3, 7, 4), f32(2, 3, 7, 6)), {"scale": 0.5}, "attention"),
    "attention_masked": (ops.Attention, (f32(2, 5, 4), f32(2, 7, 4), f32(2, 7, 6), f32(5, 7)), {}, "attention"),
    "attention_causal": (
        ops.Attention,
        (f32(5, 4), f32(7, 4), f32(7, 6)),
        {"causal": 2, "masked": -1e38},
        "attention",
    ),
    "attention_of_shared_keys": (ops.Attention, (f32(2, 4, 5, 4), f32(2, 1, 7, 4), f32(2, 1, 7, 6)), {}, "attention"),
    "attention_f16": (ops.Attention, tuple(TensorType(F16, s) for s in ((5, 4), (7, 4), (7, 6))), {}, "attention"),
    "attention_of_wide_heads": (ops.Attention, (f32(2, 300), f32(3, 300), f32(3, 2)), {"scale": 0.05}, "loops"),
    "attention_of_one_key": (ops.Attention, (f32(5, 4), f32(1, 4), f32(1, 6)), {}, "loops"),
    "running_sum": (ops.CumSum, (f32(3, 5, 7),), {"axis": 1}, "scan"),
    "running_sum_of_all": (ops.CumSum, (f32(5),), {"axis": 0, "exclusive": True}, "scan"),
    "running_sum_from_the_end": (ops.CumSum, (f32(3, 5),), {"axis": 1, "reverse": True, "exclusive": True}, "scan"),
    "running_sum_f16": (ops.CumSum, (TensorType(F16, (3, 5)),), {"axis": 0, "reverse": True}, "scan"),
    "running_product_i32": (ops.CumProd, (TensorType(I32, (3, 5)),), {"axis": 1}, "scan"),
    "running_sum_of_one": (ops.CumSum, (f32(5, 1),), {"axis": 1}, "loops"),
    "running_sum_of_nothing": (ops.CumSum, (f32(5, 0),), {"axis": 0}, "loops"),
    "scatter": (ops.ScatterElements, (f32(5, 7), I64_3x7, f32(3, 7)), {"axis": 0}, "scatter"),
    "scatter_mul": (ops.ScatterElements, (f32(5, 7), I64_3x7, f32(3, 7)), {"axis": 0, "reduction": "mul"}, "scatter"),
    "scatter_nd": (ops.ScatterND, (f32(4, 5, 3), TensorType(I32, (6, 2)), f32(6, 3)), {"reduction": "max"}, "scatter"),
    "scatter_nd_grid": (ops.ScatterND, (f32(4, 5, 3), TensorType(I32, (2, 3, 1)), f32(2, 3, 5, 3)), {}, "scatter"),
    "scatter_f16_replaces": (ops.ScatterElements, (F16_5x7, I64_3x7, F16_3x7), {"axis": 0}, "scatter"),
    "scatter_f16_would_round": (
        ops.ScatterElements,
        (F16_5x7, I64_3x7, F16_3x7),
        {"axis": 0, "reduction": "add"},
        "reduce",
    ),
    "scatter_of_nothing": (ops.ScatterND, (f32(4, 3), TensorType(I32, (0, 1)), f32(0, 3)), {}, "loops"),
    "scatter_everywhere": (ops.ScatterND, (f32(4, 3), TensorType(I32, (2, 0)), f32(2, 4, 3)), {}, "loops"),
    "rank": (ops.Rank, (f32(5, 7),), {"axis": 1}, "reduce"),
    "relu": (ops.Relu, (f32(3, 5),), {}, "loops"),
    "transpose": (ops.Transpose, (f32(3, 5, 7),), {"perm": (2, 0, 1)}, "loops"),
    "scalar": (ops.Relu, (f32(),), {}, "loops"),
    "empty": (ops.Relu, (f32(3, 0, 5),), {}, "loops"),
}


def kernel_of(op, types, attrs):
    algorithm = op.algorithm(*types, **attrs)
    result = op.type_rule(*types, **attrs)
    store = Store(len(types), tuple(algorithm.axes), algorithm.body)
    return recognise(Composed((*types, result), 1, algorithm.axes, (store,))), algorithm


@pytest.mark.parametrize("case", CASES)
def test_family_and_meaning(case):
    op, types, attrs, family = CASES[case]
    rng = np.random.default_rng(0)
    inputs = [(rng.standard_normal(t.shape) * 3).astype(t.dtype.numpy) for t in types]

    kernel, algorithm = kernel_of(op, types, attrs)

    assert kernel.family == family
    (actual,) = expected(kernel, inputs)
    reference = evaluate_algorithm(algorithm, inputs)
    np.testing.assert_allclose(actual.astype(np.float64), reference.astype(np.float64), rtol=2e-3, atol=1e-5)
    if types[0].dtype is F32:
        np.testing.assert_allclose(actual, reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_no_reduction_survives_in_a_recognised_kernel(case):
    kernel, _ = kernel_of(*CASES[case][:3])

    if not isinstance(kernel.body, Loops):
        assert [r for e in kernel.expressions() for r in reduces(e)] == []


def test_columns_are_where_the_result_is_contiguous():
    kernel, _ = kernel_of(*CASES["conv"][:3])

    assert isinstance(kernel.body, Contraction)
    assert [v.extent for v in kernel.body.n] == [4]
    assert [v.extent for v in kernel.body.k] == [3, 2, 5]


def test_heads_that_share_keys_are_rows():
    types = (f32(2, 6, 5, 4), f32(2, 6, 7, 4), f32(2, 6, 7, 3))
    kernel, algorithm = kernel_of(ops.Attention, types, {"scale": 0.5})
    assert isinstance(kernel.body, Attention)
    assert [a.extent for a in kernel.body.rows] == [5]

    shared = (types[0], f32(2, 2, 7, 4), f32(2, 2, 7, 3))  # each for three query heads, as Expand and Reshape leave it

    def of_group(node):
        if not isinstance(node, Load) or node.source == 0:
            return None
        b, h, *rest = node.index
        return load(node.source, (b, h // 3, *rest), node.dtype)

    value = transform(algorithm.body, of_group)
    out = TensorType(F32, (2, 6, 5, 3))
    grouped = recognise(Composed((*shared, out), 1, algorithm.axes, (Store(3, tuple(algorithm.axes), value),)))

    assert isinstance(grouped.body, Attention)
    assert [a.extent for a in grouped.body.batch] == [2, 2]
    assert [a.extent for a in grouped.body.rows] == [3, 5]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(t.shape).astype(np.float32) for t in shared]
    repeated = [inputs[0], *(np.repeat(a, 3, axis=1) for a in inputs[1:])]
    np.testing.assert_allclose(expected(grouped, inputs)[0], expected(kernel, repeated)[0], rtol=1e-5, atol=1e-6)


def test_weights_of_another_score_are_no_attention():
    """The divisor has to be the sum of the same weights that the values are multiplied by."""
    _, algorithm = kernel_of(*CASES["attention"][:3])
    quotient = algorithm.body
    assert isinstance(quotient, Call)
    weighted, total = quotient.args
    doubled = transform(total, lambda e: e + e if isinstance(e, Call) and e.fn == "exp" else None)
    types = (*CASES["attention"][1], f32(2, 3, 5, 6))

    kernel = recognise(Composed(types, 1, algorithm.axes, (Store(3, tuple(algorithm.axes), weighted / doubled),)))

    assert kernel.family == "loops"


def test_groups_become_a_batch_axis():
    kernel, _ = kernel_of(*CASES["conv_grouped"][:3])

    assert isinstance(kernel.body, Contraction)
    assert [v.extent for v in kernel.body.batch] == [2]


def test_a_softmax_has_two_statistics_and_a_mean_one():
    softmax, _ = kernel_of(*CASES["softmax"][:3])
    mean, _ = kernel_of(*CASES["mean"][:3])

    assert isinstance(softmax.body, Rowwise)
    assert [s.op for s in softmax.body.statistics] == ["max", "sum"]
    assert isinstance(mean.body, Rowwise)
    assert mean.body.row_stores == {0}


def test_a_copy_of_any_rank_is_one_loop():
    kernel, _ = kernel_of(ops.Relu, (f32(3, 5, 7),), {})

    assert isinstance(kernel.body, Loops)
    assert [v.extent for v in kernel.body.domain] == [105]


def test_a_transposed_copy_keeps_the_axes_that_move():
    kernel, _ = kernel_of(ops.Transpose, (f32(3, 5, 7),), {"perm": (2, 0, 1)})

    assert isinstance(kernel.body, Loops)
    assert [v.extent for v in kernel.body.domain] == [7, 15]


def test_equal_layers_are_one_kernel_and_others_are_not():
    first, _ = kernel_of(*CASES["conv"][:3])
    second, _ = kernel_of(*CASES["conv"][:3])
    other, _ = kernel_of(ops.Conv, (f32(2, 9, 7, 5), f32(3, 2, 5, 6)), CONV)

    assert first.digest == second.digest
    assert first.digest != other.digest


def test_a_window_keeps_its_taps():
    kernel, _ = kernel_of(*CASES["max_pool"][:3])

    assert isinstance(kernel.body, Window)
    assert [v.extent for v in kernel.body.window] == [3, 2]
