"""Optuna's tree-structured Parzen estimator, made to see nothing but legal points that nobody had.

Left alone it proposes what cannot run and what it had before, and learns nothing from either. Here its proposal is
moved to the nearest legal free point, and only that one enters the study. A failure enters with the worst time and a
violated constraint, so that it is known to be infeasible and not taken for slow.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from gpucomp.errors import UsageError
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.samplers.ledger import Ledger
from gpucomp.tuning.space import Candidates

STARTUP = 10  # random trials; with a prior, its fastest
FREE = 4096  # free points that a proposal is compared with, of a larger space a sample


class TpeSampler:
    """Multivariate TPE over the levels of the parameters, as categories: as integers it found less.

    Raises ``UsageError`` without optuna (``gpucomp[tune]``).
    """

    def __init__(self, candidates: Candidates, seed: int = 0, prior: Prior | None = None) -> None:
        try:
            import optuna
        except ImportError:
            raise UsageError("sampler 'tpe' needs optuna: pip install 'gpucomp[tune]'", code="GPC2603") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.candidates = candidates
        self.rng = np.random.default_rng(seed)
        self.ledger = Ledger(len(candidates), self.rng)
        self._optuna = optuna
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, multivariate=True)
        self._study = optuna.create_study(sampler=sampler)
        self._levels: dict[str, Any] = {
            name: optuna.distributions.CategoricalDistribution(tuple(range(len(levels))))
            for name, levels in zip(candidates.names, candidates.levels, strict=True)
            if len(levels) > 1
        }
        self._first = prior.fastest(STARTUP) if prior else []

    def ask(self, count: int) -> list[int]:
        return self.ledger.take_each(self._one, count)

    def tell(self, point: int, seconds: float | None) -> None:
        self.ledger.tell(point, seconds)
        worst = max(self.ledger.seconds.values(), default=1.0)
        names, ordinals = self.candidates.names, self.candidates.ordinals[point]
        params = {name: int(k) for name, k in zip(names, ordinals, strict=True) if name in self._levels}
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=params,
                distributions=self._levels,
                value=float(np.log(worst if seconds is None else seconds)),
                constraints={"runs": 1.0 if seconds is None else 0.0},
            )
        )

    def _one(self) -> int:
        while self._first:
            if not self.ledger.taken[point := self._first.pop(0)]:
                return point
        if len(self.ledger.seconds) + len(self.ledger.failed) < STARTUP or not self._levels:
            point_or_none = self.ledger.draw()
            assert point_or_none is not None  # ask() calls as long as points are left
            return point_or_none
        trial = self._study.ask(self._levels)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)  # the proposal; its neighbour is measured
        wanted = np.array([trial.params.get(name, 0) for name in self.candidates.names])
        free = np.flatnonzero(~self.ledger.taken)
        if len(free) > FREE:
            free = self._sample(free, wanted)
        return self.candidates.nearest(wanted, free)

    def _sample(self, free: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """The wanted point itself where it is free, else a sample of the free ones."""
        values = np.array([[levels[k] for levels, k in zip(self.candidates.levels, wanted, strict=True)]], np.int64)
        row = int(self.candidates.find_all(values)[0])
        if row >= 0 and not self.ledger.taken[row]:
            return np.array([row])
        return self.rng.choice(free, FREE, replace=False)
