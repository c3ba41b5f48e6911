"""The harness notices what hostile cases must not do: each misdeed is blamed on its case, and on no other."""

import pytest

from tests.hostile import corpus, harness, misdeeds, worker
from tests.hostile.corpus import Case


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    cases = misdeeds.everything()
    slept = ["misdeeds/sleeps"]  # which is waited for as long as patience lasts
    others = [name for name in cases if name not in slept]
    found = {}
    for names, patience in ((others, 30), (slept, 3)):
        folder = tmp_path_factory.mktemp("misdeeds")
        found |= harness.outcomes([cases[name] for name in names], folder, misdeeds.__name__, patience=patience)
    return harness.complaints(cases, found)


@pytest.mark.parametrize("name", misdeeds.ACTS)
def test_a_misdeed_is_noticed_and_nothing_else_is(name, complaints):
    expected = misdeeds.ACTS[name][2]

    own = [line for line in complaints if line.startswith(f"misdeeds/{name}:")]

    assert any(expected in line for line in own) if expected else own == []


def test_a_slower_machine_is_given_more_time_and_a_faster_one_no_less(monkeypatch):
    times = iter([9.0, 4 * worker.PROBE, 3 * worker.PROBE, 0.0, 0.0])
    monkeypatch.setattr(worker, "probe", lambda: next(times))
    clock = worker.Clock()

    assert clock.seconds() == clock.seconds() == pytest.approx(3 * worker.SECONDS)
    monkeypatch.setattr(worker.time, "monotonic", lambda: float("inf"))
    assert clock.seconds() == worker.SECONDS


def test_a_message_without_what_it_has_to_mention_is_noticed():
    case = Case("group/name", lambda folder: lambda: None, "GPC3001", "'w'")
    result = {"code": "GPC3001", "message": "GPC3001 tensor 'v'", "faults": []}

    assert harness.complaints({case.name: case}, {case.name: result}) != []
    assert harness.complaints({case.name: case}, {case.name: result | {"message": "GPC3001 tensor 'w'"}}) == []


def test_two_cases_of_one_name_are_refused(monkeypatch):
    monkeypatch.setattr(corpus, "CASES", {})
    corpus.add("group/name", "GPC3001", lambda folder: lambda: None)

    with pytest.raises(ValueError, match="twice"):
        corpus.add("group/name", "GPC3002", lambda folder: lambda: None)
