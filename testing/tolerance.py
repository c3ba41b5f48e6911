"""The one place for tolerances: how far a computed array may be from the expected one. No test has its own."""

from __future__ import annotations

import numpy as np

from gpucomp.kernel.winograd_matrices import ALGORITHMS, floats

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


def assert_rounded_once(actual: np.ndarray, expected: np.ndarray, *, terms: int) -> None:
    """A 16-bit result of a sum in f32: at most the neighbour of the right one, where the sum's own error is small.

    Integers, and numbers of other types, as ``assert_matches`` has them.
    """
    if actual.dtype.name not in {"float16", "bfloat16"}:
        assert_matches(actual, expected, terms=terms)
        return
    assert actual.shape == expected.shape, f"shape {actual.shape} where {expected.shape} was expected"
    found, wanted = actual.astype(np.float64), expected.astype(np.float64)
    unit = 2 * UNIT_ROUNDOFF[actual.dtype.name] * np.abs(wanted)
    summed = 8 * UNIT_ROUNDOFF["float32"] * np.sqrt(max(terms, 1)) * np.abs(wanted).max(initial=0.0)
    excess = np.abs(found - wanted) - unit - summed
    assert (excess <= 0).all(), f"max error {np.abs(found - wanted).max():.3g}, {(excess > 0).sum()} past the neighbour"


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


def winograd_bound(outputs: int, channels: int) -> float:
    """Relative error in the L2 norm below which F(outputs, 3), squared, stays in f32: 1.7 times what is expected.

    For pixels and filters of independent elements. A rounding is an error of 0.41 units, root mean square: uniform over
    a binade, of numbers spread evenly over it. A position's sum over C channels is rounded at each step, when it has
    k / C of its variance: C / 2 roundings of the whole; its filters, its pixels and its outputs add about four. What
    the position's products have of variance, the squares of the factors that they are multiplied by say; the outputs
    have three along each axis. That is Barabasz et al. (2020), with variances where they have bounds.
    """
    algorithm = ALGORITHMS[f"winograd{outputs}3"]
    filters, data, result = (np.square(floats(m)) for m in (algorithm.filter, algorithm.data, algorithm.result))
    amplified = (result @ (filters.sum(1) * data.sum(1)) / 3).mean()  # the root of a square: two axes
    return float(1.7 * 0.41 * UNIT_ROUNDOFF["float32"] * np.sqrt(channels / 2 + 4) * amplified)
