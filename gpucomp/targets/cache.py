"""The cache of compiled kernels: content-addressed files that processes share. It never makes a compilation fail."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from gpucomp import config
from gpucomp.artifact import cache
from gpucomp.kernel.source import KernelSource

FORMAT = 1
MAX_HEADER = 4096  # bytes
log = logging.getLogger(__name__)


class KernelCache:
    """One file for each entry: a JSON header line with the payload's length and sha256, then the payload.

    Everything read is verified. An entry that is damaged, or that other users could have written, is a miss and is
    replaced. If the folder cannot be written (read-only, full), compilation goes on without it, and one warning is
    logged.
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
        content = cache.read(self.path(key))
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
        try:
            cache.write(self.path(key), json.dumps(header).encode() + b"\n" + payload)
        except OSError as error:
            if not self._warned:
                log.warning("compiled kernels are not cached: %s: %s", self.folder, error.strerror or error)
                self._warned = True


def open_cache() -> KernelCache | None:
    """The cache of the configuration; ``None`` if it is switched off."""
    folder = config.current().cache
    return KernelCache(folder / "kernels") if folder is not None else None
