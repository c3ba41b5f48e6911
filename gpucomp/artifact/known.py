"""What is known of large files that did not change since, so that their bytes need not be read to find it out again.

A note names a file by its device, inode, size and times. One of them is the time of its last change, which nobody can set:
writing a file moves it to the present, and so does giving it an older time of writing. Within one tick of the file system's
clock it stays the same, so a note is only made of a file that was at rest before its bytes were read. It holds until the
machine starts anew: what a power failure left of a file may have its times.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
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


def told(folder: Path | None, status: os.stat_result) -> str:
    """What was noted of the file with this ``status``; empty if nothing was, or if it changed since."""
    if folder is None or status.st_size < LARGE or not _boot():
        return ""
    try:
        known = json.loads(files.read(_place(folder, status)) or b"null")
    except (ValueError, RecursionError):
        return ""
    is_of_it = isinstance(known, dict) and known.get("of") == _identity(status) and isinstance(known.get("told"), str)
    return str(known["told"]) if is_of_it else ""


def note(folder: Path | None, status: os.stat_result, text: str, began_ns: int) -> None:
    """Keep ``text`` about a file. ``status`` is that from before its bytes were read, at ``began_ns`` (``time.time_ns``).

    Nothing is kept of a small file, of one that was not at rest by then, and in a folder that cannot be written.
    """
    if began_ns - max(status.st_mtime_ns, status.st_ctime_ns) >= REST_NS:
        _keep(folder, status, text)


def note_written(folder: Path | None, path: Path, text: str) -> None:
    """Keep ``text`` about a file that this process has written, and that nobody else writes. Waits for the end of the tick.

    Raises ``OSError`` if the file is gone.
    """
    status = os.lstat(path)
    for _ in range(MOST_WAITS):
        if time.clock_gettime_ns(COARSE) > max(status.st_mtime_ns, status.st_ctime_ns):
            _keep(folder, status, text)
            return
        time.sleep(TICK_S)


def _keep(folder: Path | None, status: os.stat_result, text: str) -> None:
    if folder is None or status.st_size < LARGE or not _boot():
        return
    with contextlib.suppress(OSError):
        files.write(_place(folder, status), json.dumps({"of": _identity(status), "told": text}).encode())


def _identity(status: os.stat_result) -> list[object]:
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, _boot()]


def _place(folder: Path, status: os.stat_result) -> Path:
    key = hashlib.sha256(f"{status.st_dev} {status.st_ino}".encode()).hexdigest()
    return folder / KIND / key[:2] / f"{key}.json"


@cache
def _boot() -> str:
    """What is another text after each start of the machine; empty if it is unknown."""
    with contextlib.suppress(OSError):
        return BOOT.read_text(encoding="ascii").strip()
    return ""
