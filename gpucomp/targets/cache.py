"""The cache of compiled kernels: content-addressed files that processes share. It never makes a compilation fail."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpucomp import config
from gpucomp.kernel.source import KernelSource

FORMAT = 1
MAX_HEADER = 4096  # bytes
MAX_ENTRY = 2 << 30
log = logging.getLogger(__name__)


class KernelCache:
    """One file for each entry: a JSON header line with the payload's length and sha256, then the payload.

    Everything read is verified. An entry that is damaged, or that other users could have written, is a miss and is
    replaced. Files are written atomically. If the folder cannot be written (read-only, full), compilation goes on without
    it, and one warning is logged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._warned = False

    @staticmethod
    def key(source: KernelSource, *, target: str, compiler: str, flags: Sequence[str]) -> str:
        """A hash of everything that the binary depends on."""
        parts = [str(FORMAT), source.digest, target, compiler, *flags]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.bin"

    def get(self, key: str) -> bytes | None:
        """The payload, or ``None`` if the entry is missing or damaged."""
        content = _content(self.path(key))
        head, newline, payload = content.partition(b"\n")
        if len(head) > MAX_HEADER:
            return None
        try:
            header = json.loads(head)
        except (ValueError, RecursionError):
            return None
        if not newline or not isinstance(header, dict) or header.get("key") != key:
            return None
        same = header.get("bytes") == len(payload) and header.get("sha256") == hashlib.sha256(payload).hexdigest()
        return payload if same else None

    def put(self, key: str, payload: bytes) -> None:
        """Store ``payload``. If several processes write the same key, the last one wins; all write the same bytes."""
        header = {"format": FORMAT, "key": key, "bytes": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
        path = self.path(key)
        temporary = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps(header).encode() + b"\n" + payload)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            if not self._warned:
                log.warning("compiled kernels are not cached: %s: %s", self.folder, error.strerror or error)
                self._warned = True


def _content(path: Path) -> bytes:
    """The bytes of an entry; empty unless it is a regular file of this user or root that nobody else can write."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            trusted = status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if not stat.S_ISREG(status.st_mode) or not trusted or status.st_size > MAX_ENTRY:
                return b""
            return file.read(status.st_size)
    except (OSError, MemoryError):
        return b""


def open_cache() -> KernelCache | None:
    """The cache of the configuration; ``None`` if it is switched off."""
    folder = config.current().cache
    return KernelCache(folder / "kernels") if folder is not None else None
