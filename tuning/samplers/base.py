"""Samplers of legal points for any optuna study with one objective: no point twice, no illegal point, and an end.

A sampler's state comes from the study. Before it proposes a point, it reads the trials that are new: running ones, whoever
asked for them, finished ones, and trials that were added or enqueued by hand. So several trials can be in flight at once,
and a study that was loaded from its storage can be continued.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.samplers import RandomSampler as Independent
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from gpucomp.errors import UsageError
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.samplers.ledger import Ledger
from gpucomp.tuning.samplers.points import Space


class PointSampler(BaseSampler, ABC):
    """Samples the rows of ``points``; a subclass chooses the next one. Deterministic, given the seed and the study's trials.

    Trials that failed, that were pruned with a violated constraint, or whose value is infinite teach the sampler which points
    to avoid. The point of any other pruned trial is just not proposed again. Parameters of a trial that the points do not
    have are sampled at random. ``prior`` has measurements of other devices or problems, for samplers that learn from them. An
    instance serves one study.
    """

    def __init__(self, points: Space, seed: int = 0, prior: Prior | None = None) -> None:
        self.points = points
        self.prior = prior if prior else None
        self.rng = np.random.default_rng(seed)
        self.ledger = Ledger(len(points), self.rng)
        self._others = Independent(seed)
        self._lock = threading.RLock()
        self._study: str | None = None
        self._sign = 1.0
        self._read = 0  # number of trials read so far
        self._open: dict[int, int | None] = {}  # those that were not finished when they were read, with their points

    @abstractmethod
    def propose(self, study: Study, trial: FrozenTrial) -> int:
        """The point to measure next, which must not be taken. There is at least one."""

    def take(self, point: int) -> None:
        """Note that ``point`` is being measured."""
        self.ledger.take(point)

    def tell(self, point: int, value: float | None) -> None:
        """Note the result of ``point``: smaller is better; None for a failure."""
        self.ledger.tell(point, value)

    def left(self, study: Study) -> int:
        """The number of points without a trial in ``study``."""
        with self._lock:
            self._catch_up(study)
            return self.ledger.left

    # optuna's interface

    def reseed_rng(self) -> None:
        self.rng = np.random.default_rng()
        self._others.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(self.points.distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        with self._lock:
            self._catch_up(study, trial.number)
            if (row := self.points.row(trial.system_attrs.get("fixed_params", {}))) is None:
                if not self.ledger.left:
                    raise UsageError(f"each of the {len(self.points)} points has a trial: there is none to propose")
                free = ~self.ledger.taken  # a copy: a sampler of several tables takes what it proposes
                row = self.propose(study, trial)
                if not (0 <= row < len(free) and free[row]):
                    raise UsageError(
                        f"sampler {type(self).__name__} proposed point {row!r}, which is taken or not there"
                    )
            if not self.ledger.taken[row]:
                self.take(row)
            return self.points.params(row)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._others.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """End ``Study.optimize`` when no point is left. With ask and tell, check ``left`` instead."""
        if not self.left(study):
            with contextlib.suppress(RuntimeError):  # not called from optimize
                study.stop()

    def _catch_up(self, study: Study, asking: int | None = None) -> None:
        """Read the new trials and those that were not finished yet, except the one that is ``asking``."""
        # from the storage: a sampler may be given a part of the study (Hyperband), where trial numbers are not indices
        name = study._storage.get_study_name_from_id(study._study_id)
        if self._study is None:
            self._raise_error_if_multi_objective(study)
            self._study = name
            self._sign = -1.0 if study.direction is StudyDirection.MAXIMIZE else 1.0
        elif self._study != name:
            raise UsageError("a sampler of points serves one study: make another one for this study")
        trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
        before, self._open = self._open, {}
        for trial in [*(trials[number] for number in before), *trials[self._read :]]:
            finished = trial.state.is_finished()
            row = before.get(trial.number)
            if row is None or finished:  # a running trial gets its parameters one by one
                row = None if trial.number == asking else self.points.row(trial.params)
            if not finished:
                self._open[trial.number] = row
            if row is not None:
                self._note(row, trial)
        self._read = len(trials)

    def _note(self, row: int, trial: FrozenTrial) -> None:
        if trial.state is TrialState.COMPLETE:
            self.tell(row, self._sign * float(trial.value or 0.0))
        elif trial.state is TrialState.FAIL or any(value > 0 for value in trial.constraints.values()):
            self.tell(row, None)
        elif not self.ledger.taken[row]:
            self.take(row)
