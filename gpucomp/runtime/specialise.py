"""Executables for single sets of sizes beside a program for all: which sets get one, and whether it is used.

One for a set of sizes that is run often is compiled by a thread. No request waits for it, and none raises its errors. Then runs
at these sizes go to both programs in turns, and the faster one stays. Times are those of the requests themselves.
"""

from __future__ import annotations

import atexit
import statistics
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from dataclasses import field
from typing import Any

from gpucomp.errors import GpucompError, UsageError, quote
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.executable import Executable

MODES = ("never", "declared", "background")
HOT = 10  # runs at a set of sizes after which it gets an executable of its own
MOST_KEPT = 8  # executables; the least recently used goes
MOST_WAITING = 4  # sets of sizes; more have to ask again
MOST_NOTED = 1_000  # sets of sizes whose runs are counted
SAMPLES = 5  # of each program, after a first run that does not count
FASTER = 0.97  # of the general program's time: less is worth the memory
IDLE_S = 1.0  # after which the thread ends; the next set of sizes starts it again
AT_EXIT_S = 5.0  # that the interpreter waits for the thread
FAILURES = (  # of a compilation: requests go on without it, and ``report`` tells
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    GpucompError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    Warning,
)
WAITING, COMPILING, TRYING, KEPT, SLOWER, FAILED = "waiting", "compiling", "trying", "kept", "slower", "failed"

Key = tuple[int, ...]
Make = Callable[..., Executable]  # with the shapes, and ``progress=``


@dataclass(frozen=True)
class Specialisation:
    """What became of a set of sizes.

    state    ``waiting``, ``compiling``; ``trying`` while it is compared; ``kept`` if it is used, ``slower`` if it is not;
             ``failed``
    ratio    its time over that of the program for all sizes, once that is known
    error    why it failed
    """

    sizes: Mapping[str, int]
    state: str
    ratio: float | None = None
    error: str = ""


@dataclass(eq=False)
class Entry:
    """A set of sizes, and its executable if it has one."""

    sizes: Mapping[str, int]
    declared: bool = False
    runs: int = 0
    state: str = ""
    exe: Executable | None = None
    ratio: float | None = None
    error: str = ""
    seconds: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))  # of the general one, of its own

    def turn(self) -> int:
        """Whose run is next: 0 for the general program, 1 for its own."""
        return int(len(self.seconds[1]) < len(self.seconds[0]))


class _Stopped(BaseException):
    """Ends a compilation when the interpreter does."""


class Specialiser:
    """The executables for single sets of sizes of one model.

    ``make`` compiles for a set of sizes, and ``prepare`` opens what it gives. ``declared`` are there from the beginning.
    """

    def __init__(
        self,
        make: Callable[[Mapping[str, int], Callable[[str, int, int], None]], Executable] | None,
        prepare: Callable[[Executable], None],
        declared: Mapping[Key, tuple[Mapping[str, int], Executable]],
    ) -> None:
        self._make, self._prepare = make, prepare
        self._context: Context = copy_context()
        self._entries: OrderedDict[Key, Entry] = OrderedDict(
            (key, Entry(sizes, declared=True, state=TRYING, exe=exe)) for key, (sizes, exe) in declared.items()
        )
        self.reset()
        _specialisers.add(self)

    def reset(self) -> None:
        """Forget the thread, and what it had to do, in a process that was forked."""
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._waiting: list[Key] = []
        self._thread: threading.Thread | None = None
        self._stopping = False
        for key in [key for key, entry in self._entries.items() if entry.state in (WAITING, COMPILING)]:
            del self._entries[key]

    def entry(self, key: Key, sizes: Mapping[str, int]) -> Entry | None:
        """What there is for a run at these sizes; counts the run."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                if self._make is None:
                    return None
                entry = self._entries[key] = Entry(dict(sizes))
                self._forget()
            self._entries.move_to_end(key)
            entry.runs += 1
            if not entry.state and entry.runs >= HOT and self._make is not None:
                self._ask_for(key, entry)
            return entry if entry.exe is not None else None

    def note(self, entry: Entry, which: int, seconds: float) -> None:
        """Note the time of a run, and decide once there are enough."""
        with self._lock:
            if entry.state != TRYING:
                return
            entry.seconds[which].append(seconds)
            if min(map(len, entry.seconds)) <= SAMPLES:
                return
            general, own = (statistics.median(some[1:]) for some in entry.seconds)
            entry.ratio = own / general if general else 1.0
            entry.state = KEPT if entry.ratio < FASTER else SLOWER
            if entry.state == SLOWER and not entry.declared:
                entry.exe = None

    def report(self) -> tuple[Specialisation, ...]:
        """What became of each set of sizes that was run often, or declared."""
        with self._lock:
            found = [entry for entry in self._entries.values() if entry.state]
            return tuple(Specialisation(dict(e.sizes), e.state, e.ratio, e.error) for e in found)

    def stop(self) -> None:
        """End the thread now, in the middle of a compilation too."""
        with self._lock:
            self._stopping = True
            thread = self._thread
            self._wake.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(AT_EXIT_S)

    def _forget(self) -> None:
        """Drop what was counted for sizes that were run long ago."""
        while len(self._entries) > MOST_NOTED:
            old = next(
                (k for k, e in self._entries.items() if not e.declared and e.state not in (WAITING, COMPILING)), None
            )
            if old is None:
                return
            del self._entries[old]

    def _ask_for(self, key: Key, entry: Entry) -> None:
        if len(self._waiting) >= MOST_WAITING or self._stopping:
            return
        entry.state = WAITING
        self._waiting.append(key)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="gpucomp-specialise", daemon=True)
            self._thread.start()
        self._wake.notify_all()

    def _work(self) -> None:
        wake = self._wake
        while True:
            with wake:
                if not self._waiting and self._wake is wake:
                    wake.wait(IDLE_S)
                if self._wake is not wake:  # it was reset: another thread works now
                    return
                if not self._waiting or self._stopping:
                    self._thread = None
                    return
                entry = self._entries[self._waiting.pop(0)]
                entry.state = COMPILING
            self._compile(entry)

    def _compile(self, entry: Entry) -> None:
        def watch(stage: str, done: int, total: int) -> None:
            if self._stopping:
                raise _Stopped

        made: Executable | None = None
        assert self._make is not None
        try:
            made = self._context.copy().run(self._make, entry.sizes, watch)
            self._prepare(made)
        except _Stopped:
            return
        except FAILURES as error:
            with self._lock:
                entry.state, entry.error = FAILED, f"{type(error).__name__}: {error}"
            return
        finally:
            if made is None and entry.state == COMPILING:
                entry.state = FAILED
        with self._lock:
            entry.state, entry.exe = TRYING, made
            owners = [(key, e) for key, e in self._entries.items() if e.exe is not None and not e.declared]
            for key, other in owners[: max(len(owners) - MOST_KEPT, 0)]:  # in the order of their last runs
                if other is not entry:
                    del self._entries[key]


def run(
    entry: Entry,
    specialiser: Specialiser,
    general: Callable[[], Executable],
    once: Callable[[Executable], dict[str, Any]],
) -> dict[str, Any]:
    """One run, which ``once`` does, by the program whose turn it is, or by the one that was faster."""
    own = entry.exe
    if own is None or entry.state == SLOWER:
        return once(general())
    if entry.state == KEPT:
        return once(own)
    which = entry.turn()
    exe = own if which else general()
    begin = time.perf_counter()
    results = once(exe)
    specialiser.note(entry, which, time.perf_counter() - begin)
    return results


def require_specialise(mode: str, declared: object, any_shape: bool) -> None:
    """Raise ``UsageError`` for values of ``specialise`` and ``specialise_for`` that there are not, or that have no effect."""
    if mode not in MODES:
        raise UsageError(f"specialise: one of {', '.join(MODES)} expected, {quote(mode)} given", code="GPC2036")
    if not isinstance(declared, list | tuple):
        raise UsageError(f"specialise_for: a list of sets of sizes expected, {quote(declared)} given", code="GPC2036")
    if (mode == "declared") != bool(declared) and mode != "background":
        told = (
            "needs specialise_for"
            if mode == "declared"
            else "has no sets of sizes to use: specialise_for needs declared"
        )
        raise UsageError(f"specialise={mode!r} {told}", code="GPC2036")
    if not any_shape and mode != "never":
        raise UsageError(
            f"specialise={mode!r} has no effect without a Dim in shapes: every model is compiled for its shapes",
            code="GPC2036",
        )


_specialisers: weakref.WeakSet[Specialiser] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for one in list(_specialisers):
        one.stop()
