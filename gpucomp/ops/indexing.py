"""Operators whose indices are data: Gather*, Scatter*, ReverseSequence.

Negative indices count from the end. Reads clamp an index that is out of range, so that no kernel reads outside its
memory. Writes ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpucomp.expr.core import (
    REDUCTIONS,
    Algorithm,
    Expr,
    Var,
    axes_of,
    both,
    call,
    cast,
    identity_of,
    index,
    load,
    reduce,
    select,
    var,
)
from gpucomp.expr.simplify import flatten, unflatten
from gpucomp.ir.types import I64, TensorType
from gpucomp.ops.registry import accumulator, expect, expect_axis, op


def _wrapped(value: Expr, extent: int) -> Expr:
    """A stored index as i64. Negative ones count from the end."""
    place = cast(value, I64)
    return place if value.dtype.kind == "u" else select(place < 0, place + extent, place)


def clamped(value: Expr, extent: int) -> Expr:
    """A stored index, made valid: negative ones count from the end, then all are clamped."""
    return call("min", call("max", _wrapped(value, extent), 0), extent - 1)


def clamped_array(indices: np.ndarray, extent: int) -> np.ndarray:
    """``clamped`` for arrays, used by references."""
    indices = indices.astype(np.int64)
    return np.clip(np.where(indices < 0, indices + extent, indices), 0, extent - 1)


def _expect_elements(x: TensorType, axis: int, reads: int) -> None:
    if x.shape[axis] == 0 and reads:
        raise ValueError(f"one element or more expected along axis {axis} of {x}, got none")


@op("Gather")
def Gather(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    """``x`` at ``indices`` along ``axis``; the axes of ``indices`` replace that axis."""
    expect(indices, "iu")
    expect_axis(axis, x.rank)
    _expect_elements(x, axis, indices.size)
    return x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@Gather.define("reference")
def _gather_reference(x: np.ndarray, indices: np.ndarray, *, axis: int) -> np.ndarray:
    return np.take(x, clamped_array(indices, x.shape[axis]), axis=axis)


@Gather.define("algorithm")
def _gather_algorithm(x: TensorType, indices: TensorType, *, axis: int) -> Algorithm:
    axes = axes_of((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
    end = axis + indices.rank
    place = clamped(load(1, axes[axis:end], indices.dtype), x.shape[axis])
    return Algorithm(axes, load(0, (*axes[:axis], place, *axes[end:]), x.dtype))


@op("GatherElements")
def GatherElements(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    """``x`` at the position of each element of ``indices``, with the element as the index along ``axis``."""
    expect(indices, "iu")
    expect_axis(axis, x.rank)
    if indices.rank != x.rank:
        raise ValueError(f"indices of rank {x.rank} expected, got {indices}")
    if any(d != axis and a > b for d, (a, b) in enumerate(zip(indices.shape, x.shape, strict=True))):
        raise ValueError(f"indices no larger than {list(x.shape)} outside axis {axis} expected, got {indices}")
    _expect_elements(x, axis, indices.size)
    return x.with_shape(indices.shape)


@GatherElements.define("reference")
def _gather_elements_reference(x: np.ndarray, indices: np.ndarray, *, axis: int) -> np.ndarray:
    part = x[tuple(slice(None) if d == axis else slice(0, n) for d, n in enumerate(indices.shape))]
    return np.take_along_axis(part, clamped_array(indices, x.shape[axis]), axis)


@GatherElements.define("algorithm")
def _gather_elements_algorithm(x: TensorType, indices: TensorType, *, axis: int) -> Algorithm:
    axes = axes_of(indices.shape)
    place = clamped(load(1, axes, indices.dtype), x.shape[axis])
    return Algorithm(axes, load(0, (*axes[:axis], place, *axes[axis + 1 :]), x.dtype))


@op("GatherND")
def GatherND(x: TensorType, indices: TensorType, *, batch_dims: int = 0) -> TensorType:
    """Slices of ``x`` at index tuples, the last axis of ``indices``. The first ``batch_dims`` axes of both are the same."""
    expect(indices, "iu")
    if not 0 <= batch_dims < min(x.rank, indices.rank):
        raise ValueError(f"batch_dims of 0 to {min(x.rank, indices.rank) - 1} expected, got {batch_dims}")
    if x.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise ValueError(f"{batch_dims} equal leading axes expected, got {x} and {indices}")
    length = indices.shape[-1]
    if batch_dims + length > x.rank:
        raise ValueError(f"index tuples of at most {x.rank - batch_dims} expected, got {length}")
    for d in range(batch_dims, batch_dims + length):
        _expect_elements(x, d, indices.size)
    return x.with_shape((*indices.shape[:-1], *x.shape[batch_dims + length :]))


@GatherND.define("reference")
def _gather_nd_reference(x: np.ndarray, indices: np.ndarray, *, batch_dims: int = 0) -> np.ndarray:
    length = indices.shape[-1]
    places = [clamped_array(indices[..., k], x.shape[batch_dims + k]) for k in range(length)]
    outer = indices.shape[:-1]
    batch = [np.arange(n).reshape((-1,) + (1,) * (len(outer) - 1 - d)) for d, n in enumerate(outer[:batch_dims])]
    at = [np.broadcast_to(a, outer) for a in (*batch, *places)]
    return x[tuple(at)] if at else np.broadcast_to(x, (*outer, *x.shape)).copy()


@GatherND.define("algorithm")
def _gather_nd_algorithm(x: TensorType, indices: TensorType, *, batch_dims: int = 0) -> Algorithm:
    length = indices.shape[-1]
    axes = axes_of((*indices.shape[:-1], *x.shape[batch_dims + length :]))
    outer = axes[: indices.rank - 1]
    places = [clamped(load(1, (*outer, index(k)), indices.dtype), x.shape[batch_dims + k]) for k in range(length)]
    return Algorithm(axes, load(0, (*axes[:batch_dims], *places, *axes[len(outer) :]), x.dtype))


UPDATES = {"none": None, "add": "sum", "mul": "prod", "max": "max", "min": "min"}
UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _check_scatter(data: TensorType, indices: TensorType, updates: TensorType, reduction: str) -> None:
    expect(indices, "iu")
    if updates.dtype is not data.dtype:
        raise ValueError(f"updates of {data.dtype} expected, got {updates}")
    if reduction not in UPDATES:
        raise ValueError(f"reduction {' or '.join(UPDATES)} expected, got {reduction!r}")
    if reduction != "none":
        expect(data, "fiu")


def _scattered(
    data: Expr,
    hit: Expr,
    update_axes: Sequence[Var],
    update_shape: tuple[int, ...],
    update: Callable[[Sequence[Expr]], Expr],
    reduction: str,
) -> Expr:
    """The element ``data`` after all updates that ``hit`` it. Without a reduction, the last update wins.

    ``update(axes)`` is the update at the values of ``update_axes``.
    """
    how = UPDATES[reduction]
    if how is None:
        number = flatten(tuple(update_axes), update_shape)
        last = reduce("max", update_axes, select(hit, number, -1))
        return select(last < 0, data, update(unflatten(last, update_shape)))
    acc = accumulator(data.dtype) if how in {"sum", "prod"} else data.dtype
    value = cast(update(update_axes), acc)
    total = reduce(how, update_axes, select(hit, value, identity_of(how, acc)))
    return cast(call(REDUCTIONS[how], cast(data, acc), total), data.dtype)


def _apply_updates(
    data: np.ndarray, at: list[tuple[Any, ...]], updates: list[np.ndarray], reduction: str
) -> np.ndarray:
    sums = reduction in {"add", "mul"} and data.dtype.kind in "fV"
    result = data.astype(np.float64) if sums else data.copy()
    with np.errstate(all="ignore"):
        for place, value in zip(at, updates, strict=True):
            result[place] = value if reduction == "none" else UFUNCS[reduction](result[place], value)
        return result.astype(data.dtype)


@op("ScatterElements")
def ScatterElements(
    data: TensorType, indices: TensorType, updates: TensorType, *, axis: int, reduction: str = "none"
) -> TensorType:
    """``data`` with each update stored at its own position, except along ``axis``, where ``indices`` holds the position.

    ``reduction`` add, mul, max or min combines old and new values. Without a reduction, the last of several updates
    wins.
    """
    _check_scatter(data, indices, updates, reduction)
    expect_axis(axis, data.rank)
    if indices.shape != updates.shape or indices.rank != data.rank:
        raise ValueError(f"indices and updates of one shape and rank {data.rank} expected, got {indices}, {updates}")
    if any(d != axis and a > b for d, (a, b) in enumerate(zip(indices.shape, data.shape, strict=True))):
        raise ValueError(f"indices no larger than {list(data.shape)} outside axis {axis} expected, got {indices}")
    return data


@ScatterElements.define("reference")
def _scatter_elements_reference(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int, reduction: str = "none"
) -> np.ndarray:
    at, values = [], []
    for place in np.ndindex(*indices.shape):
        target = int(indices[place])
        target += data.shape[axis] if target < 0 else 0
        if 0 <= target < data.shape[axis]:
            at.append((*place[:axis], target, *place[axis + 1 :]))
            values.append(updates[place])
    return _apply_updates(data, at, values, reduction)


@ScatterElements.define("algorithm")
def _scatter_elements_algorithm(
    data: TensorType, indices: TensorType, updates: TensorType, *, axis: int, reduction: str = "none"
) -> Algorithm:
    axes = axes_of(data.shape)
    k = var("k", updates.shape[axis])
    others = [
        a < n for d, (a, n) in enumerate(zip(axes, updates.shape, strict=True)) if d != axis and n < data.shape[d]
    ]

    def at(place: Expr) -> tuple[Expr, ...]:
        return (*axes[:axis], place, *axes[axis + 1 :])

    target = _wrapped(load(1, at(k), indices.dtype), data.shape[axis])
    body = _scattered(
        load(0, axes, data.dtype),
        call("eq", target, axes[axis]),
        (k,),
        (k.extent,),
        lambda place: load(2, at(place[0]), data.dtype),
        reduction,
    )
    return Algorithm(axes, select(both(others), body, load(0, axes, data.dtype)))


@op("ScatterND")
def ScatterND(data: TensorType, indices: TensorType, updates: TensorType, *, reduction: str = "none") -> TensorType:
    """``data`` with slices stored at index tuples, the last axis of ``indices``; see ScatterElements for the rest."""
    _check_scatter(data, indices, updates, reduction)
    if indices.rank < 1 or indices.shape[-1] > data.rank:
        raise ValueError(f"index tuples of at most {data.rank} expected, got {indices}")
    expected = (*indices.shape[:-1], *data.shape[indices.shape[-1] :])
    if updates.shape != expected:
        raise ValueError(f"updates of shape {list(expected)} expected, got {list(updates.shape)}")
    return data


@ScatterND.define("reference")
def _scatter_nd_reference(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, reduction: str = "none"
) -> np.ndarray:
    at, values = [], []
    extents = data.shape[: indices.shape[-1]]
    for place in np.ndindex(*indices.shape[:-1]):
        target = [int(i) + (n if i < 0 else 0) for i, n in zip(indices[place], extents, strict=True)]
        if all(0 <= i < n for i, n in zip(target, extents, strict=True)):
            at.append(tuple(target))
            values.append(updates[place])
    return _apply_updates(data, at, values, reduction)


@ScatterND.define("algorithm")
def _scatter_nd_algorithm(
    data: TensorType, indices: TensorType, updates: TensorType, *, reduction: str = "none"
) -> Algorithm:
    axes = axes_of(data.shape)
    length = indices.shape[-1]
    numbers = axes_of(indices.shape[:-1], "k") or (var("k", 1),)
    outer = numbers[: indices.rank - 1]
    hits = [
        call("eq", _wrapped(load(1, (*outer, index(d)), indices.dtype), data.shape[d]), axes[d]) for d in range(length)
    ]
    body = _scattered(
        load(0, axes, data.dtype),
        both(hits),
        numbers,
        tuple(n.extent for n in numbers),
        lambda place: load(2, (*place[: len(outer)], *axes[length:]), data.dtype),
        reduction,
    )
    return Algorithm(axes, body)


@op("ReverseSequence")
def ReverseSequence(x: TensorType, lengths: TensorType, *, batch_axis: int, time_axis: int) -> TensorType:
    """The first ``lengths[b]`` elements along ``time_axis`` reversed, for each ``b`` of ``batch_axis``."""
    expect(lengths, "iu")
    expect_axis(batch_axis, x.rank, "batch_axis")
    expect_axis(time_axis, x.rank, "time_axis")
    if batch_axis == time_axis or lengths.shape != (x.shape[batch_axis],):
        raise ValueError(f"two axes and lengths of shape [{x.shape[batch_axis]}] expected, got {lengths}")
    return x


@ReverseSequence.define("reference")
def _reverse_sequence_reference(x: np.ndarray, lengths: np.ndarray, *, batch_axis: int, time_axis: int) -> np.ndarray:
    result = np.moveaxis(x.copy(), (batch_axis, time_axis), (0, 1))
    for row, length in zip(result, np.clip(lengths, 0, x.shape[time_axis]), strict=True):
        row[: int(length)] = row[: int(length)][::-1].copy()
    return np.moveaxis(result, (0, 1), (batch_axis, time_axis))


@ReverseSequence.define("algorithm")
def _reverse_sequence_algorithm(x: TensorType, lengths: TensorType, *, batch_axis: int, time_axis: int) -> Algorithm:
    axes = axes_of(x.shape)
    time = axes[time_axis]
    length = call("min", cast(load(1, (axes[batch_axis],), lengths.dtype), I64), x.shape[time_axis])
    place = select(time < length, length - 1 - time, time)
    return Algorithm(axes, load(0, [place if d == time_axis else a for d, a in enumerate(axes)], x.dtype))
