"""Attention from its pieces, for a target with an engine for it, and back into them for all others.

attention(q, k, v, mask)  =  matmul(softmax(matmul(q, k^T) * scale [masked]), v)
"""

from __future__ import annotations

from gpucomp import ops
from gpucomp.ir.graph import Node, Value, constant_value
from gpucomp.ir.types import BOOL
from gpucomp.rewrite.match import either_way, is_constant, like, splat
from gpucomp.rewrite.rule import Uses, rule


@rule(ops.MatMul)
def recognise_attention(node: Node, uses: Uses) -> Value | None:
    """matmul(softmax(matmul(q, k^T) * scale + mask), v)  ->  attention(q, k, v, mask, scale), the scores read only here"""
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
    """(scores, mask, what a bool mask puts where it is false)."""
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
    """Whether ``value`` is a product of matrices, perhaps times a number."""
    if value.op is ops.MatMul:
        return True
    return value.inputs[0].op is ops.MatMul and constant_value(value.inputs[1]) is not None


@rule(ops.Attention)
def decompose_attention(node: Node) -> Value | None:
    """attention(q, k, v, mask, scale)  ->  matmul(softmax(matmul(q, k^T) * scale + mask), v)"""
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
    return ops.MatMul(ops.Softmax(scores, axis=scores.type.rank - 1), v, name=node.name)


RULES = (recognise_attention,)
DECOMPOSITION = (decompose_attention,)
