"""The only place for tolerances: how far a computed array may be from the expected one. No test has its own."""

from __future__ import annotations

import numpy as np

from gpucomp.kernel.winograd_matrices import ALGORITHMS, floats

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def assert_matches(actual: np.ndarray, expected: np.ndarray, *, terms: int = 1) -> None:
    """Each element is a sum of ``terms`` numbers. The bound grows with sqrt(terms); it is not picked by hand.

    NaN and infinities must be in the same places; integers and bools must be equal.
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
    """A 16-bit result of an f32 sum: the right number or a neighbour, if the sum's own error is small.

    Other types are checked by ``assert_matches``.
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
    """The same type, shape and elements; NaN equals NaN, and the sign of zero matters."""
    assert actual.dtype == expected.dtype, f"{actual.dtype} where {expected.dtype} was expected"
    assert actual.shape == expected.shape, f"shape {actual.shape} where {expected.shape} was expected"
    if actual.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, expected)
        return
    found, wanted = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(found, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(wanted[numbers]))


def winograd_bound(outputs: int, channels: int, stored: str = "float32") -> float:
    """A bound on the relative L2 error of F(outputs, 3), squared, in f32: 1.7 times the expected error.

    A result that is ``stored`` in a narrower type is rounded to it, at most by a unit.

    The pixels and filters must have independent elements. A rounding error is 0.41 units, root mean square: uniform within a
    binade, for numbers spread evenly over it. A position's sum over C channels is rounded at each step k, when it has k / C
    of its final variance, which amounts to C / 2 roundings of the final sum; filters, pixels and outputs add about four more.
    The variance of a position's products is given by the squared factors of the transforms; the outputs have three products
    along each axis. This follows Barabasz et al. (2020), with variances instead of their bounds.
    """
    algorithm = ALGORITHMS[f"winograd{outputs}3"]
    filters, data, result = (np.square(floats(m)) for m in (algorithm.filter, algorithm.data, algorithm.result))
    amplified = (result @ (filters.sum(1) * data.sum(1)) / 3).mean()  # the square root of the two-dimensional value
    rounded = UNIT_ROUNDOFF[stored] if stored != "float32" else 0.0
    return float(1.7 * 0.41 * UNIT_ROUNDOFF["float32"] * np.sqrt(channels / 2 + 4) * amplified) + rounded
