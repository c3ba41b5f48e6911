"""The one place for tolerances: how far a computed array may be from the expected one. No test has its own."""

from __future__ import annotations

import numpy as np

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def assert_matches(actual: np.ndarray, expected: np.ndarray, *, terms: int = 1) -> None:
    """``terms`` numbers were summed to make each element. Grows with sqrt(terms), not with a hand-picked bound.

    NaN and infinities have to stand in the same places; integers and bools have to be equal.
    """
    assert actual.dtype == expected.dtype, f"{actual.dtype} where {expected.dtype} was expected"
    assert actual.shape == expected.shape, f"shape {actual.shape} where {expected.shape} was expected"
    if actual.dtype.name not in UNIT_ROUNDOFF:
        assert_identical(actual, expected)
        return
    found, wanted = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(np.where(finite, 0, found), np.where(finite, 0, wanted))
    assert np.isfinite(found[finite]).all(), "NaN or an infinity where a number was expected"
    scale = np.abs(wanted[finite]).max(initial=0.0)
    bound = 8 * UNIT_ROUNDOFF[actual.dtype.name] * np.sqrt(max(terms, 1)) * scale
    worst = np.abs(found[finite] - wanted[finite]).max(initial=0.0)
    assert worst <= bound, f"max error {worst:.3g} exceeds {bound:.3g} ({actual.dtype}, {terms} terms)"


def assert_identical(actual: np.ndarray, expected: np.ndarray) -> None:
    """The same type, shape and elements; NaN equals NaN, and the sign of zero counts."""
    assert actual.dtype == expected.dtype, f"{actual.dtype} where {expected.dtype} was expected"
    assert actual.shape == expected.shape, f"shape {actual.shape} where {expected.shape} was expected"
    if actual.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, expected)
        return
    found, wanted = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(found, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(wanted[numbers]))
