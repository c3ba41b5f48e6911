"""One Gaussian process's view of points and times: its features, its scale, and its fit. Nothing is chosen here.

It is not known beforehand which features explain a kernel's times. So each fit compares several sets of features by how well
they explain the measurements, each with its most probable scales. This is a heuristic modelled on Bayesian model selection
(MacKay, Bayesian interpolation, 1992): sets have different numbers of scales, but their losses are compared without the
normalisers of the priors and without the width of the posterior (Laplace's term).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from gpucomp.lazy_dataclass import dataclass
from gpucomp.tuning import gaussian
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.space import Candidates

LENGTH = 0.5  # median of the prior of a feature's length scale

Features = Callable[[Sequence[int] | np.ndarray], np.ndarray]  # points -> float32 [points, features]


@dataclass
class Lens:
    """One set of features, the expected scales of its process, and the scales of the last fit.

    groups  int [features]: features with the same number share one length scale
    """

    features: Features
    groups: np.ndarray
    expected: gaussian.Scales
    fitted: gaussian.Scales


def lens(features: Features, lengths: np.ndarray, groups: np.ndarray | None = None) -> Lens:
    """A lens with the expected ``lengths`` [features]; without ``groups``, every feature has a scale of its own."""
    scales = gaussian.Scales(lengths)
    return Lens(features, np.arange(len(lengths)) if groups is None else groups, scales, scales)


class View:
    """One scale of times, and the process for it, with the lens that explains the measurements best.

    There are up to three lenses: the encoded schedule; which parameter values are equal, whatever they mean; and, if there
    are records of others, the encoded schedule with their times. If the other device is too different, another lens wins.
    The parameters that matter to a kernel are similar on all devices, so the expected lengths are those of the records.
    """

    def __init__(self, scale: str, candidates: Candidates, prior: Prior | None = None) -> None:
        self.scale = scale
        x = candidates.encoding.matrix
        lengths = np.full(x.shape[1], LENGTH) if prior is None else prior.lengths(scale, LENGTH)
        same = Sameness(candidates)
        self.lenses = [lens(lambda rows: x[rows], lengths), lens(same, np.full(len(same.groups), LENGTH), same.groups)]
        if prior is not None:
            informed = np.concatenate([x, prior.features], 1)
            others = np.full(prior.features.shape[1], LENGTH)
            self.lenses.append(lens(lambda rows: informed[rows], np.concatenate([lengths, others])))
        self.lens = self.lenses[-1]
        self.scales = self.lens.expected
        self.posterior: gaussian.Posterior | None = None

    def fit(self, points: list[int], logs: np.ndarray) -> None:
        """Fit new scales to the logarithms of the times of ``points``."""
        y = gaussian.normalised(logs, self.scale)
        losses = []
        for one in self.lenses:
            one.fitted, loss = gaussian.fit(one.features(points), y, one.fitted, one.expected, groups=one.groups)
            losses.append(loss)
        self.lens = self.lenses[int(np.argmin(losses))]
        self.scales = self.lens.fitted

    def condition(self, members: list[int], rows: np.ndarray, room: int) -> None:
        """Make the posterior at ``rows``, given that ``members`` are measured; up to ``room`` members fit."""
        x, candidates = self.lens.features(members), self.lens.features(rows)
        for noise in (self.scales.noise, 1e-2, 1e-1):
            with contextlib.suppress(np.linalg.LinAlgError):
                self.scales = dataclasses.replace(self.scales, noise=max(noise, self.scales.noise))
                self.posterior = gaussian.Posterior(x, candidates, self.scales, room=room)
                return
        raise np.linalg.LinAlgError(f"{len(members)} measurements that are too close for any noise")

    def add(self, point: int) -> None:
        """Add one member."""
        assert self.posterior is not None
        self.posterior.add(self.lens.features([point])[0])


class Sameness:
    """Features without an order: the squared distance of two points is the number of parameters in which they differ.

    groups  int [features]: the number of a feature's parameter, among those that vary
    """

    def __init__(self, candidates: Candidates) -> None:
        counts = np.array([len(levels) for levels in candidates.levels], np.int64)
        varied = np.flatnonzero(counts > 1)
        self.levels = candidates.ordinals[:, varied] + np.cumsum(counts[varied]) - counts[varied]
        self.groups = np.repeat(np.arange(len(varied)), counts[varied])

    def __call__(self, points: Sequence[int] | np.ndarray) -> np.ndarray:
        features = np.zeros((len(points), len(self.groups)), np.float32)
        np.put_along_axis(features, self.levels[points], math.sqrt(0.5), axis=1)
        return features
