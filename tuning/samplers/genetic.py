"""A steady-state genetic algorithm: tournament selection, uniform crossover, mutation by levels, legal children only."""

from __future__ import annotations

import numpy as np

from gpucomp.tuning.prior import Prior
from gpucomp.tuning.samplers.ledger import Ledger
from gpucomp.tuning.space import Candidates

POPULATION = 24
TOURNAMENT = 3
MUTATED = 1.0  # parameters of a child that change, on average
TRIES = 20  # children that are illegal or known before a random point is taken instead


class GeneticSampler:
    """The fastest ``POPULATION`` points breed; a prior's fastest are measured first."""

    def __init__(self, candidates: Candidates, seed: int = 0, prior: Prior | None = None) -> None:
        self.candidates = candidates
        self.rng = np.random.default_rng(seed)
        self.ledger = Ledger(len(candidates), self.rng)
        self._first = prior.fastest(POPULATION // 2) if prior else []

    def ask(self, count: int) -> list[int]:
        return self.ledger.take_each(self._one, count)

    def tell(self, point: int, seconds: float | None) -> None:
        self.ledger.tell(point, seconds)

    def _one(self) -> int:
        while self._first:
            if not self.ledger.taken[point := self._first.pop(0)]:
                return point
        parents = self.ledger.best(POPULATION)
        if len(self.ledger.seconds) >= POPULATION or (self.ledger.asked >= 2 * POPULATION and len(parents) > 1):
            for _ in range(TRIES):
                if (child := self._child(parents)) is not None:
                    return child
        drawn = self.ledger.draw()
        assert drawn is not None  # ask() calls as long as points are left
        return drawn

    def _child(self, parents: list[int]) -> int | None:
        """A legal point that nobody asked for, or None."""
        levels = self.candidates.ordinals
        # the population is sorted: the smallest of a few numbers is the winner of their tournament
        mother, father = (parents[int(self.rng.integers(len(parents), size=TOURNAMENT).min())] for _ in range(2))
        parameters = levels.shape[1]
        genes = np.where(self.rng.random(parameters) < 0.5, levels[mother], levels[father])
        for j in np.flatnonzero(self.rng.random(parameters) < MUTATED / max(parameters, 1)):
            genes[j] = self.rng.integers(len(self.candidates.levels[j]))
        values = np.array([[self.candidates.levels[j][gene] for j, gene in enumerate(genes)]], np.int64)
        row = int(self.candidates.find_all(values)[0])
        return row if row >= 0 and not self.ledger.taken[row] else None
