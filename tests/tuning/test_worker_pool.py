"""Real processes: what is answered, and what becomes of those that die, hang, are stopped or talk nonsense."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time

import numpy as np
import pytest

from gpucomp.tuning import messages
from gpucomp.tuning.measure import Patience
from gpucomp.tuning.worker_pool import Builders, Runner, Worker
from testing.kernels import add_relu
from tests.tuning.test_study import task

ECHO = """
import sys, time, os, signal
from gpucomp.tuning import messages
source, sink = sys.stdin.buffer, sys.stdout.buffer
def read(count):
    parts = source.read(count)
    if len(parts) < count:
        raise SystemExit
    return parts
while True:
    job, arrays = messages.unpacked(read)
    seconds = {"seconds": job["seconds"]} if "seconds" in job else {}
    match job["do"]:
        case "hang":
            time.sleep(60)
        case "die":
            print("segmentation fault, so to speak", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        case "half":
            sink.write(b"123"); sink.flush(); os._exit(7)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
    for part in messages.packed({"did": job["do"], "had": sorted(arrays)} | seconds, arrays):
        sink.write(part)
    sink.flush()
"""
COMMAND = [sys.executable, "-c", ECHO]


@pytest.fixture
def worker():
    worker = Worker("run", "cpu", command=COMMAND)
    yield worker
    worker.close()


def test_arrays_go_there_and_come_back(worker):
    arrays = {"a": np.arange(300_001, dtype=np.float32), "b": np.zeros((0, 3), np.int8), "c": np.array(True)}

    answer, found = worker.ask({"do": "echo"}, arrays, 30.0)

    assert answer == {"did": "echo", "had": ["a", "b", "c"]}
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("do", "invalidity", "fault"),
    [
        ("hang", "timeout", "no answer after"),
        ("die", "killed", "segmentation fault"),
        ("half", "killed", "ended with 7"),
        ("stop", "timeout", "no answer"),
    ],
)
def test_a_process_that_fails_is_answered_for_and_replaced(worker, do, invalidity, fault):
    worker.ask({"do": "echo"}, {}, 30.0)
    before = worker.pid

    answer, _ = worker.ask({"do": do}, {}, 0.5 if invalidity == "timeout" else 30.0)

    assert answer["invalidity"] == invalidity
    assert fault in answer["fault"]
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    assert worker.ask({"do": "echo"}, {}, 30.0)[0]["did"] == "echo"


def test_a_stopped_process_cannot_stall_who_sends(worker):
    worker.ask({"do": "echo"}, {}, 30.0)
    os.kill(worker.pid, signal.SIGSTOP)

    answer, _ = worker.ask({"do": "echo"}, {"a": np.zeros(10_000_000, np.uint8)}, 0.5)

    assert answer["invalidity"] == "killed"
    assert not worker.alive


def test_a_runner_is_sent_everything_again_when_its_process_is_new(tmp_path):
    runner = Runner("cpu", lock=tmp_path / "lock", command=COMMAND)
    arrays = {"a": np.arange(3), "b": np.arange(5)}
    try:
        assert runner.ask({"do": "echo"}, arrays)[0]["had"] == ["a", "b"]
        assert runner.ask({"do": "echo"}, arrays)[0]["had"] == []
        runner.ask({"do": "die"}, {})
        assert runner.ask({"do": "echo"}, arrays)[0]["had"] == ["a", "b"]
        runner.fresh()
        assert runner.ask({"do": "echo"}, arrays)[0]["had"] == ["a", "b"]
    finally:
        runner.close()


def test_a_process_that_dies_while_others_have_the_device_is_sent_everything_again(tmp_path):
    runner = Runner("cpu", lock=tmp_path / "lock", command=COMMAND)
    exclusive = runner.exclusive

    @contextlib.contextmanager
    def dying():
        with exclusive():
            os.kill(runner.pid, signal.SIGKILL)
            os.waitid(os.P_PID, runner.pid, os.WEXITED | os.WNOWAIT)
            yield

    try:
        runner.ask({"do": "echo"}, {"a": np.arange(3)})
        assert runner.pid > 0
        runner.exclusive = dying
        assert runner.ask({"do": "echo"}, {"a": np.arange(3)})[0]["had"] == ["a"]
    finally:
        runner.close()


def test_an_answer_that_waits_to_be_read_is_no_timeout(worker):
    """The process was in time; who asked it was not."""
    worker.ask({"do": "echo"}, {}, 30.0)
    assert worker.send({"do": "echo"}, {"a": np.arange(5)}, 30.0) == ""
    assert select.select([worker], [], [], 30.0)[0]
    worker.since -= 1000.0

    answer, arrays = worker.receive(5.0)

    assert answer == {"did": "echo", "had": ["a"]}
    np.testing.assert_array_equal(arrays["a"], np.arange(5))


def test_builders_learn_from_the_build_and_not_from_who_fetches_it(monkeypatch):
    monkeypatch.setattr("gpucomp.tuning.worker_pool.Worker", lambda role, target: Worker(role, target, command=COMMAND))
    builders = Builders("cpu", 1)
    try:
        number = builders.submit({"do": "echo", "seconds": 0.25}, {})
        (worker,) = builders._busy.values()
        assert select.select([worker], [], [], 30.0)[0]
        worker.since -= 1000.0
        ((found, (answer, _)),) = builders.gather(30.0)
    finally:
        builders.close()

    assert (found, answer.get("invalidity")) == (number, None)
    assert builders.patience._taken == [0.25]


def test_runners_of_one_device_take_turns(tmp_path):
    runners = [Runner("cpu", lock=tmp_path / "lock", command=COMMAND) for _ in range(2)]
    for runner in runners:
        runner.ask({"do": "echo"}, {})
    inside = runners[0].exclusive()
    inside.__enter__()
    done = threading.Event()
    other = threading.Thread(target=lambda: (runners[1].ask({"do": "echo"}, {}), done.set()))
    other.start()

    assert not done.wait(0.3)
    inside.__exit__(None, None, None)
    assert done.wait(30)
    other.join()
    for runner in runners:
        runner.close()


def test_builders_build_and_survive_their_own_death():
    subject = task(add_relu(3, 17))
    source = messages.source_message(subject.rendered(subject.default)[0])
    builders = Builders("cpu", 2, patience=Patience(first=90))
    try:
        numbers = [builders.submit({"do": "build", "source": source}, {}) for _ in range(2)]
        broken = builders.submit(
            {"do": "build", "source": source | {"text": source["text"].replace("ret void", "ret nonsense")}}, {}
        )
        found = {}
        while len(found) < 3:
            found |= dict(builders.gather(60))
        assert all(found[n][1]["binary"].size > 100 for n in numbers)
        assert found[broken][0]["invalidity"] == "compile"
        assert "LLVM refuses" in found[broken][0]["fault"]

        for pid in builders.pids:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        again = builders.submit({"do": "build", "source": source}, {})
        answer = dict(builders.gather(60))[again]
        assert answer[0].get("invalidity") == "killed" or answer[1]["binary"].size > 100
    finally:
        builders.close()


def test_a_search_survives_the_death_of_everybody_who_works_for_it(tmp_path):
    from gpucomp.targets import cpu
    from gpucomp.tuning import records
    from gpucomp.tuning.study import Study, Tools
    from gpucomp.tuning.tasks import Progress
    from tests.tuning.test_study import Known, Rules, Table, in_order

    subject = task()
    subject.target = cpu.host()
    builders, runner = Builders("cpu", 1), Runner("cpu", lock=tmp_path / "lock")
    with records.Store(tmp_path / "r.jsonl") as store:
        tools = Tools(builders, runner, store, runner.facts(), "test", 0, Rules(least=2, most=2))
        table = Table(subject, 6)
        made = Study(subject, table, in_order(table), tools, Known(), Progress(subject))
        ask, asked = runner.ask, []

        def dying(job, arrays, **more):
            asked.append(job["do"])
            if asked.count("trial") in (3, 5) and job["do"] == "trial":
                assert runner.pid > 0  # 0 is everybody, this process too
                threading.Timer(0.0, os.kill, (runner.pid, signal.SIGKILL)).start()
                for pid in builders.pids:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)
            return ask(job, arrays, **more)

        runner.ask = dying
        try:
            while not made.progress.exhausted:
                made.batch(3)
        finally:
            builders.close()
            runner.close()
        found = [r for r in store.read() if r["kind"] == "trial"]

    keys = [records.key_of(r) for r in found]
    assert len(set(keys)) == len(keys) >= 4
    assert found == [{"schema": 1, **t} for t in made.trials]
    assert {r["invalidity"] for r in found} <= {"correct", "killed", "compile"}
    assert [r["invalidity"] for r in found].count("correct") >= 3


def test_a_kernel_is_measured_by_real_processes(tmp_path, monkeypatch):
    """Built, checked and timed on this processor; a wrong one is found out."""
    from gpucomp.targets import cpu
    from gpucomp.tuning import choice, records
    from gpucomp.tuning.study import Study, Tools
    from gpucomp.tuning.tasks import Progress
    from tests.tuning.test_study import Known, Rules, Table, in_order

    subject = task()
    subject.target = cpu.host()
    builders, runner = Builders("cpu", 2), Runner("cpu", lock=tmp_path / "lock")
    try:
        with records.Store(tmp_path / "r.jsonl") as store:
            tools = Tools(builders, runner, store, runner.facts(), "test", 0, Rules(least=3, most=4))
            table = Table(subject, 4)
            made = Study(subject, table, in_order(table), tools, Known(), Progress(subject))
            render, wrong = subject.rendered, table.candidate(3)

            def rendered(candidate):
                source, packed = render(candidate)
                if candidate.key == wrong.key:
                    from dataclasses import replace

                    assert "fadd" in source.text
                    source = replace(source, text=source.text.replace("fadd", "fsub"))
                return source, packed

            monkeypatch.setattr(subject, "rendered", rendered)
            made.batch(10)
            verdict = choice.final(made, processes=1, rounds=3, seconds=0.1)
    finally:
        builders.close()
        runner.close()

    kinds = [t["invalidity"] for t in made.trials]
    assert kinds.count("correctness") == 1
    assert kinds.count("correct") == len(kinds) - 1 >= 2
    assert all(t["error"] < 1e-6 for t in made.trials if t["invalidity"] == "correct")
    assert all(t["samples"] and t["times"]["runtimes"] for t in made.trials if t["invalidity"] == "correct")
    assert verdict.candidate.key != wrong.key
