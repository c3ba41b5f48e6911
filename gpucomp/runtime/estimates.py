"""About how long launches take on the CPU, to decide whether threads should share them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from gpucomp.artifact.plan import Launch, Plan
from gpucomp.ir.types import NAMED

MULTIPLY_ADDS_A_NS = 16.0
BYTES_A_NS = 8.0


def estimated_ns(plan: Plan, launch: Launch, advances: Sequence[int] = ()) -> float:
    """Roughly the nanoseconds that one thread takes for a launch, estimated from the sizes of its arguments.

    In a loop, this is one step; it reads ``abs(advance)`` bytes of an argument that advances.

    A contraction of m x k with k x n elements has sqrt(mk * kn * mn) multiply-adds; a convolution has some more, because
    it reads its image several times. Every other launch is assumed to move its bytes through the cache.
    """
    sizes: dict[int, tuple[int, float]] = {}  # bytes and elements
    for position, advance in zip_longest(launch.args, advances, fillvalue=0):
        buffer = plan.buffers[position]
        nbytes = abs(advance) or buffer.nbytes
        sizes[position] = nbytes, math.prod(buffer.shape) * nbytes / max(buffer.nbytes, 1)
    total = sum(nbytes for nbytes, _ in sizes.values()) / BYTES_A_NS
    if plan.kernels[launch.kernel].family != "contraction":
        return total
    largest = sorted((elements for _, elements in sizes.values()), reverse=True)[:3]
    return max(total, math.sqrt(math.prod(largest)) / MULTIPLY_ADDS_A_NS)


class Costs:
    """``estimated_ns`` of all launches of a program at once, for plans that differ in sizes only."""

    def __init__(self, plan: Plan, launches: Sequence[int]) -> None:
        arguments = [list(dict.fromkeys(plan.launches[number].args)) for number in launches]
        most = max(map(len, arguments), default=0)
        nothing = len(plan.buffers)  # the position of a buffer without bytes
        padded = [a + [nothing] * (most - len(a)) for a in arguments]
        self._arguments = np.array(padded, np.int64).reshape(len(launches), most)
        self._itemsizes = np.array([*(max(NAMED[b.dtype].nbytes, 1) for b in plan.buffers), 1])
        kernels = [plan.kernels[plan.launches[number].kernel] for number in launches]
        self._contractions = np.array([k for k, kernel in enumerate(kernels) if kernel.family == "contraction"], int)

    def of(self, plan: Plan, tasks: Sequence[int]) -> np.ndarray:
        """About the nanoseconds of each launch that threads can share, 0 for one of a single task."""
        nbytes = np.array([*(b.nbytes for b in plan.buffers), 0], float)
        costs = nbytes[self._arguments].sum(axis=1) / BYTES_A_NS
        if len(self._contractions):
            elements = (nbytes / self._itemsizes)[self._arguments[self._contractions]]
            products = np.sort(elements, axis=1)[:, -3:].prod(axis=1)
            costs[self._contractions] = np.maximum(costs[self._contractions], np.sqrt(products) / MULTIPLY_ADDS_A_NS)
        return np.where(np.array(tasks) > 1, costs, 0.0)
