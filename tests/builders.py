"""Short ways to write graphs in tests."""

from collections.abc import Callable

import numpy as np

from gpucomp import targets
from gpucomp.device.target import Target
from gpucomp.ir import F32, DType, Graph, TensorType, Value, constant, input_value
from gpucomp.kernel.pipeline import Setting
from gpucomp.schedule.expected import Expected
from gpucomp.targets.back_end import back_end


def tensor(label: str, *shape: int, dtype: DType = F32) -> Value:
    """A graph input."""
    return input_value(label, TensorType(dtype, shape))


def weights(*shape: int, seed: int = 0, dtype: DType = F32) -> Value:
    """A constant of numbers between 0.5 and 2, none of them special."""
    return constant(np.random.default_rng([seed, *shape]).uniform(0.5, 2, shape).astype(dtype.numpy))


def scalar(number: float, dtype: DType = F32) -> Value:
    return constant(np.asarray(number, dtype.numpy))


def graph_of(*outputs: Value) -> Graph:
    """The graph that computes ``outputs``; its inputs are found, in the order in which they are first needed."""
    found = Graph((), outputs)
    return Graph(tuple(n[0] for n in found.nodes() if n.op.name == "Input"), outputs)


def ops_of(graph: Graph) -> list[str]:
    """The operators' names in order, without inputs and constants."""
    return [n.op.name for n in graph.nodes() if n.op.name not in {"Input", "Constant"}]


def chain(x: Value, length: int, step: Callable[[Value, int], Value]) -> Value:
    for i in range(length):
        x = step(x, i)
    return x


def setting(
    graph: Graph, target: Target | str, *, expected: Expected | None = None, precision: str = "fp32"
) -> Setting:
    """What passes over the graph's kernels may ask on ``target``."""
    target = targets.resolve(target) if isinstance(target, str) else target
    return Setting(graph, target, expected or Expected(target, back_end(target.language)[0]), precision)
