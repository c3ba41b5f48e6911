"""One graph for every rule, on which it fires. A rule without an example fails the suite."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpucomp import ops
from gpucomp.ir import BOOL, F32, F64, I64, Graph, Value, constant
from gpucomp.ir.types import F16, I8, I32, U8
from gpucomp.rewrite import (
    attention,
    canonicalize,
    fold,
    fuse_norms,
    layout,
    movement,
    pads,
    quantize,
    scale,
    simplify,
)
from gpucomp.rewrite.rule import Rule
from tests.builders import graph_of, scalar, tensor, weights

THEMES = {
    "quantize": (*quantize.RULES, *quantize.INTEGERS),
    "fold": fold.RULES,
    "canonicalize": (*canonicalize.RULES, *canonicalize.LATE_RULES),
    "simplify": simplify.RULES,
    "scale": scale.RULES,
    "pads": pads.RULES,
    "movement": movement.RULES,
    "layout": layout.RULES,
    "fuse_norms": fuse_norms.RULES,
    "attention": (*attention.RULES, *attention.DECOMPOSITION, *attention.UNFIT),
}
RULES: tuple[Rule, ...] = tuple(r for rules in THEMES.values() for r in rules)


@dataclass(frozen=True)
class Example:
    """``terms`` is the number of terms in the sums of the result: the tolerance grows with it."""

    graph: Graph
    terms: int = 1


X = tensor("x", 2, 3, 5)
_PRODUCT = ops.MatMul(X, weights(5, 7))
Y = tensor("y", 2, 3, 5)
SHORT = tensor("short", 3, 5)
IMAGE = tensor("image", 2, 6, 7, 5)
SWAP = (2, 0, 1)
LAST_TO_FIRST = (0, 3, 1, 2)
LAST = tensor("last", 2, 7, 5, 6)
SQUARE = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
POOL = {"kernel": (2, 3), "strides": (1, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "out": (8, 3)}
GROWN = (0, 0, 1, 2, 0, 0, 1, 0)


def rooted(x: Value) -> Value:
    """sqrt(mean(x^2) + 0.001) over the last axis."""
    return ops.Sqrt(ops.Add(ops.ReduceMean(ops.Mul(x, x), axes=(2,), keepdims=True), scalar(1e-3)))


def centred(x: Value) -> Value:
    return ops.Sub(x, ops.ReduceMean(x, axes=(2,), keepdims=True))


def gelu_tanh_pieces(x: Value) -> Value:
    inner = ops.Mul(ops.Add(x, ops.Mul(ops.Mul(ops.Mul(x, x), x), scalar(0.044715))), scalar(math.sqrt(2 / math.pi)))
    return ops.Mul(ops.Mul(x, scalar(0.5)), ops.Add(ops.Tanh(inner), scalar(1)))


def exponentials(x: Value) -> Value:
    return ops.Exp(ops.Sub(x, ops.ReduceMax(x, axes=(1,), keepdims=True)))


def attention_pieces(*, masked: bool = False) -> Value:
    q, k, v = tensor("q", 2, 3, 5, 7), tensor("k", 2, 3, 7, 11), tensor("v", 2, 3, 11, 13)
    scores = ops.Mul(ops.MatMul(q, k), scalar(0.3))
    if masked:
        scores = ops.Where(tensor("mask", 5, 11, dtype=BOOL), scores, scalar(-1e9))
    else:
        scores = ops.Add(scores, tensor("mask", 2, 1, 1, 11))
    return ops.MatMul(ops.Softmax(scores, axis=3), v)


def masked_attention(mask: np.ndarray, *, head: int = 7, masked: float = -np.inf) -> Value:
    q, k, v = tensor("q", 2, 5, head), tensor("k", 2, 6, head), tensor("v", 2, 6, 3)
    return ops.Attention(q, k, v, constant(mask), scale=0.3, masked=masked)


def unseen(rows: Value, otherwise: float = 0.0) -> Value:
    """Attention whose weights are ``otherwise`` in the rows of a mask."""
    scores = ops.MatMul(tensor("q", 2, 5, 7), tensor("k", 2, 7, 6))
    return ops.MatMul(ops.Where(rows, scalar(otherwise), ops.Softmax(scores, axis=2)), tensor("v", 2, 6, 3))


def swapped(x: Value) -> Value:
    return ops.Transpose(x, perm=SWAP)


def whole(x: Value, **changes: tuple[int, ...]) -> Value:
    full = {"starts": (0,) * x.type.rank, "steps": (1,) * x.type.rank, "sizes": x.shape}
    return ops.Slice(x, **{**full, **changes})


def padded(value: float = 0.0) -> Value:
    return ops.Pad(IMAGE, pads=GROWN, mode="constant", value=value)


def dequantized(codes: Value, scale: Value, zero: int = 0) -> Value:
    """(codes - zero) scale, as the frontend imports DequantizeLinear."""
    wide = ops.Cast(codes, to=F32)
    return ops.Mul(ops.Sub(wide, scalar(zero)) if zero else wide, scale)


def codes(*shape: int, seed: int = 0) -> Value:
    """A constant of bytes."""
    return constant(np.random.default_rng([seed, *shape]).integers(-127, 128, shape).astype(np.int8))


def widened(codes: Value) -> Value:
    return ops.Cast(codes, to=I32)


def expression(value: Value, terms: int = 1) -> Example:
    return Example(graph_of(value), terms)


BYTES = widened(tensor("bytes", 2, 6, 7, 5, dtype=I8))
ROWS = widened(tensor("rows", 2, 3, 7, dtype=U8))
ZERO = widened(tensor("zero", dtype=U8))
ZEROS = widened(tensor("zeros", 2, 3, 1, dtype=U8))
UNSIGNED = constant(np.array([[0, 9, 255], [255, 17, 3]] * 3 + [[7, 255, 0]], np.uint8))
ASYMMETRIC = ops.Sub(widened(UNSIGNED), constant(np.int32(119)))
ASYMMETRIC_TAPS = constant(np.where(np.arange(180).reshape(5, 6, 2, 3) % 7, -3, 250).astype(np.int32))
_CONV = ops.Conv(IMAGE, weights(4, 3, 2, 3), group=2, **SQUARE)
_CODES = tensor("codes", 2, 3, 5, 6, dtype=I8)
_SUM = tensor("sum", 2, 3, 5, dtype=I32)
_SCALED = ops.Mul(ops.Cast(_SUM, to=F32), weights(3, 1))
_EXPONENTIALS = exponentials(X)
_CENTRED = centred(X)

_EXAMPLES: dict[str, Example] = {
    # quantize
    "multiply_codes": expression(
        ops.Conv(
            dequantized(_CODES, scalar(0.02), 3),
            dequantized(codes(4, 3, 2, 2), weights(4, 1, 1, 1)),
            strides=(1, 1),
            pads=(1, 0, 0, 1),
            dilations=(1, 1),
        ),
        12,
    ),
    "add_bias_to_codes": expression(ops.Add(_SCALED, constant(_SCALED.inputs[1].attrs["value"] * np.float32(-37)))),
    "one_multiplier": expression(ops.Div(ops.Relu(_SCALED), scalar(0.3))),
    "take_out_zero_point": Example(
        graph_of(
            ops.MatMul(ops.Sub(ROWS, ZEROS), widened(codes(7, 5))),
            ops.Conv(
                ops.Sub(BYTES, ZERO),
                widened(codes(4, 3, 2, 3)),
                group=2,
                strides=(1, 2),
                pads=(1, 0, 0, 2),
                dilations=(2, 1),
            ),
            ops.Conv(ops.Sub(BYTES, ZERO), widened(codes(5, 6, 2, 3)), **SQUARE),
        )
    ),
    "take_out_offset_of_weights": Example(
        graph_of(
            ops.MatMul(ROWS, ASYMMETRIC),
            ops.MatMul(ops.Sub(ROWS, constant(np.int32(131))), ASYMMETRIC),
            ops.Conv(BYTES, ASYMMETRIC_TAPS, group=1, strides=(1, 2), pads=(1, 0, 0, 2), dilations=(2, 1)),
            ops.Conv(BYTES, constant(ASYMMETRIC_TAPS.attrs["value"][:4, :3]), group=2, **SQUARE),
        )
    ),
    # fold
    "fold": expression(ops.Add(ops.MatMul(weights(3, 7), weights(7, 5)), SHORT)),
    # canonicalize
    "constant_on_the_right": expression(ops.Mul(weights(5), X)),
    "subtract_constant": expression(ops.Sub(X, weights(3, 1))),
    "divide_by_power_of_two": expression(ops.Div(X, constant(np.array([2, 0.25, -8, 1, 64], np.float32)))),
    "divide_one": expression(ops.Div(scalar(1), X)),
    "drop_neutral_operand": expression(ops.Mul(X, constant(np.ones((3, 1), np.float32)))),
    "drop_cast": expression(ops.Cast(X, to=F32)),
    "drop_movement": expression(ops.Expand(X, shape=(2, 3, 5))),
    "drop_transpose": expression(ops.Transpose(X, perm=(0, 1, 2))),
    "drop_slice": expression(whole(X)),
    "drop_pad": expression(ops.Pad(X, pads=(0,) * 6)),
    "decided_where": expression(ops.Where(constant(np.zeros((2, 1, 1), np.bool_)), Y, X)),
    "reduce_nothing": expression(ops.ReduceMean(tensor("x", 2, 1, 5), axes=(1,), keepdims=False)),
    "merge_reshapes": expression(ops.Reshape(ops.Reshape(X, shape=(6, 5)), shape=(3, 10))),
    "merge_transposes": expression(ops.Transpose(swapped(X), perm=(1, 0, 2))),
    "merge_casts": expression(ops.Cast(ops.Cast(tensor("h", 7, dtype=F16), to=F64), to=F32)),
    "merge_slices": expression(
        whole(whole(X, starts=(0, 2, 4), steps=(1, -1, -2), sizes=(2, 3, 3)), starts=(1, 0, 1), sizes=(1, 2, 2))
    ),
    "merge_pads": expression(
        ops.Pad(ops.Pad(X, pads=(0, 1, 0, 2, 0, 0), value=1.5), pads=(1, 1, 0, 0, 0, 3), value=1.5)
    ),
    "merge_expands": expression(ops.Expand(ops.Expand(SHORT, shape=(1, 3, 5)), shape=(2, 7, 3, 5))),
    "merge_concats": expression(ops.Concat(ops.Concat(X, Y, axis=1), X, axis=1)),
    "drop_empty_parts": expression(ops.Concat(X, constant(np.zeros((2, 0, 5), np.float32)), Y, axis=1)),
    "drop_kept_axes": expression(
        ops.Reshape(ops.ReduceSum(X, axes=(0, 2), keepdims=True), shape=(3,)),
    ),
    "scatter_in_single": expression(
        ops.ScatterND(
            tensor("h", 5, 7, dtype=F16),
            constant(np.array([[4], [1], [4]])),
            tensor("u", 3, 7, dtype=F16),
            reduction="add",
        ),
        terms=3,
    ),
    "transpose_unit_axes": expression(ops.Transpose(tensor("x", 2, 1, 5, 1), perm=(3, 0, 2, 1))),
    # simplify
    "square": expression(ops.Pow(X, scalar(2))),
    "cube": expression(ops.Pow(X, scalar(3))),
    "inverse_power": expression(ops.Pow(X, scalar(-1))),
    "times_reciprocal": expression(ops.Mul(X, ops.Reciprocal(Y))),
    "undo_twice": expression(ops.Neg(ops.Neg(X))),
    "once_is_enough": expression(ops.Floor(ops.Floor(X))),
    "move_sign": expression(ops.Add(X, ops.Neg(Y))),
    "limit_by_number": expression(ops.Max(X, scalar(-0.25))),
    "clip_nothing": expression(ops.Clip(X, low=None, high=None)),
    "clip_at_zero": expression(ops.Clip(X, low=0.0, high=None)),
    "merge_clips": expression(ops.Clip(ops.Clip(X, low=-0.5, high=0.75), low=0.25, high=2.0)),
    "merge_constants": expression(ops.Mul(ops.Mul(X, weights(3, 1)), weights(1, 1, 1, seed=1)), 2),
    "gather_constants": expression(ops.Add(ops.Add(X, weights(5)), ops.Add(Y, weights(5, seed=1))), 2),
    # scale
    "scale_into_columns": expression(ops.Mul(_CONV, weights(4, 1, 1)), 18),
    "scale_before_shift": expression(ops.Mul(ops.Add(_CONV, weights(4, 1, 1)), weights(4, 1, 1, seed=1)), 18),
    "scale_into_rows": expression(
        ops.Conv(ops.Mul(IMAGE, weights(6, 1, 1)), weights(4, 3, 2, 3), group=2, **SQUARE), 18
    ),
    "shift_through": expression(ops.Conv(ops.Add(IMAGE, weights(6, 1, 1)), weights(4, 3, 2, 3), group=2, **SQUARE), 18),
    # pads
    "pad_into_conv": expression(ops.Conv(padded(), weights(4, 6, 2, 3), **{**SQUARE, "pads": (0, 1, 1, 0)}), 36),
    "pad_into_average": expression(ops.AveragePool(padded(), **POOL), 6),
    "pad_into_max": expression(ops.MaxPool(padded(-math.inf), **POOL)),
    # movement
    "transpose_after_unary": expression(ops.LeakyRelu(swapped(X), alpha=0.1)),
    "transpose_after_broadcast": Example(
        graph_of(ops.Sub(swapped(X), weights(2, 1)), ops.Sub(swapped(X), ops.Mul(tensor("one", 1), weights(5, 1, 3))))
    ),
    "transpose_after_concat": expression(ops.Concat(swapped(X), weights(5, 2, 7), swapped(Y), axis=2)),
    "transpose_after_reduction": Example(
        graph_of(
            ops.ReduceSum(swapped(X), axes=(0,), keepdims=False),
            *ops.Extremes.node(swapped(Y), axes=(0, 1), keepdims=True).values,
        ),
        5,
    ),
    "extremes_of_reshape": Example(
        graph_of(
            *ops.Extremes.node(ops.Reshape(X, shape=(6, 5)), axes=(0, 1), keepdims=False).values,
            ops.ReduceMax(ops.Reshape(Y, shape=(30,)), axes=(0,), keepdims=True),
        )
    ),
    "transpose_after_arg": expression(ops.ArgMax(swapped(X), axis=1, keepdims=False)),
    "transpose_after_axis": expression(ops.Softmax(swapped(X), axis=1)),
    "transpose_after_norm": expression(
        ops.LayerNorm(ops.Transpose(IMAGE, perm=(1, 0, 3, 2)), axis=2, epsilon=1e-3), 35
    ),
    "transpose_after_extents": expression(ops.Pad(swapped(X), pads=(1, 0, 2, 0, 3, 0), mode="edge")),
    "transpose_after_gather": expression(ops.Gather(swapped(X), constant(np.array([3, 0, 1])), axis=0)),
    "transpose_after_reshape": expression(
        ops.Reshape(ops.Transpose(LAST, perm=LAST_TO_FIRST), shape=(2, 2, 3, 1, 35)),
    ),
    "shuffle_channels_last": expression(
        ops.Reshape(ops.Transpose(tensor("x", 2, 7, 5, 2, 3), perm=(0, 4, 3, 1, 2)), shape=(2, 6, 7, 5)),
    ),
    "flatten_into_rows": expression(
        ops.MatMul(ops.Reshape(ops.Transpose(LAST, perm=LAST_TO_FIRST), shape=(2, 210)), weights(210, 3)), 210
    ),
    "reshape_after_matmul": expression(ops.MatMul(ops.Reshape(X, shape=(6, 5)), weights(5, 7)), 5),
    "reshape_after_constant": expression(ops.Sub(ops.Reshape(X, shape=(6, 5)), weights(1, 5))),
    "reshape_after_unary": expression(ops.Abs(ops.Reshape(X, shape=(6, 5)))),
    "slice_of_concat": expression(whole(ops.Concat(X, Y, axis=1), starts=(0, 5, 0), steps=(1, -2, 1), sizes=(2, 2, 5))),
    "concat_of_slices": expression(
        ops.Concat(whole(X, starts=(0, 0, 1), sizes=(2, 3, 1)), whole(X, starts=(0, 0, 2), sizes=(2, 3, 3)), Y, axis=2)
    ),
    "gather_of_progression": expression(ops.Gather(X, constant(np.array([-1, 2, 0])), axis=2)),
    "broadcast_without_expand": expression(ops.Add(X, ops.Expand(tensor("s", 1, 5), shape=(3, 5)))),
    # layout
    "convolve_channels_last": expression(
        ops.ConvTranspose(IMAGE, weights(6, 2, 2, 3), group=3, out=(15, 7), **{**SQUARE, "strides": (2, 1)}), 12
    ),
    "multiply_and_place": expression(
        ops.ConvTranspose(LAST, weights(3, 2, 6, 5), layout="NHWC", out=(21, 10), **{**SQUARE, "strides": (3, 2)}), 6
    ),
    "pool_channels_last": expression(ops.MaxPool(ops.Transpose(LAST, perm=LAST_TO_FIRST), **{**POOL, "out": (6, 2)})),
    # fuse_norms
    "layer_norm": expression(ops.Div(_CENTRED, rooted(_CENTRED)), 5),
    "rms_norm": expression(ops.Mul(X, ops.Reciprocal(rooted(X))), 5),
    "softmax": expression(ops.Div(_EXPONENTIALS, ops.ReduceSum(_EXPONENTIALS, axes=(1,), keepdims=True)), 3),
    "log_softmax": expression(ops.Log(ops.Softmax(X, axis=1)), 3),
    "gelu": expression(ops.Mul(ops.Mul(X, ops.Add(ops.Erf(ops.Div(X, scalar(math.sqrt(2)))), scalar(1))), scalar(0.5))),
    "gelu_tanh": expression(gelu_tanh_pieces(X)),
    "sigmoid": expression(ops.Reciprocal(ops.Add(ops.Exp(ops.Neg(X)), scalar(1)))),
    "swish": expression(ops.Mul(X, ops.Sigmoid(ops.Mul(X, scalar(1.702))))),
    "mish": expression(ops.Mul(X, ops.Tanh(ops.Softplus(X)))),
    "softplus": expression(ops.Log(ops.Add(ops.Exp(X), scalar(1)))),
    "hard_sigmoid": expression(ops.Div(ops.Clip(ops.Add(X, scalar(3)), low=0.0, high=6.0), scalar(6))),
    "hard_swish": expression(ops.Div(ops.Mul(X, ops.Clip(ops.Add(X, scalar(3)), low=0.0, high=6.0)), scalar(6))),
    "compute_before_expand": expression(ops.Mul(X, ops.Exp(ops.Expand(weights(1, 5), shape=(3, 5))))),
    "reduce_repeated": expression(ops.Add(X, ops.ReduceMax(ops.Expand(scalar(3), shape=(3, 7)), axes=(1,)))),
    "multiply_zeros": expression(
        ops.Add(_PRODUCT, ops.MatMul(ops.Expand(scalar(0), shape=(2, 3, 5)), weights(5, 7))), 5
    ),
    "move_repeated": expression(ops.Add(SHORT, ops.Reshape(ops.Expand(scalar(3), shape=(5, 3)), shape=(3, 5)))),
    # attention
    "hide_rows_later": expression(unseen(tensor("rows", 5, 1, dtype=BOOL)), 18),
    "recognise_attention": expression(attention_pieces(), 18),
    "scale_scores": expression(
        ops.Attention(
            ops.Mul(tensor("q", 2, 5, 7), scalar(0.5)),
            ops.Expand(ops.Mul(tensor("k", 1, 6, 7), scalar(0.3)), shape=(2, 6, 7)),
            tensor("v", 2, 6, 3),
            scale=2.0,
        ),
        18,
    ),
    "recognise_causal": expression(masked_attention(np.tri(5, 6, 1, dtype=np.bool_)), 18),
    "decompose_unfit_attention": expression(masked_attention(np.tri(5, 6, dtype=np.bool_), head=257), 300),
    "decompose_attention": expression(
        ops.Attention(
            tensor("q", 3, 5, 7),
            tensor("k", 3, 11, 7),
            tensor("v", 3, 11, 2),
            tensor("m", 5, 11, dtype=BOOL),
            scale=0.3,
            masked=-1e4,
        ),
        18,
    ),
}

EXAMPLES = {rule: _EXAMPLES[rule.name] for rule in RULES if rule.name in _EXAMPLES}
UNKNOWN = set(_EXAMPLES) - {rule.name for rule in RULES}


def draw(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """An array for every input: normal floats with a mean of a quarter, small integers, any codes, fair bools."""
    rng = np.random.default_rng(seed)
    drawn = {}
    for value in graph.inputs:
        dtype, shape = value.type.dtype, value.shape
        if dtype is BOOL:
            drawn[value.attrs["label"]] = rng.random(shape) < 0.5
        elif dtype in (I8, I32, I64):
            drawn[value.attrs["label"]] = rng.integers(-9, 10, shape).astype(dtype.numpy)
        elif dtype is U8:
            drawn[value.attrs["label"]] = rng.integers(0, 256, shape).astype(np.uint8)
        else:
            drawn[value.attrs["label"]] = (rng.standard_normal(shape) + 0.25).astype(dtype.numpy)
    return drawn
