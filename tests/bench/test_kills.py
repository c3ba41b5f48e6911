"""A tuner whose processes are killed, in a short form; and that what the loop looks for would be seen."""

from __future__ import annotations

import random

import pytest

from bench import kills
from bench.kills import Broken, History, Tally, faults
from gpucomp.refusal import Refusal
from gpucomp.schedule import records as reading
from gpucomp.tuning.records import Store, key_of

DEVICE = {"kind": "cpu", "arch": "a", "name": "b"}


def launch(number, kind="launch"):
    return {
        "kind": kind,
        "kernel": "k",
        "device": DEVICE,
        "engine": "e",
        "configuration": {"tile": number},
        "timestamp": "2026-03-05T07:11:13+00:00",
    }


def trial(number, invalidity="correct"):
    samples = {"samples": [0.5], "ratio": 0.5} if invalidity == "correct" else {"samples": []}
    return launch(number, "trial") | {
        "invalidity": invalidity,
        "template": "t",
        "source": "s",
        "rendered": "r",
        **samples,
    }


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ([launch(7), trial(7), launch(2), trial(2, "killed"), launch(3)], []),
        ([launch(7), launch(7), trial(7)], []),  # the default may be tried twice
        ([launch(7), launch(2, "release"), launch(2), launch(2, "release"), launch(2), trial(2)], []),
        ([launch(7), launch(7), launch(7)], ["launched again after its process had been killed"]),
        ([launch(7), trial(7), launch(7), trial(7)], ["launched again after it had been measured"]),
        ([launch(7), trial(7), launch(2), launch(2)], ["launched again after its process had been killed"]),
        (
            [launch(7), trial(7), launch(2), trial(2, "killed"), launch(2)],
            ["launched again after its process had been killed"],
        ),
        (
            [launch(7), trial(7), launch(2), trial(2, "timeout"), launch(2)],
            ["launched again after its process had been killed"],
        ),
        ([launch(7), trial(7), launch(2), trial(2), launch(2)], ["launched again after it had been measured"]),
    ],
)
def test_a_killer_that_is_met_again_is_a_fault(found, wrong):
    said = list(faults(found, key_of(launch(7))))
    assert [part in line for part, line in zip(wrong, said, strict=True)] == [True] * len(wrong)


@pytest.fixture
def history(tmp_path):
    path = tmp_path / "r.jsonl"
    with Store(path) as store:
        for number in range(3):
            store.append("launch", launch(number))
            store.append("trial", trial(number))
    made = History(path)
    made.look()
    return made


def test_a_line_that_is_gone_is_a_fault(history):
    history.path.write_bytes(b"".join(history.path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(Broken, match="is gone or has changed"):
        history.look()


def test_a_trial_that_was_told_of_and_is_not_there_is_a_fault(history):
    history.told = 4
    with pytest.raises(Broken, match="3 trials in the records, but the tuner had reported 4"):
        history.look()


def test_a_line_that_is_no_record_is_a_fault_unless_it_was_torn(history):
    with history.path.open("ab") as file:
        file.write(b"nonsense\n")
    with pytest.raises(Broken, match="1 lines are not records, but only 0 were torn"):
        history.look()


@pytest.mark.parametrize("how", kills.TORN)
def test_a_torn_line_is_repaired_by_the_next_and_costs_no_other(history, how, monkeypatch):
    monkeypatch.setattr(kills, "TORN", (how,))
    history.told = 3
    assert history.tear(random.Random(5))
    history.look()
    with Store(history.path) as store:
        store.append("launch", launch(9))
        store.append("trial", trial(9))

    history.look()
    read = [record for _, record in reading.read(history.path)]
    assert sum(isinstance(record, Refusal) for record in read) == 1
    assert [r["configuration"]["tile"] for r in read if r and r["kind"] == "trial"] == [0, 1, 9]


def test_a_tuner_whose_processes_are_killed_five_times_keeps_its_promises(tmp_path):
    tally = Tally()
    kills.killed_round(tmp_path, random.Random(4), tally, 5, trials=5)

    assert tally.kills.total() == 5 or tally.given_up
    assert tally.trials >= 5 or tally.given_up


def test_a_tuner_on_a_full_disk_says_so_keeps_what_it_has_and_goes_on_later(tmp_path):
    tally = Tally()
    kills.full_disk(tmp_path, tally, trials=4)

    assert tally.full_disks == 1
