"""Operators whose results have data-dependent lengths: NonZero, Unique. numpy runs them on the host.

The IR has no unknown extents. NonZero gets the number of non-zero elements as an attribute, which is computed before.
The others return arrays of the largest possible length; their last result, a scalar, is the number of entries that
count.
"""

from __future__ import annotations

import numpy as np

from gpucomp.ir.types import I64, TensorType
from gpucomp.ops.registry import expect_axis, op


@op("NonZero")
def NonZero(x: TensorType, *, count: int) -> TensorType:
    """The indices of the ``count`` elements of ``x`` that are not 0, in row-major order: i64[rank, count]."""
    if not 0 <= count <= x.size:
        raise ValueError(f"a count of 0 to {x.size} expected, got {count}")
    return TensorType(I64, (x.rank, count))


@NonZero.define("reference")
def _non_zero_reference(x: np.ndarray, *, count: int) -> np.ndarray:
    places = np.flatnonzero(x)
    if len(places) != count:
        raise ValueError(f"{len(places)} elements are not 0, {count} expected")
    if not x.ndim:
        return np.zeros((0, count), np.int64)
    return np.array(np.unravel_index(places, x.shape), np.int64).reshape(x.ndim, count)


@op("Unique")
def Unique(x: TensorType, *, axis: int | None, sorted: bool) -> tuple[TensorType, ...]:
    """The distinct slices of ``x`` along ``axis``, or its distinct elements: ascending, or in order of first occurrence.

    Five results: the distinct slices, the first position of each, the number of the distinct slice for each slice of
    ``x``, how often each occurs (i64), and how many there are (i64[]). The extents are those for an ``x`` without
    duplicates.
    """
    if axis is not None:
        expect_axis(axis, x.rank)
    extent = x.size if axis is None else x.shape[axis]
    places = TensorType(I64, (extent,))
    values = x.with_shape((extent,)) if axis is None else x
    return values, places, places, places, TensorType(I64, ())


@Unique.define("reference")
def _unique_reference(x: np.ndarray, *, axis: int | None, sorted: bool) -> tuple[np.ndarray, ...]:
    extent = x.size if axis is None else x.shape[axis]
    if x.dtype == object and axis is not None:  # numpy sorts slices of numbers only: replace texts by their ranks
        texts, places = np.unique(x, return_inverse=True)
        slices, *others = _unique_reference(places.reshape(x.shape), axis=axis, sorted=sorted)
        values = np.take(texts, slices, axis=0) if texts.size else x.copy()
        values[(slice(None),) * axis + (slice(int(others[-1]), None),)] = ""
        return (values, *others)
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse, along = inverse.reshape(-1), axis or 0
    if not sorted:
        order = np.argsort(first)
        values = np.take(values, order, axis=along)
        first, inverse, counts = first[order], np.argsort(order)[inverse], counts[order]
    padded = [_filled(a, along if a is values else 0, extent) for a in (values, first, inverse, counts)]
    return (padded[0], *(a.astype(np.int64) for a in padded[1:]), np.array(len(first), np.int64))


def _filled(array: np.ndarray, axis: int, extent: int) -> np.ndarray:
    """``array`` padded with zeros, or empty strings, to ``extent`` along ``axis``."""
    shape = list(array.shape)
    shape[axis] = extent - shape[axis]
    more = np.full(shape, "", object) if array.dtype == object else np.zeros(shape, array.dtype)
    return np.concatenate([array, more], axis=axis)
