"""Memory for native code: aligned arrays, and launch tables in the layout of the native runner."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

HOST_ALIGNMENT = 64  # bytes, of an array that kernels read: a cache line, and the widest vector
STATE_WORDS = 16  # of a launch, for each thread: two cache lines
CLAIMED, DONE = 0, 8  # words of a launch's state: every thread has CLAIMED, the first thread's DONE counts for all


def address_of(array: np.ndarray) -> int:
    """The address of the array's memory: ``array.ctypes.data``, in a third of the time."""
    return int(array.__array_interface__["data"][0])


def aligned(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """A fresh, uninitialised array at an address aligned for vector loads."""
    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.empty(nbytes + HOST_ALIGNMENT, np.uint8)
    start = -address_of(raw) % HOST_ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(tuple(shape))


class Table:
    """Launches in the layout of the native runner. ``arguments`` holds the addresses of all of them, in order."""

    def __init__(self, entries: Sequence[tuple[int, int, int]], threads: int) -> None:
        """``entries``: for each launch the address of the code, the number of arguments, and the number of tasks.

        ``threads`` is the largest number of threads that may run it.
        """
        codes, counts, tasks = np.array(entries, np.uint64).reshape(-1, 3).T
        self.arguments = np.zeros(int(counts.sum()), np.uint64)
        self._tasks = tasks
        self._threads = threads
        self._parts: dict[int, np.ndarray] = {}
        self._states = aligned((len(entries), threads, STATE_WORDS), np.dtype(np.uint64))
        ends = np.cumsum(counts, dtype=np.uint64)
        self._rows = np.empty((len(entries), 4), np.uint64)
        self._rows[:, 0] = codes
        self._rows[:, 1] = np.uint64(address_of(self.arguments)) + np.uint64(8) * (ends - counts)
        self._rows[:, 2] = tasks
        self._rows[:, 3] = np.uint64(address_of(self._states)) + np.arange(len(entries), dtype=np.uint64) * np.uint64(
            8 * STATE_WORDS * threads
        )
        self.address: int = address_of(self._rows)
        self.loops = 0  # the address of a ``LoopTable``, which the caller keeps

    def with_tasks(self, tasks: Sequence[int]) -> Table:
        """The same launches with these numbers of tasks, and with arguments of their own."""
        made = object.__new__(Table)
        made.arguments = self.arguments.copy()
        made._tasks = np.array(tasks, np.uint64)
        made._threads, made._parts = self._threads, {}
        made._states = aligned(self._states.shape, self._states.dtype)
        made._rows = self._rows.copy()
        made._rows[:, 1] += np.uint64((address_of(made.arguments) - address_of(self.arguments)) % (1 << 64))
        made._rows[:, 2] = made._tasks
        made._rows[:, 3] += np.uint64((address_of(made._states) - address_of(self._states)) % (1 << 64))
        made.address, made.loops = address_of(made._rows), 0
        return made

    def set_code(self, row: int, address: int) -> None:
        """Let launch ``row`` run other code, with the same arguments."""
        self._rows[row, 0] = address

    def __len__(self) -> int:
        return len(self._rows)

    def _first_tasks(self, threads: int) -> np.ndarray:
        """The first task of each thread when ``threads`` of them share the tasks; threads beyond these get no tasks."""
        numbers = np.minimum(np.arange(self._threads, dtype=np.uint64), np.uint64(threads))
        return self._tasks[:, None] * numbers // np.uint64(threads)

    def begin(self, first: int, last: int, epoch: int, threads: int) -> None:
        """Reset the launches for run number ``epoch`` by ``threads`` threads: no task is claimed or done."""
        if threads not in self._parts:
            self._parts[threads] = self._first_tasks(threads)
        states = self._states[first:last]
        np.bitwise_or(self._parts[threads][first:last], np.uint64(epoch << 32), out=states[:, :, CLAIMED])
        states[:, 0, DONE] = 0
