"""Scaled dot-product attention as one operator. ``rewrite.attention`` creates it, and decomposes it if no engine has it."""

from __future__ import annotations

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, axes_of, call, cast, load, reduce, select, var
from gpucomp.ir.types import BOOL, TensorType
from gpucomp.ops.registry import accumulator, broadcast, broadcast_index, expect, in_double, op


@op("Attention")
def Attention(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    mask: TensorType | None = None,
    *,
    scale: float = 1.0,
    masked: float = 0.0,
    causal: int | None = None,
) -> TensorType:
    """softmax(q k^T * scale, masked) v over the last two axes: q [..., m, d], k [..., s, d], v [..., s, e].

    A float ``mask`` is added to the scores. Where a bool ``mask`` is false, the score is ``masked``. The mask
    broadcasts to the scores, [..., m, s]. With ``causal``, row i sees the columns up to i + causal; the scores of later
    columns are ``masked``. A row whose scores are all -inf is NaN.
    """
    expect(q, "f")
    if any(t.dtype is not q.dtype for t in (k, v)) or min(q.rank, k.rank, v.rank) < 2:
        raise ValueError(f"matrices of one element type expected, got {q}, {k} and {v}")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(f"q {q}, k {k} and v {v} do not fit together")
    scores = (*broadcast(q.shape[:-2], k.shape[:-2]), q.shape[-2], k.shape[-2])
    if mask is not None:
        if mask.dtype not in (BOOL, q.dtype):
            raise ValueError(f"a mask of bool or {q.dtype} expected, got {mask}")
        if broadcast(scores, mask.shape) != scores:
            raise ValueError(f"a mask that broadcasts to {list(scores)} expected, got {mask}")
    return q.with_shape((*broadcast(scores[:-2], v.shape[:-2]), q.shape[-2], v.shape[-1]))


@Attention.define("reference")
def _attention_reference(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    *,
    scale: float = 1.0,
    masked: float = 0.0,
    causal: int | None = None,
) -> np.ndarray:
    def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * scale
        if mask is not None:
            scores = np.where(mask, scores, masked) if mask.dtype == np.bool_ else scores + mask.astype(np.float64)
        if causal is not None:
            scores = np.where(np.tri(q.shape[-2], k.shape[-2], causal, dtype=np.bool_), scores, masked)
        power = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        return np.asarray(np.matmul(power / power.sum(axis=-1, keepdims=True), v))

    return in_double(attend)(q, k, v)


@Attention.define("algorithm")
def _attention_algorithm(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    mask: TensorType | None = None,
    *,
    scale: float = 1.0,
    masked: float = 0.0,
    causal: int | None = None,
) -> Algorithm:
    """sum_j exp(s_ij - max_j s_ij) v_jd / sum_j exp(s_ij - max_j s_ij), s_ij = scale * sum_c q_ic k_jc, masked."""
    axes = axes_of(Attention.type_rule(*filter(None, (q, k, v, mask))).shape)  # type: ignore[union-attr]
    *batch, row, column = axes
    acc = accumulator(q.dtype)

    def element(source: int, operand: TensorType, *last: Expr) -> Expr:
        return cast(load(source, (*broadcast_index(batch, operand.shape[:-2]), *last), operand.dtype), acc)

    def score(j: Expr) -> Expr:
        c = var("c", k.shape[-1])
        result = reduce("sum", (c,), element(0, q, row, c) * element(1, k, j, c))
        if scale != 1:
            result = result * scale
        if mask is not None:
            at = broadcast_index((*batch, row, j), mask.shape)
            value = load(3, at, mask.dtype)
            result = select(value, result, masked) if mask.dtype is BOOL else result + cast(value, acc)
        return result if causal is None else select(j <= row + causal, result, masked)

    def power(j: Expr) -> Expr:
        other = var("j", k.shape[-2])
        return call("exp", score(j) - reduce("max", (other,), score(other)))

    j, other = var("j", k.shape[-2]), var("j", k.shape[-2])
    weighted = reduce("sum", (j,), power(j) * element(2, v, j, column))
    return Algorithm(axes, cast(weighted / reduce("sum", (other,), power(other)), q.dtype))
