"""What kernels are expected to take on a target: which of two ways is faster.

All passes over kernels ask here but one: ``gpucomp.codegen.llvm.depth_first.fuse`` compares chains by a model of its own, of
the CPU's caches, because the model here sees one kernel at a time and not the image between two. The margin is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gpucomp.device.target import Target
from gpucomp.kernel import Kernel
from gpucomp.schedule.choose import CLEAR_GAIN, choose, expected_us
from gpucomp.schedule.space import Family


class Expected:
    """By the models of the engines that ``engines_of`` gives for a kernel. Each kernel is asked for once."""

    def __init__(self, target: Target, engines_of: Callable[[Kernel, frozenset[str]], Sequence[Family]]) -> None:
        self.target = target
        self.engines_of = engines_of
        self._known: dict[str, float | None] = {}

    def us(self, kernel: Kernel) -> float | None:
        """Microseconds that the device's model expects, the launch included; ``None`` where it knows no engine for it."""
        if kernel.digest not in self._known:
            target, engines = self.target, self.engines_of(kernel, self.target.features)
            self._known[kernel.digest] = expected_us(kernel, engines, target.limits, target.device) if engines else None
        return self._known[kernel.digest]

    def total_us(self, kernels: Sequence[Kernel]) -> float:
        """Of launches one after the other; infinite where the model does not know one of them."""
        found = list(map(self.us, kernels))
        return sum(math.inf if us is None else us for us in found)

    def faster(self, these: Sequence[Kernel], those: Sequence[Kernel]) -> bool:
        """Whether the model knows all and expects clearly less of ``these`` than of ``those``."""
        return CLEAR_GAIN * self.total_us(these) <= self.total_us(those) < math.inf

    def estimated_us(self, kernel: Kernel) -> float | None:
        """What the engine that computes ``kernel`` estimates of its schedule; ``None`` where it estimates nothing."""
        target = self.target
        choice = choose(kernel, self.engines_of(kernel, target.features), target.limits, target.device)
        if choice.family.estimate is None:
            return None
        problem = choice.family.problem(kernel)
        return choice.family.estimate(choice.family.schedule(choice.schedule), problem, target.limits)
