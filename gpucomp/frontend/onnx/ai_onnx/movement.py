"""Translators of operators that move elements: reshaping, slicing, padding, joining."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.frontend.onnx.compose import (
    axes_of,
    axis_of,
    concat,
    expand,
    ints,
    iota,
    like,
    pad,
    part,
    reshape,
    scalar,
    squeeze,
    strided,
    transpose,
    unsqueeze,
)
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value, constant
from gpucomp.ir import types as t
from gpucomp.ir.extremes import largest, smallest
from gpucomp.ir.size import Size
from gpucomp.ops.registry import broadcast


@translates("Reshape")
def reshape_to(x: Value, shape: Value, *, allowzero: int = 0) -> Value:
    """0 copies a dimension (unless ``allowzero``), and a single -1 is inferred."""
    sizes = list(ints(shape, "shape"))
    if sizes.count(-1) > 1 or any(d < -1 for d in sizes):
        raise ValueError(f"the shape {sizes}: sizes of at least 0 and at most one -1 expected")
    if allowzero:
        if 0 in sizes and -1 in sizes:
            raise ValueError(f"the shape {sizes} has a 0 and a -1")
    else:
        for axis, d in enumerate(sizes):
            if d == 0:
                if axis >= len(x.shape):
                    raise ValueError(f"the shape {sizes} copies axis {axis}, which {x.type} does not have")
                sizes[axis] = x.shape[axis]
    if -1 in sizes:
        rest = math.prod(d for d in sizes if d != -1)
        if rest == 0 or x.type.size % rest:
            raise ValueError(f"{x.type} does not fit in shape {sizes}")
        sizes[sizes.index(-1)] = x.type.size // rest
    return reshape(x, sizes)


@translates("Transpose")
def transpose_to(x: Value, *, perm: tuple[int, ...] | None = None) -> Value:
    return transpose(x, tuple(reversed(range(len(x.shape)))) if perm is None else perm)


@translates("Flatten")
def flatten(x: Value, *, axis: int) -> Value:
    rank = len(x.shape)
    if not -rank <= axis <= rank:
        raise ValueError(f"axis {axis} is outside -{rank}..{rank}")
    axis = axis + rank if axis < 0 else axis
    return reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@translates("Squeeze")
def squeeze_attribute(x: Value, *, axes: tuple[int, ...] | None = None) -> Value:
    if axes is None:
        axes = tuple(a for a, d in enumerate(x.shape) if d == 1)
    axes = axes_of(axes, len(x.shape))
    if wrong := [a for a in axes if x.shape[a] != 1]:
        raise ValueError(f"axis {wrong[0]} has size {x.shape[wrong[0]]}, not 1")
    return squeeze(x, axes)


@translates("Squeeze", since=13)
def squeeze_axes(x: Value, axes: Value | None = None) -> Value:
    return squeeze_attribute(x, axes=None if axes is None else ints(axes, "axes"))


@translates("Unsqueeze")
def unsqueeze_attribute(x: Value, *, axes: tuple[int, ...]) -> Value:
    return unsqueeze(x, axes_of(axes, len(x.shape) + len(axes)))


@translates("Unsqueeze", since=13)
def unsqueeze_axes(x: Value, axes: Value) -> Value:
    return unsqueeze_attribute(x, axes=ints(axes, "axes"))


@translates("Concat")
def concat_all(*parts: Value, axis: int) -> Value:
    return concat(parts, axis_of(axis, len(parts[0].shape)))


def _split(x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    if any(s < 0 for s in sizes) or sum(sizes) != x.shape[axis]:
        raise ValueError(f"sizes {list(sizes)[:20]} do not sum to {x.shape[axis]}")
    starts = np.cumsum([0, *sizes]).tolist()
    return [part(x, axis, start, size) for start, size in zip(starts, sizes, strict=False)]


@translates("Split")
def split_attribute(x: Value, *, axis: int, split: tuple[int, ...] | None = None, site: Site) -> list[Value]:
    axis = axis_of(axis, len(x.shape))
    if split is None:
        count = len(site.outputs)
        if x.shape[axis] % count:
            raise ValueError(f"size {x.shape[axis]} does not split into {count} equal parts")
        split = (x.shape[axis] // count,) * count
    if len(split) != len(site.outputs):
        raise ValueError(f"one size for each of {len(site.outputs)} outputs expected, {len(split)} given")
    return _split(x, axis, split)


@translates("Split", since=13)
def split_input(x: Value, split: Value | None = None, *, axis: int, site: Site) -> list[Value]:
    return split_attribute(x, axis=axis, split=None if split is None else ints(split, "sizes"), site=site)


@translates("Split", since=18)
def split_count(
    x: Value, split: Value | None = None, *, axis: int, num_outputs: int | None = None, site: Site
) -> list[Value]:
    """Without sizes, the parts are equal; the last one is smaller if the extent is not a multiple."""
    if split is not None:
        if num_outputs is not None:
            raise ValueError("either sizes or num_outputs expected, both given")
        return split_input(x, split, axis=axis, site=site)
    place = axis_of(axis, len(x.shape))
    count = len(site.outputs) if num_outputs is None else num_outputs
    if count != len(site.outputs):
        raise ValueError(f"num_outputs={count} for {len(site.outputs)} outputs")
    each = -(-x.shape[place] // count)
    sizes = [largest(0, smallest(each, x.shape[place] - k * each)) for k in range(count)]
    return _split(x, place, sizes)


def _slice(
    x: Value, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Value:
    axes = axes_of(range(len(starts)) if axes is None else axes, len(x.shape))
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ValueError("starts, ends, axes and steps of one length expected")
    ranges = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise ValueError("a step of 0")
        n = x.shape[axis]
        if step < 0:  # a start before the first element: ONNX clamps it to the first, Python's slice is empty
            start = max(start, -n)
        if any(isinstance(size, Size) for size in (n, start, end)):
            ranges[axis] = _kept(n, start, end, step)
            continue
        kept = range(*slice(start, end, step).indices(n))
        ranges[axis] = (kept.start if len(kept) else 0, step if len(kept) > 1 else 1, len(kept))
    return strided(x, ranges)


def _kept(n: Any, start: Any, end: Any, step: int) -> tuple[Any, int, Any]:
    """First element, step and count of a slice of ``n`` elements, where each run decides sizes. As ``slice.indices``."""
    first, last = (0, n) if step > 0 else (-1, n - 1)
    start, end = (smallest(largest(at if at >= 0 else at + n, first), last) for at in (start, end))
    count = -((start - end) // step) if step > 0 else (start - end - step - 1) // -step
    return start, step, largest(count, 0)


@translates("Slice")
def slice_attributes(
    x: Value, *, starts: tuple[int, ...], ends: tuple[int, ...], axes: tuple[int, ...] | None = None
) -> Value:
    return _slice(x, starts, ends, axes, None)


@translates("Slice", since=10)
def slice_inputs(x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None) -> Value:
    return _slice(
        x,
        ints(starts, "starts"),
        ints(ends, "ends"),
        None if axes is None else ints(axes, "axes"),
        None if steps is None else ints(steps, "steps"),
    )


PAD_MODES = ("constant", "reflect", "edge", "wrap")


@translates("Pad")
def pad_attributes(x: Value, *, pads: tuple[int, ...], mode: str, value: float) -> Value:
    if mode not in PAD_MODES:
        raise ValueError(f"mode {mode!r}: one of {', '.join(PAD_MODES)} expected")
    if len(pads) != 2 * len(x.shape):
        raise ValueError(f"{2 * len(x.shape)} pads expected, {len(pads)} given")
    if x.type.dtype.is_integer:
        value = int(value)
    return pad(x, pads, bool(value) if x.type.dtype is t.BOOL else value, mode)


@translates("Pad", since=11)
def pad_inputs(x: Value, pads: Value, value: Value | None = None, axes: Value | None = None, *, mode: str) -> Value:
    rank = len(x.shape)
    amounts = ints(pads, "pads")
    if axes is not None:
        places = axes_of(ints(axes, "axes"), rank)
        if len(amounts) != 2 * len(places):
            raise ValueError(f"{2 * len(places)} pads expected, {len(amounts)} given")
        full = [0] * (2 * rank)
        for k, axis in enumerate(places):
            full[axis], full[rank + axis] = amounts[k], amounts[len(places) + k]
        amounts = tuple(full)
    nothing = "" if x.type.dtype is t.STRING else 0
    fill = nothing if value is None or not value.type.size else scalar(value, "constant_value")
    if mode not in PAD_MODES:
        raise ValueError(f"mode {mode!r}: one of {', '.join(PAD_MODES)} expected")
    if len(amounts) != 2 * rank:
        raise ValueError(f"{2 * rank} pads expected, {len(amounts)} given")
    return pad(x, amounts, fill, mode)


@translates("Expand", since=8)
def expand_to(x: Value, shape: Value) -> Value:
    sizes = ints(shape, "shape")
    if any(d < 0 for d in sizes):
        raise ValueError(f"the shape {list(sizes)} has a negative dimension")
    return expand(x, broadcast(x.shape, sizes))


@translates("Tile")
def tile(x: Value, repeats: Value) -> Value:
    counts = ints(repeats, "repeats")
    if len(counts) != len(x.shape) or any(c < 0 for c in counts):
        raise ValueError(
            f"repeats {list(counts)}: {len(x.shape)} numbers of at least 0 expected, one for each axis of {x.type}"
        )
    return ops.Tile(x, repeats=counts) if any(c != 1 for c in counts) else x


def _blocks(x: Value, blocksize: int) -> tuple[int, int, int, int]:
    if len(x.shape) != 4 or blocksize < 1:
        raise ValueError(f"[N, C, H, W] and a blocksize of at least 1 expected, {x.type} and {blocksize} given")
    n, c, h, w = x.shape
    return n, c, h, w


@translates("DepthToSpace")
def depth_to_space(x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    n, c, h, w = _blocks(x, blocksize)
    b = blocksize
    if c % (b * b):
        raise ValueError(f"{c} channels are not a multiple of {b * b}")
    if mode not in ("DCR", "CRD"):
        raise ValueError(f"mode {mode!r}: 'DCR' or 'CRD' expected")
    if mode == "DCR":
        split = transpose(reshape(x, (n, b, b, c // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    else:
        split = transpose(reshape(x, (n, c // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return reshape(split, (n, c // (b * b), h * b, w * b))


@translates("SpaceToDepth")
def space_to_depth(x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    n, c, h, w = _blocks(x, blocksize)
    b = blocksize
    if h % b or w % b:
        raise ValueError(f"{h} x {w} is not a multiple of {b}")
    if mode not in ("DCR", "CRD"):
        raise ValueError(f"mode {mode!r}: 'DCR' or 'CRD' expected")
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    split = transpose(reshape(x, (n, c, h // b, b, w // b, b)), perm)
    return reshape(split, (n, c * b * b, h // b, w // b))


@translates("Trilu", since=14)
def trilu(x: Value, k: Value | None = None, *, upper: int) -> Value:
    if len(x.shape) < 2:
        raise ValueError(f"a matrix expected, {x.type} given")
    diagonal = 0 if k is None else int(scalar(k, "diagonal"))
    rows, columns = x.shape[-2:]
    row = reshape(iota(rows), (rows, 1))
    column = iota(columns)
    edge = ops.Add(row, constant(np.int64(max(-rows, min(diagonal, columns)))))
    kept = ops.LessOrEqual(edge, column) if upper else ops.LessOrEqual(column, edge)
    return ops.Where(kept, x, like(x, 0))


@translates("ReverseSequence", since=10)
def reverse_sequence(x: Value, lengths: Value, *, batch_axis: int, time_axis: int) -> Value:
    if {batch_axis, time_axis} != {0, 1} or len(x.shape) < 2:
        raise ValueError("batch_axis and time_axis 0 and 1 expected")
    return ops.ReverseSequence(x, lengths, batch_axis=batch_axis, time_axis=time_axis)


@translates("CenterCropPad", since=18)
def center_crop_pad(x: Value, shape: Value, *, axes: tuple[int, ...] | None = None) -> Value:
    rank = len(x.shape)
    places = axes_of(range(rank) if axes is None else axes, rank)
    sizes = ints(shape, "shape")
    if len(sizes) != len(places) or any(d < 0 for d in sizes):
        raise ValueError(f"the shape {list(sizes)}: {len(places)} sizes of at least 0 expected, one for each axis")
    amounts = [0] * (2 * rank)
    for axis, size in zip(places, sizes, strict=True):
        have = x.shape[axis]
        if size < have:
            x = part(x, axis, (have - size) // 2, size)
        elif size > have:
            amounts[axis] = (size - have) // 2
            amounts[rank + axis] = size - have - amounts[axis]
    return pad(x, amounts)
