"""Decides how often a candidate is timed, when that is enough, and what the samples say. Nothing runs here by itself.

A candidate is timed in turn with an anchor, the default's program: A C A C A. Each sample counts relative to the anchors
beside it: a lower clock or a busy neighbour slows both and changes nothing.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

QUIET = 1.1  # a round is quiet if its anchors take at most this many times the fastest anchor
FEW = 3
DISPERSION = 1.4826 * 1.2533  # median absolute deviation to standard deviation; error of a mean to error of a median


@dataclass(frozen=True)
class Rules:
    """When a measurement ends.

    least, most  number of valid rounds
    seconds      time limit for all rounds, once there are ``least``
    noise        the standard error of the median ratio, relative to the ratio, that is small enough
    hopeless     factor on the best ratio so far: a slower candidate is not timed further
    screening    rounds before ``hopeless`` is checked
    throttled    rounds in a row that can be discarded because the device lowered its clocks
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
    noise      standard error of the ratio, relative to it
    throttled  number of discarded rounds; their samples are not kept
    ended      why it ended: ``quiet``, ``time``, ``rounds``, ``hopeless`` or ``throttled``
    """

    samples: list[float] = field(default_factory=list)
    anchors: list[float] = field(default_factory=list)
    throttled: int = 0
    ended: str = ""

    @property
    def ratios(self) -> list[float]:
        """The ratios of the quiet rounds, whose anchors were both about as fast as the fastest; of all rounds if those are few.

        A neighbour that uses a processor now and then makes some samples several times slower; such rounds are ignored.
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
    """Standard error of the median, relative to the median; infinite for fewer than three values."""
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
    """Time ``candidate`` beside ``anchor``; both return the seconds of one sample.

    ``best`` is the smallest ratio so far. ``held_back`` is called after each round: did the device lower its clocks?
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
    """Samples of each of ``runs``, the first of which is the anchor. A row is A C1 A C2 A ..., each C over its anchors.

    A row has one ratio for each run, 1 for the anchor. Rows use the anchor before and the anchor after a run by turns. With
    the mean of both, a run would look faster than itself in the median: one of two anchors is slow more often than a given
    one. There are at least three rows, and more until ``rounds`` or the time is reached. Rows in which clocks were lowered
    do not count, but take time.
    """
    rows: list[list[float]] = []
    start = clock()
    before = runs[
        0
    ]()  # a row's last anchor is the next row's first: so no run follows itself with its data still in the caches
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
    """A confidence interval of the median, from order statistics, without assuming a distribution.

    The interval between the k-th smallest and the k-th largest value holds the median with probability 1 - 2 P(B < k), where
    B is binomial for n tosses of a coin (Conover, Practical Nonparametric Statistics). Too few values give their range.
    """
    ordered, n = sorted(values), len(values)
    if not n:
        return 0.0, math.inf
    below, k = 0.0, 0
    while (below := below + math.comb(n, k) / 2.0**n) <= (1 - confidence) / 2:
        k += 1
    k = max(k, 1)
    return ordered[k - 1], ordered[n - k]


# Student's t, two-sided 95 %, for 1 to 9 degrees of freedom
T95 = (12.71, 4.31, 3.19, 2.78, 2.58, 2.45, 2.37, 2.31, 2.27)


def interval_of_processes(medians: Sequence[float]) -> tuple[float, float]:
    """A 95 % confidence interval of the value common to all processes, from the median of each: Student's t of their mean.

    A process has an offset of its own, for example from where its memory lies, in all of its samples. More samples cannot
    separate it from the value; more processes can.
    """
    n = len(medians)
    if n < 2:
        return -math.inf, math.inf
    mean, spread = statistics.fmean(medians), statistics.stdev(medians)
    half = T95[min(n - 1, len(T95)) - 1] * spread / math.sqrt(n)
    return mean - half, mean + half


class Patience:
    """The time after which a job is killed, learned from the jobs that ended.

    Ten times the 90th percentile plus two seconds, within bounds; ``first`` until five jobs have ended.
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
