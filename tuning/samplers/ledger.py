"""A sampler's memory of a table of points: which are taken, their results, and a random order of the others."""

from __future__ import annotations

import math

import numpy as np

from gpucomp.errors import UsageError


class Ledger:
    """Points 0 to ``points - 1`` and their values. Smaller values are better."""

    def __init__(self, points: int, rng: np.random.Generator) -> None:
        self.taken = np.zeros(points, bool)
        self.values: dict[int, float] = {}  # in the order of ``tell``
        self.failed: list[int] = []
        self._order = rng.permutation(points)
        self._next = 0

    @property
    def left(self) -> int:
        """The number of points that are not taken."""
        return len(self.taken) - int(self.taken.sum())

    @property
    def asked(self) -> int:
        return int(self.taken.sum())

    def take(self, point: int) -> int:
        assert not self.taken[point], f"point {point} was handed out before"
        self.taken[point] = True
        return point

    def draw(self) -> int:
        """A random point that is not taken, without taking it. There must be one."""
        while self.taken[self._order[self._next]]:
            self._next += 1
        return int(self._order[self._next])

    def tell(self, point: int, value: float | None) -> None:
        """Note a result, None for a failure. A point that was never asked for becomes taken."""
        if not 0 <= point < len(self.taken):
            raise UsageError(f"point {point} of a space of {len(self.taken)} points")
        self.taken[point] = True
        if value is not None and math.isfinite(value):
            self.values[point] = value
            if point in self.failed:
                self.failed.remove(point)
        elif point not in self.values and point not in self.failed:
            self.failed.append(point)

    def best(self, count: int) -> list[int]:
        """The points with the smallest values, the smallest first."""
        return sorted(self.values, key=self.values.__getitem__)[:count]
