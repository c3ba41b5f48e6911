"""Children that draw and run models, and the threads that ask them: a crash or a hang of one costs that model alone."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.gpu.results import append

ROOT = Path(__file__).parents[2]
PER_CHILD = 300  # models: what a leak takes goes back with the child
STARVED = 15  # times as long as its work may take what waits for a busy machine, or for ever


def processor_seconds(process: int) -> float:
    """What all threads of a process have had of the processor so far; 0 for one that has ended (proc(5), stat)."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Child:
    """A process that is told seeds, and says a line of JSON for the drawing and one for each target."""

    def __init__(self, command: Sequence[str]) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the child
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0
        )
        self.done = 0
        self._rest = b""

    def ask(self, seed: int) -> None:
        assert self.process.stdin
        self.done += 1
        with contextlib.suppress(BrokenPipeError):  # its answer says that it has ended
            self.process.stdin.write(b"%d\n" % seed)

    def answer(self, patience: float) -> dict[str, Any] | str:
        """The next line that it says, or why there is none: then it has ended.

        It may take ``patience`` seconds of the processor, and ``STARVED`` times as long where others have that.
        """
        assert self.process.stdout
        start, worked = time.monotonic(), processor_seconds(self.process.pid)
        while b"\n" not in self._rest:
            if not select.select([self.process.stdout], [], [], min(1.0, patience / 4))[0]:
                busy, waited = processor_seconds(self.process.pid) - worked, time.monotonic() - start
                if busy > patience or waited > STARVED * patience:
                    self.end()
                    return f"a hang: no word in {busy:.0f} s of the processor, {waited:.0f} s in all"
                continue
            more = self.process.stdout.read(1 << 16)
            if not more:
                code = self.process.wait()
                self.errors.seek(0)
                return f"a crash: exit status {code}: {self.errors.read()[-1500:].decode(errors='replace')}"
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream:
                stream.close()


class Fleet:
    """``run`` asks for every one of ``seeds`` on ``targets``, and writes how each ended to the journal.

    A line is ``{"seed": 7, "target": "cpu", "fault": "" or what is wrong, "refused": "" or why, "ops": [...], ...}``.
    """

    def __init__(
        self,
        seeds: Iterator[int],
        targets: Sequence[str],
        command: Sequence[str],
        journal: Path,
        patience: float,
        minutes: float,
    ) -> None:
        self.seeds, self.targets, self.command = seeds, targets, command
        self.journal, self.patience, self.deadline = journal, patience, time.monotonic() + 60 * minutes
        self.lock = threading.Lock()

    def run(self, workers: int) -> None:
        threads = [threading.Thread(target=self._work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        child: Child | None = None
        while time.monotonic() < self.deadline:
            with self.lock:
                seed = next(self.seeds, None)
            if seed is None:
                break
            if child is not None and child.done >= PER_CHILD:
                child.end()
                child = None
            child = child or Child(self.command)
            if not self._one(child, seed):
                child.end()
                child = None
        if child is not None:
            child.end()

    def _one(self, child: Child, seed: int) -> bool:
        """Ask for one model on every target; whether the child lives on."""
        child.ask(seed)
        drawn = child.answer(self.patience)
        if isinstance(drawn, str):  # a judge's end is no finding of ours, and is told apart
            for target in self.targets:
                self._tell(seed, target, {"fault": "", "refused": f"while drawing: {drawn}"})
            return False
        for target in self.targets:
            said = child.answer(self.patience)
            if isinstance(said, str):
                self._tell(seed, target, {"fault": said} | drawn)
                return False
            self._tell(seed, target, said | drawn)
        return True

    def _tell(self, seed: int, target: str, entry: dict[str, Any]) -> None:
        with self.lock:
            append(self.journal, {"seed": seed, "target": target} | entry)
        if entry["fault"]:
            print(f"FAULT seed {seed} on {target}: {entry['fault'][:300]}", file=sys.stderr, flush=True)
