"""Measures what this processor can do, with probes that every CPU program contains; and the type of a busy span.

Peak arithmetic is multiply-adds in registers, each counted as two operations. Bandwidth is that of a copy, reads and
writes counted. The copy repeats over the same memory, so a copy that fits a cache measures that cache.
"""

from __future__ import annotations

import math
import time
from itertools import pairwise
from typing import Protocol

import numpy as np

from gpucomp.artifact.elf import Image
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.native import Table, aligned

COPIES = tuple(1 << k for k in (16, 18, 20, 22, 24, 26))  # bytes read and written by all threads together
UNIT_BYTES = 256  # a task copies a multiple of it
ATTEMPTS = 5  # the best one counts
PEAK_TASKS = 256  # for each thread, of some microseconds each
COPY_BYTES = 1 << 25  # moved in one attempt; smaller copies are repeated
EMPTY_LAUNCHES = 200


@dataclass(frozen=True)
class Span:
    """``thread`` worked on launch number ``launch`` from ``start`` to ``end``, in seconds since the run began."""

    launch: int
    thread: int
    start: float
    end: float


@dataclass(frozen=True)
class Ceilings:
    """For all threads of a program together.

    flops      f32 operations per second
    copies     (bytes moved, bytes moved per second), the smallest first
    launch_s   seconds of a launch that does nothing
    spread     by which share two measurements differed, see ``together``; 0 for a single one
    """

    threads: int
    flops: float
    copies: tuple[tuple[int, float], ...]
    launch_s: float
    spread: float = 0.0

    def bandwidth(self, nbytes: float) -> float:
        """Bytes a second of a copy that moves ``nbytes``, interpolated between measured sizes by the logarithm of the size."""
        for (small, slow), (large, fast) in pairwise(self.copies):
            if nbytes <= large:
                share = math.log(max(nbytes, small) / small) / math.log(large / small)
                return slow + share * (fast - slow)
        return self.copies[-1][1]


def together(before: Ceilings, after: Ceilings) -> Ceilings:
    """The better one of two measurements, figure by figure: whatever else runs on the machine makes a probe slower only.

    How far the two are apart says how much was lost to it.
    """
    pairs = [(before.flops, after.flops), *((a, b) for (_, a), (_, b) in zip(before.copies, after.copies, strict=True))]
    copies = tuple((size, max(a, b)) for (size, a), (_, b) in zip(before.copies, after.copies, strict=True))
    return Ceilings(
        before.threads,
        max(before.flops, after.flops),
        copies,
        min(before.launch_s, after.launch_s),
        max(1 - min(a, b) / max(a, b) for a, b in pairs),
    )


class Runs(Protocol):
    """Something that can run a table: a CPU program."""

    threads: int

    def run_native(self, table: Table, first: int, last: int, shared: bool) -> None: ...


def measure(program: Runs, image: Image) -> Ceilings:
    """Run the probes in ``image`` on all of ``program``'s threads. Takes some tenths of a second."""
    return Ceilings(program.threads, _flops(program, image), _copies(program, image), _launch_s(program, image))


def _best(program: Runs, table: Table) -> float:
    seconds = []
    for _ in range(ATTEMPTS):
        begin = time.perf_counter()
        program.run_native(table, 0, len(table), True)
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def _flops(program: Runs, image: Image) -> float:
    numbers = np.array([0.5, 1.0], np.float32)
    room = aligned((1024,), np.dtype(np.uint8))
    tasks = PEAK_TASKS * program.threads
    table = Table([(image.address("gc_peak.call"), 2, tasks)], program.threads)
    table.arguments[:] = numbers.ctypes.data, room.ctypes.data
    seconds = _best(program, table)
    return tasks * float(room.view(np.int64)[0]) / seconds  # the probe says how many operations a task has


def _copies(program: Runs, image: Image) -> tuple[tuple[int, float], ...]:
    room = COPIES[-1] // 2 + UNIT_BYTES * program.threads
    source, result = (aligned((room,), np.dtype(np.uint8)) for _ in range(2))
    source[:], result[:] = 1, 0
    found = []
    for moved in COPIES:
        part = -(-moved // 2 // program.threads // UNIT_BYTES) * UNIT_BYTES
        sizes = np.array([part, max(1, COPY_BYTES // moved)], np.int64)
        table = Table([(image.address("gc_copy.call"), 3, program.threads)], program.threads)
        table.arguments[:] = source.ctypes.data, result.ctypes.data, sizes.ctypes.data
        found.append((moved, 2.0 * program.threads * float(sizes.prod()) / _best(program, table)))
    return tuple(found)


def _launch_s(program: Runs, image: Image) -> float:
    entry = (image.address("gc_nothing.call"), 0, 4 * program.threads)
    many, one = (Table(count * [entry], program.threads) for count in (EMPTY_LAUNCHES, 1))
    return (_best(program, many) - _best(program, one)) / EMPTY_LAUNCHES
