"""The one place where closeness is decided."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

ROUNDOFF = {
    np.dtype(np.float64): 2.0**-53,
    np.dtype(np.float32): 2.0**-24,
    np.dtype(np.float16): 2.0**-11,
    np.dtype(ml_dtypes.bfloat16): 2.0**-8,
}


def assert_matches(actual: np.ndarray, expected: np.ndarray, *, terms: int = 1) -> None:
    """Equal shape and type; floats within ``8 * unit_roundoff * sqrt(terms) * max|expected|``, the rest exactly."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if expected.dtype not in ROUNDOFF:
        np.testing.assert_array_equal(actual, expected)
        return
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(e)
    np.testing.assert_array_equal(np.where(finite, 0, a), np.where(finite, 0, e))
    scale = np.max(np.abs(e[finite]), initial=0.0)
    bound = 8 * ROUNDOFF[expected.dtype] * math.sqrt(terms) * scale
    worst = np.max(np.abs(a - e)[finite], initial=0.0)
    assert worst <= bound, f"off by {worst}, {bound} allowed"
