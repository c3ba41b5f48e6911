"""What row statistics (``row_statistics.j2``) take and cost. ``kernel/forms/row_statistics`` says how rows are dealt out."""

from __future__ import annotations

from typing import Any

from gpucomp.kernel.forms.row_statistics import LANES, OTHER_REGISTERS, TailProblem, has_tail, tail_sizes

FLAG_BYTES = 16  # of shared memory: whether this work-group is the last to have stored

# of a model of one unit's cycles
MEETING_CYCLES = 1500  # stores are made known, the work-group is counted
READ_CYCLES = 700  # from asking the second-level cache to having it
BYTES_PER_CYCLE = 28  # from there, when all units ask
ELEMENT_INSTRUCTIONS = 2  # of a statistic
JOIN_INSTRUCTIONS = 10  # of a statistic of a row: lanes exchange what they have


def tail_registers(threads: int, rows: int, p: TailProblem) -> int:
    """What a work-item keeps of its rows; the sums before them are stored by then. 0 where there are no statistics."""
    if not has_tail(p):
        return 0
    z = tail_sizes(threads, rows, p)
    held = z.keep * z.at_once * z.words + (1 - z.keep) * 4 * z.wide * p.tail_reads
    return held + z.at_once * p.tail_statistics + OTHER_REGISTERS


def tail_shared_bytes(threads: int, rows: int, p: TailProblem) -> int:
    """At most: the flag, and a slot of each work-item for each statistic where lanes do not shuffle."""
    if not has_tail(p):
        return 0
    return FLAG_BYTES + 4 * threads * p.tail_statistics * tail_sizes(threads, rows, p, 1).at_once


def tail_counter_bytes(row_tiles: int, sharers: int, p: TailProblem) -> int:
    """One counter for each part of the rows, which so many work-groups store."""
    return 4 * row_tiles * ((sharers > 1) * 1) if has_tail(p) else 0


def tail_work(threads: int, rows: int, sharers: int, p: TailProblem) -> dict[str, Any]:
    """The fields of ``Work`` that say what the last work-group does with ``rows`` rows."""
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
    """Cycles of the last work-group behind its stores, for families' own models."""
    if not has_tail(p):
        return 0
    found = tail_work(threads, rows, sharers, p)
    read = found["tail_bytes"] / BYTES_PER_CYCLE + found["tail_trips"] * READ_CYCLES
    cycles: float = MEETING_CYCLES * ((sharers > 1) * 1) + read + found["tail_instructions"] / 4
    return cycles
