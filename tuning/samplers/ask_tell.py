"""A search as an optuna study, in memory or in a storage: it is asked for points and told their results.

A measured point is a complete trial whose value is seconds. A point that cannot be used, because it does not compile, is
wrong, crashes or hangs, is a pruned trial that violates the constraint ``runs``. A failed trial says nothing about its
point: a machine was lost during it, or the search ended before it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from gpucomp.errors import RecordError, UsageError, quote, wrong_argument
from gpucomp.tuning.samplers.base import PointSampler
from gpucomp.tuning.samplers.points import Space, suggest

RUNS = "runs"  # the constraint: above 0 for a point that cannot be used
REASON = "fault"  # the user attribute with the reason


class AskTell:
    """Hands out rows of ``points`` and takes seconds. The study and its sampler are made when first needed.

    make     makes the sampler
    storage  keeps the study; default: in memory
    name     of the study in the storage
    facts    user attributes of the study
    """

    def __init__(
        self,
        points: Space,
        make: Callable[[], PointSampler],
        *,
        storage: BaseStorage | None = None,
        name: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self.points, self._make, self._storage, self._name, self._facts = points, make, storage, name, dict(facts or {})
        self._running: dict[int, optuna.Trial] = {}

    @cached_property
    def sampler(self) -> PointSampler:
        return self._make()

    @cached_property
    def study(self) -> optuna.Study:
        with quiet():
            study = optuna.create_study(sampler=self.sampler, storage=self._storage, study_name=self._name)
        for name, value in self._facts.items():
            study.set_user_attr(name, value)
        return study

    def ask(self, count: int) -> list[int]:
        """Up to ``count`` rows without a trial; each becomes a running trial. Fewer only when no more are left.

        Like ``tell``, raises ``RecordError`` if the storage does not answer.
        """
        rows: list[int] = []
        with answering():
            while len(rows) < count and self.sampler.left(self.study):
                trial = self.study.ask()
                rows.append(suggest(trial, self.points))
                self._running[rows[-1]] = trial
        return rows

    def tell(
        self, row: int, seconds: float | None, *, lost: bool = False, facts: Mapping[str, Any] | None = None
    ) -> None:
        """Tell the result of a row: None if it cannot be used, or, with ``lost``, if its trial was lost.

        A row that was not asked for, for example from records, is added as a trial. ``facts`` are its user attributes.
        """
        if not 0 <= row < len(self.points):
            raise UsageError(f"point {row} of a space of {len(self.points)} points")
        if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
            raise UsageError(f"point {row} took {seconds} s: a positive time, or None for a failure, expected")
        state = TrialState.COMPLETE if seconds is not None else TrialState.FAIL if lost else TrialState.PRUNED
        constraints = {} if lost else {RUNS: 0.0 if seconds is not None else 1.0}
        with answering():
            if (trial := self._running.pop(row, None)) is not None:
                for name, value in (facts or {}).items():
                    trial.set_user_attr(name, value)
                for name, value in constraints.items():
                    trial.set_constraint(name, value)
                self.study.tell(trial, seconds, state)
                return
            params = self.points.params(row)
            distributions = {name: self.points.distributions[name] for name in params}
            self.study.add_trial(
                create_trial(
                    state=state,
                    value=seconds,
                    params=params,
                    distributions=distributions,
                    user_attrs=dict(facts or {}),
                    constraints=constraints,
                )
            )

    def close(self, why: str) -> None:
        """Let all trials that were asked for but not told fail, with the reason ``why``."""
        for row in list(self._running):
            self.tell(row, None, lost=True, facts={REASON: why})


def opened(storage: str | BaseStorage | None) -> BaseStorage | None:
    """Open a storage by its URL (``sqlite:///tuning.db``), or by the path of a journal file, whose folder is made if needed.

    Raises ``UsageError`` (GPC2032) if it cannot be opened.
    """
    if storage is None or isinstance(storage, BaseStorage):
        return storage
    expected = "a URL such as sqlite:///tuning.db, or the path of a journal file, expected"
    if "://" not in storage:
        try:
            Path(storage).parent.mkdir(parents=True, exist_ok=True)
            return JournalStorage(JournalFileBackend(storage))
        except OSError as error:
            raise wrong_argument(
                f"storage {quote(storage)}: {error.strerror or error}; {expected}", code="GPC2032"
            ) from None
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with quiet():
            return optuna.storages.get_storage(storage)
    except (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError, ValueError, OSError) as error:
        why = next(iter(str(error).splitlines()), type(error).__name__)[:300]
        raise wrong_argument(f"storage {quote(storage)}: {why}; {expected}", code="GPC2032") from error


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Turn a storage's errors, such as a full disk or a locked database, into ``RecordError`` (GPC7101)."""
    try:
        yield
    except (optuna.exceptions.StorageInternalError, OSError) as error:
        raise RecordError(f"the study cannot be written to its storage: {error}", code="GPC7101") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide optuna's log lines below warnings."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
