"""Fuses the pieces of attention for targets with an attention engine, and decomposes attention for all others.

attention(q, k, v, mask)  =  matmul(softmax(matmul(q, k^T) * scale [masked]), v)
"""

from __future__ import annotations

import math

import numpy as np

from gpucomp import ops
from gpucomp.device.limits import HEAD_LIMIT
from gpucomp.ir.graph import Node, Value, constant, constant_value
from gpucomp.ir.size import Size, at_most, below, is_one, is_zero, same
from gpucomp.ir.types import BOOL, F64, I64
from gpucomp.ops.registry import broadcast
from gpucomp.rewrite.match import either_way, is_constant, like, splat
from gpucomp.rewrite.rule import Uses, rule


@rule(ops.MatMul)
def hide_rows_later(node: Node, uses: Uses) -> Value | None:
    """matmul(where(rows, 0, softmax(x)), v)  ->  where(rows, 0, matmul(softmax(x), v)), for finite values v

    ONNX's Attention says so of rows that see no column.
    """
    match node.inputs:
        case (Value(ops.Where, (rows, zero, Value(ops.Softmax) as weights)) as hidden, v):
            if uses(hidden) != 1 or splat(zero) != 0 or weights.type != hidden.type:
                return None
            if rows.type.rank > 0 and not is_one(rows.shape[-1]):
                return None
            product = ops.MatMul(weights, v, name=node.name)
            return ops.Where(rows, like(0.0, product), product)
    return None


@rule(ops.MatMul)
def recognise_attention(node: Node, uses: Uses) -> Value | None:
    """matmul(softmax(matmul(q, k^T) * scale + mask), v)  ->  attention(q, k, v, mask, scale), scores not read elsewhere"""
    match node.inputs:
        case (Value(ops.Softmax, (scores,), {"axis": axis}) as weights, v):
            if axis != scores.type.rank - 1 or uses(weights) != 1:
                return None
            scores, mask, masked = _unmasked(scores)
            scale = 1.0
            match scores:
                case Value(ops.Mul | ops.Div as op, (inner, factor)) if (
                    number := splat(factor)
                ) and inner.op is ops.MatMul:
                    scores, scale = inner, float(number) if op is ops.Mul else 1 / float(number)
            if scores.op is not ops.MatMul or uses(scores) != 1 or is_constant(scores.inputs[1]):
                return None
            q, k_transposed = scores.inputs
            rank = k_transposed.type.rank
            k = ops.Transpose(k_transposed, perm=(*range(rank - 2), rank - 1, rank - 2))
            operands = (q, k, v) if mask is None else (q, k, v, mask)
            return ops.Attention(*operands, scale=scale, masked=masked)
    return None


def _unmasked(scores: Value) -> tuple[Value, Value | None, float]:
    """Split masked scores into (scores, mask, the score that a bool mask puts where it is false)."""
    if scores.op is ops.Add:
        for inner, mask in either_way(scores):
            if inner.op in (ops.MatMul, ops.Mul, ops.Div) and inner.type == scores.type and _is_product(inner):
                return inner, mask, 0.0
    if scores.op is ops.Where:
        mask, inner, other = scores.inputs
        masked = splat(other)
        if masked is not None and inner.type == scores.type:
            return inner, mask, float(masked)
    return scores, None, 0.0


def _is_product(value: Value) -> bool:
    """Whether ``value`` is a matrix product, or one multiplied or divided by a constant."""
    if value.op is ops.MatMul:
        return True
    return value.inputs[0].op is ops.MatMul and constant_value(value.inputs[1]) is not None


@rule(ops.Attention)
def scale_scores(node: Node) -> Value | None:
    """attention(q * a, k * b, v, scale)  ->  attention(q, k, v, scale * a * b), for numbers a and b, up to rounding

    ONNX's Attention multiplies both by a root. Engines that copy queries and keys as they are cannot.
    """
    q, k, *others = node.inputs
    (bare_q, a), (bare_k, b) = _without_factor(q), _without_factor(k)
    scale = float(node.attrs.get("scale", 1.0)) * a * b
    if (bare_q is q and bare_k is k) or not math.isfinite(scale) or scale == 0:
        return None
    return ops.Attention(bare_q, bare_k, *others, **{**node.attrs, "scale": scale})


def _without_factor(value: Value) -> tuple[Value, float]:
    """``value`` without the number that all its elements are multiplied by, and that number. Heads may share what is scaled."""
    match value:
        case Value(ops.Mul, (x, factor)) if x.type == value.type and (number := splat(factor)):
            return x, float(number)
        case Value(ops.Reshape | ops.Expand | ops.Transpose, (x,)):
            bare, number = _without_factor(x)
            if bare is not x:
                return value.op(bare, **value.node.attrs), number
    return value, 1.0


@rule(ops.Attention)
def recognise_causal(node: Node) -> Value | None:
    """attention(q, k, v, lower triangle)  ->  attention(q, k, v, causal), if every row sees its own column"""
    match node.inputs:
        case (q, k, v, mask) if (array := constant_value(mask)) is not None and node.attrs.get("causal") is None:
            hidden = _hidden(array, node.attrs.get("masked", 0.0))
            rows, columns = q.shape[-2], k.shape[-2]
            shape = (rows, columns)
            if isinstance(rows, Size) or isinstance(columns, Size):
                return None
            if hidden is None or array.shape[-2:] != shape or array.size != rows * columns:
                return None
            seen = array.reshape(shape) if mask.type.dtype is BOOL else array.reshape(shape) == 0
            offset = int(seen[0].sum()) - 1
            if offset < 0 or not np.array_equal(seen, np.tri(rows, columns, offset, dtype=np.bool_)):
                return None
            return ops.Attention(q, k, v, **{**node.attrs, "masked": hidden, "causal": offset})
    return None


def _hidden(mask: np.ndarray, masked: float) -> float | None:
    """The score of hidden columns; ``None`` if ``mask`` has several such scores, or one too large to hide a column."""
    if mask.dtype != np.bool_:
        others = np.unique(mask[mask != 0])
        if others.size != 1:
            return None
        masked = float(others[0])
    return masked if masked <= HIDDEN else None


HIDDEN = -1e30  # softmax gives such a score a weight of 0 beside any score that occurs in practice


def _fits(node: Node) -> bool:
    """Whether attention engines support the node: size of heads, no f64, nothing empty, scores with the result's batch."""
    q, k, v = node.inputs[:3]
    sizes = (*q.shape, *k.shape, *v.shape)
    scores = broadcast(q.shape[:-2], k.shape[:-2])
    return (
        q.type.dtype is not F64
        and not any(map(is_zero, sizes))
        and below(1, k.shape[-1])
        and at_most(k.shape[-1], HEAD_LIMIT)
        and at_most(v.shape[-1], HEAD_LIMIT)
        and not is_one(k.shape[-2])
        and same(math.prod(scores), math.prod(node.types[0].shape[:-2]))
    )


@rule(ops.Attention)
def decompose_unfit_attention(node: Node) -> Value | None:
    """attention(q, k, v, mask, scale)  ->  matmul(softmax(matmul(q, k^T) * scale + mask), v), if no engine supports it"""
    return None if _fits(node) else _decomposed(node)


@rule(ops.Attention)
def decompose_attention(node: Node) -> Value | None:
    """attention(q, k, v, mask, scale)  ->  matmul(softmax(matmul(q, k^T) * scale + mask), v)"""
    return _decomposed(node)


def _decomposed(node: Node) -> Value:
    q, k, v, *masks = node.inputs
    rank = k.type.rank
    scores = ops.MatMul(q, ops.Transpose(k, perm=(*range(rank - 2), rank - 1, rank - 2)), name=node.name)
    scale = node.attrs.get("scale", 1.0)
    if scale != 1:
        scores = ops.Mul(scores, like(scale, scores))
    for mask in masks:
        if mask.type.dtype is BOOL:
            scores = ops.Where(mask, scores, like(node.attrs.get("masked", 0.0), scores))
        else:
            scores = ops.Add(scores, mask)
    if (causal := node.attrs.get("causal")) is not None:
        seen = _lower_triangle(q.shape[-2], k.shape[-2], int(causal))
        scores = ops.Where(seen, scores, like(node.attrs.get("masked", 0.0), scores))
    return ops.MatMul(ops.Softmax(scores, axis=scores.type.rank - 1), v, name=node.name)


def _lower_triangle(rows: int, columns: int, offset: int) -> Value:
    """[rows, columns], true up to column row + ``offset``."""
    if not isinstance(rows, Size) and not isinstance(columns, Size):
        return constant(np.tri(rows, columns, offset, dtype=np.bool_))
    own = ops.Reshape(ops.Add(ops.Iota(size=rows, dtype=I64), constant(np.int64(offset))), shape=(rows, 1))
    return ops.LessOrEqual(ops.Iota(size=columns, dtype=I64), own)


RULES = (hide_rows_later, recognise_attention, scale_scores, recognise_causal)
DECOMPOSITION = (decompose_attention,)
UNFIT = (decompose_unfit_attention,)
