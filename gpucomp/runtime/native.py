"""Memory for native code: aligned arrays, and launch tables in the layout of the native runner."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Sequence

import numpy as np

from gpucomp.errors import DeviceError

HOST_ALIGNMENT = 64  # bytes, of an array that kernels read: a cache line, and the widest vector
STATE_WORDS = 16  # of a launch, for each thread: two cache lines
ENTRY_WORDS, CODE, TASKS = 4, 0, 2  # words of a launch in the table, and which of them are these
CLAIMED, DONE = 0, 8  # words of a launch's state: every thread has CLAIMED, the first thread's DONE counts for all


def _by_interface(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


_word_at, _BEHIND = ctypes.c_size_t.from_address, object.__basicsize__


def _by_structure(array: np.ndarray) -> int:
    """The first field of numpy's ``PyArrayObject``, which its C API promises (numpy/ndarraytypes.h), behind Python's own."""
    return _word_at(id(array) + _BEHIND).value


def _fastest() -> Callable[[np.ndarray], int]:
    samples: list[np.ndarray] = [
        np.zeros(3, np.uint8),
        np.zeros((2, 5), np.float32)[1:, ::2],
        np.frombuffer(b"abcdefgh", np.uint8)[3:],
    ]
    if sys.implementation.name == "cpython" and all(_by_structure(a) == _by_interface(a) for a in samples):
        return _by_structure
    return _by_interface


# The address of an array's memory: ``array.ctypes.data``, in a tenth of the time, which counts in runs of microseconds.
address_of = _fastest()


def aligned(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """A fresh, uninitialised array at an address aligned for vector loads."""
    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.empty(nbytes + HOST_ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, raw, -address_of(raw) % HOST_ALIGNMENT)


def zeroed(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """As ``aligned``, of zeros. Raises ``DeviceError`` (GPC5013) if memory is exhausted."""
    try:
        array = aligned(shape, dtype)
    except MemoryError:
        nbytes = math.prod(shape) * dtype.itemsize
        raise DeviceError(
            f"cpu: an array needs {nbytes} bytes of memory, which are not available", code="GPC5013"
        ) from None
    array[...] = np.zeros((), dtype)
    return array


class Table:
    """Launches in the layout of the native runner. ``arguments`` holds the addresses of all of them, in order."""

    def __init__(self, entries: Sequence[tuple[int, int, int]], threads: int) -> None:
        """``entries``: for each launch the address of the code, the number of arguments, and the number of tasks.

        ``threads`` is the largest number of threads that may run it.
        """
        codes, counts, tasks = np.array(entries, np.uint64).reshape(-1, 3).T
        self._shape = len(entries), threads, STATE_WORDS
        self._arguments = int(counts.sum())
        self._lie(
            aligned((ENTRY_WORDS * len(entries) + self._arguments + math.prod(self._shape) + 8,), np.dtype(np.uint64))
        )
        ends = np.cumsum(counts, dtype=np.uint64)
        self._rows[:, CODE] = codes
        self._rows[:, 1] = np.uint64(address_of(self.arguments)) + np.uint64(8) * (ends - counts)
        self._rows[:, TASKS] = tasks
        self._rows[:, 3] = np.uint64(address_of(self._states)) + np.arange(len(entries), dtype=np.uint64) * np.uint64(
            8 * STATE_WORDS * threads
        )
        self.arguments[...] = 0

    def _lie(self, memory: np.ndarray) -> None:
        """Use ``memory`` for the rows, then the arguments, then the states, which begin in a cache line of their own."""
        count, end = self._shape[0], ENTRY_WORDS * self._shape[0] + self._arguments
        states = -(-end // 8) * 8
        self._memory, self._rows, self.arguments = (
            memory,
            memory[: ENTRY_WORDS * count].reshape(count, ENTRY_WORDS),
            memory[ENTRY_WORDS * count : end],
        )
        self._states = memory[states : states + math.prod(self._shape)].reshape(self._shape)
        self.address: int = address_of(memory)
        self.words: memoryview = self.arguments.data  # faster than the array, for one argument
        self.loops = 0  # the address of a ``LoopTable``, which the caller keeps

    def with_tasks(self, tasks: Sequence[int]) -> Table:
        """The same launches with these numbers of tasks, and with arguments of their own."""
        made = object.__new__(Table)
        made._shape, made._arguments = self._shape, self._arguments
        made._lie(aligned(self._memory.shape, self._memory.dtype))
        end = ENTRY_WORDS * self._shape[0] + self._arguments
        made._memory[:end] = self._memory[:end]
        made._rows[:, 1::2] += np.uint64((made.address - self.address) % (1 << 64))
        made._rows[:, TASKS] = np.array(tasks, np.uint64)
        return made

    def again(self) -> Table:
        """The same launches and loops, with arguments of their own."""
        made = self.with_tasks(self._rows[:, TASKS].tolist())
        made.loops = self.loops
        return made

    def set_code(self, rows: Sequence[int], address: int) -> None:
        """Let launches run other code, with the same arguments."""
        for row in rows:
            self._rows[row, CODE] = address

    @property
    def threads(self) -> int:
        """The largest number of threads that may run it."""
        return self._shape[1]

    def __len__(self) -> int:
        return len(self._rows)

    def begin(self, first: int, last: int, epoch: int, threads: int) -> None:
        """Let launches begin for run number ``epoch`` by ``threads`` threads: no task is claimed or done.

        Threads beyond these get no tasks.
        """
        own = np.minimum(np.arange(self.threads, dtype=np.uint64), np.uint64(threads))
        states = self._states[first:last]
        states[:, :, CLAIMED] = self._rows[first:last, TASKS, None] * own // np.uint64(threads) | np.uint64(epoch << 32)
        states[:, 0, DONE] = 0
