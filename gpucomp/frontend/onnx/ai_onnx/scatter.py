"""Translators of gathers and scatters, and of operators composed of them."""

from __future__ import annotations

import math

import numpy as np

from gpucomp import ops
from gpucomp.frontend.onnx.compose import (
    axis_of,
    cast,
    checked_size,
    expand,
    extremes,
    ints,
    iota,
    like,
    reshape,
    scalar_of,
)
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value, constant, constant_value
from gpucomp.ir import types as t
from gpucomp.ir.types import DType

REDUCTIONS = ("none", "add", "mul", "max", "min")


def _checked_indices(indices: Value, size: int) -> Value:
    """Raise ``ValueError`` for constant indices outside [-size, size). Kernels clamp other indices."""
    array = constant_value(indices)
    if array is not None and array.size:
        (least,), (greatest,) = extremes(array)
        if int(least) < -size or int(greatest) >= size:
            raise ValueError(f"an index is outside -{size}..{size - 1}")
    return indices


def _inside(array: np.ndarray, sizes: np.ndarray) -> bool:
    """Whether every row of indices is in [-sizes, sizes)."""
    least, greatest = extremes(array, len(sizes))
    return bool(np.all(least >= -sizes) and np.all(greatest < sizes))


@translates("Gather")
def gather(x: Value, indices: Value, *, axis: int) -> Value:
    place = axis_of(axis, len(x.shape))
    return ops.Gather(x, _checked_indices(indices, x.shape[place]), axis=place)


@translates("GatherElements", since=11)
def gather_elements(x: Value, indices: Value, *, axis: int) -> Value:
    place = axis_of(axis, len(x.shape))
    return ops.GatherElements(x, _checked_indices(indices, x.shape[place]), axis=place)


@translates("GatherND", since=11)
def gather_nd(x: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    array = constant_value(indices)
    if array is not None and array.size:
        sizes = np.asarray(x.shape[batch_dims : batch_dims + array.shape[-1]], np.int64)
        if len(sizes) == array.shape[-1] and not _inside(array, sizes):
            raise ValueError(f"an index is outside {sizes.tolist()}")
    return ops.GatherND(x, indices, batch_dims=batch_dims)


@translates("Scatter", since=9)
def scatter(x: Value, indices: Value, updates: Value, *, axis: int) -> Value:
    return scatter_elements(x, indices, updates, axis=axis)


@translates("ScatterElements", since=11)
def scatter_elements(x: Value, indices: Value, updates: Value, *, axis: int, reduction: str = "none") -> Value:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction {reduction!r}: one of {', '.join(REDUCTIONS)} expected")
    place = axis_of(axis, len(x.shape))
    checked = _checked_indices(indices, x.shape[place])
    x, updates, reduction, dtype = _reducible(x, updates, reduction)
    return cast(ops.ScatterElements(x, checked, updates, axis=place, reduction=reduction), dtype)


def _reducible(x: Value, updates: Value, reduction: str) -> tuple[Value, Value, str, DType]:
    """The operands in a type that can be reduced, the reduction, and the type of the result.

    For bools, a sum is true if any element is, and a product if all are.
    """
    dtype = x.type.dtype
    if dtype is not t.BOOL or reduction == "none":
        return x, updates, reduction, dtype
    return cast(x, t.U8), cast(updates, t.U8), {"add": "max", "mul": "min"}.get(reduction, reduction), dtype


@translates("ScatterND", since=11)
def scatter_nd(x: Value, indices: Value, updates: Value, *, reduction: str = "none") -> Value:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction {reduction!r}: one of {', '.join(REDUCTIONS)} expected")
    array = constant_value(indices)
    if array is not None and array.ndim and array.size:
        sizes = np.asarray(x.shape[: array.shape[-1]], np.int64)
        if len(sizes) == array.shape[-1] and not _inside(array, sizes):
            raise ValueError(f"an index is outside {sizes.tolist()}")
    x, updates, reduction, dtype = _reducible(x, updates, reduction)
    return cast(ops.ScatterND(x, indices, updates, reduction=reduction), dtype)


@translates("TensorScatter", since=24)
def tensor_scatter(past: Value, update: Value, write_indices: Value | None = None, *, axis: int, mode: str) -> Value:
    """Writes ``update`` into the cache ``past`` along ``axis``. Each batch has its own start position."""
    rank = len(past.shape)
    place = axis_of(axis, rank)
    if place == 0 or mode not in ("linear", "circular"):
        raise ValueError(
            f"an axis other than the first and mode linear or circular expected, axis {axis} and mode {mode!r} given"
        )
    length = update.shape[place]
    at = reshape(iota(length), [length if a == place else 1 for a in range(rank)])
    if write_indices is not None:
        at = ops.Add(at, reshape(cast(write_indices, t.I64), (past.shape[0], *[1] * (rank - 1))))
    if mode == "circular":
        at = ops.Mod(at, constant(np.int64(past.shape[place])), fmod=False)
    return ops.ScatterElements(past, expand(at, update.shape), update, axis=place, reduction="none")


@translates("Col2Im", since=18)
def col2im(
    x: Value,
    image_shape: Value,
    block_shape: Value,
    *,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """Sums overlapping blocks into the image that they are from: a scatter-add with constant indices."""
    image, block = ints(image_shape, "image_shape"), ints(block_shape, "block_shape")
    rank = len(image)
    dilations, strides = dilations or (1,) * rank, strides or (1,) * rank
    pads = pads or (0,) * (2 * rank)
    if not rank == len(block) == len(dilations) == len(strides) or len(pads) != 2 * rank or rank < 1:
        raise ValueError("image_shape, block_shape, strides, dilations and pads of one rank expected")
    if any(v < 1 for v in (*image, *block, *strides, *dilations)) or any(p < 0 for p in pads):
        raise ValueError("extents, strides and dilations of at least 1 and pads of at least 0 expected")
    taps = math.prod(block)
    counts = [
        (image[d] + pads[d] + pads[rank + d] - (block[d] - 1) * dilations[d] - 1) // strides[d] + 1 for d in range(rank)
    ]
    places = math.prod(counts)
    if len(x.shape) != 3 or any(c < 1 for c in counts) or x.shape[2] != places or x.shape[1] % taps:
        raise ValueError(f"[N, C*{taps}, {places}] expected, {x.type} given")
    checked_size(taps * places, 8)
    n, c = x.shape[0], x.shape[1] // taps
    target = np.zeros((taps, places), np.int64)
    inside = np.ones((taps, places), np.bool_)
    for d in range(rank):
        tap = np.arange(block[d]) * dilations[d] - pads[d]
        at = np.add.outer(tap, np.arange(counts[d]) * strides[d])
        shape = [1] * (2 * rank)
        shape[d], shape[rank + d] = at.shape
        full = np.broadcast_to(at.reshape(shape), (*block, *counts)).reshape(taps, places)
        inside &= (full >= 0) & (full < image[d])
        target = target * image[d] + np.clip(full, 0, image[d] - 1)
    columns = ops.Where(constant(inside), reshape(x, (n, c, taps, places)), like(x, 0))
    size = math.prod(image)
    zeros = expand(scalar_of(x.type.dtype, 0), (n, c, size))
    where = expand(constant(target.reshape(1, 1, -1)), (n, c, taps * places))
    zeros, parts, reduction, dtype = _reducible(zeros, reshape(columns, (n, c, taps * places)), "add")
    summed = ops.ScatterElements(zeros, where, parts, axis=2, reduction=reduction)
    return reshape(cast(summed, dtype), (n, c, *image))


@translates("ArrayFeatureExtractor", since=1, domain="ai.onnx.ml")
def array_feature_extractor(x: Value, indices: Value) -> Value:
    rank = len(x.shape)
    if not rank:
        raise ValueError("a scalar has no features")
    places = reshape(indices, (indices.type.size,))
    result = ops.Gather(x, _checked_indices(places, x.shape[-1]), axis=rank - 1)
    return reshape(result, (1, *result.shape)) if rank == 1 else result


@translates("Binarizer", since=1, domain="ai.onnx.ml")
def binarizer(x: Value, *, threshold: float) -> Value:
    return cast(ops.Less(like(x, threshold), x), x.type.dtype)
