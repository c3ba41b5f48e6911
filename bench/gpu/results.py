"""Results as JSON lines that survive a kill: written one by one, and read when the program runs again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REHEARSED = "none: CUDA on the CPU"  # the device of a dry run
TRIES = 2  # work that was started so often without an end crashes the machine, or never ends


@cache
def fingerprint() -> str:
    """A hash of the sources that results depend on."""
    digest = hashlib.sha256()
    for folder in ("gpucomp", "kernels_templates", "bench/models", "bench/gpu"):
        for path in sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in {".py", ".j2", ".h"}):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a file of JSON lines; a truncated line is skipped."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry


def append(path: Path, entry: dict[str, Any]) -> None:
    """Add a line. It is on the disk before this returns, and is separate from a truncated line before it."""
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(entry).encode() + b"\n")
        file.flush()


class Results:
    """``DIR/results.jsonl``: the starts and ends of all work, with these sources on this kind of device."""

    def __init__(self, folder: Path, device: str) -> None:
        self.path, self.version, self.device = folder / "results.jsonl", fingerprint(), device
        folder.mkdir(parents=True, exist_ok=True)
        self.ended: dict[tuple[str, str], bool] = {}  # to whether it succeeded
        self.started: dict[tuple[str, str], int] = {}
        self.spent: dict[str, float] = {}  # seconds for each part of the plan
        for entry in lines(self.path):
            if (entry.get("version"), entry.get("device")) != (self.version, device):
                continue
            key = entry["stage"], entry["name"]
            if "spent_s" in entry:
                self.spent[key[1]] = self.spent.get(key[1], 0.0) + entry["spent_s"]
            elif "ok" in entry:
                self.ended[key] = bool(entry["ok"])
            elif "stopped" in entry:
                self.started[key] = 0
            else:
                self.started[key] = self.started.get(key, 0) + 1

    def entries(self) -> list[dict[str, Any]]:
        """The last result of each piece of work, with these sources on this device."""
        last: dict[tuple[str, str], dict[str, Any]] = {}
        for entry in lines(self.path):
            if (entry.get("version"), entry.get("device")) == (self.version, self.device) and "ok" in entry:
                last[entry["stage"], entry["name"]] = entry
        return list(last.values())

    def start(self, stage: str, name: str) -> None:
        """Record that work starts. If no end follows, this work ended the call."""
        self.started[stage, name] = self.started.get((stage, name), 0) + 1
        self._write({"stage": stage, "name": name})

    def stop(self, stage: str, name: str) -> None:
        """Record that the time limit stopped the work, so that it is not blamed."""
        self.started[stage, name] = 0
        self._write({"stage": stage, "name": name, "stopped": True})

    def spend(self, part: str, seconds: float) -> None:
        """Record the time of a call for a part of the plan."""
        self.spent[part] = self.spent.get(part, 0.0) + seconds
        self._write({"stage": "first", "name": part, "spent_s": round(seconds, 3)})

    def end(self, stage: str, name: str, result: dict[str, Any]) -> None:
        self.ended[stage, name] = bool(result["ok"])
        self._write({**result, "stage": stage, "name": name})

    def is_culprit(self, stage: str, name: str) -> bool:
        """Whether it was started twice and never ended."""
        return (stage, name) not in self.ended and self.started.get((stage, name), 0) >= TRIES

    def _write(self, entry: dict[str, Any]) -> None:
        append(self.path, {**entry, "version": self.version, "device": self.device})
