"""Notes about files: they hold while a file is as it was, and no longer."""

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
    known.note(folder, os.stat(path), text, time.time_ns() + known.REST_NS)


def test_a_note_is_found_again(large, tmp_path):
    assert known.told(tmp_path / "c", os.stat(large)) == ""
    later_note(tmp_path / "c", large)

    assert known.told(tmp_path / "c", os.stat(large)) == "what it is"
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

    assert known.told(tmp_path / "c", os.stat(large)) == ""


def test_no_note_is_made_of_a_file_that_was_just_written(large, tmp_path):
    known.note(tmp_path / "c", os.stat(large), "too early", time.time_ns())

    assert known.told(tmp_path / "c", os.stat(large)) == ""


def test_a_file_of_this_process_has_to_rest_for_a_tick_only(large, tmp_path):
    known.note_written(tmp_path / "c", large, "mine")
    status = os.stat(large)
    assert known.told(tmp_path / "c", status) == "mine"

    with_its_old_time(large)
    assert os.stat(large).st_ctime_ns != status.st_ctime_ns
    assert known.told(tmp_path / "c", os.stat(large)) == ""


def test_notes_end_with_the_machine(large, tmp_path, monkeypatch):
    later_note(tmp_path / "c", large)
    monkeypatch.setattr(known, "_boot", lambda: "another start")
    assert known.told(tmp_path / "c", os.stat(large)) == ""

    monkeypatch.setattr(known, "_boot", lambda: "")  # it cannot be found out
    later_note(tmp_path / "c", large)
    assert known.told(tmp_path / "c", os.stat(large)) == ""


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b"null", b'{"of": [], "told": "x"}', b'{"told": "x"}', b'"text"']
)
def test_a_damaged_note_is_none(large, tmp_path, content):
    later_note(tmp_path / "c", large)
    ((path,),) = [entry.paths for entry in cache.entries(tmp_path / "c")]
    path.write_bytes(content)

    assert known.told(tmp_path / "c", os.stat(large)) == ""


def test_small_files_and_no_folder(tmp_path):
    small = tmp_path / "small"
    small.write_bytes(bytes(known.LARGE - 1))
    later_note(tmp_path / "c", small)
    later_note(None, small)
    (tmp_path / "full").write_text("no folder")
    small.write_bytes(bytes(SIZE))
    later_note(tmp_path / "full", small)

    assert not cache.entries(tmp_path / "c")
    assert known.told(None, os.stat(small)) == known.told(tmp_path / "full", os.stat(small)) == ""
