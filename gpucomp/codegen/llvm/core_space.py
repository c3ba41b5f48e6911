"""What the spaces of the CPU's engines have in common: lanes, costs of a core, how tasks are shared out among threads."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gpucomp.device.limits import Limits
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Sizes, Tunables, tunable


class VectorSchedule(Tunables):
    """Base of the schedules of engines that also write scalar code."""

    lanes: int = tunable((0, 4, 8, 16), "elements of a vector; 0 is scalar code")


STACK_BYTES = 1 << 20  # scratch that one call may take
GHZ = 3.0
THREADS = (1, 2, 4, 8)  # a schedule is for all of them
TASK = 300.0  # cycles of a task
BLOCK = 30.0  # and of a register block, besides what it computes
CROWDED_LINE = 2.6  # of a line of a row that is fetched again from the second cache
PAGE, LINE = 4096, 64
CLAIMS = 4  # chunks of tasks that a thread takes, about: see the runner in targets.cpu
TAIL = 0.3  # of a chunk, by which threads end apart


def step(rows: int, vectors: int, limits: Limits) -> float:
    """Cycles of one k of a register block: its multiply-adds, or its loads, and a sum is ready after four.

    Columns come from the second-level cache, half a line a cycle at best. Loads and lines that hide behind the
    multiply-adds still cost a little, by which blocks of equal size differ.
    """
    work = max(rows * vectors * limits.core.multiply, (rows + vectors) * limits.core.load, 4.0, 2.0 * vectors)
    return work + 0.05 * (rows + vectors) + 0.15 * vectors


def crowding(rows: int, row_bytes: int, nbytes: int, limits: Limits) -> float:
    """Cycles, for each k, of a register block whose rows drive each other out of the first cache.

    Rows that lie a multiple of 4 KiB apart share a set of it: measured, 12 of them in 8 ways.
    """
    at_once = rows * math.gcd(row_bytes, PAGE) / PAGE
    return rows * nbytes / LINE * CROWDED_LINE if at_once > limits.core.ways else 0.0


def span(tasks: int, threads: int) -> float:
    """Tasks that the busiest thread does, when each claims them in equal chunks, and what it waits for the last one."""
    chunk = -(-tasks // (CLAIMS * threads))
    wait = TAIL * chunk if threads > 1 else 0.0
    return min(tasks, -(-tasks // (chunk * threads)) * chunk) + wait


def nothing(s: Tunables, p: Sizes) -> Mapping[str, int]:
    return {}


def geometry(s: Tunables, p: Sizes) -> Geometry:
    """The emitter counts the tasks."""
    return Geometry((1, 1, 1))
