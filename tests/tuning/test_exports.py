"""Other tools' formats, read back as those tools read them."""

from __future__ import annotations

import json

import pytest

from gpucomp import cli
from gpucomp.errors import RecordError
from gpucomp.tuning import exports
from tests.tuning.test_records import DEVICE, trial

TIMES = {
    "compilation_time": 12.5,
    "framework": 0.0,
    "search_algorithm": 0.0,
    "validation": 3.0,
    "benchmark": 40.0,
    "runtimes": [2.0, 1.0, 3.0],
}


def record(mr, nv, **changes):
    found = trial(
        configuration={"mr": mr, "nv": nv},
        times=TIMES,
        correctness=1,
        objectives=["time"],
        measurements=[{"name": "time", "value": 2.0, "unit": "ms"}],
    )
    return {"kind": "trial", "timestamp": "2026-03-05T07:11:13.170+00:00", **found, **changes}


FOUND = [
    record(1, 2),
    record(4, 2, samples=[5e-3], ratio=0.9),
    record(4, 8, invalidity="compile", samples=[], correctness=0, measurements=[], times={"runtimes": []}),
    record(6, 8, invalidity="killed", samples=[], correctness=0, measurements=[], times={"runtimes": []}),
    record(1, 8, invalidity="correctness", samples=[], correctness=0, measurements=[], times={"runtimes": []}),
    {**record(1, 2), "kind": "launch"},
]


def exported(form, tmp_path, found=FOUND, name="x.json"):
    written = exports.export(found, form, tmp_path / name)
    return written, [path.read_text() for path, _ in written]


def test_t4_has_what_its_schema_asks_for(tmp_path):
    ((path, count),), (text,) = exported("t4", tmp_path)
    document = json.loads(text)

    allowed = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
    assert (path, count) == (tmp_path / "x.json", 5)
    assert document["schema_version"] == "1.0.0"
    for result in document["results"]:
        assert set(result) >= {"configuration", "times", "invalidity", "correctness"}
        assert result["invalidity"] in allowed
        assert isinstance(result["times"]["runtimes"], list)
        assert all({"name", "value", "unit"} <= m.keys() for m in result["measurements"])
    assert document["results"][0]["times"]["runtimes"] == [2.0, 1.0, 3.0]  # milliseconds


def test_kernel_tuner_finds_every_configuration_by_its_key(tmp_path):
    _, (text,) = exported("kernel-tuner", tmp_path)
    document = json.loads(text)

    assert text.endswith("}}}")  # by which its reader sees that the file is whole
    assert document["tune_params_keys"] == ["mr", "nv"]
    assert document["tune_params"] == {"mr": [1, 4, 6], "nv": [2, 8]}
    assert document["cache"]["1,2"]["time"] == 2.0
    assert document["cache"]["1,2"]["times"] == [2.0, 1.0, 3.0]
    assert document["cache"]["4,8"]["time"] == "CompilationFailedConfig"
    assert document["cache"]["6,8"]["time"] == "RuntimeFailedConfig"
    for key, entry in document["cache"].items():
        assert key == ",".join(str(entry[name]) for name in document["tune_params_keys"])
        assert {
            "compile_time",
            "verification_time",
            "benchmark_time",
            "strategy_time",
            "framework_time",
        } <= entry.keys()


def test_autotvm_s_log_has_a_line_a_trial(tmp_path):
    _, (text,) = exported("autotvm", tmp_path)
    lines = [json.loads(line) for line in text.splitlines()]

    assert [line["result"][1] for line in lines] == [0, 0, 3, 4, 5]  # MeasureErrorNo
    assert lines[0]["result"][0] == [2e-3, 1e-3, 3e-3]  # seconds
    assert lines[0]["config"]["entity"] == [["mr", "ot", 1], ["nv", "ot", 2]]
    assert lines[0]["input"][0] == "cpu -model=test-lake"
    assert {line["version"] for line in lines} == {0.2}


def test_optuna_opens_the_journal(tmp_path):
    optuna = pytest.importorskip("optuna")
    exported("optuna", tmp_path, name="j.log")
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "j.log")))
    (name,) = optuna.get_all_study_names(storage)
    study = optuna.load_study(study_name=name, storage=storage)

    assert study.best_params == {"mr": 1, "nv": 2}
    assert study.best_value == 2.0
    assert [t.state.name for t in study.trials] == ["COMPLETE", "COMPLETE", "PRUNED", "PRUNED", "PRUNED"]
    with pytest.raises(RecordError, match="would be added to"):
        exported("optuna", tmp_path, name="j.log")


def test_kernels_and_devices_have_files_of_their_own(tmp_path):
    more = [record(1, 2, kernel="another/../kernel"), record(1, 2, device=DEVICE | {"arch": "sm_89"}),
            record(1, 2, device=DEVICE | {"kind": "opencl"}), record(1, 2, device=DEVICE | {"name": "a b / c"}),
            record(4, 8, device=DEVICE | {"name": "a/b c"})]  # fmt: skip
    written, _ = exported("t4", tmp_path, [*FOUND, *more], name="folder")

    assert sorted(count for _, count in written) == [1, 1, 1, 1, 1, 5]
    assert all(path.parent == tmp_path / "folder" for path, _ in written)
    assert len({path for path, _ in written}) == 6


def test_the_last_trial_of_a_candidate_counts():
    found = [record(1, 2), record(1, 2, samples=[7e-3])]

    (trials,) = exports.groups(found).values()
    assert [t["samples"] for t in trials] == [[7e-3]]


def test_no_trial_is_an_error(tmp_path):
    with pytest.raises(RecordError, match="no trials to export"):
        exports.export(FOUND[-1:], "t4", tmp_path / "x.json")


@pytest.mark.parametrize("form", exports.OF_ALL)
def test_a_folder_is_refused_where_one_file_has_everything(form, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.jsonl").touch()

    for place in ("opt/", "."):
        assert cli.main(["records", "export", "r.jsonl", "--to", form, "-o", place]) == 2
        assert f"GPC2005: --output '{place}': {form} writes all trials to one file" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]
