"""Runs hostile cases in a child process and says what became of each, also when the child died of one or hangs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.hostile.corpus import Case
from tests.hostile.worker import ROOT

PATIENCE = 60.0  # seconds of the wall clock for one case: beyond that not even its own timer ends it
START = 300.0  # for a process that imports everything, on a machine that has much else to do
CORPUS = "tests.hostile.corpus"


def environment(scratch: Path) -> dict[str, str]:
    """Nothing of the user's: folders of its own, one thread, no network proxies, no settings."""
    for name in ("home", "tmp", "cache"):
        (scratch / name).mkdir(exist_ok=True)
    return {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(scratch / "home"),
        "TMPDIR": str(scratch / "tmp"),
        "GPUCOMP_CACHE": str(scratch / "cache"),
        "GPUCOMP_RECORDS": "",
        "GPUCOMP_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",
    }


class Child:
    """One worker process and the lines it answers with."""

    def __init__(self, scratch: Path, module: str) -> None:
        command = [sys.executable, "-m", "tests.hostile.worker", str(scratch), module]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(scratch),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._rest = b""

    def ask(self, name: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name}\n".encode())
        self.process.stdin.flush()

    def answer(self, patience: float) -> dict[str, Any] | None:
        """The next line, or ``None`` when the process ended or took longer than ``patience``."""
        assert self.process.stdout is not None
        handle = self.process.stdout.fileno()
        while b"\n" not in self._rest:
            if not select.select([handle], [], [], patience)[0] or not (data := os.read(handle, 1 << 16)):
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> str:
        """Why it ended, or that it had to be ended."""
        try:
            _, errors = self.process.communicate(timeout=2)  # nothing more is asked: it ends, unless it hangs
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            return "hangs: it was killed"
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        return f"died with status {self.process.returncode}: {last}"


def outcomes(cases: Sequence[Case], scratch: Path, module: str = CORPUS, patience: float = PATIENCE) -> dict[str, Any]:
    """What ``worker.judge`` says of each case by name; a case that its process died of has only ``faults``."""
    found: dict[str, Any] = {}
    pending = [case.name for case in cases]
    while pending:
        child = Child(scratch, module)
        try:
            while pending:
                name = pending[0]
                try:
                    child.ask(name)
                except BrokenPipeError:
                    raise RuntimeError(f"the worker does not start: {child.end()}") from None
                started = child.answer(max(patience, START))
                if started is None:
                    raise RuntimeError(f"the worker does not start: {child.end()}")
                result = child.answer(patience)
                pending.pop(0)
                if result is None:
                    found[name] = {"name": name, "code": "death", "message": "", "faults": [child.end()]}
                    break
                found[name] = result
        finally:
            child.end()
    return found


def complaints(cases: Mapping[str, Case], found: Mapping[str, Any]) -> list[str]:
    """A line for every case that did not end as it has to."""
    lines = []
    for name, case in cases.items():
        result = found[name]
        faults = list(result["faults"])
        if result["code"] != case.code:
            faults.append(f"{case.code} expected, {result['code']} found: {result['message'][:300]}")
        elif case.mention and case.mention not in result["message"]:
            faults.append(f"{case.mention!r} is not in {result['message'][:300]!r}")
        lines += [f"{name}: {fault}" for fault in faults]
    return lines
