"""Moves Transposes towards the outputs, where they cancel with their inverses, and removes Slices, Concats and Expands.

Every rule here is exact. ``canonicalize`` merges and drops single nodes; ``layout`` chooses the layout of convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from gpucomp import ops
from gpucomp.ir.graph import Node, Value, constant
from gpucomp.ir.size import Size, at_most, below, hint, is_one, is_zero, same, same_shape
from gpucomp.rewrite.layout import to_first
from gpucomp.rewrite.match import (
    BINARY,
    REDUCTIONS,
    UNARY,
    broadcast_rank,
    inverse,
    is_constant,
    moves_nothing,
    row_major,
)
from gpucomp.rewrite.rule import Uses, rule

Perm = tuple[int, ...]

# transposes through elementwise operators --------------------------------------------------------------------


@rule(*UNARY)
def transpose_after_unary(node: Node) -> Value | None:
    """f(transpose(x, p))  ->  transpose(f(x), p)"""
    match node.inputs[0]:
        case Value(ops.Transpose, (x,), {"perm": perm}):
            return ops.Transpose(node.op(x, name=node.name, **node.attrs), perm=perm)
    return None


@rule(*BINARY, ops.Where)
def transpose_after_broadcast(node: Node) -> Value | None:
    """f(transpose(x, p), y)  ->  transpose(f(x, y'), p), if y', which is y in x's order, is free

    It is free if y is a transpose by p too, a constant or a single element, if p moves only axes of extent 1 of it, and
    if it is a binary operator on constants and single elements.
    """
    rank = node.types[0].rank
    for operand in node.inputs:
        if operand.op is ops.Transpose and operand.type.rank == rank:
            perm = operand.attrs["perm"]
            undone = _undone(node.inputs, perm)
            if undone is not None:
                return ops.Transpose(node.op(*undone, name=node.name, **node.attrs), perm=perm)
    return None


def _undone(values: Sequence[Value], perm: Perm, *, broadcasts: bool = True) -> list[Value] | None:
    """``values`` before a transpose by ``perm``; ``None`` unless all of them are free to compute.

    With ``broadcasts``, single elements keep their shape.
    """
    undone = []
    back = inverse(perm)
    for value in values:
        full = (1,) * (len(perm) - value.type.rank) + value.shape
        if value.op is ops.Transpose and value.attrs["perm"] == perm:
            undone.append(value.inputs[0])
        elif is_one(value.type.size) and broadcasts:
            undone.append(value)
        elif is_constant(value):
            undone.append(ops.Transpose(broadcast_rank(value, len(perm)), perm=back))
        elif moves_nothing(full, back):
            undone.append(ops.Reshape(value, shape=tuple(full[axis] for axis in back)))
        elif value.op in BINARY and all(is_one(v.type.size) or is_constant(v) for v in value.inputs):
            operands = _undone(value.inputs, perm)
            assert operands is not None
            undone.append(value.op(*operands, **value.node.attrs))
        else:
            return None
    return undone


# transposes through operators along axes ---------------------------------------------------------------------


@rule(ops.Concat)
def transpose_after_concat(node: Node) -> Value | None:
    """concat(transpose(x, p), transpose(y, p))  ->  transpose(concat(x, y), p); constants are transposed too"""
    for part in node.inputs:
        if part.op is ops.Transpose:
            perm = part.attrs["perm"]
            parts = _undone(node.inputs, perm, broadcasts=False)
            if parts is not None:
                return ops.Transpose(ops.Concat(*parts, axis=perm[node.attrs["axis"]], name=node.name), perm=perm)
    return None


@rule(*REDUCTIONS, ops.Extremes)
def transpose_after_reduction(node: Node, uses: Uses) -> list[Value] | None:
    """reduce(transpose(x, p), axes)  ->  transpose(reduce(x, p[axes]), p without them)

    Where a range is computed, the same elements are quantized: it reads what they read, if that stays a transpose.
    """
    if node.op is ops.Extremes and uses(node.inputs[0]) > 1:
        return None
    match node.inputs[0]:
        case Value(ops.Transpose, (x,), {"perm": perm}):
            axes = tuple(sorted(perm[axis] for axis in node.attrs["axes"]))
            keepdims = node.attrs.get("keepdims", True)
            reduced = node.op.node(x, axes=axes, keepdims=keepdims, name=node.name)
            left = perm if keepdims else _without(perm, axes)
            return [ops.Transpose(result, perm=left) for result in reduced.values]
    return None


@rule(ops.ReduceMax, ops.ReduceMin, ops.Extremes)
def extremes_of_reshape(node: Node) -> list[Value] | None:
    """extremes(reshape(x), all axes)  ->  reshape(extremes(x, all axes)); also max and min: no order of elements matters"""
    match node:
        case Node(_, (Value(ops.Reshape, (x,), {"shape": shape}),), {"axes": axes}) if len(axes) == len(shape) > 0:
            if x.type.rank == 0:
                return None
            reduced = node.op.node(x, axes=tuple(range(x.type.rank)), keepdims=False, name=node.name)
            return [ops.Reshape(result, shape=node.types[0].shape) for result in reduced.values]
    return None


def _without(perm: Perm, axes: Sequence[int]) -> Perm:
    """The permutation of the remaining axes when ``axes`` of the operand are removed."""
    left = [p for p in perm if p not in axes]
    return tuple(sorted(left).index(p) for p in left)


@rule(ops.ArgMax, ops.ArgMin)
def transpose_after_arg(node: Node) -> Value | None:
    """argmax(transpose(x, p), axis)  ->  transpose(argmax(x, p[axis]), p without it)"""
    match node.inputs[0]:
        case Value(ops.Transpose, (x,), {"perm": perm}):
            axis = perm[node.attrs["axis"]]
            indices = node.op(x, name=node.name, **{**node.attrs, "axis": axis})
            keepdims = node.attrs.get("keepdims", True)
            return ops.Transpose(indices, perm=perm if keepdims else _without(perm, (axis,)))
    return None


@rule(ops.Softmax, ops.LogSoftmax, ops.CumSum, ops.CumProd)
def transpose_after_axis(node: Node) -> Value | None:
    """softmax(transpose(x, p), axis)  ->  transpose(softmax(x, p[axis]), p); also log_softmax, cumsum, cumprod"""
    match node.inputs[0]:
        case Value(ops.Transpose, (x,), {"perm": perm}):
            moved = node.op(x, name=node.name, **{**node.attrs, "axis": perm[node.attrs["axis"]]})
            return ops.Transpose(moved, perm=perm)
    return None


@rule(ops.LayerNorm, ops.RMSNorm)
def transpose_after_norm(node: Node) -> Value | None:
    """norm(transpose(x, p), axis)  ->  transpose(norm(x, axis), p), if p keeps the normalised axes last"""
    match node.inputs[0]:
        case Value(ops.Transpose, (x,), {"perm": perm}) if min(perm[node.attrs["axis"] :]) == node.attrs["axis"]:
            return ops.Transpose(node.op(x, name=node.name, **node.attrs), perm=perm)
    return None


@rule(ops.Pad, ops.Slice, ops.Expand, ops.Tile, ops.Resize)
def transpose_after_extents(node: Node) -> Value | None:
    """pad, slice, expand, tile or resize of transpose(x, p)  ->  transpose of the same on x's axes"""
    match node.inputs[0]:
        case Value(ops.Transpose, (x,), {"perm": perm}) if node.types[0].rank == len(perm):
            back = inverse(perm)
            attrs = {name: _reordered(name, value, back) for name, value in node.attrs.items()}
            return ops.Transpose(node.op(x, name=node.name, **attrs), perm=perm)
    return None


def _reordered(name: str, value: object, order: Perm) -> object:
    """An attribute with one entry per axis (``pads`` and ``roi``: two), in another order of axes."""
    if name in {"starts", "steps", "sizes", "scales", "shape", "repeats"}:
        assert isinstance(value, tuple)
        return tuple(value[axis] for axis in order)
    if name in {"pads", "roi"} and value:
        assert isinstance(value, tuple)
        rank = len(order)
        return tuple(value[axis] for axis in order) + tuple(value[rank + axis] for axis in order)
    return value


@rule(ops.Gather)
def transpose_after_gather(node: Node) -> Value | None:
    """gather(transpose(x, p), i, axis)  ->  transpose(gather(x, i, p[axis]), p), i of one axis"""
    match node:
        case Node(_, (Value(ops.Transpose, (x,), {"perm": perm}), i), {"axis": axis}) if i.type.rank == 1:
            return ops.Transpose(ops.Gather(x, i, axis=perm[axis], name=node.name), perm=perm)
    return None


# transposes through reshapes ---------------------------------------------------------------------------------

Groups = list[tuple[list[int], list[int]]]


def reshape_groups(before: Sequence[int], after: Sequence[int]) -> Groups | None:
    """Groups of axes of ``before`` and the axes of ``after`` that they become, as fine as possible, without extents of 1.

    ``None`` if there are no elements, or if sizes of runs are divided in another way than their formulas show.
    """
    if any(map(is_zero, before)):
        return None
    left, right = ([d for d, n in enumerate(shape) if not is_one(n)] for shape in (before, after))
    groups: Groups = []
    i = j = 0
    while i < len(left):
        if j == len(right):
            return None
        ins, outs, size, made = [left[i]], [right[j]], before[left[i]], after[right[j]]
        i, j = i + 1, j + 1
        while not same(size, made):
            if hint(size) == hint(made) or (i == len(left) if hint(size) < hint(made) else j == len(right)):
                return None
            if hint(size) < hint(made):
                ins.append(left[i])
                size, i = size * before[left[i]], i + 1
            else:
                outs.append(right[j])
                made, j = made * after[right[j]], j + 1
        groups.append((ins, outs))
    return groups if j == len(right) else None


@rule(ops.Reshape)
def transpose_after_reshape(node: Node) -> Value | None:
    """reshape(transpose(x, p), s)  ->  transpose(reshape(x, s'), q), if axes that merge are neighbours in x"""
    match node:
        case Node(_, (Value(ops.Transpose, (x,), {"perm": perm}) as moved,), {"shape": shape}):
            groups = reshape_groups(moved.shape, shape)
            if groups is None:
                return None
            for ins, _ in groups:
                places = _places(ins, perm, x.shape)
                if any(b - a != 1 for a, b in pairwise(places)):
                    return None
            order = sorted(groups, key=lambda group: perm[group[0][0]])
            return _reshaped(x, [axis for _, outs in order for axis in outs], shape)
    return None


def _places(axes: Sequence[int], perm: Perm, shape: Sequence[int]) -> list[int]:
    """The positions of ``axes`` of a transpose's result among those axes of the operand that have an extent above 1."""
    solid = [d for d, n in enumerate(shape) if not is_one(n)]
    return [solid.index(perm[axis]) for axis in axes]


def _reshaped(x: Value, solid: Sequence[int], shape: tuple[int, ...]) -> Value:
    """``x`` reshaped to ``shape``. The axes ``solid`` of ``shape`` lie in ``x`` in this order; the others have extent 1.

    Leading axes of extent 1 (the batch) stay in front. Other axes of extent 1 follow the axis before them.
    """
    order: list[int] = []
    for axis, extent in enumerate(shape):
        if is_one(extent) and all(map(is_one, shape[:axis])):
            order.append(axis)
    for axis in solid:
        order.append(axis)
        while axis + 1 < len(shape) and is_one(shape[axis + 1]):
            axis += 1
            order.append(axis)
    return ops.Transpose(ops.Reshape(x, shape=tuple(shape[axis] for axis in order)), perm=inverse(order))


@rule(ops.Reshape)
def shuffle_channels_last(node: Node) -> Value | None:
    """reshape(transpose(x, p), NCHW)  ->  transpose(reshape(transpose(x, p'), NHWC)), if the axes that merge are not
    neighbours in x and the channels are last once they are: channel shuffles, pixel shuffles"""
    match node:
        case Node(_, (Value(ops.Transpose, (x,), {"perm": perm}) as moved,), {"shape": shape}) if len(shape) >= 4:
            groups = reshape_groups(moved.shape, shape)
            if groups is None or all(len(ins) == 1 for ins, _ in groups):
                return None
            for slot in (0, -1):
                order = sorted(groups, key=lambda group: sorted(perm[axis] for axis in group[0])[slot])
                result = _reshaped_in(x, moved, perm, order, shape)
                if result.attrs["perm"] == to_first(len(shape)) and result.inputs[0].inputs[0].attrs["perm"] != perm:
                    return result
    return None


def _reshaped_in(x: Value, moved: Value, perm: Perm, order: Groups, shape: tuple[int, ...]) -> Value:
    units = [axis for axis, extent in enumerate(moved.shape) if is_one(extent)]
    axes = units + [axis for ins, _ in order for axis in ins]
    together = ops.Transpose(x, perm=tuple(perm[axis] for axis in axes))
    return _reshaped(together, [axis for _, outs in order for axis in outs], shape)


@rule(ops.MatMul)
def flatten_into_rows(node: Node) -> Value | None:
    """matmul(reshape(transpose(x, p), [n, k]), w)  ->  matmul(reshape(x, [n, k]), w's rows in x's order)"""
    match node.inputs:
        case (Value(ops.Reshape, (Value(ops.Transpose, (x,), {"perm": perm}) as moved,)) as flat, w):
            if not is_constant(w) or w.type.rank != 2:
                return None
            groups = reshape_groups(moved.shape, flat.shape)
            if not groups or groups[-1][1] != [flat.type.rank - 1]:
                return None
            merged = groups[-1][0]
            others = [axis for ins, _ in groups[:-1] for axis in ins]
            physical = sorted(merged, key=lambda axis: perm[axis])
            order = [perm[axis] for axis in (*others, *physical)]
            if order != sorted(order) or physical == merged:
                return None
            extents = [moved.shape[axis] for axis in merged]
            rows = w.attrs["value"].reshape(*extents, w.shape[1])
            rows = rows.transpose(*(merged.index(axis) for axis in physical), len(merged))
            return ops.MatMul(
                ops.Reshape(x, shape=flat.shape), constant(row_major(rows).reshape(w.shape)), name=node.name
            )
    return None


# reshapes ----------------------------------------------------------------------------------------------------


def _keeps_last(x: Value, shape: Sequence[int]) -> bool:
    return bool(x.shape) and bool(shape) and same(x.shape[-1], shape[-1]) and not is_one(x.shape[-1])


@rule(ops.MatMul)
def reshape_after_matmul(node: Node) -> Value | None:
    """matmul(reshape(x, [rows, k]), w)  ->  reshape(matmul(x, w)), x [..., k], w a matrix"""
    match node.inputs:
        case (Value(ops.Reshape, (x,), {"shape": shape}), w) if w.type.rank == 2 and len(shape) == 2:
            if x.type.rank > 2 and _keeps_last(x, shape):
                return ops.Reshape(ops.MatMul(x, w, name=node.name), shape=node.types[0].shape)
    return None


@rule(*BINARY)
def reshape_after_constant(node: Node) -> Value | None:
    """f(reshape(x), c)  ->  reshape(f(x, c)), c a number or a vector along the last axis, which the reshape keeps"""
    match node.inputs:
        case (Value(ops.Reshape, (x,), {"shape": shape}), c) if is_constant(c) and same_shape(
            node.types[0].shape, shape
        ):
            along_last = c.type.size == c.shape[-1] if c.shape else True
            if x.type.rank == 0 or not (is_one(c.type.size) or (along_last and _keeps_last(x, shape))):
                return None
            vector = ops.Reshape(c, shape=()) if is_one(c.type.size) else constant(c.attrs["value"].reshape(-1))
            return ops.Reshape(node.op(x, vector, name=node.name, **node.attrs), shape=shape)
    return None


@rule(*UNARY)
def reshape_after_unary(node: Node) -> Value | None:
    """f(reshape(x))  ->  reshape(f(x))"""
    match node.inputs[0]:
        case Value(ops.Reshape, (x,), {"shape": shape}):
            return ops.Reshape(node.op(x, name=node.name, **node.attrs), shape=shape)
    return None


# parts -------------------------------------------------------------------------------------------------------


@rule(ops.Slice)
def slice_of_concat(node: Node) -> Value | None:
    """slice(concat(a, b, ...)) that lies within one part  ->  slice(that part)"""
    match node:
        case Node(_, (Value(ops.Concat, parts, {"axis": axis}),), {"starts": starts, "steps": steps, "sizes": sizes}):
            last = starts[axis] + (sizes[axis] - 1) * steps[axis]
            begin = 0
            for part in parts:
                end = begin + part.shape[axis]
                inside = all(at_most(begin, place) and below(place, end) for place in (starts[axis], last))
                if inside and below(0, sizes[axis]):
                    moved = tuple(s - begin if d == axis else s for d, s in enumerate(starts))
                    return ops.Slice(part, starts=moved, steps=steps, sizes=sizes)
                begin = end
    return None


@rule(ops.Concat)
def concat_of_slices(node: Node) -> Value | None:
    """concat(x[a:b], x[b:c])  ->  x[a:c]"""
    axis = node.attrs["axis"]
    parts: list[Value] = [node.inputs[0]]
    for part in node.inputs[1:]:
        joined = _joined(parts[-1], part, axis)
        if joined is None:
            parts.append(part)
        else:
            parts[-1] = joined
    if len(parts) == len(node.inputs):
        return None
    return parts[0] if len(parts) == 1 else ops.Concat(*parts, axis=axis)


def _joined(left: Value, right: Value, axis: int) -> Value | None:
    if left.op is not ops.Slice or right.op is not ops.Slice or left.inputs[0] is not right.inputs[0]:
        return None
    first, second = left.attrs, right.attrs
    if first["steps"] != second["steps"] or first["steps"][axis] != 1:
        return None
    begins = tuple(s + first["sizes"][axis] if d == axis else s for d, s in enumerate(first["starts"]))
    if not same_shape(begins, second["starts"]):
        return None
    return ops.Slice(
        left.inputs[0],
        starts=first["starts"],
        steps=first["steps"],
        sizes=tuple(n + second["sizes"][axis] if d == axis else n for d, n in enumerate(first["sizes"])),
    )


@rule(ops.Gather)
def gather_of_progression(node: Node) -> Value | None:
    """gather(x, i)  ->  slice(x), if i is a constant arithmetic progression or one constant number, which drops the axis"""
    match node:
        case Node(_, (x, Value(ops.Constant, (), {"value": i})), {"axis": axis}) if i.ndim <= 1 and i.size:
            extent = x.shape[axis]
            if isinstance(extent, Size) and (i < 0).any():
                return None
            places = np.where(i < 0, i + extent, i).astype(np.int64).reshape(-1)
            steps = np.diff(places)
            if places.min() < 0 or not below(int(places.max()), extent) or (steps.size and (steps != steps[0]).any()):
                return None
            step = int(steps[0]) if steps.size else 1
            if step == 0:
                return None
            rank = range(x.type.rank)
            part = ops.Slice(
                x,
                starts=tuple(int(places[0]) if d == axis else 0 for d in rank),
                steps=tuple(step if d == axis else 1 for d in rank),
                sizes=tuple(len(places) if d == axis else x.shape[d] for d in rank),
            )
            return part if i.ndim else ops.Reshape(part, shape=node.types[0].shape)
    return None


@rule(*BINARY, ops.Where)
def broadcast_without_expand(node: Node) -> Value | None:
    """f(expand(x), y)  ->  f(x, y), if the result has the same shape without the expand"""
    for position, operand in enumerate(node.inputs):
        if operand.op is not ops.Expand:
            continue
        plain = [v.inputs[0] if k == position else v for k, v in enumerate(node.inputs)]
        if _broadcast_to(node.types[0].shape, [v.shape for v in plain]):
            return node.op(*plain, **node.attrs)
    return None


def _broadcast_to(result: Sequence[int], shapes: Sequence[Sequence[int]]) -> bool:
    """Whether ``result`` is what ``shapes`` broadcast to, by their formulas."""
    rank = max(map(len, shapes))
    full = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    axes = zip(*full, strict=True)
    return rank == len(result) and all(
        all(is_one(n) or same(n, extent) for n in along) and any(same(n, extent) for n in along)
        for along, extent in zip(axes, result, strict=True)
    )


TRANSPOSES = (
    transpose_after_unary,
    transpose_after_broadcast,
    transpose_after_concat,
    transpose_after_reduction,
    extremes_of_reshape,
    transpose_after_arg,
    transpose_after_axis,
    transpose_after_norm,
    transpose_after_extents,
    transpose_after_gather,
    transpose_after_reshape,
    shuffle_channels_last,
    flatten_into_rows,
)

RULES = (
    *TRANSPOSES,
    reshape_after_matmul,
    reshape_after_constant,
    reshape_after_unary,
    slice_of_concat,
    concat_of_slices,
    gather_of_progression,
    broadcast_without_expand,
)
