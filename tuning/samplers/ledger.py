"""What every sampler keeps: which points are taken, what came back, and a random order of the rest."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gpucomp.errors import UsageError


class Ledger:
    """Points 0 to ``points - 1``, each handed out at most once, with the seconds that were told."""

    def __init__(self, points: int, rng: np.random.Generator) -> None:
        self.taken = np.zeros(points, bool)
        self.seconds: dict[int, float] = {}  # in the order they were told
        self.failed: list[int] = []
        self._order = rng.permutation(points)
        self._next = 0

    @property
    def left(self) -> int:
        """Points that nobody asked for."""
        return len(self.taken) - int(self.taken.sum())

    @property
    def asked(self) -> int:
        return int(self.taken.sum())

    def take(self, point: int) -> int:
        assert not self.taken[point], f"point {point} was handed out before"
        self.taken[point] = True
        return point

    def draw(self) -> int | None:
        """A random point that is not taken, without taking it; None at the end of the space."""
        while self._next < len(self._order) and self.taken[self._order[self._next]]:
            self._next += 1
        return int(self._order[self._next]) if self._next < len(self._order) else None

    def draw_many(self, count: int) -> list[int]:
        """Up to ``count`` random points, taken."""
        points: list[int] = []
        while len(points) < count and (point := self.draw()) is not None:
            points.append(self.take(point))
        return points

    def take_each(self, propose: Callable[[], int], count: int) -> list[int]:
        """Up to ``count`` points that ``propose`` gives one by one, each taken before it is asked for the next."""
        points: list[int] = []
        while len(points) < count and self.left:
            points.append(self.take(propose()))
        return points

    def tell(self, point: int, seconds: float | None) -> None:
        """Note a result; a point that was never asked for, from a record, is taken by it."""
        if not 0 <= point < len(self.taken):
            raise UsageError(f"point {point} of a space of {len(self.taken)} points")
        if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
            raise UsageError(f"point {point} took {seconds} s: a positive time, or None for a failure, expected")
        self.taken[point] = True
        if seconds is not None:
            self.seconds[point] = seconds
            if point in self.failed:
                self.failed.remove(point)
        elif point not in self.seconds and point not in self.failed:
            self.failed.append(point)

    def best(self, count: int) -> list[int]:
        """The fastest points, fastest first."""
        return sorted(self.seconds, key=self.seconds.__getitem__)[:count]
