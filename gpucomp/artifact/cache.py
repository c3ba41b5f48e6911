"""The files that compilations keep in GPUCOMP_CACHE: each is whole or missing. What is in them does not matter here.

Nothing locks: a file is written beside its place and then renamed, so a process that is killed holds up no other. Nothing
is forced onto the disk either: readers check what they read, and a file that a power failure damaged is missing for them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from gpucomp.lazy_dataclass import dataclass

MAX_ENTRY = 2 << 30  # bytes
ABANDONED = 3600  # seconds after which a file that was never renamed belongs to a process that was killed
BLOCK = 4096  # bytes that the smallest file takes on most disks
DIGEST = hashlib.sha256().digest_size
KINDS = ("exports", "kernels", "models", "notes")


@dataclass(frozen=True)
class Entry:
    """All files with one key, and what they take on a disk: the description of a refusal is small, and there can be many.

    ``used`` is when it was last read or written, in seconds since 1970.
    """

    kind: str
    key: str
    paths: tuple[Path, ...]
    nbytes: int
    used: float


def is_trusted(status: os.stat_result) -> bool:
    """Whether it is a regular file of this user or of root, and nobody else can write it."""
    own = status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return own and stat.S_ISREG(status.st_mode)


def read(path: Path) -> bytes:
    """The bytes of a file, which counts as used now; empty if it is missing or not trusted."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not is_trusted(status) or status.st_size > MAX_ENTRY:
                return b""
            content = file.read(status.st_size)
        with contextlib.suppress(OSError):  # a folder that is read-only is a cache all the same
            os.utime(path)
        return content
    except (OSError, MemoryError):
        return b""


def write(path: Path, content: bytes) -> None:
    """Write a file, completely or not at all. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def export(
    folder: Path | None, key: str, make: Callable[[], bytes], is_current: Callable[[], bool] = lambda: True
) -> tuple[bytes, bool]:
    """A model in ONNX's format by its ``key``, a digest, and whether it was there; else ``make`` gives it, and it is kept.

    Without a ``folder``, or in one that cannot be written, nothing is kept, and neither is it if what it was made from is not
    what the key says any more (``is_current``). Raises what ``make`` raises.
    """
    place = None if folder is None else folder / "exports" / key[:2] / f"{key}.export"
    if place is not None and (known := _checked(read(place))):
        return known, True
    content = make()
    if place is not None and is_current():
        with contextlib.suppress(OSError):
            write(place, hashlib.sha256(content).digest() + content)
    return content, False


def _checked(kept: bytes) -> bytes:
    """What follows its own SHA-256; empty if that is another one."""
    content = kept[DIGEST:]
    return content if hashlib.sha256(content).digest() == kept[:DIGEST] else b""


def entries(folder: Path) -> list[Entry]:
    """Everything in the cache, the least recently used first."""
    return _grouped(_files(folder))


def _grouped(files: Iterable[tuple[str, Path, os.stat_result]]) -> list[Entry]:
    found: dict[tuple[str, str], list[tuple[Path, os.stat_result]]] = {}
    for kind, path, status in files:
        if not path.name.startswith("."):
            found.setdefault((kind, path.stem), []).append((path, status))
    made = [
        Entry(
            kind,
            key,
            tuple(p for p, _ in files),
            sum(-(-s.st_size // BLOCK) * BLOCK for _, s in files),
            max(s.st_mtime for _, s in files),
        )
        for (kind, key), files in found.items()
    ]
    return sorted(made, key=lambda entry: entry.used)


def trim(folder: Path, limit: int) -> None:
    """Delete the least recently used entries until the rest has at most ``limit`` bytes, and what killed processes left."""
    files = list(_files(folder))
    kept = _grouped(files)
    total = sum(entry.nbytes for entry in kept)
    for entry in kept:
        if total <= limit:
            break
        total -= entry.nbytes
        _delete(entry.paths)
    now = time.time()
    _delete(path for _, path, status in files if path.name[0] == "." and now - status.st_mtime > ABANDONED)


def clear(folder: Path) -> tuple[int, int]:
    """Delete every entry. Returns how many there were, and their bytes."""
    files = list(_files(folder))
    gone = _grouped(files)
    _delete(path for _, path, _ in files)
    return len(gone), sum(entry.nbytes for entry in gone)


def _files(folder: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """The regular files that this module may have written: ``KIND/two characters/name``."""
    places = ((kind, place) for kind in KINDS for place in _scan(folder / kind))
    for kind, place in places:
        inside = _scan(Path(place.path)) if len(place.name) == 2 and place.is_dir(follow_symlinks=False) else []
        for file in inside:
            with contextlib.suppress(FileNotFoundError):  # another process deleted it
                if file.is_file(follow_symlinks=False):
                    yield kind, Path(file.path), file.stat(follow_symlinks=False)


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()
