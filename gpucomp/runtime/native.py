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
        self.arguments = np.zeros(sum(count for _, count, _ in entries), np.uint64)
        self._tasks = np.array([tasks for _, _, tasks in entries], np.uint64)
        self._threads = threads
        self._parts: dict[int, np.ndarray] = {}
        self._states = aligned((len(entries), threads, STATE_WORDS), np.dtype(np.uint64))
        self._rows = np.zeros((len(entries), 4), np.uint64)
        first = 0
        for row, (entry, count, tasks) in enumerate(entries):
            state = self._states.ctypes.data + 8 * STATE_WORDS * threads * row
            self._rows[row] = (entry, self.arguments.ctypes.data + 8 * first, tasks, state)
            first += count
        self.address: int = self._rows.ctypes.data
        self.loops = 0  # the address of a ``LoopTable``, which the caller keeps

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
