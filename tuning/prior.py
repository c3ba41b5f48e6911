"""Learns from records of another device or another problem which points of a space may be fast. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from gpucomp.errors import UsageError
from gpucomp.schedule.space import Schedule
from gpucomp.tuning import gaussian
from gpucomp.tuning.encoding import farthest_first
from gpucomp.tuning.space import Candidates

LEARNED = 400  # records of a source that predict its unmeasured points: the fastest ones, and a sample of the others
FITTED = 128  # of these, the number that the model's scales are fitted to
CHUNK = 4096
NEEDED = 3  # measured points that a source must have
FAILED = 1.5  # a point that failed on the other device counts as this many times slower than the slowest


class Prior:
    """Seconds [points, sources] measured elsewhere for these points: NaN for no measurement, infinite for a failure.

    A source is one device and problem. Its times are never compared with times of this search; only their order and ratios
    are used. Raises ``UsageError`` if the array does not fit the space.
    """

    def __init__(self, candidates: Candidates, seconds: np.ndarray) -> None:
        if seconds.ndim != 2 or len(seconds) != len(candidates):
            raise UsageError(f"a prior of shape {seconds.shape}: {len(candidates)} points in rows expected")
        self.candidates = candidates
        enough = np.isfinite(seconds).sum(0) >= NEEDED
        self.seconds = seconds[:, enough]
        self._lengths: dict[tuple[str, float], np.ndarray] = {}

    @classmethod
    def from_records(
        cls, candidates: Candidates, sources: Iterable[Iterable[tuple[Schedule | Mapping[str, int], float | None]]]
    ) -> Prior:
        """Each source is (schedule, seconds or None for a failure) pairs; schedules that are not legal here are ignored."""
        columns = []
        for records in sources:
            column = np.full(len(candidates), np.nan)
            for schedule, seconds in records:
                if (row := candidates.find(schedule)) is not None:
                    column[row] = np.inf if seconds is None else seconds
            columns.append(column)
        return cls(candidates, np.array(columns).T.reshape(len(candidates), len(columns)))

    def __bool__(self) -> bool:
        return bool(self.seconds.shape[1])

    @cached_property
    def logarithms(self) -> np.ndarray:
        """float [points, sources]: log of the time over the source's best, predicted where nothing was measured."""
        return (
            np.stack([self._filled(column) for column in self.seconds.T], 1)
            if self
            else np.zeros((len(self.seconds), 0))
        )

    @cached_property
    def ranks(self) -> np.ndarray:
        """float [points, sources] in [0, 1]: the share of points that are faster on the source."""
        order = self.logarithms.argsort(0, kind="stable").argsort(0, kind="stable")
        return order / max(len(order) - 1, 1)

    @cached_property
    def features(self) -> np.ndarray:
        """float32 [points, 2 * sources] in [0, 1], features for a model: logarithms and ranks."""
        span = np.maximum(np.ptp(self.logarithms, axis=0), 1e-9)
        return np.concatenate([self.logarithms / span, self.ranks], 1).astype(np.float32)

    def fastest(self, count: int) -> list[int]:
        """Points that are fast on some source: the sources name their best points in turn; each point appears once."""
        named: dict[int, None] = {}
        orders = self.logarithms.argsort(0, kind="stable")
        for row in orders:
            named.update(dict.fromkeys(int(point) for point in row))
            if len(named) >= count:
                break
        return list(named)[:count]

    def fastest_by_switches(self, count: int) -> list[int]:
        """The fastest point of each combination of the switches, for up to ``count`` combinations that differ most.

        Devices disagree first of all on the best combination of switches: one has a cache for constants, another has memory
        banks that need padding. They agree more on the best sizes for a given combination. A switch is a parameter with two
        values, or one whose values are names. A combination is left out if everything measured of it elsewhere failed; if
        nothing of it was measured, the model's predicted times count. The rule was developed on the kernels of the recorded
        spaces that bench/tuning_lab.py searches, so its gain there says little about others.
        """
        own = self.candidates
        switches = [
            own.ordinals[:, [j]] == np.arange(len(levels))
            for j, (name, levels) in enumerate(zip(own.names, own.levels, strict=True))
            if len(levels) == 2 or (len(levels) > 2 and name in own.categories)
        ]
        if not switches or not self:
            return []
        settings = np.concatenate(switches, 1)
        _, combinations = np.unique(settings, axis=0, return_inverse=True)
        ran, failed = np.isfinite(self.seconds).any(1), np.isposinf(self.seconds)
        hopeless = np.bincount(combinations.ravel(), failed.any(1)).astype(bool)
        hopeless &= np.bincount(combinations.ravel(), ran) == 0
        order = self.logarithms.mean(1).argsort(kind="stable")
        order = order[~failed[order].all(1) & ~hopeless[combinations.ravel()[order]]]
        _, first = np.unique(settings[order], axis=0, return_index=True)
        points = order[np.sort(first)]
        return [int(points[k]) for k in farthest_first(settings[points].astype(float), count)]

    def lengths(self, scale: str, usual: float) -> np.ndarray:
        """float [features]: the length scale of each feature of the encoding, the geometric mean over the sources.

        ``usual`` is the median of the scales' prior, ``scale`` one of ``gaussian.TARGETS``.
        """
        if (scale, usual) not in self._lengths:
            self._lengths[scale, usual] = self._fitted_lengths(scale, usual)
        return self._lengths[scale, usual]

    def _fitted_lengths(self, scale: str, usual: float) -> np.ndarray:
        x = self.candidates.encoding.matrix
        start = gaussian.Scales(np.full(x.shape[1], usual))
        found = []
        for column in self.seconds.T:
            known = np.flatnonzero(np.isfinite(column))
            known = known[column[known].argsort(kind="stable")]
            # more points where the source is faster
            some = known[np.unique((len(known) * np.linspace(0, 1, FITTED, endpoint=False) ** 2).astype(int))]
            y = gaussian.normalised(np.log(column[some]), scale)
            scales, _ = gaussian.fit(x[some], y, start, start, steps=40)
            found.append(np.log(scales.lengths))
        return np.exp(np.mean(found, axis=0)) if found else start.lengths

    def _filled(self, column: np.ndarray) -> np.ndarray:
        measured = np.isfinite(column)
        logs = np.log(column[measured] / column[measured].min())
        filled = np.full(len(column), logs.max() + np.log(FAILED))  # a failed point counts as slower than the slowest
        filled[measured] = logs
        if (unknown := np.flatnonzero(np.isnan(column))).size:
            filled[unknown] = self._predicted(np.flatnonzero(measured), logs, unknown)
        return filled

    def _predicted(self, known: np.ndarray, logs: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        """Expected logarithms at ``unknown`` rows, from a model of the fastest half and a sample of the others."""
        x = self.candidates.encoding.matrix
        if len(known) > LEARNED:
            order = logs.argsort(kind="stable")
            rest = order[LEARNED // 2 :]
            kept = np.concatenate([order[: LEARNED // 2], rest[:: -(-len(rest) // (LEARNED // 2))]])
            known, logs = known[kept], logs[kept]
        centre, spread = logs.mean(), logs.std() or 1.0
        y = (logs - centre) / spread
        start = gaussian.Scales(np.full(x.shape[1], 0.5))
        some = slice(None, None, -(-len(known) // FITTED))
        scales, _ = gaussian.fit(x[known[some]], y[some], start, start)
        parts = []
        for begin in range(0, len(unknown), CHUNK):
            rows = unknown[begin : begin + CHUNK]
            parts.append(gaussian.Posterior(x[known], x[rows], scales, room=len(known)).mean(y))
        return np.asarray(np.maximum(np.concatenate(parts) * spread + centre, 0.0))
