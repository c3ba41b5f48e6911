"""Class probabilities from pairwise probabilities. numpy computes them on the host, as they iterate until convergence."""

from __future__ import annotations

import numpy as np

from gpucomp.ir.types import F32, TensorType
from gpucomp.ops.registry import op

ROUNDS = 100  # most iterations
NEAR = np.float32(0.005)  # times 1 / classes: the residual at which the iteration ends


@op("PairwiseCoupling")
def PairwiseCoupling(pairs: TensorType) -> TensorType:
    """f32[n, k] from f32[n, k, k], where [i, j] is the probability of class i given class i or j. Ignores the diagonal.

    The second method of T.-F. Wu, C.-J. Lin and R. C. Weng, Probability estimates for multi-class classification by
    pairwise coupling, JMLR 5 (2004). The iteration ends as in libsvm, for each sample separately.
    """
    if pairs.dtype is not F32 or pairs.rank != 3 or pairs.shape[1] != pairs.shape[2] or pairs.shape[1] < 2:
        raise ValueError(f"f32[n, k, k] of at least 2 classes expected, got {pairs}")
    return TensorType(F32, pairs.shape[:2])


@PairwiseCoupling.define("reference")
def _pairwise_coupling_reference(pairs: np.ndarray) -> np.ndarray:
    n, k, _ = pairs.shape
    off = pairs * (1 - np.eye(k, dtype=np.float32))
    form = -np.swapaxes(off, 1, 2) * off  # p^T form p is minimised
    form += np.eye(k, dtype=np.float32) * np.sum(off * off, axis=1)[:, None, :]
    p = np.full((n, k), np.float32(1) / np.float32(k), np.float32)
    left = np.arange(n)
    with np.errstate(all="ignore"):
        for _ in range(ROUNDS):
            gradient = np.einsum("nij,nj->ni", form[left], p[left])
            value = np.sum(p[left] * gradient, axis=1)
            unfinished = ~(np.abs(gradient - value[:, None]).max(axis=1, initial=0) < NEAR / np.float32(k))
            left, gradient, value = left[unfinished], gradient[unfinished], value[unfinished]
            if not len(left):
                break
            p[left] = _round(form[left], p[left], gradient, value)
    return p


def _round(form: np.ndarray, p: np.ndarray, gradient: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Set each probability in turn to where its partial derivative is 0. After each step, scale all to a sum of 1."""
    for i in range(p.shape[1]):
        curvature = form[:, i, i]
        step = (value - gradient[:, i]) / curvature
        p[:, i] += step
        value = (value + step * (step * curvature + 2 * gradient[:, i])) / (1 + step) / (1 + step)
        gradient = (gradient + step[:, None] * form[:, i]) / (1 + step)[:, None]
        p /= (1 + step)[:, None]
    return p
