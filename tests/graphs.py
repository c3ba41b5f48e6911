"""Small graphs for tests, and random ones; ``interpret`` runs any graph by the operators' references."""

from __future__ import annotations

import numpy as np

from gpucomp import ops
from gpucomp.ir import F32, Graph, Input, TensorType, constant, input_value


def tensor(name, *shape):
    return input_value(name, TensorType(F32, shape))


def weight(rng, *shape):
    return constant(rng.standard_normal(shape).astype(np.float32))


def interpret(graph, inputs):
    memory = {}
    for node in graph.nodes():
        if node.op is Input:
            memory[node[0]] = inputs[node.attrs["label"]]
        elif node.op is ops.Constant:
            memory[node[0]] = node.attrs["value"]
        else:
            found = node.op.reference(*(memory[v] for v in node.inputs), **node.attrs)
            for value, array in zip(node.values, found if isinstance(found, tuple) else (found,), strict=True):
                memory[value] = array
    return [memory[v] for v in graph.outputs]


def random_graph(rng):
    """A random DAG of the operators at hand, all values of shape (4, 6) or its transpose, several outputs."""
    x, y = tensor("x", 4, 6), tensor("y", 4, 6)
    pool = [x, y]
    for _ in range(int(rng.integers(5, 25))):
        a = pool[rng.integers(max(0, len(pool) - 6), len(pool))]
        same = [v for v in pool if v.shape == a.shape]
        b = same[rng.integers(len(same))]
        kind = rng.integers(8)
        if kind <= 1:
            value = [ops.Add, ops.Sub, ops.Mul][rng.integers(3)](a, b)
        elif kind == 2:
            value = ops.Relu(a)
        elif kind == 3:
            n = a.shape[-1]
            value = ops.MatMul(a, constant(rng.standard_normal((n, n)).astype(np.float32) / n))
        elif kind == 4:
            value = ops.Transpose(a, perm=(1, 0))
        elif kind == 5:
            value = ops.Reshape(a, shape=(6, 4) if a.shape == (4, 6) else (4, 6))
        elif kind == 6:
            value = ops.Add(a, weight(rng, a.shape[-1]))
        else:
            wide = ops.Concat(a, b, axis=1)
            n = wide.shape[-1]
            value = ops.MatMul(wide, constant(rng.standard_normal((n, n // 2)).astype(np.float32) / n))
        pool.append(value)
    count = int(rng.integers(1, 4))
    return Graph((x, y), tuple(pool[-1 - k] for k in range(count)))
