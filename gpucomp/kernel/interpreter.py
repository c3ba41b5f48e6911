"""Runs any kernel with numpy, as ``gpucomp.ops.interpreter`` runs graphs. Engines are tested against it. It is slow.

Sums of contractions, rows and attention are computed in float64, whatever type the kernel uses.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from gpucomp.expr.core import Expr, Reduce, Var, identity_of, reduce
from gpucomp.expr.evaluate import CHUNK, REDUCE, convert, evaluate, grid_of
from gpucomp.ir.graph import Graph, Value, constant_value
from gpucomp.ir.types import F64, TensorType
from gpucomp.kernel import (
    HANDED,
    Attention,
    Contraction,
    FusedLayer,
    FusedLayers,
    HostStep,
    Kernel,
    Loops,
    RepeatStep,
    Rowwise,
    Scan,
    Scatter,
    Step,
    Store,
    TileTransform,
    Window,
)
from gpucomp.kernel.forms.packed_words import PackedWords

UNWRITTEN = 113  # the value of an element that no store writes; exact in every dtype


def expected(kernel: Kernel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The kernel's outputs. Elements that no store writes are ``UNWRITTEN``."""
    outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    update(kernel, inputs, outputs)
    return outputs


def update(kernel: Kernel, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    """Run the kernel's stores on ``outputs``. Other elements are not changed."""
    match kernel.body:
        case Loops(domain=domain):
            _store(kernel, domain, inputs, outputs, {})
        case Contraction() as c:
            _contraction(kernel, c, inputs, outputs)
        case Window() as w:
            _store(kernel, w.domain, inputs, outputs, {w.acc: reduce(w.op, w.window, w.value)})
        case Rowwise() as r:
            _rowwise(r, kernel.stores, inputs, outputs, kernel.inputs)
        case Scan() as s:
            bound = dict(grid_of(s.domain))
            bound[s.acc] = _running(s, inputs)
            _scatter_all(kernel, bound, inputs, outputs)
        case TileTransform() as x:
            _blocks(kernel, x, inputs, outputs)
        case Scatter() as x:
            bound = dict(grid_of(x.domain))
            bound[x.acc] = _changed(x, inputs)
            _scatter_all(kernel, bound, inputs, outputs)
        case Attention() as t:
            _attention(kernel, t, inputs, outputs)
        case FusedLayers(layers=layers):
            _fused_layers(layers, [*inputs, *outputs])


def _contraction(
    kernel: Kernel, body: Contraction, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> None:
    if isinstance(body, PackedWords):
        inputs = [_seen_as(a, t) for a, t in zip(inputs, kernel.params, strict=False)]
    bound = dict(grid_of(body.domain))
    bound[body.acc] = _products(body, inputs).reshape([v.extent for v in body.domain])
    _scatter_all(kernel, bound, inputs, outputs)
    if body.tail:
        row_statistics(kernel, inputs, outputs)


def _seen_as(array: np.ndarray, type: TensorType) -> np.ndarray:
    """``array`` as a kernel of ``PackedWords`` reads it: a parameter of bytes may be one of words of four."""
    if array.itemsize == type.dtype.nbytes:
        return array.view(type.dtype.numpy) if type.dtype.is_integer else array
    return np.ascontiguousarray(array).reshape(-1).view(type.dtype.numpy)


def _products(body: Contraction, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The sums of products, ``[batch, m, n]``. The depth is taken in parts that are small enough for memory."""
    wide = F64 if body.acc.dtype.is_float else body.acc.dtype
    shape = [math.prod(v.extent for v in group) for group in (body.batch, body.m, body.n)]
    total = np.zeros(shape, wide.numpy)
    split = max(body.k, key=lambda axis: axis.extent, default=None)
    extent = split.extent if split is not None else 1
    points = shape[0] * max(shape[1:]) * math.prod(axis.extent for axis in body.k)
    step = max(1, extent * CHUNK // max(1, points))
    for start in range(0, extent, step):
        part = slice(start, start + step)
        a = _matrix(body.a, (body.batch, body.m, body.k), inputs, split, part)
        b = _matrix(body.b, (body.batch, body.n, body.k), inputs, split, part)
        if isinstance(body, PackedWords):
            a, b = (words.view(of.numpy) for words, of in zip((a, b), body.elements, strict=True))
        with np.errstate(all="ignore"):
            total += np.matmul(convert(a, wide), convert(b, wide).swapaxes(1, 2))
    return convert(total, body.acc.dtype)


def _matrix(
    value: Expr, groups: Sequence[Sequence[Var]], inputs: Sequence[np.ndarray], split: Var | None, part: slice
) -> np.ndarray:
    """``value`` over ``groups`` of axes, with one dimension for each group; of axis ``split`` only ``part``."""
    grid = grid_of([axis for group in groups for axis in group])
    if split is not None:
        grid[split] = grid[split][part]
    shape = [[grid[axis].size for axis in group] for group in groups]
    found = np.broadcast_to(evaluate(value, inputs, grid), [n for group in shape for n in group])
    return np.ascontiguousarray(found).reshape([math.prod(group) for group in shape])


def row_statistics(kernel: Kernel, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    """Run a contraction's tail: read ``outputs`` as they are, and store its results in them."""
    body = kernel.body
    assert isinstance(body, Contraction)
    assert body.tail is not None
    rows = Rowwise(body.batch + body.m, body.n, body.tail.statistics, frozenset(range(len(body.tail.stores))))
    _rowwise(rows, body.tail.stores, [*inputs, *outputs], outputs, kernel.inputs)


def _fused_layers(layers: Sequence[FusedLayer], arrays: Sequence[np.ndarray]) -> None:
    """Run layer after layer and keep the whole result that each hands on; ``arrays`` are the fused kernel's parameters."""
    handed: np.ndarray = np.empty(0)
    for layer in layers:
        read, (param,) = layer.params[: layer.kernel.inputs], layer.params[layer.kernel.inputs :]
        result = np.empty(layer.kernel.params[-1].shape, np.float32) if param == HANDED else arrays[param]
        update(layer.kernel, [handed if p == HANDED else arrays[p] for p in read], [result])
        handed = result


def _attention(kernel: Kernel, body: Attention, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    """Everything after the products is in f64, which is exact enough to compare with f32 sums in any order."""
    groups = (body.batch, body.rows, body.cols, body.depth, body.values)

    def matrix(value: Expr, *used: int) -> np.ndarray:
        """``value`` over the batch and some groups of axes, with one array dimension for each group."""
        axes = [a for g in used for a in groups[g]]
        found = np.broadcast_to(evaluate(value, inputs, grid_of(axes)), tuple(a.extent for a in axes))
        return found.astype(np.float64).reshape([math.prod(a.extent for a in groups[g]) for g in used])

    dots = np.matmul(matrix(body.q, 0, 1, 3), matrix(body.k, 0, 2, 3).swapaxes(1, 2))
    over = [a for g in (0, 1, 2) for a in groups[g]]
    bound: dict[Expr, np.ndarray] = dict(grid_of(over))
    bound[body.dot] = dots.reshape([a.extent for a in over])
    scores = np.broadcast_to(evaluate(body.score, inputs, bound), bound[body.dot].shape)
    scores = scores.astype(np.float64).reshape(dots.shape)
    with np.errstate(all="ignore"):
        power = np.exp(scores - scores.max(axis=2, keepdims=True))
        means = np.matmul(power, matrix(body.v, 0, 2, 4)) / power.sum(axis=2, keepdims=True)
    bound = dict(grid_of(body.domain))
    bound[body.acc] = means.astype(np.float32).reshape([a.extent for a in body.domain])
    _scatter_all(kernel, bound, inputs, outputs)


def _running(body: Scan, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Every running value, element by element from the first one; floats in f64."""
    shape = tuple(v.extent for v in body.domain)
    values = np.broadcast_to(evaluate(body.value, inputs, grid_of(body.domain)), shape)
    wide = np.moveaxis(values.astype(np.float64) if body.acc.dtype.is_float else values, -1, 0)
    found = np.empty_like(wide)
    total = np.full(wide.shape[1:], identity_of(body.op, body.acc.dtype)).astype(wide.dtype)
    with np.errstate(all="ignore"):
        for i in reversed(range(shape[-1])) if body.reverse else range(shape[-1]):
            after = REDUCE[body.op](total, wide[i])
            found[i] = total if body.exclusive else after
            total = after
        return np.moveaxis(found, 0, -1).astype(body.acc.dtype.numpy)


def _changed(body: Scatter, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Every element after all updates, applied line by line and update by update."""
    shape = tuple(v.extent for v in body.domain)
    result = np.broadcast_to(evaluate(body.initial, inputs, grid_of(body.domain)), shape).copy()
    for line in np.ndindex(*(v.extent for v in body.lines)):
        bound: dict[Expr, np.ndarray] = {v: np.asarray(k) for v, k in zip(body.lines, line, strict=True)}
        if not evaluate(body.guard, inputs, bound):
            continue
        for number in np.ndindex(*(v.extent for v in body.updates)):
            bound |= {v: np.asarray(k) for v, k in zip(body.updates, number, strict=True)}
            at = [int(evaluate(e, inputs, bound)) for e in body.found]
            inside = all(0 <= a < v.extent for a, v in zip(at, body.places, strict=True))
            if inside and evaluate(body.where, inputs, bound):
                bound[body.acc] = result[(*line, *at)]
                result[(*line, *at)] = evaluate(body.after, inputs, bound)
    return result


def _blocks(kernel: Kernel, body: TileTransform, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    """The transform in f64; elements for which ``where`` is false are not stored."""
    axes = body.blocks + body.inputs
    with np.errstate(all="ignore"):
        values = np.broadcast_to(evaluate(body.value, inputs, grid_of(axes)), tuple(a.extent for a in axes))
        matrix = np.array(body.matrix)
        found = np.einsum("ir,js,...rs->...ij", matrix, matrix, values.astype(np.float64))
    shape = tuple(a.extent for a in body.domain)
    written = np.broadcast_to(evaluate(body.where, inputs, grid_of(body.domain)), shape)
    places = np.nonzero(written)
    bound: dict[Expr, np.ndarray] = dict(zip(body.domain, places, strict=True))
    bound[body.acc] = found.astype(body.acc.dtype.numpy)[places]
    _scatter_all(kernel, bound, inputs, outputs)


def _rowwise(
    body: Rowwise,
    stores: Sequence[Store],
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    first_output: int,
) -> None:
    grid = grid_of(body.domain)
    rank, columns = len(body.domain), tuple(range(len(body.rows), len(body.domain)))
    bound: dict[Expr, np.ndarray] = dict(grid)
    shape = tuple(v.extent for v in body.domain)
    for statistic in body.statistics:
        values = np.broadcast_to(evaluate(statistic.value, inputs, bound), shape)
        ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[statistic.op]
        wide = values.astype(np.float64) if statistic.hole.dtype.name == "f32" else values
        total = ufunc.reduce(wide, axis=columns, keepdims=True)
        bound[statistic.hole] = total.astype(statistic.hole.dtype.numpy)
    assert rank == len(shape)
    for position, store in enumerate(stores):
        scope = dict(bound)
        if position in body.row_stores:
            scope.update({v: np.zeros((1,) * rank, np.int64) for v in body.cols})
        _scatter(store, scope, inputs, outputs, first_output)


def _store(
    kernel: Kernel,
    domain: Sequence[Var],
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    holes: Mapping[Expr, Expr],
) -> None:
    bound = dict(grid_of(domain))
    for hole, definition in holes.items():
        assert isinstance(definition, Reduce) or not definition.free - set(domain)
        bound[hole] = np.broadcast_to(evaluate(definition, inputs, bound), tuple(v.extent for v in domain))
    _scatter_all(kernel, bound, inputs, outputs)


def _scatter_all(
    kernel: Kernel,
    bound: Mapping[Expr, np.ndarray],
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
) -> None:
    """Run all stores of ``kernel``."""
    for store in kernel.stores:
        _scatter(store, bound, inputs, outputs, kernel.inputs)


def _scatter(
    store: Store,
    bound: Mapping[Expr, np.ndarray],
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    first_output: int,
) -> None:
    output = outputs[store.target - first_output]
    if output.size == 0:
        return
    value = evaluate(store.value, inputs, bound)
    at = [evaluate(i, inputs, bound) for i in store.index]
    shape = np.broadcast_shapes(value.shape, *(i.shape for i in at))
    variables = [v for e, v in bound.items() if isinstance(e, Var)]
    shape = np.broadcast_shapes(shape, *(v.shape for v in variables)) if variables else shape
    index = tuple(np.broadcast_to(i, shape) for i in at)
    if index:
        output[index] = np.broadcast_to(value, shape)
    else:
        output[()] = value.reshape(-1)[0] if value.size else value


def run_steps(graph: Graph, steps: Sequence[Step], inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The graph's outputs, computed by ``steps``: kernels by ``update``, host steps by their numpy reference.

    A value has the type that the kernels see, which may be narrower than its own.
    """
    memory: dict[Value, np.ndarray] = {}

    def read(value: Value) -> np.ndarray:
        if value not in memory:
            array = constant_value(value)
            memory[value] = inputs[value.attrs["label"]] if array is None else array
        return memory[value]

    rest = iter(steps)
    for step in rest:
        operands = [read(v) for v in step.inputs]
        if isinstance(step, RepeatStep):
            deque(islice(rest, step.length), 0)  # the reference stands for them
        if isinstance(step, HostStep):
            found = step.node.op.reference(*operands, **step.node.attrs)
            results = found if isinstance(found, tuple) else (found,)
            memory.update(zip(step.outputs, results, strict=True))
            continue
        kernel = step.kernel
        for value, type in zip(step.outputs, kernel.params[kernel.inputs :], strict=True):
            if value not in memory:
                memory[value] = np.full(value.shape, UNWRITTEN).astype(type.dtype.numpy)
        update(kernel, operands, [memory[v] for v in step.outputs])
    return [read(v) for v in graph.outputs]
