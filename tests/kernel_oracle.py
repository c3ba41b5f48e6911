"""What a kernel has to compute, with numpy: its expressions evaluated over the whole domain. Slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpucomp.expr.core import Expr, reduce
from gpucomp.expr.evaluate import convert, evaluate, grid_of
from gpucomp.kernel import Contraction, Kernel, Loops, Rowwise, Window


def expected(kernel: Kernel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of ``kernel``; elements that no store writes are 0. Contractions are summed in f64."""
    outputs = [np.zeros(t.shape, t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    body = kernel.body
    holes: dict[Expr, np.ndarray] = {}
    grid = grid_of(body.domain)
    if any(a.extent == 0 for a in body.domain) and not isinstance(body, Rowwise):
        return outputs
    if isinstance(body, Contraction):
        holes[body.acc] = _contraction(body, inputs)
    elif isinstance(body, Window):
        holes[body.acc] = evaluate(reduce(body.op, body.window, body.value), inputs, grid)
    elif isinstance(body, Rowwise):
        rows = {axis: grid[axis] for axis in body.rows}
        for statistic in body.statistics:
            bound = {h: v.reshape(v.shape[: len(body.rows)]) for h, v in holes.items()}
            value = evaluate(reduce(statistic.op, body.cols, statistic.value), inputs, {**_trim(rows, body), **bound})
            shape = tuple(a.extent for a in body.rows)
            full = np.broadcast_to(value, shape)
            holes[statistic.hole] = full.reshape(shape + (1,) * len(body.cols))
    else:
        assert isinstance(body, Loops)
    for position, store in enumerate(kernel.stores):
        bound = dict(grid)
        if isinstance(body, Rowwise) and position in body.row_stores:
            bound = {a: v[tuple(slice(0, 1) for _ in v.shape)] if a in body.cols else v for a, v in grid.items()}
        _write(kernel, store.target, store.index, store.value, inputs, {**bound, **holes}, outputs)
    return outputs


def _trim(rows: dict[Expr, np.ndarray], body: Rowwise) -> dict[Expr, np.ndarray]:
    return {a: v.reshape(v.shape[: len(body.rows)]) for a, v in rows.items()}


def _contraction(body: Contraction, inputs: Sequence[np.ndarray]) -> np.ndarray:
    axes = body.batch + body.m + body.n
    shape = tuple(v.extent for v in axes)
    depth = tuple(v.extent for v in body.k)
    if 0 in shape or 0 in depth:
        return np.zeros(shape, body.acc.dtype.numpy)
    a = _matrix(body.a, (body.batch, body.m, body.k), inputs)
    b = _matrix(body.b, (body.batch, body.k, body.n), inputs)
    wide = np.float64 if body.acc.dtype.is_float else np.int64
    result = np.matmul(a.astype(body.acc.dtype.numpy).astype(wide), b.astype(body.acc.dtype.numpy).astype(wide))
    return result.reshape(shape).astype(body.acc.dtype.numpy)


def _matrix(value: Expr, groups: Sequence[tuple], inputs: Sequence[np.ndarray]) -> np.ndarray:
    axes = tuple(v for group in groups for v in group)
    full = np.broadcast_to(evaluate(value, inputs, grid_of(axes)), tuple(v.extent for v in axes))
    return full.reshape([int(np.prod([v.extent for v in group])) for group in groups])


def _write(
    kernel: Kernel,
    target: int,
    indices: Sequence[Expr],
    value: Expr,
    inputs: Sequence[np.ndarray],
    bound: dict[Expr, np.ndarray],
    outputs: list[np.ndarray],
) -> None:
    output = outputs[target - kernel.inputs]
    shape = np.broadcast_shapes(*(v.shape for v in bound.values())) if bound else ()
    if 0 in shape or output.size == 0:
        return
    values = np.broadcast_to(convert(evaluate(value, inputs, bound), value.dtype), shape)
    at = [np.broadcast_to(evaluate(i, inputs, bound), shape) for i in indices]
    if at:
        output[tuple(at)] = values
    else:
        output[()] = values.reshape(-1)[0]


