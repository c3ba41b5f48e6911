"""Elementwise algebra: powers, clips, idempotent functions, and adjacent constants.

Exact unless a rule's docstring ends with "up to rounding". Constants are on the right: see ``canonicalize``.
"""

from __future__ import annotations

import numpy as np

from gpucomp import ops
from gpucomp.ir.graph import Node, Value, constant, constant_value
from gpucomp.ir.size import is_zero
from gpucomp.rewrite.match import UNARY, either_way, is_constant, is_number, keeps_type, like, splat
from gpucomp.rewrite.rule import Uses, rule

# powers and quotients ----------------------------------------------------------------------------------------


@rule(ops.Pow)
def square(node: Node) -> Value | None:
    """x^2  ->  x * x"""
    x, exponent = node.inputs
    return ops.Mul(x, x) if is_number(exponent, 2) and keeps_type(node, x) else None


@rule(ops.Pow)
def cube(node: Node) -> Value | None:
    """x^3  ->  x * x * x, up to rounding"""
    x, exponent = node.inputs
    return ops.Mul(ops.Mul(x, x), x) if is_number(exponent, 3) and keeps_type(node, x) else None


@rule(ops.Pow)
def inverse_power(node: Node) -> Value | None:
    """x^-1  ->  reciprocal(x)"""
    x, exponent = node.inputs
    return ops.Reciprocal(x) if is_number(exponent, -1) and keeps_type(node, x) and x.type.dtype.is_float else None


@rule(ops.Mul)
def times_reciprocal(node: Node) -> Value | None:
    """x * reciprocal(y)  ->  x / y, up to rounding (and finite where only 1 / y overflows)"""
    for x, inverse in (node.inputs, node.inputs[::-1]):
        match inverse:
            case Value(ops.Reciprocal, (y,)) if x is not inverse:
                return ops.Div(x, y)
    return None


# involutions and idempotents ---------------------------------------------------------------------------------


@rule(ops.Neg, ops.Not, ops.BitwiseNot)
def undo_twice(node: Node) -> Value | None:
    """-(-x)  ->  x; the same for not and bitwise not"""
    inner = node.inputs[0]
    return inner.inputs[0] if inner.op is node.op else None


@rule(ops.Relu, ops.Abs, ops.Floor, ops.Ceil, ops.Round, ops.Sign)
def once_is_enough(node: Node) -> Value | None:
    """f(f(x))  ->  f(x) for relu, abs, floor, ceil, round and sign"""
    return node.inputs[0] if node.inputs[0].op is node.op else None


@rule(ops.Sub, ops.Add)
def move_sign(node: Node) -> Value | None:
    """a + (-b)  ->  a - b;  a - (-b)  ->  a + b"""
    match node:
        case Node(ops.Add, (a, Value(ops.Neg, (b,)))) | Node(ops.Add, (Value(ops.Neg, (b,)), a)):
            return ops.Sub(a, b)
        case Node(ops.Sub, (a, Value(ops.Neg, (b,)))):
            return ops.Add(a, b)
    return None


# limits ------------------------------------------------------------------------------------------------------


@rule(ops.Max, ops.Min)
def limit_by_number(node: Node) -> Value | None:
    """max(x, c)  ->  clip(x, c, none);  min(x, c)  ->  clip(x, none, c), c a number other than NaN"""
    x, limit = node.inputs
    number = splat(limit)
    if number is None or is_constant(x) or number != number or not keeps_type(node, x):
        return None
    return ops.Clip(x, low=number, high=None) if node.op is ops.Max else ops.Clip(x, low=None, high=number)


@rule(ops.Clip)
def clip_nothing(node: Node) -> Value | None:
    """clip(x, none, none)  ->  x"""
    return node.inputs[0] if node.attrs["low"] is None and node.attrs["high"] is None else None


@rule(ops.Clip)
def clip_at_zero(node: Node) -> Value | None:
    """clip(x, 0, none)  ->  relu(x)"""
    low, high = node.attrs["low"], node.attrs["high"]
    return ops.Relu(node.inputs[0]) if low == 0 and high is None else None


Limits = tuple[float | None, float | None]


def _limits(value: Node | Value) -> Limits | None:
    """The interval that ``value``'s operator clips to; ``None`` if it does not clip."""
    if value.op is ops.Relu:
        return 0, None
    if value.op is ops.Clip:
        return value.attrs["low"], value.attrs["high"]
    return None


@rule(ops.Clip, ops.Relu)
def merge_clips(node: Node) -> Value | None:
    """clip(clip(x, a, b), c, d)  ->  clip(x, the common interval), where relu counts as clip(x, 0, none)"""
    inner, outer = _limits(node.inputs[0]), _limits(node)
    if inner is None or outer is None or (None not in outer and outer[0] > outer[1]):  # type: ignore[operator]
        return None
    if None not in inner and inner[0] > inner[1]:  # type: ignore[operator]
        return None
    if node.inputs[0].op is node.op is ops.Relu:
        return None  # once_is_enough
    low, high = (_clamp(limit, outer) for limit in inner)
    low = outer[0] if low is None else low
    high = outer[1] if high is None else high
    return ops.Clip(node.inputs[0].inputs[0], low=low, high=high)


def _clamp(limit: float | None, interval: Limits) -> float | None:
    low, high = interval
    if limit is not None and low is not None and limit < low:
        return low
    return high if limit is not None and high is not None and limit > high else limit


# constants that meet -----------------------------------------------------------------------------------------


@rule(ops.Add, ops.Mul)
def merge_constants(node: Node) -> Value | None:
    """(x + a) + b  ->  x + (a + b);  (x * a) * b  ->  x * (a * b), up to rounding

    Does not apply if the merged constant would overflow, underflow or have more elements than both.
    """
    match node:
        case Node(
            op, (Value(inner_op, (x, Value(ops.Constant, (), {"value": a}))), Value(ops.Constant, (), {"value": b}))
        ):
            if op is not inner_op or is_constant(x):
                return None
            with np.errstate(all="ignore"):
                merged = op.reference(a, b)
            if merged.size > max(a.size, b.size) or not _is_tame(op is ops.Mul, a, b, merged):
                return None
            replacement = op(x, constant(merged))
            return replacement if keeps_type(node, replacement) else None
    return None


def _is_tame(product: bool, a: np.ndarray, b: np.ndarray, merged: np.ndarray) -> bool:
    """Whether no number of ``merged`` overflowed or underflowed."""
    if merged.dtype.kind in "iub":
        return True
    if not all(np.all(np.isfinite(v.astype(np.float64))) for v in (a, b, merged)):
        return False
    if not product:
        return True
    size = np.abs(merged.astype(np.float64))
    smallest = np.finfo(np.float16).tiny if merged.dtype.itemsize == 2 else np.finfo(np.float32).tiny
    return bool(np.all((size >= smallest) | (size == 0) & ((a == 0) | (b == 0))))


@rule(ops.Add)
def gather_constants(node: Node, uses: Uses) -> Value | None:
    """(x + a) + (y + b)  ->  (x + y) + (a + b), if nothing else reads the two sums, up to rounding"""
    match node:
        case Node(
            _,
            (
                Value(ops.Add, (x, Value(ops.Constant, (), {"value": a}))) as left,
                Value(ops.Add, (y, Value(ops.Constant, (), {"value": b}))) as right,
            ),
        ):
            with np.errstate(all="ignore"):
                merged = ops.Add.reference(a, b)
            if uses(left) != 1 or uses(right) != 1 or merged.size > max(a.size, b.size):
                return None
            replacement = ops.Add(ops.Add(x, y), constant(merged))
            return replacement if keeps_type(node, replacement) and _is_tame(False, a, b, merged) else None
    return None


# numbers that are repeated: too many to be folded, as in a mask that hides nothing of 4,096 tokens ----------------


@rule(*UNARY)
def compute_before_expand(node: Node) -> Value | None:
    """f(expand(c))  ->  expand(f(c)), for a constant c"""
    match node.inputs[0]:
        case Value(ops.Expand, (x,), {"shape": shape}) if is_constant(x):
            return ops.Expand(node.op(x, name=node.name, **node.attrs), shape=shape)
    return None


@rule(ops.ReduceMax, ops.ReduceMin, ops.ReduceMean)
def reduce_repeated(node: Node) -> Value | None:
    """max(expand(c), axes)  ->  expand(c), for a constant c of one element; the same for min and mean"""
    match node.inputs[0]:
        case Value(ops.Expand, (x,), {"shape": shape}) if is_constant(x) and x.type.size == 1:
            if any(is_zero(shape[axis]) for axis in node.attrs["axes"]):
                return None
            return ops.Expand(ops.Reshape(x, shape=()), shape=node.types[0].shape)
    return None


@rule(ops.MatMul)
def multiply_zeros(node: Node) -> Value | None:
    """matmul(0, c)  ->  0, matmul(c, 0)  ->  0, for a constant c without infinities and NaN"""
    for zeros, other in either_way(node):
        if splat(zeros) == 0 and (array := constant_value(other)) is not None:
            finite = array.dtype.kind in "iu" or np.isfinite(array.astype(np.float64, copy=False)).all()
            return ops.Expand(like(0, node[0]), shape=node.types[0].shape) if finite else None
    return None


@rule(ops.Slice, ops.Reshape, ops.Transpose)
def move_repeated(node: Node) -> Value | None:
    """slice(expand(c))  ->  expand(c), for a constant c of one element; the same for reshape and transpose"""
    match node.inputs[0]:
        case Value(ops.Expand, (x,)) if is_constant(x) and x.type.size == 1:
            return ops.Expand(ops.Reshape(x, shape=()), shape=node.types[0].shape)
    return None


RULES = (
    square,
    cube,
    inverse_power,
    times_reciprocal,
    undo_twice,
    once_is_enough,
    move_sign,
    limit_by_number,
    clip_nothing,
    clip_at_zero,
    merge_clips,
    merge_constants,
    gather_constants,
    compute_before_expand,
    reduce_repeated,
    multiply_zeros,
    move_repeated,
)
