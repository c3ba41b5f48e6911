"""Ends runs before they are complete: because somebody asks for it, or because their time is over."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpucomp.errors import RunStoppedError, UsageError, quote

LOOK_S = 0.01  # how often a run that waits for its turn looks whether it is to stop
IDLE_S = 5.0  # after which the thread ends that looks at timeouts
CANCELLED, LATE = "the run was cancelled", "the run was given up after its timeout"


def stop_after(timeout: float | None) -> Stop | None:
    """What ends a run ``timeout`` seconds from now, if that is given. Raises ``UsageError`` (GPC2039) unless it is at least 0."""
    return None if timeout is None else Stop(timeout)


def _seconds(timeout: object) -> float:
    """``timeout`` as a number of at least 0; infinite if it is too large for one."""
    try:
        seconds = float(timeout) if hasattr(timeout, "__float__") else math.nan
    except OverflowError:
        seconds = math.inf
    except (TypeError, ValueError):
        seconds = math.nan
    if not seconds >= 0:
        raise UsageError(f"timeout: seconds of at least 0 expected, found {quote(timeout)}", code="GPC2039")
    return seconds


class Stop:
    """The wish that a run ends. ``timeout`` is in seconds from now: at least 0, else ``UsageError`` (GPC2039).

    A run asks ``check`` where it may end, and while it cannot ask, another thread calls what it gave to ``during``.
    """

    def __init__(self, timeout: float | None = None) -> None:
        self.end = math.inf if timeout is None else time.monotonic() + _seconds(timeout)
        self._lock = threading.Lock()
        self._halt: Callable[[], None] | None = None
        self._why = ""

    def stop(self, why: str = CANCELLED) -> None:
        """End the run now, or as soon as it begins."""
        with self._lock:
            self._why = self._why or why
            if self._halt is not None:
                self._halt()

    def check(self) -> None:
        """Raise ``RunStoppedError`` if the run is to end: GPC1101 if it was cancelled, GPC1102 after its timeout."""
        if not self._why and time.monotonic() >= self.end:
            self._why = LATE
        if self._why:
            raise RunStoppedError(self._why, code="GPC1101" if self._why == CANCELLED else "GPC1102")

    @contextmanager
    def during(self, halt: Callable[[], None], clear: Callable[[], None]) -> Iterator[None]:
        """Run a block that ``halt`` ends early. ``clear`` undoes that, after the block."""
        self.check()
        timed = self.end < math.inf
        try:
            with self._lock:
                self._halt = halt
                if self._why:
                    halt()
            if timed:
                _watch.add(self)
            yield
        finally:
            if timed:
                _watch.discard(self)
            with self._lock:
                self._halt = None
                clear()
        self.check()

    def wait(self, acquire: Callable[[float], bool]) -> None:
        """Call ``acquire`` with seconds to wait until it succeeds. Raises as ``check``."""
        while not acquire(LOOK_S):
            self.check()


class _Watch:
    """A thread that stops runs when their time is over. It ends some time after the last run that has a timeout."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runs: set[Stop] = set()
        self._wakes = math.inf
        self._thread: threading.Thread | None = None

    def add(self, stop: Stop) -> None:
        with self._changed:
            self._runs.add(stop)
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="gpucomp-timeouts", daemon=True)
                thread.start()  # it may fail
                self._thread = thread
            elif stop.end < self._wakes:
                self._changed.notify()

    def discard(self, stop: Stop) -> None:
        with self._changed:
            self._runs.discard(stop)

    def _work(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for late in [one for one in self._runs if one.end <= now]:
                    self._runs.discard(late)
                    late.stop(LATE)
                self._wakes = min((one.end for one in self._runs), default=now + IDLE_S)
                woken = self._changed.wait(min(self._wakes - now, IDLE_S))
                if not woken and not self._runs:
                    self._thread = None
                    return


_watch = _Watch()


def _after_fork() -> None:
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_after_fork)
