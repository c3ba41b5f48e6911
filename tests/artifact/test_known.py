"""Notes about files: they hold while a file is as it was, and no longer."""

import hashlib
import mmap
import os
import time

import pytest

from gpucomp.artifact import cache, known

SIZE = known.LARGE + 17


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(bytes(SIZE))
    return path


def later_note(folder, path, text="what it is"):
    """A note that is made when the file has been at rest for long."""
    known.note(folder, "data", os.stat(path), text, time.time_ns() + known.REST_NS)


def test_a_note_is_found_again(large, tmp_path):
    assert known.told(tmp_path / "c", "data", os.stat(large)) == ""
    later_note(tmp_path / "c", large)

    assert known.told(tmp_path / "c", "data", os.stat(large)) == "what it is"
    assert [entry.kind for entry in cache.entries(tmp_path / "c")] == ["notes"]


def written(path):
    with open(path, "r+b") as file:
        file.write(b"x")


def with_its_old_time(path):
    status = os.stat(path)
    written(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def another(path):
    status = os.stat(path)
    path.rename(path.with_suffix(".old"))
    path.write_bytes(bytes(SIZE))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("change", [written, with_its_old_time, another, lambda p: p.write_bytes(bytes(SIZE + 1))])
def test_no_note_is_of_a_file_that_changed(large, tmp_path, change):
    later_note(tmp_path / "c", large)
    time.sleep(0.02)  # the next tick of the file system's clock
    change(large)

    assert known.told(tmp_path / "c", "data", os.stat(large)) == ""


def test_no_note_is_made_of_a_file_that_was_just_written(large, tmp_path):
    known.note(tmp_path / "c", "data", os.stat(large), "too early", time.time_ns())

    assert known.told(tmp_path / "c", "data", os.stat(large)) == ""


def test_a_file_of_this_process_has_to_rest_for_a_tick_only(large, tmp_path):
    known.note_written(tmp_path / "c", "data", large, "mine")
    status = os.stat(large)
    assert known.told(tmp_path / "c", "data", status) == "mine"

    with_its_old_time(large)
    assert os.stat(large).st_ctime_ns != status.st_ctime_ns
    assert known.told(tmp_path / "c", "data", os.stat(large)) == ""


def test_notes_end_with_the_machine(large, tmp_path, monkeypatch):
    later_note(tmp_path / "c", large)
    monkeypatch.setattr(known, "_boot", lambda: "another start")
    assert known.told(tmp_path / "c", "data", os.stat(large)) == ""

    monkeypatch.setattr(known, "_boot", lambda: "")  # it cannot be found out
    later_note(tmp_path / "c", large)
    assert known.told(tmp_path / "c", "data", os.stat(large)) == ""


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b"null", b'{"of": [], "told": "x"}', b'{"told": "x"}', b'"text"']
)
def test_a_damaged_note_is_none(large, tmp_path, content):
    later_note(tmp_path / "c", large)
    ((path,),) = [entry.paths for entry in cache.entries(tmp_path / "c")]
    path.write_bytes(content)

    assert known.told(tmp_path / "c", "data", os.stat(large)) == ""


def test_notes_of_different_kinds_are_different_notes(large, tmp_path):
    later_note(tmp_path / "c", large, "of data")

    assert known.told(tmp_path / "c", "artefact", os.stat(large)) == ""
    known.note_written(tmp_path / "c", "artefact", large, "of an artefact")
    assert known.told(tmp_path / "c", "data", os.stat(large)) == "of data"
    assert known.told(tmp_path / "c", "artefact", os.stat(large)) == "of an artefact"


@pytest.fixture
def at_rest(large, monkeypatch):
    """A large file at rest, on a file system of which there are notes."""
    monkeypatch.setattr(known, "REST_NS", 20_000_000)  # more than a tick here
    monkeypatch.setattr(known, "_file_system", lambda descriptor: "ext4")
    time.sleep(0.03)
    return large


def digest(folder, path, meanwhile=lambda: None):
    """What ``of_bytes`` gives for a file, and whether it was read."""
    done = []
    with open(path, "rb") as file:

        def read():
            done.append(path)
            found = hashlib.file_digest(file, "sha256").hexdigest()
            meanwhile()
            return found

        return known.of_bytes(folder, "data", file.fileno(), read), bool(done)


def true_digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_is_read_once(at_rest, tmp_path):
    expected = true_digest(at_rest)

    assert digest(None, at_rest) == digest(None, at_rest) == (expected, True)
    assert [digest(tmp_path / "c", at_rest) for _ in range(3)] == [(expected, read) for read in (True, False, False)]


@pytest.mark.parametrize("name", ["tmpfs", "overlay", "nfs4", "fuse.sshfs", "vfat", "9p", ""])
def test_there_are_no_notes_on_file_systems_that_miss_stores(at_rest, tmp_path, monkeypatch, name):
    monkeypatch.setattr(known, "_file_system", lambda descriptor: name)

    assert [digest(tmp_path / "c", at_rest)[1] for _ in range(2)] == [True, True]


def test_a_store_through_a_mapping_counts(large, tmp_path, monkeypatch):
    """On the file system that the tests run on, whichever it is. The page is dirty before the file is read."""
    monkeypatch.setattr(known, "REST_NS", 20_000_000)
    with open(large, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        for value in (b"first", b"other", b"third"):
            mapped[7:12] = value
            time.sleep(0.03)
            assert digest(tmp_path / "c", large)[0] == true_digest(large)


def test_no_note_is_made_of_a_file_that_changes_while_it_is_read(at_rest, tmp_path):
    digest(tmp_path / "c", at_rest, lambda: written(at_rest))

    assert digest(tmp_path / "c", at_rest) == (true_digest(at_rest), True)


def test_no_note_is_made_of_a_file_that_changes_while_it_is_written_back(at_rest, tmp_path, monkeypatch):
    """However long that takes: a store after the page was cleaned makes it dirty again."""

    def slow(descriptor):
        written(at_rest)
        time.sleep(0.05)

    monkeypatch.setattr(os, "fsync", slow)
    digest(tmp_path / "c", at_rest)

    assert digest(tmp_path / "c", at_rest) == (true_digest(at_rest), True)


def test_no_note_is_made_of_a_file_that_cannot_be_written_back(at_rest, tmp_path, monkeypatch):
    def broken(descriptor):
        raise OSError("input/output error")

    monkeypatch.setattr(os, "fsync", broken)

    assert [digest(tmp_path / "c", at_rest)[1] for _ in range(2)] == [True, True]


def test_nothing_waits_for_the_disk_for_a_file_that_gets_no_note(at_rest, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: pytest.fail("it was written back"))
    written(at_rest)
    small = tmp_path / "small"
    small.write_bytes(bytes(known.LARGE - 1))
    os.utime(small, (1e9, 1e9))
    time.sleep(0.03)
    monkeypatch.setattr(known, "REST_NS", 10**12)

    assert digest(tmp_path / "c", at_rest)[1]
    monkeypatch.setattr(known, "REST_NS", 0)
    assert digest(tmp_path / "c", small)[1]
    assert digest(None, at_rest)[1]


TABLE = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
271 27 0:41 /home /home rw,relatime shared:3 master:1 - btrfs /dev/sda2 rw,subvol=/home
"""


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ("pos:\t0\nflags:\t0100000\nmnt_id:\t27\nino:\t9\n", "ext4"),
        ("pos:\t0\nmnt_id:\t271\n", "btrfs"),
        ("pos:\t0\nmnt_id:\t2\n", ""),
        ("pos:\t0\nflags:\t0100000\n", ""),
        ("", ""),
    ],
)
def test_a_file_system_is_found_by_the_mount(tmp_path, monkeypatch, about, expected):
    monkeypatch.setattr(known, "OPENED", tmp_path)
    monkeypatch.setattr(known, "MOUNTS", tmp_path / "mounts")
    (tmp_path / "5").write_text(about)
    assert known._file_system(5) == ""

    (tmp_path / "mounts").write_text(TABLE)
    assert known._file_system(5) == expected
    assert known._file_system(6) == ""


def test_proc_has_a_file_system_of_its_own():
    with open("/proc/self/mountinfo", "rb") as file:
        assert known._file_system(file.fileno()) == "proc"


def test_small_files_and_no_folder(tmp_path):
    small = tmp_path / "small"
    small.write_bytes(bytes(known.LARGE - 1))
    later_note(tmp_path / "c", small)
    later_note(None, small)
    (tmp_path / "full").write_text("no folder")
    small.write_bytes(bytes(SIZE))
    later_note(tmp_path / "full", small)

    assert not cache.entries(tmp_path / "c")
    assert known.told(None, "data", os.stat(small)) == known.told(tmp_path / "full", "data", os.stat(small)) == ""
