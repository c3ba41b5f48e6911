"""Predicts the time of kernels on a target, so that passes can compare alternatives.

All kernel passes use it except ``gpucomp.codegen.llvm.depth_first.fuse``. That pass has its own model of the CPU's
caches, because the model here sees one kernel at a time and not the image between two kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gpucomp.device.target import Target
from gpucomp.kernel import Kernel
from gpucomp.kernel.example import example_of
from gpucomp.schedule.choose import choose, prediction
from gpucomp.schedule.rank import Ranked
from gpucomp.schedule.space import Family
from gpucomp.schedule.uncertainty import clearly_faster


class Expected:
    """Predictions by the models of the engines from ``engines_of``. The prediction for a kernel is computed once."""

    def __init__(self, target: Target, engines_of: Callable[[Kernel, frozenset[str]], Sequence[Family]]) -> None:
        self.target = target
        self.engines_of = engines_of
        self._known: dict[str, Ranked | None] = {}

    def predicted(self, kernel: Kernel) -> Ranked | None:
        """The prediction for a launch; ``None`` if the model cannot rank the kernel's engines."""
        if kernel.digest not in self._known:
            target = self.target
            engines = self.engines_of(kernel, target.features)
            self._known[kernel.digest] = (
                prediction(example_of(kernel), engines, target.limits, target.device) if engines else None
            )
        return self._known[kernel.digest]

    def total_us(self, kernels: Sequence[Kernel]) -> float:
        """The predicted time of ``kernels``, launched one after another; infinite if one has no prediction."""
        found = list(map(self.predicted, kernels))
        return sum(math.inf if one is None else one.us for one in found)

    def faster(self, these: Sequence[Kernel], those: Sequence[Kernel]) -> bool:
        """Whether ``these`` are predicted to be clearly faster than ``those``; False if one has no prediction."""
        ours, others = ([one for k in kernels if (one := self.predicted(k))] for kernels in (these, those))
        return len(ours) == len(these) and len(others) == len(those) and clearly_faster(ours, others)

    def estimated_us(self, kernel: Kernel) -> float | None:
        """The estimate of the engine that computes ``kernel``, in microseconds; ``None`` if it has no estimate."""
        target, kernel = self.target, example_of(kernel)
        choice = choose(kernel, self.engines_of(kernel, target.features), target.limits, target.device)
        if choice.family.estimate is None:
            return None
        problem = choice.family.problem(kernel)
        return choice.family.estimate(choice.family.schedule(choice.schedule), problem, target.limits)
