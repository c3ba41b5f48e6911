"""Checks a candidate's results: what it may write, how large its error may be, and that every run gives the same bits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np

from gpucomp.kernel import Math
from gpucomp.tuning.setups import ARENA, Setup

VERSION = 1  # of the check; stored with its results
RUNS = 3  # of each candidate: launched, captured, replayed
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
ROUNDED_OPERANDS: Mapping[Math, float] = {"tf32": 2.0**-11, "strict": 0.0, "3xtf32": 2.0**-22}
FACTOR = 8.0  # on the error of a sum of rounded terms, which grows with the square root of their number
WORST = 4.0  # the error allowed for one element, over the error allowed for the root mean square


def limit(dtype: np.dtype, terms: int, math: Math = "strict") -> float:
    """The allowed error of a result, relative to the root mean square of the expected values."""
    unit = max(ROUNDOFF.get(dtype.name, 0.0), ROUNDED_OPERANDS[math])
    return FACTOR * unit * sqrt(max(terms, 1))


def error_of(actual: np.ndarray, wanted: np.ndarray, terms: int, math: Math = "strict") -> tuple[float, str]:
    """The root mean square of the error over that of the expected values, and what is wrong with ``actual`` ("" if nothing).

    Integers must be equal; infinities and NaN must be in the expected places. No single element may be off by much more
    than all of them together: one wrong element in a million is wrong.
    """
    if actual.shape != wanted.shape or actual.dtype != wanted.dtype:
        return float("inf"), f"{actual.dtype}{list(actual.shape)} found, {wanted.dtype}{list(wanted.shape)} expected"
    if actual.dtype.name not in ROUNDOFF:
        differing = int(np.count_nonzero(actual != wanted))
        return (float("inf"), f"{differing} whole numbers are wrong") if differing else (0.0, "")
    a, b = actual.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    same = np.array_equal(np.where(finite, 0, b), np.where(finite, 0, a), equal_nan=True)
    if not same or not np.isfinite(a[finite]).all():
        return float("inf"), "NaN or infinities are in the wrong places, or are missing"
    if not finite.any():
        return 0.0, ""
    off = np.abs(a[finite] - b[finite])
    scale = float(np.sqrt(np.mean(b[finite] ** 2))) or 1.0
    error, worst = float(np.sqrt(np.mean(off**2))) / scale, float(off.max())
    allowed = limit(actual.dtype, terms, math)
    if error > allowed:
        return error, f"relative error {error:.3g}, {allowed:.3g} is allowed"
    if worst > WORST * allowed * max(scale, float(np.abs(b[finite]).max())):
        return error, f"one element is off by {worst / scale:.3g}"
    return error, ""


def _go_on(outputs: Sequence[np.ndarray], seconds: float) -> bool:
    return True


def run_checked(
    program: Any, made: Setup, runs: int = RUNS, go_on: Callable[[Sequence[np.ndarray], float], bool] = _go_on
) -> tuple[list[np.ndarray], str]:
    """The outputs of the first of ``runs`` runs, and what is wrong with the runs apart from the values ("" if nothing).

    A fault is a write outside of the outputs, or a run that gives other bits than the first one. After the first run,
    ``go_on`` is called with its outputs and its total seconds; if it returns false, there are no more runs.
    """
    first: np.ndarray | None = None
    for number in range(runs):
        begin = time.perf_counter()
        after = np.asarray(program.run(made.inputs)[ARENA])
        took = time.perf_counter() - begin
        if fault := made.damage(after):
            return made.outputs(after), f"run {number}: {fault}"
        if first is None:
            first = after.copy()
            if not go_on(made.outputs(first), took):
                break
        elif differing := differing_bits(made.outputs(first), made.outputs(after)):
            return made.outputs(first), f"run {number} gave other bits than the first in {differing} elements"
    assert first is not None
    return made.outputs(first), ""


def differing_bits(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> int:
    """The number of bytes in which ``a`` and ``b`` differ."""
    total = 0
    for x, y in zip(a, b, strict=True):
        raw = [np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in (x, y)]
        total += int(np.count_nonzero(raw[0] != raw[1]))
    return total
