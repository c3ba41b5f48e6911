"""What is known of large files that did not change since, so that their bytes need not be read to find it out again.

A note names a file by its device, inode, size and times. One of them is the time of its last change, which nobody can set:
writing a file moves it to the present, and so does giving it an older time of writing. Within one tick of the file system's
clock it stays the same, so a note is only made of a file that was at rest before its bytes were read. It holds until the
machine starts anew: what a power failure left of a file may have its times.

A store through a shared mapping (``mmap``, ``np.memmap``) moves that time only when it makes a clean page dirty. So the file is
written back with ``fsync`` before its bytes are read: its pages are then clean and protected, and the next store moves the time.
This is so on the file systems of ``PROTECTING`` (https://docs.kernel.org/filesystems/locking.html, ``page_mkwrite``). On tmpfs no
page is ever clean, and those of other machines or processes are written unseen: there are no notes of files on any other one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from gpucomp.artifact import cache as files

KIND = "notes"
# since the last change: more than a tick of any file system, also of one that another machine serves
REST_NS = 2_000_000_000
LARGE = 1 << 20  # bytes of a file from which on a note takes less time than a digest
COARSE = 5  # CLOCK_REALTIME_COARSE of Linux: the time that a local file system writes
TICK_S, MOST_WAITS = 1e-3, 20  # ticks take 1 to 10 ms
BOOT = Path("/proc/sys/kernel/random/boot_id")
MOUNTS, OPENED = Path("/proc/self/mountinfo"), Path("/proc/self/fdinfo")  # man 5 proc
PROTECTING = frozenset(
    {"btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs"}
)  # file systems of Linux that see every first store


def of_bytes(folder: Path | None, kind: str, descriptor: int, read: Callable[[], str]) -> str:
    """What ``read`` tells of the bytes of an open file: from a note if there is one; else it is called, and it is noted.

    ``kind`` says what is told; notes of different kinds are different notes. Raises ``OSError``, and what ``read`` raises.
    """
    if noted := told(folder, kind, os.fstat(descriptor)):
        return noted
    began = time.time_ns()  # before the pages are clean: a store from then on moves the time past this one
    settled = _settled(descriptor, began) if folder is not None else None
    text = read()
    if settled is not None:
        note(folder, kind, settled, text, began)
    return text


def _settled(descriptor: int, began_ns: int) -> os.stat_result | None:
    """The status of an open file of which the next store moves a time, also one through a mapping; ``None`` for no note."""
    status = os.fstat(descriptor)
    if not (_can_be_noted(status) and _is_at_rest(status, began_ns) and _file_system(descriptor) in PROTECTING):
        return None
    try:
        os.fsync(descriptor)
    except OSError:
        return None
    return os.fstat(descriptor)


def _file_system(descriptor: int) -> str:
    """The name of the file system that an open file is on; empty if it is unknown.

    It is found by the number of the mount: the device's number is not in the table for files of btrfs.
    """
    try:
        opened = dict(line.split(":", 1) for line in (OPENED / str(descriptor)).read_text().splitlines() if ":" in line)
        for line in MOUNTS.read_text(errors="replace").splitlines():
            mount, _, about = line.partition(" - ")
            if mount.split(" ", 1)[0] == opened["mnt_id"].strip():
                return about.split(" ", 1)[0]
    except (OSError, KeyError):
        pass
    return ""


def told(folder: Path | None, kind: str, status: os.stat_result) -> str:
    """What was noted of the file with this ``status``; empty if nothing was, or if it changed since."""
    if folder is None or not _can_be_noted(status):
        return ""
    try:
        known = json.loads(files.read(_place(folder, kind, status)) or b"null")
    except (ValueError, RecursionError):
        return ""
    is_of_it = isinstance(known, dict) and known.get("of") == _identity(kind, status)
    text = known.get("told") if is_of_it else None
    return text if isinstance(text, str) else ""


def note(folder: Path | None, kind: str, status: os.stat_result, text: str, began_ns: int) -> None:
    """Keep ``text`` about a file that nobody stores into through a mapping: one of the cache, or one from ``of_bytes``.

    ``status`` is that from before its bytes were read, at ``began_ns`` (``time.time_ns``). Nothing is kept of a small file, of
    one that was not at rest by then, and in a folder that cannot be written.
    """
    if _is_at_rest(status, began_ns):
        _keep(folder, kind, status, text)


def note_written(folder: Path | None, kind: str, path: Path, text: str) -> None:
    """Keep ``text`` about a file that this process has written, and that nobody else writes. Waits for the end of the tick.

    The file may be on any file system: it got its name when it was complete, and from then on it is replaced, but never
    stored into. Raises ``OSError`` if the file is gone.
    """
    status = os.lstat(path)
    for _ in range(MOST_WAITS):
        if time.clock_gettime_ns(COARSE) > max(status.st_mtime_ns, status.st_ctime_ns):
            _keep(folder, kind, status, text)
            return
        time.sleep(TICK_S)


def _is_at_rest(status: os.stat_result, began_ns: int) -> bool:
    return began_ns - max(status.st_mtime_ns, status.st_ctime_ns) >= REST_NS


def _can_be_noted(status: os.stat_result) -> bool:
    return status.st_size >= LARGE and bool(_boot())


def _keep(folder: Path | None, kind: str, status: os.stat_result, text: str) -> None:
    if folder is None or not _can_be_noted(status):
        return
    with contextlib.suppress(OSError):
        content = json.dumps({"of": _identity(kind, status), "told": text})
        files.write(_place(folder, kind, status), content.encode())


def _identity(kind: str, status: os.stat_result) -> list[object]:
    return [kind, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, _boot()]


def _place(folder: Path, kind: str, status: os.stat_result) -> Path:
    key = hashlib.sha256(f"{kind} {status.st_dev} {status.st_ino}".encode()).hexdigest()
    return folder / KIND / key[:2] / f"{key}.json"


@cache
def _boot() -> str:
    """What is another text after each start of the machine; empty if it is unknown."""
    with contextlib.suppress(OSError):
        return BOOT.read_text(encoding="ascii").strip()
    return ""
