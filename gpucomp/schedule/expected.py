"""Predicts the time of kernels on a target, so that passes can compare alternatives.

All kernel passes use it except ``gpucomp.codegen.llvm.depth_first.fuse``. That pass has its own model of the CPU's
caches, because the model here sees one kernel at a time and not the image between two kernels. ``CLEAR_GAIN`` is the
same for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gpucomp.device.target import Target
from gpucomp.kernel import Kernel
from gpucomp.kernel.example import example_of
from gpucomp.schedule.choose import CLEAR_GAIN, choose, expected_us
from gpucomp.schedule.space import Family


class Expected:
    """Predictions by the models of the engines from ``engines_of``. The prediction for a kernel is computed once."""

    def __init__(self, target: Target, engines_of: Callable[[Kernel, frozenset[str]], Sequence[Family]]) -> None:
        self.target = target
        self.engines_of = engines_of
        self._known: dict[str, float | None] = {}

    def us(self, kernel: Kernel) -> float | None:
        """The predicted time of a launch, in microseconds; ``None`` if the model cannot rank the kernel's engines."""
        if kernel.digest not in self._known:
            target = self.target
            engines = self.engines_of(kernel, target.features)
            self._known[kernel.digest] = (
                expected_us(example_of(kernel), engines, target.limits, target.device) if engines else None
            )
        return self._known[kernel.digest]

    def total_us(self, kernels: Sequence[Kernel]) -> float:
        """The predicted time of ``kernels``, launched one after another; infinite if one has no prediction."""
        found = list(map(self.us, kernels))
        return sum(math.inf if us is None else us for us in found)

    def faster(self, these: Sequence[Kernel], those: Sequence[Kernel]) -> bool:
        """Whether ``these`` are predicted to be clearly faster than ``those``; False if one has no prediction."""
        return CLEAR_GAIN * self.total_us(these) <= self.total_us(those) < math.inf

    def estimated_us(self, kernel: Kernel) -> float | None:
        """The estimate of the engine that computes ``kernel``, in microseconds; ``None`` if it has no estimate."""
        target, kernel = self.target, example_of(kernel)
        choice = choose(kernel, self.engines_of(kernel, target.features), target.limits, target.device)
        if choice.family.estimate is None:
            return None
        problem = choice.family.problem(kernel)
        return choice.family.estimate(choice.family.schedule(choice.schedule), problem, target.limits)
