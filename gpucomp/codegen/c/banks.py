"""Avoids bank conflicts in shared memory, for rows of sums that the lanes of a warp write and then read.

A lane writes pairs of neighbouring sums and reads runs of eight, each in two accesses of 16 bytes. The first halves of
eight lanes' runs are 32 bytes apart, so one access of the eight lanes would use only every other 16 bytes of the banks,
twice each. The halves of some runs are therefore exchanged. Pairs stay within their runs; writing them has no conflicts
either way, if rows have an odd number of runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

# floats in half a run; 16-byte units in the banks; lanes of one access; lanes of a warp
HALF, UNITS, LANES, WARP = 4, 8, 8, 32

# Halves are exchanged where the sum of the terms is odd. A term is the run `c` of a row, or the row, and its divisor.
Terms = tuple[tuple[str, int], ...]
CHOICES: tuple[Terms, ...] = ((), (("c", 4),), (("row", 1),), (("c", 1),), (("c", 4), ("row", 1)), (("row", 2),))


def exchanged(terms: Terms, c: int, row: int) -> int:
    at = {"c": c, "row": row}
    return sum(at[name] // divisor for name, divisor in terms) % 2


def accesses(terms: Terms, runs: int, pitch: int) -> int:
    """Passes over the banks until every lane of a warp has the first half of a run; the least is 4.

    Lane ``i`` reads run ``i % runs`` of row ``i // runs``; rows are ``pitch`` floats apart.
    """
    total = 0
    for first in range(0, WARP, LANES):
        places = [divmod(lane, runs) for lane in range(first, first + LANES)]
        units = [row * pitch // HALF + 2 * c + exchanged(terms, c, row) for row, c in places]
        total += max(Counter(unit % UNITS for unit in units).values())
    return total


def best_exchange(runs: int, pitch: int) -> Terms:
    return min(CHOICES, key=lambda terms: accesses(terms, runs, pitch))


def half_offset(terms: Terms, texts: Mapping[str, str]) -> str:
    """C text of the offset of a run's first half within the run, in floats.

    ``texts`` has the texts of ``c`` and ``row``.
    """
    if not terms:
        return "0"
    parts = [f"{texts[name]} / {divisor}" if divisor > 1 else texts[name] for name, divisor in terms]
    return f"({' + '.join(parts)}) % 2 * {HALF}" if len(parts) > 1 else f"{parts[0]} % 2 * {HALF}"
