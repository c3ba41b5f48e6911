import numpy as np
import pytest

from testing.tolerance import assert_identical, assert_matches


def test_a_rounding_error_matches():
    expected = np.array([1.0, 3.0], np.float32)

    assert_matches(np.nextafter(expected, np.float32(9)), expected)


@pytest.mark.parametrize(
    ("actual", "expected", "terms"),
    [
        (np.array([1.0 + 1e-5], np.float32), np.array([1.0], np.float32), 1),
        (np.array([1.0 + 1e-5], np.float32), np.array([1.0], np.float32), 100),
        (np.array([np.nan], np.float32), np.array([1.0], np.float32), 1),
        (np.array([1.0], np.float32), np.array([np.inf], np.float32), 1),
        (np.array([1e-30], np.float32), np.array([0.0], np.float32), 1),
        (np.array([1.0], np.float64), np.array([1.0], np.float32), 1),
        (np.array([[1.0]], np.float32), np.array([1.0], np.float32), 1),
        (np.array([3], np.int8), np.array([4], np.int8), 1),
    ],
)
def test_an_error_does_not_match(actual, expected, terms):
    with pytest.raises(AssertionError):
        assert_matches(actual, expected, terms=terms)


def test_more_terms_allow_more():
    actual, expected = np.array([1.0 + 1e-5], np.float32), np.array([1.0], np.float32)

    assert_matches(actual, expected, terms=10_000)


def test_zeros_of_different_sign_are_not_identical():
    with pytest.raises(AssertionError):
        assert_identical(np.array([0.0]), np.array([-0.0]))


def test_nan_is_identical_to_nan():
    assert_identical(np.array([np.nan, -0.0]), np.array([np.nan, -0.0]))
