"""The oracle of kernels at some points of their domain, because exact shapes of real layers are too large for all points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast as typed

import numpy as np

from gpucomp.expr.core import Expr, Var, cast, reduce
from gpucomp.expr.evaluate import evaluate, grid_of
from gpucomp.ir.types import F64
from gpucomp.kernel import Attention, Contraction, Kernel, Loops, Rowwise, Window

REDUCED = 1 << 22  # numbers that the oracle keeps for the sums of all points


@dataclass(frozen=True, eq=False)
class Points:
    """Expected values of ``params[target]`` at some indices: ``index`` has an array for each axis, shaped like ``values``."""

    target: int
    index: tuple[np.ndarray, ...]
    values: np.ndarray


def sampled(kernel: Kernel, inputs: Sequence[np.ndarray], most: int, seed: int = 0) -> list[Points]:
    """Each store at the corners of the domain and at random points: at most ``most``, fewer if sums are long.

    Rowwise kernels and attention are computed for some whole rows. Sums are in float64.
    """
    body, rng = kernel.body, np.random.default_rng(seed)
    if isinstance(body, Rowwise):
        return _of_rows(kernel, body, inputs, most, rng)
    if isinstance(body, Attention):
        return _of_attention(kernel, body, inputs, most, rng)
    inner = {Loops: 0, Contraction: "k", Window: "window"}[type(body)]
    terms = math.prod(v.extent for v in getattr(body, inner)) if inner else 1
    bound = _chosen(body.domain, min(most, max(8, REDUCED // max(1, terms))), rng)
    if isinstance(body, Contraction):
        wide = F64 if body.acc.dtype.is_float else body.acc.dtype
        total = reduce("sum", body.k, cast(body.a, wide) * cast(body.b, wide))
        bound[body.acc] = evaluate(cast(total, body.acc.dtype), inputs, bound)
    if isinstance(body, Window):
        bound[body.acc] = evaluate(reduce(body.op, body.window, body.value), inputs, bound)
    return _stored(kernel, inputs, bound)


def _chosen(axes: Sequence[Var], count: int, rng: np.random.Generator) -> dict[Expr, np.ndarray]:
    """The first and the last point, the points with one axis at its end, and random ones."""
    ends = [[0] * len(axes), [v.extent - 1 for v in axes]]
    ends += [[v.extent - 1 if k == at else 0 for k, v in enumerate(axes)] for at in range(len(axes))]
    random = np.stack([rng.integers(0, v.extent, count) for v in axes], 1) if axes else np.zeros((count, 0), np.int64)
    points = np.concatenate([np.array(ends, np.int64).reshape(-1, len(axes)), random])[:count]
    return {v: points[:, k] for k, v in enumerate(axes)}


def _stored(kernel: Kernel, inputs: Sequence[np.ndarray], bound: dict[Expr, np.ndarray]) -> list[Points]:
    shape = np.broadcast_shapes(*(a.shape for a in bound.values())) if bound else (1,)
    return [
        Points(
            store.target,
            tuple(np.broadcast_to(evaluate(i, inputs, bound), shape) for i in store.index),
            np.broadcast_to(evaluate(store.value, inputs, bound), shape),
        )
        for store in kernel.stores
    ]


def _of_rows(
    kernel: Kernel, body: Rowwise, inputs: Sequence[np.ndarray], most: int, rng: np.random.Generator
) -> list[Points]:
    columns = math.prod(v.extent for v in body.cols)
    rows = _chosen(body.rows, min(most, max(2, REDUCED // max(1, columns))), rng)
    extra = len(body.cols)
    bound: dict[Expr, np.ndarray] = {v: a[(...,) + (None,) * extra] for v, a in rows.items()} | grid_of(body.cols)
    count = len(next(iter(rows.values()))) if rows else 1
    shape = (count, *(v.extent for v in body.cols))
    for statistic in body.statistics:
        values = np.broadcast_to(evaluate(statistic.value, inputs, bound), shape)
        wide = values.astype(np.float64) if statistic.hole.dtype.is_float else values
        ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[statistic.op]
        total = ufunc.reduce(wide, axis=tuple(range(1, extra + 1)), keepdims=True)
        bound[statistic.hole] = total.astype(statistic.hole.dtype.numpy)
    each = {e: a for e, a in bound.items() if e not in body.cols} | {v: np.zeros(1, np.int64) for v in body.cols}
    found = []
    for position, store in enumerate(kernel.stores):
        scope = each if position in body.row_stores else bound
        where = np.broadcast_shapes(*(a.shape for a in scope.values()))
        index = tuple(np.broadcast_to(evaluate(i, inputs, scope), where) for i in store.index)
        found.append(Points(store.target, index, np.broadcast_to(evaluate(store.value, inputs, scope), where)))
    return found


def _of_attention(
    kernel: Kernel, body: Attention, inputs: Sequence[np.ndarray], most: int, rng: np.random.Generator
) -> list[Points]:
    cols, depth, values = (tuple(axes) for axes in (body.cols, body.depth, body.values))
    sizes = [math.prod(v.extent for v in axes) for axes in (cols, depth, values)]
    rows = _chosen((*body.batch, *body.rows), min(most, max(2, REDUCED // max(1, sizes[0] * max(sizes[1:])))), rng)
    count = len(next(iter(rows.values())))

    def of(value: Expr, *groups: tuple[Var, ...]) -> np.ndarray:
        """``value`` for each row and all of ``groups``, in f64, with one array dimension for each group."""
        axes = [v for group in groups for v in group]
        scope = {v: a[(...,) + (None,) * len(axes)] for v, a in rows.items()} | grid_of(axes)
        found = np.broadcast_to(evaluate(value, inputs, scope), (count, *(v.extent for v in axes)))
        return found.astype(np.float64).reshape(count, *(math.prod(v.extent for v in g) for g in groups))

    dots = np.einsum("rd,rcd->rc", of(body.q, depth), of(body.k, cols, depth))
    scope = typed("dict[Expr, np.ndarray]", {v: a[(...,) + (None,) * len(cols)] for v, a in rows.items()})
    scope |= grid_of(cols) | {body.dot: dots.reshape(count, *(v.extent for v in cols))}
    scores = np.broadcast_to(evaluate(body.score, inputs, scope), scope[body.dot].shape).astype(np.float64)
    with np.errstate(all="ignore"):
        weights = np.exp(scores.reshape(dots.shape) - scores.reshape(dots.shape).max(axis=1, keepdims=True))
        means = np.einsum("rc,rcv->rv", weights, of(body.v, cols, values)) / weights.sum(axis=1, keepdims=True)
    bound = typed("dict[Expr, np.ndarray]", {v: a[(...,) + (None,) * len(values)] for v, a in rows.items()})
    bound |= grid_of(values) | {body.acc: means.astype(np.float32).reshape(count, *(v.extent for v in values))}
    return _stored(kernel, inputs, bound)
