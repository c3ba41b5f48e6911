"""The default search: Gaussian processes over the encoded schedules, maximising expected improvement.

It first measures points that an analytic model (``samplers.opening``) or records of other devices propose, and a spread of
others. Then it repeats: condition the processes on the measurements, and take the point with the largest expected improvement
(Jones, Schonlau and Welch, 1998) times the probability that it runs at all. Two processes take turns, because no single scale
of times fits every space: one sees logarithms, which separate bad from hopeless points; the other sees ranks, which separate
good points whatever the hopeless ones took. Points in flight count as measured with their expected value (the kriging
believer of Ginsbourger, Le Riche and Carraro, 2010), so that a batch spreads out. Failures teach where not to look; no
process sees them as times.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from optuna import Study
from optuna.trial import FrozenTrial

from gpucomp.lazy_dataclass import dataclass
from gpucomp.tuning import gaussian
from gpucomp.tuning.encoding import farthest_first
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.samplers.base import PointSampler
from gpucomp.tuning.samplers.opening import lowest
from gpucomp.tuning.samplers.points import Points
from gpucomp.tuning.samplers.view import LENGTH, View

FIRST = 16  # points of the first spread
SPREAD_AMONG = 1000  # points that it is chosen from
NAMED = 4  # points measured first from other records: their fastest
BY_SWITCHES = 8  # and the fastest of at most this many combinations of the switches
BESIDES = 4  # points of the spread after these
GUIDED = FIRST - BESIDES  # points where an analytic model's times may be lowest
PROMISING, SHARE = 48, 0.01  # number and share of the points that count as expected to be fast, for a first spread
POOL = 4096  # points that are compared; a larger space is sampled anew at every fit
ELITE = 6  # fastest points whose neighbours are always in the pool
REFIT = 8  # measurements between two fits, at first
MEMBERS = 512  # measurements that a process is conditioned on: the fastest half, and a sample of the others
FITTED = 128  # measurements that the scales are fitted to: the fastest
UNDER_WAY = 256  # points asked for since the last fit that the processes are also conditioned on
JUDGED = 128  # measurements for the probability of running: the latest, at most half of them failures
DOUBT = 4.0  # weight, in measurements, of the initial belief that points run
SURENESS = 0.03  # variance of a certain answer, next to labels of 1 and -1


@dataclass
class Pool:
    """The points that are compared, and the points that the processes are conditioned on; shared by all processes."""

    rows: np.ndarray
    members: list[int]  # measured points and points in flight, in the order of the posteriors
    fitted_at: int


class ModelSampler(PointSampler):
    """Bayesian optimisation on the encoded points of one table. ``prior`` adds others' measurements as features."""

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
        by_model = self.prior is None and self.candidates.error is not None
        self._first, self._then = self._by_model() if by_model else (self._opening(), [])
        self._guided = len(self._first) + GUIDED if by_model else 0  # number of points, with those of ``_first``

    def take(self, point: int) -> None:
        self._fresh.append(point)
        super().take(point)

    def tell(self, point: int, value: float | None) -> None:
        if not self.ledger.taken[point]:
            self._fresh.append(point)
        super().tell(point, value)

    def _by_model(self) -> tuple[list[int], list[int]]:
        """Before and after the points that the model's times propose: the default, and a few that show if they are wrong."""
        default = [] if self.candidates.default is None else [self.candidates.default]
        return default, spread(self.x, BESIDES, self.rng)

    def _opening(self) -> list[int]:
        default = [] if self.candidates.default is None else [self.candidates.default]
        expected = list(self.candidates.leading)
        if self.prior is None and self.candidates.expected is None:
            return default + expected + spread(self.x, max(FIRST - len(expected), BESIDES), self.rng)
        if self.prior is None:
            # a point far from all promising ones may be a hundred times slower: measure few of these, and last
            near = self._promising(max(FIRST - len(expected) - BESIDES, BESIDES))
            return default + expected + near + spread(self.x, BESIDES, self.rng)
        named = self.prior.fastest(NAMED) + self.prior.fastest_by_switches(BY_SWITCHES)
        # and a few others, which show if the prior is wrong
        return default + expected + named + spread(self.x, BESIDES, self.rng)

    def _promising(self, count: int) -> list[int]:
        """Points far from each other among those expected to be fastest; the expected fastest comes first."""
        expected = self.candidates.expected
        assert expected is not None
        order = np.lexsort((self.rng.random(len(expected)), expected))  # ties in random order, NaN last
        among = order[: max(PROMISING, int(SHARE * len(order)))]
        return [int(among[k]) for k in farthest_first(self.x[among], count)]

    def propose(self, study: Study, trial: FrozenTrial) -> int:
        if (point := self._opened()) is not None:
            return point
        if len(self.ledger.values) >= 3 and self.x.shape[1]:
            try:
                return self._most_promising()
            except np.linalg.LinAlgError:
                self._pool = None  # nothing can be learned this time; a random point changes that
        return self.ledger.draw()

    def _opened(self) -> int | None:
        """The next of the first trials; ``None`` when these are over."""
        if (point := self._free(self._first)) is None and self.ledger.asked < self._guided:
            point = self._lowest()
        return self._free(self._then) if point is None else point

    def _free(self, points: list[int]) -> int | None:
        """The first of ``points`` that is not taken. It and those before it are removed."""
        while points:
            if not self.ledger.taken[point := points.pop(0)]:
                return point
        return None

    def _lowest(self) -> int | None:
        """The point where the model's time may be lowest; ``None`` if it cannot tell."""
        candidates = self.candidates
        if candidates.expected is None or candidates.error is None:
            return None
        try:
            return lowest(self.x, candidates.expected, candidates.error, self.ledger)
        except np.linalg.LinAlgError:
            return None  # points that are too close for the process

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
        """The values of measured points; their logarithms if all have the same sign, because ratios of times matter."""
        values = np.array([self.ledger.values[p] for p in points])
        if (values > 0).all():
            return np.asarray(np.log(values))
        return np.asarray(-np.log(-values)) if (values < 0).all() else values

    def _refreshed(self) -> Pool:
        """The pool with everything asked and told since the last call; a new one when a fit is due."""
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
        """Fit new scales for each process, and choose the points that are compared until the next fit."""
        told = self.ledger.best(len(self.ledger.values))
        if len(told) > MEMBERS:
            slower = np.array(told[MEMBERS // 2 :])
            told = told[: MEMBERS // 2] + self.rng.choice(slower, MEMBERS // 2, replace=False).tolist()
        known = {*self.ledger.values, *self.ledger.failed}
        under_way = [p for p in np.flatnonzero(self.ledger.taken).tolist() if p not in known]
        # without failures: a point next to one may be the best, and another process predicts whether it runs
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
        """Free points: all of them, or a sample with the neighbours of the fastest and the fastest of other records."""
        free = np.flatnonzero(~self.ledger.taken)
        if len(free) <= POOL:
            return free
        near = [self.candidates.neighbours(point) for point in told[:ELITE]]
        named = np.array(self.prior.fastest(POOL // 4) if self.prior is not None else [], np.int64)
        chosen = np.unique(np.concatenate([self.rng.choice(free, POOL, replace=False), named, *near]))
        return np.asarray(chosen[~self.ledger.taken[chosen]])

    def _chance(self, rows: np.ndarray) -> np.ndarray | float:
        """The probability that a point runs, by a process of its own: labels are 1 for points that ran, -1 for failures."""
        failed, ran = self.ledger.failed, list(self.ledger.values)
        if not failed:
            return 1.0
        if self._failed_seen != len(failed):  # without a new failure the probabilities change little
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
    """Rows of ``x`` far from each other: a random one, then always the farthest from those chosen, of a random sample."""
    among = rng.permutation(len(x))[:SPREAD_AMONG]
    return [int(among[k]) for k in farthest_first(x[among], count)]


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """The expected improvement below ``best`` of a normally distributed value; values above it count as zero."""
    z = (best - mean) / deviation
    return np.asarray(deviation * (z * normal_cdf(z) + np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)))


def normal_cdf(z: np.ndarray) -> np.ndarray:
    """The standard normal distribution function: Abramowitz and Stegun, 26.2.17, to within 1e-7."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    tail = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail *= np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return np.asarray(np.where(z > 0, 1 - tail, tail))
