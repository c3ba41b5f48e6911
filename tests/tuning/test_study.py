"""The search of one kernel, by a device that is made up: nothing twice, no killer again, nothing wrong chosen."""

from __future__ import annotations

import dataclasses
import time
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from gpucomp.codegen.llvm.engines import engines_of
from gpucomp.errors import RecordError, ScheduleError
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.source import statements
from gpucomp.kernel.step import KernelStep
from gpucomp.schedule.choose import choose
from gpucomp.tuning import checks, choice, records, worker
from gpucomp.tuning.engines import Engines
from gpucomp.tuning.records import Known
from gpucomp.tuning.samplers.ask_tell import AskTell
from gpucomp.tuning.samplers.grid import GridSampler
from gpucomp.tuning.samplers.points import EnginePoints
from gpucomp.tuning.space import Candidates
from gpucomp.tuning.study import Rules, Study, Tools
from gpucomp.tuning.tasks import Candidate, Progress, Task
from testing.kernels import add_relu, matmul
from tests.tuning.fakes import TARGET, Builders, Device, Runner

M, N, K = 13, 53, 11
RULES = Rules(least=3, most=3)


class Value:
    """Stands for a graph value that is no constant."""

    op, attrs = None, {}


KERNEL = matmul(M, N, K)


@cache
def chosen(kernel):
    return choose(kernel, engines_of(kernel), TARGET.limits)


def task(kernel=KERNEL):
    inputs = tuple(SimpleNamespace(op=None, attrs={}) for _ in range(kernel.inputs))
    step = KernelStep("k", kernel, inputs, (), ())
    found = chosen(kernel)
    return Task(kernel, step, TARGET, engines_of(kernel), Candidate(found.family, found.schedule), found.tier, 1, 1e-3)


def right(kernel):
    """What every program does that does as it should."""

    def compute(text, arguments, place):
        results = expected(kernel, arguments[: kernel.inputs])
        for array, result in zip(arguments[kernel.inputs :], results, strict=True):
            array[...] = result

    return compute


class Table(Engines):
    """Some legal candidates of a task; the default is the first."""

    def __init__(self, task, count=40):
        super().__init__(task)
        family = task.default.family
        base = task.default.schedule
        limits = task.target.limits
        more = [
            {**base, "mr": mr, "nv": nv, "panels": p} for mr in (1, 2, 3, 4) for nv in (1, 2, 3) for p in (1, 2, 3, 4)
        ]
        found = {task.default.key: task.default}
        for schedule in more:
            if not family.reasons(schedule, task.problem(family), limits):
                found.setdefault(Candidate(family, schedule).key, Candidate(family, schedule))
        self.rows = list(found.values())[:count]
        values = [[c.schedule[p.name] for p in family.params] for c in self.rows]
        self.spaces = [(family, Candidates([p.name for p in family.params], np.array(values), default=0))]


def in_order(table):
    """A search that proposes every row once."""
    points = EnginePoints(table)
    return AskTell(points, lambda: GridSampler(points))


def told(made):
    """By row, what the study of a search was told: seconds, None for a failure. No row is told twice."""
    trials = [t for t in made.search.study.get_trials(deepcopy=False) if t.state.is_finished()]
    found = {made.search.points.row(t.params): t.value for t in trials}
    assert len(found) == len(trials)
    return found


def study(tmp_path, device, *, subject=None, builders=None, die=lambda text: "", count=12):
    subject = subject or task()
    runner = Runner(worker.Runner(TARGET, device), die)
    store = records.Store(tmp_path / "records.jsonl")
    facts = runner.facts()
    tools = Tools(builders or Builders(), runner, store, facts, "test", 0, RULES)
    hashes = records.current_hashes(subject.engines)
    known = records.known(store.read(), facts["facts"], hashes).get(subject.kernel.digest, Known())
    table = Table(subject, count)
    return Study(subject, table, in_order(table), tools, known, Progress(subject))


_texts: dict = {}


def texts(made):
    """The sources of a study's candidates, by row."""
    key = made.task.kernel.digest, len(made.table)
    if key not in _texts:
        _texts[key] = [made.render(c)[0].text for c in made.table.rows]
    return _texts[key]


def different(made):
    """How many sources a study has: comments name the schedule, so the texts of equal ones can differ."""
    return len(set(map(statements, texts(made))))


def speeds(made, default=1e-3):
    """Every source has a time of its own, the default's a millisecond."""
    unique = sorted(set(texts(made)))
    times = {text: 1e-3 * (0.6 + 0.05 * n) for n, text in enumerate(unique)}
    times[texts(made)[0]] = default
    return times


@pytest.mark.parametrize(
    ("constants", "between", "seconds", "expected"),
    [
        ({1}, 40_000, 1e-4, (18, 20)),  # 2,332 bytes of weights: as often as 40,000 bytes need
        ({1}, 40_000, 1e-3, (10, 10)),  # as often as a sample may last
        ({1}, 40_000, 20e-3, (1, 1)),  # a launch is longer than that
        ({1}, 0, 1e-3, (4, 4)),  # of a lone kernel: twice the cache
        (set(), 40_000, 1e-3, (1, 2)),
    ],
)
def test_weights_take_turns_over_the_bytes_between_two_launches(tmp_path, constants, between, seconds, expected):
    subject = task(dataclasses.replace(KERNEL, constants=frozenset(constants)))
    subject.between, subject.seconds = between, seconds

    job, _ = study(tmp_path, Device(right(KERNEL)), subject=subject).job()

    assert (job["weight_sets"], job["launches"]) == expected
    assert job["sets"] <= job["launches"]


def test_every_candidate_is_measured_once_and_told_once(tmp_path):
    device = Device(right(matmul(M, N, K)))
    made = study(tmp_path, device)
    times = speeds(made)
    device.seconds = times.__getitem__

    while not made.progress.exhausted:
        made.batch(5)

    assert len(made.tools.runner.trials) == len(set(made.tools.runner.trials)) == different(made)
    assert set(told(made)) == set(range(len(made.table)))
    for row, seconds in told(made).items():
        assert seconds == pytest.approx(times[texts(made)[row]])
    assert made.best == pytest.approx(min(times.values()) / 1e-3)


def test_a_second_run_measures_nothing_again(tmp_path):
    device = Device(right(matmul(M, N, K)))
    first = study(tmp_path, device)
    device.seconds = speeds(first).__getitem__
    first.batch(5)

    second = study(tmp_path, device)
    while not second.progress.exhausted:
        second.batch(4)

    assert not set(first.tools.runner.trials) & set(second.tools.runner.trials)
    assert set(first.tools.runner.trials) | set(second.tools.runner.trials) == set(texts(second))
    assert second.best == pytest.approx(min(speeds(first).values()) / 1e-3)
    assert set(told(second)) == set(range(len(second.table)))


@pytest.mark.parametrize("how", ["killed", "timeout"])
def test_a_candidate_that_kills_the_runner_is_never_tried_again(tmp_path, how):
    device = Device(right(matmul(M, N, K)))
    bad = texts(study(tmp_path, device))[4]
    first = study(tmp_path, device, die=lambda text: how if text == bad else "")
    first.batch(20)
    second = study(tmp_path, device)
    second.batch(20)

    assert first.tools.runner.trials.count(bad) == 1
    assert first.progress.invalid == {how: 1}
    assert second.tools.runner.trials == []
    assert told(second)[4] is None


def test_an_interruption_loses_no_trial_and_blames_nobody(tmp_path):
    device = Device(right(matmul(M, N, K)))
    stop = texts(study(tmp_path, device))[4]
    first = study(tmp_path, device, die=lambda text: "interrupt" if text == stop else "")
    with pytest.raises(KeyboardInterrupt):
        first.batch(20)
    second = study(tmp_path, device)
    second.batch(20)

    done = first.tools.runner.trials[:-1]
    assert len(done) >= 3
    assert not set(done) & set(second.tools.runner.trials)
    assert stop in second.tools.runner.trials


def test_one_that_was_under_way_when_everything_died_is_not_tried_again(tmp_path):
    device = Device(right(matmul(M, N, K)))
    first = study(tmp_path, device)
    first.batch(3)
    suspect = first.table.candidate(5)
    first.tools.store.append("launch", first._identity(suspect))  # and then the machine went down
    second = study(tmp_path, device)
    second.batch(20)

    assert second.render(suspect)[0].text not in second.tools.runner.trials
    assert told(second)[5] is None


def test_a_default_that_ends_its_process_is_tried_once_more_and_then_no_more(tmp_path):
    device = Device(right(KERNEL))
    for tries in range(3):
        made = study(tmp_path, device, die=lambda text: "killed")
        made.batch(3)
        assert made.progress.exhausted
        assert len(made.tools.runner.trials) == (2 if tries < 1 else 0)

    with records.Store(tmp_path / "other" / "records.jsonl") as store:
        fields = made._identity(made.task.default)
        store.append("launch", fields)
    assert study(tmp_path / "other", device).batch(3) == 3
    with records.Store(tmp_path / "more" / "records.jsonl") as store:
        for _ in range(2):
            store.append("launch", fields)
    made = study(tmp_path / "more", device)
    assert made.batch(3) == 0
    assert "launched 2 times without an end" in made.fault


def test_a_default_whose_builder_dies_is_built_once_more(tmp_path):
    deaths = [1]

    class Dying(Builders):
        def gather(self, seconds):
            if deaths[0]:
                deaths[0], self.done = 0, []
                return [(0, ({"invalidity": "killed", "fault": "the process ended with -9"}, {}))]
            return super().gather(seconds)

    made = study(tmp_path, Device(right(matmul(M, N, K))), builders=Dying())
    while not made.progress.exhausted:
        made.batch(5)

    assert not made.fault
    assert made.progress.invalid == {}
    assert set(told(made)) == set(range(len(made.table)))


def test_what_a_compiler_refuses_is_a_record_and_no_time(tmp_path):
    device = Device(right(matmul(M, N, K)))
    bad = texts(study(tmp_path, device))[3]
    made = study(tmp_path, device, builders=Builders(lambda text: "no register is left" if text == bad else ""))
    made.batch(20)

    assert made.progress.invalid == {"compile": 1}
    (record,) = [t for t in made.trials if t["invalidity"] == "compile"]
    assert record["fault"] == "no register is left"
    assert told(made)[3] is None


def test_a_schedule_that_cannot_be_rendered_is_a_record_and_no_time(tmp_path, monkeypatch):
    device = Device(right(matmul(M, N, K)))
    made = study(tmp_path, device)
    rendered, bad = Task.rendered, made.table.candidate(2)

    def refusing(self, candidate):
        if candidate.key == bad.key:
            raise ScheduleError("an odd number of rows")
        return rendered(self, candidate)

    monkeypatch.setattr(Task, "rendered", refusing)
    made.batch(20)

    assert told(made)[2] is None
    assert made.progress.invalid == {"compile": 1}


def test_a_quiet_device_measures_while_others_are_built(tmp_path):
    """Where builds disturb nobody, what is built is measured before the next is asked for."""
    for noisy in (True, False):
        device, order = Device(right(KERNEL)), []
        device.noisy = noisy
        made = study(tmp_path / str(noisy), device, builders=OneByOne(order))
        ask = made.tools.runner.ask
        made.tools.runner.ask = lambda job, arrays, ask=ask, order=order, **k: (
            order.append(job["do"]) or ask(job, arrays, **k)
        )
        made.batch(4)
        told = [what for what in order if what in ("build", "trial")][2:]
        assert told == (["build"] * 4 + ["trial"] * 4 if noisy else ["build", "trial"] * 4)


class OneByOne(Builders):
    """Answers for one source at a time."""

    def __init__(self, order):
        super().__init__()
        self.order = order

    def gather(self, seconds):
        self.order.append("build")
        return [self.done.pop(0)]


def test_a_default_whose_clocks_were_held_back_once_is_measured_by_the_next_run(tmp_path):
    hot = study(tmp_path, Device(right(KERNEL), held=[True] * 1000))
    assert hot.batch(3) == 0
    assert "keeps its clocks low" in hot.fault

    cold = study(tmp_path, Device(right(KERNEL)))

    assert cold.batch(3) == 3
    assert cold.fault == ""


class Dying(Builders):
    """Its process is killed over some sources."""

    def gather(self, seconds):
        found = super().gather(seconds)
        return [(n, (a | {"invalidity": "killed"} if "invalidity" in a else a, arrays)) for n, (a, arrays) in found]


def test_what_killed_a_builder_once_is_built_by_the_next_run(tmp_path):
    device = Device(right(KERNEL))
    bad = texts(study(tmp_path, device))[3]
    first = study(tmp_path, device, builders=Dying(lambda text: "killed" if text == bad else ""))
    first.batch(20)
    second = study(tmp_path, device)
    second.batch(20)

    assert first.progress.invalid == {"compile": 1}
    assert second.tools.runner.trials == [bad]
    third = study(tmp_path, device)
    third.batch(20)
    assert third.tools.runner.trials == []


def test_what_the_compiler_refused_is_not_built_by_the_next_run(tmp_path):
    device = Device(right(KERNEL))
    bad = texts(study(tmp_path, device))[3]
    study(tmp_path, device, builders=Builders(lambda text: "no register is left" if text == bad else "")).batch(20)
    second = study(tmp_path, device)
    second.batch(20)

    assert bad not in second.tools.builders.built
    assert second.tools.runner.trials == []


def test_a_builder_that_dies_in_a_final_takes_no_trial_back(tmp_path):
    device = Device(right(KERNEL))
    made = study(tmp_path, device, builders=Dying())
    device.seconds = speeds(made).__getitem__
    made.batch(20)
    before = made.tools.store.read()
    made.tools.builders.refuse = lambda text: "killed"

    verdict = choice.final(made, processes=1, rounds=3)

    assert made.tools.store.read() == before
    assert (verdict.is_default, verdict.decided, verdict.came) == (True, False, "failed")


@pytest.mark.parametrize("error", [RecordError("no space left", code="GPC7101"), KeyboardInterrupt()])
def test_one_whose_trial_cannot_be_written_is_no_killer(tmp_path, error):
    device = Device(right(KERNEL))
    first = study(tmp_path, device)
    append, stop = first.tools.store.append, dict(first.table.candidate(4).schedule)

    def full(kind, fields):
        if kind == "trial" and fields["configuration"] == stop:
            raise error
        return append(kind, fields)

    first.tools.store.append = full
    with pytest.raises(type(error)):
        first.batch(20)
    second = study(tmp_path, device)
    second.batch(20)

    assert texts(second)[4] in second.tools.runner.trials
    assert second.progress.invalid == {}


def test_a_disk_that_is_full_for_good_is_said_as_it_is(tmp_path):
    made = study(tmp_path, Device(right(KERNEL)))

    def full(kind, fields):
        raise RecordError(f"no space for a {kind}", code="GPC7101")

    made.tools.store.append = full
    with pytest.raises(RecordError, match="for a launch"):
        made.batch(3)


@pytest.mark.parametrize("slow", [1, 2, 10**9])
def test_a_single_slow_launch_says_nothing(tmp_path, slow):
    """The first ``slow`` timings of a candidate take a thousand times as long as it does."""
    device, timed = Device(right(KERNEL)), []
    made = study(tmp_path, device)
    odd, usual = texts(made)[4], speeds(made)

    def seconds(text):
        timed.extend([text] * (text == odd))
        return usual[text] * (1000 if text == odd and len(timed) <= slow else 1)

    device.seconds = seconds
    made.batch(20)

    (record,) = [
        t for t in made.trials if made.table.row((t["engine"], tuple(sorted(t["configuration"].items())))) == 4
    ]
    if slow > 3:
        assert record["ended"] == "hopeless"
        assert len(record["samples"]) == len(record["anchors"]) == 3
    else:
        assert record["ratio"] == pytest.approx(usual[odd] / 1e-3)


@pytest.fixture
def long(monkeypatch):
    """A run is long from 50 ms on, more than what stands for a program takes; launches from 200 ms on are sure."""
    monkeypatch.setattr(worker, "LONG_S", 50e-3)
    monkeypatch.setattr(worker, "SURE_S", 200e-3)


def slow_one(tmp_path, times, *, wall, row=4):
    """A study in which the candidate ``row`` takes ``times`` the default's time, and a run of it ``wall`` seconds.

    Also how often it has been run and launched.
    """
    compute, count = right(KERNEL), {"runs": 0, "launches": 0}
    device = Device(lambda text, arguments, place: run(text, arguments, place))
    made = study(tmp_path, device)
    odd, usual = texts(made)[row], speeds(made)

    def run(text, arguments, place):
        count["runs"] += text == odd
        time.sleep(wall if text == odd else 0.0)
        compute(text, arguments, place)

    def seconds(text):
        count["launches"] += text == odd
        return times * 1e-3 if text == odd else usual[text]

    device.seconds = seconds
    return made, count


def record_of(made, row=4):
    key = made.table.candidate(row).key
    return next(t for t in made.trials if (t["engine"], tuple(sorted(t["configuration"].items()))) == key)


def test_what_is_slow_in_its_first_run_and_in_a_launch_is_run_once(tmp_path, long):
    made, count = slow_one(tmp_path, 300, wall=70e-3)
    made.batch(20)
    record = record_of(made)

    assert count == {"runs": 1, "launches": 1}
    assert (record["invalidity"], record["ended"], record["runs"]) == ("correct", "hopeless", 1)
    assert record["ratio"] == pytest.approx(300)
    assert told(made)[4] == pytest.approx(0.3)
    assert len([t for t in made.trials if "runs" not in t]) == len(made.trials) - 1


@pytest.mark.parametrize(
    ("times", "wall"),
    [
        (1.2, 70e-3),  # its first run took long, as where a driver compiles in it, and its launch does not
        (300, 0.0),  # a launch is said to take long, and its first run did not
        (0.5, 70e-3),
    ],
    ids=["slow to start", "an accident", "the fastest"],
)
def test_what_is_slow_in_one_of_the_two_only_is_checked_whole(tmp_path, long, times, wall):
    made, count = slow_one(tmp_path, times, wall=wall)
    made.batch(20)

    assert count["runs"] == checks.RUNS
    assert "runs" not in record_of(made)


def test_launches_that_are_short_are_timed_again_before_they_are_given_up(tmp_path, long):
    made, count = slow_one(tmp_path, 70, wall=70e-3)  # three of 70 ms are more than 200
    made.batch(20)

    assert count == {"runs": 1, "launches": 3}
    assert len(record_of(made)["samples"]) == 3


def test_nobody_chooses_what_was_run_only_once(tmp_path, long):
    """However fast it is said to be: it was not checked whole. A file may say anything."""
    made, _ = slow_one(tmp_path, 300, wall=70e-3)
    made.batch(20)
    record = record_of(made)
    record["ratio"] = 0.01

    assert made.table.candidate(4).key not in [c.key for c in made.leaders(40)]
    del record["runs"]
    assert made.table.candidate(4).key == made.leaders(40)[0].key


def test_what_is_wrong_is_run_once(tmp_path):
    made, count = slow_one(tmp_path, 1, wall=0.0)
    odd, compute = texts(made)[4], made.tools.runner.server._device.compute

    def wrong(text, arguments, place):
        compute(text, arguments, place)
        if text == odd:
            arguments[-1][...] += 1

    made.tools.runner.server._device.compute = wrong
    made.batch(20)

    assert count == {"runs": 1, "launches": 0}
    assert (record_of(made)["invalidity"], record_of(made)["runs"]) == ("correctness", 1)


def test_a_default_that_is_wrong_ends_the_search_and_says_so(tmp_path):
    made = study(tmp_path, Device(lambda text, arguments, place: None))

    assert made.batch(5) == 0
    assert made.progress.exhausted
    assert "the default does not pass the check" in made.fault
    assert choice.final(made).is_default


def test_a_deadline_ends_a_batch(tmp_path):
    made = study(tmp_path, Device(right(matmul(M, N, K))))

    made.batch(10, lambda: False)

    assert len(made.tools.runner.trials) == 1  # the default, without which nothing can be judged


def test_a_final_picks_the_fastest_and_records_how_sure_it_is(tmp_path):
    device = Device(right(matmul(M, N, K)))
    made = study(tmp_path, device)
    device.seconds = speeds(made).__getitem__
    made.batch(20)

    verdict = choice.final(made, processes=2, rounds=5)
    fields = made.pick(verdict.candidate, verdict.fields)

    assert not verdict.is_default
    assert verdict.ratio == pytest.approx(made.best)
    assert verdict.interval == pytest.approx((made.best, made.best))
    assert made.tools.store.append("pick", fields)["interval"] == list(verdict.interval)


def test_a_leader_that_is_wrong_on_other_data_does_not_win(tmp_path):
    kernel, calls = matmul(M, N, K), []
    device = Device(None)
    made = study(tmp_path, device)
    device.seconds = speeds(made).__getitem__
    fastest = min(set(texts(made)), key=lambda text: speeds(made)[text])
    known_input = made.data()[0][0]

    def compute(text, arguments, place):
        right(kernel)(text, arguments, place)
        if text == fastest and not np.array_equal(arguments[0], known_input):
            calls.append(text)
            arguments[-1][0, 0] += 1

    device.compute = compute
    made.batch(20)
    assert made.render(made.leaders(1)[0])[0].text == fastest

    verdict = choice.final(made, processes=2, rounds=5)

    assert calls
    assert not verdict.is_default
    assert made.render(verdict.candidate)[0].text != fastest


def test_kernels_without_products_are_searched_too(tmp_path):
    kernel = add_relu(5, 37)
    subject = task(kernel)
    made = study(tmp_path, Device(right(kernel)), subject=subject, count=1)

    made.batch(5)

    assert made.trials[0]["invalidity"] == "correct"


# wrong kernels: each writes what it should, and then does one thing that it should not

WRONG = {
    "nothing is written": lambda k, a, p: [x.fill(np.nan) for x in a[k.inputs :]],
    "the last row is left out": lambda k, a, p: a[-1][-1:].fill(np.nan),
    "the last row is another's": lambda k, a, p: a[-1].__setitem__(-1, a[-1][-2]),
    "the last column is off by one": lambda k, a, p: a[-1].__setitem__((..., -1), a[-1][..., -2]),
    "the depth's tail is left out": lambda k, a, p: a[-1].__isub__(2 * np.outer(a[0][:, -1], a[1][-1])),
    "one element of all is off": lambda k, a, p: a[-1].reshape(-1).__setitem__(17, a[-1].reshape(-1)[17] + 0.01),
    "sums are f16": lambda k, a, p: a[-1].__setitem__(..., a[-1].astype(np.float16)),
    "the relu is missing": lambda k, a, p: a[-1].__isub__(0.5),
    "it writes behind its result": lambda k, a, p: p.arena.__setitem__(p.offset + a[-1].nbytes + 5, 0),
    "it writes before its result": lambda k, a, p: p.arena.__setitem__(p.offset - 3, 0),
    "it changes an input": lambda k, a, p: a[0].__setitem__((0, 0), 0.25),
    "it reads outside of an input": lambda k, a, p: a[-1].__setitem__((0, 0), p.arena[:4].view(np.float32)[0] * 1e12),
    "another result every time": lambda k, a, p: a[-1].__setitem__((0, 0), a[-1][0, 0] + 1e-6 * p.run),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_kernel_is_never_selected_however_fast(tmp_path, fault):
    kernel = matmul(M, N, K)
    device = Device(None)
    made = study(tmp_path, device, count=6)
    wrong = texts(made)[1]

    def compute(text, arguments, place):
        right(kernel)(text, arguments, place)
        if text == wrong:
            WRONG[fault](kernel, arguments, place)

    device.compute = compute
    device.seconds = lambda text: 1e-6 if text == wrong else 1e-3
    made.batch(20)

    (record,) = [t for t in made.trials if t["invalidity"] != "correct"]
    assert record["invalidity"] == "correctness"
    assert record["samples"] == []
    assert device.launched[wrong] == 0  # it was never timed
    assert made.best == pytest.approx(1.0)
    assert choice.final(made, processes=1, rounds=3).is_default
