"""Computes what a kernel must compute, in numpy: the reference for every candidate. Matrix products are summed in f64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from gpucomp.expr.core import Expr, Reduce, Var, identity_of, reduce, walk
from gpucomp.expr.evaluate import REDUCE, convert, evaluate, grid_of
from gpucomp.kernel import (
    HANDED,
    Attention,
    Contraction,
    FusedLayers,
    Kernel,
    Loops,
    Rowwise,
    Scan,
    Scatter,
    Store,
    TileTransform,
    Window,
)

CHUNK = 1 << 22  # elements of an operand held in memory at a time
EXACT_BYTES = 4  # integers up to this size: f64 holds the sums of their products exactly


def expected(kernel: Kernel, inputs: Sequence[np.ndarray], before: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs; elements that no store writes keep the values of ``before``."""
    if isinstance(kernel.body, FusedLayers):
        return _fused(kernel.body, inputs, before)
    outputs = [array.copy() for array in before]
    bound: dict[Expr, np.ndarray]
    match kernel.body:
        case Loops(domain=domain):
            bound = dict(grid_of(domain))
        case Contraction() as c:
            bound = dict(grid_of(c.domain))
            bound[c.acc] = _product(c, inputs)
        case Window() as w:
            bound = dict(grid_of(w.domain))
            found = evaluate(reduce(w.op, w.window, w.value), inputs, bound)
            bound[w.acc] = np.broadcast_to(found, tuple(v.extent for v in w.domain))
        case Rowwise() as r:
            bound = _statistics(r, inputs)
        case Scan() as c:
            bound = dict(grid_of(c.domain))
            bound[c.acc] = running(c, np.broadcast_to(evaluate(c.value, inputs, bound), [v.extent for v in c.domain]))
        case Scatter() as x:
            bound = dict(grid_of(x.domain))
            bound[x.acc] = changed(x, inputs)
        case Attention() as t:
            bound = dict(grid_of(t.domain))
            bound[t.acc] = _attention(t, inputs)
        case TileTransform() as x:
            bound = _transformed(x, inputs)
    for position, store in enumerate(kernel.stores):
        scope = bound
        if isinstance(kernel.body, Rowwise) and position in kernel.body.row_stores:
            scope = _of_rows(bound, kernel.body.domain, kernel.body.cols)
        _scatter(store, scope, inputs, outputs[store.target - kernel.inputs])
    if isinstance(kernel.body, Contraction) and kernel.body.tail:
        c = kernel.body
        stored = [*inputs, *outputs]
        bound = _statistics(Rowwise(c.batch + c.m, c.n, kernel.body.tail.statistics), stored)
        for store in kernel.body.tail.stores:
            _scatter(store, _of_rows(bound, c.domain, c.n), stored, outputs[store.target - kernel.inputs])
    return outputs


def _of_rows(bound: Mapping[Expr, np.ndarray], domain: Sequence[Var], cols: Sequence[Var]) -> dict[Expr, np.ndarray]:
    """The bindings for stores that happen once for each row."""
    return {**bound, **{v: np.zeros((1,) * len(domain), np.int64) for v in cols}}


def _transformed(x: TileTransform, inputs: Sequence[np.ndarray]) -> dict[Expr, np.ndarray]:
    """The indices of the elements that are stored, and their values: the transformed blocks, summed in f64."""
    axes = x.blocks + x.inputs
    values = np.broadcast_to(evaluate(x.value, inputs, dict(grid_of(axes))), [v.extent for v in axes])
    matrix = np.array(x.matrix)
    found = matrix @ values.astype(np.float64) @ matrix.T
    written = np.broadcast_to(evaluate(x.where, inputs, dict(grid_of(x.domain))), [v.extent for v in x.domain])
    places = np.nonzero(written)
    bound: dict[Expr, np.ndarray] = dict(zip(x.domain, places, strict=True))
    bound[x.acc] = found[places].astype(x.acc.dtype.numpy)
    return bound


def _fused(body: FusedLayers, inputs: Sequence[np.ndarray], before: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compute layer after layer; each hands one result to the next."""
    handed = np.empty(0)
    for layer in body.layers:
        read, result = layer.params[: layer.kernel.inputs], layer.kernel.params[-1]
        room = before[0] if layer is body.layers[-1] else np.zeros(result.shape, result.dtype.numpy)
        (handed,) = expected(layer.kernel, [handed if p == HANDED else inputs[p] for p in read], [room])
    return [handed]


def terms(kernel: Kernel) -> int:
    """The largest number of values that are summed for an element. For fused layers the sum over them."""
    if isinstance(kernel.body, FusedLayers):
        return sum(terms(layer.kernel) for layer in kernel.body.layers)
    written_out = (n.axes for e in kernel.expressions() for n in walk(e) if isinstance(n, Reduce))
    axes: list[Sequence[Var]] = [max(written_out, key=_points, default=())]
    return math.prod(map(_points, [*axes, *kernel.body.reduced()]))


def _points(axes: Sequence[Var]) -> int:
    return max(1, math.prod(v.extent for v in axes))


def _rows(expr: Expr, axes: Sequence[Sequence[Var]], inputs: Sequence[np.ndarray], first: int, last: int) -> np.ndarray:
    """Rows ``first .. last`` of ``expr``, with one dimension for each group of axes."""
    bound: dict[Expr, np.ndarray] = {}
    for position, group in enumerate(axes):
        extents = tuple(v.extent for v in group)
        flat = np.arange(first, last) if position == 0 else np.arange(math.prod(extents))
        shape = [-1 if k == position else 1 for k in range(len(axes))]
        for axis, values in zip(group, np.unravel_index(flat, extents) if extents else (), strict=True):
            bound[axis] = values.reshape(shape)
    sizes = (last - first, *(math.prod(v.extent for v in group) for group in axes[1:]))
    return np.broadcast_to(evaluate(expr, inputs, bound), sizes)


def _product(c: Contraction, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The accumulator at every point of the domain."""
    batch, m, n, k = (math.prod(v.extent for v in axes) for axes in (c.batch, c.m, c.n, c.k))
    exact = c.acc.dtype.is_float or c.acc.dtype.nbytes <= EXACT_BYTES
    wide = np.dtype(np.float64 if exact else np.int64)
    result = np.zeros((batch, m, n), wide)

    def operand(expr: Expr, span: Sequence[Var], position: int, first: int, last: int) -> np.ndarray:
        """Rows ``first .. last`` of an operand, [span, k], for batch number ``position``."""
        here = dict(
            zip(c.batch, np.unravel_index(position, [v.extent for v in c.batch]) if c.batch else (), strict=True)
        )
        bound: dict[Expr, np.ndarray] = {v: np.asarray(value).reshape(1, 1) for v, value in here.items()}
        for number, (group, flat) in enumerate(((span, np.arange(first, last)), (c.k, np.arange(k)))):
            values = np.unravel_index(flat, [v.extent for v in group]) if group else ()
            for axis, place in zip(group, values, strict=True):
                bound[axis] = place.reshape((-1, 1) if number == 0 else (1, -1))
        found = convert(evaluate(expr, inputs, bound), c.acc.dtype)
        return np.broadcast_to(found, (last - first, k)).astype(wide)

    step = max(1, CHUNK // max(1, k))
    if min(batch, m, n, k):
        for number in range(batch):
            for column in range(0, n, step):
                right = operand(c.b, c.n, number, column, min(n, column + step)).T
                for row in range(0, m, step):
                    left = operand(c.a, c.m, number, row, min(m, row + step))
                    result[number, row : row + step, column : column + step] = left @ right
    shape = tuple(v.extent for v in c.domain)
    return result.astype(c.acc.dtype.numpy).reshape(shape)


def running(body: Scan, values: np.ndarray) -> np.ndarray:
    """The running values of a scan over the last axis of ``values``; floats are summed in f64 and rounded once."""
    wide = values.astype(np.float64) if body.acc.dtype.is_float else values
    wide = wide[..., ::-1] if body.reverse else wide
    if body.exclusive:
        nothing = np.full_like(wide[..., :1], identity_of(body.op, body.acc.dtype))
        wide = np.concatenate([nothing, wide[..., :-1]], axis=-1)
    with np.errstate(all="ignore"):
        found = REDUCE[body.op].accumulate(wide, axis=-1)
        return (found[..., ::-1] if body.reverse else found).astype(body.acc.dtype.numpy)


def changed(body: Scatter, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """A scatter's elements after all updates, in the order of ``body.domain``. Updates run one by one, lines all at once."""
    shape = tuple(v.extent for v in body.domain)
    result = np.broadcast_to(evaluate(body.initial, inputs, grid_of(body.domain)), shape).copy()
    lines = dict(grid_of(body.lines))
    extents = tuple(v.extent for v in body.lines)
    every = [np.broadcast_to(v, extents) for v in lines.values()]
    for number in np.ndindex(*(v.extent for v in body.updates)):
        bound = lines | {v: np.asarray(k) for v, k in zip(body.updates, number, strict=True)}
        found = [np.broadcast_to(evaluate(e, inputs, bound), extents) for e in body.found]
        hit = np.broadcast_to(evaluate(body.guard, inputs, bound) & evaluate(body.where, inputs, bound), extents)
        for at, place in zip(found, body.places, strict=True):
            hit = hit & (at >= 0) & (at < place.extent)
        where = tuple(a[hit] for a in (*every, *found))
        there: dict[Expr, np.ndarray] = {v: np.broadcast_to(a, extents)[hit] for v, a in bound.items()}
        there[body.acc] = result[where]
        result[where] = evaluate(body.after, inputs, there)
    return result


def _statistics(body: Rowwise, inputs: Sequence[np.ndarray]) -> dict[Expr, np.ndarray]:
    bound: dict[Expr, np.ndarray] = dict(grid_of(body.domain))
    columns, shape = tuple(range(len(body.rows), len(body.domain))), tuple(v.extent for v in body.domain)
    for statistic in body.statistics:
        values = np.broadcast_to(evaluate(statistic.value, inputs, bound), shape)
        wide = values.astype(np.float64) if statistic.hole.dtype.is_float else values
        total = REDUCE[statistic.op].reduce(wide, axis=columns, keepdims=True)
        bound[statistic.hole] = total.astype(statistic.hole.dtype.numpy)
    return bound


def _attention(body: Attention, inputs: Sequence[np.ndarray]) -> np.ndarray:
    def matrix(value: Expr, *groups: Sequence[Var]) -> np.ndarray:
        batch = math.prod(v.extent for v in body.batch)
        return _rows(value, (body.batch, *groups), inputs, 0, batch).astype(np.float64)

    dots = np.matmul(matrix(body.q, body.rows, body.depth), matrix(body.k, body.cols, body.depth).swapaxes(1, 2))
    over = (*body.batch, *body.rows, *body.cols)
    bound: dict[Expr, np.ndarray] = dict(grid_of(over))
    bound[body.dot] = dots.reshape([v.extent for v in over])
    scores = np.broadcast_to(evaluate(body.score, inputs, bound), bound[body.dot].shape)
    scores = scores.astype(np.float64).reshape(dots.shape)
    with np.errstate(all="ignore"):
        power = np.exp(scores - scores.max(axis=2, keepdims=True))
        means = np.matmul(power, matrix(body.v, body.cols, body.values)) / power.sum(axis=2, keepdims=True)
    return np.asarray(means).astype(body.acc.dtype.numpy).reshape([v.extent for v in body.domain])


def _scatter(store: Store, bound: Mapping[Expr, np.ndarray], inputs: Sequence[np.ndarray], output: np.ndarray) -> None:
    if output.size == 0:
        return
    value = evaluate(store.value, inputs, bound)
    at = [evaluate(place, inputs, bound) for place in store.index]
    variables = [array for expr, array in bound.items() if isinstance(expr, Var)]
    shape = np.broadcast_shapes(value.shape, *(a.shape for a in (*at, *variables)))
    if at:
        output[tuple(np.broadcast_to(a, shape) for a in at)] = np.broadcast_to(value, shape)
    else:
        output[()] = value.reshape(-1)[0] if value.size else value
