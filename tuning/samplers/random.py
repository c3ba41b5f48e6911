"""Random search without repetition: the baseline for the others."""

from __future__ import annotations

from optuna import Study
from optuna.trial import FrozenTrial

from gpucomp.tuning.samplers.base import PointSampler


class RandomSampler(PointSampler):
    """Every legal point with equal probability, each once."""

    def propose(self, study: Study, trial: FrozenTrial) -> int:
        return self.ledger.draw()
