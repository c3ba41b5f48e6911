"""What a process sees of points and times: which features, on which scale, and what of it is fitted. No choice lives here.

Which features explain a kernel's times is not known beforehand, so each fit decides between several sets of them by what
they make of the measurements, with the scales of each set at their most probable. That is a heuristic after Bayesian model
selection (MacKay, Bayesian interpolation, 1992), not it: sets have different numbers of scales, and their losses are compared
without the normalisers of the priors and without the width of the posterior, Laplace's term.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpucomp.tuning import gaussian
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.space import Candidates

LENGTH = 0.5  # median of the prior of a feature's length scale

Features = Callable[[Sequence[int] | np.ndarray], np.ndarray]  # of points: float32 [points, features]


@dataclass
class Lens:
    """One set of features, what its process expects of their scales, and what was found last.

    groups  int [features]: those of the same number have one length scale
    """

    features: Features
    groups: np.ndarray
    expected: gaussian.Scales
    fitted: gaussian.Scales


def lens(features: Features, lengths: np.ndarray, groups: np.ndarray | None = None) -> Lens:
    """A lens that expects these ``lengths`` [features]; each has a scale of its own where ``groups`` does not say."""
    scales = gaussian.Scales(lengths)
    return Lens(features, np.arange(len(lengths)) if groups is None else groups, scales, scales)


class View:
    """One scale of times and the process that sees it, through the lens that explains the measurements best.

    There is a lens for what the numbers of a schedule mean; one for which of its values are the same, whatever they
    mean; and where there are records of others, one for their times besides: a device that is too different loses its
    say. What matters to a kernel is much the same everywhere, so the lengths that are expected are those of the others.
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
        """New scales from the logarithms of the times of ``points``."""
        y = gaussian.normalised(logs, self.scale)
        losses = []
        for one in self.lenses:
            one.fitted, loss = gaussian.fit(one.features(points), y, one.fitted, one.expected, groups=one.groups)
            losses.append(loss)
        self.lens = self.lenses[int(np.argmin(losses))]
        self.scales = self.lens.fitted

    def condition(self, members: list[int], rows: np.ndarray, room: int) -> None:
        """The posterior at ``rows`` given that ``members`` are measured; up to ``room`` may be."""
        x, candidates = self.lens.features(members), self.lens.features(rows)
        for noise in (self.scales.noise, 1e-2, 1e-1):
            with contextlib.suppress(np.linalg.LinAlgError):
                self.scales = dataclasses.replace(self.scales, noise=max(noise, self.scales.noise))
                self.posterior = gaussian.Posterior(x, candidates, self.scales, room=room)
                return
        raise np.linalg.LinAlgError(f"{len(members)} measurements that no noise tells apart")

    def add(self, point: int) -> None:
        """One more member."""
        assert self.posterior is not None
        self.posterior.add(self.lens.features([point])[0])


class Sameness:
    """Features that know no order: the squared distance of two points is the number of parameters in which they differ.

    groups  int [features]: the parameter that a feature is of, counting those that vary
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
