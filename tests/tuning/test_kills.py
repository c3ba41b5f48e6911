"""Coordinators killed at random, and candidates that take everything with them: no trial is lost, no killer met again."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter

from gpucomp.kernel.source import statements
from gpucomp.tuning import records
from tests.tuning.fakes import Device
from tests.tuning.test_study import KERNEL, Table, right, study, task, texts

KILLS, MOST_CHILDREN = 5, 200  # tests/bench/test_kills.py kills the processes of the command itself


def _search(folder, killers):
    """One coordinator: it searches to the end, says what it has, and dies of a killer."""
    said = os.open(folder / "said", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    append = records.Store.append

    def telling(store, kind, fields):
        record = append(store, kind, fields)
        if kind == "trial":
            os.write(said, f"{sorted(fields['configuration'].items())}\n".encode())
        return record

    def die(text):
        if text in killers:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.003)
        return ""

    records.Store.append = telling
    made = study(folder, Device(right(KERNEL)), die=die, count=24)
    while not made.progress.exhausted:
        made.batch(4)


def test_a_coordinator_that_is_killed_again_and_again_loses_nothing(tmp_path):
    draw, kills, fork = random.Random(7), 0, multiprocessing.get_context("fork")
    sources = texts(study(tmp_path, Device(None), count=24))
    rounds = 0
    window = 0.25  # that a child has at most; more from kill to kill, so that a slow machine's comes to its launches
    while kills < KILLS:
        folder = tmp_path / str(rounds)
        folder.mkdir()
        killers = set(draw.sample(sources[1:], 2))
        while True:
            child = fork.Process(target=_search, args=(folder, killers))
            child.start()
            child.join(draw.uniform(0.01, window))
            if child.is_alive():
                child.kill()
            child.join()
            if child.exitcode == 0:
                break
            kills, window = kills + 1, 1.1 * window
            assert kills < MOST_CHILDREN, "the children come to no end"
        rounds += 1
        _check(folder, killers)


def _check(folder, killers):
    with records.Store(folder / "records.jsonl") as store:
        found = store.read()
        assert store.damage == []
    trials = Counter(str(sorted(r["configuration"].items())) for r in found if r["kind"] == "trial")
    launches = Counter(str(sorted(r["configuration"].items())) for r in found if r["kind"] == "launch")
    said = (folder / "said").read_text().splitlines()
    assert set(said) <= set(trials)  # what was done is known
    assert max(trials.values()) == 1  # and was done once
    subject = task()
    for candidate in Table(subject, 24).rows:
        name = str(sorted(candidate.schedule.items()))
        text = subject.rendered(candidate)[0].text
        if text in killers:
            assert launches[name] <= 1
            assert not trials[name]
        elif launches[name] == 0:
            assert name in trials or _shares_its_source(subject, text, found)
        assert launches[name] <= 1 or candidate.key == subject.default.key


def _shares_its_source(subject, text, found):
    """Whether another candidate of the same source was launched."""
    launched = [dict(r["configuration"]) for r in found if r["kind"] == "launch"]
    rows = [c for c in Table(subject, 24).rows if dict(c.schedule) in launched]
    return any(statements(subject.rendered(c)[0].text) == statements(text) for c in rows)
