"""Kernels built by hand for tests of printers and templates: small, with awkward sizes, one feature each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.expr.core import (
    Algorithm,
    Expr,
    Load,
    Var,
    axes_of,
    both,
    call,
    cast,
    hole,
    identity_of,
    index,
    literal,
    load,
    reduce,
    select,
    substitute,
    transform,
    var,
)
from gpucomp.expr.simplify import simplify
from gpucomp.ir.size import is_one
from gpucomp.ir.types import BOOL, F16, F32, I8, I32, I64, DType, TensorType
from gpucomp.kernel import (
    Attention,
    Contraction,
    Kernel,
    Loops,
    RowStatistics,
    Rowwise,
    Scan,
    Separable,
    Statistic,
    Store,
    Window,
)
from gpucomp.kernel.ir import K
from gpucomp.kernel.recognise import Composed, recognise
from gpucomp.ops.registry import accumulator


def elementwise(
    values: Sequence[Expr], params: Sequence[TensorType], shape: tuple[int, ...], axes: tuple
) -> Kernel[Loops]:
    """``values[i]`` over ``axes``, stored to output i; ``params`` are the inputs."""
    outputs = [TensorType(v.dtype, shape) for v in values]
    stores = tuple(Store(len(params) + i, axes, v) for i, v in enumerate(values))
    return Kernel("loops", (*params, *outputs), len(outputs), Loops(axes), stores, label="elementwise")


def add_relu(*shape: int, dtype: DType = F32) -> Kernel[Loops]:
    """max(x + bias along the last axis, 0), and x + bias."""
    axes = axes_of(shape)
    total = load(0, axes, dtype) + load(1, axes[-1:], dtype)
    params = (TensorType(dtype, shape), TensorType(dtype, shape[-1:]))
    return elementwise([call("max", total, 0.0), total], params, shape, axes)


def transposed(rows: int, columns: int, dtype: DType = F32) -> Kernel[Loops]:
    """y[j, i] = x[i, j], with the loops over y's axes."""
    axes = axes_of((columns, rows))
    return elementwise(
        [load(0, (axes[1], axes[0]), dtype)], (TensorType(dtype, (rows, columns)),), (columns, rows), axes
    )


def padded(n: int, pad: int, dtype: DType = F32) -> Kernel[Loops]:
    """x with zeros around it: a guarded load."""
    (i,) = axes = axes_of((n + 2 * pad,))
    inside = both([i >= pad, i < n + pad])
    return elementwise(
        [select(inside, load(0, (i - pad,), dtype), 0)], (TensorType(dtype, (n,)),), (n + 2 * pad,), axes
    )


def joined(rows: int, *columns: int, dtype: DType = F32) -> Kernel[Loops]:
    """The inputs side by side, doubled: a Concat that is read through nested conditions."""
    i, j = axes = axes_of((rows, sum(columns)))
    end = sum(columns)
    value = None
    for source in reversed(range(len(columns))):
        end -= columns[source]
        here = load(source, (i, j - end), dtype)
        value = here if value is None else select(j < end + columns[source], here, value)
    assert value is not None
    params = [TensorType(dtype, (rows, c)) for c in columns]
    return elementwise([value + value], params, (rows, sum(columns)), axes)


def matmul(
    m: int,
    n: int,
    k: int,
    *,
    batch: tuple[int, ...] = (),
    dtype: DType = F32,
    acc: DType = F32,
    a_transposed: bool = False,
    b_transposed: bool = False,
) -> Kernel[Contraction]:
    """relu(a @ b + bias), and twice that as a second result."""
    bs = axes_of(batch, "b")
    i, j, c = var("m0", m), var("n0", n), var("k0", k)
    a_at, a_shape = ((*bs, c, i), (*batch, k, m)) if a_transposed else ((*bs, i, c), (*batch, m, k))
    b_at, b_shape = ((*bs, j, c), (*batch, n, k)) if b_transposed else ((*bs, c, j), (*batch, k, n))
    total = hole("acc", acc)
    body = Contraction(bs, (i,), (j,), (c,), cast(load(0, a_at, dtype), acc), cast(load(1, b_at, dtype), acc), total)
    out = TensorType(dtype, (*batch, m, n))
    value = call("max", cast(total + cast(load(2, (j,), dtype), acc), dtype), 0)
    stores = (Store(3, (*bs, i, j), value), Store(4, (*bs, i, j), value + value))
    params = (TensorType(dtype, a_shape), TensorType(dtype, b_shape), TensorType(dtype, (n,)), out, out)
    return Kernel("contraction", params, 2, body, stores, label=f"matmul {m}x{n}x{k}")


def conv(
    image: tuple[int, int, int, int],
    out_channels: int,
    window: tuple[int, int],
    *,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    nchw: bool = False,
    dtype: DType = F32,
) -> Kernel[Contraction]:
    """relu(conv + bias + residual), NHWC with [R, S, C, OC] weights, or NCHW with [OC, C, R, S]."""
    n, h, w, c = image
    r, s = window
    oh, ow = ((e + 2 * pad - dilation * (f - 1) - 1) // stride + 1 for e, f in ((h, r), (w, s)))
    m = (var("m0", n), var("m1", oh), var("m2", ow))
    (oc,) = columns = (var("n0", out_channels),)
    k = (var("k0", r), var("k1", s), var("k2", c))
    y, x = m[1] * stride - pad + k[0] * dilation, m[2] * stride - pad + k[1] * dilation
    inside = both([y >= 0, y < h, x >= 0, x < w]) if pad else literal(True, BOOL)
    place = (m[0], k[2], y, x) if nchw else (m[0], y, x, k[2])
    weight = (oc, k[2], k[0], k[1]) if nchw else (*k, oc)
    to = (m[0], oc, m[1], m[2]) if nchw else (*m, oc)
    extents = {v: v.extent for v in (*m, *columns, *k)}
    shapes = [(n, c, h, w) if nchw else image, tuple(extents[v] for v in weight), (out_channels,)]
    out = tuple(extents[v] for v in to)
    acc = hole("acc", F32)
    a = select(inside, cast(load(0, place, dtype), F32), 0.0)
    body = Contraction((), m, columns, k, a, cast(load(1, weight, dtype), F32), acc)
    total = acc + cast(load(2, (oc,), dtype), F32) + cast(load(3, to, dtype), F32)
    params = tuple(TensorType(dtype, shape) for shape in (*shapes, out, out))
    store = Store(4, to, cast(call("max", total, 0.0), dtype))
    return Kernel("contraction", params, 1, body, (store,), label=f"conv {r}x{s} {c}->{out_channels}")


def side_by_side(
    out: tuple[int, int, int], near: tuple[int, int], far: tuple[int, int], columns: int, dtype: DType = F16
) -> Kernel[Contraction]:
    """relu of the sum of two pointwise convolutions by constants, and a bias. ``near`` and ``far``: channels, and the stride.

    Parameters are the images, then the weights and the bias.
    """
    m = tuple(var(f"m{i}", extent) for i, extent in enumerate(out))
    (oc,), k = (var("n0", columns),), var("k0", near[0] + far[0])
    images = [(out[0], *((e - 1) * step + 1 for e in out[1:]), c) for c, step in (near, far)]
    first, second = (
        load(i, (m[0], m[1] * step, m[2] * step, depth), dtype)
        for i, (step, depth) in enumerate(((near[1], k), (far[1], k - near[0])))
    )
    one, two = load(2, (k, oc), dtype), load(3, (k - near[0], oc), dtype)
    acc = hole("acc", F32)
    a, b = (cast(select(k < near[0], x, y), F32) for x, y in ((first, second), (one, two)))
    body = Contraction((), m, (oc,), (k,), a, b, acc)
    shapes = (*images, (near[0], columns), (far[0], columns), (columns,), (*out, columns))
    value = cast(call("max", acc + cast(load(4, (oc,), dtype), F32), 0.0), dtype)
    params = tuple(TensorType(dtype, shape) for shape in shapes)
    label = f"conv {near[0]}+{far[0]}->{columns}"
    return Kernel("contraction", params, 1, body, (Store(5, (*m, oc), value),), label, frozenset({2, 3, 4}))


def stem(image, out_channels, window, *, planar=True, source=F32, math="strict", **options):
    """``conv`` with constant filters. The image has type ``source``, [N, C, H, W] if ``planar``; rounded to the filters'."""
    kernel = conv(image, out_channels, window, **options)
    n, h, w, c = image

    def read(node):
        if not isinstance(node, Load) or node.source != 0:
            return None
        b, y, x, channel = node.index
        value = load(0, (b, channel, y, x) if planar else node.index, source)
        return value if source is node.dtype else cast(value, node.dtype)

    params = (TensorType(source, (n, c, h, w) if planar else image), *kernel.params[1:])
    body = replace(kernel.body, a=transform(kernel.body.a, read), math=math)
    return replace(kernel, params=params, body=body, constants=frozenset({1}))


def with_row_statistics(kernel, epsilon=1e-5):
    """A contraction with row statistics of its first result: the mean of each row and 1 / deviation.

    The rows are along the result's last axes. The second sum needs the first one, so elements are read twice.
    """
    x = first_result(kernel)
    total, squares, share = hole("s0", F32), hole("s1", F32), 1 / math.prod(v.extent for v in kernel.body.n)
    mean = total * share
    spread = x - mean
    inverse = call("div", literal(1.0, F32), call("sqrt", squares * share + epsilon))
    statistics = Statistic(total, "sum", x), Statistic(squares, "sum", spread * spread)
    return with_tail(kernel, statistics, cast(mean, kernel.params[kernel.stores[0].target].dtype), inverse)


def with_inverse_rms(kernel, epsilon=1e-5):
    """Like ``with_row_statistics``, but with 1 / the root mean square of each row: elements are read once."""
    x = first_result(kernel)
    squares, share = hole("s0", F32), 1 / math.prod(v.extent for v in kernel.body.n)
    inverse = call("div", literal(1.0, F32), call("sqrt", squares * share + epsilon))
    return with_tail(kernel, (Statistic(squares, "sum", x * x),), inverse)


def with_largest(kernel):
    """Like ``with_row_statistics``, but with the largest element of each row, times a factor for the row and one for the column.

    The factors are inputs after the contraction's own.
    """
    body, first = kernel.body, kernel.inputs
    factors = [TensorType(F32, tuple(v.extent for v in axes)) for axes in (body.batch + body.m, body.n)]
    params = (*kernel.params[:first], *factors, *kernel.params[first:])
    stores = tuple(replace(s, target=s.target + len(factors)) for s in kernel.stores)
    kernel = replace(kernel, params=params, stores=stores)
    top, of_row, of_column = hole("s0", F32), load(first, body.batch + body.m, F32), load(first + 1, body.n, F32)
    return with_tail(kernel, (Statistic(top, "max", first_result(kernel) * of_column),), top * of_row)


def first_result(kernel: Kernel) -> Expr:
    """An element of the first result, read back as it was stored."""
    store = kernel.stores[0]
    return cast(load(store.target, store.index, kernel.params[store.target].dtype), F32)


def with_tail(kernel, statistics, *results):
    """``kernel`` with the row ``statistics`` as a tail; ``results``, one value a row each, follow its own results."""
    body, first = kernel.body, len(kernel.params)
    rows = body.batch + body.m
    stores = tuple(Store(first + k, rows, value) for k, value in enumerate(results))
    params = (*kernel.params, *(TensorType(value.dtype, tuple(v.extent for v in rows)) for value in results))
    body = replace(body, tail=RowStatistics(tuple(statistics), stores))
    return replace(kernel, params=params, outputs=kernel.outputs + len(results), body=body)


def grouped_conv(
    image: tuple[int, int, int, int],
    groups: int,
    columns: int,
    window: tuple[int, int],
    *,
    pad: int = 0,
    dtype: DType = F32,
) -> Kernel[Contraction]:
    """NHWC conv with ``groups`` groups of ``columns`` output channels each; weights are [R, S, C / groups, OC]."""
    n, h, w, channels = image
    r, s = window
    depth = channels // groups
    oh, ow = h + 2 * pad - r + 1, w + 2 * pad - s + 1
    (g,), (oc,) = batch, n_axes = (var("b0", groups),), (var("n0", columns),)
    m = (var("m0", n), var("m1", oh), var("m2", ow))
    k = (var("k0", r), var("k1", s), var("k2", depth))
    y, x = m[1] - pad + k[0], m[2] - pad + k[1]
    channel = g * columns + oc
    acc = hole("acc", F32)
    a = select(both([y >= 0, y < h, x >= 0, x < w]), cast(load(0, (m[0], y, x, g * depth + k[2]), dtype), F32), 0.0)
    body = Contraction(batch, m, n_axes, k, a, cast(load(1, (*k, channel), dtype), F32), acc)
    shapes = (image, (r, s, depth, groups * columns), (groups * columns,), (n, oh, ow, groups * columns))
    value = cast(call("max", acc + cast(load(2, (channel,), dtype), F32), 0.0), dtype)
    params = tuple(TensorType(dtype, shape) for shape in shapes)
    return Kernel("contraction", params, 1, body, (Store(3, (*m, channel), value),), label=f"conv of {groups} groups")


def conv_of_bytes(pad: int = 0) -> Kernel[Contraction]:
    """3x3 conv of bytes, NHWC, with i32 sums as its result. The padding value is ``pad``, a zero point."""
    m, n, k = (var("m0", 5), var("m1", 4)), var("n0", 12), (var("k0", 3), var("k1", 3), var("k2", 16))
    y, x = m[0] - 1 + k[0], m[1] - 1 + k[1]
    inside = both([y >= 0, y < 5, x >= 0, x < 4])
    acc = hole("acc", I32)
    a = select(inside, cast(load(0, (y, x, k[2]), I8), I32), pad)
    body = Contraction((), m, (n,), k, a, cast(load(1, (*k, n), I8), I32), acc)
    params = (TensorType(I8, (5, 4, 16)), TensorType(I8, (3, 3, 16, 12)), TensorType(I32, (5, 4, 12)))
    return Kernel("contraction", params, 1, body, (Store(2, (*m, n), acc),), label="conv of bytes")


def into_part(kernel: Kernel[K], axis: int, before: int, after: int) -> Kernel[K]:
    """``kernel`` with its first output as a part of a longer tensor along ``axis``, as the input of a Concat is stored."""
    first = kernel.stores[0]
    shape = list(kernel.params[first.target].shape)
    shape[axis] += before + after
    index = list(first.index)
    index[axis] = index[axis] + before
    params = list(kernel.params)
    params[first.target] = TensorType(params[first.target].dtype, tuple(shape))
    return replace(kernel, params=tuple(params), stores=(replace(first, index=tuple(index)), *kernel.stores[1:]))


def channels_first(kernel: Kernel[K]) -> Kernel[K]:
    """``depthwise`` or a pool with images and results [N, C, H, W]; weights stay as they are."""
    turned = {
        k
        for k, type in enumerate(kernel.params)
        if len(type.shape) == 4 and (isinstance(kernel.body, Window) or k != 1)
    }

    def moved(source: int, place: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(place[d] for d in (0, 3, 1, 2)) if source in turned else tuple(place)

    def first(expr: Expr) -> Expr:
        return transform(
            expr, lambda e: load(e.source, moved(e.source, e.index), e.dtype) if isinstance(e, Load) else None
        )

    params = tuple(TensorType(type.dtype, moved(k, type.shape)) for k, type in enumerate(kernel.params))
    stores = tuple(Store(s.target, moved(s.target, s.index), first(s.value)) for s in kernel.stores)
    return replace(kernel, params=params, body=kernel.body.mapped(first), stores=stores)


def depthwise(
    image: tuple[int, int, int, int],
    window: tuple[int, int],
    *,
    stride: tuple[int, int] = (1, 1),
    pad: int = 0,
    dilation: tuple[int, int] = (1, 1),
    dtype: DType = F32,
) -> Kernel[Loops]:
    """relu(depthwise conv of max(x, -1) + bias) + residual, and the sums; NHWC, weights are [R, S, 1, C].

    Axes of extent 1 are not in the domain, just as after recognition.
    """
    n, h, w, c = image
    r, s = window
    (sy, sx), (dy, dx) = stride, dilation
    oh, ow = ((e + 2 * pad - d * (f - 1) - 1) // t + 1 for e, f, t, d in ((h, r, sy, dy), (w, s, sx, dx)))
    to = tuple(var(f"i{d}", e) if not is_one(e) else index(0) for d, e in enumerate((n, oh, ow, c)))
    taps = tuple(var(f"r{d}", e) if not is_one(e) else index(0) for d, e in enumerate(window))
    y, x = to[1] * sy - pad + taps[0] * dy, to[2] * sx - pad + taps[1] * dx
    inside = both([y >= 0, y < h, x >= 0, x < w]) if pad else literal(True, BOOL)
    value = select(inside, call("max", cast(load(0, (to[0], y, x, to[3]), dtype), F32), -1.0), 0.0)
    weight = cast(load(1, (*taps, 0, to[3]), dtype), F32)
    total = reduce("sum", tuple(t for t in taps if isinstance(t, Var)), value * weight)
    activated = call("max", total + cast(load(2, (to[3],), dtype), F32), 0.0) + cast(load(3, to, dtype), F32)
    out = TensorType(dtype, (n, oh, ow, c))
    params = (TensorType(dtype, image), TensorType(dtype, (r, s, 1, c)), TensorType(dtype, (c,)), out, out)
    params = (*params, TensorType(F32, (n, oh, ow, c)))
    stores = tuple(
        Store(t, tuple(map(simplify, to)), simplify(v)) for t, v in ((4, cast(activated, dtype)), (5, total))
    )
    domain = tuple(v for v in to if isinstance(v, Var))
    return Kernel("loops", params, 2, Loops(domain), stores, label=f"depthwise {r}x{s} {c}")


def separable(
    image: tuple[int, int, int, int],
    out_channels: int,
    window: tuple[int, int],
    *,
    stride: tuple[int, int] = (1, 1),
    pad: int = 0,
    dilation: tuple[int, int] = (1, 1),
    dtype: DType = F32,
    math: str = "strict",
) -> Kernel[Separable]:
    """relu(relu(depthwise conv + bias) times [C, OC] weights + residual); NHWC, [R, S, C] weights; both weights are constant."""
    n, h, w, c = image
    r, s = window
    (sy, sx), (dy, dx) = stride, dilation
    oh, ow = ((e + 2 * pad - d * (f - 1) - 1) // t + 1 for e, f, t, d in ((h, r, sy, dy), (w, s, sx, dx)))
    m = tuple(var(f"m{d}", e) if not is_one(e) else index(0) for d, e in enumerate((n, oh, ow)))
    k, o = var("k0", c), var("n0", out_channels)
    taps = tuple(var(f"r{d}", e) if not is_one(e) else index(0) for d, e in enumerate(window))
    y, x = m[1] * sy - pad + taps[0] * dy, m[2] * sx - pad + taps[1] * dx
    inside = both([y >= 0, y < h, x >= 0, x < w]) if pad else literal(True, BOOL)
    value = select(inside, cast(load(0, (m[0], y, x, k), dtype), F32), 0.0)
    total = reduce("sum", tuple(t for t in taps if isinstance(t, Var)), value * load(1, (*taps, k), F32))
    a = cast(cast(call("max", total + load(2, (k,), F32), 0.0), dtype), F32)
    acc = hole("acc", F32)
    out = TensorType(dtype, (n, oh, ow, out_channels))
    params = (
        TensorType(dtype, image),
        TensorType(F32, (r, s, c)),
        TensorType(F32, (c,)),
        TensorType(dtype, (c, out_channels)),
        out,
        out,
    )
    to = (*m, o)
    result = call("max", acc + cast(load(4, to, dtype), F32), 0.0)
    rows = tuple(v for v in m if isinstance(v, Var))
    body = Separable((), rows, (o,), (k,), simplify(a), cast(load(3, (k, o), dtype), F32), acc, math)
    store = Store(5, tuple(map(simplify, to)), simplify(cast(result, dtype)))
    label = f"separable {r}x{s} {c} -> {out_channels}"
    return Kernel("separable", params, 1, body, (store,), label, frozenset({1, 2, 3}))


def softmax(*shape: int, axis: int = -1, dtype: DType = F32) -> Kernel[Rowwise]:
    """Softmax along ``axis``: largest element, sum of exponentials, quotient; the largest of each row is a second result."""
    axes = axes_of(shape)
    col = axes[axis]
    rows = tuple(a for a in axes if a is not col)
    x = cast(load(0, axes, dtype), F32)
    top, total = hole("top", F32), hole("total", F32)
    shifted = call("exp", x - top)
    body = Rowwise(rows, (col,), (Statistic(top, "max", x), Statistic(total, "sum", shifted)), frozenset({1}))
    stores = (Store(1, axes, cast(shifted / total, dtype)), Store(2, rows, cast(top, dtype)))
    params = (TensorType(dtype, shape), TensorType(dtype, shape), TensorType(dtype, tuple(r.extent for r in rows)))
    return Kernel("norm", params, 2, body, stores, label="softmax")


def reduction(op: str, rows: int, cols: int, *, rows_inside: bool = False, dtype: DType = F32) -> Kernel[Rowwise]:
    """``op`` over the columns of x[rows, cols], or of x[cols, rows] with ``rows_inside``."""
    r, c = var("r", rows), var("c", cols)
    x = load(0, (c, r) if rows_inside else (r, c), dtype)
    total = hole("total", dtype)
    body = Rowwise((r,), (c,), (Statistic(total, op, x),), frozenset({0}))
    params = (TensorType(dtype, (cols, rows) if rows_inside else (rows, cols)), TensorType(dtype, (rows,)))
    return Kernel("reduce", params, 1, body, (Store(1, (r,), total),), label=f"{op} over {cols}")


def scan(
    op: str,
    rows: int,
    cols: int,
    *,
    rows_inside: bool = False,
    dtype: DType = F32,
    exclusive: bool = False,
    reverse: bool = False,
) -> Kernel[Scan]:
    """Twice the running ``op`` along x[rows, cols], or along the first axis of x[cols, rows], plus another tensor."""
    r, c = var("r", rows), var("c", cols)
    at, shape = ((c, r), (cols, rows)) if rows_inside else ((r, c), (rows, cols))
    acc = accumulator(dtype) if op in {"sum", "prod"} else dtype
    running = hole("acc", acc)
    body = Scan((r,), c, op, cast(load(0, at, dtype), acc), running, exclusive, reverse)
    value = cast(running, dtype) * 2 + load(1, at, dtype)
    return Kernel("scan", (TensorType(dtype, shape),) * 3, 1, body, (Store(2, at, value),), label=f"running {op}")


def layer_norm(rows: int, cols: int, *, rows_inside: bool = False, dtype: DType = F32) -> Kernel[Rowwise]:
    """(x + residual - mean) / deviation * scale + shift over the columns; ``rows_inside``: x is [cols, rows]."""
    r, c = var("r", rows), var("c", cols)
    at, shape = ((c, r), (cols, rows)) if rows_inside else ((r, c), (rows, cols))
    x = cast(load(0, at, dtype), F32) + cast(load(1, at, dtype), F32)
    total, squares = hole("total", F32), hole("squares", F32)
    centred = x - total / float(cols)
    body = Rowwise((r,), (c,), (Statistic(total, "sum", x), Statistic(squares, "sum", centred * centred)))
    scaled = centred / call("sqrt", squares / float(cols) + 1e-5) * cast(load(2, (c,), dtype), F32)
    value = cast(scaled + cast(load(3, (c,), dtype), F32), dtype)
    whole, line = TensorType(dtype, shape), TensorType(dtype, (cols,))
    return Kernel("norm", (whole, whole, line, line, whole), 1, body, (Store(4, at, value),), label="layer norm")


def max_pool(
    image: tuple[int, int, int, int], window: int, stride: int, pad: int, dtype: DType = F32
) -> Kernel[Window]:
    """NHWC max pooling; padding is never the maximum."""
    n, h, w, c = image
    oh, ow = ((e + 2 * pad - window) // stride + 1 for e in (h, w))
    axes = axes_of((n, oh, ow, c))
    r, s = var("r", window), var("s", window)
    y, x = axes[1] * stride - pad + r, axes[2] * stride - pad + s
    inside = both([y >= 0, y < h, x >= 0, x < w])
    value = select(inside, load(0, (axes[0], y, x, axes[3]), dtype), identity_of("max", dtype))
    acc = hole("acc", dtype)
    params = (TensorType(dtype, image), TensorType(dtype, (n, oh, ow, c)))
    return Kernel("pool", params, 1, Window(axes, (r, s), "max", value, acc), (Store(1, axes, acc),), label="max pool")


def average_pool(
    image: tuple[int, int, int, int], window: tuple[int, int], stride: int, pad: int, *, dtype: DType = F32
) -> Kernel[Window]:
    """NHWC average pooling of doubled values, without counting padding; and the sums. Axes of extent 1 are left out."""
    n, h, w, c = image
    oh, ow = ((e + 2 * pad - f) // stride + 1 for e, f in zip((h, w), window, strict=True))
    to = tuple(var(f"i{d}", e) if not is_one(e) else index(0) for d, e in enumerate((n, oh, ow, c)))
    taps = tuple(var(f"r{d}", e) if not is_one(e) else index(0) for d, e in enumerate(window))
    y, x = to[1] * stride - pad + taps[0], to[2] * stride - pad + taps[1]
    inside = both([y >= 0, y < h, x >= 0, x < w])
    value = simplify(select(inside, cast(load(0, (to[0], y, x, to[3]), dtype), F32) * 2.0, 0.0))
    count: Expr = literal(1.0, F32)
    for axis, extent, size in ((1, h, window[0]), (2, w, window[1])):
        first = to[axis] * stride - pad
        count = count * cast(call("min", first + size, extent) - call("max", first, 0), F32)
    acc = hole("acc", F32)
    params = (TensorType(dtype, image), TensorType(dtype, (n, oh, ow, c)), TensorType(F32, (n, oh, ow, c)))
    stores = tuple(
        Store(t, tuple(map(simplify, to)), v) for t, v in ((1, cast(acc / simplify(count), dtype)), (2, acc))
    )
    domain, axes = (tuple(v for v in vs if isinstance(v, Var)) for vs in (to, taps))
    return Kernel("pool", params, 2, Window(domain, axes, "sum", value, acc), stores, label="average pool")


def attention(
    rows: int,
    cols: int,
    depth: int,
    values: int,
    *,
    heads: int = 2,
    group: int = 1,
    mask: str = "",
    causal: int | None = None,
    merged: bool = False,
    transposed: bool = False,
    residual: bool = False,
    dtype: DType = F32,
) -> Kernel[Attention]:
    """Scaled dot-product attention with ``heads`` key heads of ``group`` query heads each; operands 0 to 2 are q, k and v.

    mask        ``add``: a tensor of ``dtype`` for all heads; ``bool``: a mask of the keys of each head; hidden scores are -inf
    merged      one operand [rows, 3, heads, depth] holds queries, keys and values, and the result's heads are merged
    transposed  keys are [heads, depth, cols]
    residual    one more operand is added to the result, then relu
    """
    h, o, i, j = var("b0", heads), var("i0", group), var("i1", rows), var("j0", cols)
    c, d = var("c0", depth), var("d0", values)
    shapes: list[tuple[int, ...]]
    if merged:
        assert (rows, depth, group) == (cols, values, 1)
        shapes = [(rows, 3, heads, depth)]
        q, k, v = (load(0, (at, part, h, x), dtype) for part, (at, x) in enumerate(((i, c), (j, c), (j, d))))
        out, shape = (i, h, d), (rows, heads, values)
    else:
        shapes = [(heads, group, rows, depth), (heads, depth, cols) if transposed else (heads, cols, depth)]
        shapes.append((heads, cols, values))
        q, v = load(0, (h, o, i, c), dtype), load(2, (h, j, d), dtype)
        k = load(1, (h, c, j) if transposed else (h, j, c), dtype)
        out, shape = (h, o, i, d), (heads, group, rows, values)
    params = [TensorType(dtype, s) for s in shapes]
    dot, acc = hole("dot", F32), hole("acc", F32)
    score = dot * float(np.float32(depth**-0.5))
    if mask == "add":
        score = score + cast(load(len(params), (i, j), dtype), F32)
        params.append(TensorType(dtype, (rows, cols)))
    if mask == "bool":
        score = select(load(len(params), (h, j), BOOL), score, float("-inf"))
        params.append(TensorType(BOOL, (heads, cols)))
    if causal is not None:
        score = select(j <= i + causal, score, float("-inf"))
    result: Expr = acc
    if residual:
        result = call("max", acc + cast(load(len(params), out, dtype), F32), 0.0)
        params.append(TensorType(dtype, shape))
    q, k, v = (cast(e, F32) for e in (q, k, v))
    body = Attention((h,), (o, i) if group > 1 else (i,), (j,), (c,), (d,), q, k, v, dot, score, acc)
    if group == 1:
        at = {o: literal(0, o.dtype)}
        body = replace(body, q=substitute(q, at))
        out = tuple(substitute(e, at) for e in out)  # type: ignore[misc]
        result = substitute(result, at)
    store = Store(len(params), out, cast(result, dtype))
    label = f"attention {heads}x{group}x{rows}x{cols}x{depth}x{values}"
    return Kernel("attention", (*params, TensorType(dtype, shape)), 1, body, (store,), label=label)


def random_inputs(kernel: Kernel, seed: int = 0) -> list[np.ndarray]:
    """Normal floats, small integers, fair bools."""
    rng = np.random.default_rng(seed)
    arrays = []
    for t in kernel.params[: kernel.inputs]:
        if t.dtype is BOOL:
            arrays.append(rng.random(t.shape) < 0.5)
        elif t.dtype.is_float:
            arrays.append(rng.standard_normal(t.shape).astype(t.dtype.numpy))
        else:
            low = 0 if t.dtype.kind == "u" else -9
            arrays.append(rng.integers(low, 10, t.shape).astype(t.dtype.numpy))
    return arrays


def scatter(
    data: tuple[int, ...],
    indices: tuple[int, ...],
    reduction: str = "none",
    *,
    axis: int | None = None,
    dtype: DType = F32,
    index_dtype: DType = I64,
) -> Kernel:
    """ScatterElements along ``axis``; without an axis, ScatterND. A sum of 16-bit floats is computed by rows instead."""
    op, attrs = (ops.ScatterND, {}) if axis is None else (ops.ScatterElements, {"axis": axis})
    updates = indices if axis is not None else (*indices[:-1], *data[indices[-1] :])
    params = (TensorType(dtype, data), TensorType(index_dtype, indices), TensorType(dtype, updates))
    assert op.algorithm is not None
    algorithm = op.algorithm(*params, reduction=reduction, **attrs)
    assert isinstance(algorithm, Algorithm)
    store = Store(3, algorithm.axes, algorithm.body)
    return recognise(Composed((*params, params[0]), 1, algorithm.axes, (store,)), label=f"scatter {reduction}")
