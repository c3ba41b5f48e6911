"""What a kernel's outputs have to be, computed with numpy from its expressions alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpucomp.expr.core import Expr, reduce
from gpucomp.expr.evaluate import evaluate, grid_of
from gpucomp.kernel import Contraction, Kernel, Loops, Rowwise, Window


def expected(kernel: Kernel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of ``kernel``; elements that no store writes are zero."""
    outputs = [np.zeros(t.shape, t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    body = kernel.body
    axes = body.domain
    if any(a.extent == 0 for a in axes) and not isinstance(body, Rowwise):
        return outputs
    grid: dict[Expr, np.ndarray] = dict(grid_of(axes))
    match body:
        case Contraction():
            grid[body.acc] = evaluate(reduce("sum", body.k, body.a * body.b), inputs, grid)
        case Window():
            grid[body.acc] = evaluate(reduce(body.op, body.window, body.value), inputs, grid)
        case Rowwise():
            for statistic in body.statistics:
                value = evaluate(reduce(statistic.op, body.cols, statistic.value), inputs, grid)
                shape = np.broadcast_shapes(value.shape, (1,) * len(axes))
                value = np.broadcast_to(value, shape)
                grid[statistic.hole] = value[(..., *(slice(0, 1) for _ in body.cols))] if body.cols else value
        case Loops():
            pass
    for position, store in enumerate(kernel.stores):
        scope = dict(grid)
        if isinstance(body, Rowwise) and position in body.row_stores:
            for axis in body.cols:
                scope[axis] = np.zeros((1,) * len(axes), np.int64)
        elif any(a.extent == 0 for a in axes):
            continue
        value = evaluate(store.value, inputs, scope)
        at = [evaluate(i, inputs, scope) for i in store.index]
        shape = tuple(a.extent for a in axes)
        if isinstance(body, Rowwise) and position in body.row_stores:
            shape = (*(a.extent for a in body.rows), *(1 for _ in body.cols))
        out = outputs[store.target - kernel.inputs]
        out[tuple(np.broadcast_to(i, shape) for i in at)] = np.broadcast_to(value, shape)
    return outputs
