"""Gaussian-process regression on numpy, limited to what a search needs, and fast. No acquisition function is here.

Rasmussen and Williams, Gaussian Processes for Machine Learning (2006): posterior 2.25 to 2.26, marginal likelihood and its
gradient 5.8 to 5.9, Matérn kernel 4.17 with nu = 5/2, one length scale for each feature. The scales maximise the posterior
density under log-normal priors. Rprop (Riedmiller and Braun, 1993) climbs it, without a line search; it starts from the last
fit's scales, so a few steps are enough.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from gpucomp.lazy_dataclass import dataclass

TARGETS = ("log", "rank")  # what the regression predicts, see ``normalised``
ROOT5 = math.sqrt(5)
JITTER = 1e-5
LENGTHS = (0.03, 30.0)  # of features in [0, 1]: from one that changes with every value to one that does not matter
VARIANCES = (0.05, 20.0)
NOISES = (1e-5, 1.0)

# OpenBLAS now and then sets the flag "invalid" for a product of finite numbers; the numbers are right (numpy issue 24067)
of_finite_numbers = np.errstate(invalid="ignore")


@dataclass(frozen=True)
class Scales:
    """Length scale of each feature, variance of the function, variance of the noise; in units of the normalised target."""

    lengths: np.ndarray
    variance: float = 1.0
    noise: float = 1e-3


@of_finite_numbers
def matern(a: np.ndarray, b: np.ndarray, scales: Scales) -> np.ndarray:
    """float32 covariances [len(a), len(b)] of points [n, features]."""
    a = (a / scales.lengths).astype(np.float32)
    b = (b / scales.lengths).astype(np.float32)
    squared = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * (a @ b.T)
    r: np.ndarray = np.sqrt(np.maximum(squared, 0, out=squared), out=squared)
    r *= np.float32(ROOT5)
    rational = r * np.float32(1 / 3)
    rational += 1
    rational *= r
    rational += 1
    np.negative(r, out=r)
    np.exp(r, out=r)
    r *= np.float32(scales.variance)
    r *= rational
    return r


def fit(
    x: np.ndarray,
    y: np.ndarray,
    start: Scales,
    prior: Scales,
    *,
    steps: int = 15,
    groups: np.ndarray | None = None,
) -> tuple[Scales, float]:
    """Scales that explain ``y`` [n] at ``x`` [n, features] better than ``start``, or ``start`` itself; and the loss.

    The loss is the negative log posterior density of the scales without its constants. Some of these grow with the number
    of scales, so the loss is only a rule of thumb for comparing sets of features.

    The prior's medians are ``prior``; one standard deviation is a factor of e for lengths and e^1.5 for the noise.
    ``groups`` int [features], rising from 0 without gaps: features with the same number share one length.
    """
    x = x.astype(float)
    groups = np.arange(x.shape[1]) if groups is None else groups
    firsts = np.unique(groups, return_index=True)[1]
    features = len(firsts)
    mean = np.log(np.concatenate([prior.lengths[firsts], [prior.variance, prior.noise]]))
    deviation = np.concatenate([np.ones(features + 1), [1.5]])
    bounds = np.log(np.array([LENGTHS] * features + [VARIANCES, NOISES]))
    theta = np.log(np.concatenate([start.lengths[firsts], [start.variance, start.noise]]))
    best, best_loss = theta, math.inf
    step, last = np.full(len(theta), 0.2), np.zeros(len(theta))
    for _ in range(steps):
        try:
            loss, gradient = _loss(x, y, theta, groups)
        except np.linalg.LinAlgError:
            break  # too little noise for points that lie this close: keep the best scales so far
        off = (theta - mean) / deviation
        loss += 0.5 * float(off @ off)
        gradient += off / deviation
        if loss < best_loss:
            best, best_loss = theta, loss
        agreement = np.sign(gradient * last)
        step = np.clip(np.where(agreement > 0, 1.3, np.where(agreement < 0, 0.5, 1.0)) * step, 0.01, 0.8)
        last = np.where(agreement < 0, 0.0, gradient)
        theta = np.clip(theta - np.sign(last) * step, bounds[:, 0], bounds[:, 1])
    values = np.exp(best)
    return Scales(values[:features][groups], float(values[-2]), float(values[-1])), best_loss


@of_finite_numbers
def _loss(x: np.ndarray, y: np.ndarray, theta: np.ndarray, groups: np.ndarray) -> tuple[float, np.ndarray]:
    """The negative log marginal likelihood at ``theta``, the logarithms of the scales, and its gradient."""
    count = len(y)
    lengths, variance, noise = np.exp(theta[:-2])[groups], math.exp(theta[-2]), math.exp(theta[-1])
    scaled = x / lengths
    norms = (scaled * scaled).sum(1)
    r = np.sqrt(np.maximum(norms[:, None] + norms[None] - 2 * (scaled @ scaled.T), 1e-12)) * ROOT5
    decay = np.exp(-r)
    shape = (1 + r + r * r / 3) * decay
    covariance = variance * shape
    covariance[np.diag_indices(count)] += noise + JITTER
    lower = np.linalg.cholesky(covariance)
    half = np.linalg.inv(lower)
    inverse = half.T @ half
    weights = inverse @ y
    outer = 0.5 * (inverse - np.outer(weights, weights))
    # sum over pairs of w_ij (x_i - x_j)^2, without the array of all differences
    pull = outer * (variance * 5 / 3 * (1 + r) * decay)
    spread = 2 * ((scaled * scaled * pull.sum(1)[:, None]).sum(0) - (scaled * (pull @ scaled)).sum(0))
    spread = np.bincount(groups, spread, minlength=len(theta) - 2)
    gradient = np.concatenate([spread, [(outer * shape).sum() * variance, np.trace(outer) * noise]])
    return 0.5 * float(y @ weights) + float(np.log(np.diag(lower)).sum()), gradient


class Posterior:
    """The process at fixed ``candidates`` [m, features], given measurements at points that are added one by one.

    The variance depends only on where points were measured, so a point can be added before its time is known. There is
    space for ``room`` points. Raises ``numpy.linalg.LinAlgError`` if the points ``x`` [n, features] are too close for the
    noise.
    """

    @of_finite_numbers
    def __init__(self, x: np.ndarray, candidates: np.ndarray, scales: Scales, *, room: int) -> None:
        self.scales, self.candidates, self.count = scales, candidates, len(x)
        covariance = matern(x, x, scales).astype(float)
        covariance[np.diag_indices(len(x))] += scales.noise + JITTER
        half = np.linalg.inv(np.linalg.cholesky(covariance))
        self._x = np.zeros((room, x.shape[1]), x.dtype)
        self._half = np.zeros((room, room))  # inverse of the lower Cholesky factor
        self._whitened = np.zeros((room, len(candidates)), np.float32)
        self._x[: len(x)] = x
        self._half[: len(x), : len(x)] = half
        self._whitened[: len(x)] = half.astype(np.float32) @ matern(x, candidates, scales)
        self.variance = scales.variance - np.einsum("ij,ij->j", self._whitened, self._whitened)

    @of_finite_numbers
    def add(self, point: np.ndarray) -> None:
        """Add one measured point [features]."""
        n = self.count
        point = point[None]
        covariance = matern(self._x[:n], point, self.scales)[:, 0].astype(float)
        row = self._half[:n, :n] @ covariance
        pivot = math.sqrt(max(self.scales.variance + self.scales.noise + JITTER - float(row @ row), JITTER))
        known = matern(point, self.candidates, self.scales)[0]
        added = (known - row.astype(np.float32) @ self._whitened[:n]) / np.float32(pivot)
        self._x[n] = point[0]
        self._half[n, :n] = -(row @ self._half[:n, :n]) / pivot
        self._half[n, n] = 1 / pivot
        self._whitened[n] = added
        self.variance = self.variance - added * added
        self.count = n + 1

    @of_finite_numbers
    def believed(self, y: np.ndarray, k: int) -> float:
        """The value that the earlier points predict for point ``k``: used as its result, it changes no prediction."""
        return -float(self._half[k, :k] @ y[:k]) / float(self._half[k, k])

    @of_finite_numbers
    def mean(self, y: np.ndarray) -> np.ndarray:
        """Expected values [m], given the measured ``y`` [count]."""
        n = self.count
        return np.asarray((self._half[:n, :n] @ y).astype(np.float32) @ self._whitened[:n])

    def deviation(self) -> np.ndarray:
        """Standard deviations [m]."""
        return np.asarray(np.sqrt(np.maximum(self.variance, 1e-8)))


def normalised(logs: np.ndarray, scale: str) -> np.ndarray:
    """The logarithms, or the normal scores of their ranks, scaled to mean 0 and standard deviation 1."""
    if scale == "rank":
        y = np.array(_normal_scores(len(logs)))[np.argsort(np.argsort(logs, kind="stable"), kind="stable")]
    else:
        y = logs - logs.mean()
    return y / (y.std() or 1.0)


@lru_cache
def _normal_scores(count: int) -> tuple[float, ...]:
    """The approximate expected order statistics of ``count`` normal draws (Blom, 1958)."""
    normal = NormalDist()
    return tuple(normal.inv_cdf((k + 0.625) / (count + 0.25)) for k in range(count))
