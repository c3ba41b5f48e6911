"""What programs on the processor learn from their first runs."""

from __future__ import annotations

import math
import time

MOST_RUNS = 200  # after which it is decided by what there is
TRIALS = 8  # runs of a turn, without the first, which does not count: a thread that was asleep needs some to be back
AGAIN = 16  # runs of a program, after which it has a trial of its own
# runs until one thread alone is doubted, which was faster while others had the processor
FIRST_REST, MOST_REST = 100, 64_000
TURNS = 2  # by all threads, and as many by one alone, one after the other: what disturbs one turn does not disturb all


def clocks() -> tuple[float, float]:
    """Seconds of the world, and of this thread on a processor."""
    return time.perf_counter(), time.thread_time()


def seconds_of(begin: tuple[float, float], end: tuple[float, float], *, alone: bool) -> float:
    """How long a run took. A thread that was ``alone`` may have waited for the interpreter's lock, which is no time of its run.

    Some systems count a thread's time in steps of many runs: one in which it stood still is told by the other clock.
    """
    whole, own = (after - before for before, after in zip(begin, end, strict=True))
    return min(own, whole) if alone and own > 0 else whole


class Trial:
    """First runs, from which it is learnt whether several threads make them faster, and how long they take alone.

    What threads gain is hard to estimate for some tens of microseconds: it depends on what is in which cache. The runs can be
    of several programs that are estimated to take about as long; a run counts by its time over that estimate.

    left  runs until it begins again; 0 if it does not. Where one thread is faster, this was so while the trial lasted: another
          program may have had the processor then
    """

    def __init__(self, threads: int) -> None:
        self.most, self.rest, self.left = threads, FIRST_REST, 0
        self.threads = threads  # of runs that are no trial
        self.alone = math.inf  # of the fastest run by one thread, once it is over
        self._begin()

    def _begin(self) -> None:
        self.turns = [(count, list[float]()) for _ in range(TURNS) for count in (self.most, 1)]
        self.runs, self.over = 0, False

    def doubt(self) -> None:
        """Count a run for which ``left`` is not 0."""
        self.left -= 1
        if self.left <= 0:
            self.left, self.rest = 0, min(2 * self.rest, MOST_REST)
            self._begin()

    @property
    def wanted(self) -> int:
        """Of how many threads the next run is."""
        if self.over:
            return self.threads
        return next((count for count, found in self.turns if len(found) <= TRIALS), 1)

    def note(self, threads: int, ratio: float) -> None:
        """Take the time of a run over its estimate, and decide if there are enough of them."""
        open_turns = [found for count, found in self.turns if count == threads and len(found) <= TRIALS]
        if open_turns:
            open_turns[0].append(ratio)
        self.runs += 1
        if all(len(found) > TRIALS for _, found in self.turns) or self.runs > MOST_RUNS:
            self.alone = self.least(1)
            if self.most > 1 and self.least(self.most) < math.inf:
                self.threads = 1 if self.alone <= self.least(self.most) else self.most
            self.left = self.rest if self.threads < self.most else 0
            self.over = True

    def least(self, threads: int) -> float:
        """Of the runs by so many; infinite if there were too few, as others had the threads."""
        return min((ratio for count, found in self.turns if count == threads for ratio in found[1:]), default=math.inf)


def shared_trial(known: dict[int, Trial], alike: int, threads: int) -> Trial:
    """The trial of programs whose estimates are ``alike``, and which ``threads`` may run.

    Programs of other sizes whose estimates are alike share a trial: most of them run seldom. What they learn together may be
    wrong for one that runs often, which gets a trial of its own after ``AGAIN`` runs, if several threads may run it.
    """
    trial = Trial(threads)
    return known.setdefault(alike, trial) if alike else trial  # 0: nothing is known of how long it takes
