"""Threads of the process that help runs on the processor, and how many threads may work for all runs together."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from gpucomp import config
from gpucomp.runtime.stopping import Stop

LARGEST_POOL = 256
PROCESSORS = frozenset(
    os.sched_getaffinity(0)
)  # those of the process, unless it was imported by a thread that has fewer
CACHE_LINE = 64


class Bell:
    """A word in memory to which one helper listens in native code, without the interpreter's lock.

    A thread that waits in a queue is woken by the system, which takes some tens of microseconds.

    heard   the number of the last ring that the helper knows
    """

    def __init__(self) -> None:
        self._memory = (ctypes.c_uint64 * (2 * CACHE_LINE // 8))()
        self.address = -(-ctypes.addressof(self._memory) // CACHE_LINE) * CACHE_LINE  # no other word is in its line
        self._word = ctypes.c_uint64.from_address(self.address)
        self.heard = 0

    @property
    def next(self) -> int:
        """The number of the next ring."""
        return self._word.value + 1

    def ring(self) -> None:
        self._word.value += 1


Work = Callable[
    [int, Bell], None
]  # by a thread, with its number among those of the run, which may listen to its bell then
Job = tuple[Work, int, int]  # work, the number, and that of the ring which tells of it


def available_threads() -> int:
    """The number of threads in the configuration, or as many as the process may use."""
    return min(config.current().threads or len(os.sched_getaffinity(0)), LARGEST_POOL)


class Workers:
    """Each run takes a seat for its caller, and seats for helpers if some are free. A run that finds no seat waits for one.

    There are as many seats as the configuration has threads when the first run begins, or more if a program has more. So runs
    side by side never are more threads than were asked for, and one that is alone has all.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seats = 0
        self._free: list[None] = []  # an element for each free seat
        self._waiting: deque[threading.Lock] = deque()
        self._idle: list[Helper] = []
        self._started = 0

    def take(self, wanted: int, stop: Stop | None = None) -> int:
        """Take up to ``wanted`` seats, at least one; how many were taken. Those who wait are served in turn, one seat each.

        Raises ``RunStoppedError`` if ``stop`` says so while it waits.
        """
        if wanted <= self._seats and not self._waiting and (taken := self._taken(wanted)):
            return taken
        with self._lock:
            if wanted > self._seats:
                more = max(wanted, available_threads()) - self._seats
                self._seats += more
                self._free += [None] * more
                self._serve()
            if not self._waiting and (taken := self._taken(wanted)):
                return taken
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            with self._lock:
                self._serve()  # by a seat that was given back by one who did not see this one wait
            if stop is None:
                turn.acquire()
            else:
                stop.wait(lambda seconds: turn.acquire(timeout=seconds))
        except BaseException:  # such as Ctrl+C
            with self._lock:
                waits = turn in self._waiting
                if waits:
                    self._waiting.remove(turn)
            if not waits:
                self.give(1)
            raise
        return 1

    def _taken(self, wanted: int) -> int:
        """How many of ``wanted`` seats were free, which are taken now.

        It takes no lock, so two threads may each get a part. A thread that gets a lock waits for the interpreter's while it
        holds it: once one has met another, each waits for the other in every run.
        """
        taken = 0
        try:
            while taken < wanted:
                self._free.pop()
                taken += 1
        except IndexError:
            pass
        except BaseException:  # such as Ctrl+C
            self._free += [None] * taken
            raise
        return taken

    def give(self, count: int) -> None:
        """Give back seats that ``take`` gave."""
        self._free += [None] * count
        if self._waiting:
            with self._lock:
                self._serve()

    def _serve(self) -> None:
        """Give free seats to those who wait, one each. The caller holds the lock."""
        while self._waiting and self._taken(1):
            self._waiting.popleft().release()

    def start(self, work: Work, threads: int) -> list[Helper]:
        """Let helpers do ``work`` as threads 1 to ``threads - 1``. What is returned goes to ``rest`` when their run has ended.

        The caller is to give up the interpreter's lock soon: helpers that listen want it.
        """
        with self._lock:
            helpers = [self._idle.pop() if self._idle else self._new() for _ in range(threads - 1)]
        for number, helper in enumerate(helpers, 1):
            helper.jobs.put((work, number, helper.bell.next))
        for helper in helpers:
            helper.bell.ring()
        return helpers

    def rest(self, helpers: list[Helper]) -> None:
        """Let other runs use the helpers. One that is late does their job after this one."""
        with self._lock:
            self._idle += helpers

    def _new(self) -> Helper:
        helper = Helper(_place(self._started) if config.current().pin else None)
        self._started += 1
        threading.Thread(target=helper.work, name=f"gpucomp-{self._started}", daemon=True).start()
        return helper


def _place(helper: int) -> int:
    """The processor of helper number ``helper``: the last first, and none where the calling thread was told to stay."""
    here = os.sched_getaffinity(0)  # of this thread
    others = PROCESSORS - here if len(here) == 1 else PROCESSORS
    usable = sorted(others or PROCESSORS, reverse=True)
    return usable[helper % len(usable)]


class Helper:
    """A thread's jobs, its bell, and the processor on which it stays, if it does."""

    def __init__(self, processor: int | None = None) -> None:
        self.jobs: SimpleQueue[Job] = SimpleQueue()
        self.bell = Bell()
        self.processor = processor

    def work(self) -> None:
        """What the thread does."""
        if self.processor is not None:
            with suppress(OSError):  # the system has taken the processor away meanwhile
                os.sched_setaffinity(0, {self.processor})  # of this thread alone
        while True:
            # the ring of this job, not the last one: a late helper then does not listen while the next job waits
            work, number, self.bell.heard = self.jobs.get()
            work(number, self.bell)
            del work  # which keeps alive what a late thread works on


workers = Workers()


def _after_fork() -> None:
    """The child has none of the parent's threads, and a lock may have been held by one of them."""
    workers.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)
