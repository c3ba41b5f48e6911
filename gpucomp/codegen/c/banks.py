"""Banks of shared memory: how rows of staged sums lie so that the lanes of a warp read and write them side by side.

A lane leaves pairs of neighbouring sums and takes runs of eight, as two accesses of 16 bytes. Eight lanes' first halves
stand 32 bytes apart, so that every other 16 bytes of the banks would be asked for twice: some runs lie with their halves
exchanged. Pairs stay in their runs, which rows of an odd number of runs leave to banks of their own either way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

HALF, UNITS, LANES, WARP = (
    4,
    8,
    8,
    32,
)  # floats of half a run; 16-byte units of the banks; lanes of one access, of a warp

# whose sum is odd where halves are exchanged: run `c` of a row, and the row, each divided by a number
Terms = tuple[tuple[str, int], ...]
CHOICES: tuple[Terms, ...] = ((), (("c", 4),), (("row", 1),), (("c", 1),), (("c", 4), ("row", 1)), (("row", 2),))


def exchanged(terms: Terms, c: int, row: int) -> int:
    at = {"c": c, "row": row}
    return sum(at[name] // divisor for name, divisor in terms) % 2


def accesses(terms: Terms, runs: int, pitch: int) -> int:
    """Times that the banks are gone through until every lane of a warp has the first half of a run; 4 is the least.

    Lane ``i`` takes run ``i % runs`` of row ``i // runs``; rows are ``pitch`` floats apart.
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
    """C text of where the first half of a run begins in it, in floats, given those of ``c`` and ``row``."""
    if not terms:
        return "0"
    parts = [f"{texts[name]} / {divisor}" if divisor > 1 else texts[name] for name, divisor in terms]
    return f"({' + '.join(parts)}) % 2 * {HALF}" if len(parts) > 1 else f"{parts[0]} % 2 * {HALF}"
