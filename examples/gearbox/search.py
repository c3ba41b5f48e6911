"""``python -m examples.gearbox.search``: gpucomp's samplers in an optuna study of your own. Needs ``gpucomp[tune]``.

Four toothed wheels are to turn 13.7 times slower with as little metal as possible. Both pairs share two shafts, so both
have as many teeth in sum; of 210,681 combinations 3,891 fit. That is what the samplers are for: discrete parameters of
which few combinations are legal. ``Points`` counts them once, and from then on every trial is one of them, and a new one.
"""

from __future__ import annotations

import sys
import warnings

import optuna
from optuna.distributions import BaseDistribution, IntDistribution

from gpucomp.tuning.samplers.legal import LegalSampler
from gpucomp.tuning.samplers.model import ModelSampler
from gpucomp.tuning.samplers.points import Points
from gpucomp.tuning.samplers.random import RandomSampler

RATIO = 13.7
PINION, WHEEL = IntDistribution(17, 25), IntDistribution(50, 100)
TEETH: dict[str, BaseDistribution] = {"pinion 1": PINION, "wheel 1": WHEEL, "pinion 2": PINION, "wheel 2": WHEEL}


def fits(teeth: dict[str, int]) -> bool:
    """Whether the wheels of both pairs meet."""
    return teeth["pinion 1"] + teeth["wheel 1"] == teeth["pinion 2"] + teeth["wheel 2"]


def metal(trial: optuna.Trial) -> float:
    """Square teeth of the wheels, and more of it the farther their ratio is off: an ordinary objective of optuna."""
    teeth = {name: trial.suggest_int(name, each.low, each.high) for name, each in TEETH.items()}  # type: ignore[attr-defined]
    if not fits(teeth):
        trial.set_constraint("fits", 1.0)
        raise optuna.TrialPruned
    ratio = teeth["wheel 1"] * teeth["wheel 2"] / (teeth["pinion 1"] * teeth["pinion 2"])
    return sum(n * n for n in teeth.values()) * (1 + 20 * abs(ratio / RATIO - 1))


def searched(sampler: optuna.samplers.BaseSampler, trials: int) -> optuna.Study:
    """A study of ``trials`` trials."""
    study = optuna.create_study(sampler=sampler)
    study.optimize(metal, n_trials=trials)
    return study


def main(trials: int = 100, seed: int = 0) -> dict[str, optuna.Study]:
    """Search with four samplers; a line each, and the studies by name."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    points = Points.of(TEETH, fits)
    tpe = optuna.samplers.TPESampler(seed=seed, multivariate=True)
    studies = {
        "optuna's TPE": searched(tpe, trials),
        "optuna's TPE on legal points": searched(LegalSampler(points, tpe, seed), trials),
        "gpucomp's random": searched(RandomSampler(points, seed), trials),
        "gpucomp's model": searched(ModelSampler(points, seed), trials),
    }
    for name, study in studies.items():
        done = study.get_trials(deepcopy=False)
        new = {tuple(trial.params.values()) for trial in done if trial.state is optuna.trial.TrialState.COMPLETE}
        best = f"{study.best_value:8.0f} square teeth" if new else "nothing that fits"
        print(f"{name:30s} {best}, {len(new)} of {len(done)} trials were new gearboxes that fit")
    return studies


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
