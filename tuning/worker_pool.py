"""The processes that build and measure, as the coordinator sees them: killed when they hang, replaced when they die.

A search builds through ``WorkerPool``: ``submit``, ``gather``, ``close``. The pool here has processes of this machine. A
``Runner`` is the one process with the device; a lock file keeps other measurements off the device meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gpucomp.errors import DeviceError, GpucompError
from gpucomp.lazy_dataclass import dataclass
from gpucomp.tuning import messages
from gpucomp.tuning.measure import Patience
from gpucomp.tuning.messages import Arrays, Message

REST_S = 5.0  # time limit from an answer's first byte to its last, if the job's time is over
SAID = 500  # characters kept of the last line of a dead process
Answer = tuple[Message, dict[str, np.ndarray]]


class WorkerPool(Protocol):
    """Runs independent jobs, in any order."""

    def submit(self, job: Message, arrays: Arrays) -> int:
        """Take a job; return its number."""
        ...

    def gather(self, seconds: float) -> list[tuple[int, Answer]]:
        """The answers since the last call; waits at most ``seconds`` for the first one. A job that killed its process or
        took too long is answered too, with ``invalidity`` ``killed`` or ``timeout``.
        """
        ...

    def close(self) -> None:
        """Kill all processes."""
        ...


class Process(Protocol):
    """The process that has a runner's device, on this machine or another. ``started`` counts its restarts."""

    @property
    def alive(self) -> bool: ...
    @property
    def pid(self) -> int: ...
    @property
    def started(self) -> int: ...
    def ask(self, job: Message, arrays: Arrays, limit: float) -> Answer: ...
    def end(self) -> None: ...
    def close(self) -> None: ...


class Worker:
    """One process in a role. After ``ask`` it has either answered or is dead."""

    def __init__(self, role: str, target: str, *, command: list[str] | None = None) -> None:
        self._command = command or [sys.executable, "-m", "gpucomp.tuning.worker", role, target, str(os.getpid())]
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the worker
        self.started = 0  # number of processes so far
        self.since = 0.0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def fileno(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def _start(self) -> None:
        self.end()
        self._log.seek(0)
        self._log.truncate()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, bufsize=0
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self.started += 1

    def send(self, job: Message, arrays: Arrays, limit: float) -> str:
        """Send the process a job, starting a process if there is none. Return why that failed, or ""."""
        if not self.alive:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self.since = time.monotonic()
        pipe, deadline = self._process.stdin.fileno(), self.since + limit
        for part in messages.packed(job, arrays):
            left = memoryview(part)
            while left.nbytes:
                if not select.select([], [pipe], [], max(0.0, deadline - time.monotonic()))[1]:
                    return self._lost("timeout")
                try:
                    left = left[os.write(pipe, left[: 1 << 20]) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    return self._lost("killed")
        return ""

    def receive(self, limit: float) -> Answer:
        """The answer to the last ``send``; if the process died instead, ``invalidity`` says how.

        An answer that has arrived is read however late it is: the caller may have been busy, so only silence is a timeout.
        """
        deadline = [self.since + limit]
        heard: list[bool] = []
        why = [""]

        def read(count: int) -> bytes:
            parts = bytearray()
            while len(parts) < count:
                if not select.select([self], [], [], max(0.0, deadline[0] - time.monotonic()))[0]:
                    why[0] = "timeout"
                    raise EOFError
                part = os.read(self.fileno(), min(count - len(parts), 1 << 20))
                if not part:
                    why[0] = "killed"
                    raise EOFError
                if not heard:
                    heard.append(True)
                    deadline[0] = max(deadline[0], time.monotonic() + REST_S)  # the pipe cannot hold it all
                parts += part
            return bytes(parts)

        try:
            return messages.unpacked(read)
        except EOFError:
            took = time.monotonic() - self.since
            fault = self._lost(why[0])
            return {"invalidity": why[0], "fault": fault, "seconds": took}, {}

    def ask(self, job: Message, arrays: Arrays, limit: float) -> Answer:
        """``send``, then ``receive``."""
        if fault := self.send(job, arrays, limit):
            return {"invalidity": "killed", "fault": fault}, {}
        return self.receive(limit)

    def _lost(self, why: str) -> str:
        took = time.monotonic() - self.since
        if why == "timeout":
            self.end()
            return f"no answer after {took:.0f} s: killed"
        code = self._process.wait() if self._process is not None else None
        self.end()
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return f"the process ended with {code}: {lines[-1] if lines else 'it said nothing'}"[:SAID]

    def end(self) -> None:
        """Kill the process, if there is one."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process = None

    def close(self) -> None:
        self.end()
        self._log.close()


@dataclass
class Builders:
    """A pool of processes on this machine that build, one job at a time each."""

    target: str
    count: int
    patience: Patience = field(default_factory=Patience)

    def __post_init__(self) -> None:
        self._workers = [Worker("build", self.target) for _ in range(max(1, self.count))]
        self._busy: dict[int, Worker] = {}
        self._waiting: deque[tuple[int, Message, Arrays]] = deque()
        self._done: list[tuple[int, Answer]] = []
        self._next = 0

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers if worker.alive]

    def submit(self, job: Message, arrays: Arrays) -> int:
        self._waiting.append((self._next, job, arrays))
        self._next += 1
        self._feed()
        return self._next - 1

    def _feed(self) -> None:
        idle = [worker for worker in self._workers if worker not in self._busy.values()]
        for worker in idle:
            if not self._waiting:
                return
            number, job, arrays = self._waiting.popleft()
            if fault := worker.send(job, arrays, self.patience.limit):
                self._done.append((number, ({"invalidity": "killed", "fault": fault}, {})))
            else:
                self._busy[number] = worker

    def gather(self, seconds: float) -> list[tuple[int, Answer]]:
        deadline = time.monotonic() + seconds
        while self._busy or self._waiting:
            self._feed()
            late = [n for n, w in self._busy.items() if time.monotonic() - w.since > self.patience.limit]
            left = max(0.0, min(deadline - time.monotonic(), 0.2 if not self._done else 0.0))
            heard = select.select(list(self._busy.values()), [], [], left)[0]
            for number in [n for n, w in self._busy.items() if w in heard or n in late]:
                worker = self._busy.pop(number)
                answer = worker.receive(self.patience.limit)
                if "invalidity" not in answer[0]:
                    self.patience.learn(answer[0]["seconds"])
                self._done.append((number, answer))
            if self._done or time.monotonic() >= deadline:
                break
        self._feed()
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


class Runner:
    """The one process with the device. Arrays that it already has are not sent again.

    lock   a file that is locked during each job, so that programs that share a device take turns
    worker the process, if it is not one started here
    gone   why it cannot be asked any more, else "": a process is replaced, but a machine may not come back
    """

    gone = ""

    def __init__(
        self, target: str, *, lock: Path | None = None, command: list[str] | None = None, worker: Process | None = None
    ) -> None:
        self._worker: Process = worker or Worker("run", target, command=command)
        self._lock = lock or Path(tempfile.gettempdir()) / f"gpucomp-{os.getuid()}-{target.partition(':')[0]}.lock"
        self._sent: set[str] = set()
        self._starts = 0
        self.patience = Patience()
        self._held = False
        self.waited = 0.0  # seconds in which others had the lock

    @property
    def pid(self) -> int:
        return self._worker.pid

    def facts(self) -> Message:
        """The facts of the device. Raises ``DeviceError`` if it cannot be opened."""
        answer, _ = self.ask({"do": "facts"}, {}, limit=120.0)
        if "facts" not in answer:
            raise DeviceError(answer.get("fault", "the device does not answer"), code=answer.get("code"))
        return answer

    def forget(self) -> None:
        """Drop all arrays and the learned time limit, before another kernel's turn."""
        if self._worker.alive:
            self.ask({"do": "forget"}, {}, limit=30.0)
        self._sent.clear()
        self.patience = Patience()

    def fresh(self) -> None:
        """Let the next job start a new process."""
        self._worker.end()

    def ask(self, job: Message, arrays: Arrays, *, limit: float | None = None) -> Answer:
        """The answer to a job; it has ``invalidity`` if the process died over the job."""
        patience = self.patience.limit if limit is None else limit
        with self.exclusive():
            # checked under the lock: while others had the device, the process may have died and lost its arrays
            if not self._worker.alive or self._worker.started != self._starts:
                self._sent.clear()
            new = {name: array for name, array in arrays.items() if name not in self._sent}
            begin = time.monotonic()
            answer = self._worker.ask(job, new, patience)
            if limit is None and answer[0].get("invalidity") not in ("killed", "timeout"):
                self.patience.learn(time.monotonic() - begin)
        self._starts = self._worker.started
        self._sent |= new.keys()
        if answer[0].get("lost") or answer[0].get("dead"):
            self._worker.end()
        return answer

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the device's lock in the block; can be nested."""
        if self._held:
            yield
            return
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            begin = time.monotonic()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self.waited += time.monotonic() - begin
            self._held = True
            yield
        finally:
            self._held = False
            os.close(descriptor)

    def close(self) -> None:
        self._worker.close()


def required(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``answer``, or raise the error in it as a ``GpucompError``."""
    if "invalidity" in answer or "error" in answer:
        raise GpucompError(str(answer.get("fault") or answer.get("error")), code=answer.get("code"))
    return answer
