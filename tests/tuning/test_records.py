"""The store of measurements: nothing that was written is lost, nothing that is broken is believed."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpucomp.errors import RecordError
from gpucomp.refusal import Refusal
from gpucomp.schedule import records as reading
from gpucomp.tuning import records
from gpucomp.tuning.checks import VERSION

DEVICE = {"kind": "cpu", "arch": "test-lake", "name": "a processor, 3 cores"}


def identity(n=0, **changes):
    return {"kernel": "k" * 8, "device": DEVICE, "engine": "contraction", "configuration": {"mr": n}} | changes


def trial(n=0, **changes):
    fields = {
        "invalidity": "correct",
        "samples": [2e-3, 1e-3, 3e-3],
        "ratio": 0.5,
        "template": "t",
        "source": "s",
        "rendered": "r",
        "label": "matmul",
        "problem": {"m": 5},
        "check": VERSION,
    }
    return identity(n) | fields | changes


def pick(n=0, **changes):
    return identity(n) | {"problem": {"m": 5}, "ratio": 0.8, "template": "t", "source": "s"} | changes


NOW = "2026-03-05T07:11:13.170+00:00"
HUGE = 10**400  # JSON has no bounds


def lenient(record):
    """A line whose checksum is right, whatever is in it."""
    text = json.dumps({"schema": 1, **record}, separators=(",", ":"))
    return f'{text[:-1]}{reading.SEAL}{reading.zlib.crc32(text.encode()):08x}"}}'


def numbers(found):
    return [record["configuration"]["mr"] for record in found]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "records.jsonl"


def test_what_is_written_is_read(path):
    with records.Store(path) as store:
        written = [store.append("trial", trial(n)) for n in range(3)]

        assert store.read() == [{"schema": 1, **w} for w in written]
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize("cut", [1, 2, 9, 20, 200])
def test_a_line_that_was_cut_off_spoils_nothing(path, cut):
    with records.Store(path) as store:
        for n in range(2):
            store.append("trial", trial(n))
    os.truncate(path, path.stat().st_size - cut)

    with records.Store(path) as store:
        store.append("trial", trial(7))
        found = store.read()

    assert numbers(found) == ([0, 1, 7] if cut == 1 else [0, 7])
    assert len(store.damage) == (0 if cut == 1 else 1)


def test_a_hole_of_zeros_after_a_power_failure_spoils_nothing(path):
    with records.Store(path) as store:
        store.append("trial", trial(0))
    with path.open("ab") as file:
        file.write(b"\0" * 5000)

    with records.Store(path) as store:
        store.append("trial", trial(1))

        assert numbers(store.read()) == [0, 1]


def test_no_altered_byte_is_believed(path):
    with records.Store(path) as store:
        store.append("trial", trial(0))
    good = path.read_bytes()

    for place in range(0, len(good) - 1, 3):
        bad = bytearray(good)
        bad[place] ^= 1
        path.write_bytes(bytes(bad))

        assert not [r for _, r in reading.read(path) if r], good[place : place + 1]


@pytest.mark.parametrize(
    "value", [None, -1, 0, True, [], {}, "x", 1e400, [0], ["1"], [-1e-3], {"mr": 1.5}, {"mr": "2"}]
)
@pytest.mark.parametrize("name", ["samples", "configuration", "ratio", "device", "kernel", "kind", "timestamp"])
def test_a_field_of_another_type_makes_no_record(name, value):
    line = lenient({"kind": "trial", "timestamp": NOW, **trial(0)} | {name: value})

    if name == "configuration" and value == {}:
        return  # an engine without parameters
    if name == "kernel" and value == "x":
        return
    assert isinstance(reading.unsealed(line), Refusal)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("trial", {"ratio": HUGE}),
        ("trial", {"ratio": 1e300}),
        ("trial", {"samples": [1e-3, HUGE]}),
        ("trial", {"configuration": {"mr": 1 << 63}}),
        ("trial", {"problem": {"m": HUGE}}),
        ("trial", {"times": {"validation": HUGE}}),
        ("trial", {"label": 5}),
        ("trial", {"timestamp": "yesterday"}),
        ("launch", {"timestamp": 5}),
        ("drop", {"timestamp": "0001-01-01T00:00:00+00:00"}),
        ("pick", {"problem": {"m": HUGE}}),
        ("pick", {"ratio": -5}),
        ("pick", {"ratio": 0}),
        ("pick", {"ratio": HUGE}),
    ],
)
def test_a_value_that_nothing_takes_makes_no_record(kind, changes):
    good = {"kind": kind, "timestamp": NOW, **(pick(0) if kind == "pick" else trial(0))}
    stale = {name: value for name, value in good.items() if name != "timestamp"}

    assert isinstance(reading.unsealed(lenient(good)), dict)
    assert "field" in reading.unsealed(lenient(good | changes)).reason
    assert reading.unsealed(lenient(stale)) == Refusal("field 'timestamp' is missing or wrong")


def test_the_largest_numbers_that_are_taken(path):
    with records.Store(path) as store:
        store.append("trial", trial(0, ratio=9e299, configuration={"mr": -(1 << 63), "nr": (1 << 63) - 1}))

        assert len(store.read()) == 1


def test_a_writer_refuses_what_no_reader_would_take(path):
    with records.Store(path) as store:
        with pytest.raises(ValueError, match="samples"):
            store.append("trial", trial(0, samples=[-1.0]))
        with pytest.raises(ValueError, match="JSON"):
            store.append("trial", trial(0, error=float("nan")))

        assert store.read() == []


def test_lines_of_endless_length_and_depth_are_no_records(path):
    path.parent.mkdir()
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    with path.open("w") as file:
        file.write("x" * (3 << 20) + "\n" + deep + "\n[1]\n\n")
    with records.Store(path) as store:
        store.append("trial", trial(4))

        assert numbers(store.read()) == [4]
    assert len(store.damage) == 3


def _write_many(path, worker, count):
    with records.Store(path) as store:
        for n in range(count):
            store.append("trial", trial(1000 * worker + n))


def test_writers_do_not_disturb_each_other(path):
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_write_many, args=(path, worker, 60)) for worker in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    with records.Store(path) as store:
        found = numbers(store.read())

    assert sorted(found) == sorted(1000 * worker + n for worker in range(4) for n in range(60))
    assert store.damage == []


def _hold(path, held):
    file = os.open(path, os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_EX)
    held.set()
    time.sleep(60)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_who_holds_the_lock_and_dies_or_stops_stalls_nobody(path, how, monkeypatch):
    monkeypatch.setattr(records, "LOCK_S", 0.2)
    with records.Store(path) as store:
        fork = multiprocessing.get_context("fork")
        held = fork.Event()
        holder = fork.Process(target=_hold, args=(path, held))
        holder.start()
        held.wait(10)
        os.kill(holder.pid, how)
        store.append("trial", trial(3))

        assert numbers(store.read()) == [3]
        holder.kill()
        holder.join()


def test_a_file_that_is_replaced_while_it_is_written_to_loses_nothing(path):
    with records.Store(path) as store:
        store.append("trial", trial(0, template="older"))
        store.append("trial", trial(1))
        seen = store.read()
        store.append("trial", trial(2))  # after it was read for pruning

        records.write(path, records.pruned(seen, {"cpu": {"contraction": "t"}}), seen)
        store.append("trial", trial(3))

        assert numbers(store.read()) == [1, 2, 3]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_file_that_is_gone_is_begun_anew(path):
    with records.Store(path) as store:
        store.append("trial", trial(0))
        path.unlink()
        store.append("trial", trial(1))

        assert numbers(store.read()) == [1]


def test_what_another_is_writing_to_is_not_replaced(path, monkeypatch):
    monkeypatch.setattr(records, "LOCK_S", 0.05)
    with records.Store(path) as store:
        store.append("trial", trial(0))
        with store.locked(), pytest.raises(RecordError, match=r"GPC7101.*temporarily unavailable"):
            records.write(path, [])

        assert numbers(store.read()) == [0]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_full_device_is_a_clear_error():
    store = records.Store.__new__(records.Store)
    store.path, store._synced, store._file = Path("/dev/full"), 0.0, os.open("/dev/full", os.O_RDWR)

    with pytest.raises(RecordError, match=r"make room and continue with gpucomp\.TuneOptions"):
        store.append("trial", trial(0))
    os.close(store._file)


FULL = """
import resource, signal
from pathlib import Path
from tests.tuning.test_records import trial
from gpucomp.errors import RecordError
from gpucomp.tuning import records
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))
with records.Store(Path({path!r})) as store:
    try:
        for n in range(100):
            store.append("trial", trial(n))
    except RecordError as error:
        print(n, error)
"""


def test_a_file_that_may_not_grow_keeps_what_it_has(path):
    root = Path(__file__).parents[2]
    code = FULL.format(path=str(path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    count, message = done.stdout.split(" ", 1)

    with records.Store(path) as store:
        found = numbers(store.read())

    assert found == list(range(int(count)))
    assert len(found) > 3
    assert store.damage == []  # the part of a line that fitted was taken back
    assert "GPC7101" in message
    assert "File too large" in message


def _filling(path, monkeypatch, theirs):
    """A disk with room for two pieces of 40 bytes; another writer adds ``theirs[n]`` after the piece ``n``."""
    real, pieces = os.write, []

    def write(file, data):
        if len(pieces) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        pieces.append(real(file, data[:40]))
        with path.open("ab") as other:
            other.write(theirs.get(len(pieces), b""))
        return pieces[-1]

    monkeypatch.setattr(os, "write", write)


@pytest.mark.parametrize("piece", [1, 2])
def test_another_s_line_behind_a_part_of_one_is_left_there(path, piece, monkeypatch):
    with records.Store(path) as store:
        store.append("trial", trial(0))
        line = reading.sealed({"kind": "trial", "timestamp": records.now(), **trial(5)}).encode()
        with monkeypatch.context() as patch:
            _filling(path, patch, {piece: b"\n" + line + b"\n"})
            with pytest.raises(RecordError, match="No space left"):
                store.append("trial", trial(1))
        store.append("trial", trial(2))

        assert numbers(store.read()) == [0, 5, 2]


def test_all_parts_of_a_line_are_taken_back_when_nothing_is_behind(path, monkeypatch):
    with records.Store(path) as store:
        store.append("trial", trial(0))
        size = path.stat().st_size
        with monkeypatch.context() as patch:
            _filling(path, patch, {})
            with pytest.raises(RecordError, match="No space left"):
                store.append("trial", trial(1))

        assert path.stat().st_size == size


def test_a_disk_that_fails_to_sync_is_a_clear_error_and_a_pipe_is_none(path, monkeypatch):
    failing = [errno.EIO]

    def fdatasync(file):
        raise OSError(failing[0], os.strerror(failing[0]))

    with records.Store(path) as store:
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        for what in (store.sync, lambda: store.append("launch", identity(0))):
            with pytest.raises(RecordError, match="cannot be written: Input/output error"):
                what()
        failing[0] = errno.EINVAL
        store.append("launch", identity(1))


def test_a_launch_is_on_the_disk_before_it_runs(path, monkeypatch):
    synced = []
    with records.Store(path) as store:
        monkeypatch.setattr(os, "fdatasync", synced.append)
        store.append("trial", trial(0))
        assert synced == []  # not every line
        store.append("launch", identity(1))
        assert len(synced) == 1


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(RecordError, match="cannot be opened: Not a directory"):
        records.Store(tmp_path / "file" / "deep" / "records.jsonl")


# what the records say


def test_trials_of_another_template_or_device_are_not_known():
    found = [
        {"kind": "trial", **trial(0)},
        {"kind": "trial", **trial(1, template="older")},
        {"kind": "trial", **trial(2, device=DEVICE | {"arch": "other"})},
    ]

    known = records.known(found, DEVICE | {"driver": "7"}, {"contraction": "t"})

    assert [key[2] for key in known["k" * 8].trials] == [(("mr", 0),)]


def test_what_another_check_found_correct_is_not_known():
    found = [
        {"kind": "trial", **trial(0)},
        {"kind": "trial", **trial(1, check=VERSION + 1)},
        {"kind": "trial", **trial(2, check=None)},
        {"kind": "trial", **trial(3, check=None, invalidity="compile", samples=[])},
    ]

    known = records.known(found, DEVICE, {"contraction": "t"})

    assert [key[2][0][1] for key in known["k" * 8].trials] == [0, 3]


def test_what_went_wrong_only_once_does_not_hide_what_is_known():
    once = {"invalidity": "compile", "samples": [], "transient": True}
    found = [{"kind": "trial", "timestamp": NOW, **t} for t in (trial(0), trial(0, **once), trial(1, **once))]

    known = records.known(found, DEVICE, {"contraction": "t"})
    kept = records.pruned(found, {DEVICE["kind"]: {"contraction": "t"}})

    for trials in (list(known["k" * 8].trials.values()), kept):
        assert [t["invalidity"] for t in trials] == ["correct", "compile"]


def test_trials_of_other_files_and_shipped_ones_are_there_to_start_from(path, tmp_path, monkeypatch):
    shipped = tmp_path / "shipped"
    monkeypatch.setattr(reading, "shipped", lambda: shipped)
    for number, place in enumerate([path, path.with_name("of another device.jsonl"), shipped / "trials" / "s.jsonl"]):
        with records.Store(place) as store:
            store.append("trial", trial(number))
            store.append("pick", pick(number))
    with path.with_name("of another device.jsonl").open("ab") as file:
        file.write(b"nonsense")

    assert numbers(records.beside(path)) == [1, 2]
    assert numbers(records.beside(tmp_path / "elsewhere" / "r.jsonl")) == [2]


def test_files_beside_that_cannot_be_read_are_passed_over_and_named(path, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "shipped", lambda: tmp_path / "shipped")
    for number, place in enumerate([path, path.with_name("a.jsonl"), path.with_name("c.jsonl")]):
        with records.Store(place) as store:
            store.append("trial", trial(number))
    path.with_name("b.jsonl").mkdir()
    path.with_name("d.jsonl").symlink_to(path.with_name("nowhere"))

    with pytest.warns(RuntimeWarning, match="the search does not use these records: records") as said:
        found = records.beside(path)

    assert numbers(found) == [1, 2]
    assert [name in str(warning.message) for warning, name in zip(said, ("b.jsonl", "d.jsonl"), strict=True)] == [
        True
    ] * 2


def test_a_portfolio_is_the_fastest_of_each_kernel_engine_and_device():
    other = DEVICE | {"name": "another"}
    times = {0: 0.7, 1: 0.5, 2: 0.9, 3: 0.6}
    found = [{"kind": "trial", "timestamp": NOW, **trial(n, ratio=ratio)} for n, ratio in times.items()]
    found += [{"kind": "trial", "timestamp": NOW, **trial(4, ratio=2.0, device=other)}]
    found += [
        {"kind": "trial", "timestamp": NOW, **trial(5, invalidity="compile", samples=[])},
        {"kind": "pick", **pick(6)},
    ]

    kept = records.portfolio(found, 2)

    assert numbers(kept) == [1, 3, 4]
    assert [reading.fault(record) for record in kept] == ["", "", ""]


def test_of_a_device_without_a_name_nothing_is_known():
    device = DEVICE | {"kind": "cuda", "arch": "sm_89", "name": ""}

    assert records.known([{"kind": "trial", **trial(0, device=device)}], device, {"contraction": "t"}) == {}


def test_what_was_launched_and_never_ended_is_a_killer():
    found = [
        {"kind": "launch", **identity(0)},
        {"kind": "trial", **trial(0)},
        {"kind": "launch", **identity(1)},
        {"kind": "launch", **identity(2)},
        {"kind": "release", **identity(2)},
        {"kind": "launch", **identity(3)},
        {"kind": "trial", **trial(3, invalidity="timeout", samples=[])},
    ]

    known = records.known(found, DEVICE, {"contraction": "t"})

    assert sorted(key[2][0][1] for key in known["k" * 8].killers) == [1, 3]
    assert sorted(key[2][0][1] for key in known["k" * 8].trials) == [0, 3]


@pytest.mark.parametrize(
    ("ends", "left"),
    [
        ([], 2),
        (["killed", "killed"], 2),
        (["timeout"], 2),
        (["release"], 1),
        (["killed", "release"], 1),
        (["release", "release"], None),
        (["correct"], None),
    ],
)
def test_how_often_a_default_was_launched_without_an_end_outlasts_pruning(ends, left):
    found = [{"kind": "launch", "timestamp": NOW, **identity(3)} for _ in range(2)]
    for end in ends:
        if end == "release":
            found.append({"kind": end, "timestamp": NOW, **identity(3)})
        else:
            found.append({"kind": "trial", "timestamp": NOW, **trial(3, invalidity=end)})

    for seen in (found, records.pruned(found, {"cpu": {"contraction": "t"}})):
        killers = records.known(seen, DEVICE, {"contraction": "t"})
        assert [count for known in killers.values() for count in known.killers.values()] == ([left] if left else [])


def test_a_merge_has_each_record_once_by_time(path, tmp_path):
    with records.Store(path) as a, records.Store(tmp_path / "b.jsonl") as b:
        first = a.append("trial", trial(0))
        time.sleep(0.002)
        second = b.append("trial", trial(1))
        records.write(tmp_path / "c.jsonl", [second, first])

    found, damage = records.everything([path, tmp_path])

    assert len(found) == 4
    assert numbers(records.merged(found)) == [0, 1]
    assert damage == []


def test_pruning_leaves_what_still_says_something():
    found = [
        {"kind": "launch", **identity(0)},
        {"kind": "trial", **trial(0)},
        {"kind": "launch", **identity(1)},
        {"kind": "launch", **identity(2)},
        {"kind": "release", **identity(2)},
        {"kind": "trial", **trial(3, template="older")},
        {"kind": "pick", "timestamp": "2026-03-05T07:11:13+00:00", **pick(0)},
        {"kind": "pick", "timestamp": "2026-03-05T07:11:14+00:00", **pick(3)},
    ]

    kept = records.pruned(found, {"cpu": {"contraction": "t"}})

    assert [(r["kind"], r["configuration"]["mr"]) for r in kept] == [("trial", 0), ("launch", 1), ("pick", 3)]


def test_pruning_leaves_the_last_decision_by_time_whatever_its_template():
    def decided(kind, when, **changes):
        return {"kind": kind, "timestamp": f"2026-03-05T{when}", **pick(**changes)}

    late = decided("pick", "07:11:14+00:00", n=5, template="older")
    early = decided("pick", "08:11:13+01:00", n=4)  # the later text, the earlier time
    drop = decided("drop", "07:11:15+00:00")

    for found in ([early, late], [late, early]):
        assert records.pruned(found, {"cpu": {"contraction": "t"}}) == [late]
    assert records.pruned([drop, early, late], {}) == [drop]


def test_a_merge_goes_by_time_not_by_text():
    late, early = (
        {"kind": "trial", "timestamp": t, **trial(n)}
        for n, t in enumerate(["2026-03-05T07:11:14+00:00", "2026-03-05T08:11:13+01:00"])
    )

    assert records.merged([late, early]) == [early, late]


def test_nothing_at_all_is_an_error_of_its_own(tmp_path):
    with pytest.raises(RecordError, match=r"no such file, or no \.jsonl file in it"):
        records.everything([tmp_path])
