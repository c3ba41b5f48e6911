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

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from optuna import Study
from optuna.trial import FrozenTrial

from gpucomp.tuning import gaussian
from gpucomp.tuning.encoding import farthest_first
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.samplers.base import PointSampler
from gpucomp.tuning.samplers.points import Points
from gpucomp.tuning.samplers.view import LENGTH, View

FIRST = 16  # points of the first spread
SPREAD_AMONG = 1000  # points it is chosen from
NAMED = 4  # points taken from records of others first: their fastest
BY_SWITCHES = 8  # and their fastest of so many combinations of the switches, at most
BESIDES = 4  # points of the spread that follows them
PROMISING, SHARE = 48, 0.01  # points, and of all points, that are expected to be fast: those of a first spread
POOL = 4096  # points that are compared with each other; of a larger space these many are drawn, anew at every fit
ELITE = 6  # whose neighbours are always among them
REFIT = 8  # measurements between two fits, at first
MEMBERS = 512  # measurements a process is conditioned on: the fastest half, and a sample of the others
FITTED = 128  # measurements its scales are fitted to: the fastest
UNDER_WAY = 256  # points asked for since the last fit that the processes are conditioned on besides
JUDGED = 128  # measurements that the chance of running is learned from: the latest, half of them failures at most
DOUBT = 4.0  # measurements' worth of belief that points run
SURENESS = 0.03  # variance that a certain answer keeps, beside labels of 1 and -1


@dataclass
class Pool:
    """The points in question, and what the processes know: the same rows and members for all of them."""

    rows: np.ndarray
    members: list[int]  # measured points and points under way, in the order the posteriors were given them
    fitted_at: int


class ModelSampler(PointSampler):
    """Bayesian optimization on the encoded points of one table; ``prior`` adds what others measured, as features."""

    def __init__(self, points: Points, seed: int = 0, prior: Prior | None = None) -> None:
        super().__init__(points, seed, prior)
        self.candidates = points.candidates
        self.x = self.candidates.encoding.matrix
        self.views = [View(scale, self.candidates, self.prior) for scale in gaussian.TARGETS]
        self.turn = 0
        self._pool: Pool | None = None
        self._fresh: list[int] = []  # taken since the last fit
        self._failed_seen = -1
        self._chances = np.empty(0)
        self._first = self._opening()

    def take(self, point: int) -> None:
        self._fresh.append(point)
        super().take(point)

    def tell(self, point: int, value: float | None) -> None:
        if not self.ledger.taken[point]:
            self._fresh.append(point)
        super().tell(point, value)

    def _opening(self) -> list[int]:
        default = [] if self.candidates.default is None else [self.candidates.default]
        expected = list(self.candidates.leading)
        if self.prior is None and self.candidates.expected is None:
            return default + expected + spread(self.x, max(FIRST - len(expected), BESIDES), self.rng)
        if self.prior is None:
            # what is far from all that is expected to be fast may be a hundred times as slow: few of it, and last
            near = self._promising(max(FIRST - len(expected) - BESIDES, BESIDES))
            return default + expected + near + spread(self.x, BESIDES, self.rng)
        named = self.prior.fastest(NAMED) + self.prior.fastest_by_switches(BY_SWITCHES)
        # a few others besides, without which nobody would know that the prior is wrong
        return default + expected + named + spread(self.x, BESIDES, self.rng)

    def _promising(self, count: int) -> list[int]:
        """Points far from each other among those that are expected to be fastest, the fastest of all first."""
        expected = self.candidates.expected
        assert expected is not None
        order = np.lexsort((self.rng.random(len(expected)), expected))  # equal ones in any order, NaN last
        among = order[: max(PROMISING, int(SHARE * len(order)))]
        return [int(among[k]) for k in farthest_first(self.x[among], count)]

    def propose(self, study: Study, trial: FrozenTrial) -> int:
        while self._first:
            if not self.ledger.taken[point := self._first.pop(0)]:
                return point
        if len(self.ledger.values) >= 3 and self.x.shape[1]:
            try:
                return self._most_promising()
            except np.linalg.LinAlgError:
                self._pool = None  # nothing to learn from, this time: a random point changes that
        return self.ledger.draw()

    def _most_promising(self) -> int:
        view = self.views[self.turn % len(self.views)]
        self.turn += 1
        pool = self._refreshed()
        posterior = view.posterior
        assert posterior is not None
        measured = np.array([p in self.ledger.values for p in pool.members])
        y = np.zeros(len(measured))
        y[measured] = gaussian.normalised(self._scaled(np.array(pool.members)[measured].tolist()), view.scale)
        for p in np.flatnonzero(~measured).tolist():
            y[p] = posterior.believed(y, p)
        gain = expected_improvement(posterior.mean(y), posterior.deviation(), float(y[measured].min()))
        gain *= self._chance(pool.rows)
        gain[self.ledger.taken[pool.rows]] = -1.0
        return int(pool.rows[np.argmax(gain)])

    def _scaled(self, points: Sequence[int]) -> np.ndarray:
        """The values of measured points, their logarithms where all have one sign: ratios of times are what counts."""
        values = np.array([self.ledger.values[p] for p in points])
        if (values > 0).all():
            return np.log(values)
        return -np.log(-values) if (values < 0).all() else values

    def _refreshed(self) -> Pool:
        """The pool with everything that was asked and told since in it; a new one when it is time for a fit."""
        count = len(self.ledger.values)
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
                view.add(point)
        self._fresh.clear()
        return pool

    def _fit(self) -> Pool:
        """New scales for each process, and the points that are compared until the next fit."""
        told = self.ledger.best(len(self.ledger.values))
        if len(told) > MEMBERS:
            slower = np.array(told[MEMBERS // 2 :])
            told = told[: MEMBERS // 2] + self.rng.choice(slower, MEMBERS // 2, replace=False).tolist()
        known = {*self.ledger.values, *self.ledger.failed}
        under_way = [p for p in np.flatnonzero(self.ledger.taken).tolist() if p not in known]
        # not the failures: what is next to one may be the best there is, and whether it runs is another process's to say
        members = told + under_way[-UNDER_WAY // 4 :]
        rows = self._rows(told)
        fitted = told[:FITTED]
        scaled = self._scaled(fitted)
        for view in self.views:
            view.fit(fitted, scaled)
            view.condition(members, rows, MEMBERS + UNDER_WAY)
        self._fresh.clear()
        self._failed_seen = -1
        return Pool(rows, members, len(self.ledger.values))

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
        failed, ran = self.ledger.failed, list(self.ledger.values)
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
    return [int(among[k]) for k in farthest_first(x[among], count)]


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
