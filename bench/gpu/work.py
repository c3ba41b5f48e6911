"""Who does the work: one child process with the device, killed when it hangs, and others that compile ahead of it.

A fault on a GPU ends the process it happens in, so the process that keeps the results never touches a device.
Children are forked: they know the list of work without its being sent. What is sent are numbers and JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from bench.gpu.results import Results
from gpucomp.errors import DeviceLostError, GpucompError

ERRORS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, MemoryError, OSError, RuntimeError,
          TypeError, ValueError)  # fmt: skip
PARENT_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG
GRACE_S = 25.0  # for what is being done when the time is over


@dataclass(frozen=True, eq=False)
class Job:
    """One piece of work: what is measured or checked between two lines of the results. ``subject`` is the stage's."""

    stage: str
    name: str
    subject: Any = None
    limit_s: float = 60.0


class Stage(Protocol):
    """A module of the kit."""

    def jobs(self, context: Any) -> list[Job]:
        """The work, the most valuable first."""
        ...

    def prepare(self, context: Any, job: Job) -> dict[str, Any]:
        """What needs no device: schedules, sources, binaries in the cache. The answer goes to ``perform``."""
        ...

    def perform(self, context: Any, device: Any, job: Job, prepared: dict[str, Any]) -> dict[str, Any]:
        """What needs the device. The result has ``ok``."""
        ...


@dataclass
class Child:
    """A forked process that answers one request after another."""

    process: Any
    connection: Connection
    job: int | None = None
    since: float = 0.0

    def ask(self, number: int, prepared: dict[str, Any] | None = None) -> None:
        self.job, self.since = number, time.monotonic()
        self.connection.send_bytes(json.dumps([number, prepared]).encode())

    def answer(self) -> dict[str, Any] | None:
        """What it found; ``None`` when it is dead."""
        try:
            return dict(json.loads(self.connection.recv_bytes()))
        except (EOFError, ConnectionError):
            return None

    def end(self) -> int | None:
        """Kill it; its exit code."""
        _kill(self.process)
        self.connection.close()
        return self.process.exitcode


@dataclass
class Crew:
    """Does ``jobs``: ``compilers`` prepare them in order, one child with the device performs them."""

    stage: Stage
    context: Any
    jobs: Sequence[Job]
    log: Path
    compilers: int = 1
    _children: list[Child] = field(default_factory=list)

    def _fork(self, role: Callable[[Any, Connection], None]) -> Child:
        ours, theirs = multiprocessing.get_context("fork").Pipe()
        inherited = [child.connection for child in self._children] + [ours]
        process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(role, self, theirs, inherited, self.log)
        )
        process.start()
        theirs.close()
        child = Child(process, ours)
        self._children.append(child)
        return child

    def _end(self, child: Child) -> int | None:
        self._children.remove(child)
        return child.end()

    def run(self, results: Results, deadline: float, done: Callable[[Job, dict[str, Any]], None]) -> bool:
        """Whether everything is done; ``False`` when the time was over before that. ``deadline`` is monotonic."""
        waiting = list(range(len(self.jobs)))  # to be prepared
        prepared: dict[int, dict[str, Any]] = {}
        left = set(waiting)
        try:
            makers = [self._fork(_prepare) for _ in range(min(self.compilers, len(self.jobs)))]
            performer: Child | None = None
            while left:
                now = time.monotonic()
                for maker in makers:
                    if maker.job is None and waiting:
                        maker.ask(waiting.pop(0))
                if (performer is None or performer.job is None) and (ready := sorted(left & prepared.keys())):
                    if now > deadline:
                        return False
                    job = self.jobs[ready[0]]
                    if "error" in prepared[ready[0]]:
                        self._finish(ready[0], {"ok": False, **prepared[ready[0]]}, results, left, done)
                        continue
                    performer = performer or self._fork(_perform)
                    results.start(job.stage, job.name)
                    performer.ask(ready[0], prepared[ready[0]])
                busy = [c for c in (*makers, *([performer] if performer else [])) if c.job is not None]
                if not busy:
                    return False
                if performer is None and now > deadline:
                    return False
                heard = wait([c.connection for c in busy], timeout=0.5)
                for maker in list(makers):
                    if maker.job is not None and maker.connection in heard:
                        number, answer = maker.job, maker.answer()
                        maker.job = None
                        prepared[number] = answer if answer is not None else {"error": "the compiling process died"}
                        if answer is None:
                            self._end(maker)
                            makers[makers.index(maker)] = self._fork(_prepare)
                if performer is not None and performer.job is not None:
                    if time.monotonic() > deadline + GRACE_S:
                        job = self.jobs[performer.job]
                        results.stop(job.stage, job.name)
                        return False
                    performer = self._heed(performer, performer.connection in heard, results, left, done)
            return True
        finally:
            for child in list(self._children):
                self._end(child)

    def _heed(
        self,
        performer: Child,
        answered: bool,
        results: Results,
        left: set[int],
        done: Callable[[Job, dict[str, Any]], None],
    ) -> Child | None:
        """Take the performer's answer, or its end; the performer, or ``None`` when a fresh one is needed."""
        number = performer.job
        assert number is not None
        job = self.jobs[number]
        if answered:
            answer = performer.answer()
            if answer is None:
                performer.process.join()
                code = self._end(performer)
                found = {"ok": False, "error": f"the process ended with {code}: {last_line(self.log)}"}
                self._finish(number, found, results, left, done)
                return None
            fresh = answer.pop("fresh", False)
            performer.job = None
            self._finish(number, answer, results, left, done)
            if fresh:
                self._end(performer)
                return None
        elif time.monotonic() - performer.since > job.limit_s:
            self._end(performer)
            found = {"ok": False, "error": f"still running after {job.limit_s:g} s"}
            self._finish(number, found, results, left, done)
            return None
        return performer

    def _finish(
        self,
        number: int,
        result: dict[str, Any],
        results: Results,
        left: set[int],
        done: Callable[[Job, dict[str, Any]], None],
    ) -> None:
        job = self.jobs[number]
        left.discard(number)
        results.end(job.stage, job.name, result)
        done(job, result)


def _kill(process: Any) -> None:
    """End a child with all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _serve(
    role: Callable[[Any, Connection], None],
    crew: Crew,
    connection: Connection,
    inherited: Sequence[Connection],
    log: Path,
) -> None:
    """A child's life. What it prints goes to ``log``; the parent's ends of pipes are not its own."""
    os.setpgid(0, 0)  # so that what it starts ends with it
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)  # nobody is left to end it: it holds the device
    for other in inherited:
        other.close()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout = sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8")
    faulthandler.enable(file=sys.stderr)
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        role(crew, connection)


def _prepare(crew: Crew, connection: Connection) -> None:
    while True:
        number, _ = json.loads(connection.recv_bytes())
        connection.send_bytes(json.dumps(prepared(crew.stage, crew.context, crew.jobs[number])).encode())


def prepared(stage: Stage, context: Any, job: Job) -> dict[str, Any]:
    """As ``stage.prepare``; ``error`` in it where that failed."""
    try:
        return stage.prepare(context, job)
    except (GpucompError, *ERRORS) as error:
        return {"error": _said(error)}


def _perform(crew: Crew, connection: Connection) -> None:
    device: Any = None
    while True:
        number, given = json.loads(connection.recv_bytes())
        job = crew.jobs[number]
        print(f"{job.stage} {job.name}", file=sys.stderr, flush=True)
        device, result = performed(crew.stage, crew.context, device, job, given)
        connection.send_bytes(json.dumps(result).encode())


def performed(stage: Stage, context: Any, device: Any, job: Job, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The device, opened where it is not yet, and the result; ``fresh`` in it when the device must not be used again."""
    try:
        device = device if device is not None else context.open_device()
        result = stage.perform(context, device, job, given)
    except DeviceLostError as error:
        return device, {"ok": False, "error": _said(error), "fresh": True}
    except GpucompError as error:
        return device, {"ok": False, "error": _said(error)}
    except ERRORS as error:
        return device, {"ok": False, "error": _said(error), "fresh": True}
    try:
        device.free()
    except (GpucompError, *ERRORS):  # what was measured before it stands
        result = result | {"fresh": True}
    return device, result


def _said(error: BaseException) -> str:
    if isinstance(error, GpucompError):
        return str(error)[:2000]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"[:2000]


def last_line(log: Path) -> str:
    """What a dead process said last."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")[:500]


def in_a_child(context: Any, ask: Callable[[Any], dict[str, Any]], log: Path, limit_s: float = 120.0) -> dict[str, Any]:
    """What ``ask(device)`` answers in a process of its own: this one stays free of the device.

    Raises ``RuntimeError`` when it dies, and what it said when it raised.
    """
    ours, theirs = multiprocessing.get_context("fork").Pipe()

    def role(crew: Any, connection: Connection) -> None:
        try:
            answer = ask(context.open_device())
        except (GpucompError, *ERRORS) as error:
            code = error.exit_code if isinstance(error, GpucompError) else 1
            answer = {"error": _said(error), "exit_code": code}
        connection.send_bytes(json.dumps(answer).encode())

    process = multiprocessing.get_context("fork").Process(target=_serve, args=(role, None, theirs, [ours], log))
    process.start()
    theirs.close()
    try:
        if not ours.poll(limit_s):
            return {"error": f"the device did not answer in {limit_s:g} s", "exit_code": 5}
        return dict(json.loads(ours.recv_bytes()))
    except (EOFError, ConnectionError):
        return {"error": f"the process died: {last_line(log)}", "exit_code": 5}
    finally:
        _kill(process)
