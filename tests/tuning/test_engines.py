"""One search over several engines: every point once, the default of each first, the faster engine more often."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from gpucomp.tuning.engines import Engines, sources
from gpucomp.tuning.samplers import named
from gpucomp.tuning.samplers.ask_tell import AskTell
from tests.tuning.test_study import task


def two_engines():
    """A task with a second engine, which has fewer schedules."""
    subject = task()
    first = subject.engines[0]

    class Few(first.space):
        pass

    Few.params = tuple(
        dataclasses.replace(p, choices=p.choices[: 2 if p.name in ("mr", "nv", "kc") else 1])
        if p.name != "lanes"
        else p
        for p in first.params
    )
    smallest = Few(**{q.name: q.choices[0] for q in Few.params})
    second = dataclasses.replace(first, engine="small", space=Few, default=lambda p, limits: smallest)
    subject.engines = (first, second)
    return subject


@pytest.fixture
def table():
    return Engines(two_engines(), most=60)


def test_rows_and_candidates_go_both_ways(table):
    titles = Counter()
    for row in range(len(table)):
        candidate = table.candidate(row)
        titles[candidate.family.title] += 1
        assert table.row(candidate.key) == row

    assert len(titles) == 2
    assert table.row(("nobody", ())) is None


def made(table, name, seed=0):
    points = named.points_of(table, name)
    return AskTell(points, lambda: named.sampler(name, points, seed))


@pytest.mark.parametrize("name", ["random", "genetic", "grid", "tpe", "cmaes"])
def test_every_row_is_asked_for_once_and_legal(table, name):
    search, subject = made(table, name, 3), two_engines()
    seen = []
    while rows := search.ask(17):
        seen += rows
        for row in rows:
            candidate = table.candidate(row)
            problem = subject.problem(candidate.family)
            assert not candidate.family.reasons(candidate.schedule, problem, subject.target.limits)
            search.tell(row, None if row % 5 == 0 else 1e-3 * (1 + row % 7))

    assert sorted(seen) == list(range(len(table)))


def test_the_engine_is_a_parameter_and_each_parameter_has_one_distribution(table):
    search = made(table, "random")
    rows = [*search.ask(40), search.tell(59, None)]
    trials = search.study.get_trials(deepcopy=False)

    assert {t.params["engine"] for t in trials} == {family.title for family, _ in table.spaces}
    for row, trial in zip([*rows[:40], 59], trials, strict=True):
        candidate = table.candidate(row)
        assert trial.params == {"engine": candidate.family.title, **candidate.schedule}
        assert all(given == search.points.distributions[name] for name, given in trial.distributions.items())


@pytest.mark.parametrize("name", ["random", "tpe"])
def test_defaults_come_first(table, name):
    rows = made(table, name).ask(2)

    assert [table.place(row)[0] for row in rows] == [0, 1]
    assert all(table.spaces[n][1].default == point for n, point in map(table.place, rows))


def test_what_was_told_is_not_asked_for(table):
    search = made(table, "random")
    for row in range(0, len(table), 2):
        search.tell(row, 1e-3)
    seen = []
    while rows := search.ask(50):
        seen += rows

    assert sorted(set(seen) - set(range(1, len(table), 2))) == []


def test_the_slower_engine_is_asked_less_often(table):
    search = made(table, "random")
    counts = Counter()
    for _ in range(12):
        for row in search.ask(5):
            number, _ = table.place(row)
            counts[number] += 1
            search.tell(row, 1e-3 if number == 0 else 3e-3)

    assert counts[0] > 5 * counts[1] > 0


def test_records_of_near_problems_and_other_devices_come_first():
    subject = two_engines()
    device = {"kind": "cpu", "arch": "a", "name": "here"}
    title = subject.engines[0].title
    problem = dict(subject.problem(subject.engines[0]).numbers)

    def trial(kernel, name, m, ratio, kind="cpu"):
        return {
            "kind": "trial",
            "kernel": kernel,
            "engine": title,
            "device": {"kind": kind, "arch": "a", "name": name},
            "problem": problem | {"m": m},
            "configuration": {"mr": 1},
            "ratio": ratio,
            "invalidity": "correct",
        }

    own = subject.kernel.digest
    found = [
        trial(own, "here", 13, 0.1),
        trial("far", "here", 5000, 0.2),
        trial("near", "here", 14, 0.3),
        trial(own, "there", 13, 0.4),
        trial(own, "gpu", 13, 0.5, kind="cuda"),
    ]

    near = sources(found, subject, device)[title]

    assert [trials[0][1] for trials in near] == [0.4, 0.3, 0.2]
