"""Finds a sampler by what the user gives: a name, ``package.module:Class``, or an optuna sampler."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import optuna
from optuna.samplers import BaseSampler

from gpucomp import plugins
from gpucomp.errors import FOREIGN, UsageError, not_searched, quote, wrong_argument
from gpucomp.extras import install
from gpucomp.tuning.engines import Engines
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.samplers.base import PointSampler
from gpucomp.tuning.samplers.genetic import GeneticSampler
from gpucomp.tuning.samplers.grid import GridSampler
from gpucomp.tuning.samplers.legal import STARTUP, LegalSampler
from gpucomp.tuning.samplers.model import ModelSampler
from gpucomp.tuning.samplers.points import EnginePoints, Points
from gpucomp.tuning.samplers.random import RandomSampler
from gpucomp.tuning.samplers.shared import SharedSampler
from gpucomp.tuning.space import Candidates

Wanted = str | BaseSampler
Priors = Callable[[int], Prior | None]  # by the number of an engine; 0 if there are no engines


def tpe(seed: int) -> BaseSampler:
    """Tree-structured Parzen estimators over all parameters together, with a group for each engine's parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=STARTUP, multivariate=True, group=True, constant_liar=True
        )


def cmaes(seed: int) -> BaseSampler:
    """Covariance matrix adaptation over the sizes; switches and names are sampled at random, as optuna does."""
    return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


# samplers for one table's points, and samplers for any study
OF_POINTS: dict[str, type[PointSampler]] = {
    "model": ModelSampler,
    "genetic": GeneticSampler,
    "random": RandomSampler,
    "grid": GridSampler,
}
OF_OPTUNA: dict[str, Callable[[int], BaseSampler]] = {"tpe": tpe, "cmaes": cmaes}
NUMERIC = (optuna.samplers.CmaEsSampler, optuna.samplers.QMCSampler)  # without support for categories
NAMES = (*OF_POINTS, *OF_OPTUNA)


def title(wanted: Wanted) -> str:
    """The sampler's name in records."""
    return wanted if isinstance(wanted, str) else type(wanted).__name__


def points_of(table: Candidates | Engines, wanted: Wanted) -> Points | EnginePoints:
    """The points of ``table`` in the form that the sampler supports, see ``samplers.points``."""
    kind = _kind(wanted, 0)
    numbers = isinstance(kind, NUMERIC)
    return Points(table, numbers=numbers) if isinstance(table, Candidates) else EnginePoints(table, numbers=numbers)


def check(wanted: Wanted) -> None:
    """Raise ``UsageError`` if there is no such sampler, or if it cannot be made."""
    _kind(wanted, 0)


def sampler(
    wanted: Wanted, points: Points | EnginePoints, seed: int = 0, priors: Priors = lambda number: None
) -> PointSampler:
    """A sampler of ``points``. Raises ``UsageError`` like ``check``.

    If the sampler is one of gpucomp's own, each engine gets one for its own points. Any other sampler sees the engine as one
    more parameter.
    """
    kind = _kind(wanted, seed)
    if isinstance(kind, BaseSampler):
        return LegalSampler(points, kind, seed, _first(points, priors))
    if isinstance(points, EnginePoints):
        return SharedSampler(points, lambda number: kind(points.each[number], seed + number, priors(number)), seed)
    return kind(points, seed, priors(0))


def _first(points: Points | EnginePoints, priors: Priors) -> list[int]:
    """The engines' defaults, then the points of each engine that were fastest in other records."""
    tables = [(0, points)] if isinstance(points, Points) else zip(points.table.starts, points.each, strict=True)
    defaults, fastest = [], []
    for number, (start, own) in enumerate(tables):
        if own.candidates.default is not None:
            defaults.append(start + own.candidates.default)
        if prior := priors(number):
            fastest += [start + row for row in prior.fastest(STARTUP)]
    return defaults + fastest


def _kind(wanted: Wanted, seed: int) -> type[PointSampler] | BaseSampler:
    """A class whose instances sample a table, or a ready sampler."""
    if isinstance(wanted, PointSampler):
        raise UsageError(
            f"sampler: a {type(wanted).__name__} belongs to one search space, and each kernel has its own: give the "
            f"sampler's name, one of {', '.join(NAMES)}"
        )
    found: type[PointSampler] | BaseSampler
    if isinstance(wanted, BaseSampler):
        found = copy.deepcopy(wanted)  # a copy for each search, because its state belongs to one study
    elif wanted in OF_POINTS:
        return OF_POINTS[wanted]
    else:
        found = OF_OPTUNA[wanted](seed) if wanted in OF_OPTUNA else _imported(wanted, seed)
    # optuna imports cmaes only at the first proposal, after much has been measured
    if isinstance(found, optuna.samplers.CmaEsSampler) and importlib.util.find_spec("cmaes") is None:
        raise wrong_argument(f"sampler {title(wanted)} needs cmaes: {install('tune')}", code="GPC2603")
    return found


def _imported(wanted: str, seed: int) -> type[PointSampler] | BaseSampler:
    """Import ``package.module:Class``, or what a plug-in calls ``wanted``."""
    module, _, name = plugins.SAMPLERS.get(wanted, wanted).partition(":")
    expected = f"one of {', '.join((*NAMES, *plugins.SAMPLERS))}, or package.module:Class, expected"
    if not module or not name:
        raise wrong_argument(f"sampler {quote(wanted)}: {expected}")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise wrong_argument(f"sampler {quote(wanted)}: {error}{not_searched(error, module)}; {expected}") from None
    if not (inspect.isclass(found) and issubclass(found, BaseSampler)):
        raise wrong_argument(f"sampler {quote(wanted)}: a subclass of optuna.samplers.BaseSampler expected")
    FOREIGN.setdefault(found.__module__, f"sampler {quote(wanted)}")
    if issubclass(found, PointSampler):
        return found
    given: dict[str, Any] = {"seed": seed} if "seed" in inspect.signature(found).parameters else {}
    try:
        made = found(**given)
    except (TypeError, ImportError) as error:
        raise wrong_argument(f"sampler {quote(wanted)}: its constructor failed: {error}") from None
    return made
