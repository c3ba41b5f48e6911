"""Operators that torch's exporter translates into something else, taken apart into ones that it translates as they are.

``TABLE`` has functions of our own, ``TORCHS`` the operators for which torch has a right one. A function that gives
``NotImplemented`` leaves the operator as it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

aten = torch.ops.aten

TORCHS = (
    aten._native_batch_norm_legit_functional.default,  # translated as if it were not in training
    aten.cross.default,  # without a dimension it is the first of size 3, not the last
    aten.cross_entropy_loss.default,  # label_smoothing is left out
    aten.isclose.default,  # whole numbers
    aten.log_sigmoid.default,  # log(sigmoid(-200)) is infinite
    # other names, of which the exporter does not promote the types
    *(aten.divide.Tensor, aten.multiply.Tensor, aten.subtract.Tensor, aten.true_divide.Tensor),
    aten.log_softmax.int,  # computed in the type of the input, and then cast
    aten.softmax.int,
    aten.special_expm1.default,
    aten.special_log_softmax.default,
    aten.special_softmax.default,
)
_MOST: Any = torch.sym_max  # of sizes, without asking an open one which it is
_LEAST: Any = torch.sym_min
_NARROW = (torch.float16, torch.bfloat16)


def in_f32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Computed in f32 and rounded once where the result has 16 bits, as torch does."""

    @functools.wraps(function)
    def wide(*given: Any, **named: Any) -> Any:
        kind = given[0].dtype if len(given) == 1 else torch.result_type(*given)
        if kind not in _NARROW:
            return function(*given, **named)
        found = function(*(one.float() if isinstance(one, Tensor) else one for one in given), **named)
        return found if found is NotImplemented else found.to(kind)

    return wide


@in_f32
def log1p(x: Tensor) -> Tensor:
    """2 artanh(x / (2 + x)) near 0, as a series: M. Abramowitz, I. Stegun, Handbook of Mathematical Functions, 4.1.27."""
    part = x / (2 + x)
    square = part * part
    series = torch.zeros_like(x)
    for power in range(11, 0, -2):
        series = series * square + 1 / power
    return torch.where(x.abs() < 0.25, 2 * part * series, torch.log(1 + x))


@in_f32
def expm1(x: Tensor) -> Tensor:
    """W. Kahan's form, right to some roundings for small ``x``: N. J. Higham, Accuracy and Stability (2002), section 1.14.1."""
    y = torch.exp(x)
    less = y - 1
    usual = less * (x / torch.log(y))
    return torch.where(less == 0, x, torch.where((less == -1) | (less == math.inf), less, usual))


@in_f32
def log2(x: Tensor) -> Any:
    """The whole part, and the logarithm of what is left: so powers of 2 have whole logarithms."""
    if x.dtype.is_complex:
        return NotImplemented
    x = x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())
    near = torch.log(x) * math.log2(math.e)
    whole = torch.floor(near).clamp(-126, 127)  # of which the power is a normal number of f32
    return torch.where(near.abs() < 129, whole + torch.log(x / torch.exp2(whole)) * math.log2(math.e), near)


@in_f32
def logaddexp(a: Tensor, b: Tensor) -> Tensor:
    most = torch.maximum(a, b)
    return torch.where((a == b) & torch.isinf(a), a, most + log1p(torch.exp(-(a - b).abs())))


@in_f32
def logaddexp2(a: Tensor, b: Tensor) -> Tensor:
    most = torch.maximum(a, b)
    rest = log1p(torch.exp2(-(a - b).abs())) * math.log2(math.e)
    return torch.where((a == b) & torch.isinf(a), a, most + rest)


def signbit(x: Tensor) -> Tensor:
    if not x.dtype.is_floating_point:
        return x < 0
    return (x < 0) | ((x == 0) & (1 / x < 0))


def sign(x: Tensor) -> Any:
    """0 for NaN."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    return torch.where(x > 0, 1, torch.where(x < 0, -1, torch.zeros_like(x)))


def copysign(x: Tensor, y: Tensor) -> Any:
    if not (isinstance(y, Tensor) and x.dtype.is_floating_point and y.dtype.is_floating_point):
        return NotImplemented
    return torch.where(signbit(y), -x.abs(), x.abs())


def heaviside(x: Tensor, values: Tensor) -> Tensor:
    return torch.where(x == 0, values, (x > 0).to(x.dtype))


@in_f32
def xlogy(x: Any, y: Any) -> Tensor:
    x, y = _as_floats(x, y)
    return torch.where(torch.isnan(y), y, torch.where(x == 0, 0, x * torch.log(y)))


@in_f32
def atan2(y: Tensor, x: Tensor) -> Tensor:
    """The angle in the first eighth of the circle, then mirrored; zeros have signs."""
    y, x = _as_floats(y, x)
    up, right = y.abs(), x.abs()
    least, most = torch.minimum(up, right), torch.maximum(up, right)
    ratio = torch.where(most == 0, 0, torch.where(least == math.inf, 1, least / most))
    angle = torch.atan(ratio)
    angle = torch.where(up > right, math.pi / 2 - angle, angle)
    angle = torch.where(signbit(x), math.pi - angle, angle)
    return torch.where(signbit(y), -angle, angle)


def angle(x: Tensor) -> Any:
    """NaN has its own."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    return torch.where(torch.isnan(x), x, torch.where(x < 0, math.pi, torch.zeros_like(x)))


def _both_whole(a: Any, b: Any) -> bool:
    return not any(one.dtype.is_floating_point if isinstance(one, Tensor) else isinstance(one, float) for one in (a, b))


def _as_tensors(a: Any, b: Any, kind: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Both as tensors of the type of the result."""
    kind = torch.result_type(a, b) if kind is None else kind
    like = a if isinstance(a, Tensor) else b
    first, second = (
        one.to(kind) if isinstance(one, Tensor) else torch.full((), one, dtype=kind, device=like.device)
        for one in (a, b)
    )
    return first, second


def _as_floats(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors of the type of a result that is no whole number."""
    kind = torch.result_type(a, b)
    return _as_tensors(a, b, kind if kind.is_floating_point else torch.get_default_dtype())


def remainder(a: Any, b: Any) -> Any:
    """With the sign of ``b``, exact for floats: their quotient is rounded, ``fmod`` is not."""
    if _both_whole(a, b):
        return NotImplemented
    a, b = _as_tensors(a, b)
    rest = torch.fmod(a, b)
    return torch.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@in_f32
def floor_divide(a: Any, b: Any) -> Any:
    """As Python divides floats, which is what torch does: c10/util/generic_math.h."""
    if _both_whole(a, b):
        return NotImplemented
    a, b = _as_tensors(a, b)
    rest = torch.fmod(a, b)
    quotient = (a - rest) / b
    quotient = torch.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
    floor = torch.floor(quotient)
    floor = torch.where(quotient - floor > 0.5, floor + 1, floor)
    return torch.where(b == 0, a / b, floor)


def div_mode(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    """Whole numbers are divided as whole numbers."""
    if rounding_mode is None:
        return torch.true_divide(a, b)
    if rounding_mode == "floor":
        return torch.floor_divide(a, b)
    if not _both_whole(a, b):
        # of 16 bits, torch rounds the quotients of two tensors before, and those by a number after
        return (_truncated if isinstance(b, Tensor) else in_f32(_truncated))(a, b)
    a, b = _as_tensors(a, b)
    floor = torch.floor_divide(a, b)
    return torch.where((floor * b != a) & ((a < 0) != (b < 0)), floor + 1, floor)


def _truncated(a: Any, b: Any) -> Tensor:
    return torch.trunc(torch.true_divide(a, b))


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Every ``columns + 1``-th element of the matrix as a row; the exporter multiplies by an identity, and 0 times inf is NaN."""
    first, second = dim1 % x.dim(), dim2 % x.dim()
    others = [dim for dim in range(x.dim()) if dim not in (first, second)]
    rows, columns = x.shape[first], x.shape[second]
    length = _MOST(_LEAST(rows + min(offset, 0), columns - max(offset, 0)), 0)  # of any size, if one is open
    start = offset if offset >= 0 else -offset * columns
    flat = x.permute(*others, first, second).reshape(*(x.shape[dim] for dim in others), rows * columns)
    if not isinstance(length, int):  # a slice asks whether its end is inside
        return flat.index_select(-1, start + torch.arange(length, device=x.device) * (columns + 1))
    return flat[..., start : start + max(length * (columns + 1) - columns, 0) : columns + 1]


def addmm(own: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """``own`` counts for nothing where ``beta`` is 0, NaN or not."""
    return torch.mm(a, b) * alpha if beta == 0 else NotImplemented


def baddbmm(own: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    return torch.bmm(a, b) * alpha if beta == 0 else NotImplemented


def addmv(own: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    return torch.mv(a, b) * alpha if beta == 0 else NotImplemented


def addbmm(own: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    return torch.bmm(a, b).sum(0) * alpha if beta == 0 else NotImplemented


def nearest_exact(x: Tensor, output_size: Any = None, scale_factors: Any = None) -> Any:
    """Places in f32, as torch's: aten/src/ATen/native/UpSample.h, nearest_neighbor_exact_compute_source_index."""
    for axis, given in enumerate(output_size or scale_factors, start=2):
        before = x.shape[axis]
        after = given if output_size else int(before * given)
        if not (isinstance(before, int) and isinstance(after, int)):
            return NotImplemented
        step = float(np.float32(before / after if output_size else 1 / given))
        places = (torch.arange(after, dtype=torch.float32, device=x.device) + 0.5) * step
        x = x.index_select(axis, places.floor().long().clamp(max=before - 1))
    return x


TABLE: dict[Any, Callable[..., Any]] = {
    aten._upsample_nearest_exact1d.vec: nearest_exact,
    aten._upsample_nearest_exact2d.vec: nearest_exact,
    aten._upsample_nearest_exact3d.vec: nearest_exact,
    aten.addbmm.default: addbmm,
    aten.addmm.default: addmm,
    aten.addmv.default: addmv,
    aten.angle.default: angle,
    aten.atan2.default: atan2,
    aten.baddbmm.default: baddbmm,
    aten.copysign.Tensor: copysign,
    aten.diagonal.default: diagonal,
    aten.div.Scalar_mode: div_mode,
    aten.div.Tensor_mode: div_mode,
    aten.expm1.default: expm1,
    aten.floor_divide.Scalar: floor_divide,
    aten.floor_divide.default: floor_divide,
    aten.heaviside.default: heaviside,
    aten.log1p.default: log1p,
    aten.log2.default: log2,
    aten.logaddexp.default: logaddexp,
    aten.logaddexp2.default: logaddexp2,
    aten.remainder.Scalar: remainder,
    aten.remainder.Scalar_Tensor: remainder,
    aten.remainder.Tensor: remainder,
    aten.sign.default: sign,
    aten.signbit.default: signbit,
    aten.xlogy.Scalar_Other: xlogy,
    aten.xlogy.Scalar_Self: xlogy,
    aten.xlogy.Tensor: xlogy,
}
