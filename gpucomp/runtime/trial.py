"""What a program on the processor learns from its first runs."""

from __future__ import annotations

import math

MOST_RUNS = 200  # after which it is decided by what there is
TRIALS = 4  # runs of a turn, without the first, which does not count
TURNS = 2  # by all threads, and as many by one alone, one after the other: what disturbs one turn does not disturb all


class Trial:
    """The first runs of a program, from which it learns whether several threads make it faster, and how long it takes alone.

    What threads gain is hard to estimate for some tens of microseconds: it depends on what is in which cache.
    """

    def __init__(self, threads: int) -> None:
        self.turns = [(count, list[float]()) for _ in range(TURNS) for count in (threads, 1)]
        self.runs = 0

    @property
    def wanted(self) -> int:
        """Of how many threads the next run is."""
        return next((count for count, found in self.turns if len(found) <= TRIALS), 1)

    def note(self, threads: int, seconds: float) -> bool:
        """Take the time of a run; whether there are enough."""
        open_turns = [found for count, found in self.turns if count == threads and len(found) <= TRIALS]
        if open_turns:
            open_turns[0].append(seconds)
        self.runs += 1
        return all(len(found) > TRIALS for _, found in self.turns) or self.runs > MOST_RUNS

    def least(self, threads: int) -> float:
        """Of the runs by so many; infinite if there were too few, as others had the threads."""
        return min((s for count, found in self.turns if count == threads for s in found[1:]), default=math.inf)
