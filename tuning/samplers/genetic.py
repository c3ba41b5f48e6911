"""A steady-state genetic algorithm: tournament selection, uniform crossover, mutation by levels, legal children only."""

from __future__ import annotations

import numpy as np
from optuna import Study
from optuna.trial import FrozenTrial

from gpucomp.tuning.prior import Prior
from gpucomp.tuning.samplers.base import PointSampler
from gpucomp.tuning.samplers.points import Points

POPULATION = 24
TOURNAMENT = 3
MUTATED = 1.0  # expected number of mutated parameters of a child
TRIES = 20  # attempts to make a new legal child before a random point is taken


class GeneticSampler(PointSampler):
    """Breeds the fastest ``POPULATION`` points of one table. A prior's fastest points are measured first."""

    def __init__(self, points: Points, seed: int = 0, prior: Prior | None = None) -> None:
        super().__init__(points, seed, prior)
        self.candidates = points.candidates
        self._first = self.prior.fastest(POPULATION // 2) if self.prior else []

    def propose(self, study: Study, trial: FrozenTrial) -> int:
        while self._first:
            if not self.ledger.taken[point := self._first.pop(0)]:
                return point
        parents = self.ledger.best(POPULATION)
        if len(self.ledger.values) >= POPULATION or (self.ledger.asked >= 2 * POPULATION and len(parents) > 1):
            for _ in range(TRIES):
                if (child := self._child(parents)) is not None:
                    return child
        return self.ledger.draw()

    def _child(self, parents: list[int]) -> int | None:
        """A new legal point, or None."""
        levels = self.candidates.ordinals
        # the population is sorted: the smallest of a few random numbers wins the tournament
        mother, father = (parents[int(self.rng.integers(len(parents), size=TOURNAMENT).min())] for _ in range(2))
        parameters = levels.shape[1]
        genes = np.where(self.rng.random(parameters) < 0.5, levels[mother], levels[father])
        for j in np.flatnonzero(self.rng.random(parameters) < MUTATED / max(parameters, 1)):
            genes[j] = self.rng.integers(len(self.candidates.levels[j]))
        values = np.array([[self.candidates.levels[j][gene] for j, gene in enumerate(genes)]], np.int64)
        row = int(self.candidates.find_all(values)[0])
        return row if row >= 0 and not self.ledger.taken[row] else None
