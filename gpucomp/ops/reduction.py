"""Reductions over whole axes, arg-reductions, running sums and ranking. Windows are in pool.py, norms in rows.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpucomp.expr.core import (
    Algorithm,
    Expr,
    Var,
    axes_of,
    call,
    cast,
    identity_of,
    index,
    load,
    reduce,
    select,
    var,
)
from gpucomp.ir.graph import Op
from gpucomp.ir.types import I64, TensorType, dtype_of
from gpucomp.ops.registry import accumulator, expect, expect_axis, op


def _reduced(x: TensorType, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    for axis in axes:
        expect_axis(axis, x.rank)
    if len(set(axes)) != len(axes):
        raise ValueError(f"distinct axes expected, got {list(axes)}")
    if keepdims:
        return tuple(1 if d in axes else n for d, n in enumerate(x.shape))
    return tuple(n for d, n in enumerate(x.shape) if d not in axes)


def _source(
    x: TensorType, result: tuple[Var, ...], axes: tuple[int, ...], keepdims: bool
) -> tuple[tuple[Var, ...], list[Expr]]:
    """The reduction's variables, and the index into ``x`` in terms of the result's axes and these variables."""
    inner = {d: var(f"r{d}", x.shape[d]) for d in sorted(axes)}
    outer = iter(result)
    at: list[Expr] = []
    for d in range(x.rank):
        if d in inner:
            at.append(inner[d])
            if keepdims:
                next(outer)
        else:
            at.append(next(outer))
    return tuple(inner.values()), at


def _reduction(name: str, how: str, kinds: str, reference: Callable[..., np.ndarray], *, mean: bool = False) -> Op:
    """``how`` over ``axes`` of ``x``. Without axes the result is ``x``; without elements it is the identity of ``how``."""

    def rule(x: TensorType, *, axes: tuple[int, ...], keepdims: bool = True) -> TensorType:
        expect(x, kinds)
        return x.with_shape(_reduced(x, axes, keepdims))

    made = op(name)(rule)
    made.define("reference")(reference)

    @made.define("algorithm")
    def algorithm(x: TensorType, *, axes: tuple[int, ...], keepdims: bool = True) -> Algorithm:
        result = axes_of(_reduced(x, axes, keepdims))
        inner, at = _source(x, result, axes, keepdims)
        acc = accumulator(x.dtype) if how in {"sum", "prod"} else x.dtype
        body = reduce(how, inner, cast(load(0, at, x.dtype), acc))
        if mean:
            body = body / math.prod(x.shape[d] for d in axes)
        return Algorithm(result, cast(body, x.dtype))

    return made


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.dtype.kind in "fV" else x


def _sum(x: np.ndarray, *, axes: tuple[int, ...], keepdims: bool = True) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(np.sum(_wide(x), axis=axes, keepdims=keepdims, dtype=_wide(x).dtype)).astype(x.dtype)


def _prod(x: np.ndarray, *, axes: tuple[int, ...], keepdims: bool = True) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(np.prod(_wide(x), axis=axes, keepdims=keepdims, dtype=_wide(x).dtype)).astype(x.dtype)


def _mean(x: np.ndarray, *, axes: tuple[int, ...], keepdims: bool = True) -> np.ndarray:
    count = math.prod(x.shape[d] for d in axes)
    total = np.asarray(np.sum(x.astype(np.float64), axis=axes, keepdims=keepdims))
    if x.dtype.kind in "iu":
        return np.asarray(np.trunc(total / max(count, 1))).astype(x.dtype)
    with np.errstate(all="ignore"):
        return (total / np.float64(count)).astype(x.dtype)


def _extremum(how: str) -> Callable[..., np.ndarray]:
    function = np.max if how == "max" else np.min

    def reference(x: np.ndarray, *, axes: tuple[int, ...], keepdims: bool = True) -> np.ndarray:
        nothing = identity_of(how, dtype_of(x.dtype))
        if x.dtype.kind == "V":  # bf16: only numpy's own types support an initial value
            return np.asarray(function(_wide(x), axis=axes, keepdims=keepdims, initial=nothing)).astype(x.dtype)
        return np.asarray(function(x, axis=axes, keepdims=keepdims, initial=nothing))

    return reference


ReduceSum = _reduction("ReduceSum", "sum", "fiu", _sum)
ReduceMean = _reduction("ReduceMean", "sum", "fiu", _mean, mean=True)
ReduceProd = _reduction("ReduceProd", "prod", "fiu", _prod)
ReduceMax = _reduction("ReduceMax", "max", "fiub", _extremum("max"))
ReduceMin = _reduction("ReduceMin", "min", "fiub", _extremum("min"))


@op("Extremes")
def Extremes(x: TensorType, *, axes: tuple[int, ...], keepdims: bool = True) -> tuple[TensorType, TensorType]:
    """The least and the greatest element over ``axes``: ``ReduceMin`` and ``ReduceMax``, which one kernel computes."""
    expect(x, "fiu")
    result = x.with_shape(_reduced(x, axes, keepdims))
    return result, result


@Extremes.define("reference")
def _extremes_reference(x: np.ndarray, **attrs: Any) -> tuple[np.ndarray, np.ndarray]:
    return ReduceMin.reference(x, **attrs), ReduceMax.reference(x, **attrs)


@Extremes.define("algorithm")
def _extremes_algorithm(x: TensorType, *, axes: tuple[int, ...], keepdims: bool = True) -> tuple[Algorithm, Algorithm]:
    result = axes_of(_reduced(x, axes, keepdims))  # shared, so that partition makes one kernel of both

    def extreme(how: str) -> Algorithm:
        inner, at = _source(x, result, axes, keepdims)
        return Algorithm(result, reduce(how, inner, load(0, at, x.dtype)))

    return extreme("min"), extreme("max")


def _arg_reduction(name: str, how: str) -> Op:
    """The index of the greatest (least) element along ``axis``, the first or the last of equals. NaN always wins."""

    def rule(x: TensorType, *, axis: int, keepdims: bool = True, select_last_index: bool = False) -> TensorType:
        expect(x, "fiu")
        shape = _reduced(x, (axis,), keepdims)
        if x.shape[axis] == 0:
            raise ValueError(f"one element or more expected along axis {axis}, got none")
        return TensorType(I64, shape)

    made = op(name)(rule)

    @made.define("reference")
    def reference(x: np.ndarray, *, axis: int, keepdims: bool = True, select_last_index: bool = False) -> np.ndarray:
        function = np.argmax if how == "max" else np.argmin
        x = _wide(x)
        if select_last_index:
            return np.asarray(x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis, keepdims=keepdims))
        return np.asarray(function(x, axis=axis, keepdims=keepdims))

    @made.define("algorithm")
    def algorithm(x: TensorType, *, axis: int, keepdims: bool = True, select_last_index: bool = False) -> Algorithm:
        result = axes_of(_reduced(x, (axis,), keepdims))
        inner, at = _source(x, result, (axis,), keepdims)
        best = reduce(how, inner, load(0, at, x.dtype))
        (place,), at = _source(x, result, (axis,), keepdims)
        element = load(0, at, x.dtype)
        hit = call("eq", element, best)
        if x.dtype.is_float:
            hit = call("or", hit, call("isnan", element))
        if select_last_index:
            return Algorithm(result, reduce("max", (place,), select(hit, place, 0)))
        return Algorithm(result, reduce("min", (place,), select(hit, place, x.shape[axis] - 1)))

    return made


ArgMax = _arg_reduction("ArgMax", "max")
ArgMin = _arg_reduction("ArgMin", "min")


def _cumulative(name: str, how: str, ufunc: np.ufunc) -> Op:
    """The running ``how`` along ``axis``; from the end with ``reverse``, and without the element itself with ``exclusive``."""

    def rule(x: TensorType, *, axis: int, exclusive: bool = False, reverse: bool = False) -> TensorType:
        expect(x, "fiu")
        expect_axis(axis, x.rank)
        return x

    made = op(name)(rule)

    @made.define("reference")
    def reference(x: np.ndarray, *, axis: int, exclusive: bool = False, reverse: bool = False) -> np.ndarray:
        y = np.moveaxis(_wide(x), axis, 0)
        y = y[::-1] if reverse else y
        if exclusive:
            y = np.concatenate([np.full_like(y[:1], identity_of(how, dtype_of(x.dtype))), y[:-1]])
        with np.errstate(all="ignore"):
            total = ufunc.accumulate(y, 0, dtype=y.dtype) if y.size else y
            return np.moveaxis(total[::-1] if reverse else total, 0, axis).astype(x.dtype)

    @made.define("algorithm")
    def algorithm(x: TensorType, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Algorithm:
        axes = axes_of(x.shape)
        k = var("k", x.shape[axis])
        at = [k if d == axis else a for d, a in enumerate(axes)]
        first, second = (axes[axis], k) if reverse else (k, axes[axis])
        counted = first < second if exclusive else first <= second
        acc = accumulator(x.dtype)
        element = cast(load(0, at, x.dtype), acc)
        return Algorithm(axes, cast(reduce(how, (k,), select(counted, element, identity_of(how, acc))), x.dtype))

    return made


CumSum = _cumulative("CumSum", "sum", np.add)
CumProd = _cumulative("CumProd", "prod", np.multiply)


def _before(a: Expr, a_place: Expr, b: Expr, b_place: Expr, largest: bool) -> Expr:
    """Whether element ``a`` comes before ``b`` in the order of Rank and TopK, which is a total order."""
    ahead = b < a if largest else a < b
    equal = call("eq", a, b)
    if a.dtype.is_float:
        a_nan, b_nan = call("isnan", a), call("isnan", b)
        nan_ahead = call("and", a_nan, call("not", b_nan)) if largest else call("and", b_nan, call("not", a_nan))
        ahead = call("or", ahead, nan_ahead)
        equal = call("or", equal, call("and", a_nan, b_nan))
    return call("or", ahead, call("and", equal, a_place < b_place))


def _order(x: np.ndarray, axis: int, largest: bool) -> np.ndarray:
    """The indices of the elements along ``axis`` in the order of Rank and TopK."""
    if not largest:
        return np.argsort(_wide(x), axis=axis, kind="stable")
    # numpy sorts ascending and stably: flipping before and after keeps the first of equals first
    descending = np.flip(np.argsort(np.flip(_wide(x), axis), axis=axis, kind="stable"), axis)
    return np.asarray(x.shape[axis] - 1 - descending)


def _rank_of(x: TensorType, at: tuple[Expr, ...], axis: int, largest: bool) -> Expr:
    """The number of elements along ``axis`` that come before the one at ``at``."""
    other = var("k", x.shape[axis])
    element = load(0, [other if d == axis else a for d, a in enumerate(at)], x.dtype)
    return reduce(
        "sum", (other,), select(_before(element, other, load(0, at, x.dtype), at[axis], largest), index(1), 0)
    )


@op("Rank")
def Rank(x: TensorType, *, axis: int, largest: bool = True) -> TensorType:
    """The rank of each element among the elements along ``axis``, as i64. The greatest (least) has rank 0.

    Equal elements are ranked in order. NaN counts as greater than every number.
    """
    expect(x, "fiu")
    expect_axis(axis, x.rank)
    return x.with_dtype(I64)


@Rank.define("reference")
def _rank_reference(x: np.ndarray, *, axis: int, largest: bool = True) -> np.ndarray:
    return np.argsort(_order(x, axis, largest), axis=axis).astype(np.int64)  # a permutation's inverse


@Rank.define("algorithm")
def _rank_algorithm(x: TensorType, *, axis: int, largest: bool = True) -> Algorithm:
    axes = axes_of(x.shape)
    return Algorithm(axes, _rank_of(x, axes, axis, largest))


@op("TopK")
def TopK(x: TensorType, *, k: int, axis: int, largest: bool = True) -> tuple[TensorType, TensorType]:
    """The ``k`` greatest (least) elements along ``axis``, sorted, and their indices. The first of equals comes first.

    NaN counts as greater than every number. This is one kernel, which reads ``k * n * n`` elements. ``compose.top_k``
    computes the same and reads ``n * (n + k)`` elements.
    """
    expect(x, "fiu")
    expect_axis(axis, x.rank)
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(f"k of 0 to {x.shape[axis]} expected, got {k}")
    values = x.with_shape((*x.shape[:axis], k, *x.shape[axis + 1 :]))
    return values, values.with_dtype(I64)


@TopK.define("reference")
def _topk_reference(x: np.ndarray, *, k: int, axis: int, largest: bool = True) -> tuple[np.ndarray, np.ndarray]:
    indices = np.take(_order(x, axis, largest), range(k), axis=axis).astype(np.int64)
    return np.take_along_axis(x, indices, axis), indices


@TopK.define("algorithm")
def _topk_algorithm(x: TensorType, *, k: int, axis: int, largest: bool = True) -> tuple[Algorithm, Algorithm]:
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])

    def along(axes: tuple[Var, ...], place: Expr) -> tuple[Expr, ...]:
        return tuple(place if d == axis else a for d, a in enumerate(axes))

    def place_of(axes: tuple[Var, ...]) -> Expr:
        j = var("j", x.shape[axis])
        is_ranked = call("eq", _rank_of(x, along(axes, j), axis, largest), axes[axis])
        return reduce("max", (j,), select(is_ranked, j, 0))

    values, indices = axes_of(shape), axes_of(shape)
    return (
        Algorithm(values, load(0, along(values, place_of(values)), x.dtype)),
        Algorithm(indices, place_of(indices)),
    )
