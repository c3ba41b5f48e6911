"""Evaluates expressions with numpy: simple and slow code, whose results kernels are tested against."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from gpucomp.expr.core import (
    Algorithm,
    Call,
    Cast,
    Const,
    Expr,
    Hole,
    Load,
    Reduce,
    Select,
    Var,
    identity_of,
)
from gpucomp.expr.functions import FUNCTIONS
from gpucomp.ir.types import BOOL, DType, dtype_of

CHUNK = 1 << 24  # grid points of a reduction held in memory at a time

Bindings = Mapping[Expr, np.ndarray]

REDUCE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def convert(values: np.ndarray, dtype: DType) -> np.ndarray:
    """numpy's ``astype``, but floats are converted to integers as by ``Cast``: round to zero, saturate, NaN to 0."""
    values = np.asarray(values)
    if dtype is BOOL:
        return np.asarray(values != 0)
    source = dtype_of(values.dtype)
    is_float = source.is_float
    if source.storage_only and dtype.storage_only and source is not dtype:  # numpy cannot convert most of them
        values = values.astype(np.float32 if is_float or dtype.is_float else np.int8)
    with np.errstate(all="ignore"):
        if is_float and dtype.is_integer and not dtype.storage_only:
            info = np.iinfo(dtype.numpy)
            wide = np.nan_to_num(np.trunc(values.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
            result = np.clip(wide, float(info.min), float(info.max))
            low, high = wide <= float(info.min), wide >= float(info.max)
            safe = np.where(low | high, 0, result).astype(dtype.numpy)
            return np.where(high, info.max, np.where(low, info.min, safe)).astype(dtype.numpy)
        return values.astype(dtype.numpy)


def evaluate(expr: Expr, sources: Sequence[np.ndarray], bindings: Bindings) -> np.ndarray:
    """``expr`` with its variables and holes bound to arrays that broadcast together.

    Loads outside a source (the branch a ``Select`` does not take) read element 0; an empty source reads as 0.
    """
    memo: dict[Expr, np.ndarray] = dict(bindings)
    with np.errstate(all="ignore"):
        return _evaluate(expr, sources, memo)


def _evaluate(expr: Expr, sources: Sequence[np.ndarray], memo: dict[Expr, np.ndarray]) -> np.ndarray:
    if expr in memo:
        return memo[expr]
    match expr:
        case Const():
            result = np.asarray(expr.value).astype(expr.dtype.numpy)
        case Var() | Hole():
            raise KeyError(f"{expr.name} is not bound")
        case Load():
            source = sources[expr.source]
            if source.size == 0:
                result = np.zeros((), expr.dtype.numpy)
            else:
                at = [_evaluate(i, sources, memo) for i in expr.index]
                at = [np.where((i >= 0) & (i < n), i, 0) for i, n in zip(at, source.shape, strict=True)]
                result = source[tuple(at)] if at else source[()]
        case Call():
            args = [_evaluate(a, sources, memo) for a in expr.args]
            out = BOOL if FUNCTIONS[expr.fn].result == "bool" else expr.dtype
            result = np.asarray(FUNCTIONS[expr.fn].numpy(*args)).astype(out.numpy, copy=False)
        case Select():
            condition = _evaluate(expr.condition, sources, memo)
            result = np.where(condition, _evaluate(expr.then, sources, memo), _evaluate(expr.otherwise, sources, memo))
        case Cast():
            result = convert(_evaluate(expr.value, sources, memo), expr.dtype)
        case Reduce():
            result = _reduce(expr, sources, memo)
        case _:
            raise AssertionError(f"no such expression: {type(expr)}")
    memo[expr] = result
    return result


def _reduce(expr: Reduce, sources: Sequence[np.ndarray], memo: dict[Expr, np.ndarray]) -> np.ndarray:
    extents = [a.extent for a in expr.axes]
    identity = np.asarray(identity_of(expr.op, expr.dtype)).astype(expr.dtype.numpy)
    if 0 in extents:
        return identity
    # the reduction has trailing axes of its own, so that everything bound outside broadcasts against them
    extra = len(extents)
    outer: dict[Expr, np.ndarray] = {
        e: v[(...,) + (None,) * extra] for e, v in memo.items() if isinstance(e, (Var, Hole))
    }
    grid = np.broadcast_shapes(*(v.shape for e, v in outer.items() if e in expr.free), (1,) * extra)
    points = max(1, math.prod(grid)) * math.prod(extents[1:])
    step = max(1, CHUNK // max(1, points))
    total = None
    for start in range(0, extents[0], step):
        scope: dict[Expr, np.ndarray] = dict(outer)
        for position, axis in enumerate(expr.axes):
            values = np.arange(axis.extent, dtype=np.int64)
            if position == 0:
                values = values[start : start + step]
            scope[axis] = values.reshape((-1,) + (1,) * (extra - 1 - position))
        body = _evaluate(expr.body, sources, scope)
        shape = [len(range(start, min(start + step, extents[0]))), *extents[1:]]
        rank = max(body.ndim, extra)
        body = np.broadcast_to(body, np.broadcast_shapes(body.shape, (1,) * (rank - extra) + tuple(shape)))
        part = REDUCE[expr.op].reduce(body, axis=tuple(range(rank - extra, rank)), dtype=expr.dtype.numpy)
        total = part if total is None else REDUCE[expr.op](total, part)
    assert total is not None
    return np.asarray(total).astype(expr.dtype.numpy, copy=False)


def grid_of(axes: Sequence[Var]) -> dict[Expr, np.ndarray]:
    """Bind every axis to all its values, with one array dimension per axis."""
    rank = len(axes)
    return {
        axis: np.arange(axis.extent, dtype=np.int64).reshape((-1,) + (1,) * (rank - 1 - position))
        for position, axis in enumerate(axes)
    }


def evaluate_algorithm(algorithm: Algorithm, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The whole result of an operator's algorithm: an array whose shape is the extents of the axes."""
    shape = tuple(a.extent for a in algorithm.axes)
    if 0 in shape:
        return np.zeros(shape, algorithm.body.dtype.numpy)
    result = evaluate(algorithm.body, operands, grid_of(algorithm.axes))
    return np.broadcast_to(result, shape).astype(algorithm.body.dtype.numpy)
