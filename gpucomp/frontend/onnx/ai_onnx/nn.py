"""Translators of contractions and normalisations: Gemm, MatMul, Conv, BatchNormalization and so on."""

from __future__ import annotations

import math

import numpy as np

from gpucomp import ops
from gpucomp.frontend.onnx.ai_onnx.windows import AUTO_PAD, windows
from gpucomp.frontend.onnx.compose import (
    accumulation,
    axes_of,
    axis_of,
    cast,
    channels,
    like,
    mean,
    pad,
    part,
    reshape,
    scalar_of,
    strided,
    transpose,
)
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value, constant, constant_value
from gpucomp.ir import types as t
from gpucomp.ir.size import is_one
from gpucomp.ops.registry import broadcast


@translates("MatMul")
def matmul(a: Value, b: Value) -> Value:
    """numpy's ``matmul``: a vector is a row on the left and a column on the right."""
    if not a.shape or not b.shape:
        raise ValueError("operands of at least one axis expected, a scalar given")
    left = reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    product = ops.MatMul(left, right)
    shape = list(product.shape)
    if len(b.shape) == 1:
        del shape[-1]
    if len(a.shape) == 1:
        del shape[-1 if len(b.shape) == 1 else -2]
    return reshape(product, shape)


@translates("Gemm")
def gemm(a: Value, b: Value, c: Value | None = None, *, alpha: float, beta: float, transA: int, transB: int) -> Value:
    """alpha a b + beta c"""
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ValueError("matrices expected")
    product = ops.MatMul(transpose(a, (1, 0)) if transA else a, transpose(b, (1, 0)) if transB else b)
    dtype = product.type.dtype
    if dtype.is_integer and not (float(alpha).is_integer() and float(beta).is_integer()):
        product, c = cast(product, t.F64), c if c is None else cast(c, t.F64)  # only the result is truncated
    y = scaled(product, alpha)
    if c is None or beta == 0:
        return cast(y, dtype)
    if broadcast(c.shape, y.shape) != y.shape:
        raise ValueError(f"{c.type} does not broadcast to {y.type}")
    return cast(ops.Add(y, scaled(c, beta)), dtype)


def scaled(x: Value, factor: float) -> Value:
    return x if factor == 1 else ops.Mul(x, like(x, factor))


@translates("Conv")
def conv(
    x: Value,
    w: Value,
    bias: Value | None = None,
    *,
    auto_pad: str,
    dilations: tuple[int, ...] | None = None,
    group: int,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    rank = len(x.shape)
    if rank < 3 or len(w.shape) != rank:
        raise ValueError("[N, C, spatial...] and weights of the same rank expected")
    if kernel_shape is not None and tuple(kernel_shape) != w.shape[2:]:
        raise ValueError(f"kernel_shape {list(kernel_shape)} differs from the weights' {list(w.shape[2:])}")
    win = windows(x.shape[2:], w.shape[2:], strides, pads, dilations, auto_pad)
    if any(p < 0 for p in win.pads):
        raise ValueError(f"pads of at least 0 expected, {list(win.pads)} given")
    y = ops.Conv(x, w, strides=win.strides, pads=win.pads, dilations=win.dilations, group=group)
    return with_bias(y, bias)


def with_bias(y: Value, bias: Value | None) -> Value:
    if bias is None:
        return y
    if bias.shape != (y.shape[1],):
        raise ValueError(f"a bias of {y.shape[1]} elements expected, {bias.type} given")
    return ops.Add(y, channels(bias, len(y.shape)))


@translates("ConvTranspose")
def conv_transpose(
    x: Value,
    w: Value,
    bias: Value | None = None,
    *,
    auto_pad: str,
    dilations: tuple[int, ...] | None = None,
    group: int,
    kernel_shape: tuple[int, ...] | None = None,
    output_padding: tuple[int, ...] | None = None,
    output_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    rank = len(x.shape) - 2
    if rank < 1 or len(w.shape) != len(x.shape):
        raise ValueError("[N, C, spatial...] and weights of the same rank expected")
    if kernel_shape is not None and tuple(kernel_shape) != w.shape[2:]:
        raise ValueError(f"kernel_shape {list(kernel_shape)} differs from the weights' {list(w.shape[2:])}")
    if auto_pad not in AUTO_PAD:
        raise ValueError(f"auto_pad {auto_pad!r}: one of {', '.join(AUTO_PAD)} expected")
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    extra, pads = output_padding or (0,) * rank, pads or (0,) * (2 * rank)
    if not len(strides) == len(dilations) == len(extra) == rank or len(pads) != 2 * rank:
        raise ValueError(f"attributes for {rank} spatial axes expected")
    if any(v < 1 for v in (*strides, *dilations)) or any(v < 0 for v in extra):
        raise ValueError("strides and dilations of at least 1 and output_padding of at least 0 expected")
    full = [strides[d] * (x.shape[2 + d] - 1) + (w.shape[2 + d] - 1) * dilations[d] + 1 + extra[d] for d in range(rank)]
    fixed_extents: list[int] | None = None
    if output_shape is not None:
        fixed_extents = list(output_shape[-rank:])
        if len(fixed_extents) != rank:
            raise ValueError(f"output_shape for {rank} spatial axes expected")
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        fixed_extents = [x.shape[2 + d] * strides[d] for d in range(rank)]
    if fixed_extents is not None:
        totals = [max(0, f - o) for f, o in zip(full, fixed_extents, strict=True)]
        small = [total // 2 for total in totals]
        large = [total - total // 2 for total in totals]
        pads = (*small, *large) if auto_pad == "SAME_UPPER" else (*large, *small)
        out = fixed_extents
    else:
        if auto_pad == "VALID":
            pads = (0,) * (2 * rank)
        out = [full[d] - pads[d] - pads[rank + d] for d in range(rank)]
    if any(o < 0 for o in out):
        raise ValueError(f"the pads are too large: the result would have the extents {out}")
    y = ops.ConvTranspose(
        x, w, strides=tuple(strides), pads=tuple(pads), dilations=tuple(dilations), group=group, out=tuple(out)
    )
    return with_bias(y, bias)


@translates("Einsum", since=12)
def einsum(*operands: Value, equation: str) -> Value:
    """Normalises the equation for the IR: no blanks, no ellipsis, an explicit result, no repeated letter in an operand."""
    text = "".join(equation.split())
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"the equation {equation!r} has {len(terms)} terms for {len(operands)} operands")
    free = [c for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in text]
    widths = [len(v.shape) - len(term.replace("...", "")) for term, v in zip(terms, operands, strict=True)]
    if any(width < 0 or (width and "..." not in term) for term, width in zip(terms, widths, strict=True)):
        raise ValueError(f"the equation {equation!r} does not fit the operands' ranks")
    batch = "".join(free[: max(widths, default=0)])
    if len(batch) < max(widths, default=0):
        raise ValueError(f"the equation {equation!r} leaves no letters for the axes of its ellipsis")
    terms = [term.replace("...", batch[len(batch) - width :]) for term, width in zip(terms, widths, strict=True)]
    if not arrow:
        named = "".join(term.replace("...", "") for term in left.split(","))
        right = ("..." if "..." in left else "") + "".join(sorted(c for c in set(named) if named.count(c) == 1))
    right = right.replace("...", batch)
    letters = set("".join(terms))
    if not all(c.isascii() and c.isalpha() for c in "".join(terms) + right) or len(set(right)) != len(right):
        raise ValueError(f"the equation {equation!r} is not valid")
    if not set(right) <= letters:
        raise ValueError(f"the result of {equation!r} has a letter that no operand has")
    extents: dict[str, int] = {}
    plain = []
    for term, value in zip(terms, operands, strict=True):
        for c, size in zip(term, value.shape, strict=True):
            known = extents.setdefault(c, size)
            try:
                (extents[c],) = broadcast((known,), (size,))
            except ValueError:
                told = f"the letter {c!r} stands for an axis of {known} and for one of {size} elements: equal sizes expected"
                raise ValueError(told) from None
        plain.append(_diagonal(term, value))
    # axes of extent 1 that broadcast are dropped from the operand; another operand has the letter
    reduced = []
    for term, value in plain:
        for axis in reversed(range(len(term))):
            if is_one(value.shape[axis]) and not is_one(extents[term[axis]]):
                value = reshape(value, value.shape[:axis] + value.shape[axis + 1 :])
                term = term[:axis] + term[axis + 1 :]
        reduced.append((term, value))
    equation = ",".join(term for term, _ in reduced) + "->" + right
    return ops.Einsum(*(value for _, value in reduced), equation=equation)


def _diagonal(term: str, x: Value) -> tuple[str, Value]:
    """Replace two axes with the same letter by their diagonal, which is a strided slice of the two axes flattened."""
    while repeated := next((c for c in term if term.count(c) > 1), None):
        first = term.index(repeated)
        second = term.index(repeated, first + 1)
        n = x.shape[first]
        if x.shape[second] != n:
            raise ValueError(
                f"the letter {repeated!r} stands for an axis of {n} and for one of {x.shape[second]} elements: "
                "equal sizes expected"
            )
        rest = [a for a in range(len(term)) if a not in (first, second)]
        flat = reshape(transpose(x, [*rest, first, second]), [*(x.shape[a] for a in rest), n * n])
        x = strided(flat, {len(rest): (0, 1 if is_one(n) else n + 1, n)})
        term = "".join(term[a] for a in rest) + repeated
    return term, x


# --- normalisation


def _batch_norm(x: Value, scale: Value, bias: Value, mean: Value, variance: Value, epsilon: float) -> Value:
    """x c + d with c = scale / sqrt(variance + epsilon), d = bias - mean c. If all are constant, c and d are computed here."""
    if len(x.shape) < 2:
        raise ValueError(f"[N, C, ...] expected, {x.type} given")
    for v in (scale, bias, mean, variance):
        if v.shape != (x.shape[1],):
            raise ValueError(f"{x.shape[1]} channels expected, {v.type} given")
    rank, dtype = len(x.shape), x.type.dtype
    arrays = [constant_value(v) for v in (scale, bias, mean, variance)]
    if all(a is not None for a in arrays):
        gamma, beta, mu, sigma2 = (np.asarray(a, np.float64) for a in arrays)
        with np.errstate(all="ignore"):
            c = gamma / np.sqrt(sigma2 + epsilon)
            d = beta - mu * c
            factor, offset = (constant(a.astype(dtype.numpy)) for a in (c, d))
        return ops.Add(ops.Mul(x, channels(factor, rank)), channels(offset, rank))
    wide = accumulation(mean.type.dtype)
    scale, bias, mean, variance = (cast(v, wide) for v in (scale, bias, mean, variance))
    factor = ops.Div(scale, ops.Sqrt(ops.Add(variance, scalar_of(wide, epsilon))))
    offset = ops.Sub(bias, ops.Mul(mean, factor))
    y = ops.Add(ops.Mul(cast(x, wide), channels(factor, rank)), channels(offset, rank))
    return cast(y, dtype)


@translates("BatchNormalization")
def batch_normalization(
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float,
    momentum: float = 0.9,
    spatial: int = 1,
    site: Site,
) -> tuple[Value, ...]:
    """Below opset 14. If the statistics are used, it is training. Without ``spatial``, statistics are per element."""
    axes = tuple(a for a in range(len(x.shape)) if a != 1)
    training = any(site.wants(k) for k in range(1, 5))
    if spatial:
        if not training:
            return (_batch_norm(x, scale, bias, mean, variance, epsilon),)
        y, now, now_variance, running = _trained(x, scale, bias, mean, variance, epsilon, momentum, axes)
        return y, *running, now, now_variance
    if any(v.shape != x.shape[1:] for v in (scale, bias, mean, variance)):
        raise ValueError(f"statistics of shape {list(x.shape[1:])} expected, {scale.type} given")
    flat = reshape(x, (x.shape[0], scale.type.size))  # every element is a separate channel
    factor, offset, before, spread = (reshape(v, (scale.type.size,)) for v in (scale, bias, mean, variance))
    if not training:
        return (reshape(_batch_norm(flat, factor, offset, before, spread, epsilon), x.shape),)
    y, now, now_variance, running = _trained(flat, factor, offset, before, spread, epsilon, momentum, (0,))
    return reshape(y, x.shape), *(reshape(v, scale.shape) for v in (*running, now, now_variance))


def _trained(
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    epsilon: float,
    momentum: float,
    axes: tuple[int, ...],
) -> tuple[Value, Value, Value, list[Value]]:
    """``x`` normalised by its own mean and variance over ``axes``, the two, and the updated running mean and variance."""
    wide = accumulation(x.type.dtype)
    now = ops.ReduceMean(cast(x, wide), axes=axes, keepdims=True)
    spread = ops.Sub(cast(x, wide), now)
    now_variance = reshape(ops.ReduceMean(ops.Mul(spread, spread), axes=axes, keepdims=True), scale.shape)
    now = reshape(now, scale.shape)
    y = _batch_norm(x, cast(scale, wide), cast(bias, wide), now, now_variance, epsilon)
    running = [
        ops.Add(ops.Mul(old, like(old, momentum)), cast(ops.Mul(new, like(new, 1 - momentum)), old.type.dtype))
        for old, new in ((mean, now), (variance, now_variance))
    ]
    return y, cast(now, mean.type.dtype), cast(now_variance, variance.type.dtype), running


@translates("BatchNormalization", since=14)
def batch_normalization_14(
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float,
    momentum: float,
    training_mode: int,
    site: Site,
) -> tuple[Value, ...]:
    if not training_mode:
        return (_batch_norm(x, scale, bias, mean, variance, epsilon),)
    axes = tuple(a for a in range(len(x.shape)) if a != 1)
    y, _, _, running = _trained(x, scale, bias, mean, variance, epsilon, momentum, axes)
    return y, *running


def _affine(y: Value, scale: Value | None, bias: Value | None) -> Value:
    y = y if scale is None else ops.Mul(y, scale)
    return y if bias is None else ops.Add(y, bias)


@translates("LayerNormalization", since=17)
def layer_normalization(
    x: Value, scale: Value, bias: Value | None = None, *, axis: int, epsilon: float, stash_type: int, site: Site
) -> tuple[Value, ...]:
    place = axis_of(axis, len(x.shape))
    y = _affine(ops.LayerNorm(x, axis=place, epsilon=epsilon), scale, bias)
    if broadcast(y.shape, x.shape) != x.shape:
        raise ValueError("scale and bias do not broadcast to the operand")
    if not site.wants(1) and not site.wants(2):
        return (y,)
    return y, *ops.RowStatistics.node(x, axis=place, epsilon=epsilon).values


@translates("RMSNormalization", since=23)
def rms_normalization(x: Value, scale: Value, *, axis: int, epsilon: float, stash_type: int) -> Value:
    y = ops.RMSNorm(x, axis=axis_of(axis, len(x.shape)), epsilon=epsilon)
    return cast(ops.Mul(cast(y, scale.type.dtype), scale), scale.type.dtype)


def normalized_groups(x: Value, groups: int, epsilon: float) -> Value:
    """Normalise each of ``groups`` groups of channels to mean 0 and variance 1, for each image separately."""
    if len(x.shape) < 2 or groups < 1 or x.shape[1] % groups:
        raise ValueError(f"channels that divide into {groups} groups expected, {x.type} given")
    size = math.prod(x.shape[2:]) * (x.shape[1] // groups)
    flat = reshape(x, (x.shape[0], groups, size))
    return reshape(ops.LayerNorm(flat, axis=2, epsilon=epsilon), x.shape)


@translates("InstanceNormalization")
def instance_normalization(x: Value, scale: Value, bias: Value, *, epsilon: float) -> Value:
    rank = len(x.shape)
    y = normalized_groups(x, x.shape[1] if rank > 1 else 0, epsilon)
    return ops.Add(ops.Mul(y, channels(scale, rank)), channels(bias, rank))


@translates("GroupNormalization", since=18)
def group_normalization_18(x: Value, scale: Value, bias: Value, *, epsilon: float, num_groups: int) -> Value:
    """Scale and bias are per group."""
    y = normalized_groups(x, num_groups, epsilon)
    grouped = reshape(y, (x.shape[0], num_groups, x.type.size // max(1, x.shape[0] * num_groups)))
    return reshape(_affine(grouped, reshape(scale, (num_groups, 1)), reshape(bias, (num_groups, 1))), x.shape)


@translates("GroupNormalization", since=21)
def group_normalization(
    x: Value, scale: Value, bias: Value, *, epsilon: float, num_groups: int, stash_type: int
) -> Value:
    y = normalized_groups(x, num_groups, epsilon)
    return _affine(y, channels(scale, len(x.shape)), channels(bias, len(x.shape)))


@translates("MeanVarianceNormalization", since=9)
def mean_variance_normalization(x: Value, *, axes: tuple[int, ...]) -> Value:
    """(x - mean) / (standard deviation + 1e-9) over ``axes``."""
    places, wide = axes_of(axes, len(x.shape)), cast(x, accumulation(x.type.dtype))
    spread = ops.Sub(wide, mean(wide, places))
    deviation = ops.Sqrt(mean(ops.Mul(spread, spread), places))
    return cast(ops.Div(spread, ops.Add(deviation, like(deviation, 1e-9))), x.type.dtype)


@translates("LRN")
def local_response_normalization(x: Value, *, alpha: float, beta: float, bias: float, size: int) -> Value:
    """x / (bias + alpha / size * s)^beta, where s is the sum of the squares of the ``size`` channels around."""
    if not 1 <= size <= 1024 or len(x.shape) < 2:
        raise ValueError(f"a size from 1 to 1024 and [N, C, ...] expected, size {size} and {x.type} given")
    rank, count = len(x.shape), x.shape[1]
    before = (size - 1) // 2
    pads = [0] * (2 * rank)
    pads[1], pads[rank + 1] = before, size - 1 - before
    squares = pad(ops.Mul(x, x), pads)
    total = part(squares, 1, 0, count)
    for k in range(1, size):
        total = ops.Add(total, part(squares, 1, k, count))
    base = ops.Add(ops.Mul(total, like(x, alpha / size)), like(x, bias))
    return ops.Div(x, ops.Pow(base, like(x, beta)))
