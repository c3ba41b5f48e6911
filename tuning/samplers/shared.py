"""Samples the points of several engines, each with a sampler of its own, and divides the measurements among them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from optuna import Study
from optuna.trial import FrozenTrial

from gpucomp.tuning.samplers.base import PointSampler
from gpucomp.tuning.samplers.points import EnginePoints

PATIENCE = 0.25  # an engine that is slower than the fastest by this share is asked 1/e times as often
LEAST = 0.01  # least weight of an engine


class SharedSampler(PointSampler):
    """The engines' defaults come first. Then an engine's sampler is asked the more often, the faster the engine's best is.

    The weight of an engine is ``exp(-(its best / the overall best - 1) / PATIENCE)``, at least ``LEAST``. ``make`` makes the
    sampler for the points of engine 0, 1, ...
    """

    def __init__(self, points: EnginePoints, make: Callable[[int], PointSampler], seed: int = 0) -> None:
        super().__init__(points, seed)
        self.table = points.table
        self.each = [make(number) for number in range(len(points.each))]
        self._draw = random.Random(seed)
        self._best = [math.inf] * len(self.each)
        self._first = self.table.defaults

    def propose(self, study: Study, trial: FrozenTrial) -> int:
        while self._first:
            if not self.ledger.taken[point := self._first.pop(0)]:
                return point
        able = [number for number, one in enumerate(self.each) if one.ledger.left]
        (number,) = self._draw.choices(able, [self._weight(n) for n in able])
        return self.table.starts[number] + self.each[number].propose(study, trial)

    def take(self, point: int) -> None:
        super().take(point)
        number, row = self.table.place(point)
        self.each[number].take(row)

    def tell(self, point: int, value: float | None) -> None:
        super().tell(point, value)
        number, row = self.table.place(point)
        self.each[number].tell(row, value)
        if value is not None:
            self._best[number] = min(self._best[number], value)

    def _weight(self, number: int) -> float:
        best = min(self._best)
        if math.isinf(best):
            return 1.0
        if math.isinf(self._best[number]):
            return LEAST
        return max(LEAST, math.exp(-(self._best[number] / best - 1) / PATIENCE))
