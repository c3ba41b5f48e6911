"""How often something is timed, when that is enough, and what the samples say. Nothing runs here by itself.

A candidate is timed in turn with an anchor, the default's program: A C A C A. What counts is each sample over the anchors
beside it, so a clock that drops, or a neighbour that comes and goes, slows both and changes nothing.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

QUIET = 1.1  # times the fastest anchor
FEW = 3
DISPERSION = 1.4826 * 1.2533  # median absolute deviation to standard deviation, and that of a mean to a median's


@dataclass(frozen=True)
class Rules:
    """When a measurement ends.

    least, most  rounds that count
    seconds      that all rounds may take, once there are ``least``
    noise        standard error of the median ratio, over the ratio, that is good enough
    hopeless     times the best ratio so far: a candidate this slow is not timed further
    screening    rounds before that is judged
    throttled    rounds in a row that may be thrown away because the device held its clocks back
    """

    least: int = 5
    most: int = 40
    seconds: float = 0.4
    noise: float = 0.005
    hopeless: float = 2.0
    screening: int = 2
    throttled: int = 20


@dataclass
class Measurement:
    """Seconds of the candidate and of the anchor, in the order they were taken.

    ratio      median of the candidate's samples over the anchors around them
    noise      its standard error, over it
    throttled  rounds that were thrown away; their samples are not among the others
    ended      why no more were taken: ``quiet``, ``time``, ``rounds``, ``hopeless`` or ``throttled``
    """

    samples: list[float] = field(default_factory=list)
    anchors: list[float] = field(default_factory=list)
    throttled: int = 0
    ended: str = ""

    @property
    def ratios(self) -> list[float]:
        """Of the quiet rounds: those whose anchors were both about as fast as the fastest; of all, where those are few.

        A neighbour that takes a processor now and then slows some samples several times over: these say nothing.
        """
        rounds = list(zip(self.samples, self.anchors, self.anchors[1:], strict=False))
        limit = QUIET * min(self.anchors, default=0.0)
        quiet = [2 * c / (a + b) for c, a, b in rounds if max(a, b) <= limit]
        return quiet if len(quiet) >= FEW else [2 * c / (a + b) for c, a, b in rounds]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios) if self.ratios else math.inf

    @property
    def noise(self) -> float:
        return noise_of(self.ratios)


def noise_of(values: Sequence[float]) -> float:
    """Standard error of the median, over the median; infinite for less than three values."""
    if len(values) < 3:
        return math.inf
    middle = statistics.median(values)
    deviation = statistics.median(abs(v - middle) for v in values)
    return DISPERSION * deviation / math.sqrt(len(values)) / middle


def measure(
    candidate: Callable[[], float],
    anchor: Callable[[], float],
    *,
    best: float = math.inf,
    rules: Rules = Rules(),
    held_back: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
) -> Measurement:
    """Time ``candidate`` beside ``anchor``; both give the seconds of one sample.

    ``best`` is the least ratio so far. ``held_back`` is asked after each round: whether the device's clocks were.
    """
    found, start, refused = Measurement(), clock(), 0
    before = anchor()
    found.anchors.append(before)
    while True:
        sample, after = candidate(), anchor()
        if held_back():
            found.throttled, refused = found.throttled + 1, refused + 1
            found.anchors[-1] = after
            if refused >= rules.throttled:
                found.ended = "throttled"
                return found
            continue
        refused = 0
        found.samples.append(sample)
        found.anchors.append(after)
        rounds = len(found.samples)
        if rounds >= rules.screening and min(found.ratios) > rules.hopeless * best:
            found.ended = "hopeless"
        elif rounds >= rules.least and found.noise <= rules.noise:
            found.ended = "quiet"
        elif rounds >= rules.least and clock() - start > rules.seconds:
            found.ended = "time"
        elif rounds >= rules.most:
            found.ended = "rounds"
        if found.ended:
            return found


def in_turn(
    runs: Sequence[Callable[[], float]],
    rounds: int,
    seconds: float,
    *,
    held_back: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Samples of each of ``runs``, the first of which is the anchor: a row is A C1 A C2 A ..., of each C over its anchors.

    A row gives one ratio a run, 1 for the anchor: over the anchor before it and the one after it in turn. Over their mean
    a run would be faster than itself in the median, for that one of two samples is slow happens more often than that one
    is. At least three rows, then until ``rounds`` or the time is over; rows in which clocks were held back do not count,
    but for the time.
    """
    rows: list[list[float]] = []
    start = clock()
    before = runs[
        0
    ]()  # of a row the last anchor is the next one's first: no run follows itself, its data in the caches
    while len(rows) < rounds and (len(rows) < 3 or clock() - start < seconds):
        row = [1.0]
        for run in runs[1:]:
            sample, after = run(), runs[0]()
            row.append(sample / (after if len(rows) % 2 else before))
            before = after
        if not held_back():
            rows.append(row)
        elif clock() - start > 4 * seconds:
            break
    return rows


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """A confidence interval of the median, from order statistics: no distribution is assumed.

    The interval between the k-th smallest and the k-th largest holds the median with probability 1 - 2 P(B < k), B
    binomial with n throws of a coin (Conover, Practical Nonparametric Statistics). Too few values: all of them.
    """
    ordered, n = sorted(values), len(values)
    if not n:
        return 0.0, math.inf
    below, k = 0.0, 0
    while (below := below + math.comb(n, k) / 2.0**n) <= (1 - confidence) / 2:
        k += 1
    k = max(k, 1)
    return ordered[k - 1], ordered[n - k]


# Student's t, two-sided 95 %, of 1 to 9 degrees of freedom
T95 = (12.71, 4.31, 3.19, 2.78, 2.58, 2.45, 2.37, 2.31, 2.27)


def interval_of_processes(medians: Sequence[float]) -> tuple[float, float]:
    """A 95 % confidence interval of what processes have in common, from the median of each: Student's t of their mean.

    What a process adds of its own, as where its memory lies, is the same in all of its samples: more of them do not
    tell it from what is measured, more processes do.
    """
    n = len(medians)
    if n < 2:
        return -math.inf, math.inf
    mean, spread = statistics.fmean(medians), statistics.stdev(medians)
    half = T95[min(n - 1, len(T95)) - 1] * spread / math.sqrt(n)
    return mean - half, mean + half


class Patience:
    """How long a job may take before it is killed: learned from those that came to an end.

    Ten times the 90th percentile and two seconds, within bounds; ``first`` before there are any.
    """

    def __init__(self, first: float = 60.0, least: float = 5.0, most: float = 120.0) -> None:
        self._first, self._least, self._most = first, least, most
        self._taken: list[float] = []

    def learn(self, seconds: float) -> None:
        self._taken.append(seconds)

    @property
    def limit(self) -> float:
        if len(self._taken) < 5:
            return self._first
        ordered = sorted(self._taken)
        usual = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
        return min(self._most, max(self._least, 10 * usual + 2))
