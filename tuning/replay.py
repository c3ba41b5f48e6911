"""Runs searches on recorded spaces, with equal budgets: a replayed device answers from the records. No device is needed.

The fraction of the optimum after ``k`` trials is the best time in the file over the true time of the point that the search
would choose then. With noise, that is the point which looked fastest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gpucomp.errors import UsageError, several
from gpucomp.lazy_dataclass import dataclass
from gpucomp.tuning.analysis import alone
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.recorded import Recorded
from gpucomp.tuning.samplers import DEFAULT, named
from gpucomp.tuning.samplers.ask_tell import AskTell
from gpucomp.tuning.samplers.named import Wanted

BUDGETS = (25, 50, 100, 200)
SPARSE = 0.5  # share of the points of a space without a neighbour
MOST_NAMED = 3  # spaces in a note
SEEDS = 4  # of fewer searches, the bootstrap's 95 % interval is their range


@dataclass(frozen=True)
class Faults:
    """Disturbances of measurements on a real device.

    noise     standard deviation of the logarithm of a time
    failing   chance that a trial of a good point fails: a hiccup of the driver, a lost worker
    throttle  chance at each trial that the clock drops, or recovers
    slowdown  factor on all times while the clock is low
    """

    noise: float = 0.0
    failing: float = 0.0
    throttle: float = 0.0
    slowdown: float = 1.5


class ReplayDevice:
    """A device that answers from a recorded space, with a clock of the time that the real device would have taken."""

    def __init__(self, recorded: Recorded, faults: Faults | None = None, seed: int = 0, *, run_s: float = 0.5) -> None:
        self.recorded, self.faults, self.run_s = recorded, faults or Faults(), run_s
        self.rng = np.random.default_rng((seed, 1))
        self.elapsed = 0.0  # seconds of building, checking and running
        self.throttled = False

    def measure(self, point: int) -> float | None:
        """Seconds of one trial of ``point``, or None if it fails."""
        faults, true = self.faults, float(self.recorded.seconds[point])
        self.elapsed += float(self.recorded.overhead[point])
        if faults.throttle and self.rng.random() < faults.throttle:
            self.throttled = not self.throttled
        if np.isnan(true) or (faults.failing and self.rng.random() < faults.failing):
            return None
        self.elapsed += self.run_s
        noise = np.exp(faults.noise * self.rng.standard_normal()) if faults.noise else 1.0
        return float(true * noise * (faults.slowdown if self.throttled else 1.0))


@dataclass(frozen=True)
class Search:
    """One search: ``fractions`` [trials] of the optimum, the sampler's processor time, the device's time."""

    fractions: np.ndarray
    sampler_s: float
    device_s: float


def search(
    recorded: Recorded,
    sampler: Wanted = DEFAULT,
    *,
    trials: int = 200,
    seed: int = 0,
    prior: Prior | None = None,
    faults: Faults | None = None,
    batch: int = 1,
) -> Search:
    """Search ``recorded`` as if it were a device, with ``batch`` trials in flight at a time."""
    device = ReplayDevice(recorded, faults, seed)
    start = time.process_time()
    points = named.points_of(recorded.candidates, sampler)
    made = AskTell(points, lambda: named.sampler(sampler, points, seed, lambda number: prior))
    seen: list[tuple[int, float | None]] = []
    while len(seen) < trials and (rows := made.ask(min(batch, trials - len(seen)))):
        for row in rows:
            seen.append((row, device.measure(row)))
            made.tell(*seen[-1])
    sampler_s = time.process_time() - start
    fractions = np.zeros(trials)
    chosen, best = None, np.inf
    for k in range(trials):
        if k < len(seen) and (took := seen[k][1]) is not None and took < best:
            chosen, best = seen[k][0], took
        if chosen is not None:
            fractions[k] = recorded.optimum / recorded.seconds[chosen]
    return Search(fractions, sampler_s, device.elapsed)


@dataclass(frozen=True)
class Result:
    """The results of searches with ``seeds`` seeds: means over them, and 95% intervals of the means."""

    file: str
    sampler: str
    device: str
    points: int
    failing: int
    trials: int
    seeds: int
    prior: tuple[str, ...]
    fraction_of_optimum: dict[str, float]
    interval: dict[str, tuple[float, float]]
    sampler_ms: float  # processor time of one trial
    curve: tuple[float, ...]  # mean fraction after 1, 2, ... trials, and its interval
    curve_low: tuple[float, ...]
    curve_high: tuple[float, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def replay(
    recorded: Recorded,
    sampler: Wanted = DEFAULT,
    *,
    trials: int = 200,
    seeds: int = 10,
    others: Sequence[Recorded] = (),
    faults: Faults | None = None,
    batch: int = 1,
) -> Result:
    """Search one recorded space with seeds 0, 1, ...; the searches can learn from the spaces ``others``."""
    if trials < 1 or seeds < 1:
        raise UsageError(f"{trials} trials with {seeds} seeds: at least one of each expected")
    prior = None
    if others:
        prior = Prior.from_records(recorded.candidates, [other.results_for(recorded) for other in others])
        if not prior:
            raise UsageError(
                f"{', '.join(o.name for o in others)}: no point in common with {recorded.name}", code="GPC2602"
            )
    runs = [
        search(recorded, sampler, trials=trials, seed=seed, prior=prior, faults=faults, batch=batch)
        for seed in range(seeds)
    ]
    curves = np.array([run.fractions for run in runs])
    low, high = intervals(curves)
    budgets = [b for b in BUDGETS if b <= trials] or [trials]
    return Result(
        file=recorded.name,
        sampler=named.title(sampler),
        device=recorded.device,
        points=len(recorded.candidates),
        failing=int(np.isnan(recorded.seconds).sum()),
        trials=trials,
        seeds=seeds,
        prior=tuple(other.name for other in others),
        fraction_of_optimum={str(b): float(curves[:, b - 1].mean()) for b in budgets},
        interval={str(b): (float(low[b - 1]), float(high[b - 1])) for b in budgets},
        sampler_ms=1e3 * sum(run.sampler_s for run in runs) / (trials * seeds),
        curve=tuple(curves.mean(0).round(5).tolist()),
        curve_low=tuple(low.round(5).tolist()),
        curve_high=tuple(high.round(5).tolist()),
    )


def notes(spaces: Sequence[Recorded], trials: int, faults: Faults) -> list[str]:
    """What a reader has to know of the figures of these searches: whole spaces, missing neighbours, noise."""
    found = []
    whole = [space for space in spaces if len(space.candidates) <= trials]
    if whole:
        found.append(
            f"in {_counted(whole, spaces)}, there are no more points than a search has trials ({trials}): every search comes to "
            "see all of them, whatever the sampler"
        )
    sparse = [space for space in spaces if len(space.candidates) > 1 and alone(space.candidates) > SPARSE]
    if sparse:
        found.append(
            f"in {_counted(sparse, spaces)}, few points have a neighbour, a point that differs in one parameter only: genetic "
            "finds no children there and draws at random"
        )
    if faults.noise or faults.throttle:
        found.append(
            "times vary in these searches, and a figure is the true time of the point that looked fastest: it can fall with more "
            "trials, because more points have a chance to look fast"
        )
    return found


def _counted(some: Sequence[Recorded], spaces: Sequence[Recorded]) -> str:
    return f"{len(some)} of {several(len(spaces), 'space')} ({_named(some)})"


def _named(spaces: Sequence[Recorded]) -> str:
    names = [space.name for space in spaces]
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")


def certainty(seeds: int) -> str:
    """What the intervals of a ``Result`` are."""
    if seeds == 1:
        return "empty, because there is one search"
    return "the 95 % interval of the mean" if seeds >= SEEDS else f"the range of {seeds} searches, too few for 95 %"


def interval(samples: np.ndarray) -> tuple[float, float]:
    """95% interval of the mean of ``samples``."""
    low, high = intervals(samples[:, None])
    return float(low[0]), float(high[0])


def intervals(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """95% interval of the mean of each column, by the percentile bootstrap (Efron, 1979); deterministic."""
    count, draws = len(samples), 2000
    drawn = np.random.default_rng(0).integers(count, size=(draws, count)) + count * np.arange(draws)[:, None]
    times = np.bincount(drawn.ravel(), minlength=draws * count).reshape(draws, count)  # of each sample in each draw
    low, high = np.percentile(times @ samples / count, [2.5, 97.5], axis=0)
    return low, high
