"""SVMRegressor and SVMClassifier of ai.onnx.ml as matrix products. scikit-learn's converter writes them.

The kernel function of samples and support vectors, times coefficients, is computed in f32, as in onnxruntime.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.ai_onnx_ml.operators import ML, named, transformed
from gpucomp.frontend.onnx.compose import cast, concat, expand, like, reshape, scalar_of, unsqueeze
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value, constant
from gpucomp.ir.types import F32, I64

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
LEAST = 1e-7  # probabilities of pairs are clipped to this and one minus this
Floats = tuple[float, ...]


def _rows(x: Value) -> Value:
    """``x`` as [N, features] in f32. A single sample can lack the first axis."""
    if len(x.shape) not in (1, 2):
        raise ValueError(f"[features] or [N, features] expected, {x.type} given")
    return cast(reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x, F32)


def _table(numbers: Sequence[float], rows: int, columns: int, what: str) -> np.ndarray:
    if len(numbers) != rows * columns:
        raise ValueError(f"{what}: {rows} times {columns} numbers expected, {len(numbers)} given")
    return np.asarray(numbers, np.float32).reshape(rows, columns)


def _kernel(x: Value, vectors: np.ndarray, kind: str, parameters: Floats) -> Value:
    """[N, vectors]: x v, (gamma x v + coef0)^degree, exp(-gamma |x - v|^2) or tanh(gamma x v + coef0)."""
    gamma, offset, degree = parameters or (0.0, 0.0, 0.0)
    if kind == "RBF":
        apart = ops.Sub(unsqueeze(x, (1,)), constant(vectors[None]))
        squares = ops.ReduceSum(ops.Mul(apart, apart), axes=(2,), keepdims=False)
        return ops.Exp(ops.Mul(squares, like(squares, -gamma)))
    product = ops.MatMul(x, constant(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product
    inner = ops.Add(ops.Mul(product, like(product, gamma)), like(product, offset))
    if kind == "SIGMOID":
        return ops.Tanh(inner)
    return ops.Pow(inner, like(inner, degree))


def _checked(kind: str, parameters: Floats) -> None:
    if kind not in KERNELS or len(parameters) not in (0, 3):
        raise ValueError(
            f"kernel_type {kind!r} with {len(parameters)} kernel_params: one of {', '.join(KERNELS)}, and 3"
        )


@translates("SVMRegressor", since=1, domain=ML)
def svm_regressor(
    x: Value,
    *,
    coefficients: Floats = (),
    kernel_params: Floats = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Floats = (),
    support_vectors: Floats = (),
) -> Value:
    """[N, 1] in f32; with ``one_class``, 1 if it is above 0 and -1 otherwise. Without support vectors, it is linear."""
    _checked(kernel_type, kernel_params)
    x = _rows(x)
    if not rho or not coefficients:
        raise ValueError("rho and coefficients expected")
    if post_transform != "NONE":
        raise UnsupportedError(f"post_transform {post_transform} is not supported: NONE expected")
    if n_supports > 0:
        vectors = _table(support_vectors, n_supports, x.shape[1], "support_vectors")
        weights = _table(coefficients, n_supports, 1, "coefficients")
        y = ops.MatMul(_kernel(x, vectors, kernel_type, kernel_params), constant(weights))
    else:
        y = ops.MatMul(x, constant(_table(coefficients, x.shape[1], 1, "coefficients")))
    y = ops.Add(y, like(y, rho[0]))
    return ops.Where(ops.Less(like(y, 0), y), like(y, 1), like(y, -1)) if one_class else y


@translates("SVMClassifier", since=1, domain=ML)
def svm_classifier(
    x: Value,
    *,
    classlabels_ints: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
    coefficients: Floats = (),
    kernel_params: Floats = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Floats = (),
    prob_b: Floats = (),
    rho: Floats = (),
    support_vectors: Floats = (),
    vectors_per_class: tuple[int, ...] = (),
) -> tuple[Value, Value]:
    """The label, and in f32 the probability of each class or a score for each pair of classes.

    If the score s of a pair is above 0, it is a vote for the first class of the pair. The class with most votes wins.
    For two classes the scores are -s and s. SOFTMAX is applied to these two, as in the standard's evaluator;
    onnxruntime returns 1 - s and s, which sum to 1 but are not probabilities. Without support vectors, each class has a
    row of coefficients and a score.
    """
    _checked(kernel_type, kernel_params)
    labels: tuple[int, ...] | tuple[str, ...] = classlabels_strings or classlabels_ints
    if len(labels) < 2:
        raise UnsupportedError("a classifier of fewer than two classes")
    x, classes = _rows(x), len(labels)
    if not rho or not coefficients:
        raise ValueError("rho and coefficients expected")
    if min(vectors_per_class, default=0) < 0:
        raise ValueError("vectors_per_class below 0")
    if not sum(vectors_per_class):
        return _linear(x, labels, coefficients, rho[0], post_transform)
    if len(vectors_per_class) != classes:
        raise ValueError(f"vectors_per_class for {classes} classes expected, {len(vectors_per_class)} given")
    count = classes * (classes - 1) // 2
    if len(rho) != count or {len(prob_a), len(prob_b)} not in ({0}, {count}):
        raise ValueError(f"rho, and prob_a and prob_b if any, for {count} pairs of classes expected")
    pairs = list(combinations(range(classes), 2))
    total = sum(vectors_per_class)
    vectors = _table(support_vectors, total, x.shape[1], "support_vectors")
    weights = _pair_weights(_table(coefficients, classes - 1, total, "coefficients"), vectors_per_class, pairs)
    near = _kernel(x, vectors, kernel_type, kernel_params)
    scores = ops.Add(ops.MatMul(near, constant(weights)), constant(np.asarray(rho, np.float32)))
    first = ops.Less(like(scores, 0), scores)
    ballots = [[float(pair[0] == k) for k in range(classes)] for pair in pairs]
    others = [[float(pair[1] == k) for k in range(classes)] for pair in pairs]
    votes = ops.Add(
        ops.MatMul(cast(first, F32), constant(np.array(ballots, np.float32))),
        ops.MatMul(cast(ops.Not(first), F32), constant(np.array(others, np.float32))),
    )
    winner = ops.ArgMax(votes, axis=1, keepdims=False, select_last_index=False)
    if prob_a:
        scores = ops.PairwiseCoupling(_square(_pair_probabilities(scores, prob_a, prob_b), classes, pairs))
    elif classes == 2:
        scores = concat([ops.Neg(scores), scores], 1)
    return named(winner, labels), transformed(scores, post_transform)


def _linear(
    x: Value, labels: Sequence[int] | Sequence[str], coefficients: Floats, rho: float, post_transform: str
) -> tuple[Value, Value]:
    table = _table(coefficients, len(labels), x.shape[1], "coefficients")
    scores = ops.MatMul(x, constant(np.ascontiguousarray(table.T)))
    scores = ops.Add(scores, like(scores, rho))
    best = cast(ops.ArgMax(scores, axis=1, keepdims=False, select_last_index=False), I64)
    if (
        len(labels) == 2 and table.min() >= 0
    ):  # if no weight is negative, the second class wins if a score is at least 0.5
        highest = ops.ReduceMax(scores, axes=(1,), keepdims=False)
        best = ops.Where(ops.LessOrEqual(like(highest, 0.5), highest), like(best, 1), best)
    return named(best, labels), transformed(scores, post_transform)


def _pair_weights(table: np.ndarray, counts: Sequence[int], pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """[vectors, pairs]. Pair (i, j): row j - 1 of the coefficients for the vectors of class i, row i for those of class j."""
    ends = np.cumsum(counts)
    weights = np.zeros((table.shape[1], len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        for own, row in ((i, j - 1), (j, i)):
            some = slice(int(ends[own]) - counts[own], int(ends[own]))
            weights[some, column] = table[row, some]
    return weights


def _pair_probabilities(scores: Value, prob_a: Floats, prob_b: Floats) -> Value:
    """The probability 1 / (1 + exp(a s + b)) of the first class of each pair (J. Platt, 1999)."""
    a, b = (constant(np.asarray(v, np.float32)) for v in (prob_a, prob_b))
    one = like(scores, 1)
    p = ops.Sub(one, ops.Sigmoid(ops.Add(ops.Mul(scores, a), b)))
    return ops.Clip(p, low=LEAST, high=1 - LEAST)


def _square(p: Value, classes: int, pairs: Sequence[tuple[int, int]]) -> Value:
    """[N, pairs] to [N, classes, classes]: p for (i, j), 1 - p for (j, i), 0 on the diagonal."""
    both = concat([p, ops.Sub(like(p, 1), p), expand(scalar_of(F32, 0), (p.shape[0], 1))], 1)
    place = np.full((classes, classes), 2 * len(pairs), np.int64)
    for column, (i, j) in enumerate(pairs):
        place[i, j], place[j, i] = column, len(pairs) + column
    return ops.Gather(both, constant(place), axis=1)
