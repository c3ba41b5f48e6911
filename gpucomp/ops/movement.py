"""Operators that only move elements. Each is an index map, so it can be fused into the kernels around it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, Number, axes_of, both, call, cast, index, load, select
from gpucomp.expr.simplify import flatten, unflatten
from gpucomp.ir.size import same_shape
from gpucomp.ir.types import DType, TensorType
from gpucomp.ops.registry import broadcast, broadcast_index, expect_axis, op


@op("Reshape")
def Reshape(x: TensorType, *, shape: tuple[int, ...]) -> TensorType:
    """The same elements in the same row-major order, in another shape (no 0 or -1: the frontend resolves them)."""
    if math.prod(shape) != x.size:
        raise ValueError(f"{x.size} elements do not fit in shape {list(shape)}")
    return x.with_shape(shape)


@Reshape.define("reference")
def _reshape_reference(x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    return x.reshape(shape)


@Reshape.define("algorithm")
def _reshape_algorithm(x: TensorType, *, shape: tuple[int, ...]) -> Algorithm:
    axes = axes_of(shape)
    return Algorithm(axes, load(0, unflatten(flatten(axes, shape), x.shape), x.dtype))


@Reshape.define("push")
def _reshape_push(operand: int, at: Sequence[Expr], x: TensorType, *, shape: tuple[int, ...]) -> tuple[Expr, ...]:
    return unflatten(flatten(tuple(at), x.shape), shape)


@op("Transpose")
def Transpose(x: TensorType, *, perm: tuple[int, ...]) -> TensorType:
    """Axis ``i`` of the result is axis ``perm[i]`` of ``x``."""
    if sorted(perm) != list(range(x.rank)):
        raise ValueError(f"perm {list(perm)} is not a permutation of {x.rank} axes")
    return x.with_shape(tuple(x.shape[p] for p in perm))


@Transpose.define("reference")
def _transpose_reference(x: np.ndarray, *, perm: tuple[int, ...]) -> np.ndarray:
    return np.transpose(x, perm)


@Transpose.define("algorithm")
def _transpose_algorithm(x: TensorType, *, perm: tuple[int, ...]) -> Algorithm:
    axes = axes_of(tuple(x.shape[p] for p in perm))
    at: list[Expr] = [index(0)] * x.rank
    for axis, p in zip(axes, perm, strict=True):
        at[p] = axis
    return Algorithm(axes, load(0, at, x.dtype))


@Transpose.define("push")
def _transpose_push(operand: int, at: Sequence[Expr], x: TensorType, *, perm: tuple[int, ...]) -> tuple[Expr, ...]:
    return tuple(at[p] for p in perm)


@op("Concat")
def Concat(*parts: TensorType, axis: int) -> TensorType:
    """The parts one after the other along ``axis`` (0 <= axis < rank)."""
    if not parts:
        raise ValueError("one part or more expected, got none")
    first = parts[0]
    expect_axis(axis, first.rank)
    for part in parts:
        if part.dtype is not first.dtype or part.rank != first.rank:
            raise ValueError(f"{part} and {first} differ in element type or rank")
        if any(a != b for d, (a, b) in enumerate(zip(part.shape, first.shape, strict=True)) if d != axis):
            raise ValueError(f"{part} and {first} differ outside axis {axis}")
    total = sum(part.shape[axis] for part in parts)
    return first.with_shape((*first.shape[:axis], total, *first.shape[axis + 1 :]))


@Concat.define("reference")
def _concat_reference(*parts: np.ndarray, axis: int) -> np.ndarray:
    return np.concatenate(parts, axis)


@Concat.define("algorithm")
def _concat_algorithm(*parts: TensorType, axis: int) -> Algorithm:
    axes = axes_of(Concat.type_rule(*parts, axis=axis).shape)  # type: ignore[union-attr]
    body: Expr | None = None
    end = sum(part.shape[axis] for part in parts)
    for k in reversed(range(len(parts))):
        end -= parts[k].shape[axis]
        at = [a - end if d == axis else a for d, a in enumerate(axes)]
        element = load(k, at, parts[k].dtype)
        body = element if body is None else select(axes[axis] < end + parts[k].shape[axis], element, body)
    assert body is not None
    return Algorithm(axes, body)


@Concat.define("push")
def _concat_push(operand: int, at: Sequence[Expr], *parts: TensorType, axis: int) -> tuple[Expr, ...]:
    start = sum(part.shape[axis] for part in parts[:operand])
    return tuple(a + start if d == axis else a for d, a in enumerate(at))


@op("Append")
def Append(state: TensorType, rows: TensorType, *, axis: int, at: int) -> TensorType:
    """``state`` with ``rows`` in place of those from ``at`` on along ``axis``. They must be inside ``state``.

    ``rewrite.states`` makes such nodes for states of the graph: these results lie in the memory of ``state``, which nothing else
    reads, and a kernel stores the rows and touches no others.
    """
    expect_axis(axis, state.rank)
    if rows.dtype is not state.dtype or rows.rank != state.rank:
        raise ValueError(f"{rows} and {state} differ in element type or rank")
    if any(a != b for d, (a, b) in enumerate(zip(rows.shape, state.shape, strict=True)) if d != axis):
        raise ValueError(f"{rows} and {state} differ outside axis {axis}")
    if not 0 <= at <= at + rows.shape[axis] <= state.shape[axis]:
        raise ValueError(f"rows {at} to {at + rows.shape[axis] - 1} at axis {axis} are not inside {state}")
    return state


@Append.define("reference")
def _append_reference(state: np.ndarray, rows: np.ndarray, *, axis: int, at: int) -> np.ndarray:
    result = state.copy()
    result[(slice(None),) * axis + (slice(at, at + rows.shape[axis]),)] = rows
    return result


@Append.define("algorithm")
def _append_algorithm(state: TensorType, rows: TensorType, *, axis: int, at: int) -> Algorithm:
    axes = axes_of(state.shape)
    there = [a - at if d == axis else a for d, a in enumerate(axes)]
    new = both([axes[axis] >= at, axes[axis] < at + rows.shape[axis]])
    return Algorithm(axes, select(new, load(1, there, rows.dtype), load(0, axes, state.dtype)))


@op("Slice")
def Slice(x: TensorType, *, starts: tuple[int, ...], steps: tuple[int, ...], sizes: tuple[int, ...]) -> TensorType:
    """Elements ``starts + i * steps`` of ``x`` for ``0 <= i < sizes``, one entry per axis. All must be inside ``x``."""
    if not len(starts) == len(steps) == len(sizes) == x.rank:
        raise ValueError(f"{x.rank} starts, steps and sizes expected, got {len(starts)}, {len(steps)}, {len(sizes)}")
    for d, (start, step, size) in enumerate(zip(starts, steps, sizes, strict=True)):
        if step == 0 or size < 0:
            raise ValueError(f"a step other than 0 and a size of at least 0 expected at axis {d}, got {step}, {size}")
        last = start + (size - 1) * step
        if same_shape((start, step, size), (0, 1, x.shape[d])):
            continue
        if size != 0 and not (0 <= start < x.shape[d] and 0 <= last < x.shape[d]):
            raise ValueError(f"elements of 0 to {x.shape[d] - 1} expected at axis {d}, got {start} to {last}")
    return x.with_shape(sizes)


@Slice.define("reference")
def _slice_reference(
    x: np.ndarray, *, starts: tuple[int, ...], steps: tuple[int, ...], sizes: tuple[int, ...]
) -> np.ndarray:
    for d, (start, step, size) in enumerate(zip(starts, steps, sizes, strict=True)):
        x = np.take(x, [start + i * step for i in range(size)], axis=d)
    return x


@Slice.define("algorithm")
def _slice_algorithm(
    x: TensorType, *, starts: tuple[int, ...], steps: tuple[int, ...], sizes: tuple[int, ...]
) -> Algorithm:
    axes = axes_of(sizes)
    at = [axis * step + start for axis, start, step in zip(axes, starts, steps, strict=True)]
    return Algorithm(axes, load(0, at, x.dtype))


PAD_MODES = ("constant", "reflect", "edge", "wrap")


@op("Pad")
def Pad(x: TensorType, *, pads: tuple[int, ...], mode: str = "constant", value: Number = 0) -> TensorType:
    """``x`` with elements added around it. ``pads`` holds all begins, then all ends; negative pads remove elements.

    constant: ``value``; edge: the nearest element; reflect: mirrored about the edge element; wrap: periodic.
    Elements are removed before edge, reflect and wrap extend the rest. Raises ``ValueError`` if none remain.
    """
    if len(pads) != 2 * x.rank:
        raise ValueError(f"{2 * x.rank} pads expected, got {len(pads)}")
    if mode not in PAD_MODES:
        raise ValueError(f"mode {' or '.join(PAD_MODES)} expected, got {mode!r}")
    shape = []
    for d, extent in enumerate(x.shape):
        begin, end = pads[d], pads[x.rank + d]
        kept = extent + min(begin, 0) + min(end, 0)
        if extent + begin + end < 0 or (kept <= 0 and mode != "constant" and extent + begin + end > 0):
            raise ValueError(f"pads {begin} and {end} at axis {d} leave nothing of {extent} elements")
        shape.append(extent + begin + end)
    return x.with_shape(tuple(shape))


@Pad.define("reference")
def _pad_reference(x: np.ndarray, *, pads: tuple[int, ...], mode: str = "constant", value: Number = 0) -> np.ndarray:
    widths = list(zip(pads[: x.ndim], pads[x.ndim :], strict=True))
    if mode == "constant":  # pad before removing: a negative pad can be larger than ``x``
        grown = np.pad(x, [(max(b, 0), max(e, 0)) for b, e in widths], constant_values=value)
        return grown[tuple(slice(max(-b, 0), n - max(-e, 0)) for n, (b, e) in zip(grown.shape, widths, strict=True))]
    cut = x[tuple(slice(max(-b, 0), n - max(-e, 0)) for n, (b, e) in zip(x.shape, widths, strict=True))]
    padded = np.pad(cut, [(max(b, 0), max(e, 0)) for b, e in widths], mode)  # type: ignore[call-overload]
    return np.asarray(padded)


@Pad.define("algorithm")
def _pad_algorithm(x: TensorType, *, pads: tuple[int, ...], mode: str = "constant", value: Number = 0) -> Algorithm:
    axes = axes_of(Pad.type_rule(x, pads=pads, mode=mode, value=value).shape)  # type: ignore[union-attr]
    at: list[Expr] = []
    inside: list[Expr] = []
    for d, (axis, extent) in enumerate(zip(axes, x.shape, strict=True)):
        begin, end = pads[d], pads[x.rank + d]
        if mode == "constant":
            at.append(axis - begin)
            inside += [axis >= begin] if begin > 0 else []
            inside += [axis < begin + extent] if end > 0 else []
            continue
        kept = extent + min(begin, 0) + min(end, 0)
        place = axis - max(begin, 0) if begin > 0 or end > 0 else axis
        at.append((_continued(place, kept, mode) if begin > 0 or end > 0 else place) + max(-begin, 0))
    element = load(0, at, x.dtype)
    return Algorithm(axes, select(both(inside), element, value))


def _continued(place: Expr, extent: int, mode: str) -> Expr:
    """The index of the element that stands at ``place``, which may be outside an axis of ``extent``."""
    if mode == "edge":
        return call("min", call("max", place, 0), extent - 1)
    if mode == "wrap":
        return place % extent
    if extent == 1:
        return index(0)
    period = 2 * (extent - 1)
    phase = place % period
    return call("min", phase, period - phase)


@op("Expand")
def Expand(x: TensorType, *, shape: tuple[int, ...]) -> TensorType:
    """``x`` broadcast to ``shape``."""
    if broadcast(x.shape, shape) != tuple(shape):
        raise ValueError(f"a shape that {list(x.shape)} broadcasts to expected, got {list(shape)}")
    return x.with_shape(shape)


@Expand.define("reference")
def _expand_reference(x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    return np.array(np.broadcast_to(x, shape))


@Expand.define("algorithm")
def _expand_algorithm(x: TensorType, *, shape: tuple[int, ...]) -> Algorithm:
    axes = axes_of(shape)
    return Algorithm(axes, load(0, broadcast_index(axes, x.shape), x.dtype))


@op("Iota")
def Iota(*, size: int, dtype: DType) -> TensorType:
    """The numbers 0, 1 ... ``size - 1``, for a ``size`` that no constant can have: each run decides it."""
    if not dtype.is_integer or size < 0:
        raise ValueError(f"integers and a size of at least 0 expected, got {dtype} and {size}")
    return TensorType(dtype, (size,))


@Iota.define("reference")
def _iota_reference(*, size: int, dtype: DType) -> np.ndarray:
    return np.arange(size).astype(dtype.numpy)


@Iota.define("algorithm")
def _iota_algorithm(*, size: int, dtype: DType) -> Algorithm:
    (axis,) = axes_of((size,))
    return Algorithm((axis,), cast(axis, dtype))


@op("Tile")
def Tile(x: TensorType, *, repeats: tuple[int, ...]) -> TensorType:
    """``x`` repeated ``repeats[d]`` times along axis ``d``."""
    if len(repeats) != x.rank or any(r < 0 for r in repeats):
        raise ValueError(f"{x.rank} repeats of at least 0 expected, got {list(repeats)}")
    return x.with_shape(tuple(n * r for n, r in zip(x.shape, repeats, strict=True)))


@Tile.define("reference")
def _tile_reference(x: np.ndarray, *, repeats: tuple[int, ...]) -> np.ndarray:
    return np.tile(x, repeats)


@Tile.define("algorithm")
def _tile_algorithm(x: TensorType, *, repeats: tuple[int, ...]) -> Algorithm:
    axes = axes_of(tuple(n * r for n, r in zip(x.shape, repeats, strict=True)))
    at = [axis % max(n, 1) if r > 1 else axis for axis, n, r in zip(axes, x.shape, repeats, strict=True)]
    return Algorithm(axes, load(0, at, x.dtype))
