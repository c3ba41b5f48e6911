"""Exhaustive search in the order of the table: for spaces small enough to be measured whole."""

from __future__ import annotations

import numpy as np

from gpucomp.tuning.prior import Prior
from gpucomp.tuning.samplers.ledger import Ledger
from gpucomp.tuning.space import Candidates


class GridSampler:
    """Point 0, point 1, ... without those that were told already. The seed changes nothing."""

    def __init__(self, candidates: Candidates, seed: int = 0, prior: Prior | None = None) -> None:
        self.ledger = Ledger(len(candidates), np.random.default_rng(seed))

    def ask(self, count: int) -> list[int]:
        free = np.flatnonzero(~self.ledger.taken)[: max(count, 0)]
        return [self.ledger.take(int(point)) for point in free]

    def tell(self, point: int, seconds: float | None) -> None:
        self.ledger.tell(point, seconds)
