"""Random search without repetition: the yardstick of the others."""

from __future__ import annotations

import numpy as np

from gpucomp.tuning.prior import Prior
from gpucomp.tuning.samplers.ledger import Ledger
from gpucomp.tuning.space import Candidates


class RandomSampler:
    """Every legal point with equal probability, each once."""

    def __init__(self, candidates: Candidates, seed: int = 0, prior: Prior | None = None) -> None:
        self.ledger = Ledger(len(candidates), np.random.default_rng(seed))

    def ask(self, count: int) -> list[int]:
        return self.ledger.draw_many(count)

    def tell(self, point: int, seconds: float | None) -> None:
        self.ledger.tell(point, seconds)
