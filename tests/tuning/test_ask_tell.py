"""A search as an optuna study: states, constraints and attributes of its trials, its storages, and no optuna at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from gpucomp import cli
from gpucomp.errors import RecordError, UsageError
from gpucomp.tuning import records, specs
from gpucomp.tuning.samplers.ask_tell import REASON, RUNS, AskTell, opened
from gpucomp.tuning.samplers.grid import GridSampler
from gpucomp.tuning.samplers.points import Points
from tests.tuning.fakes import Builders, Device
from tests.tuning.spaces import made, table
from tests.tuning.test_study import KERNEL, right, study, texts

SPACE = table(*[[a, b] for a in (1, 2, 4, 8) for b in (0, 1)], names=("tile", "fast"))
SPEC = "matmul m=17 n=37 k=23 relu=1"


def trials(search, state=None):
    found = search.study.get_trials(deepcopy=False)
    return [trial for trial in found if state in (None, trial.state)]


def test_what_is_asked_for_runs_and_what_is_told_is_finished_with_its_reason():
    search = made("grid", SPACE)

    rows = search.ask(4)
    search.tell(2, 3e-3, facts={"source": "abc"})
    search.tell(0, None, facts={REASON: "no register is left"})
    search.tell(1, None, lost=True, facts={REASON: "the machine went down"})
    search.tell(7, 1e-3)  # of a record

    assert rows == [0, 1, 2, 3]
    found = trials(search)
    assert [t.state for t in found] == [
        TrialState.PRUNED,
        TrialState.FAIL,
        TrialState.COMPLETE,
        TrialState.RUNNING,
        TrialState.COMPLETE,
    ]
    assert [t.params for t in found] == [SPACE.schedule(row) for row in (0, 1, 2, 3, 7)]
    assert [t.value for t in found] == [None, None, 3e-3, None, 1e-3]
    assert [t.constraints for t in found] == [{RUNS: 1.0}, {}, {RUNS: 0.0}, {}, {RUNS: 0.0}]
    assert found[0].user_attrs == {REASON: "no register is left"}
    assert found[2].user_attrs == {"source": "abc"}
    assert search.study.best_params == SPACE.schedule(7)
    assert search.ask(9) == [4, 5, 6]


def test_what_is_not_measured_in_the_end_failed():
    search = made("random", SPACE)
    rows = search.ask(3)
    search.tell(rows[1], 1.0)

    search.close("the budget ended")
    search.close("twice")

    assert {t.user_attrs[REASON] for t in trials(search, TrialState.FAIL)} == {"the budget ended"}
    assert len(trials(search, TrialState.FAIL)) == 2
    assert trials(search, TrialState.RUNNING) == []


@pytest.mark.parametrize("name", ["model", "random", "tpe"])
def test_a_trial_is_read_a_few_times_however_many_there_are(monkeypatch, name):
    """Else a search of ten thousand would spend its time in reading what it knows."""
    reads = []
    row = Points.row
    monkeypatch.setattr(Points, "row", lambda *a: reads.append(1) or row(*a))
    search = made(name, table(*[[a, b] for a in range(20) for b in range(20)]))

    for count in (100, 200):
        reads.clear()
        while len(trials(search, TrialState.COMPLETE)) < count:
            for point in search.ask(20):
                search.tell(point, 1.0 + point % 13)
        assert len(reads) < 6 * 100


def test_a_search_that_is_never_asked_makes_no_study():
    def never():
        pytest.fail("the space was gone through")

    AskTell(Points(SPACE), never).close("the end")


def sqlite(folder):
    return f"sqlite:///{folder / 'tuning.db'}"


def journal(folder):
    return str(folder / "new" / "journal.log")


def loaded(text):
    return JournalStorage(JournalFileBackend(text)) if "://" not in text else optuna.storages.RDBStorage(text)


@pytest.mark.parametrize("where", [sqlite, journal])
def test_a_storage_has_what_a_search_in_memory_has(tmp_path, where):
    """The same points in the same order, each known to whoever watches as soon as it is asked for or told."""
    text = where(tmp_path)
    points = Points(SPACE)
    here = made("model", SPACE)
    search = AskTell(points, here._make, storage=opened(text), name="a kernel", facts={"label": "MatMul"})
    for number in range(3):
        for row in [*here.ask(2), 7][: 2 + (number == 2)]:
            here.tell(row, 1e-3 * (1 + row)) if row % 3 else here.tell(row, None, facts={REASON: "wrong"})
        for row in [*search.ask(2), 7][: 2 + (number == 2)]:
            search.tell(row, 1e-3 * (1 + row)) if row % 3 else search.tell(row, None, facts={REASON: "wrong"})
    search.ask(1)

    watching = optuna.load_study(study_name="a kernel", storage=loaded(text))

    assert watching.user_attrs == {"label": "MatMul"}
    seen = watching.get_trials(deepcopy=False)
    assert [t.state for t in seen] == [*(t.state for t in trials(here)), TrialState.RUNNING]
    for theirs, ours in zip(seen, trials(here), strict=False):
        assert (theirs.params, theirs.value, theirs.constraints) == (ours.params, ours.value, ours.constraints)
        assert theirs.user_attrs == ours.user_attrs


@pytest.mark.parametrize(
    "text",
    ["sqlite:///no/such/folder/x.db", "file/journal.log", "nothing://x", "postgresql://nobody@127.0.0.1:1/x"],
)
def test_a_storage_that_cannot_be_opened_is_refused_with_what_is_expected(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match=r"GPC2032 storage .*; a URL such as sqlite:///tuning.db") as found:
        opened(text)

    assert found.value.code == "GPC2032"


def test_a_storage_that_is_lost_is_said_in_one_line(tmp_path):
    storage = opened(sqlite(tmp_path))
    search = AskTell(Points(SPACE), lambda: GridSampler(Points(SPACE)), storage=storage, name="s")
    (row,) = search.ask(1)
    storage.remove_session()
    (tmp_path / "tuning.db").write_bytes(b"no database")

    with pytest.raises(RecordError, match="the study cannot be written to its storage"):
        search.tell(row, 1.0)


def test_trials_of_a_kernel_say_what_their_records_say(tmp_path):
    device = Device(right(KERNEL))
    bad = texts(study(tmp_path / "a", device))[3]
    search = study(tmp_path / "b", device, builders=Builders(lambda text: "no register is left" if text == bad else ""))
    search.batch(20)
    again = study(tmp_path / "b", device)
    again.prepare()

    for one in (search, again):
        found = {search.search.points.row(t.params): t for t in trials(one.search)}
        assert {t.params["engine"] for t in found.values()} == {search.task.default.family.title}
        assert (found[3].state, found[3].value) == (TrialState.PRUNED, None)
        assert found[3].user_attrs[REASON] == "no register is left"
        assert found[3].user_attrs["invalidity"] == "compile"
        for record in search.trials:
            row = search.table.row((record["engine"], tuple(sorted(record["configuration"].items()))))
            if record["invalidity"] == "correct":
                assert found[row].value == pytest.approx(record["ratio"] * search.anchor_s)
                assert found[row].user_attrs["source"] == record["source"]


def test_what_was_lost_fails_and_violates_nothing(tmp_path):
    device = Device(right(KERNEL))
    made = study(tmp_path, device)
    made.prepare()
    fields = made._fields(made.table.candidate(5), "s")
    record = made.tools.store.append(
        "trial",
        fields
        | {"invalidity": "killed", "fault": "the machine left", "samples": [], "rendered": "r", "transient": True},
    )

    made._tell(made.table.candidate(5), record)

    (lost,) = trials(made.search, TrialState.FAIL)
    assert lost.user_attrs[REASON] == "the machine left"
    assert lost.constraints == {}


def test_the_command_keeps_its_studies_in_a_storage(tmp_path, monkeypatch, capfd):
    """Each run has a study a kernel; what the second knows from records is in its study, and measured once."""
    monkeypatch.chdir(tmp_path)
    common = (
        "tune",
        "--kernel",
        SPEC,
        "--target",
        "cpu",
        "--lock",
        "lock",
        "--builders",
        "1",
        "--storage",
        "sqlite:///t.db",
    )
    assert cli.main([*common, "--trials", "3", "--sampler", "tpe"]) == 0
    assert cli.main([*common, "--trials", "2", "--sampler", "optuna.samplers:RandomSampler", "--resume"]) == 0
    capfd.readouterr()

    with records.Store(tmp_path / "tuning-records" / "tuning.jsonl") as store:
        measured = [r for r in store.read() if r["kind"] == "trial"]
    first, second = sorted(
        optuna.get_all_study_summaries(storage="sqlite:///t.db"), key=lambda s: s.user_attrs["sampler"], reverse=True
    )
    assert (first.user_attrs["sampler"], second.user_attrs["sampler"]) == ("tpe", "optuna.samplers:RandomSampler")
    assert first.user_attrs["device"]["kind"] == "cpu"
    found = optuna.load_study(study_name=second.study_name, storage="sqlite:///t.db").get_trials(deepcopy=False)
    assert not any(t.state is TrialState.RUNNING for t in found)
    known = {t.user_attrs["timestamp"] for t in found if "timestamp" in t.user_attrs}
    assert known == {r["timestamp"] for r in measured}
    assert {r["tuner"] for r in measured} == {"tpe", "optuna.samplers:RandomSampler"}


WITHOUT = """
import sys
sys.modules["optuna"] = None
from gpucomp.cli import main
sys.exit(main(sys.argv[1:]))
"""


def without_optuna(*arguments, folder):
    environment = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])}
    command = [sys.executable, "-c", WITHOUT, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("command", [("tune", "--kernel", SPEC, "--target", "cpu"), ("replay", "cache.json")])
def test_without_optuna_a_search_says_how_to_install_it(tmp_path, command):
    ran = without_optuna(*command, folder=tmp_path)

    assert ran.returncode == UsageError.exit_code
    assert ran.stderr.splitlines()[-1].startswith(
        "error GPC2603: this needs optuna: pip install 'optuna>=5' 'cmaes>=0.13'"
    )
    assert "Traceback" not in ran.stderr


def test_compiling_with_records_needs_no_optuna(tmp_path):
    device = Device(right(KERNEL))
    study(tmp_path / "records", device).batch(3)
    (tmp_path / "m.onnx").write_bytes(specs.model(SPEC).SerializeToString())

    arguments = "compile", "m.onnx", "--target", "cpu", "--records", "records", "-o", "m.gpuc"
    ran = without_optuna(*arguments, folder=tmp_path)
    shown = without_optuna("records", "show", "records", folder=tmp_path)

    assert (ran.returncode, ran.stderr.count("optuna")) == (0, 0)
    assert (tmp_path / "m.gpuc").exists()
    assert shown.returncode == 0
