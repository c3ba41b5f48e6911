"""Runs a compiled CUDA model in the CUDA-on-CPU harness, launch by launch, on the plan's own arena."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpucomp.artifact.plan import COUNTER, INPUT, NUMBERS, TEMP, WEIGHT
from gpucomp.ir.types import DTYPES
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.host import numbers_of
from gpucomp.runtime.repeats import Moving, in_order, moving_arguments
from gpucomp.targets import cuda
from testing.cuda_on_cpu.harness import Argument, CudaOnCpu, Mapped, Order, Sanitizer, compile_many

POISON = 0x7FFD  # the harness's fill value for unwritten memory: NaN in every float type


class ModelOnCpu:
    """All kernels of a model, compiled in one run of g++. The model must not have host operators.

    ``like`` is the same model at other sizes, whose kernels are used.
    """

    def __init__(self, executable: Executable, *, sanitizer: Sanitizer = None, like: ModelOnCpu | None = None) -> None:
        self.plan, self.weights = executable.plan, executable.weights
        assert all(launch.kernel >= 0 for launch in self.plan.launches)
        pairs = {k.name: executable.sources[k.source] for k in self.plan.kernels}
        self.shared_limit = cuda.manifest(self.plan.arch).limits.shared_bytes
        self.kernels: dict[str, CudaOnCpu] = (
            like.kernels
            if like
            else dict(zip(pairs, compile_many([(s, n) for n, s in pairs.items()], sanitizer=sanitizer), strict=True))
        )

    def run(
        self, inputs: Mapping[str, np.ndarray], *, order: Order = "forward", seed: int = 0
    ) -> dict[str, np.ndarray]:
        plan = self.plan
        arena = np.full(plan.arena_bytes // 2 + 1, POISON, np.uint16).view(np.uint8)
        memory: list[np.ndarray] = []
        for buffer in plan.buffers:
            dtype = DTYPES[buffer.dtype].numpy
            if buffer.kind == TEMP:
                memory.append(arena[buffer.offset : buffer.offset + buffer.nbytes].view(dtype).reshape(buffer.shape))
            elif buffer.kind == WEIGHT:
                memory.append(np.asarray(self.weights[buffer.name], order="C"))
            elif buffer.kind == INPUT:
                memory.append(np.asarray(inputs[buffer.name], order="C"))
            elif buffer.kind == NUMBERS:
                memory.append(numbers_of(buffer))
            elif buffer.kind == COUNTER:
                memory.append(np.zeros(buffer.shape, dtype))
            else:
                memory.append(np.zeros(buffer.shape, dtype))
        for number, step in in_order(plan):
            launch = plan.launches[number]
            kernel = plan.kernels[launch.kernel]
            moving = {m.index: m for m in moving_arguments(plan, number)}
            parts = [_part(memory[a], moving.get(k), step) for k, a in enumerate(launch.args)]
            args: list[Argument] = list(parts)
            args += [Mapped(m, parts[m.parameter]) for m in kernel.tensor_maps]
            args += map(np.int64, kernel.numbers)
            changes = [i for i, a in enumerate(launch.args) if plan.buffers[a].kind != WEIGHT]
            self.kernels[kernel.name].run(
                kernel.groups,
                kernel.items,
                args,
                order=order,
                seed=seed,
                dynamic_shared=kernel.shared,
                shared_limit=self.shared_limit,
                late=changes if kernel.programmatic else (),
            )
        return {name: memory[o] for name, o in zip(plan.output_names, plan.outputs, strict=True)}


def _part(array: np.ndarray, moved: Moving | None, step: int) -> np.ndarray:
    """The bytes of ``array`` that a launch works on in a step of a loop, in place; all of it if it does not advance."""
    if moved is None:
        return array
    at = moved.start + step * moved.advance
    return array.reshape(-1).view(np.uint8)[at : at + abs(moved.advance)]
