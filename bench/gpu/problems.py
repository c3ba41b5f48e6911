"""The distinct kernels of models at a precision, as the compiler partitions them, with the graph nodes of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpucomp.device.target import Target
from gpucomp.frontend import onnx as frontend
from gpucomp.ir.graph import Graph, constant_value
from gpucomp.ir.types import BOOL
from gpucomp.kernel import Kernel
from gpucomp.kernel.grouping import Policy
from gpucomp.kernel.partition import partition
from gpucomp.kernel.passes import precision as narrow
from gpucomp.kernel.step import KernelStep, Step
from gpucomp.lowering import rewritten
from gpucomp.schedule.analytic import floor_us, operations, traffic

MODELS = ("resnet50", "mobilenet_v2", "vgg16", "bert_base", "vit_b16")
PRECISIONS = ("fp32", "fp16", "tf32", "3xtf32")
GUESSED_FLOPS, GUESSED_BYTES = 1e6, 1e5  # per microsecond, for an unknown device


@dataclass(eq=False)
class Problem:
    """A kernel, the step of the f32 model that it comes from, and the number of its launches in each model.

    ``narrow`` is the step at the precision; its constants are those that the kernel reads.
    """

    kernel: Kernel
    step: KernelStep
    narrow: KernelStep
    precision: str
    launches: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        label = re.sub(r"[^A-Za-z0-9.]+", "_", self.kernel.label).strip("_")[:60]
        return f"{self.precision}-{label}-{self.kernel.digest[:8]}"

    def inputs(self, seed: int = 11) -> list[np.ndarray]:
        """The kernel's inputs: the model's constants, normal floats, and zeros and ones for indices."""
        rng = np.random.default_rng(seed)
        found = []
        for value, type in zip(self.narrow.inputs, self.kernel.params, strict=False):
            array = constant_value(value)
            if array is None and type.dtype.is_float:
                array = rng.standard_normal(type.shape, np.float32).astype(type.dtype.numpy)
            elif array is None:
                array = rng.integers(0, 2, type.shape).astype(np.bool_ if type.dtype is BOOL else type.dtype.numpy)
            found.append(np.ascontiguousarray(array))
        return found

    def floor_us(self, target: Target) -> float:
        """The least time with cold caches."""
        if target.device is None:
            return max(operations(self.kernel) / GUESSED_FLOPS, traffic(self.kernel) / GUESSED_BYTES)
        return floor_us(self.kernel, target.device, cold=True)


def steps_of(model: Graph, target: Target, precision: str) -> tuple[Graph, Sequence[Step]]:
    """The graph after all passes for a precision, and its f32 kernels."""
    graph = rewritten(model, target, precision)
    return graph, partition(graph, Policy.of(target))


def problems(
    models: Sequence[str], precisions: Sequence[str], target: Target, build: Callable[[str], Any]
) -> list[Problem]:
    """The distinct kernels, precisions in turn, the most valuable first: those whose launches take longest at least."""
    found: dict[tuple[str, str], Problem] = {}
    for model in models:
        loaded = frontend.load(build(model))
        for precision in precisions:
            graph, steps = steps_of(loaded, target, precision)
            for step, made in zip(steps, narrow.apply(steps, graph, precision), strict=True):
                if not (isinstance(step, KernelStep) and isinstance(made, KernelStep)):
                    continue
                if 0 in [t.size for t in made.kernel.params[made.kernel.inputs :]]:
                    continue
                if precision in narrow.MATH and made.kernel is step.kernel:
                    continue  # it is the same as in f32
                problem = found.setdefault((precision, made.kernel.digest), Problem(made.kernel, step, made, precision))
                problem.launches[model] = problem.launches.get(model, 0) + 1
    queues = [
        sorted((p for (name, _), p in found.items() if name == precision), key=lambda p: -_worth(p, target))
        for precision in precisions
    ]
    return list(_in_turn(queues))


def _worth(problem: Problem, target: Target) -> float:
    return problem.floor_us(target) * sum(problem.launches.values())


def _in_turn(queues: Sequence[list[Problem]]) -> Iterator[Problem]:
    for number in range(max(map(len, queues), default=0)):
        yield from (queue[number] for queue in queues if number < len(queue))


def supported(precisions: Sequence[str], target: Target) -> tuple[str, ...]:
    """Those of ``precisions``, or of the usual ones, that the target has."""
    asked = precisions or PRECISIONS
    return tuple(p for p in asked if p not in narrow.MATH or "mma_sm80" in target.features)
