"""The first trials of a search that an analytic model guides: where times may be lowest, as far as it may be off.

A model's prediction of a schedule is uncertain, and neighbours are mispredicted alike. So its error, the logarithm of
measured over predicted, is a Gaussian process over the encoded schedules, around the median of the errors that were measured
so far, because a kernel can be predicted too fast as a whole. Its deviation is that of published measurements
(``uncertainty.SCHEDULES``). The next trial is the point with the lowest lower end of its interval (Srinivas and others,
"Gaussian process optimization in the bandit setting", 2010). What is measured, or being measured, narrows the interval of its
neighbours, so nearly equal points do not fill the start (Desautels, Krause and Burdick, 2014), and what is slower than
predicted lets the search go elsewhere.

``python -m bench.tuning_lab_starts`` compares it with other starts; bench/results/tuning_lab_starts.md has the results.
"""

from __future__ import annotations

import numpy as np

from gpucomp.tuning import gaussian
from gpucomp.tuning.samplers.ledger import Ledger

END = 1.28  # deviations below the mean: the lower end of an interval with four fifths of all measurements
SMOOTH = 0.5  # length scale of the error, for features in [0, 1]
NOISE = 0.01  # of its variance: what a measurement does not say even of its own point


def lowest(x: np.ndarray, expected: np.ndarray, error: float, ledger: Ledger) -> int | None:
    """The free point whose time may be lowest; ``None`` if no time of a free point is expected.

    ``x`` float [points, features] are the encoded points and ``expected`` [points] their times by the model, NaN for unknown.
    ``error`` is the deviation of the logarithm of measured over expected times; if the times measured so far are further off, it
    is theirs.
    """
    known = np.isfinite(expected) & (expected > 0)
    logs = np.where(known, np.log(np.where(known, expected, 1.0)), np.inf)
    measured = [p for p, value in ledger.values.items() if known[p] and value > 0]
    # those under way, and failures, say only that there is nothing to learn near them: they are as far off as their neighbours
    others = [p for p in np.flatnonzero(ledger.taken).tolist() if p not in ledger.values]
    low = logs - END * error
    if members := measured + others:
        y = np.zeros(len(members))
        if measured:
            errors = np.log([ledger.values[p] for p in measured]) - logs[measured]
            errors -= np.median(errors)
            error = max(error, float(np.sqrt((errors**2).mean())))
            y[: len(measured)] = errors / error
        scales = gaussian.Scales(np.full(x.shape[1], SMOOTH), noise=NOISE)
        posterior = gaussian.Posterior(x[members], x, scales, room=len(members))
        for k in range(len(measured), len(members)):
            y[k] = posterior.believed(y, k)
        low = logs + error * (posterior.mean(y) - END * posterior.deviation())
    low[ledger.taken] = np.inf
    point = int(np.argmin(low))
    return point if np.isfinite(low[point]) else None
