"""Machines that measure for a search: what they are given, what happens when one goes, and who is let in."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bench.fleet import certificates
from gpucomp.errors import DeviceError, UsageError
from gpucomp.tuning import choice, fleet, messages, network, worker
from gpucomp.tuning.fleet import Relay, Remote, Wanted
from gpucomp.tuning.network import Address, Certificates
from testing.kernels import matmul
from tests.tuning.fakes import TARGET, Device
from tests.tuning.fakes import Runner as Fake
from tests.tuning.test_study import K, M, N, different, right, speeds, study, texts, told

# addresses


@pytest.mark.parametrize(
    ("text", "tls", "found"),
    [
        ("127.0.0.1", False, ("127.0.0.1", network.PORT)),
        ("localhost:17", False, ("localhost", 17)),
        ("tcp://[::1]:9", False, ("::1", 9)),
        ("tls://10.0.0.3:77", True, ("10.0.0.3", 77)),
        ("board.example", True, ("board.example", network.PORT)),
    ],
)
def test_addresses(text, tls, found):
    place = Address.parse(text, tls)
    assert (place.host, place.port) == found
    assert Address.parse(place.url, tls) == place


@pytest.mark.parametrize(
    ("text", "tls", "code"),
    [
        ("10.0.0.3", False, "GPC2031"),  # anybody on the network could run code there
        ("tcp://0.0.0.0:8786", False, "GPC2031"),
        ("board.example", False, "GPC2031"),
        ("tls://127.0.0.1", False, "GPC2031"),
        ("tcp://127.0.0.1", True, "GPC2031"),
        ("", False, "GPC2030"),
        ("http://127.0.0.1", False, "GPC2030"),
        ("127.0.0.1:port", False, "GPC2030"),
        ("127.0.0.1:99999", False, "GPC2030"),
        ("tls://a/b", True, "GPC2030"),
        ("tcp://[::1", False, "GPC2030"),
        ("[zz]:3", True, "GPC2030"),
    ],
)
def test_addresses_that_will_not_do(text, tls, code):
    with pytest.raises(UsageError) as found:
        Address.parse(text, tls)
    assert found.value.code == code


def test_certificates_that_cannot_be_read_are_named(tmp_path):
    missing = Certificates(tmp_path / "ca.pem", tmp_path / "a.pem", tmp_path / "a.key")
    with pytest.raises(UsageError, match=r"ca\.pem"), fleet.opened(Wanted("tls://127.0.0.1:0", 1, missing), "cpu", ""):
        pass


@pytest.mark.parametrize("broken", ["authority", "certificate", "key", "another's key"])
def test_certificates_that_are_none_are_named_by_both_ends(tmp_path, broken):
    own, other = certificates(tmp_path / "ours", "board", "another")
    name = broken.removeprefix("another's ")
    path = getattr(own, name)
    path.write_bytes(other.key.read_bytes() if name != broken else b"no \xff certificate")
    with pytest.raises(UsageError, match=re.escape(f"{path.name}'")) as found:
        fleet.work("tls://127.0.0.1:1", target="cpu", certificates=own, runner=Local(Device(lambda *a: None)))
    assert found.value.code == "GPC2031"
    with (
        pytest.raises(UsageError, match="cannot be used"),
        fleet.opened(Wanted("tls://127.0.0.1:0", 1, own), "cpu", ""),
    ):
        pass


def test_a_worker_that_cannot_be_made_says_why(monkeypatch):
    class Fails:
        def __init__(self, *args, **options):
            raise OSError("no port is left")

    monkeypatch.setattr(network.distributed(), "Worker", Fails)
    with pytest.raises(DeviceError, match=r"no coordinator at tcp://127\.0\.0\.1:1: no port is left"):
        fleet.work("127.0.0.1:1", target="cpu", runner=Local(Device(lambda *a: None)))


# frames, without a network


class Here:
    """A carrier in this process: each member is a relay, ``lost`` says which frames a member does not survive."""

    def __init__(self, relays):
        self.relays, self.lost, self.frames, self.jobs = dict(relays), {}, [], []
        self.pool = ThreadPoolExecutor(len(self.relays) or 1)

    def members(self):
        return list(self.relays)

    def submit(self, member, frame):
        self.frames.append((member, len(frame)))
        self.jobs.append((member, messages.unframed(frame)[0]))
        if self.lost.get(member, lambda frame: False)(frame):
            del self.relays[member]
        if member not in self.relays:
            gone = Future()
            gone.set_exception(ConnectionError("the board went down"))
            return gone
        return self.pool.submit(self.relays[member].answer, frame)

    def close(self):
        pass


class Local(Fake):
    """What a relay has behind it, in this process."""

    def __init__(self, device, **facts):
        super().__init__(worker.Runner(TARGET, device))
        self.more = facts

    def facts(self):
        found = super().facts()
        return {**found, "facts": found["facts"] | self.more}

    def fresh(self):
        self.ended = True


def carried(devices, kind=Here):
    return kind({f"board {k}": Relay(Local(device)) for k, device in enumerate(devices)})


def test_what_was_sent_once_is_not_sent_again_and_a_new_process_gets_it_all_the_same():
    class Echo(Local):
        def ask(self, job, arrays, *, limit=None):
            assert limit == 7
            return {"sum": float(sum(a.sum() for a in arrays.values())), "names": sorted(arrays)}, {}

    carrier = Here({"board": Relay(Echo(Device(lambda *a: None)))})
    remote = Remote(carrier, "board")
    big = np.ones(10_007, np.float32)
    for k in range(3):
        answer, _ = remote.ask({"do": "trial"}, {"big": big, f"own {k}": np.full(3, k, np.int32)}, limit=7)
        assert answer == {"sum": 10_007 + 3.0 * k, "names": ["big", f"own {k}"]}
        remote.fresh()
    sizes = [size for _, size in carrier.frames if size > 300]
    assert len([size for size in sizes if size > big.nbytes]) == 1


def test_a_models_file_travels(tmp_path):
    class Reads(Local):
        def ask(self, job, arrays, *, limit=None):
            paths = job.get("paths") or [job["path"]]
            return {"found": [Path(path).read_text() for path in paths], "named": sorted(arrays)}, {}

    relay = Relay(Reads(Device(lambda *a: None)))
    remote = Remote(Here({"board": relay}), "board")
    files = [tmp_path / "a", tmp_path / "b"]
    for path, text in zip(files, ("first", "second"), strict=True):
        path.write_text(text)
    x = np.zeros(2, np.float32)
    assert remote.ask({"do": "profile", "path": str(files[0])}, {"x": x}, limit=9)[0] == {
        "found": ["first"],
        "named": ["x"],
    }
    answer, _ = remote.ask({"do": "models", "paths": [str(p) for p in reversed(files)]}, {"x": x}, limit=9)
    assert answer["found"] == ["second", "first"]
    relay.close()


def side_by_side(tmp_path, devices, count=12, kind=Here):
    """A study whose candidates are measured on ``devices`` at once, and the carrier between."""
    carrier = carried(devices, kind)
    found = fleet.gather(carrier, Wanted(workers=len(devices), wait=5), "cpu", TARGET.arch)
    made = study(tmp_path, devices[0], count=count)
    made.tools.runner, *made.tools.others = found.runners
    made.tools.newcomers = found.newcomers
    return made, carrier


def test_candidates_are_shared_out_each_measured_once(tmp_path):
    both = threading.Barrier(2)
    opened, met = itertools.count(), []

    class Meets(Device):
        """Nobody gets on before both have a candidate: they really measure at the same time."""

        def open(self, *args):
            if made.trials and next(opened) < 2:
                met.append(both.wait(timeout=30))
            return super().open(*args)

    devices = [Meets(right(matmul(M, N, K))) for _ in range(2)]
    made, _ = side_by_side(tmp_path, devices)
    times = speeds(made)
    for device in devices:
        device.seconds = times.__getitem__
    while not made.progress.exhausted:
        made.batch(16)

    assert len(met) == 2
    assert set(told(made)) == set(range(len(made.table)))
    for row, seconds in told(made).items():
        assert seconds == pytest.approx(times[texts(made)[row]])
    trials = [r for r in made.tools.store.read() if r["kind"] == "trial"]
    assert len(trials) == different(made)
    launches = [set(device.launched) for device in devices if device.launched]
    assert not launches or len(launches) == 2


def test_a_board_that_goes_down_costs_its_candidate_and_is_asked_no_more(tmp_path):
    devices = [Device(right(matmul(M, N, K))) for _ in range(2)]
    made, carrier = side_by_side(tmp_path, devices)
    bad = texts(made)[5]
    carrier.lost = dict.fromkeys(carrier.relays, lambda frame: source_in(frame) == bad)
    while not made.progress.exhausted:
        made.batch(16)

    assert len(carrier.relays) == 1
    assert made.progress.invalid == {"killed": 1}
    assert told(made)[5] is None
    assert {row for row, seconds in told(made).items() if seconds is None} == {5}
    again, others = side_by_side(tmp_path, devices)
    while not again.progress.exhausted:
        again.batch(16)
    assert len(others.relays) == 2  # the one that did it is known
    assert told(again)[5] is None


def source_in(frame):
    """The candidate's text, of a trial's frame."""
    job, _ = messages.unframed(frame)
    return job["candidate"]["text"] if job["do"] == "trial" else None


def test_when_all_are_gone_what_was_measured_stays(tmp_path):
    devices = [Device(right(matmul(M, N, K))) for _ in range(2)]
    made, carrier = side_by_side(tmp_path, devices)
    count = [0]

    def after_four(frame):
        count[0] += b'"trial"' in frame
        return count[0] > 4

    carrier.lost = dict.fromkeys(carrier.relays, after_four)
    with pytest.raises(DeviceError, match=r"no runner is left to measure: board . was lost: the board went down"):
        made.batch(16)
    kinds = [r["invalidity"] for r in made.tools.store.read() if r["kind"] == "trial"]
    assert kinds.count("correct") == 4
    assert kinds.count("killed") == 2

    second, _ = side_by_side(tmp_path, devices)
    while not second.progress.exhausted:
        second.batch(16)
    assert sum(seconds is None for seconds in told(second).values()) == 2


def test_the_default_is_measured_on_another_board_when_the_first_goes(tmp_path):
    devices = [Device(right(matmul(M, N, K))) for _ in range(2)]
    made, carrier = side_by_side(tmp_path, devices)
    carrier.lost = {"board 0": lambda frame: b'"trial"' in frame}
    made.batch(4)
    assert not made.fault
    assert made.tools.runner.member == "board 1"
    assert made.trials[0]["invalidity"] == "correct"


def test_when_the_only_board_leaves_nothing_more_is_blamed(tmp_path):
    made, carrier = side_by_side(tmp_path, [Device(right(matmul(M, N, K)))])
    made.batch(3)
    carrier.lost = {"board 0": lambda frame: b'"trial"' in frame}
    for _ in range(2):
        with pytest.raises(DeviceError, match="no runner is left"):
            made.batch(8)
        assert made.progress.invalid == {"killed": 1}


def arriving(carrier, name, device, **facts):
    carrier.relays[name] = Relay(Local(device, **facts))
    carrier.pool = ThreadPoolExecutor(len(carrier.relays))


def by_member(carrier, name):
    """Trials that a worker was given."""
    return sum(job["do"] == "trial" for member, job in carrier.jobs if member == name)


@pytest.mark.parametrize("boards", [1, 2])
def test_who_comes_late_takes_part(tmp_path, boards):
    made, carrier = side_by_side(tmp_path, [Device(right(matmul(M, N, K))) for _ in range(boards)], count=24)
    made.batch(2)
    assert made.tools.runners == [made.tools.runner, *made.tools.others]
    late = Device(right(matmul(M, N, K)))
    arriving(carrier, "late", late)
    while len(made.tools.runners) == boards:
        made.tools.recruited()
    while not made.progress.exhausted:
        made.batch(16)

    trials = [r for r in made.tools.store.read() if r["kind"] == "trial"]
    assert len(trials) == different(made)
    assert by_member(carrier, "late") > 0


def test_who_comes_in_the_middle_of_a_batch_is_given_its_share_of_it(tmp_path):
    class Arrives(Device):
        """When it has been given so many candidates, another one is there, and it waits until that has one too."""

        def open(self, *args):
            opened[0] += 1
            if opened[0] == 4:
                arriving(carrier, "late", Waited(right(matmul(M, N, K))))
                assert met.wait(timeout=30)
            return super().open(*args)

    class Waited(Device):
        def open(self, *args):
            met.set()
            return super().open(*args)

    opened, met = [0], threading.Event()
    devices = [Arrives(right(matmul(M, N, K))), Device(right(matmul(M, N, K)))]
    made, carrier = side_by_side(tmp_path, devices, count=24)
    made.batch(24)
    assert met.is_set()
    assert made.progress.invalid == {}
    assert len([r for r in made.tools.store.read() if r["kind"] == "trial"]) == different(made)


def test_who_comes_late_and_is_not_alike_does_not_take_part(tmp_path):
    made, carrier = side_by_side(tmp_path, [Device(right(matmul(M, N, K)))])
    arriving(carrier, "late", Device(right(matmul(M, N, K))), driver="2")
    while not made.progress.exhausted:
        made.batch(4)
    assert by_member(carrier, "late") == 0
    assert len(made.tools.runners) == 1


def test_the_only_board_may_come_back_and_its_candidate_is_not_tried_again(tmp_path):
    made, carrier = side_by_side(tmp_path, [Device(right(matmul(M, N, K)))])
    bad = texts(made)[5]
    back = threading.Timer(0.3, arriving, (carrier, "board again", Device(right(matmul(M, N, K)))))

    def goes_down(frame):
        if source_in(frame) == bad:
            back.start()
        return source_in(frame) == bad

    carrier.lost = {"board 0": goes_down}
    made.tools.wait = 60.0
    while not made.progress.exhausted:
        made.batch(4)
    assert made.progress.invalid == {"killed": 1}
    assert by_member(carrier, "board again") > 0
    assert set(told(made)) == set(range(len(made.table)))


def test_a_silent_newcomer_is_not_waited_for(monkeypatch):
    class Dumb(Here):
        def submit(self, member, frame):
            return Future() if member == "dumb" else super().submit(member, frame)

    carrier = Dumb({"dumb": None, "good": Relay(Local(Device(lambda *a: None)))})
    monkeypatch.setattr(fleet, "FIRST_S", 0.2)
    found = fleet.gather(carrier, Wanted(workers=1, wait=30), "cpu", TARGET.arch)
    assert [runner.member for runner in found.runners] == ["good"]
    assert found.newcomers() == []


def test_silence_is_a_timeout_and_the_end_of_it(monkeypatch):
    monkeypatch.setattr(fleet, "SLACK_S", 0.0)

    class Silent(Here):
        def submit(self, member, frame):
            found = Future()
            found.cancel = lambda force=False: self.frames.append("cancelled")
            return found

    carrier = Silent({"board": None})
    remote = Remote(carrier, "board")
    answer, _ = remote.ask({"do": "trial"}, {}, limit=0.05)
    assert answer["invalidity"] == "timeout"
    assert carrier.frames == ["cancelled"]
    assert "board did not answer" in remote.gone
    assert remote.ask({"do": "trial"}, {}, limit=0.05)[0]["invalidity"] == "killed"


class Parks(Here):
    """As dask: a job for a worker that is not there waits for it to come back."""

    def submit(self, member, frame):
        if member in self.relays:
            return super().submit(member, frame)
        self.jobs.append((member, messages.unframed(frame)[0]))
        found = Future()
        found.cancel = lambda force=False: None
        return found


def counted(made, kind):
    """Records of a kind by the values of their configurations."""
    return Counter(tuple(r["configuration"].values()) for r in made.tools.store.read() if r["kind"] == kind)


@pytest.mark.parametrize(("boards", "who"), [(2, "board 1"), (3, "board 0")])
def test_a_board_that_leaves_while_it_is_idle_is_given_nothing_more(tmp_path, boards, who):
    made, carrier = side_by_side(tmp_path, [Device(right(matmul(M, N, K))) for _ in range(boards)], kind=Parks)
    made.batch(2)
    before = len(carrier.jobs)
    del carrier.relays[who]
    while not made.progress.exhausted:
        made.batch(4)
    assert who not in {member for member, _ in carrier.jobs[before:]}
    assert made.progress.invalid == {}
    assert None not in told(made).values()
    assert set(counted(made, "launch").values()) == {1, 2}  # twice what was taken from the one that had left
    assert made.tools.runner.member != who
    again, _ = side_by_side(tmp_path, [Device(right(matmul(M, N, K)))])
    while not again.progress.exhausted:
        again.batch(16)
    assert None not in told(again).values()


def test_a_board_that_leaves_before_its_job_has_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(fleet, "LOOK_S", 0.01)

    class Leaves(Parks):
        def submit(self, member, frame):
            del self.relays[member]
            return super().submit(member, frame)

    remote = Remote(Leaves({"board": None}), "board")
    answer, _ = remote.ask({"do": "trial"}, {}, limit=1e6)
    assert answer["unsent"]
    assert remote.gone == "board has left"


def test_a_board_that_is_missing_for_a_moment_is_not_given_up(monkeypatch):
    monkeypatch.setattr(fleet, "LOOK_S", 0.01)
    looks = itertools.count()

    class Flickers(Here):
        def members(self):
            if (look := next(looks)) == 6:
                answered.set_result(messages.framed({"found": 7}, {}))
            return [] if look % 2 else ["board"]

        def submit(self, member, frame):
            return answered

    answered = Future()
    remote = Remote(Flickers({"board": None}), "board")
    assert remote.ask({"do": "trial"}, {}, limit=1e6)[0] == {"found": 7}
    assert not remote.gone


@pytest.mark.parametrize("error", [TimeoutError("timed out"), CancelledError(), ConnectionError("reset")])
def test_a_board_that_goes_before_its_answer_has_come_is_lost(tmp_path, error):
    made, carrier = side_by_side(tmp_path, [Device(right(matmul(M, N, K))) for _ in range(2)])
    bad, submit = texts(made)[5], carrier.submit

    def result(timeout):
        raise error

    def submitted(member, frame):
        future = submit(member, frame)
        if source_in(frame) == bad:
            future.exception()
            future.result = result
        return future

    carrier.submit = submitted
    while not made.progress.exhausted:
        made.batch(16)
    assert made.progress.invalid == {"killed": 1}
    assert len(made.tools.runners) == 1
    assert {row for row, seconds in told(made).items() if seconds is None} == {5}
    assert set(counted(made, "launch").values()) == {1}
    assert not counted(made, "release")


def test_who_is_lost_before_it_has_said_what_it_is_does_not_take_part():
    class Lost(Here):
        def submit(self, member, frame):
            found = super().submit(member, frame)
            if member == "lost":
                found.result = lambda timeout: found.exception(timeout) or self.fail()
            return found

        def fail(self):
            raise TimeoutError

    boards = {name: Relay(Local(Device(lambda *a: None))) for name in ("lost", "good")}
    with pytest.warns(RuntimeWarning, match="not in the fleet: lost: it was lost"):
        found = fleet.gather(Lost(boards), Wanted(workers=1, wait=5), "cpu", TARGET.arch)
    assert [runner.member for runner in found.runners] == ["good"]
    assert found.refused == ["lost: it was lost: nobody answers"]


def test_an_interruption_as_a_candidate_is_launched_blames_none(tmp_path, monkeypatch):
    devices = [Device(right(matmul(M, N, K))) for _ in range(2)]
    made, _ = side_by_side(tmp_path, devices)
    made.batch(2)

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr(ThreadPoolExecutor, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.batch(4)
    assert sum(counted(made, "release").values()) == 1
    again, _ = side_by_side(tmp_path, devices)
    while not again.progress.exhausted:
        again.batch(16)
    assert None not in told(again).values()


@pytest.mark.parametrize(("killed", "left"), [(0, True), (1, True), (2, False)])
def test_a_final_goes_on_with_another_board_when_one_is_lost(tmp_path, killed, left):
    """Twice over one comparison is no accident: a final does not take all boards down one by one."""
    devices = [Device(right(matmul(M, N, K))) for _ in range(4)]
    made, carrier = side_by_side(tmp_path, devices)
    times = speeds(made)
    for device in devices:
        device.seconds = times.__getitem__
    while not made.progress.exhausted:
        made.batch(16)
    del carrier.relays["board 0"]  # unnoticed so far
    lost = itertools.count()
    carrier.lost = dict.fromkeys(carrier.relays, lambda frame: b'"compare"' in frame and next(lost) < killed)

    verdict = choice.final(made, processes=2, rounds=5)

    assert verdict.decided == left
    assert verdict.rounds == (10 if left else 0)
    assert verdict.is_default != left
    assert verdict.ratio == pytest.approx(made.best if left else 1.0)
    assert len(carrier.relays) == 3 - killed


def test_where_nobody_is_left_a_comparison_says_so(tmp_path):
    made, carrier = side_by_side(tmp_path, [Device(right(matmul(M, N, K)))])
    made.batch(2)
    carrier.relays.clear()
    answer = made.tools.compared({"do": "compare"}, {}, 1.0)
    assert answer["invalidity"] == "killed"
    assert "no runner is left to measure: board 0 has left" in answer["fault"]


def test_models_that_were_compared_do_not_pile_up_on_a_board(tmp_path):
    class Reads(Local):
        def ask(self, job, arrays, *, limit=None):
            return {"rows": [[1.0, float(Path(path).read_text())] for path in job.get("paths", ())]}, {}

    made, carrier = side_by_side(tmp_path, [Device(right(matmul(M, N, K)))])
    relay = carrier.relays["board 0"] = Relay(Reads(Device(lambda *a: None)))
    folders = []
    for k in (3, 5, 7):
        path = tmp_path / "model"
        path.write_text(f"{k}")
        answer = made.tools.compared({"do": "models", "paths": [str(path)]}, {"x": np.zeros(k)}, 9.0)
        assert answer["rows"] == [[1.0, k]]
        assert sorted(array.size for array in relay._arrays.values()) == [1, k]
        folders.append(Path(relay._folder.name))
    assert [folder.exists() for folder in folders] == [False, False, True]
    made.tools.runner.forget()
    assert relay._arrays == {}
    assert not folders[-1].exists()
    relay.close()


# who belongs to it


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"kind": "cuda"}, "its device is cuda, this search is for cpu"),
        ({"arch": "armv8"}, "its architecture is armv8"),
        ({"driver": "2"}, "its driver is 2, that of the others 1"),
        ({"memory": 7}, "its memory is 7, that of the others None"),
        ({"clock": 7}, ""),
    ],
)
def test_only_devices_that_are_alike_measure_for_one_search(facts, why):
    same, other = (Relay(Local(Device(lambda *a: None), **more)) for more in ({}, facts))
    told = threading.Event()
    other.told = lambda reason: (reasons.append(reason), told.set())
    reasons = []
    with pytest.warns(RuntimeWarning, match="not in the fleet: other: ") if why else contextlib.nullcontext():
        found = fleet.gather(Here({"same": same, "other": other}), Wanted(workers=1, wait=5), "cpu", TARGET.arch)
    assert told.wait(10) if why else not reasons
    assert [why in reason for reason in reasons] == ([True] if why else [])  # both sides know it at once
    assert [runner.member for runner in found.runners] == (["same"] if why else ["same", "other"])
    assert [why in line for line in found.refused] == ([True] if why else [])


def test_another_version_does_not_take_part():
    class Old(Relay):
        @property
        def facts(self):
            return super().facts | {"program": "older"}

    with (
        pytest.warns(RuntimeWarning, match="not in the fleet: old: another version"),
        pytest.raises(DeviceError, match="another version of gpucomp is installed there") as found,
    ):
        fleet.gather(Here({"old": Old(Local(Device(lambda *a: None)))}), Wanted(wait=0), "cpu", TARGET.arch)
    assert "0 of 1 workers" in found.value.message


# over TLS


WORKER = """
import sys
for name in ("optuna", "onnx", "onnxruntime"):
    sys.modules[name] = None  # a worker has no need of them
from gpucomp.cli import main
main(sys.argv[1:])
"""


def started(address, own, lock):
    command = [sys.executable, "-c", WORKER, "worker", "--scheduler", address, "--target", "cpu", "--lock", str(lock)]
    if own is not None:
        files = {"--tls-ca": own.authority, "--tls-cert": own.certificate, "--tls-key": own.key}
        command += [str(part) for pair in files.items() for part in pair]
    environment = os.environ | {"GPUCOMP_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_two_workers_over_tls_tune_a_kernel_and_strangers_are_refused(tmp_path, monkeypatch):
    import distributed

    from gpucomp.tuning import specs, tuner

    coordinator, board = certificates(tmp_path / "ours", "coordinator", "board")
    (stranger,) = certificates(tmp_path / "theirs", "board")
    place = Address.parse("tls://127.0.0.1:0", True)
    carriers, workers, seen = [], [], {}
    opened = fleet.Dask

    def dask(_, own):
        """Starts workers once it is known where it listens, and tries to get in without a certificate of ours."""
        carrier = opened(place, own)
        carriers.append(carrier)
        url = carrier.address
        workers.extend(started(url, board, tmp_path / f"lock{k}") for k in range(2))
        for name, security in (
            ("no certificate", distributed.Security(require_encryption=True, tls_ca_file=str(coordinator.authority))),
            ("another authority", network.security(stranger)),
        ):
            with pytest.raises(Exception) as refused:  # noqa: PT011 - dask has many kinds
                distributed.Client(url, security=security, timeout=3)
            seen[name] = refused.value
        with pytest.raises(Exception) as refused:  # noqa: PT011
            distributed.Client(url.replace("tls:", "tcp:"), timeout=3)
        seen["no encryption"] = refused.value
        return carrier

    monkeypatch.setattr(fleet, "Dask", dask)
    try:
        tuned = tuner.tune(
            specs.model("matmul m=13 n=53 k=11"),
            target="cpu",
            records=tmp_path / "records",
            options=tuner.TuneOptions(
                trials=9, builders=1, whole=False, fleet=Wanted("tls://127.0.0.1:0", 2, coordinator)
            ),
        )
    finally:
        ended = []
        for process in workers:
            try:
                ended.append((process.communicate(timeout=60)[0], process.returncode))
            finally:
                process.kill()
    study_ = tuned.state.studies[0]
    assert len(study_.tools.runners) == 2
    assert sum(t["invalidity"] == "correct" for t in study_.trials) >= 5
    assert set(seen) == {"no certificate", "another authority", "no encryption"}
    assert [code for _, code in ended] == [0, 0], ended
    assert all("measures for tls://" in said for said, _ in ended)


def test_a_worker_says_that_nobody_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(fleet, "SILENT_S", 1.0)
    monkeypatch.setattr(fleet, "Runner", lambda target, lock: Local(Device(lambda *a: None)))
    with pytest.raises(DeviceError, match=r"no coordinator at tcp://127\.0\.0\.1:1"):
        fleet.work("127.0.0.1:1", target="cpu")
