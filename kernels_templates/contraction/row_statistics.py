"""Resources and costs of row statistics (``row_statistics.j2``).

``kernel/forms/row_statistics`` says how rows are divided.
"""

from __future__ import annotations

from typing import Any

from gpucomp.kernel.forms.row_statistics import LANES, OTHER_REGISTERS, TailProblem, has_tail, tail_sizes

FLAG_BYTES = 16  # shared memory of the flag that tells the last work-group to have stored

# a model of one unit's cycles
MEETING_CYCLES = 1500  # to publish stores and count the work-group
READ_CYCLES = 700  # latency of the second-level cache
BYTES_PER_CYCLE = 28  # per unit, from the second-level cache, if all units load
ELEMENT_INSTRUCTIONS = 2  # per element and statistic
JOIN_INSTRUCTIONS = 10  # per row and statistic, to join the lanes


def tail_registers(threads: int, rows: int, p: TailProblem) -> int:
    """Registers of a work-item's rows; 0 without statistics. The sums have been stored by then."""
    if not has_tail(p):
        return 0
    z = tail_sizes(threads, rows, p)
    held = z.keep * z.at_once * z.words + (1 - z.keep) * 4 * z.wide * p.tail_reads
    return held + z.at_once * p.tail_statistics + OTHER_REGISTERS


def tail_shared_bytes(threads: int, rows: int, p: TailProblem) -> int:
    """An upper bound: the flag, and without shuffles a slot per work-item and statistic."""
    if not has_tail(p):
        return 0
    return FLAG_BYTES + 4 * threads * p.tail_statistics * tail_sizes(threads, rows, p, 1).at_once


def tail_counter_bytes(row_tiles: int, sharers: int, p: TailProblem) -> int:
    """One counter for each part of the rows, which ``sharers`` work-groups store."""
    return 4 * row_tiles * ((sharers > 1) * 1) if has_tail(p) else 0


def tail_work(threads: int, rows: int, sharers: int, p: TailProblem) -> dict[str, Any]:
    """The fields of ``Work`` for what the last work-group does with ``rows`` rows."""
    if not has_tail(p):
        return {}
    z = tail_sizes(threads, rows, p)
    times = z.keep + (1 - z.keep) * p.tail_statistics
    of_row = z.steps * z.wide * (p.tail_statistics * ELEMENT_INSTRUCTIONS + 1) + p.tail_statistics * JOIN_INSTRUCTIONS
    return {
        "tail_bytes": times * rows * p.n * p.tail_bytes,
        "tail_trips": times * z.passes,
        "tail_instructions": -(-threads // LANES) * z.passes * z.at_once * of_row,
        "tail_sharers": sharers,
    }


def tail_cycles(threads: int, rows: int, sharers: int, p: TailProblem) -> float:
    """Cycles of the last work-group after its stores, for engines' own models."""
    if not has_tail(p):
        return 0
    found = tail_work(threads, rows, sharers, p)
    read = found["tail_bytes"] / BYTES_PER_CYCLE + found["tail_trips"] * READ_CYCLES
    cycles: float = MEETING_CYCLES * ((sharers > 1) * 1) + read + found["tail_instructions"] / 4
    return cycles
