"""Translators of reductions, scans, softmax and other operators along rows."""

from __future__ import annotations

import math
from collections.abc import Callable

from gpucomp import ops
from gpucomp.frontend.onnx.compose import (
    axes_of,
    axis_of,
    cast,
    checked_size,
    ints,
    is_running,
    like,
    reshape,
    scalar,
)
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value
from gpucomp.ir import types as t
from gpucomp.ops.compose import top_k as ranked_top_k

TOP_K_WORK = 1 << 18  # if TopK reads more elements than this per row, ranking them first is faster

Reduction = Callable[[Value, tuple[int, ...], bool], Value]


def _plain(name: str) -> Reduction:
    def build(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
        return ops.OPS[name](x, axes=axes, keepdims=keepdims)

    return build


def _extreme(name: str) -> Reduction:
    plain = _plain(name)

    def build(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
        if x.type.dtype is t.BOOL:
            return cast(plain(cast(x, t.U8), axes, keepdims), t.BOOL)
        return plain(x, axes, keepdims)

    return build


_sum = _plain("ReduceSum")


def _l1(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    return _sum(ops.Abs(x), axes, keepdims)


def _sum_square(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    return _sum(ops.Mul(x, x), axes, keepdims)


def _in_floats(build: Reduction) -> Reduction:
    """``build``, computed in f64 for integers: square roots, logarithms and exponentials."""

    def wrapped(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
        if x.type.dtype.is_float:
            return build(x, axes, keepdims)
        return cast(build(cast(x, t.F64), axes, keepdims), x.type.dtype)

    return wrapped


@_in_floats
def _l2(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    return ops.Sqrt(_sum_square(x, axes, keepdims))


@_in_floats
def _log_sum(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    return ops.Log(_sum(x, axes, keepdims))


@_in_floats
def _log_sum_exp(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    """log(sum(exp(x - m))) + m, so that exp never overflows. m is the maximum, or 0 if that is infinite."""
    top = ops.ReduceMax(x, axes=axes, keepdims=True)
    shift = ops.Where(ops.IsInf(top, detect_negative=True, detect_positive=True), like(x, 0), top)
    total = _sum(ops.Exp(ops.Sub(x, shift)), axes, True)
    result = ops.Add(ops.Log(total), shift)
    return result if keepdims else reshape(result, [d for a, d in enumerate(x.shape) if a not in axes])


REDUCTIONS: dict[str, tuple[Reduction, int]] = {  # the opset from which the axes are an input
    "ReduceSum": (_sum, 13),
    "ReduceMean": (_plain("ReduceMean"), 18),
    "ReduceMax": (_extreme("ReduceMax"), 18),
    "ReduceMin": (_extreme("ReduceMin"), 18),
    "ReduceProd": (_plain("ReduceProd"), 18),
    "ReduceL1": (_l1, 18),
    "ReduceL2": (_l2, 18),
    "ReduceLogSum": (_log_sum, 18),
    "ReduceLogSumExp": (_log_sum_exp, 18),
    "ReduceSumSquare": (_sum_square, 18),
}


def _translators(build: Reduction) -> tuple[Callable[..., Value], Callable[..., Value]]:
    def by_attribute(x: Value, *, axes: tuple[int, ...] | None = None, keepdims: int) -> Value:
        rank = len(x.shape)
        return build(x, tuple(range(rank)) if axes is None else tuple(sorted(axes_of(axes, rank))), bool(keepdims))

    def by_input(x: Value, axes: Value | None = None, *, keepdims: int, noop_with_empty_axes: int) -> Value:
        places = () if axes is None else ints(axes, "axes")
        if not places and noop_with_empty_axes:
            # reduce each element alone, as L1 and others still change it
            return build(reshape(x, (*x.shape, 1)), (len(x.shape),), False)
        return by_attribute(x, axes=places or None, keepdims=keepdims)

    return by_attribute, by_input


for _name, (_build, _since) in REDUCTIONS.items():
    _by_attribute, _by_input = _translators(_build)
    translates(_name)(_by_attribute)
    translates(_name, since=_since)(_by_input)


def _arg(name: str) -> Callable[..., Value]:
    def translate(x: Value, *, axis: int, keepdims: int, select_last_index: int = 0) -> Value:
        place = axis_of(axis, len(x.shape))
        return ops.OPS[name](x, axis=place, keepdims=bool(keepdims), select_last_index=bool(select_last_index))

    return translate


translates("ArgMax")(_arg("ArgMax"))
translates("ArgMin")(_arg("ArgMin"))


@translates("CumSum", since=11)
def cumulative_sum(x: Value, axis: Value, *, exclusive: int, reverse: int) -> Value:
    place = axis_of(int(scalar(axis, "axis")), len(x.shape))
    return ops.CumSum(x, axis=place, exclusive=bool(exclusive), reverse=bool(reverse))


@translates("CumProd", since=26)
def cumulative_product(x: Value, axis: Value, *, exclusive: int, reverse: int) -> Value:
    place = axis_of(int(scalar(axis, "axis")), len(x.shape))
    return ops.CumProd(x, axis=place, exclusive=bool(exclusive), reverse=bool(reverse))


@translates("TopK")
def top_k_attribute(x: Value, *, axis: int, k: int) -> tuple[Value, Value]:
    return _top_k(x, k, axis, largest=True)


@translates("TopK", since=10)
def top_k(x: Value, k: Value, *, axis: int, largest: int = 1, sorted: int = 1) -> tuple[Value, Value]:
    """The result is always sorted. With ``sorted`` 0, any order is allowed."""
    return _top_k(x, int(scalar(k, "k")), axis, largest=bool(largest))


def _top_k(x: Value, k: int, axis: int, *, largest: bool) -> tuple[Value, Value]:
    place = axis_of(axis, len(x.shape))
    if not 0 <= k <= x.shape[place]:
        raise ValueError(f"k from 0 to {x.shape[place]} expected, the length of the axis; {k} given")
    if k * x.shape[place] ** 2 > TOP_K_WORK and not is_running():  # numpy sorts
        checked_size(x.shape[place], 8)
        return ranked_top_k(x, k=k, axis=place, largest=largest)
    node = ops.TopK.node(x, k=k, axis=place, largest=largest)
    return node[0], node[1]


def _rows(name: str) -> Callable[..., Value]:
    def translate(x: Value, *, axis: int) -> Value:
        return ops.OPS[name](x, axis=axis_of(axis, len(x.shape)))

    return translate


def _flat_rows(name: str) -> Callable[..., Value]:
    def translate(x: Value, *, axis: int) -> Value:
        """Below opset 13, the axes from ``axis`` on form one row."""
        rank = len(x.shape)
        place = rank if axis == rank else axis_of(axis, rank)
        flat = reshape(x, (math.prod(x.shape[:place]), math.prod(x.shape[place:])))
        return reshape(ops.OPS[name](flat, axis=1), x.shape)

    return translate


for _name in ("Softmax", "LogSoftmax"):
    translates(_name)(_flat_rows(_name))
    translates(_name, since=13)(_rows(_name))


@translates("LpNormalization")
def lp_normalization(x: Value, *, axis: int, p: int) -> Value:
    """x / norm, or 0 if the norm is 0."""
    if p not in (1, 2):
        raise ValueError(f"p={p}: 1 or 2 expected")
    place = axis_of(axis, len(x.shape))
    norm = (_l1 if p == 1 else _l2)(x, (place,), True)
    return ops.Where(ops.Equal(norm, like(x, 0)), like(x, 0), ops.Div(x, norm))
