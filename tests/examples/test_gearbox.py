"""The example of a study that has nothing to do with kernels: legal points only, each once, and good ones."""

from __future__ import annotations

from examples.gearbox import search
from gpucomp.tuning.samplers.points import Points


def test_the_samplers_propose_gearboxes_that_fit_and_the_model_finds_the_best(capsys):
    points = Points.of(search.TEETH, search.fits)

    studies = search.main(trials=60, seed=0)

    for name, study in studies.items():
        rows = [points.row(trial.params) for trial in study.get_trials(deepcopy=False)]
        assert (None in rows) == (name == "optuna's TPE")
        assert len(set(rows)) == 60 or name == "optuna's TPE"
    reached = {name: study.best_value for name, study in studies.items()}
    assert reached["gpucomp's model"] < 0.8 * reached["gpucomp's random"]
    assert "60 of 60 trials were new gearboxes that fit" in capsys.readouterr().out
