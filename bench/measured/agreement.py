"""How well predictions agree with measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.measured.spaces import BEST


@dataclass(frozen=True)
class File:
    """Problems of a file on one device: percentiles of predicted over measured, and the median of \\|ln ratio\\|."""

    file: str
    device: str
    dtype: str
    problems: int
    ratio: dict[str, float]
    spread: float
    spearman: float


@dataclass(frozen=True)
class Ranked:
    """Problems of a file with one layout whose configurations were measured. The columns are those of ``ranking``."""

    file: str
    layout: str
    problems: int
    spearman: float
    top1: float
    top10: float


def file_of(file: str, device: str, dtype: str, predicted: Sequence[float], measured: Sequence[float]) -> File:
    ratio = np.asarray(predicted, float) / np.asarray(measured, float)
    p10, p50, p90 = (round(float(q), 3) for q in np.percentile(ratio, (10, 50, 90)))
    spread = round(float(np.median(np.abs(np.log(ratio)))), 3)
    order = round(spearman(predicted, measured), 3)
    return File(file, device, dtype, len(ratio), {"p10": p10, "p50": p50, "p90": p90}, spread, order)


def ranking(predicted: Sequence[float], measured: Sequence[float]) -> tuple[float, float, float]:
    """Spearman's coefficient, and over the optimum the first configuration by the model and the best of its first ten."""
    order, times = np.argsort(predicted, kind="stable"), np.asarray(measured, float)
    optimum = times.min()
    return spearman(predicted, measured), times[order[0]] / optimum, times[order[:BEST]].min() / optimum


def ranked_of(file: str, layout: str, found: Sequence[tuple[float, float, float]]) -> Ranked:
    """The median of the problems' coefficients, and the geometric means of the rest."""
    orders, firsts, tens = (np.array(column, float) for column in zip(*found, strict=True))
    means = (round(float(np.exp(np.log(column).mean())), 3) for column in (firsts, tens))
    return Ranked(file, layout, len(found), round(float(np.median(orders)), 3), *means)


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The correlation of the ranks; equal numbers share the mean of their ranks. 1 where there is nothing to order."""
    x, y = (_ranks(np.asarray(values, float)) for values in (a, b))
    if len(x) < 2 or not x.std() or not y.std():
        return 1.0 if len(x) < 2 else 0.0
    return float(np.corrcoef(x, y)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    mean: np.ndarray = (ends - (counts - 1) / 2)[inverse]
    return mean


def as_json(files: Sequence[File], spaces: Sequence[Ranked]) -> dict[str, Any]:
    return {"files": [asdict(one) for one in files], "spaces": [asdict(one) for one in spaces]}
