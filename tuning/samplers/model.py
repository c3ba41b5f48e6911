"""The default search: Gaussian processes over what a schedule's numbers mean, asked for the largest expected gain.

It measures what an analytic model or records of other devices name and a spread of points first, then repeats:
condition the processes on what was measured, take the point of the largest expected improvement (Jones, Schonlau and
Welch, 1998) times the chance that it runs at all. Two processes take turns, because no one scale of times fits every
space: one sees logarithms, which tell bad from hopeless, the other ranks, which tell the good apart whatever the
hopeless took. Points under way count as measured with the value expected of them (the kriging believer of Ginsbourger,
Le Riche and Carraro, 2010), so that a batch spreads. Failures teach where not to look; no process ever sees them as
times.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from gpucomp.tuning import gaussian
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.samplers.ledger import Ledger
from gpucomp.tuning.space import Candidates

FIRST = 16  # points of the first spread
SPREAD_AMONG = 1000  # points it is chosen from
NAMED = 6  # points taken from records of others first: their fastest
FIRST_BESIDES = 6  # points of the spread that follows them
POOL = 4096  # points that are compared with each other; of a larger space these many are drawn, anew at every fit
ELITE = 6  # whose neighbours are always among them
REFIT = 8  # measurements between two fits, at first
MEMBERS = 512  # measurements a process is conditioned on: the fastest half, and a sample of the others
FITTED = 128  # measurements its scales are fitted to: the fastest
LENGTH = 0.5  # median of the prior of a feature's length scale
UNDER_WAY = 256  # points asked for since the last fit that the processes are conditioned on besides
JUDGED = 128  # measurements that the chance of running is learned from: the latest, half of them failures at most
DOUBT = 4.0  # measurements' worth of belief that points run
SURENESS = 0.03  # variance that a certain answer keeps, beside labels of 1 and -1


class View:
    """One scale of times and the process that sees it.

    Where there are records of others, it is one of two processes, and every fit decides: the one that sees them too,
    or the one that does not, whichever explains the measurements better. A device that is too different loses its say.
    """

    def __init__(self, scale: str, cold: np.ndarray, informed: np.ndarray | None = None) -> None:
        self.scale = scale
        self.inputs = [cold] if informed is None else [cold, informed]
        self.priors = [gaussian.Scales(np.full(x.shape[1], LENGTH)) for x in self.inputs]
        self.fits = list(self.priors)
        self.x = self.inputs[-1]
        self.scales = self.priors[-1]
        self.posterior: gaussian.Posterior | None = None

    def fit(self, points: list[int], logs: np.ndarray) -> None:
        """New scales from the logarithms of the times of ``points``."""
        y = normalised(logs, self.scale)
        losses = []
        for k, (x, prior) in enumerate(zip(self.inputs, self.priors, strict=True)):
            self.fits[k], loss = gaussian.fit(x[points], y, self.fits[k], prior)
            losses.append(loss)
        chosen = int(np.argmin(losses))
        self.x, self.scales = self.inputs[chosen], self.fits[chosen]

    def condition(self, members: list[int], rows: np.ndarray) -> None:
        """The posterior at ``rows`` given that ``members`` are measured."""
        for noise in (self.scales.noise, 1e-2, 1e-1):
            with contextlib.suppress(np.linalg.LinAlgError):
                self.scales = dataclasses.replace(self.scales, noise=max(noise, self.scales.noise))
                room = MEMBERS + UNDER_WAY
                self.posterior = gaussian.Posterior(self.x[members], self.x[rows], self.scales, room=room)
                return
        raise np.linalg.LinAlgError(f"{len(members)} measurements that no noise tells apart")


@dataclass
class Pool:
    """The points in question, and what the processes know: the same rows and members for all of them."""

    rows: np.ndarray
    members: list[int]  # measured points and points under way, in the order the posteriors were given them
    fitted_at: int


class ModelSampler:
    """Bayesian optimization on the encoded points; ``prior`` adds what others measured, as features."""

    def __init__(self, candidates: Candidates, seed: int = 0, prior: Prior | None = None) -> None:
        self.candidates = candidates
        self.rng = np.random.default_rng(seed)
        self.ledger = Ledger(len(candidates), self.rng)
        self.prior = prior if prior else None
        self.x = candidates.encoding.matrix
        self.views = [View("log", self.x), View("rank", self.x)]
        if self.prior is not None:
            informed = np.concatenate([self.x, self.prior.features], 1)
            self.views = [View(scale, self.x, informed) for scale in ("log", "rank")]
        self.turn = 0
        self._pool: Pool | None = None
        self._fresh: list[int] = []  # taken since the last fit
        self._failed_seen = -1
        self._chances = np.empty(0)
        self._first = self._opening()

    def ask(self, count: int) -> list[int]:
        points: list[int] = []
        while len(points) < count and self.ledger.left:
            points.append(self.ledger.take(self._one()))
            self._fresh.append(points[-1])
        return points

    def tell(self, point: int, seconds: float | None) -> None:
        if not self.ledger.taken[point]:
            self._fresh.append(point)
        self.ledger.tell(point, seconds)

    def _opening(self) -> list[int]:
        default = [] if self.candidates.default is None else [self.candidates.default]
        expected = list(self.candidates.leading)
        if self.prior is None:
            return default + expected + spread(self.x, max(FIRST - len(expected), FIRST_BESIDES), self.rng)
        # a few others besides, without which nobody would know that the prior is wrong
        return default + expected + self.prior.fastest(NAMED) + spread(self.x, FIRST_BESIDES, self.rng)

    def _one(self) -> int:
        while self._first:
            if not self.ledger.taken[point := self._first.pop(0)]:
                return point
        if len(self.ledger.seconds) >= 3 and self.x.shape[1]:
            try:
                return self._most_promising()
            except np.linalg.LinAlgError:
                self._pool = None  # nothing to learn from, this time: a random point changes that
        drawn = self.ledger.draw()
        assert drawn is not None  # ask() calls as long as points are left
        return drawn

    def _most_promising(self) -> int:
        view = self.views[self.turn % len(self.views)]
        self.turn += 1
        pool = self._refreshed()
        posterior = view.posterior
        assert posterior is not None
        measured = np.array([p in self.ledger.seconds for p in pool.members])
        times = np.log([self.ledger.seconds.get(p, 1.0) for p in pool.members])
        y = np.zeros(len(times))
        y[measured] = normalised(times[measured], view.scale)
        for p in np.flatnonzero(~measured).tolist():
            y[p] = posterior.believed(y, p)
        gain = expected_improvement(posterior.mean(y), posterior.deviation(), float(y[measured].min()))
        gain *= self._chance(pool.rows)
        gain[self.ledger.taken[pool.rows]] = -1.0
        return int(pool.rows[np.argmax(gain)])

    def _refreshed(self) -> Pool:
        """The pool with everything that was asked and told since in it; a new one when it is time for a fit."""
        count = len(self.ledger.seconds)
        pool = self._pool
        room = MEMBERS + UNDER_WAY
        if (
            pool is None
            or count - pool.fitted_at >= max(REFIT, count // 16)
            or len(pool.members) + len(self._fresh) > room
        ):
            self._pool = self._fit()
            return self._pool
        for point in self._fresh:
            pool.members.append(point)
            for view in self.views:
                assert view.posterior is not None
                view.posterior.add(view.x[point])
        self._fresh.clear()
        return pool

    def _fit(self) -> Pool:
        """New scales for each process, and the points that are compared until the next fit."""
        told = self.ledger.best(len(self.ledger.seconds))
        if len(told) > MEMBERS:
            slower = np.array(told[MEMBERS // 2 :])
            told = told[: MEMBERS // 2] + self.rng.choice(slower, MEMBERS // 2, replace=False).tolist()
        known = {*self.ledger.seconds, *self.ledger.failed}
        under_way = [p for p in np.flatnonzero(self.ledger.taken).tolist() if p not in known]
        # a failure's time stays unknown, but there is nothing to find next to it; half is room for those that follow
        members = told + self.ledger.failed[-UNDER_WAY // 4 :] + under_way[-UNDER_WAY // 4 :]
        rows = self._rows(told)
        fitted = told[:FITTED]
        logs = np.log([self.ledger.seconds[p] for p in fitted])
        for view in self.views:
            view.fit(fitted, logs)
            view.condition(members, rows)
        self._fresh.clear()
        self._failed_seen = -1
        return Pool(rows, members, len(self.ledger.seconds))

    def _rows(self, told: list[int]) -> np.ndarray:
        """Free points: all of them, or a sample with the neighbours of the fastest and what others found fast."""
        free = np.flatnonzero(~self.ledger.taken)
        if len(free) <= POOL:
            return free
        near = [self.candidates.neighbours(point) for point in told[:ELITE]]
        named = np.array(self.prior.fastest(POOL // 4) if self.prior is not None else [], np.int64)
        chosen = np.unique(np.concatenate([self.rng.choice(free, POOL, replace=False), named, *near]))
        return chosen[~self.ledger.taken[chosen]]

    def _chance(self, rows: np.ndarray) -> np.ndarray | float:
        """The chance that a point runs: of a process of its own, which sees 1 where one ran and -1 where it failed."""
        failed, ran = self.ledger.failed, list(self.ledger.seconds)
        if not failed:
            return 1.0
        if self._failed_seen != len(failed):  # between two failures the chances change little
            self._failed_seen = len(failed)
            failed = failed[-JUDGED // 2 :]
            ran = ran[-(JUDGED - len(failed)) :]
            points = ran + failed
            labels = np.array([1.0] * len(ran) + [-1.0] * len(failed))
            centre = (labels.sum() + DOUBT) / (len(labels) + DOUBT)
            start = gaussian.Scales(np.full(self.x.shape[1], LENGTH), noise=0.1)
            scales, _ = gaussian.fit(self.x[points], labels - centre, start, start, steps=8)
            scales = dataclasses.replace(scales, noise=max(scales.noise, 1e-3))
            posterior = gaussian.Posterior(self.x[points], self.x[rows], scales, room=len(points))
            mean = posterior.mean(labels - centre) + centre
            self._chances = normal_cdf(mean / np.sqrt(SURENESS + np.maximum(posterior.variance, 0)))
        return self._chances


def spread(x: np.ndarray, count: int, rng: np.random.Generator) -> list[int]:
    """Rows of ``x`` far from each other: a random one, then always the farthest from those before, of a random sample."""
    among = rng.permutation(len(x))[:SPREAD_AMONG]
    if not len(among):
        return []
    chosen = [int(among[0])]
    distance = ((x[among] - x[among[0]]) ** 2).sum(1)
    while len(chosen) < count and distance.max() > 0:
        chosen.append(int(among[np.argmax(distance)]))
        distance = np.minimum(distance, ((x[among] - x[chosen[-1]]) ** 2).sum(1))
    return chosen


def normalised(logs: np.ndarray, scale: str) -> np.ndarray:
    """Mean 0 and standard deviation 1: of the logarithms, or of the normal scores of their ranks."""
    if scale == "rank":
        y = np.array(_normal_scores(len(logs)))[np.argsort(np.argsort(logs, kind="stable"), kind="stable")]
    else:
        y = logs - logs.mean()
    return y / (y.std() or 1.0)


@lru_cache
def _normal_scores(count: int) -> tuple[float, ...]:
    """Where ``count`` draws of a normal distribution are expected, about (Blom, 1958)."""
    normal = NormalDist()
    return tuple(normal.inv_cdf((k + 0.625) / (count + 0.25)) for k in range(count))


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """How much below ``best`` a normally distributed value is expected to be, counting nothing where it is above."""
    z = (best - mean) / deviation
    return deviation * (z * normal_cdf(z) + np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi))


def normal_cdf(z: np.ndarray) -> np.ndarray:
    """The standard normal distribution: Abramowitz and Stegun, 26.2.17, to within 1e-7."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    tail = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail *= np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return np.where(z > 0, 1 - tail, tail)
