"""Operators whose results have a length that values decide: NonZero, Unique, NonMaxSuppression. On the host, by numpy.

The IR knows no unknown extents. NonZero is told how many there are, which its operand's sum of non-zeros gives before; the
others fill as much as there can be at most, and say in their last result, a scalar, how much of it counts.
"""

from __future__ import annotations

import numpy as np

from gpucomp.ir.types import F32, I64, TensorType
from gpucomp.ops.registry import expect_axis, op

BLOCK = 64  # candidates of a suppression that are compared at once
AGAINST = 512  # boxes that were kept, with which they are: what is computed of them stays in the cache


@op("NonZero")
def NonZero(x: TensorType, *, count: int) -> TensorType:
    """The places of the ``count`` elements of ``x`` that are not 0, in row-major order: i64[rank, count]."""
    if not 0 <= count <= x.size:
        raise ValueError(f"a count of 0 to {x.size} expected, got {count}")
    return TensorType(I64, (x.rank, count))


@NonZero.define("reference")
def _non_zero_reference(x: np.ndarray, *, count: int) -> np.ndarray:
    places = np.flatnonzero(x)
    if len(places) != count:
        raise ValueError(f"{len(places)} elements are not 0, {count} were expected")
    if not x.ndim:
        return np.zeros((0, count), np.int64)
    return np.array(np.unravel_index(places, x.shape), np.int64).reshape(x.ndim, count)


@op("Unique")
def Unique(x: TensorType, *, axis: int | None, sorted: bool) -> tuple[TensorType, ...]:
    """The distinct slices of ``x`` along ``axis``, or its distinct elements: ascending, or as they come first.

    Five results, whose extents are what there is where nothing repeats: the slices, where each is first, which of them
    each slice of ``x`` is, how often each is there (i64), and how many there are (i64[]).
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
    if x.dtype == object and axis is not None:  # numpy sorts slices of numbers alone: those of the texts' places
        texts, places = np.unique(x, return_inverse=True)
        slices, *others = _unique_reference(places.reshape(x.shape), axis=axis, sorted=sorted)
        values = np.take(texts, slices, axis=0) if texts.size else x.copy()
        values[(slice(None),) * axis + (slice(int(others[-1]), None),)] = ""
        return (values, *others)
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse, along = inverse.reshape(-1), axis or 0
    if not sorted:
        order = np.argsort(first)
        values = np.take(values, order, axis=along)
        first, inverse, counts = first[order], np.argsort(order)[inverse], counts[order]
    padded = [_filled(a, along if a is values else 0, extent) for a in (values, first, inverse, counts)]
    return (padded[0], *(a.astype(np.int64) for a in padded[1:]), np.array(len(first), np.int64))


def _filled(array: np.ndarray, axis: int, extent: int) -> np.ndarray:
    """``array`` with zeros, or empty texts, up to ``extent`` along ``axis``."""
    shape = list(array.shape)
    shape[axis] = extent - shape[axis]
    more = np.full(shape, "", object) if array.dtype == object else np.zeros(shape, array.dtype)
    return np.concatenate([array, more], axis=axis)


@op("NonMaxSuppression")
def NonMaxSuppression(
    boxes: TensorType,
    scores: TensorType,
    *,
    limit: int,
    overlap: float,
    least: float | None,
    centred: bool,
) -> tuple[TensorType, TensorType]:
    """The boxes that are kept, per batch and class the best score first: rows of batch, class, box.

    ``boxes`` f32[B, N, 4] are two opposite corners, or with ``centred`` centre and extents; ``scores`` f32[B, C, N]. Of
    each class up to ``limit`` boxes that score above ``least`` are kept, none of whose intersections with a kept one is
    more than ``overlap`` of their union. Results: i64[B * C * min(limit, N), 3], zeros behind the rows that count, and
    the number of these, i64[].
    """
    if boxes.dtype is not F32 or scores.dtype is not F32:
        raise ValueError(f"f32 expected, got {boxes.dtype} and {scores.dtype}")
    if boxes.rank != 3 or boxes.shape[2] != 4 or scores.rank != 3 or scores.shape[::2] != boxes.shape[:2]:
        raise ValueError(f"boxes {list(boxes.shape)} and scores {list(scores.shape)}")
    batches, classes, n = scores.shape
    return TensorType(I64, (batches * classes * max(min(limit, n), 0), 3)), TensorType(I64, ())


@NonMaxSuppression.define("reference")
def _non_max_suppression_reference(
    boxes: np.ndarray,
    scores: np.ndarray,
    *,
    limit: int,
    overlap: float,
    least: float | None,
    centred: bool,
) -> tuple[np.ndarray, np.ndarray]:
    corners = boxes.astype(np.float64)
    if centred:
        middle, half = corners[..., :2], corners[..., 2:] / 2
        corners = np.concatenate([middle - half, middle + half], axis=2)
    low = np.minimum(corners[..., :2], corners[..., 2:])
    high = np.maximum(corners[..., :2], corners[..., 2:])
    columns = np.moveaxis(np.concatenate([low, high], axis=2), 2, 1)  # [B, 4, N]: least and largest y and x
    batches, classes, n = scores.shape
    rows: list[tuple[int, int, int]] = []
    for batch in range(batches):
        for label in range(classes):
            best = _kept(columns[batch], scores[batch, label], limit, overlap, least)
            rows += [(batch, label, k) for k in best]
    result = np.zeros((batches * classes * max(min(limit, n), 0), 3), np.int64)
    result[: len(rows)] = np.array(rows, np.int64).reshape(-1, 3)
    return result, np.array(len(rows), np.int64)


def _kept(boxes: np.ndarray, scores: np.ndarray, limit: int, overlap: float, least: float | None) -> list[int]:
    """The best box that none kept before covers, and so on; some candidates at a time against those that are kept."""
    left = np.arange(len(scores)) if least is None else np.flatnonzero(scores > least)
    left = left[np.argsort(-scores[left], kind="stable")]
    kept: list[int] = []
    columns = np.empty((4, max(min(limit, len(left)), 0)))  # of those in ``kept``
    for start in range(0, len(left), BLOCK):
        block = left[start : start + BLOCK]
        before = len(kept)
        if before >= limit:
            break
        for first in range(0, before, AGAINST):
            some = columns[:, first : min(first + AGAINST, before)]
            block = block[~(_overlaps(some, boxes[:, block]) > overlap).any(axis=0)]
        covers = _overlaps(boxes[:, block], boxes[:, block]) > overlap
        free = np.ones(len(block), bool)
        for k, place in enumerate(block.tolist()):
            if free[k] and len(kept) < limit:
                kept.append(place)
                free &= ~covers[k]
        columns[:, before : len(kept)] = boxes[:, kept[before:]]
    return kept


def _overlaps(these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """Intersection over union of each of ``these`` [4, m] with each of ``those`` [4, n]; 0 where neither has an area."""
    low = np.maximum(these[:2, :, None], those[:2, None, :])
    high = np.minimum(these[2:, :, None], those[2:, None, :])
    height, width = np.maximum(high - low, 0)
    common = height * width
    areas = [(boxes[2] - boxes[0]) * (boxes[3] - boxes[1]) for boxes in (these, those)]
    union = areas[0][:, None] + areas[1][None, :] - common
    return np.divide(common, union, out=np.zeros_like(common), where=union > 0)
