"""Legal points as an optuna search space: a distribution for each parameter, and a row of a table for each trial.

Optuna's distributions describe boxes; only the table knows which points of the box can run. Parameters are categorical,
over the values that occur in the table. As integers, with sizes on a logarithmic scale, TPE found far less: 0.77 instead of
0.92 of the optimum after 200 trials of the recorded spaces. For samplers without categories, such as CMA-ES, parameters with
three or more values are integers. Values between those of the table are then legal for optuna only, and a proposal there is
moved to the nearest point of the table (see ``samplers.legal``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from optuna import Trial
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from gpucomp.errors import UsageError
from gpucomp.tuning.encoding import is_size
from gpucomp.tuning.engines import Engines
from gpucomp.tuning.space import ENUMERATED, Candidates

ENGINE = "engine"  # the parameter for the engine of a trial's point

Params = Mapping[str, Any]


class Space(Protocol):
    """Legal points, numbered from 0, and their optuna parameters."""

    def __len__(self) -> int: ...

    @property
    def distributions(self) -> Mapping[str, BaseDistribution]:
        """The distributions of all parameters of any point."""
        ...

    def params(self, row: int) -> dict[str, Any]:
        """The parameters of a point, as in a trial."""
        ...

    def row(self, params: Params) -> int | None:
        """The point of a trial; None if it is not one of the points. Other parameters of the trial are ignored."""
        ...

    def lacking(self, params: Params) -> dict[str, BaseDistribution]:
        """The parameters that a trial with these must be asked for next."""
        ...

    def nearest(self, params: Params, free: np.ndarray, rng: np.random.Generator) -> int:
        """The nearest to ``params`` of the points that are ``free``, bool [points]; ties are broken at random.

        At least one must be free. The random tie-break matters: TPE finds 0.90 of the optimum of the recorded spaces in 100
        trials, and 0.88 if the table's order decides.
        """
        ...


class Points:
    """The rows of one table.

    numbers  whether parameters are integers, if possible
    choices  the values that a column's numbers stand for, if they are not the values themselves
    """

    def __init__(
        self,
        candidates: Candidates,
        *,
        numbers: bool = False,
        distributions: Mapping[str, BaseDistribution] | None = None,
        choices: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.candidates, self._numbers = candidates, numbers
        self._choices = {name: list(values) for name, values in (choices or {}).items()}
        if distributions is not None:
            self.distributions = dict(distributions)

    @classmethod
    def of(
        cls,
        distributions: Mapping[str, BaseDistribution],
        legal: Callable[[dict[str, Any]], bool] = lambda params: True,
    ) -> Points:
        """All ``legal`` points of a box of finite distributions.

        Raises ``UsageError`` for a distribution without steps, and for a box with too many points to try.
        """
        values = {name: _values(name, given) for name, given in distributions.items()}
        if (size := math.prod(len(each) for each in values.values())) > ENUMERATED:
            raise UsageError(f"a box of {size} points: the limit is {ENUMERATED}")
        choices = {name: each for name, each in values.items() if not all(type(value) is int for value in each)}
        names = {name for name, each in choices.items() if any(isinstance(value, str | None) for value in each)}
        rows = [
            [k if name in choices else value for name, (k, value) in zip(values, combination, strict=True)]
            for combination in itertools.product(*(enumerate(each) for each in values.values()))
            if legal({name: value for name, (_, value) in zip(values, combination, strict=True)})
        ]
        table = np.array(rows, np.int64).reshape(len(rows), len(values))
        return cls(Candidates(tuple(values), table, categories=names), distributions=distributions, choices=choices)

    def __len__(self) -> int:
        return len(self.candidates)

    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        columns = zip(self.candidates.names, self.candidates.levels, strict=True)
        return {n: distribution(v, self._numbers and n not in self.candidates.categories) for n, v in columns if len(v)}

    def params(self, row: int) -> dict[str, Any]:
        values = zip(self.candidates.names, self.candidates.values[row].tolist(), strict=True)
        return {name: self._choices[name][value] if name in self._choices else value for name, value in values}

    def row(self, params: Params) -> int | None:
        found = {}
        for name, levels in zip(self.candidates.names, self.candidates.levels, strict=True):
            if name not in params and len(levels) != 1:
                return None
            value = self._number(name, params[name]) if name in params else int(levels[0])
            if value is None or value != int(value):
                return None
            found[name] = int(value)
        return self.candidates.find(found)

    def lacking(self, params: Params) -> dict[str, BaseDistribution]:
        return {name: given for name, given in self.distributions.items() if name not in params}

    def nearest(self, params: Params, free: np.ndarray, rng: np.random.Generator) -> int:
        if (row := self.row(params)) is not None and free[row]:
            return row
        places = np.zeros(len(self.candidates.names))
        for j, (name, levels) in enumerate(zip(self.candidates.names, self.candidates.levels, strict=True)):
            value = self._number(name, params[name]) if name in params else None
            if value is not None:
                scale = np.log if levels[0] > 0 and value > 0 else np.asarray
                places[j] = np.interp(scale(value), scale(levels), np.arange(len(levels)))
        return int(rng.choice(self.candidates.nearest(places, np.flatnonzero(free))))

    def _number(self, name: str, value: Any) -> float | None:
        """The number for a value in the table's column; None if the column cannot have the value."""
        if name in self._choices:
            return self._choices[name].index(value) if value in self._choices[name] else None
        return value if isinstance(value, int | float) else None


class EnginePoints:
    """The points of several engines. The engine is a parameter too; it decides which other parameters a trial has.

    Parameters with the same name share one distribution, over the values of all engines.
    """

    def __init__(self, table: Engines, *, numbers: bool = False) -> None:
        self.table, self._numbers = table, numbers

    @cached_property
    def each(self) -> list[Points]:
        return [Points(found) for _, found in self.table.spaces]

    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        levels: dict[str, np.ndarray] = {}
        for _, found in self.table.spaces:
            for name, own in zip(found.names, found.levels, strict=True):
                levels[name] = np.union1d(levels.get(name, own), own)
        return {ENGINE: CategoricalDistribution(self._titles)} | {
            name: distribution(values, self._numbers) for name, values in levels.items()
        }

    def __len__(self) -> int:
        return len(self.table)

    def params(self, row: int) -> dict[str, Any]:
        number, point = self.table.place(row)
        return {ENGINE: self.table.spaces[number][0].title, **self.each[number].params(point)}

    def row(self, params: Params) -> int | None:
        number = self._number(params)
        point = None if number is None else self.each[number].row(params)
        return None if number is None or point is None else self.table.starts[number] + point

    def lacking(self, params: Params) -> dict[str, BaseDistribution]:
        number = self._number(params)
        names: Iterable[str] = (ENGINE,) if number is None else self.table.spaces[number][1].names
        return {name: self.distributions[name] for name in names if name not in params}

    def nearest(self, params: Params, free: np.ndarray, rng: np.random.Generator) -> int:
        wanted = self._number(params)
        for number in sorted(range(len(self.each)), key=lambda n: n != wanted):
            start = self.table.starts[number]
            own = free[start : start + len(self.each[number])]
            if own.any():
                return start + self.each[number].nearest(params, own, rng)
        raise AssertionError("no point is free")

    def _number(self, params: Params) -> int | None:
        """The number of a trial's engine."""
        return self._titles.index(params[ENGINE]) if params.get(ENGINE) in self._titles else None

    @cached_property
    def _titles(self) -> list[str]:
        return [family.title for family, _ in self.table.spaces]


def distribution(levels: np.ndarray, number: bool) -> BaseDistribution:
    """The distribution of a parameter with the values ``levels``, in rising order. Sizes with 0 for "none" stay categorical."""
    values = levels.tolist()
    if not number or len(values) < 3 or (is_size(levels) and values[0] <= 0):
        return CategoricalDistribution(values)
    if is_size(levels):
        return IntDistribution(values[0], values[-1], log=True)
    return IntDistribution(values[0], values[-1], step=math.gcd(*np.diff(levels).tolist()))


def suggest(trial: Trial, points: Space) -> int:
    """Ask ``trial`` for the parameters of a point; return its row. A sampler of ``points`` always gives one."""
    while missing := points.lacking(trial.params):
        for name, given in missing.items():
            if isinstance(given, CategoricalDistribution):
                trial.suggest_categorical(name, given.choices)
            elif isinstance(given, IntDistribution):
                trial.suggest_int(name, given.low, given.high, step=given.step, log=given.log)
            elif isinstance(given, FloatDistribution):
                trial.suggest_float(name, given.low, given.high, step=given.step, log=given.log)
    row = points.row(trial.params)
    if row is None:
        raise UsageError(f"{dict(trial.params)}: not a legal point; give the study a sampler of these points")
    return row


def _values(name: str, given: BaseDistribution) -> Sequence[Any]:
    """All values of a finite distribution. A range, because there may be too many to list."""
    if isinstance(given, CategoricalDistribution):
        return given.choices
    if isinstance(given, IntDistribution):
        return range(given.low, given.high + 1, given.step)
    if isinstance(given, FloatDistribution) and given.step is not None:
        count = round((given.high - given.low) / given.step) + 1
        if count <= ENUMERATED:
            return [given.low + k * given.step for k in range(count)]
    raise UsageError(f"parameter {name}: {given} has no steps, so its points cannot be counted")
