"""For every rule, graphs that look like its pattern but on which it must not fire, each with the reason."""

from __future__ import annotations

import math

import numpy as np

from gpucomp import ops
from gpucomp.ir import BOOL, F32, Graph, Value, constant
from gpucomp.ir.types import F16, I8, I16, I32, U8
from tests.builders import graph_of, scalar, tensor, weights
from tests.rewrite.examples import (
    ASYMMETRIC,
    ASYMMETRIC_TAPS,
    BYTES,
    IMAGE,
    LAST,
    LAST_TO_FIRST,
    POOL,
    ROWS,
    SHORT,
    SQUARE,
    ZERO,
    ZEROS,
    X,
    Y,
    centred,
    codes,
    dequantized,
    masked_attention,
    padded,
    rooted,
    swapped,
    unseen,
    whole,
    widened,
)

_CONV = ops.Conv(IMAGE, weights(4, 6, 2, 3), **SQUARE)
_MATMUL = ops.MatMul(X, weights(5, 7))
_PAIR = ops.Transpose(LAST, perm=LAST_TO_FIRST)
_I = tensor("i", 2, 3, 5, dtype=I32)
_H, _UPDATES = tensor("h", 5, 3, dtype=F16), tensor("u", 1, 3, dtype=F16)
SINGLE = tensor("u", 1, 3, 5)
_POWER = ops.Exp(ops.Sub(X, ops.ReduceMax(X, axes=(1,), keepdims=True)))
_SCORES = ops.MatMul(tensor("q", 2, 5, 7), tensor("k", 2, 7, 11))
_WEIGHTS = ops.Softmax(_SCORES, axis=2)
_HIDDEN = ops.Where(tensor("rows", 5, 1, dtype=BOOL), scalar(0), _WEIGHTS)


def both(a: Value, b: Value) -> Graph:
    """A graph that also returns a value that the rule needs to be the only reader of."""
    return graph_of(a, b)


def _layer_norm(x: Value, mean: Value) -> Graph:
    return graph_of(ops.Div(ops.Sub(x, mean), rooted(centred(x))))


def _gelu(scale: float, half: float = 0.5, gate: Value = X) -> Graph:
    return graph_of(ops.Mul(ops.Mul(X, scalar(half)), ops.Add(ops.Erf(ops.Mul(gate, scalar(scale))), scalar(1))))


def _gelu_tanh(cubic: float) -> Graph:
    inner = ops.Add(X, ops.Mul(ops.Mul(ops.Mul(X, X), X), scalar(cubic)))
    inner = ops.Mul(inner, scalar(math.sqrt(2 / math.pi)))
    return graph_of(ops.Mul(ops.Mul(X, scalar(0.5)), ops.Add(ops.Tanh(inner), scalar(1))))


SINGLE_SUM = tensor("sum", 3, 5, dtype=I32)
_BYTES = dequantized(tensor("codes", 2, 3, 5, dtype=I8), scalar(0.02), 3)
_SUM = ops.Cast(_I, to=F32)
_STEPS = ops.Mul(_SUM, scalar(0.25))

REFUSALS: dict[str, dict[str, Graph]] = {
    "multiply_codes": {
        "floats by codes": graph_of(ops.MatMul(X, dequantized(codes(5, 7), scalar(0.1)))),
        "codes by floats": graph_of(ops.MatMul(_BYTES, weights(5, 7))),
        "codes by codes that are no constant": graph_of(
            ops.MatMul(_BYTES, dequantized(tensor("w", 5, 7, dtype=I8), scalar(0.1)))
        ),
        "a scale for each row of the weights": graph_of(ops.MatMul(_BYTES, dequantized(codes(5, 7), weights(5, 1)))),
        "a scale for each row of the codes": graph_of(
            ops.MatMul(
                dequantized(tensor("codes", 2, 3, 5, dtype=I8), weights(3, 1)), dequantized(codes(5, 7), scalar(0.1))
            )
        ),
        "integers that are no bytes": graph_of(
            ops.MatMul(dequantized(_I, scalar(0.1)), dequantized(codes(5, 7), scalar(0.1)))
        ),
        "sums that i32 may not hold": graph_of(
            ops.MatMul(
                dequantized(tensor("codes", 1, 40_000, dtype=I8), scalar(0.1)),
                dequantized(codes(40_000, 2), scalar(0.1)),
            )
        ),
    },
    "add_bias_to_codes": {
        "the bias is half a step": graph_of(ops.Add(_STEPS, scalar(0.125))),
        "the product is read elsewhere": both(ops.Add(_STEPS, scalar(0.5)), _STEPS),
        "no scale": graph_of(ops.Add(_SUM, scalar(3))),
        "the bias is no constant": graph_of(ops.Add(_STEPS, X)),
        "the bias is wider than the sum": graph_of(
            ops.Add(ops.Mul(ops.Cast(SINGLE_SUM, to=F32), scalar(0.25)), constant(np.full((2, 3, 5), 0.5, np.float32)))
        ),
        "it is no number": graph_of(ops.Add(_STEPS, scalar(math.inf))),
        "a scale of zero": graph_of(ops.Add(ops.Mul(_SUM, scalar(0)), scalar(1))),
    },
    "one_multiplier": {
        "a negative divisor": graph_of(ops.Div(_STEPS, scalar(-3))),
        "zero": graph_of(ops.Div(_STEPS, scalar(0))),
        "floats": graph_of(ops.Div(ops.Mul(X, scalar(0.25)), scalar(3))),
        "the product is read elsewhere": both(ops.Div(_STEPS, scalar(3)), _STEPS),
        "the quotient overflows": graph_of(ops.Div(ops.Mul(_SUM, scalar(1e30)), scalar(1e-30))),
        "a leaky rectifier": graph_of(ops.Div(ops.LeakyRelu(_STEPS, alpha=0.1), scalar(3))),
    },
    "take_out_zero_point": {
        "a constant zero point": graph_of(ops.MatMul(ops.Sub(ROWS, constant(np.int32(119))), widened(codes(7, 5)))),
        "a zero point for each step of the depth": graph_of(
            ops.MatMul(ops.Sub(ROWS, widened(tensor("steps", 7, dtype=U8))), widened(codes(7, 5)))
        ),
        "a zero point for each channel": graph_of(
            ops.Conv(
                ops.Sub(BYTES, widened(tensor("channels", 6, 1, 1, dtype=I8))), widened(codes(5, 6, 2, 3)), **SQUARE
            )
        ),
        "weights that are no constant": graph_of(ops.MatMul(ops.Sub(ROWS, ZERO), widened(tensor("w", 7, 5, dtype=I8)))),
        "codes of sixteen bits": graph_of(
            ops.MatMul(ops.Sub(widened(tensor("long", 3, 7, dtype=I16)), ZERO), widened(codes(7, 5)))
        ),
        "a zero point of 32 bits": graph_of(ops.MatMul(ops.Sub(ROWS, tensor("wide", dtype=I32)), widened(codes(7, 5)))),
        "one code less many zero points": graph_of(
            ops.MatMul(ops.Sub(widened(tensor("row", 1, 7, dtype=U8)), ZEROS), widened(codes(7, 5)))
        ),
        "sums that i32 may not hold": graph_of(
            ops.MatMul(
                ops.Sub(widened(tensor("deep", 1, 66_000, dtype=U8)), ZERO),
                constant(np.full((66_000, 1), 128, np.int32)),
            )
        ),
        "floats": graph_of(ops.MatMul(ops.Sub(X, scalar(3)), weights(5, 7))),
    },
    "take_out_offset_of_weights": {
        "weights that are bytes": graph_of(ops.MatMul(ROWS, widened(codes(7, 5)))),
        "weights that are unsigned bytes": graph_of(ops.MatMul(ROWS, constant(np.full((7, 5), 255, np.int32)))),
        "a column that spans more than a byte": graph_of(
            ops.MatMul(ROWS, constant(np.array([[-1, 255]] * 3 + [[0, -1]] * 4, np.int32)))
        ),
        "weights that are no constant": graph_of(ops.MatMul(ROWS, tensor("w", 7, 5, dtype=I32))),
        "codes of sixteen bits": graph_of(ops.MatMul(widened(tensor("long", 3, 7, dtype=I16)), ASYMMETRIC)),
        "a zero point known at run time": graph_of(ops.MatMul(ops.Sub(ROWS, ZERO), ASYMMETRIC)),
        "sums that i32 may not hold": graph_of(
            ops.MatMul(
                widened(tensor("deep", 1, 40_000, dtype=U8)), constant(np.array([[-9], [245]] * 20_000, np.int32))
            )
        ),
        "a window a channel": graph_of(
            ops.Conv(BYTES, constant(np.moveaxis(ASYMMETRIC_TAPS.attrs["value"][:1], 1, 0)), **{**SQUARE, "group": 6})
        ),
        "one column": graph_of(ops.MatMul(ROWS, constant(np.array([[-9], [245]] * 3 + [[7]], np.int32)))),
        "no columns": graph_of(ops.MatMul(ROWS, constant(np.zeros((7, 0), np.int32)))),
    },
    "fold": {
        "an operand is no constant": graph_of(ops.Add(X, weights(5))),
        "a repetition costs memory": graph_of(ops.Expand(weights(64), shape=(512, 64))),
        "shared weights would be kept twice": both(ops.Transpose(W := weights(200, 100), perm=(1, 0)), W),
    },
    "constant_on_the_right": {
        "it is there": graph_of(ops.Mul(X, weights(5))),
        "both are": graph_of(ops.Mul(weights(5), weights(5, seed=1))),
    },
    "subtract_constant": {
        "the constant is on the left": graph_of(ops.Sub(weights(5), X)),
        "two variables": graph_of(ops.Sub(X, Y)),
    },
    "divide_by_power_of_two": {
        "3 has no exact reciprocal": graph_of(ops.Div(X, scalar(3))),
        "one of them has none": graph_of(ops.Div(X, constant(np.array([1, 2, 3, 4, 8], np.float32)))),
        "the reciprocal is subnormal": graph_of(ops.Div(X, scalar(2.0**127))),
        "zero": graph_of(ops.Div(X, scalar(0))),
        "integers": graph_of(ops.Div(_I, scalar(2, I32))),
    },
    "divide_one": {"two": graph_of(ops.Div(scalar(2), X)), "integers": graph_of(ops.Div(scalar(1, I32), _I))},
    "drop_neutral_operand": {
        "it is the other operation's": graph_of(ops.Add(X, scalar(1))),
        "0 - x": graph_of(ops.Sub(scalar(0), X)),
        "it broadcasts": graph_of(ops.Mul(SHORT, constant(np.ones((2, 1, 1), np.float32)))),
        "one element is another": graph_of(ops.Mul(X, constant(np.array([1, 1, 1, 1, 2], np.float32)))),
    },
    "drop_cast": {"to another type": graph_of(ops.Cast(X, to=F16))},
    "drop_movement": {
        "another shape": graph_of(ops.Reshape(X, shape=(6, 5))),
        "two parts": graph_of(ops.Concat(X, tensor("e", 2, 0, 5), axis=1)),
    },
    "drop_transpose": {"axes of one size change places": graph_of(ops.Transpose(tensor("x", 3, 3), perm=(1, 0)))},
    "drop_slice": {"backwards": graph_of(whole(X, starts=(0, 2, 0), steps=(1, -1, 1)))},
    "drop_pad": {"as much is cut as is added": graph_of(ops.Pad(X, pads=(0, 1, 0, 0, -1, 0)))},
    "decided_where": {
        "a mixed condition": graph_of(ops.Where(constant(np.array([True, False, True, True, True])), X, Y)),
        "it broadcasts": graph_of(ops.Where(constant(np.ones((2, 1, 1), np.bool_)), SHORT, X)),
    },
    "reduce_nothing": {
        "an axis of more": graph_of(ops.ReduceMean(tensor("x", 1, 3), axes=(0, 1), keepdims=True)),
    },
    "merge_reshapes": {"one alone": graph_of(ops.Reshape(X, shape=(30,)))},
    "merge_transposes": {"a reshape between": graph_of(swapped(ops.Reshape(swapped(X), shape=(5, 3, 2))))},
    "scatter_in_single": {
        "nothing adds up": graph_of(ops.ScatterElements(_H, constant(np.zeros((1, 3), np.int64)), _UPDATES, axis=0)),
        "nothing is rounded": graph_of(
            ops.ScatterElements(X, constant(np.zeros((1, 3, 5), np.int64)), SINGLE, axis=0, reduction="add")
        ),
    },
    "transpose_unit_axes": {"others move too": graph_of(ops.Transpose(tensor("x", 2, 1, 5), perm=(2, 1, 0)))},
    "merge_casts": {
        "f16 holds less than f32": graph_of(ops.Cast(ops.Cast(X, to=F16), to=F32)),
        "f32 rounds an i32": graph_of(ops.Cast(ops.Cast(_I, to=F32), to=I32)),
        "a number through bool": graph_of(ops.Cast(ops.Cast(X, to=BOOL), to=F32)),
    },
    "merge_slices": {
        "a pad between": graph_of(whole(ops.Pad(whole(X, sizes=(1, 3, 5)), pads=(1,) * 6), sizes=(1, 1, 1)))
    },
    "merge_pads": {
        "other values": graph_of(ops.Pad(ops.Pad(X, pads=(1,) * 6, value=0), pads=(1,) * 6, value=1.0)),
        "one cuts": graph_of(ops.Pad(ops.Pad(X, pads=(1,) * 6), pads=(-1,) * 6)),
        "the edge is repeated": graph_of(ops.Pad(ops.Pad(X, pads=(1,) * 6), pads=(1,) * 6, mode="edge")),
        "minus zero is another constant": graph_of(ops.Pad(ops.Pad(X, pads=(1,) * 6), pads=(1,) * 6, value=-0.0)),
    },
    "merge_expands": {"one alone": graph_of(ops.Expand(SHORT, shape=(7, 3, 5)))},
    "merge_concats": {
        "another axis": graph_of(ops.Concat(ops.Concat(X, Y, axis=1), ops.Concat(Y, X, axis=1), axis=2)),
        "the inner one is read elsewhere": both(ops.Concat(C := ops.Concat(X, Y, axis=1), X, axis=1), C),
        "more parts than a kernel takes": graph_of(
            ops.Concat(ops.Concat(*[X] * 9, axis=1), ops.Concat(*[X] * 9, axis=1), axis=1)
        ),
    },
    "drop_empty_parts": {
        "nothing is left": graph_of(ops.Concat(*[constant(np.zeros((2, 0), np.float32))] * 2, axis=1))
    },
    "drop_kept_axes": {
        "the kept axes are read too": both(
            ops.Reshape(R := ops.ReduceSum(X, axes=(2,), keepdims=True), shape=(2, 3)), R
        ),
        "axes merge as well": graph_of(ops.Reshape(ops.ReduceSum(X, axes=(2,), keepdims=True), shape=(6,))),
    },
    "square": {
        "the exponent broadcasts": graph_of(ops.Pow(SHORT, constant(np.full((2, 1, 1), 2, np.float32)))),
        "nearly two": graph_of(ops.Pow(X, scalar(2.001))),
    },
    "cube": {"the fourth power": graph_of(ops.Pow(X, scalar(4)))},
    "inverse_power": {
        "integers": graph_of(ops.Pow(_I, scalar(-1, I32))),
        "minus two": graph_of(ops.Pow(X, scalar(-2))),
    },
    "times_reciprocal": {"a quotient": graph_of(ops.Div(X, ops.Reciprocal(Y)))},
    "undo_twice": {"another function": graph_of(ops.Neg(ops.Abs(X)))},
    "once_is_enough": {
        "another function": graph_of(ops.Floor(ops.Ceil(X))),
        "twice Neg": graph_of(ops.Neg(ops.Neg(X))),
    },
    "move_sign": {"-a - b": graph_of(ops.Sub(ops.Neg(X), Y))},
    "limit_by_number": {
        "a limit a channel": graph_of(ops.Max(X, weights(5))),
        "NaN is no limit": graph_of(ops.Max(X, scalar(math.nan))),
        "it broadcasts": graph_of(ops.Min(SHORT, constant(np.ones((2, 1, 1), np.float32)))),
    },
    "clip_nothing": {"one limit": graph_of(ops.Clip(X, low=None, high=1.0))},
    "clip_at_zero": {
        "an upper limit": graph_of(ops.Clip(X, low=0.0, high=6.0)),
        "at one": graph_of(ops.Clip(X, low=1.0, high=None)),
    },
    "merge_clips": {
        "an empty interval": graph_of(ops.Clip(ops.Clip(X, low=2.0, high=1.0), low=0.0, high=3.0)),
        "an empty outer interval": graph_of(ops.Clip(ops.Relu(X), low=2.0, high=1.0)),
        "something between": graph_of(ops.Relu(ops.Neg(ops.Relu(X)))),
    },
    "merge_constants": {
        "the product overflows": graph_of(ops.Mul(ops.Mul(X, scalar(1e30)), scalar(1e30))),
        "the product underflows": graph_of(ops.Mul(ops.Mul(X, scalar(1e-30)), scalar(1e-30))),
        "the sum overflows": graph_of(ops.Add(ops.Add(X, scalar(3e38)), scalar(3e38))),
        "a sum and a product": graph_of(ops.Mul(ops.Add(X, scalar(2)), scalar(3))),
        "the merged one is larger than both": graph_of(ops.Add(ops.Add(X, weights(3, 1)), weights(5))),
    },
    "gather_constants": {
        "one has no constant": graph_of(ops.Add(ops.Add(X, weights(5)), Y)),
        "a sum is read elsewhere": both(ops.Add(S := ops.Add(X, weights(5)), ops.Add(Y, weights(5, seed=1))), S),
    },
    "scale_into_columns": {
        "the product is read elsewhere": both(ops.Mul(_CONV, weights(4, 1, 1)), _CONV),
        "a scale a column of pixels": graph_of(ops.Mul(_CONV, weights(3))),
        "the scale broadcasts": graph_of(ops.Mul(_MATMUL, weights(2, 1, 1, 1))),
        "an overflow": graph_of(ops.Mul(ops.Mul(_MATMUL, scalar(3e38)), scalar(3e38))),
        "1 / 0": graph_of(ops.Div(_MATMUL, scalar(0))),
        "weights that vary": graph_of(ops.Mul(ops.MatMul(X, tensor("w", 5, 7)), scalar(2.5))),
    },
    "scale_before_shift": {
        "no contraction": graph_of(ops.Mul(ops.Add(X, weights(5)), weights(5, seed=1))),
        "the sum is read elsewhere": both(ops.Mul(T := ops.Add(_CONV, weights(4, 1, 1)), weights(4, 1, 1, seed=1)), T),
        "a scale a row": graph_of(ops.Mul(ops.Add(_MATMUL, weights(7)), weights(3, 1))),
    },
    "scale_into_rows": {
        "a scale a pixel": graph_of(ops.Conv(ops.Mul(IMAGE, weights(7, 5)), weights(4, 6, 2, 3), **SQUARE)),
        "padding is no longer zero": graph_of(
            ops.Conv(ops.Mul(IMAGE, scalar(math.inf)), weights(4, 6, 2, 3), **{**SQUARE, "pads": (1, 1, 1, 1)})
        ),
        "the product is read elsewhere": both(ops.MatMul(M := ops.Mul(X, weights(5)), weights(5, 7)), M),
        "the other operand": graph_of(ops.MatMul(weights(2, 7, 3), ops.Mul(X, weights(5)))),
    },
    "shift_through": {
        "padding stays zero": graph_of(
            ops.Conv(ops.Add(IMAGE, weights(6, 1, 1)), weights(4, 6, 2, 3), **{**SQUARE, "pads": (1, 1, 1, 1)})
        ),
        "infinity times zero": graph_of(ops.MatMul(ops.Add(X, scalar(math.inf)), weights(5, 7))),
        "the sum is read elsewhere": both(ops.MatMul(A := ops.Add(X, weights(5)), weights(5, 7)), A),
    },
    "pad_into_conv": {
        "not zero": graph_of(ops.Conv(padded(0.5), weights(4, 6, 2, 3), **SQUARE)),
        "channels are padded": graph_of(
            ops.Conv(ops.Pad(IMAGE, pads=(0, 1, 0, 0, 0, 0, 0, 0)), weights(4, 7, 2, 3), **SQUARE)
        ),
        "it cuts": graph_of(ops.Conv(ops.Pad(IMAGE, pads=(0, 0, -1, 1, 0, 0, 1, -1)), weights(4, 6, 2, 3), **SQUARE)),
        "the edge is repeated": graph_of(
            ops.Conv(ops.Pad(IMAGE, pads=(0, 0, 1, 2, 0, 0, 1, 0), mode="edge"), weights(4, 6, 2, 3), **SQUARE)
        ),
    },
    "pad_into_average": {
        "its own pads do not count": graph_of(
            ops.AveragePool(padded(), **{**POOL, "pads": (1, 1, 1, 1), "out": (10, 4)}, count_include_pad=False)
        ),
        "not zero": graph_of(ops.AveragePool(padded(1.0), **POOL)),
    },
    "pad_into_max": {"a zero may be the maximum": graph_of(ops.MaxPool(padded(0.0), **POOL))},
    "transpose_after_unary": {"a reshape": graph_of(ops.Abs(ops.Reshape(X, shape=(6, 5))))},
    "transpose_after_broadcast": {
        "the other operand would be transposed": graph_of(ops.Add(swapped(X), tensor("z", 5, 2, 3))),
        "an operator of a single element and no constant": graph_of(
            ops.Add(swapped(X), ops.Mul(tensor("one", 1), tensor("z", 5, 2, 3)))
        ),
        "another permutation": graph_of(ops.Add(swapped(X), ops.Transpose(tensor("z", 3, 2, 5), perm=(2, 1, 0)))),
        "of fewer axes than the result": graph_of(ops.Add(ops.Transpose(tensor("r", 5, 3), perm=(1, 0)), X)),
    },
    "transpose_after_concat": {"a part that is none": graph_of(ops.Concat(swapped(X), tensor("z", 5, 2, 3), axis=0))},
    "transpose_after_reduction": {
        "a reshape": graph_of(ops.ReduceSum(ops.Reshape(X, shape=(6, 5)), axes=(0,), keepdims=True))
    },
    "extremes_of_reshape": {
        "an axis is kept": graph_of(ops.ReduceMax(ops.Reshape(X, shape=(6, 5)), axes=(1,), keepdims=False)),
        "a single element": graph_of(ops.ReduceMin(ops.Reshape(tensor("one"), shape=(1,)), axes=(0,))),
        "a transpose": graph_of(ops.ReduceMax(swapped(X), axes=(0, 1, 2))),
    },
    "transpose_after_arg": {"a reshape": graph_of(ops.ArgMax(ops.Reshape(X, shape=(6, 5)), axis=0, keepdims=True))},
    "transpose_after_axis": {"a reshape": graph_of(ops.Softmax(ops.Reshape(X, shape=(6, 5)), axis=0))},
    "transpose_after_norm": {"the normalised axis moves": graph_of(ops.LayerNorm(swapped(X), axis=2, epsilon=1e-3))},
    "transpose_after_extents": {
        "the rank grows": graph_of(ops.Expand(swapped(X), shape=(7, 5, 2, 3))),
        "a reshape": graph_of(ops.Pad(ops.Reshape(X, shape=(6, 5)), pads=(1, 1, 1, 1))),
    },
    "transpose_after_gather": {
        "indices of two axes": graph_of(ops.Gather(swapped(X), constant(np.array([[0, 1], [2, 0]])), axis=0)),
    },
    "transpose_after_reshape": {
        "axes merge that lie apart": graph_of(ops.Reshape(_PAIR, shape=(2, 210))),
        "no elements": graph_of(ops.Reshape(ops.Transpose(tensor("e", 0, 3), perm=(1, 0)), shape=(0, 2))),
    },
    "shuffle_channels_last": {
        "heads of attention merge": graph_of(
            ops.Reshape(ops.Transpose(tensor("h", 2, 3, 5, 7), perm=(0, 2, 1, 3)), shape=(2, 5, 21))
        ),
        "they lie together": graph_of(ops.Reshape(_PAIR, shape=(2, 3, 2, 35))),
    },
    "flatten_into_rows": {
        "the batch moves": graph_of(
            ops.MatMul(ops.Reshape(ops.Transpose(LAST, perm=(3, 0, 1, 2)), shape=(6, 70)), weights(70, 3))
        ),
        "weights that vary": graph_of(ops.MatMul(ops.Reshape(_PAIR, shape=(2, 210)), tensor("w", 210, 3))),
        "in order already": graph_of(
            ops.MatMul(ops.Reshape(ops.Transpose(X, perm=(0, 1, 2)), shape=(2, 15)), weights(15, 3))
        ),
    },
    "reshape_after_matmul": {
        "the last axis changes": graph_of(ops.MatMul(ops.Reshape(X, shape=(2, 15)), weights(15, 7))),
        "batched weights": graph_of(ops.MatMul(ops.Reshape(X, shape=(6, 5)), weights(2, 5, 7))),
    },
    "reshape_after_constant": {
        "the last axis changes": graph_of(ops.Sub(ops.Reshape(X, shape=(2, 15)), weights(15))),
        "along the first axis": graph_of(ops.Sub(ops.Reshape(X, shape=(6, 5)), weights(6, 1))),
        "no constant": graph_of(ops.Sub(ops.Reshape(X, shape=(6, 5)), tensor("b", 5))),
        "it broadcasts": graph_of(ops.Sub(ops.Reshape(X, shape=(6, 5)), weights(1, 1, 5))),
    },
    "reshape_after_unary": {"a transpose": graph_of(ops.Abs(swapped(X)))},
    "slice_of_concat": {
        "of two parts": graph_of(whole(ops.Concat(X, Y, axis=1), starts=(0, 2, 0), sizes=(2, 2, 5))),
    },
    "concat_of_slices": {
        "a gap": graph_of(ops.Concat(whole(X, sizes=(2, 3, 1)), whole(X, starts=(0, 0, 2), sizes=(2, 3, 3)), axis=2)),
        "another order": graph_of(
            ops.Concat(whole(X, starts=(0, 0, 2), sizes=(2, 3, 3)), whole(X, sizes=(2, 3, 2)), axis=2)
        ),
        "another axis": graph_of(
            ops.Concat(whole(X, sizes=(2, 3, 2)), whole(X, starts=(0, 0, 2), sizes=(2, 3, 2)), axis=1)
        ),
        "of two tensors": graph_of(
            ops.Concat(whole(X, sizes=(2, 3, 2)), whole(Y, starts=(0, 0, 2), sizes=(2, 3, 3)), axis=2)
        ),
    },
    "gather_of_progression": {
        "no even distances": graph_of(ops.Gather(X, constant(np.array([0, 1, 3])), axis=2)),
        "one twice": graph_of(ops.Gather(X, constant(np.array([1, 1])), axis=2)),
        "outside, where gather clamps": graph_of(ops.Gather(X, constant(np.array([4, 5])), axis=2)),
    },
    "broadcast_without_expand": {
        "nothing else has its shape": graph_of(ops.Add(ops.Expand(SHORT, shape=(2, 3, 5)), tensor("s", 5))),
    },
    "convolve_channels_last": {
        "it is": graph_of(ops.Conv(LAST, weights(2, 3, 6, 4), **SQUARE, layout="NHWC")),
        "weights that vary": graph_of(ops.Conv(IMAGE, tensor("w", 4, 6, 2, 3), **SQUARE)),
    },
    "multiply_and_place": {
        "taps that meet": graph_of(
            ops.ConvTranspose(LAST, weights(3, 3, 6, 5), layout="NHWC", out=(15, 11), **{**SQUARE, "strides": (2, 2)})
        ),
        "gaps between them": graph_of(
            ops.ConvTranspose(LAST, weights(1, 2, 6, 5), layout="NHWC", out=(13, 10), **{**SQUARE, "strides": (2, 2)})
        ),
        "a cut border": graph_of(
            ops.ConvTranspose(
                LAST,
                weights(2, 2, 6, 5),
                layout="NHWC",
                out=(13, 10),
                **{**SQUARE, "strides": (2, 2), "pads": (1, 0, 0, 0)},
            )
        ),
        "groups": graph_of(
            ops.ConvTranspose(
                LAST, weights(2, 2, 6, 5), layout="NHWC", out=(14, 10), group=2, **{**SQUARE, "strides": (2, 2)}
            )
        ),
        "weights that vary": graph_of(
            ops.ConvTranspose(
                LAST, tensor("w", 2, 2, 6, 5), layout="NHWC", out=(14, 10), **{**SQUARE, "strides": (2, 2)}
            )
        ),
    },
    "pool_channels_last": {
        "channels first": graph_of(ops.MaxPool(IMAGE, **{**POOL, "out": (6, 2)})),
        "another transpose": graph_of(ops.MaxPool(ops.Transpose(LAST, perm=(0, 3, 2, 1)), **{**POOL, "out": (4, 3)})),
    },
    "layer_norm": {
        "another mean is subtracted": _layer_norm(X, ops.ReduceMean(X, axes=(1,), keepdims=True)),
        "not the last axis": graph_of(
            ops.Div(
                D := ops.Sub(X, ops.ReduceMean(X, axes=(1,), keepdims=True)),
                ops.Sqrt(ops.Add(ops.ReduceMean(ops.Mul(D, D), axes=(1,), keepdims=True), scalar(1e-3))),
            )
        ),
        "nothing is subtracted": graph_of(ops.Div(X, rooted(X))),
    },
    "rms_norm": {
        "the mean of another square": graph_of(ops.Div(X, rooted(Y))),
        "no epsilon": graph_of(ops.Div(X, ops.Sqrt(ops.ReduceMean(ops.Mul(X, X), axes=(2,), keepdims=True)))),
        "an epsilon a channel": graph_of(
            ops.Div(X, ops.Sqrt(ops.Add(ops.ReduceMean(ops.Mul(X, X), axes=(2,), keepdims=True), weights(3, 1))))
        ),
        "a sum, no mean": graph_of(
            ops.Div(X, ops.Sqrt(ops.Add(ops.ReduceSum(ops.Mul(X, X), axes=(2,), keepdims=True), scalar(1e-3))))
        ),
    },
    "softmax": {
        "the sum runs over another axis": graph_of(ops.Div(_POWER, ops.ReduceSum(_POWER, axes=(2,), keepdims=True))),
        "the sum of something else": graph_of(ops.Div(_POWER, ops.ReduceSum(ops.Exp(X), axes=(1,), keepdims=True))),
        "nothing is subtracted": graph_of(ops.Div(E := ops.Exp(X), ops.ReduceSum(E, axes=(1,), keepdims=True))),
    },
    "log_softmax": {"exp": graph_of(ops.Log(ops.Exp(X)))},
    "gelu": {
        "another scale": _gelu(0.7),
        "another factor": _gelu(math.sqrt(0.5), 0.25),
        "of another": _gelu(math.sqrt(0.5), 0.5, Y),
    },
    "gelu_tanh": {"another cubic": _gelu_tanh(0.0457)},
    "sigmoid": {
        "exp(x)": graph_of(ops.Reciprocal(ops.Add(ops.Exp(X), scalar(1)))),
        "two": graph_of(ops.Reciprocal(ops.Add(ops.Exp(ops.Neg(X)), scalar(2)))),
    },
    "swish": {
        "the gate of another": graph_of(ops.Mul(X, ops.Sigmoid(Y))),
        "a scale a channel": graph_of(ops.Mul(X, ops.Sigmoid(ops.Mul(X, weights(5))))),
        "a shifted gate": graph_of(ops.Mul(X, ops.Sigmoid(ops.Add(X, scalar(1))))),
    },
    "mish": {"of another": graph_of(ops.Mul(X, ops.Tanh(ops.Softplus(Y))))},
    "softplus": {"two": graph_of(ops.Log(ops.Add(ops.Exp(X), scalar(2))))},
    "hard_sigmoid": {
        "another limit": graph_of(ops.Div(ops.Clip(ops.Add(X, scalar(3)), low=0.0, high=5.0), scalar(6))),
        "another slope": graph_of(ops.Div(ops.Clip(ops.Add(X, scalar(3)), low=0.0, high=6.0), scalar(5))),
    },
    "hard_swish": {
        "of another": graph_of(ops.Mul(X, ops.HardSigmoid(Y, alpha=1 / 6, beta=0.5))),
        "the default slope": graph_of(ops.Mul(X, ops.HardSigmoid(X, alpha=0.2, beta=0.5))),
    },
    "compute_before_expand": {
        "what is computed": graph_of(ops.Exp(ops.Expand(tensor("few", 1, 5), shape=(3, 5)))),
        "a constant as it is": graph_of(ops.Exp(ops.Mul(X, scalar(3)))),
    },
    "reduce_repeated": {
        "several numbers": graph_of(ops.ReduceMax(ops.Expand(weights(1, 5), shape=(3, 5)), axes=(1,))),
        "a sum": graph_of(ops.ReduceSum(ops.Expand(scalar(3), shape=(3, 5)), axes=(1,))),
        "nothing": graph_of(ops.ReduceMax(ops.Expand(scalar(3), shape=(3, 0)), axes=(1,))),
    },
    "multiply_zeros": {
        "what the other is is not known": graph_of(ops.MatMul(ops.Expand(scalar(0), shape=(2, 5)), tensor("w", 5, 7))),
        "infinity times 0 is NaN": graph_of(
            ops.MatMul(ops.Expand(scalar(0), shape=(2, 5)), constant(np.full((5, 7), np.inf, np.float32)))
        ),
        "ones": graph_of(ops.MatMul(ops.Expand(scalar(1), shape=(2, 5)), weights(5, 7))),
    },
    "move_repeated": {
        "several numbers": graph_of(ops.Reshape(ops.Expand(weights(1, 5), shape=(3, 5)), shape=(5, 3))),
        "what is computed": graph_of(ops.Transpose(ops.Expand(tensor("one", 1, 1), shape=(3, 5)), perm=(1, 0))),
    },
    "hide_rows_later": {
        "weights that are hidden one by one": graph_of(unseen(tensor("m", 5, 6, dtype=BOOL))),
        "another number": graph_of(unseen(tensor("rows", 5, 1, dtype=BOOL), 1.0)),
        "the weights are returned too": both(
            ops.MatMul(_HIDDEN, tensor("v", 2, 11, 3)),
            _HIDDEN,
        ),
    },
    "recognise_attention": {
        "the weights are returned too": both(ops.MatMul(_WEIGHTS, tensor("v", 2, 11, 3)), _WEIGHTS),
        "another axis": graph_of(ops.MatMul(ops.Softmax(_SCORES, axis=1), tensor("v", 2, 11, 3))),
        "no product of matrices": graph_of(ops.MatMul(ops.Softmax(X, axis=2), tensor("v", 2, 5, 3))),
    },
    "scale_scores": {
        "factors that differ": graph_of(
            ops.Attention(
                ops.Mul(tensor("q", 2, 5, 7), weights(7)), tensor("k", 2, 6, 7), tensor("v", 2, 6, 3), scale=0.3
            )
        ),
        "scores that are all zero": graph_of(
            ops.Attention(
                ops.Mul(tensor("q", 2, 5, 7), scalar(0)), tensor("k", 2, 6, 7), tensor("v", 2, 6, 3), scale=0.3
            )
        ),
    },
    "recognise_causal": {
        "another triangle": graph_of(masked_attention(np.tri(5, 6, 1, dtype=np.bool_)[::-1].copy())),
        "a first row that sees nothing": graph_of(masked_attention(np.tri(5, 6, -1, dtype=np.bool_))),
        "hidden columns that count": graph_of(masked_attention(np.tri(5, 6, dtype=np.bool_), masked=-100.0)),
        "two numbers above the diagonal": graph_of(
            masked_attention(np.triu(np.full((5, 6), -1e36, np.float32), 1) * np.arange(1, 7, dtype=np.float32) / 9)
        ),
        "a mask of each row of keys": graph_of(masked_attention(np.tri(1, 6, 2, dtype=np.bool_))),
    },
    "decompose_unfit_attention": {"heads that fit": graph_of(masked_attention(np.tri(5, 6, dtype=np.bool_)))},
    "decompose_attention": {"its pieces": graph_of(ops.MatMul(_WEIGHTS, tensor("v", 2, 11, 3)))},
}
