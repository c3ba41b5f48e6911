"""Translators of operators that generate tensors from constants and shapes. Their results are constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.compose import (
    axis_of,
    cast,
    checked_size,
    expand,
    int64,
    ints,
    iota,
    reshape,
    scalar,
)
from gpucomp.frontend.onnx.tensors import element_type
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value, constant, sizes
from gpucomp.ir import types as t
from gpucomp.ir.extremes import largest
from gpucomp.ir.size import Size


@translates("Constant")
def constant_node(
    *,
    value: np.ndarray | None = None,
    sparse_value: np.ndarray | None = None,
    value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None,
    value_int: int | None = None,
    value_ints: tuple[int, ...] | None = None,
    value_string: str | None = None,
    value_strings: tuple[str, ...] | None = None,
) -> Value:
    floats = [np.asarray(v, np.float32) for v in (value_float, value_floats) if v is not None]
    integers = [np.asarray(v, np.int64) for v in (value_int, value_ints) if v is not None]
    texts = [np.asarray(v, object) for v in (value_string, value_strings) if v is not None]
    given = [v for v in (value, sparse_value) if v is not None] + floats + integers + texts
    if len(given) != 1:
        raise ValueError(f"exactly one value expected, {len(given)} given")
    return constant(given[0])


@translates("Shape")
def shape(x: Value, *, start: int = 0, end: int | None = None) -> Value:
    return int64(x.shape[slice(start, end)])


@translates("Size")
def size(x: Value) -> Value:
    return reshape(int64([x.type.size]), ())


@translates("ConstantOfShape", since=9)
def constant_of_shape(extents: Value, *, value: np.ndarray | None = None) -> Value:
    result = ints(extents, "shape")
    if any(d < 0 for d in result):
        raise ValueError(f"the shape {list(result)} has a negative dimension")
    fill = np.zeros((), np.float32) if value is None else value
    if fill.size != 1:
        raise ValueError(f"a value of one element expected, {fill.shape} given")
    return expand(constant(fill.reshape(())), result)


@translates("Range", since=11)
def arange(start: Value, limit: Value, delta: Value, *, stash_type: int = 1) -> Value:
    dtype = start.type.dtype
    first, last, step = (scalar(v, "bounds") for v in (start, limit, delta))
    if any(isinstance(v, Size) for v in (first, last, step)):
        return _open_range(first, last, step, dtype)
    if not step or not np.isfinite(np.asarray([first, last, step], np.float64)).all():
        raise ValueError("a finite range with a step other than 0 expected")
    count = max(0, -((first - last) // step)) if dtype.is_integer else max(0, int(np.ceil((last - first) / step)))
    checked_size(int(count), dtype.nbytes)
    steps = np.arange(int(count))
    if dtype.is_float:
        return constant((steps * step + first).astype(dtype.numpy))
    steps *= int(step)
    steps += int(first)
    return constant(steps.astype(dtype.numpy, copy=False))


def _open_range(first: Any, last: Any, step: Any, dtype: t.DType) -> Value:
    """A range of a length that each run decides."""
    if step == 0:
        raise ValueError("a step other than 0 expected")
    if isinstance(first, float) or isinstance(step, float):  # of floats whose sums may be rounded
        first, step = (int(v) if v == int(v) else v for v in (first, step))
    if isinstance(first, float) or isinstance(step, float):
        raise UnsupportedError(
            "its length depends on sizes that each run decides, and its numbers are fractions", code="GPC4005"
        )
    count = largest(0, -((first - last) // step))
    numbers = cast(ops.Iota(size=count, dtype=t.I64), dtype)
    for op, operand in ((ops.Mul, step), (ops.Add, first)):
        numbers = op(numbers, sizes(np.array([operand], object).reshape(()), dtype))
    return numbers


@translates("EyeLike", since=9)
def eye_like(x: Value, *, dtype: int | None = None, k: int) -> Value:
    if len(x.shape) != 2:
        raise ValueError(f"a matrix expected, {x.type} given")
    result = x.type.dtype if dtype is None else element_type(dtype, "dtype")
    checked_size(x.type.size, result.nbytes)
    k = max(-x.shape[0], min(k, x.shape[1]))
    return constant(np.eye(*x.shape, k=k).astype(result.numpy))


@translates("OneHot", since=9)
def one_hot(indices: Value, depth: Value, values: Value, *, axis: int) -> Value:
    """off, on = values. Indices outside [-depth, depth) give a row of ``off``."""
    count = int(scalar(depth, "depth"))
    if count < 0:
        raise ValueError(f"depth {count} is negative")
    rank = len(indices.shape) + 1
    place = axis_of(axis, rank)
    checked_size(count, 8)
    position = cast(indices, t.I64)
    wrapped = ops.Where(
        ops.Less(position, constant(np.int64(0))), ops.Add(position, constant(np.int64(count))), position
    )
    shape = list(indices.shape)
    shape.insert(place, 1)
    rows = reshape(iota(count), [count if a == place else 1 for a in range(rank)])
    hot = ops.Equal(reshape(wrapped, shape), rows)
    off, on = (ops.Slice(values, starts=(k,), steps=(1,), sizes=(1,)) for k in (0, 1))
    return ops.Where(hot, reshape(on, ()), reshape(off, ()))


BAND_BYTES = 512  # bytes of a constant that take as long to compute as one band


@translates("MelWeightMatrix", since=17)
def mel_weight_matrix(
    bins: Value, dft_length: Value, sample_rate: Value, low: Value, high: Value, *, output_datatype: int
) -> Value:
    """Triangular filters, equally spaced on the mel scale 2595 log10(1 + f / 700)."""
    count, length, rate = (int(scalar(v, "sizes")) for v in (bins, dft_length, sample_rate))
    hertz = [float(scalar(v, "edges")) for v in (low, high)]
    dtype = element_type(output_datatype, "output_datatype")
    if count < 1 or length < 1 or rate < 1:
        raise ValueError("sizes of at least 1 expected")
    if not all(0 <= f <= 1e9 for f in hertz):
        raise ValueError(f"edges in hertz expected, {hertz} given")
    edges = [2595 * np.log10(1 + f / 700) for f in hertz]
    spectrum = length // 2 + 1
    checked_size(spectrum * count, 8)
    checked_size(count, BAND_BYTES)
    points = np.arange(count + 2) * ((edges[1] - edges[0]) / (count + 2)) + edges[0]
    places = ((length + 1) * (700 * (10 ** (points / 2595) - 1)) // rate).astype(np.int64)
    matrix = np.zeros((spectrum, count))
    for i in range(count):
        left, centre, right = (int(v) for v in places[i : i + 3])
        if centre == left:
            if 0 <= centre < spectrum:
                matrix[centre, i] = 1
        else:
            rows = np.arange(left, min(centre + 1, spectrum))
            matrix[rows, i] = (rows - left) / (centre - left)
        if right > centre:
            rows = np.arange(centre, min(right, spectrum))
            matrix[rows, i] = (right - rows) / (right - centre)
    return constant(matrix.astype(dtype.numpy))
