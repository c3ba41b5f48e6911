"""A model tuned by real processes on this machine, and the commands over it."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import optuna
import pytest

import gpucomp
from gpucomp import cli, targets
from gpucomp.cli.tuned import task_table, unsteady, untried
from gpucomp.compiler import lower
from gpucomp.errors import RecordError, UsageError
from gpucomp.kernel_bench.models import model as kernel_model
from gpucomp.kernel_bench.reference import operands
from gpucomp.kernel_bench.specs import spec_of
from gpucomp.schedule import records as schedule_records
from gpucomp.tuning import choice, exports, records, specs, tuner
from gpucomp.tuning.tasks import Progress
from gpucomp.tuning.tuner import State, TuneOptions
from tests.tuning import test_study
from tests.tuning.fakes import Device
from tests.tuning.test_study import right, speeds, study

KERNEL = "matmul m=17 n=37 k=23 relu=1"


@pytest.fixture
def command(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = cli.main([str(a) for a in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def test_a_model_is_tuned_and_compiled_by_its_records(tmp_path, quick):
    states = []
    tuned = gpucomp.tune(
        specs.model(KERNEL),
        target="cpu",
        trials=6,
        records=tmp_path / "r",
        options=TuneOptions(sampler="random", builders=1, lock=tmp_path / "lock"),
        watch=lambda s: states.append(s.phase),
    )

    with records.Store(tuned.records) as store:
        found = store.read()
    kinds = [r["kind"] for r in found]
    assert kinds.count("task") == kinds.count("pick") == 1
    assert kinds.count("trial") >= 3
    assert {"search", "final", "model", "done"} <= set(states)
    assert tuned.comparison.median <= 1
    exe = gpucomp.compile(specs.model(KERNEL), target="cpu", records=tuned.records)
    assert [k.tier for k in exe.kernels] == ["record"]
    (pick,) = [r for r in found if r["kind"] == "pick"]
    assert dict(exe.kernels[0].schedule) == pick["configuration"]


def searched(folder):
    """A study whose fastest candidate is clearly faster than its default, and a run's state with it."""
    device = Device(right(test_study.KERNEL))
    made = study(folder, device)
    device.seconds = speeds(made).__getitem__
    made.batch(20)
    return made, State([made])


def test_a_search_starts_from_the_trials_of_the_files_beside_its_own(tmp_path, monkeypatch):
    made = study(tmp_path, Device(right(test_study.KERNEL)))
    theirs = {**made._fields(made.table.candidate(2), "s"), "device": made.tools.device | {"name": "another"}}
    with records.Store(tmp_path / "theirs.jsonl") as store:
        store.append("trial", theirs | {"invalidity": "correct", "samples": [1.0], "ratio": 0.5, "rendered": "r"})
    seen = []
    prior = tuner.engines.Engines.prior
    monkeypatch.setattr(tuner.engines.Engines, "prior", lambda *a: seen.append(a[-1]) or prior(*a))
    monkeypatch.setattr(schedule_records, "shipped", lambda: tmp_path / "nothing")

    (search,) = tuner._studies([made.task], made.tools, TuneOptions(sampler="random"), None)
    assert search.search.ask(1)

    past = seen[0]
    assert past[made.task.default.family.title] == [[(dict(made.table.candidate(2).schedule), 0.5)]]


def test_an_optuna_sampler_searches_and_records_say_which(tmp_path):
    made = study(tmp_path, Device(right(test_study.KERNEL)))
    own = optuna.samplers.NSGAIISampler(seed=1)

    (search,) = tuner._studies([made.task], made.tools, TuneOptions(sampler=own), None)

    assert isinstance(search.search.sampler.sampler, optuna.samplers.NSGAIISampler)
    assert len(search.search.ask(30)) == 30


def picks_in(made):
    return [r for r in made.tools.store.read() if r["kind"] == "pick"]


def whole(state, made, answer):
    """The whole-model phase where every comparison gives ``answer``."""
    made.tools.runner.ask = lambda job, arrays, limit=None: (answer, {})
    model = SimpleNamespace(path=lambda names, picks: f"{sorted(names)}", inputs={})
    _, state.compared = tuner._whole(state, model, made.tools, TuneOptions(), lambda state: None)
    return tuner._record(state, made.tools)


def test_a_short_run_leaves_an_earlier_pick_as_it_is(tmp_path, quick):
    first, state = searched(tmp_path)
    tuner._finals(state, lambda state: None)
    whole(state, first, {"rows": [[1.0, 0.7]] * 9, "anchors": [1.0]})
    (before,) = picks_in(first)
    assert before["ratio"] < 0.9

    second, state = searched(tmp_path)
    state.deadline = 0.0  # long over
    tuner._finals(state, lambda state: None)
    picks = whole(state, second, {"rows": [[1.0, 0.75]] * 9, "anchors": [1.0]})

    assert tuner._standing(state) == {second.task.kernel.digest}
    assert state.kept == frozenset()
    assert state.verdicts[second.task.kernel.digest].came == "not reached"
    assert picks_in(second) == [before]
    (line,) = task_table(state)[1:]
    assert line.rstrip().endswith(f"  earlier: {1 / before['ratio']:.2f} x")
    assert state.compared.median == 0.75  # the model that is given out has the pick
    assert [p.ratio for ps in picks.by_kernel.values() for p in ps] == [before["ratio"]]


@pytest.mark.parametrize(
    ("came", "default", "said"),
    [("not reached", True, "earlier: default"), ("not reached", False, "earlier: 2.00 x"), ("failed", False, "failed")],
)
def test_what_an_earlier_run_found_is_said_where_the_time_did_not_come_so_far(tmp_path, came, default, said):
    made, state = searched(tmp_path)
    made.known = replace(made.known, pick={"ratio": 0.5, "default": default})
    state.verdicts[made.task.kernel.digest] = choice.default_of(made, came=came)

    (line,) = task_table(state)[1:]

    assert line.rstrip().endswith(f"  {said}")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (TuneOptions(budget=40), "the budget of 40 s went to kernels that promised more; --resume goes on with them"),
        (
            TuneOptions(trials=16),
            "the budget of 16 trials went to kernels that promised more; --resume goes on with them",
        ),
        (TuneOptions(), "measuring them promised too little"),
    ],
)
def test_kernels_without_a_trial_are_counted_with_the_reason(tmp_path, options, why):
    tried, state = searched(tmp_path)
    idle = study(tmp_path / "idle", Device(right(test_study.KERNEL)))
    idle.task.seconds = tried.task.seconds / 3
    state.studies = [tried, idle]
    state.verdicts[idle.task.kernel.digest] = choice.default_of(idle, came="not reached")

    (line,) = untried(state, options)

    assert line == f"1 of 2 kernels, 25.0 % of the kernels' time, had no trial: {why}"
    assert untried(State([tried]), options) == []


@pytest.mark.parametrize(
    ("verdict", "times", "said"),
    [
        ({"is_default": True}, 1.0, "default: the search's 2.00 x was not confirmed"),
        (
            {"is_default": True, "came": "model", "alone": 0.5},
            1.0,
            "default: 2.00 x alone, but the model is no faster",
        ),
        ({"is_default": False, "ratio": 0.8}, 1.25, "1.25 x"),
        ({"is_default": True, "came": "failed"}, 2.0, "failed"),
    ],
)
def test_the_table_shows_what_the_final_measured(tmp_path, verdict, times, said):
    """A search's best that a final refutes is not shown beside the default that is kept."""
    made, state = searched(tmp_path)
    made.progress.best = 0.5
    state.verdicts[made.task.kernel.digest] = replace(choice.default_of(made), **verdict)

    header, row = task_table(state)
    place = header.index("x default")

    assert float(row[place : place + len("x default")]) == times
    assert row.rstrip().endswith(f"  {said}")


def test_a_final_that_dies_is_no_verdict(tmp_path, quick):
    made, state = searched(tmp_path)
    made.tools.runner.ask = lambda job, arrays, limit=None: ({"invalidity": "killed", "fault": "it died"}, {})

    tuner._finals(state, lambda state: None)
    picks = whole(state, made, {})

    assert state.verdicts[made.task.kernel.digest].came == "failed"
    assert picks_in(made) == []
    assert picks.by_kernel == {}


def test_a_whole_model_that_dies_is_no_verdict(tmp_path, quick):
    made, state = searched(tmp_path)
    tuner._finals(state, lambda state: None)
    assert not state.verdicts[made.task.kernel.digest].is_default

    whole(state, made, {"invalidity": "killed", "fault": "it died"})

    assert state.kept == frozenset()
    assert picks_in(made) == []


def test_a_pick_that_does_not_help_the_model_is_replaced_by_the_default_s(tmp_path, quick):
    """By a pick: were there none, another kernel's would answer for this one."""
    made, state = searched(tmp_path)
    tuner._finals(state, lambda state: None)

    picks = whole(state, made, {"rows": [[1.0, 1.3]] * 9, "anchors": [1.0]})

    (pick,) = picks.by_kernel[made.task.kernel.digest]
    (record,) = picks_in(made)
    assert tuner._standing(state) == frozenset()
    assert dict(pick.schedule) == record["configuration"] == dict(made.task.default.schedule)


@pytest.mark.parametrize(
    ("given", "budget", "trials"), [({}, 60.0, 7), ({"budget": 5.0}, 5.0, 7), ({"trials": 3}, 60.0, 3)]
)
def test_what_is_not_given_is_as_the_options_have_it(monkeypatch, given, budget, trials):
    monkeypatch.setattr(tuner, "tasks_in", lambda *a, **k: (None, []))
    monkeypatch.setattr(tuner, "search", lambda lowered, tasks, device, place, options, **more: options)

    found = gpucomp.tune("m.onnx", target="cpu", options=TuneOptions(budget=60.0, trials=7), **given)

    assert (found.budget, found.trials) == (budget, trials)


def test_the_command_tunes_goes_on_and_says_what_it_found(tmp_path, quick, command):
    options = (
        "--kernel",
        KERNEL,
        "--target",
        "cpu",
        "--sampler",
        "random",
        "--lock",
        tmp_path / "lock",
        "--builders",
        1,
    )
    code, out, err = command("tune", *options, "--trials", 3, "--records", "r", "--json", "t.json")
    report = json.loads((tmp_path / "t.json").read_text())

    assert code == 0
    assert "records: r/tuning.jsonl" in out
    assert err == ""
    assert report["tasks"][0]["trials"] >= 2
    before = len((tmp_path / "r" / "tuning.jsonl").read_text().splitlines())

    code, out, _ = command("tune", *options, "--trials", 2, "--records", "r", "--resume")
    lines = (tmp_path / "r" / "tuning.jsonl").read_text().splitlines()
    trials = [json.loads(line) for line in lines if '"kind":"trial"' in line]
    assert code == 0
    assert len(lines) > before
    assert len({json.dumps(t["configuration"]) for t in trials}) == len(trials)  # nothing twice

    code, out, _ = command("records", "show", "r")
    assert (code, str(len(trials)) in out) == (0, True)
    for form in ("t4", "kernel-tuner", "autotvm"):
        code, out, _ = command("records", "export", "r", "--to", form, "-o", f"{form}.json")
        assert (code, out) == (0, f"{len(trials)} trials -> {form}.json\n")
    code, out, _ = command("records", "prune", "r", "-o", "p.jsonl")
    assert (code, out.split(" kept, ")[1][-20:]) == (0, " removed -> p.jsonl\n")
    assert command("records", "merge", "r", "p.jsonl", "-o", "m.jsonl")[0] == 0
    assert command("records", "diff", "p.jsonl", "m.jsonl")[1] == "no difference\n"
    assert exports.groups(records.everything([tmp_path / "m.jsonl"])[0])

    (tmp_path / "m.onnx").write_bytes(specs.model(KERNEL).SerializeToString())
    count = len(records.everything([tmp_path / "m.jsonl"])[0])
    refresh = "records", "refresh", "m.jsonl", "m.onnx", "--target", "cpu", "--keep-fp32", "MatMul"
    fresh = f"nothing to refresh: {count} records, all of the engines as they are today -> m.jsonl\n"
    assert command(*refresh)[:2] == (0, fresh)
    some = "--kernel", trials[0]["kernel"][:9], "--model", "m.onnx", "--target", "cpu"
    assert command("records", "study", "r", "-o", "s.html", *some)[:2] == (0, "1 of 1 kernels and devices -> s.html\n")
    assert "source beside the winner" in (tmp_path / "s.html").read_text(encoding="utf-8")
    code, _, err = command("records", "study", "r", "-o", "s.html", "--kernel", "fft")
    assert (code, "no such kernel" in err) == (2, True)


def test_a_place_that_holds_no_records_is_a_wrong_use(command, tmp_path):
    (tmp_path / "m.onnx").write_bytes(specs.model(KERNEL).SerializeToString())

    for arguments in (["refresh", "m.onnx"], ["refresh", "m.onnx", "m.onnx"], ["prune", "m.onnx"]):
        code, _, err = command("records", *arguments)
        assert code == 2
        assert (
            "error GPC2005: PLACE 'm.onnx': a .jsonl file or a folder of records expected; for example: gpucomp" in err
        )
    code, _, err = command("records", "refresh", "m.jsonl")
    assert (code, "GPC2000: records refresh 'm.jsonl': no model given; for example: gpucomp" in err) == (2, True)


def test_a_file_that_cannot_be_written_is_an_error_of_records(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(RecordError, match="cannot be opened"):
        records.write(tmp_path / "file" / "tuning.jsonl", [])


def test_only_a_few_files_of_a_model_are_on_the_disk_at_a_time(tmp_path):
    class Exe:
        inputs, plan = (), SimpleNamespace(launches=())

        def save(self, path):
            path.touch()

    made = []
    model = tuner._Model(None, None, "fp32", tmp_path)
    model.executable = lambda picks: made.append(picks) or Exe()
    names = [frozenset(text) for text in ("", "abc", "ab", "abc", "a", "abc", "")]
    for which in names:
        path = model.path(which, which)
        assert path.exists()
        assert model.path(which, which) == path
        assert len(list(tmp_path.iterdir())) <= 1 + tuner.BUILDS

    assert made == [frozenset(text) for text in ("", "abc", "ab", "a")]  # what was asked for again was still there


def test_kernels_of_a_benchmark_are_tuned_one_after_the_other(tmp_path, quick, command):
    (tmp_path / "mine.txt").write_text("softmax:rows=5,cols=70\nreduce:op=sum,shape=6x50,axes=0\n")
    given = "--kernel", "gemm:m=7,n=24,k=13,bias", "--kernels", "mine.txt", "--target", "cpu", "--sampler", "random"

    code, out, err = command("tune", *given, "--builders", 1, "--trials", 6, "--records", "r", "--json", "t.json")

    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if " of 3: " in line] == [
        "1 of 3: gemm:m=7,n=24,k=13,bias",
        "2 of 3: softmax:rows=5,cols=70",
        "3 of 3: reduce:op=sum,shape=6x50,axes=0",
    ]
    report = json.loads((tmp_path / "t.json").read_text())
    assert [one["kernel"] for one in report] == [
        "gemm:m=7,n=24,k=13,bias",
        "softmax:rows=5,cols=70",
        "reduce:op=sum,shape=6x50,axes=0",
    ]
    for one in report:  # what a benchmark with these records compiles
        spec = spec_of(one["kernel"])
        lowered = lower(
            kernel_model(spec, operands(spec)).SerializeToString(),
            targets.resolve("cpu"),
            picks=schedule_records.load(tmp_path / "r"),
        )
        tuned = {task["kernel"] for task in one["tasks"] if task["pick"]}
        assert tuned
        assert {c.pick.kernel for item in lowered.rendered.values() if (c := item.choice).tier == "record"} == tuned


def test_a_dry_run_of_kernels_lists_them(command):
    code, out, _ = command("tune", "--kernels", "llama", "--target", "cpu", "--dry-run")

    assert code == 0
    assert "1 of 14: gemm:m=1,n=4096,k=4096" in out


def test_a_dry_run_measures_nothing(tmp_path, command):
    code, out, _ = command("tune", "--kernel", KERNEL, "--target", "cpu", "--dry-run")

    assert code == 0
    assert "candidates" in out.splitlines()[0]
    assert "candidates: the schedules that a search chooses from, up to 6000 of an engine" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((), "give a model, or one kernel"),
        (("m.onnx", "--kernel", KERNEL), "give a model, or one kernel"),
        (("--kernel", KERNEL, "--budget", "soon"), "a time such as"),
        (("--kernel", KERNEL, "--budget", "0"), "a time such as"),
        (("--kernel", "fft n=3"), "one of conv2d"),
        (("--kernel", "fft:n=3"), "no kind 'fft'"),
        (("--kernels", "nowhere.txt"), "cannot read kernels from 'nowhere.txt'"),
        (("m.onnx", "--kernels", "llama"), "give a model, or one kernel"),
        (("--kernel", "gemm:m=2,n=3,k=4", "--shapes", "a:2x4"), "are for models, not for --kernel"),
        (("--kernel", KERNEL, "--resume", "--records", "r"), "there are no records"),
    ],
)
def test_what_cannot_be_tuned_is_said_in_one_line(command, arguments, match):
    code, out, err = command("tune", "--target", "cpu", *arguments)

    assert code in (2, 3)
    assert out == ""
    assert match in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("--json", "nowhere/t.json"), "GPC2005"),
        (("--json", "."), "GPC2005"),
        (("--lock", "nowhere/lock"), "GPC2005"),
        (("--sampler", "lucky"), "one of model, genetic"),
    ],
)
def test_what_would_fail_in_the_end_is_refused_before_anything_is_measured(command, monkeypatch, arguments, match):
    monkeypatch.setattr(tuner, "tasks_in", lambda *a, **k: pytest.fail("it went on"))

    code, out, err = command("tune", "--kernel", KERNEL, "--target", "cpu", *arguments)

    assert code == UsageError.exit_code
    assert out == ""
    assert match in err.splitlines()[-1]


def test_what_can_be_written_is_not_refused(command, tmp_path):
    (tmp_path / "old.json").write_text("{}")
    for path in ("t.json", "old.json", "-"):
        options = "--target", "cpu", "--dry-run", "--json", path, "--lock", "lock", "--sampler", "grid"
        assert command("tune", "--kernel", KERNEL, *options)[0] == 0


def test_a_termination_is_an_interruption(tmp_path, command, monkeypatch):
    def terminated(*arguments, **more):
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("it went on")

    monkeypatch.setattr(tuner, "search", terminated)
    told = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    try:
        code, _, err = command("tune", "--kernel", KERNEL, "--target", "cpu")
        assert told == []
        os.kill(os.getpid(), signal.SIGTERM)  # from now on whoever had it before
        assert told == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)

    assert code == 130
    assert "continue with --resume" in err


def test_devices_of_one_name_are_rows_of_their_own():
    from gpucomp.cli.records import difference, overview

    def trial(kind, arch):
        device = {"kind": kind, "arch": arch, "name": "Xeon"}
        return {"kind": "trial", "kernel": "a" * 20, "device": device, "invalidity": "correct"}

    found = [trial("cpu", "x86-64-v3"), trial("cpu", "x86-64-v4"), trial("opencl", "x86-64-v4")]

    assert len(overview(found)) == len(overview(found[:1])) + 2
    assert len(difference(found[:1], found)) == len(difference([], found[:1])) + 1
    assert difference(found, found) == ["no difference"]


def test_times_are_seconds():
    assert [cli_tune_seconds(t) for t in ("90", "90s", "20m", "1.5h")] == [90, 90, 1200, 5400]
    for bad in ("", "m", "-3s", "nan", "inf", "1e99h"):
        with pytest.raises(UsageError):
            cli_tune_seconds(bad)


def cli_tune_seconds(text):
    from gpucomp.cli.tune import seconds

    return seconds(text)


def test_records_of_nothing_are_an_error(command):
    code, _, err = command("records", "show", "nowhere")

    assert code == RecordError.exit_code
    assert "GPC7102" in err


def test_the_default_is_its_own_best_without_a_gain_and_an_unsteady_machine_is_said(tmp_path):
    study, state = searched(tmp_path)
    (own,) = [t for t in study.trials if t["default"]]
    study.trials[:] = [own | {"ratio": 0.72}]

    assert study.best == 1
    assert study.winner.key == study.task.default.key
    assert choice.rivals(study) == []
    (told,) = unsteady(state)
    assert told.startswith(
        "Diagnosis: unstable, the default schedule beside itself differs by up to 39 %, in 1 of 1 kernel"
    )
    study.trials[:] = [own | {"ratio": 1.09}]
    assert unsteady(state) == []


def made_up(weight, *, cost=20.0, best=1.0, batches=0):
    """A study whose batches take ``cost`` seconds and find something faster, with a clock of its own."""
    progress = Progress(SimpleNamespace(weight=weight), best=best, batches=batches, seconds=batches * cost)
    one = SimpleNamespace(progress=progress, trials=[], best=best, tools=SimpleNamespace(recruited=list, runners=[1]))
    one.leaders = lambda count: ["faster"] if one.best < 1 else []

    def batch(count, in_time):
        began, measured = one.clock.now, 0
        while measured < count and in_time():
            one.clock.now += cost / count
            measured += 1
        one.best = 0.8
        progress.after(0.8, one.clock.now - began)
        return measured

    one.batch = batch
    return one


@pytest.mark.parametrize(("budget", "begun"), [(60.0, 1), (180.0, 4), (600.0, 7)])
def test_a_search_keeps_the_time_for_the_finals_of_all_that_it_begins(monkeypatch, budget, begun):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(tuner.time, "monotonic", lambda: clock.now)
    studies = [made_up(1.0) for _ in range(7)]
    for one in studies:
        one.clock = clock
    state = State(studies, deadline=budget, started=0.0)

    tuner._search(state, TuneOptions(budget=budget), lambda state: None)

    assert sum(s.progress.batches > 0 for s in studies) == begun
    assert state.left >= 0.9 * min(sum(tuner.final_s(state, s) for s in studies if s.best < 1), budget / 2)
