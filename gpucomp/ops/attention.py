"""Scaled dot-product attention as one operator. It has no algorithm: ``rewrite.attention`` makes it and takes it apart."""

from __future__ import annotations

import numpy as np

from gpucomp.ir.types import BOOL, TensorType
from gpucomp.ops.registry import broadcast, expect, in_double, op


@op("Attention")
def Attention(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    mask: TensorType | None = None,
    *,
    scale: float = 1.0,
    masked: float = 0.0,
) -> TensorType:
    """softmax(q k^T * scale, masked) v over the last two axes: q [..., m, d], k [..., s, d], v [..., s, e].

    A float ``mask`` is added to the scores; where a bool ``mask`` is false, the score is ``masked``. It broadcasts
    to the scores, [..., m, s].
    """
    expect(q, "f")
    if any(t.dtype is not q.dtype for t in (k, v)) or min(q.rank, k.rank, v.rank) < 2:
        raise ValueError(f"matrices of one element type expected, got {q}, {k} and {v}")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(f"q {q}, k {k} and v {v} do not go together")
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
) -> np.ndarray:
    def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * scale
        if mask is not None:
            scores = np.where(mask, scores, masked) if mask.dtype == np.bool_ else scores + mask.astype(np.float64)
        power = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        return np.matmul(power / power.sum(axis=-1, keepdims=True), v)

    return in_double(attend)(q, k, v)
