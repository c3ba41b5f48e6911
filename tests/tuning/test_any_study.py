"""The samplers in studies of others: optuna's own loop, its storages, its queue, and points that are no schedules."""

from __future__ import annotations

import warnings

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from gpucomp.errors import UsageError
from gpucomp.tuning.samplers import named
from gpucomp.tuning.samplers.legal import STARTUP, LegalSampler
from gpucomp.tuning.samplers.points import Points, suggest
from gpucomp.tuning.samplers.random import RandomSampler
from tests.tuning.spaces import table

DISTRIBUTIONS = {
    "kind": CategoricalDistribution(["oak", "pine", None]),
    "width": IntDistribution(2, 14, step=3),
    "share": FloatDistribution(0.0, 1.0, step=0.25),
    "glued": CategoricalDistribution([False, True]),
}


def legal(plank):
    return plank["width"] != 8 and not (plank["kind"] is None and plank["glued"])


def planks():
    return Points.of(DISTRIBUTIONS, legal)


def strength(trial):
    """An ordinary objective: it knows nothing of the points."""
    kind = trial.suggest_categorical("kind", ["oak", "pine", None])
    width = trial.suggest_int("width", 2, 14, step=3)
    share = trial.suggest_float("share", 0.0, 1.0, step=0.25)
    glued = trial.suggest_categorical("glued", [False, True])
    return {"oak": 3.0, "pine": 2.0, None: -1.0}[kind] * width - 4 * (share - 0.75) ** 2 - glued


def sampler_of(name, points, seed=0):
    return named.sampler(name, points, seed)


@pytest.fixture(autouse=True)
def quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


def test_points_of_a_box_are_those_that_are_legal():
    points = planks()

    assert len(points) == (3 * 2 - 1) * 4 * 5
    found = [points.params(row) for row in range(len(points))]
    assert all(map(legal, found))
    assert [points.row(plank) for plank in found] == list(range(len(points)))
    assert points.row({**found[0], "width": 8}) is None
    assert points.row({**found[0], "kind": "elm"}) is None
    assert points.row({**found[0], "width": 2.5}) is None
    assert points.row({}) is None
    assert points.candidates.categories == {"kind"}


@pytest.mark.parametrize("given", [FloatDistribution(0, 1), IntDistribution(0, 10**9)])
def test_a_box_that_cannot_be_counted_is_refused(given):
    with pytest.raises(UsageError, match=r"no steps|a box of 1000000001 points"):
        Points.of({"x": given})


@pytest.mark.parametrize("name", sorted(named.NAMES))
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_optimize_takes_every_legal_point_once_and_stops(name, direction):
    points = planks()
    study = optuna.create_study(sampler=sampler_of(name, points, 1), direction=direction)

    study.optimize(strength, n_trials=1000)

    rows = [points.row(trial.params) for trial in study.get_trials(deepcopy=False)]
    assert sorted(rows) == list(range(len(points)))
    best = {"maximize": {"kind": "oak", "share": 0.75, "glued": False}, "minimize": {"kind": None}}[direction]
    assert study.best_params.items() >= {**best, "width": 14}.items()


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_model_learns_values_of_any_sign(direction):
    points = Points.of(
        {"x": IntDistribution(-20, 20), "y": IntDistribution(0, 30)}, lambda p: (p["x"] + p["y"]) % 2 == 0
    )
    sign = 1 if direction == "minimize" else -1

    def bowl(trial):
        x, y = trial.suggest_int("x", -20, 20), trial.suggest_int("y", 0, 30)
        return sign * ((x - 4) ** 2 + (y - 10) ** 2 - 50)

    study = optuna.create_study(sampler=sampler_of("model", points), direction=direction)
    study.optimize(bowl, n_trials=60)

    assert study.best_params == {"x": 4, "y": 10}


def test_a_trial_that_is_enqueued_is_measured_as_it_is_and_not_proposed_again():
    points = planks()
    wanted = points.params(33)
    study = optuna.create_study(sampler=sampler_of("grid", points))
    study.enqueue_trial(wanted)

    study.optimize(strength, n_trials=1000)

    trials = study.get_trials(deepcopy=False)
    assert trials[0].params == wanted
    assert [points.row(t.params) for t in trials] == [33, *(row for row in range(len(points)) if row != 33)]


@pytest.mark.parametrize("name", ["model", "random", "tpe"])
def test_two_samplers_of_one_study_propose_nothing_that_the_other_has(name):
    """As of two processes that share a storage: what is under way in one is taken for the other."""
    points = planks()
    storage = optuna.storages.InMemoryStorage()
    first = optuna.create_study(storage=storage, study_name="s", sampler=sampler_of(name, points, 1))
    second = optuna.load_study(storage=storage, study_name="s", sampler=sampler_of(name, planks(), 1))
    rows, waiting = [], []
    for number in range(len(points)):
        study = (first, second)[number % 2]
        trial = study.ask()
        rows.append(suggest(trial, points))
        waiting.append((study, trial))
        if len(waiting) > 3:
            study, trial = waiting.pop(0)
            study.tell(trial, 1.0 + rows[trial.number] % 7)

    assert sorted(rows) == list(range(len(points)))


def test_brackets_of_hyperband_are_one_study():
    """What a sampler is handed there is the part of the study that is in the trial's bracket."""
    points = planks()
    pruner = optuna.pruners.HyperbandPruner(max_resource=9)
    study = optuna.create_study(sampler=sampler_of("random", points), pruner=pruner, study_name="s")

    def reporting(trial):
        value = strength(trial)
        for step in range(9):
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study.optimize(reporting, n_trials=1000)

    rows = [points.row(trial.params) for trial in study.get_trials(deepcopy=False)]
    assert sorted(rows) == list(range(len(points)))


def test_threads_of_one_study_propose_every_point_once():
    points = planks()
    study = optuna.create_study(sampler=sampler_of("model", points))

    study.optimize(strength, n_trials=90, n_jobs=4)

    rows = [points.row(trial.params) for trial in study.get_trials(deepcopy=False)]
    assert len(set(rows)) == len(rows) == 90


def test_failures_teach_where_not_to_look_and_a_pruned_trial_alone_does_not():
    points = planks()
    sampler = sampler_of("random", points)
    study = optuna.create_study(sampler=sampler)
    fates = {0: TrialState.FAIL, 1: TrialState.PRUNED, 2: TrialState.PRUNED, 3: TrialState.COMPLETE}
    for row, state in fates.items():
        violated = {"constraints": {"fits": 1.0}} if row == 2 else {}
        value = {"value": 5.0} if row == 3 else {}
        study.add_trial(
            optuna.trial.create_trial(
                state=state, params=points.params(row), distributions=points.distributions, **value, **violated
            )
        )

    assert sampler.left(study) == len(points) - 4
    assert sampler.ledger.failed == [0, 2]
    assert sampler.ledger.values == {3: 5.0}


def test_an_end_is_said_and_a_sampler_serves_one_study_with_one_objective():
    points = Points.of({"x": IntDistribution(0, 2)})
    study = optuna.create_study(sampler=RandomSampler(points))
    for _ in range(3):
        suggest(study.ask(), points)
    with pytest.raises(UsageError, match="each of the 3 points has a trial"):
        suggest(study.ask(), points)

    with pytest.raises(UsageError, match="serves one study"):
        suggest(optuna.create_study(sampler=study.sampler).ask(), points)
    two = optuna.create_study(directions=["minimize", "minimize"], sampler=RandomSampler(points))
    with pytest.raises(ValueError, match="multi-objective"):
        suggest(two.ask(), points)


class Stubborn(optuna.samplers.BaseSampler):
    """Proposes the same point whatever it is told, legal or not."""

    wanted = {"p0": 5, "p1": 20}  # noqa: RUF012

    def infer_relative_search_space(self, study, trial):
        return {}

    def sample_relative(self, study, trial, search_space):
        return {}

    def sample_independent(self, study, trial, param_name, param_distribution):
        return self.wanted[param_name]


@pytest.mark.parametrize("wanted", [(5, 20), (5, 35), (2, 30)])
def test_what_is_illegal_or_measured_is_moved_to_the_nearest_legal_point_that_is_not(wanted, monkeypatch):
    rows = [(a, b) for a in range(8) for b in (10, 20, 40) if (a + b // 10) % 3]
    space = table(*rows)
    monkeypatch.setattr(Stubborn, "wanted", {"p0": wanted[0], "p1": wanted[1]})
    points = Points(space, numbers=True)
    study = optuna.create_study(sampler=LegalSampler(points, Stubborn(), 3))
    for _ in range(STARTUP):
        study.tell(study.ask(points.distributions), 1.0)
    taken = {points.row(t.params) for t in study.get_trials(deepcopy=False)}

    place = np.interp(np.log(wanted[1]), np.log([10, 20, 40]), [0, 1, 2])
    distance = {row: abs(a - wanted[0]) / 7 + abs((10, 20, 40).index(b) - place) / 2 for row, (a, b) in enumerate(rows)}
    while left := {row: d for row, d in distance.items() if row not in taken}:
        trial = study.ask(points.distributions)
        row = points.row(trial.params)
        assert left[row] == pytest.approx(min(left.values()))
        taken.add(row)
        study.tell(trial, 1.0)


def test_of_equally_near_points_any_is_taken():
    space = Points(table(*[[a, b] for a in range(3) for b in range(3)]))
    free = np.ones(9, bool)
    free[4] = False
    rng = np.random.default_rng(0)

    assert {space.nearest({"p0": 1, "p1": 1}, free, rng) for _ in range(60)} == {1, 3, 5, 7}


def test_two_names_are_as_far_apart_as_any_others():
    points = Points.of({"name": CategoricalDistribution(["a", "b", "c", "d"]), "n": IntDistribution(0, 3)})
    free = np.array([points.params(row)["name"] != "a" and points.params(row)["n"] == 2 for row in range(16)])
    rng = np.random.default_rng(0)

    near = {points.params(points.nearest({"name": "a", "n": 2}, free, rng))["name"] for _ in range(60)}

    assert near == {"b", "c", "d"}


@pytest.mark.parametrize(
    "wanted",
    ["optuna.samplers:NSGAIISampler", "gpucomp.tuning.samplers.random:RandomSampler", "optuna.samplers:GPSampler"],
)
def test_a_class_is_found_by_its_module(wanted):
    if wanted == "optuna.samplers:GPSampler":
        pytest.importorskip("torch")  # which optuna needs for this one alone
    space = table(*[[a, b] for a in range(5) for b in (1, 2, 4)])
    points = named.points_of(space, wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(sampler=named.sampler(wanted, points, 2))

        study.optimize(lambda trial: float(1 + suggest(trial, points)), n_trials=100)

    assert sorted(points.row(t.params) for t in study.get_trials(deepcopy=False)) == list(range(15))


@pytest.mark.parametrize("wanted", ["cmaes", "optuna.samplers:CmaEsSampler", optuna.samplers.CmaEsSampler()])
def test_without_cmaes_that_is_said_before_anything_is_measured(monkeypatch, wanted):
    monkeypatch.setattr(named.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(UsageError, match=r"needs cmaes: pip install 'optuna>=5' 'cmaes>=0.13'") as found:
        named.check(wanted)

    assert found.value.code == "GPC2603"


def test_an_instance_is_copied_for_each_search():
    """What CMA-ES and others remember is of one study."""
    points, own = planks(), optuna.samplers.RandomSampler(seed=3)

    first, second = named.sampler(own, points), named.sampler(own, points)

    assert isinstance(first, LegalSampler)
    assert first.sampler is not own
    assert first.sampler is not second.sampler
    assert named.title(own) == "RandomSampler"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("lucky", "one of model, genetic, random, grid, tpe, cmaes, or package.module:Class, expected"),
        (":Sampler", "one of model"),
        (
            "no.such.module:Sampler",
            "No module named 'no'; the current folder is not searched, PYTHONPATH=. adds it; one of",
        ),
        ("optuna.samplers:Lucky", "has no attribute 'Lucky'"),
        ("optuna.samplers:TPESampler.sample_relative", "has no attribute"),
        ("optuna.study:Study", "a subclass of optuna.samplers.BaseSampler expected"),
        ("optuna.samplers:GridSampler", "its constructor failed"),
        (RandomSampler(Points(table([1], [2]))), "belongs to one search space"),
    ],
)
def test_what_is_no_sampler_is_refused(wanted, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        named.check(wanted)
