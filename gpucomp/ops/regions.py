"""RoiAlign with a number of samples that depends on each region's size. The number is data, so numpy runs it on the host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpucomp.ir.types import TensorType
from gpucomp.lazy_dataclass import dataclass
from gpucomp.ops.indexing import clamped_array
from gpucomp.ops.registry import op
from gpucomp.ops.sampling import RoiAlign

AT_A_TIME = 1 << 20  # elements of samples that are summed at a time


@op("AdaptiveRoiAlign")
def AdaptiveRoiAlign(
    x: TensorType,
    rois: TensorType,
    batch_indices: TensorType,
    *,
    output_height: int,
    output_width: int,
    spatial_scale: float = 1.0,
    mode: str = "avg",
    coordinate_transformation_mode: str = "half_pixel",
) -> TensorType:
    """``RoiAlign`` with ceil(bin's height) x ceil(bin's width) samples in each bin: ONNX's ``sampling_ratio`` 0.

    A bin is 0 if it has no samples, or if its region has no area or is not finite.
    """
    result = RoiAlign.type_rule(
        x,
        rois,
        batch_indices,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=1,
        spatial_scale=spatial_scale,
        mode=mode,
        coordinate_transformation_mode=coordinate_transformation_mode,
    )
    assert isinstance(result, TensorType)
    return result


@dataclass(frozen=True)
class _Samples:
    """The samples of one region along one axis that are inside the image.

    bins    the bin of each sample
    low     the element before each sample
    high    the element after it
    weight  the weight of ``high``
    begins  the first sample of each bin, and the number of samples after the last bin
    count   samples per bin, including those outside the image
    """

    bins: np.ndarray
    low: np.ndarray
    high: np.ndarray
    weight: np.ndarray
    begins: np.ndarray
    count: float

    def within(self, start: int) -> _Samples:
        """The same samples in an image that begins at ``start``."""
        return replace(self, low=self.low - start, high=self.high - start)


def _samples(start: np.floating, size: np.floating, bins: int, extent: int) -> _Samples:
    """The samples of ``bins`` bins of ``size`` elements each, from ``start`` on, computed in the type of these two.

    Samples are more than half an element apart, so an image holds few of them however large the region is.
    """
    count = float(np.ceil(size))
    if not 0 < count < np.inf:
        count = 0.0
    edges = start + np.arange(bins, dtype=start.dtype) * size
    step = float(size) / max(count, 1.0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        first, last = ((bound - edges.astype(np.float64)) / step - 0.5 for bound in (-1, extent))
    first, last = np.clip(np.floor(first), 0, count), np.clip(np.ceil(last) + 1, 0, count)
    lengths = np.nan_to_num(np.maximum(last - first, 0)).astype(np.int64)
    owners = np.repeat(np.arange(bins), lengths)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    numbers = (first[owners] + within).astype(start.dtype)
    places = edges[owners] + (numbers + start.dtype.type(0.5)) * size / start.dtype.type(max(count, 1.0))
    inside = (places >= -1) & (places <= extent)
    owners, places = owners[inside], np.clip(places[inside], 0, extent - 1)
    low = places.astype(np.int64)
    begins = np.searchsorted(owners, np.arange(bins + 1))
    return _Samples(owners, low, np.minimum(low + 1, extent - 1), (places - low).astype(np.float64), begins, count)


@AdaptiveRoiAlign.define("reference")
def _adaptive_roi_align_reference(
    x: np.ndarray,
    rois: np.ndarray,
    batch_indices: np.ndarray,
    *,
    output_height: int,
    output_width: int,
    spatial_scale: float = 1.0,
    mode: str = "avg",
    coordinate_transformation_mode: str = "half_pixel",
) -> np.ndarray:
    result = np.zeros((len(rois), x.shape[1], output_height, output_width))
    if not len(rois):
        return result.astype(x.dtype)
    kind = np.promote_types(rois.dtype, np.float32)  # the number of samples depends on the rounding
    half = coordinate_transformation_mode == "half_pixel"
    images = clamped_array(batch_indices, x.shape[0])
    bins = (output_height, output_width)
    with np.errstate(over="ignore", invalid="ignore"):
        boxes = rois.astype(kind) * kind.type(spatial_scale) - kind.type(0.5 if half else 0)
        spans = boxes[:, 2:] - boxes[:, :2]
        sizes = (spans if half else np.maximum(spans, 1)) / np.array(bins[::-1], kind)
        for number, image in enumerate(images):
            rows, columns = (
                _samples(boxes[number, 1 - d], sizes[number, 1 - d], bins[d], x.shape[2 + d]) for d in range(2)
            )
            if len(rows.bins) and len(columns.bins):
                pooled = _mean if mode == "avg" else _greatest
                result[number] = pooled(x[image], rows, columns)
    return result.astype(x.dtype)


def _mean(picture: np.ndarray, rows: _Samples, columns: _Samples) -> np.ndarray:
    """Average ``picture`` [C, H, W] to [C, bins, bins]. Bilinear weights are separable: one axis is summed after the other.

    The order of axes is the one with the smaller intermediate array, which is no larger than the picture or the result.
    """
    (top, bottom), (left, right) = ((s.low.min(), s.high.max() + 1) for s in (rows, columns))
    rows, columns = rows.within(top), columns.within(left)
    part = picture[:, top:bottom, left:right]
    if len(rows.begins) * part.shape[2] <= len(columns.begins) * part.shape[1]:
        sums = _summed(_summed(part, rows, 1), columns, 2)
    else:
        sums = _summed(_summed(part, columns, 2), rows, 1)
    return sums / (rows.count * columns.count)


def _summed(values: np.ndarray, samples: _Samples, axis: int) -> np.ndarray:
    """f64 sums over the samples of each bin along ``axis``. A limited number of samples is processed at a time."""
    shape = list(values.shape)
    shape[axis] = len(samples.begins) - 1
    result = np.zeros(shape)
    step = max(1, AT_A_TIME * values.shape[axis] // max(1, values.size))
    at: list[slice | np.ndarray] = [slice(None)] * 3
    for start in range(0, len(samples.bins), step):
        chosen = slice(start, start + step)
        bins, weight = samples.bins[chosen], np.expand_dims(samples.weight[chosen], tuple(range(1, 3 - axis)))
        low, high = (values.take(places[chosen], axis).astype(np.float64) for places in (samples.low, samples.high))
        begins = np.flatnonzero(np.diff(bins, prepend=-1))
        at[axis] = bins[begins]
        result[tuple(at)] += np.add.reduceat(low * (1 - weight) + high * weight, begins, axis)
    return result


def _greatest(picture: np.ndarray, rows: _Samples, columns: _Samples) -> np.ndarray:
    """The greatest weighted corner in each bin, as in ONNX. A sample outside the image is 0."""
    bins = len(rows.begins) - 1, len(columns.begins) - 1
    result = np.full((len(picture), *bins), -np.inf)
    used = np.diff(columns.begins) > 0  # in ``reduceat`` an empty bin would get its neighbour's samples
    for k, row in enumerate(rows.bins):
        best = np.full((len(picture), len(columns.bins)), -np.inf)
        for y, v in ((rows.low[k], 1 - rows.weight[k]), (rows.high[k], rows.weight[k])):
            line = picture[:, y].astype(np.float64) * v
            corners = line[:, columns.low] * (1 - columns.weight), line[:, columns.high] * columns.weight
            best = np.maximum(best, np.maximum(*corners))
        greatest = np.maximum.reduceat(best, columns.begins[:-1][used], axis=1)
        result[:, row, used] = np.maximum(result[:, row, used], greatest)
    counts = (np.diff(rows.begins)[:, None] == rows.count) & (np.diff(columns.begins)[None] == columns.count)
    return np.where(counts, result, np.maximum(result, 0))
