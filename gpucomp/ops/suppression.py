"""NonMaxSuppression. numpy runs it on the host, with the largest possible number of rows, and returns how many count.

A candidate is compared only with kept boxes that overlap it enough along one axis. Kept boxes are sorted by their
beginnings in each class of sizes, so the boxes to compare are a range. The time depends on the number of overlapping
boxes, not on the number of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpucomp.ir.types import F32, I64, TensorType
from gpucomp.lazy_dataclass import dataclass
from gpucomp.ops.registry import op

FIRST_BLOCK, MOST_BLOCK = 64, 2048  # candidates per block; blocks double in size
PAIRS = 1 << 15  # pairs of boxes that are compared at once: intermediate results stay in the cache
SLACK = 1e-5  # of an overlap: bounds are computed in f64, but overlaps are rounded to f32


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
    """The boxes that are kept, as rows of batch, class, box. For each batch and class, the best scores come first.

    ``boxes`` f32[B, N, 4] are two opposite corners or, with ``centred``, centres and extents; ``scores`` is f32[B, C,
    N]. For each class, up to ``limit`` boxes with scores above ``least`` are kept. A box is dropped if its intersection
    with a kept box is more than ``overlap`` of their union. The first of boxes with equal scores comes first, and NaN
    scores come last; ONNX defines neither, and onnxruntime has no rule for NaN. Results: i64[B * C * min(limit, N), 3],
    with zeros after the rows that count, and the number of these rows, i64[].

    Raises ``ValueError`` for an ``overlap`` that is not in [0, 1].
    """
    if not 0 <= overlap <= 1:
        raise ValueError(f"an IoU threshold between 0 and 1 expected, got {overlap}")
    if boxes.dtype is not F32 or scores.dtype is not F32:
        raise ValueError(f"boxes and scores of f32 expected, got {boxes.dtype} and {scores.dtype}")
    if boxes.rank != 3 or boxes.shape[2] != 4 or scores.rank != 3 or scores.shape[::2] != boxes.shape[:2]:
        raise ValueError(f"boxes [batch, n, 4] and scores [batch, classes, n] expected, got {boxes} and {scores}")
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
    batches, classes, n = scores.shape
    rows: list[np.ndarray] = []
    with np.errstate(all="ignore"):  # boxes can be infinite or NaN
        for batch in range(batches):
            corners = _corners(boxes[batch], centred)
            for label in range(classes):
                best = _kept(corners, scores[batch, label], limit, overlap, least)
                rows.append(np.stack([np.full(len(best), batch), np.full(len(best), label), best], axis=1))
    result = np.zeros((batches * classes * max(min(limit, n), 0), 3), np.int64)
    kept = np.concatenate(rows) if rows else np.zeros((0, 3), np.int64)
    result[: len(kept)] = kept
    return result, np.array(len(kept), np.int64)


@dataclass(frozen=True)
class Boxes:
    """``low`` and ``high`` f32[2, n] along the two axes, and ``areas`` f32[n]. Comparisons are onnxruntime's, in f32."""

    low: np.ndarray
    high: np.ndarray
    areas: np.ndarray

    def at(self, places: np.ndarray) -> Boxes:
        return Boxes(self.low[:, places], self.high[:, places], self.areas[places])

    @property
    def solid(self) -> np.ndarray:
        """bool[n]: boxes with a positive, finite area. All other boxes neither cover a box nor are covered."""
        return np.asarray((self.high > self.low).all(axis=0) & (self.areas > 0) & np.isfinite(self.areas))


def _corners(boxes: np.ndarray, centred: bool) -> Boxes:
    first, second = boxes[:, :2].T, boxes[:, 2:].T
    if centred:
        half = second / np.float32(2)
        low, high = first - half, first + half
    else:
        low, high = np.minimum(first, second), np.maximum(first, second)
    return Boxes(np.ascontiguousarray(low), np.ascontiguousarray(high), np.prod(high - low, axis=0, dtype=np.float32))


def _kept(boxes: Boxes, scores: np.ndarray, limit: int, overlap: float, least: float | None) -> np.ndarray:
    """The kept boxes of one class, best scores first and NaN last. Candidates are processed in blocks."""
    left = np.arange(len(scores)) if least is None else np.flatnonzero(scores > np.float32(least))
    left = left[np.argsort(-scores[left], kind="stable")]
    if overlap >= 1:  # no intersection is larger than the union, not even in f32
        return left[: max(limit, 0)]
    axis = _selective_axis(boxes, left)
    kept: list[np.ndarray] = []
    count, start, size = 0, 0, FIRST_BLOCK
    before: list[Index] = []
    while start < len(left) and count < limit:
        block = left[start : start + size]
        start, size = start + size, min(2 * size, MOST_BLOCK)
        for index in before:
            covered = np.zeros(len(block), bool)
            for candidates, _ in index.covered(boxes.at(block), overlap):
                covered[candidates] = True
            block = block[~covered]
        block = _best_of(boxes.at(block), block, axis, overlap)[: limit - count]
        kept.append(block)
        count += len(block)
        before.append(Index.of(boxes.at(block), axis))
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)


def _selective_axis(boxes: Boxes, places: np.ndarray) -> int:
    """The axis along which boxes are short compared to the spread of their beginnings."""
    some = boxes.at(places[boxes.at(places).solid])
    if not some.areas.size:
        return 0
    begins, extents = some.low.astype(np.float64), (some.high - some.low).astype(np.float64)
    spread, length = begins.std(axis=1), extents.mean(axis=1)
    return int(np.argmin(length / (spread + length)))


def _best_of(boxes: Boxes, places: np.ndarray, axis: int, overlap: float) -> np.ndarray:
    """The ``places`` of ``boxes``, which are sorted by score, that no better kept box covers."""
    pairs = list(Index.of(boxes, axis).covered(boxes, overlap))
    if not pairs:
        return places
    worse, better = (np.concatenate(side) for side in zip(*pairs, strict=True))
    forward = better < worse
    worse, better = worse[forward], better[forward]
    order = np.argsort(better, kind="stable")
    worse = worse[order]
    owners, starts = np.unique(better[order], return_index=True)
    free = np.ones(len(places), bool)
    for owner, covered in zip(owners.tolist(), np.split(worse, starts[1:]), strict=False):  # split never yields 0 parts
        if free[owner]:
            free[covered] = False
    return places[free]


@dataclass(frozen=True)
class Index:
    """Boxes sorted by their beginnings along ``axis``, in classes of lengths from half of ``extent`` to ``extent``."""

    axis: int
    classes: tuple[tuple[float, np.ndarray, Boxes, np.ndarray], ...]  # extent, beginnings, boxes, their places

    @classmethod
    def of(cls, boxes: Boxes, axis: int) -> Index:
        places = np.flatnonzero(boxes.solid)
        extents = (boxes.high[axis] - boxes.low[axis])[places]
        exponents = np.frexp(extents)[1]
        classes = []
        for exponent in np.unique(exponents).tolist():
            own = places[exponents == exponent]
            own = own[np.argsort(boxes.low[axis, own], kind="stable")]
            classes.append((float(2.0**exponent), boxes.low[axis, own].astype(np.float64), boxes.at(own), own))
        return cls(axis, tuple(classes))

    def covered(self, candidates: Boxes, overlap: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pairs (place of a candidate, place of a box of the index) that overlap by more than ``overlap``.

        The boxes of such a pair share more than ``overlap`` of the longer one's extent along each axis.
        """
        share = max(overlap - SLACK, 0.0)
        solid = np.flatnonzero(candidates.solid)
        low, high = (side[self.axis, solid].astype(np.float64) for side in (candidates.low, candidates.high))
        length = high - low
        for extent, begins, boxes, places in self.classes:
            first = np.searchsorted(begins, low - (1 - share) * extent * (1 + SLACK), side="left")
            last = np.searchsorted(begins, high - share * length, side="right")
            alike = (share * length <= extent) & (share * extent / 2 <= length)
            counts = np.where(alike, np.maximum(last - first, 0), 0)
            for owners, found in _ranges(first, counts):
                near = self._beside(candidates, solid[owners.start : owners.stop], counts[owners], boxes, found)
                those = solid[np.repeat(np.arange(owners.start, owners.stop), counts[owners])[near]]
                hit = _overlaps(candidates.at(those), boxes.at(found[near]), overlap)
                yield those[hit], places[found[near][hit]]

    def _beside(
        self, candidates: Boxes, some: np.ndarray, counts: np.ndarray, boxes: Boxes, found: np.ndarray
    ) -> np.ndarray:
        """The pairs that overlap along the other axis. Each candidate of ``some`` is paired with ``counts`` of ``found``."""
        other = 1 - self.axis
        begin = np.maximum(np.repeat(candidates.low[other, some], counts), boxes.low[other, found])
        end = np.minimum(np.repeat(candidates.high[other, some], counts), boxes.high[other, found])
        return np.flatnonzero(end > begin)


def _ranges(first: np.ndarray, counts: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields slices of the rows k, with about ``PAIRS`` pairs each, and first[k] + j for all j < counts[k] of their rows."""
    ends = np.cumsum(counts)
    at = 0
    while at < len(counts):
        done = int(ends[at - 1]) if at else 0
        until = max(at + 1, int(np.searchsorted(ends, done + PAIRS, side="right")))
        total = int(ends[until - 1]) - done
        if total:
            some = counts[at:until]
            offsets = first[at:until] - (ends[at:until] - some - done)
            yield slice(at, until), np.arange(total) + np.repeat(offsets, some)
        at = until


def _overlaps(these: Boxes, those: Boxes, overlap: float) -> np.ndarray:
    """The positions of the pairs whose intersection is more than ``overlap`` of their union."""
    height, width = np.minimum(these.high, those.high) - np.maximum(these.low, those.low)
    common = height * width
    union = these.areas + those.areas - common
    hit = (height > 0) & (width > 0) & (common > 0) & (common / union > np.float32(overlap))
    return np.flatnonzero(hit)
