"""Shared by the spaces of the CPU's engines: lanes, the cost model of a core, the division of tasks among threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import array, either, gcd, least, lockstep, most
from gpucomp.expr.core import Call, Expr, walk
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Sizes, Tunables, tunable

COSTLY = frozenset({"exp", "log", "tanh", "erf", "pow", "sin", "cos", "tan"})  # functions of many instructions


def is_costly(exprs: Iterable[Expr]) -> bool:
    """Whether one of them calls a function of ``COSTLY``."""
    return any(isinstance(node, Call) and node.fn in COSTLY for expr in exprs for node in walk(expr))


class VectorSchedule(Tunables):
    """Base of the schedules of engines that also write scalar code."""

    lanes: int = tunable((0, 4, 8, 16), "elements of a vector; 0 is scalar code")


S = TypeVar("S", bound=Tunables)

STACK_BYTES = 1 << 20  # most scratch of one call
GHZ = 3.0
THREADS = (1, 2, 4, 8)  # a default schedule is chosen for all of these
FEW_THREADS = (1, 2, 4)  # the same for Winograd and for narrow operands
TASK = 300.0  # fixed cost of a task, in cycles
BLOCK = 30.0  # fixed cost of a register block, in cycles
FAR_BYTE = 0.06  # cycles of a byte from beyond the second-level cache that is prefetched
SPILL = 2.0  # cycles of a value that no register holds; measured: 12 x 3 vectors of sums take twice as long as 8 x 3
CROWDED_LINE = 2.6  # cycles to fetch a line again from the second-level cache
PAGE, LINE = 4096, 64  # bytes, the latter of a cache line
CLAIMS = 4  # about how many chunks of tasks a thread claims: see ``ir/launch_list.py``
TAIL = 0.3  # part of a chunk that passes between the end of the first thread and the end of the last


def microseconds(cycles: float) -> float:
    return cycles / GHZ / 1e3


def step(rows: int, vectors: int, limits: Limits) -> float:
    """Cycles of one point of k in a register block: of multiply-adds or of loads, whichever take longer.

    A multiply-add has a latency of four cycles. Columns come from the second-level cache, at best half a line per
    cycle. Loads that overlap with the multiply-adds still cost a little, so that blocks of equal size differ. What the
    registers do not hold, sums, columns and one factor, goes to memory and back.
    """
    work = most(rows * vectors * limits.core.multiply, (rows + vectors) * limits.core.load)
    work = most(most(work, 4.0), 2.0 * vectors)
    spilled = most(rows * vectors + vectors + 1 - limits.registers, 0)
    return work + 0.05 * (rows + vectors) + 0.15 * vectors + spilled * SPILL


def crowding(rows: int, row_bytes: int, nbytes: int, limits: Limits) -> float:
    """Cycles per point of k that a register block loses to conflict misses of its rows in the first-level cache.

    Rows whose distance is a multiple of 4 KiB share a cache set. Measured: 12 such rows stay in 8 ways.
    """
    at_once = rows * gcd(row_bytes, PAGE) / PAGE
    return either(at_once > limits.core.ways, rows * nbytes / LINE * CROWDED_LINE, 0.0)


def span(tasks: int, threads: int) -> float:
    """Tasks of the busiest thread, and its wait at the end, in tasks. Threads claim tasks in chunks of equal size."""
    chunk = -(-tasks // (CLAIMS * threads))
    wait = TAIL * chunk if threads > 1 else 0.0
    return least(tasks, -(-tasks // (chunk * threads)) * chunk) + wait


def cheapest(
    base: S,
    names: Sequence[str],
    rows: Iterable[tuple[int, ...]],
    cost: Callable[[S], float],
    scratch: Callable[[S], int],
    room: int,
) -> S:
    """``base`` with those of ``rows`` as the parameters ``names`` that cost least, the first of equals, and fit in ``room``.

    All are tried in lockstep: ``cost`` and ``scratch`` are formulas for columns. ``base`` if none fits.
    """
    table = np.array(list(rows), np.int64).reshape(-1, len(names))
    costs = np.full(len(table), np.inf)

    def both(point: Mapping[str, Any]) -> tuple[int, float]:
        s = base.replace(**point)
        return scratch(s), cost(s)

    for part, (nbytes, cycles) in lockstep(both, {name: table[:, k] for k, name in enumerate(names)}):
        costs[part] = np.where(array(nbytes, len(part)) <= room, array(cycles, len(part)), np.inf)
    if np.isinf(costs).all():
        return base
    return base.replace(**dict(zip(names, table[np.argmin(costs)].tolist(), strict=True)))


def nothing(s: Tunables, p: Sizes) -> Sizes:
    return Sizes()


def geometry(s: Tunables, p: Sizes) -> Geometry:
    """An empty launch: the emitter counts the tasks."""
    return Geometry((1, 1, 1))
