"""About how long launches take on the CPU, to decide whether threads should share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpucomp.artifact.plan import Plan
from gpucomp.ir.size_steps import BYTES_A_NS
from gpucomp.ir.types import NAMED

MULTIPLY_ADDS_A_NS = 16


class Costs:
    """Roughly the nanoseconds that one thread takes for each of some launches, estimated from the sizes of its arguments.

    A contraction of m x k with k x n elements has sqrt(mk * kn * mn) multiply-adds; a convolution has some more, because
    it reads its image several times. Every other launch is assumed to move its bytes through the cache.
    """

    def __init__(self, plan: Plan, launches: Sequence[int]) -> None:
        self._positions = [list(dict.fromkeys(plan.launches[number].args)) for number in launches]
        self._all = [plan.launches[number].args for number in launches]
        most = max(map(len, self._positions), default=0)
        nothing = len(plan.buffers)  # the position of a buffer without bytes
        padded = [a + [nothing] * (most - len(a)) for a in self._positions]
        self._arguments = np.array(padded, np.int64).reshape(len(launches), most)
        itemsizes = np.array([*(max(NAMED[b.dtype].nbytes, 1) for b in plan.buffers), 1], float)
        kernels = [plan.kernels[plan.launches[number].kernel] for number in launches]
        self._contractions = np.array([k for k, kernel in enumerate(kernels) if kernel.is_contraction], int)
        self._itemsizes = itemsizes[self._arguments[self._contractions]]

    def of(self, nbytes: Sequence[int], tasks: Sequence[int], advances: Mapping[int, Sequence[int]]) -> np.ndarray:
        """The nanoseconds that threads can share of each launch, 0 for one of a single task.

        ``nbytes`` are those of all buffers. In a loop this is one step: it reads ``abs(advance)`` bytes of an argument that
        advances, of which ``advances`` has those of each launch by its number among the launches.
        """
        sizes = np.array([*nbytes, 0], float)[self._arguments]
        for launch, row in advances.items():
            for position, advance in zip(self._all[launch], row, strict=True):
                if advance:
                    sizes[launch, self._positions[launch].index(position)] = abs(advance)
        costs: np.ndarray = sizes.sum(axis=1) / BYTES_A_NS
        if len(self._contractions):
            elements = sizes[self._contractions] / self._itemsizes
            products = np.sort(elements, axis=1)[:, -3:].prod(axis=1)
            costs[self._contractions] = np.maximum(costs[self._contractions], np.sqrt(products) / MULTIPLY_ADDS_A_NS)
        costs[np.array(tasks, np.int64) <= 1] = 0.0
        return costs
