"""Analyses a measured space: which parameters matter, how they matter, and what is around the winner. Measures nothing.

Everything is computed from the measurements, of a whole space or of what a search measured of it; no model is involved.
A search measures where it expects fast points, so means over its measurements are biased towards those.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping

import numpy as np

from gpucomp.errors import UsageError, quote
from gpucomp.lazy_dataclass import dataclass
from gpucomp.tuning.space import Candidates

NEAR = 1.1  # a point is fast if its time is at most this many times the best
FAST = 0.1  # the share of the measurements that are counted as the fastest


@dataclass(frozen=True)
class Importance:
    """Shares of the variance of log time that one parameter explains alone: over all points, and over the fastest tenth."""

    name: str
    overall: float
    among_fast: float


@dataclass(frozen=True)
class Level:
    """The points with one value of one parameter: their number, their times over the overall best, the share of fast ones."""

    value: int
    count: int
    failed: int
    best: float
    median: float
    fast: float


@dataclass(frozen=True)
class Neighbour:
    """A point that differs from another one in one parameter: its time over the other's, or None if it failed."""

    point: int
    name: str
    value: int
    instead_of: int
    ratio: float | None


def importance(candidates: Candidates, seconds: np.ndarray) -> list[Importance]:
    """The parameters that vary, the most important first. ``seconds`` [points]: NaN where unknown or failed.

    The share is epsilon squared (Kelley, 1935): eta squared, minus what chance alone would explain.
    """
    known = np.flatnonzero(np.isfinite(seconds))
    logs = np.log(seconds[known])
    fast = logs <= np.quantile(logs, FAST) if len(logs) else np.zeros(0, bool)
    found = [
        Importance(
            name,
            _explained(candidates.ordinals[known, j], logs),
            _explained(candidates.ordinals[known[fast], j], logs[fast]),
        )
        for j, name in enumerate(candidates.names)
        if len(candidates.levels[j]) > 1
    ]
    return sorted(found, key=lambda i: -i.overall)


def _explained(levels: np.ndarray, logs: np.ndarray) -> float:
    groups = [logs[levels == level] for level in np.unique(levels)]
    total = ((logs - logs.mean()) ** 2).sum() if len(logs) else 0.0
    inner = len(logs) - len(groups)
    if total == 0 or inner <= 0:
        return 0.0
    within = sum(((group - group.mean()) ** 2).sum() for group in groups)
    return float(max((total - within - (len(groups) - 1) * within / inner) / total, 0.0))


def dependence(candidates: Candidates, seconds: np.ndarray, name: str, failed: np.ndarray | None = None) -> list[Level]:
    """One level for each value of a parameter, in rising order. ``failed`` bool [points]: measured without success."""
    if name not in candidates.names:
        raise UsageError(f"parameter {quote(name)}: one of {', '.join(candidates.names)} expected")
    column = candidates.values[:, candidates.names.index(name)]
    best = np.nanmin(seconds)
    levels = []
    for value in np.unique(column):
        here = column == value
        times = seconds[here & np.isfinite(seconds)] / best
        levels.append(
            Level(
                value=int(value),
                count=len(times),
                failed=int((here & failed).sum()) if failed is not None else 0,
                best=float(times.min()) if len(times) else math.nan,
                median=float(np.median(times)) if len(times) else math.nan,
                fast=float((times <= NEAR).mean()) if len(times) else 0.0,
            )
        )
    return levels


def neighbours(
    candidates: Candidates, seconds: np.ndarray, point: int, failed: np.ndarray | None = None
) -> list[Neighbour]:
    """The measured points that differ from ``point`` in one parameter, the fastest first and failures last."""
    found = []
    for row in candidates.neighbours(point).tolist():
        j = int(np.flatnonzero(candidates.values[row] != candidates.values[point])[0])
        known, fails = bool(np.isfinite(seconds[row])), failed is not None and bool(failed[row])
        if known or fails:
            ratio = float(seconds[row] / seconds[point]) if known else None
            values = int(candidates.values[row, j]), int(candidates.values[point, j])
            found.append(Neighbour(row, candidates.names[j], *values, ratio))
    return sorted(found, key=lambda n: math.inf if n.ratio is None else n.ratio)


def alone(candidates: Candidates) -> float:
    """The share of the points without a neighbour, a point that differs in one parameter only."""
    levels = candidates.ordinals.astype(np.int64)
    weights = np.random.default_rng(0).integers(1 << 62, size=levels.shape[1])  # equal sums: equal points, but for luck
    terms = levels * weights
    lonely = np.ones(len(levels), bool)
    for j in range(levels.shape[1]):
        _, group, sizes = np.unique(terms.sum(1) - terms[:, j], return_inverse=True, return_counts=True)
        lonely &= sizes[group] == 1
    return float(lonely.mean()) if len(lonely) else 0.0


def source_difference(
    render: Callable[[Mapping[str, int]], str], before: Mapping[str, int], after: Mapping[str, int], *, context: int = 3
) -> str:
    """The unified diff of the sources that ``render`` makes of two schedules; its header names the differing parameters."""
    changed = [name for name in before if before[name] != after.get(name)]
    titles = [", ".join(f"{name}={s[name]}" for name in changed if name in s) or "the same" for s in (before, after)]
    old, new = (render(s).splitlines(keepends=True) for s in (before, after))
    return "".join(difflib.unified_diff(old, new, titles[0], titles[1], n=context))
