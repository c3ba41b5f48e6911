"""Where the runs of one model happen side by side: each in a lane of its own, with memory that no other run uses meanwhile."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np

from gpucomp.runtime.stopping import LOOK_S, Stop
from gpucomp.runtime.workers import available_threads

MOST_ON_A_GPU = 2  # lanes for ``run``: copies of one run beside kernels of another. A context has a lane of its own


class Opened(Protocol):
    """A program on an open device."""

    def beside(self) -> Any:
        """The same program in memory of its own. It may run at the same time, and shares what no run changes."""
        ...


class Lane:
    """The memory of one run at a time.

    ``first`` is the program that was opened in it first; those of executables for other sizes are that one resized.
    ``moving`` are programs that go from one set of sizes to another, by the shapes of the inputs, the last used one last;
    ``spare`` are those that have none, and ``left`` some shapes that programs were moved away from.
    """

    def __init__(self) -> None:
        self.first: Any = None
        self.programs: dict[object, Any] = {}  # by a token of each executable
        self.moving: OrderedDict[tuple[tuple[int, ...], ...], Any] = OrderedDict()
        self.spare: list[Any] = []
        self.left: set[tuple[tuple[int, ...], ...]] = set()


class Lanes:
    """What the executables of one model at several sizes share: its weights, and the lanes of their runs.

    A lane is made when a run finds none free, until there are as many as runs can be served at once; then runs take turns.
    """

    def __init__(self, weights: Mapping[str, np.ndarray], kind: str) -> None:
        self.weights = dict(weights)  # a copy, as a program may replace arrays in it
        self.threads = 0  # most processor threads of a run; 0: as many as there are for all runs
        self._kind = kind
        self._first: Opened | None = None
        self._free: list[Lane] = []
        self._lanes: WeakSet[Lane] = WeakSet()
        self.reset()
        _all.add(self)

    def reset(self) -> None:
        """Make fresh locks, for a process that was forked. Lanes of the parent's runs are forgotten."""
        self._opening = threading.Lock()  # only one opens the first
        self._known = threading.RLock()  # a finalizer may run anywhere
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0
        self._made = len(self._free)

    def take(self, stop: Stop | None = None) -> Lane:
        """A lane that nobody uses. ``give`` gives it back. Raises ``RunStoppedError`` if ``stop`` says so while it waits."""
        try:
            return self._free.pop()
        except IndexError:
            return self._another(stop)

    def give(self, lane: Lane) -> None:
        self._free.append(lane)
        if self._waiting:  # who waits counts itself before it looks once more
            with self._changed:
                self._changed.notify()

    def new(self) -> Lane:
        """A lane that ``take`` never gives: its maker's own."""
        lane = Lane()
        with self._known:
            self._lanes.add(lane)
        return lane

    def forget(self, token: object) -> None:
        """Drop the programs of an executable that is no more."""
        with self._known:
            lanes = list(self._lanes)
        for lane in lanes:
            lane.programs.pop(token, None)

    def most(self) -> int:
        """How many runs are served at once."""
        return max(available_threads(), self.threads) if self._kind == "cpu" else MOST_ON_A_GPU

    def _another(self, stop: Stop | None) -> Lane:
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    if self._free:
                        return self._free.pop()
                    if self._made < self.most():
                        self._made += 1
                        return self.new()
                    if stop is None:
                        self._changed.wait()
                    elif not self._changed.wait(LOOK_S):
                        stop.check()
            finally:
                self._waiting -= 1
                if self._free and self._waiting:  # one who gave up may have been told of it
                    self._changed.notify()

    def first_in(self, lane: Lane, new: Callable[[], Opened]) -> tuple[Any, bool]:
        """The program that was opened in ``lane`` first, and whether ``new`` has just made it.

        One is opened now if there is none: the first of all by ``new``, others beside that. One that could not be opened is
        no first.
        """
        if lane.first is not None:
            return lane.first, False
        with self._opening:
            if self._first is None:
                self._first = lane.first = new()
                return lane.first, True
        lane.first = self._first.beside()
        return lane.first, False


_all: WeakSet[Lanes] = WeakSet()


def _after_fork() -> None:
    for lanes in _all:
        lanes.reset()


os.register_at_fork(after_in_child=_after_fork)
