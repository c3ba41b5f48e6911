"""What a program on the processor learns from its first runs."""

from __future__ import annotations

import math

MOST_RUNS = 200  # after which it is decided by what there is
TRIALS = 5  # runs by all threads, and by one alone, after one of each that does not count


class Trial:
    """The first runs of a program, from which it learns whether several threads make it faster, and how long it takes alone.

    What threads gain is hard to estimate for some tens of microseconds: it depends on what is in which cache.
    """

    def __init__(self, threads: int) -> None:
        self.seconds: dict[int, list[float]] = {count: [] for count in (threads, 1)}
        self.runs = 0

    @property
    def wanted(self) -> int:
        """Of how many threads the next run is."""
        return next((count for count, found in self.seconds.items() if len(found) <= TRIALS), 1)

    def note(self, threads: int, seconds: float) -> bool:
        """Take the time of a run; whether there are enough."""
        found = self.seconds.get(threads)
        if found is not None and len(found) <= TRIALS:
            found.append(seconds)
        self.runs += 1
        return min(map(len, self.seconds.values())) > TRIALS or self.runs > MOST_RUNS

    def least(self, threads: int) -> float:
        """Of the runs by so many; infinite if there were too few, as others had the threads."""
        return min(self.seconds.get(threads, [])[1:], default=math.inf)
