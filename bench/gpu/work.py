"""Processes that do the work: one child with the device, killed when it hangs, and others that compile ahead of it.

A GPU fault ends its process, so the process that keeps the results never touches a device. Children are forked, so they have the
list of jobs already; only numbers and JSON are sent.
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

ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
PARENT_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG
GRACE_S = 25.0  # for the running job when the time is over


@dataclass(frozen=True, eq=False)
class Job:
    """A measurement or a check, from its start to its end in the results. ``subject`` is defined by the stage."""

    stage: str
    name: str
    subject: Any = None
    limit_s: float = 60.0


class Stage(Protocol):
    """A module of this package."""

    def jobs(self, context: Any) -> list[Job]:
        """The jobs, the most valuable first."""
        ...

    def prepare(self, context: Any, job: Job) -> dict[str, Any]:
        """Do the part that needs no device: schedules, sources, binaries in the cache. ``perform`` gets the result."""
        ...

    def perform(self, context: Any, device: Any, job: Job, prepared: dict[str, Any]) -> dict[str, Any]:
        """Do the part that needs the device. The result has ``ok``."""
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
        """Its answer; ``None`` if it is dead."""
        try:
            return dict(json.loads(self.connection.recv_bytes()))
        except (EOFError, ConnectionError):
            return None

    def end(self) -> int | None:
        """Kill it; returns its exit code."""
        _kill(self.process)
        self.connection.close()
        return self.process.exitcode


@dataclass
class WorkerPool:
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
        """Whether everything is done; ``False`` if the time was over before. ``deadline`` is in monotonic seconds."""
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
        """Take the performer's answer, or notice its end; the performer, or ``None`` if a new one is needed."""
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
    """Kill a child and all processes that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _serve(
    role: Callable[[Any, Connection], None],
    pool: WorkerPool,
    connection: Connection,
    inherited: Sequence[Connection],
    log: Path,
) -> None:
    """The main function of a child. Its output goes to ``log``; it closes the parent's ends of pipes."""
    os.setpgid(0, 0)  # so that its own children end with it
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)  # no parent could end it, and it holds the device
    for other in inherited:
        other.close()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout = sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8")
    faulthandler.enable(file=sys.stderr)
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        role(pool, connection)


def _prepare(pool: WorkerPool, connection: Connection) -> None:
    while True:
        number, _ = json.loads(connection.recv_bytes())
        connection.send_bytes(json.dumps(prepared(pool.stage, pool.context, pool.jobs[number])).encode())


def prepared(stage: Stage, context: Any, job: Job) -> dict[str, Any]:
    """The result of ``stage.prepare``, or ``error``."""
    try:
        return stage.prepare(context, job)
    except (GpucompError, *ERRORS) as error:
        return {"error": _said(error)}


def _perform(pool: WorkerPool, connection: Connection) -> None:
    device: Any = None
    while True:
        number, given = json.loads(connection.recv_bytes())
        job = pool.jobs[number]
        print(f"{job.stage} {job.name}", file=sys.stderr, flush=True)
        device, result = performed(pool.stage, pool.context, device, job, given)
        connection.send_bytes(json.dumps(result).encode())


def performed(stage: Stage, context: Any, device: Any, job: Job, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The device, which is opened if it is not yet, and the result; it has ``fresh`` if the device must not be used again."""
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
    except (GpucompError, *ERRORS):  # earlier measurements remain valid
        result = result | {"fresh": True}
    return device, result


def _said(error: BaseException) -> str:
    if isinstance(error, GpucompError):
        return str(error)[:2000]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"[:2000]


def last_line(log: Path) -> str:
    """The last line that a dead process printed."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")[:500]


def in_a_child(context: Any, ask: Callable[[Any], dict[str, Any]], log: Path, limit_s: float = 120.0) -> dict[str, Any]:
    """The answer of ``ask(device)`` in a process of its own, so that this process never opens the device.

    Raises ``RuntimeError`` if that process dies, or with its message if it raised.
    """
    ours, theirs = multiprocessing.get_context("fork").Pipe()

    def role(pool: Any, connection: Connection) -> None:
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
