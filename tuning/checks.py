"""Whether a candidate's results are right: what it may write, what it may be off by, and that it does so every time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpucomp.tuning.setups import ARENA, Setup

VERSION = 1  # of the check, stored with what it says
RUNS = 3  # of a setup: launched, captured, replayed
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
ROUNDED_OPERANDS = {"tf32": 2.0**-11, "strict": 0.0, "3xtf32": 2.0**-22}  # by a contraction's ``math``
FACTOR = 8.0  # of the error of a sum of rounded terms, which grows as their square root
WORST = 4.0  # the largest error of all elements over the root of the mean square, for which ``FACTOR`` stands


def limit(dtype: np.dtype, terms: int, math: str = "strict") -> float:
    """How far a result may be off, relative to the root mean square of what is expected."""
    unit = max(ROUNDOFF.get(dtype.name, 0.0), ROUNDED_OPERANDS.get(math, 0.0))
    return FACTOR * unit * max(terms, 1) ** 0.5


def error_of(actual: np.ndarray, wanted: np.ndarray, terms: int, math: str = "strict") -> tuple[float, str]:
    """Root mean square of the error over that of what is wanted, and what is wrong with ``actual``, if anything.

    Whole numbers have to be equal; infinities and NaN have to stand where they are wanted. No single element may be
    off by much more than all of them together: one wrong element of a million is wrong.
    """
    if actual.shape != wanted.shape or actual.dtype != wanted.dtype:
        return float("inf"), f"{actual.dtype}{list(actual.shape)} where {wanted.dtype}{list(wanted.shape)} is wanted"
    if actual.dtype.name not in ROUNDOFF:
        differing = int(np.count_nonzero(actual != wanted))
        return (float("inf"), f"{differing} whole numbers are wrong") if differing else (0.0, "")
    a, b = actual.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    same = np.array_equal(np.where(finite, 0, b), np.where(finite, 0, a), equal_nan=True)
    if not same or not np.isfinite(a[finite]).all():
        return float("inf"), "NaN or infinities stand where they are not wanted, or are missing"
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
    """The outputs of the first of ``runs`` runs, and what is wrong with the runs but their numbers.

    A fault is a write outside of the outputs, or a run that gives other bits than the first. ``go_on`` is asked after the
    first run, with its outputs and the seconds that it took, everything included: where it says no, that was the only one.
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
    """Bytes of ``a`` that are not as in ``b``."""
    total = 0
    for x, y in zip(a, b, strict=True):
        raw = [np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in (x, y)]
        total += int(np.count_nonzero(raw[0] != raw[1]))
    return total
