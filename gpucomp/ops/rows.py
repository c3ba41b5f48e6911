"""Functions of whole rows: Softmax, LogSoftmax, LayerNorm, RMSNorm, statistics. Scale and bias are Mul and Add nodes.

The reductions are over the normalised axes only, and everything else depends only on the row. The rowwise families
recognise the functions by this.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, Var, axes_of, call, cast, load, reduce
from gpucomp.ir.types import TensorType
from gpucomp.ops.registry import compute_type, expect, expect_axis, in_double, op


def _row(
    x: TensorType, first: int, last: int
) -> tuple[tuple[Var, ...], Callable[[], tuple[tuple[Var, ...], Expr]], Expr]:
    """The result's axes, a function that makes reduction variables and the element at them, and the result's element.

    The row is axes ``first`` to ``last - 1``.
    """
    axes = axes_of(x.shape)
    kind = compute_type(x.dtype)

    def element() -> tuple[tuple[Var, ...], Expr]:
        inner = axes_of(x.shape[first:last], "r")
        return inner, cast(load(0, (*axes[:first], *inner, *axes[last:]), x.dtype), kind)

    return axes, element, cast(load(0, axes, x.dtype), kind)


@op("Softmax")
def Softmax(x: TensorType, *, axis: int) -> TensorType:
    """exp(x) divided by its sum along ``axis``, with the row's maximum subtracted first."""
    expect(x, "f")
    expect_axis(axis, x.rank)
    return x


def _shifted(x: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))


@Softmax.define("reference")
@in_double
def _softmax_reference(x: np.ndarray, *, axis: int) -> np.ndarray:
    power = np.exp(_shifted(x, axis))
    return np.asarray(power / power.sum(axis=axis, keepdims=True))


@Softmax.define("algorithm")
def _softmax_algorithm(x: TensorType, *, axis: int) -> Algorithm:
    axes, element, own = _row(x, axis, axis + 1)
    highest = reduce("max", *element())
    inner, other = element()
    total = reduce("sum", inner, call("exp", other - highest))
    return Algorithm(axes, cast(call("exp", own - highest) / total, x.dtype))


@op("LogSoftmax")
def LogSoftmax(x: TensorType, *, axis: int) -> TensorType:
    """The logarithm of Softmax. It never takes the logarithm of a number that underflowed."""
    expect(x, "f")
    expect_axis(axis, x.rank)
    return x


@LogSoftmax.define("reference")
@in_double
def _log_softmax_reference(x: np.ndarray, *, axis: int) -> np.ndarray:
    shifted = _shifted(x, axis)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


@LogSoftmax.define("algorithm")
def _log_softmax_algorithm(x: TensorType, *, axis: int) -> Algorithm:
    axes, element, own = _row(x, axis, axis + 1)
    highest = reduce("max", *element())
    inner, other = element()
    total = reduce("sum", inner, call("exp", other - highest))
    return Algorithm(axes, cast(own - highest - call("log", total), x.dtype))


@op("LayerNorm")
def LayerNorm(x: TensorType, *, axis: int, epsilon: float = 1e-5) -> TensorType:
    """(x - mean) / sqrt(variance + epsilon) over axes ``axis`` to the last. A second pass computes the variance."""
    expect(x, "f")
    expect_axis(axis, x.rank)
    return x


@LayerNorm.define("reference")
@in_double
def _layer_norm_reference(x: np.ndarray, *, axis: int, epsilon: float = 1e-5) -> np.ndarray:
    if x.size == 0:
        return x
    over = tuple(range(axis, x.ndim))
    deviation = np.sqrt(x.var(axis=over, keepdims=True) + epsilon)
    return np.asarray((x - x.mean(axis=over, keepdims=True)) / deviation)


@LayerNorm.define("algorithm")
def _layer_norm_algorithm(x: TensorType, *, axis: int, epsilon: float = 1e-5) -> Algorithm:
    axes, element, own = _row(x, axis, x.rank)
    count = math.prod(x.shape[axis:])
    mean = reduce("sum", *element()) / count
    inner, other = element()
    variance = reduce("sum", inner, (other - mean) * (other - mean)) / count
    return Algorithm(axes, cast((own - mean) * (1 / call("sqrt", variance + epsilon)), x.dtype))


@op("RMSNorm")
def RMSNorm(x: TensorType, *, axis: int, epsilon: float = 1e-5) -> TensorType:
    """x / sqrt(mean of squares + epsilon) over axes ``axis`` to the last."""
    expect(x, "f")
    expect_axis(axis, x.rank)
    return x


@RMSNorm.define("reference")
@in_double
def _rms_norm_reference(x: np.ndarray, *, axis: int, epsilon: float = 1e-5) -> np.ndarray:
    if x.size == 0:
        return x
    over = tuple(range(axis, x.ndim))
    return np.asarray(x / np.sqrt(np.mean(np.square(x), axis=over, keepdims=True) + epsilon))


@RMSNorm.define("algorithm")
def _rms_norm_algorithm(x: TensorType, *, axis: int, epsilon: float = 1e-5) -> Algorithm:
    axes, element, own = _row(x, axis, x.rank)
    inner, other = element()
    square = reduce("sum", inner, other * other) / math.prod(x.shape[axis:])
    return Algorithm(axes, cast(own * (1 / call("sqrt", square + epsilon)), x.dtype))


@op("RowStatistics")
def RowStatistics(x: TensorType, *, axis: int, epsilon: float = 1e-5) -> tuple[TensorType, TensorType]:
    """The mean and 1 / sqrt(variance + epsilon) over axes ``axis`` to the last, which are kept with extent 1.

    They are the results Mean and InvStdDev of ONNX's LayerNormalization.
    """
    expect(x, "f")
    expect_axis(axis, x.rank)
    statistic = TensorType(compute_type(x.dtype), (*x.shape[:axis], *[1] * (x.rank - axis)))
    return statistic, statistic


@RowStatistics.define("reference")
def _row_statistics_reference(x: np.ndarray, *, axis: int, epsilon: float = 1e-5) -> tuple[np.ndarray, np.ndarray]:
    over, wide = tuple(range(axis, x.ndim)), x.astype(np.float64)
    result = np.float64 if x.dtype == np.float64 else np.float32
    with np.errstate(all="ignore"):
        count = np.float64(math.prod(x.shape[axis:]))
        mean = wide.sum(axis=over, keepdims=True) / count
        variance = np.square(wide - mean).sum(axis=over, keepdims=True) / count
        return mean.astype(result), (1 / np.sqrt(variance + epsilon)).astype(result)


@RowStatistics.define("algorithm")
def _row_statistics_algorithm(x: TensorType, *, axis: int, epsilon: float = 1e-5) -> tuple[Algorithm, Algorithm]:
    axes = axes_of((*x.shape[:axis], *[1] * (x.rank - axis)))  # shared, so that partition makes one kernel of both
    kind, count = compute_type(x.dtype), math.prod(x.shape[axis:])

    def element() -> tuple[tuple[Var, ...], Expr]:
        inner = axes_of(x.shape[axis:], "r")
        return inner, cast(load(0, (*axes[:axis], *inner), x.dtype), kind)

    mean = reduce("sum", *element()) / count
    inner, other = element()
    variance = reduce("sum", inner, (other - mean) * (other - mean)) / count
    return Algorithm(axes, mean), Algorithm(axes, 1 / call("sqrt", variance + epsilon))


@op("InverseRMS")
def InverseRMS(x: TensorType, *, axis: int, epsilon: float = 1e-5, times: float = 1.0) -> TensorType:
    """times / sqrt(mean of squares + epsilon) over axes ``axis`` to the last, which are kept with extent 1."""
    expect(x, "f")
    expect_axis(axis, x.rank)
    return TensorType(compute_type(x.dtype), (*x.shape[:axis], *[1] * (x.rank - axis)))


@InverseRMS.define("reference")
def _inverse_rms_reference(x: np.ndarray, *, axis: int, epsilon: float = 1e-5, times: float = 1.0) -> np.ndarray:
    result = np.float64 if x.dtype == np.float64 else np.float32
    with np.errstate(all="ignore"):
        total = np.square(x.astype(np.float64)).sum(axis=tuple(range(axis, x.ndim)), keepdims=True)
        mean = total / np.float64(math.prod(x.shape[axis:]))
        return np.asarray(times / np.sqrt(mean + epsilon)).astype(result)


@InverseRMS.define("algorithm")
def _inverse_rms_algorithm(x: TensorType, *, axis: int, epsilon: float = 1e-5, times: float = 1.0) -> Algorithm:
    axes = axes_of((*x.shape[:axis], *[1] * (x.rank - axis)))
    inner = axes_of(x.shape[axis:], "r")
    other = cast(load(0, (*axes[:axis], *inner), x.dtype), compute_type(x.dtype))
    square = reduce("sum", inner, other * other) / math.prod(x.shape[axis:])
    return Algorithm(axes, times / call("sqrt", square + epsilon))
