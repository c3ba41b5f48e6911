"""Any optuna sampler on legal points: its proposal is moved to the nearest legal point that was not measured yet.

By itself such a sampler would propose points that cannot run, and points again that it has had, and learn nothing from
them. The trial gets the parameters of the point that is measured, so the sampler learns from true data.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from optuna import Study
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from gpucomp.tuning.samplers.base import PointSampler
from gpucomp.tuning.samplers.points import Space

STARTUP = 10  # trials before the sampler is asked: the points to measure first, then random ones


class LegalSampler(PointSampler):
    """``sampler`` on ``points``; the points ``first`` are measured first."""

    def __init__(self, points: Space, sampler: BaseSampler, seed: int = 0, first: Iterable[int] = ()) -> None:
        super().__init__(points, seed)
        self.sampler = sampler
        self._first = list(first)

    def propose(self, study: Study, trial: FrozenTrial) -> int:
        while self._first:
            if not self.ledger.taken[point := self._first.pop(0)]:
                return point
        if len(self.ledger.values) + len(self.ledger.failed) < STARTUP:
            return self.ledger.draw()
        return self.points.nearest(self._proposal(study, trial), ~self.ledger.taken, self.rng)

    def _proposal(self, study: Study, trial: FrozenTrial) -> dict[str, Any]:
        found = self.sampler.sample_relative(study, trial, self.sampler.infer_relative_search_space(study, trial))
        while missing := self.points.lacking(found):
            for name, given in missing.items():
                found[name] = self.sampler.sample_independent(study, trial, name, given)
        return found

    def reseed_rng(self) -> None:
        super().reseed_rng()
        self.sampler.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self.sampler.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        with warnings.catch_warnings():
            # some samplers warn that they ignore constraints; points that violate them have no value anyway
            warnings.filterwarnings("ignore", "Constraints have been set")
            self.sampler.after_trial(study, trial, state, values)
        super().after_trial(study, trial, state, values)
