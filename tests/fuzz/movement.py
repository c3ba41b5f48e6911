"""Draws operators that move elements: shapes, slices, pads, joins, gathers and scatters."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.draft import ALL, BOOL, F32, FLOATS, I64, INTEGERS, Draft
from tests.fuzz.elementwise import numbers
from tests.fuzz.kinds import draws

SOLID = range(1, 6)  # ranks of what has axes


@draws(3)
def transpose(d: Draft) -> None:
    if x := d.pick(ALL):
        d.add("Transpose", [x], **({"perm": d.rng.permutation(x.rank).tolist()} if x.rank and d.chance(0.85) else {}))


@draws(3)
def reshape(d: Draft) -> None:
    """To factors of the size; one may be -1, and those that stay may be 0."""
    x = d.pick(ALL)
    if x is None:
        return
    left, shape = x.array.size, []
    while left > 1 and len(shape) < 3:
        shape.append(d.one([k for k in range(1, left + 1) if left % k == 0]))
        left //= shape[-1]
    shape.append(left)
    if x.array.size:
        shape = [shape[k] for k in d.rng.permutation(len(shape))]
        asked = [0 if k < x.rank and n == x.shape[k] and d.chance(0.5) else n for k, n in enumerate(shape)]
        if d.chance(0.4):
            asked[d.number(0, len(asked))] = -1
        if left == 1 and x.array.size == 1 and d.chance(0.3):
            asked = []
        d.add("Reshape", [x, d.constant(np.array(asked, np.int64))])
    else:
        d.add("Reshape", [x, d.ints(0, 3, 2)], allowzero=1)


@draws(1)
def flatten(d: Draft) -> None:
    if x := d.pick(ALL, SOLID):
        d.add("Flatten", [x], axis=d.number(-x.rank, x.rank + 1))


@draws(2)
def squeeze(d: Draft) -> None:
    x = d.pick(ALL)
    if x is None:
        return
    ones = [k - (x.rank if d.chance(0.4) else 0) for k, n in enumerate(x.shape) if n == 1]
    if ones and d.chance(0.5):
        axes = d.some(ones) if d.chance(0.8) else []
        op = "Squeeze"
    else:
        count = d.one((1, 1, 2))
        axes = d.rng.choice(x.rank + count, count, replace=False).tolist()
        axes = [a - (x.rank + count if d.chance(0.4) else 0) for a in axes]
        op = "Unsqueeze"
    if d.opset < 13:
        d.add(op, [x], **({"axes": axes} if axes else {}))
    else:
        d.add(op, [x, d.ints(*axes)] if axes else [x])


@draws(3)
def concat(d: Draft) -> None:
    x = d.pick(ALL, SOLID)
    if x is None:
        return
    axis = d.axis(x.rank)
    like = [
        v
        for v in d.values
        if v.dtype == x.dtype
        and v.rank == x.rank
        and all(a == b or k == axis % x.rank for k, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)))
    ]
    operands = [x, *(d.one(like) for _ in range(d.number(0, 4)))]
    if d.chance(0.3):
        shape = list(x.shape)
        shape[axis] = d.extent()
        operands.insert(d.number(0, len(operands) + 1), numbers(d, x.dtype, shape))
    d.add("Concat", operands, axis=axis)


@draws(2.5)
def split(d: Draft) -> None:
    x = d.pick(ALL, SOLID, lambda v: max(v.shape) > 1)
    if x is None:
        return
    axis = d.one([k for k, n in enumerate(x.shape) if n > 1])
    extent = x.shape[axis]
    named = axis - (x.rank if d.chance(0.4) else 0)
    if d.chance(0.3):
        parts = d.number(2, min(4, extent) + 1)
        if d.opset >= 18:
            d.add(
                "Split",
                [x],
                outputs=len(range(0, extent, -(-extent // parts))),
                axis=named,
                num_outputs=len(range(0, extent, -(-extent // parts))),
            )
        elif extent % parts == 0:
            d.add("Split", [x], outputs=parts, axis=named)
        return
    cuts = sorted(d.number(0 if d.chance(0.05) else 1, extent) for _ in range(d.one((1, 1, 2))))
    sizes = np.diff([0, *cuts, extent]).tolist()
    if d.opset < 13:
        d.add("Split", [x], outputs=len(sizes), axis=named, split=sizes)
    else:
        d.add("Split", [x, d.ints(*sizes)], outputs=len(sizes), axis=named)


@draws(3)
def slice(d: Draft) -> None:
    """Any steps; ends beyond the edge, counted from the end, or INT_MAX as exporters write."""
    x = d.pick(ALL, SOLID)
    if x is None:
        return
    axes = d.some(range(x.rank))
    starts, ends, steps = [], [], []
    for axis in axes:
        n, step = x.shape[axis], d.one((1, 1, 1, 2, 3, -1, -2))
        a, b = d.number(0, max(n, 1)), d.number(0, n + 3)
        if d.chance(0.95):
            a, b = (min(a, b), max(a, b) + 1) if step > 0 else (max(a, b), min(a, b) - 1 if min(a, b) else -n - 1)
        starts.append(a - n if d.chance(0.2) and a < n else a)
        ends.append(d.one((2**31 - 1, 2**63 - 1)) if step > 0 and d.chance(0.15) else b)
        steps.append(step)
    operands = [x, d.ints(*starts), d.ints(*ends)]
    if axes != list(range(len(axes))) or max(steps) != 1 or min(steps) != 1 or d.chance(0.5):
        operands.append(d.ints(*(a - (x.rank if d.chance(0.3) else 0) for a in axes)))
        if max(steps) != 1 or min(steps) != 1 or d.chance(0.5):
            operands.append(d.ints(*steps))
    d.add("Slice", operands)


@draws(2)
def pad(d: Draft) -> None:
    """Pads may be negative with a constant: then they cut. Wrap and the list of axes came with opsets 19 and 18."""
    x = d.pick((*FLOATS, *INTEGERS), SOLID, lambda v: min(v.shape) > 0)
    if x is None:
        return
    modes = ("constant", "constant", "reflect", "edge", "wrap") if d.opset >= 19 else ("constant", "reflect", "edge")
    mode = d.one(modes)
    axes = d.some(range(x.rank)) if d.opset >= 18 and d.chance(0.4) else list(range(x.rank))
    pads = [d.number(0, 3 if mode in ("constant", "edge") else min(3, x.shape[a])) for a in (*axes, *axes)]
    if mode == "constant" and d.chance(0.25):
        k = d.number(0, len(axes))
        pads[k] = -d.number(0, x.shape[axes[k]])
    value = d.constant(np.array(d.one((2, 1, 0)), x.dtype)) if mode == "constant" and d.chance(0.6) else None
    operands = [x, d.ints(*pads), value]
    if len(axes) < x.rank:
        operands.append(d.ints(*(a - (x.rank if d.chance(0.4) else 0) for a in axes)))
    d.add("Pad", operands, mode=mode)


@draws(2)
def expand(d: Draft) -> None:
    if x := d.pick(ALL):
        shape = [d.extent() if n == 1 else d.one((1, n)) for n in x.shape]
        if d.chance(0.3):
            shape.insert(0, d.one((1, 2, 3)))
        d.add("Expand", [x, d.ints(*shape)])


@draws(1)
def tile(d: Draft) -> None:
    if x := d.pick(ALL, SOLID):
        d.add("Tile", [x, d.ints(*(d.one((1, 1, 1, 2, 3)) for _ in x.shape))])


@draws(1)
def depth_and_space(d: Draft) -> None:
    if d.chance(0.5):
        x = d.pick(FLOATS, (4,), lambda v: v.shape[1] % 4 == 0)
        if x:
            d.add("DepthToSpace", [x], blocksize=2, mode=d.one(("DCR", "CRD")))
        return
    x = d.pick(FLOATS, (4,), lambda v: v.shape[2] % 2 == v.shape[3] % 2 == 0)
    if x:
        d.add("SpaceToDepth", [x], blocksize=2)


@draws(1)
def trilu(d: Draft) -> None:
    if x := d.pick(ALL, range(2, 6)):
        k = [d.constant(np.array(d.number(-3, 4), np.int64))] if d.chance(0.6) else []
        d.add("Trilu", [x, *k], upper=d.number(0, 2))


@draws(0.7)
def compress(d: Draft) -> None:
    if x := d.pick(ALL, SOLID, lambda v: v.array.size > 0):
        flat = d.chance(0.3)
        axis = d.number(0, x.rank)
        kept = d.rng.random(x.array.size if flat else x.shape[axis]) < 0.6
        d.add("Compress", [x, d.constant(kept)], **({} if flat else {"axis": axis - (x.rank if d.chance(0.4) else 0)}))


@draws(0.7)
def reverse_sequence(d: Draft) -> None:
    if x := d.pick(ALL, range(2, 6), lambda v: min(v.shape[:2]) > 0):
        batch, time = d.one(((0, 1), (1, 0)))
        lengths = d.rng.integers(1, x.shape[time] + 1, x.shape[batch])
        d.add("ReverseSequence", [x, d.data(lengths.astype(np.int64))], batch_axis=batch, time_axis=time)


@draws(0.7)
def center_crop_pad(d: Draft) -> None:
    x = d.pick((*FLOATS, *INTEGERS), SOLID, lambda v: min(v.shape) > 0)
    if x and d.opset >= 18:
        axes = d.some(range(x.rank))
        sizes = [max(1, x.shape[a] + d.number(-3, 4)) for a in axes]
        d.add("CenterCropPad", [x, d.ints(*sizes)], axes=axes)


# --- by index


def places(d: Draft, extent: int, shape: tuple[int, ...]) -> np.ndarray:
    """Indices into ``extent``, negative ones among them."""
    low = -extent if d.chance(0.5) else 0
    return d.rng.integers(low, extent, shape).astype(d.one((np.int64, np.int64, np.int32)))


@draws(2.5)
def gather(d: Draft) -> None:
    x = d.pick(ALL, SOLID, lambda v: min(v.shape) > 0)
    if x is None:
        return
    axis = d.axis(x.rank)
    shape = d.one(((), (1,), (3,), (2, 2), (0,) if d.chance(0.1) else (5,)))
    d.add("Gather", [x, d.data(places(d, x.shape[axis], shape))], axis=axis)


@draws(1)
def gather_elements(d: Draft) -> None:
    x = d.pick(ALL, SOLID, lambda v: min(v.shape) > 0)
    if x is None:
        return
    axis = d.axis(x.rank)
    shape = tuple(d.number(1, n + 1) if k != axis % x.rank else d.number(1, 6) for k, n in enumerate(x.shape))
    d.add("GatherElements", [x, d.data(places(d, x.shape[axis], shape))], axis=axis)


@draws(1)
def gather_nd(d: Draft) -> None:
    x = d.pick(ALL, SOLID, lambda v: min(v.shape) > 0)
    if x is None:
        return
    batch = d.number(0, min(2, x.rank))
    depth = d.number(1, x.rank - batch + 1)
    lead = (*x.shape[:batch], *d.one(((), (3,), (2, 2))))
    if not lead:
        lead = (2,)
    low = d.one((0, -1))
    columns = [d.rng.integers(low * n, n, lead) for n in x.shape[batch : batch + depth]]
    d.add("GatherND", [x, d.data(np.stack(columns, -1).astype(np.int64))], batch_dims=batch)


@draws(1)
def scatter_elements(d: Draft) -> None:
    """Without a reduction no place is hit twice: which update wins is left open."""
    x = d.pick((*FLOATS, *INTEGERS), SOLID, lambda v: min(v.shape) > 0)
    if x is None:
        return
    axis = d.number(0, x.rank)
    reduction = d.one(("none", "none", "add", "mul", "max", "min") if d.opset >= 18 else ("none", "none", "add", "mul"))
    shape = [d.number(1, n + 1) for n in x.shape]
    lines = np.zeros((*shape[:axis], *shape[axis + 1 :], shape[axis]), np.int64)
    distinct = np.apply_along_axis(lambda line: d.rng.permutation(x.shape[axis])[: len(line)], -1, lines)
    indices = np.moveaxis(distinct, -1, axis)
    if reduction != "none" and d.chance(0.5):
        indices = d.rng.integers(0, x.shape[axis], shape)
    if d.chance(0.3):
        indices = indices - x.shape[axis]
    updates = numbers(d, x.dtype, shape, 0.5, 1.5)
    named = axis - (x.rank if d.chance(0.3) else 0)
    extra = {"reduction": reduction} if reduction != "none" else {}
    d.add("ScatterElements", [x, d.data(indices.astype(np.int64)), updates], axis=named, **extra)


@draws(1)
def scatter_nd(d: Draft) -> None:
    """Without a reduction no place is hit twice: which update wins is left open."""
    x = d.pick((*FLOATS, *INTEGERS), SOLID, lambda v: min(v.shape) > 0)
    if x is None:
        return
    depth = d.number(1, x.rank + 1)
    reduction = d.one(("none", "none", "add", "mul", "max", "min") if d.opset >= 18 else ("none", "none", "add", "mul"))
    room = math.prod(x.shape[:depth])
    count = d.number(1, min(room, 6) + 1)
    flat = d.rng.choice(room, count, replace=reduction != "none")
    indices = np.stack(np.unravel_index(flat, x.shape[:depth]), -1).astype(np.int64)
    if d.chance(0.3):
        indices -= np.array(x.shape[:depth])
    updates = numbers(d, x.dtype, [count, *x.shape[depth:]], 0.5, 1.5)
    extra = {"reduction": reduction} if reduction != "none" else {}
    d.add("ScatterND", [x, d.data(indices), updates], **extra)


@draws(0.7)
def one_hot(d: Draft) -> None:
    depth = d.number(1, 7)
    x = d.pick((np.dtype("int64"), np.dtype("int32")), range(4), lambda v: v.array.size < 50)
    if x is None:
        x = d.data(d.rng.integers(-depth, depth, d.one(((), (3,), (2, 5)))).astype(np.int64))
    values = d.constant(np.array([0.25, 1.5], F32)) if d.chance(0.7) else d.constant(np.array([-1, 3], I64))
    d.add("OneHot", [x, d.constant(np.array(depth, np.int64)), values], axis=d.axis(x.rank + 1))


# --- from shapes


@draws(0.7)
def shape_of(d: Draft) -> None:
    """Shape, its parts and Size are known at compile time, whatever they are taken of."""
    x = d.pick(ALL)
    if x is None:
        return
    if d.chance(0.3):
        d.add("Size", [x])
    else:
        d.add("Shape", [x], **({"start": d.number(-3, 3), "end": d.number(-2, 4)} if d.chance(0.4) else {}))


@draws(0.7)
def reshape_by_shape(d: Draft) -> None:
    """As exporters write it: a shape is taken apart and put together again, to reshape another value."""
    x = d.pick(ALL, range(2, 5), lambda v: v.array.size > 0)
    if x is None:
        return
    shape = d.add("Shape", [x])
    first = d.add("Gather", [*shape, d.ints(0)], axis=0) if shape else None
    whole = d.add("Concat", [*first, d.ints(-1)], axis=0) if first else None
    if whole:
        d.add("Reshape", [x, *whole])


@draws(0.5)
def filled(d: Draft) -> None:
    """ConstantOfShape, EyeLike and Range."""
    op = d.one(("ConstantOfShape", "EyeLike", "Range"))
    if op == "ConstantOfShape":
        from onnx import numpy_helper

        value = numpy_helper.from_array(np.array([d.one((0, 1, 3))], d.one((d.main, F32, I64, BOOL))))
        d.add(op, [d.ints(*(d.extent() for _ in range(d.number(0, 3))))], value=value)
    elif op == "EyeLike":
        if x := d.pick((*FLOATS, *INTEGERS), (2,)):
            d.add(op, [x], k=d.number(-2, 3))
    else:
        dtype = d.one((np.dtype("int64"), np.dtype("int32"), F32))
        start, step = d.number(-3, 4), d.one((1, 2, -1, 3))
        limit = start + step * d.number(0, 8)
        d.add(op, [d.constant(np.array(v, dtype)) for v in (start, limit, step)])
