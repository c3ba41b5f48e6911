"""ONNX's tests through the frontend and the interpreter. ``onnx_passing.txt`` may only grow."""

import dataclasses

import numpy as np
import pytest

from bench.conformance.cases import INEXACT, RANDOM, unlike_a_draw
from tests.onnx_cases import cases, mismatch, passing, verdict


@pytest.mark.parametrize("name", sorted(set(cases()) - set(INEXACT)))
def test_case_matches_or_is_refused_and_the_list_knows_which(name):
    said = verdict(cases()[name])

    assert not said.startswith("wrong"), said
    if name in passing() or name in RANDOM:
        assert not said, f"listed as passing, and is {said}"
    else:
        assert said, "passes, and is not listed: add it to onnx_passing.txt"


@pytest.mark.parametrize("name", INEXACT)
def test_case_with_coarsely_rounded_values_is_off_by_their_rounding_alone(name):
    case = cases()[name]
    rtol, atol, _ = INEXACT[name]

    assert name not in passing()
    assert verdict(case).startswith("wrong"), "it matches: it is no exception"
    assert not verdict(dataclasses.replace(case, rtol=rtol, atol=atol))


def test_the_list_names_only_cases_that_exist():
    assert passing() | set(INEXACT) | set(RANDOM) <= set(cases())
    assert not passing() & (set(INEXACT) | set(RANDOM))


def test_draws_are_judged_by_type_shape_and_range_alone():
    zeros, ones = np.zeros((3, 2), np.float32), np.ones((3, 2), np.float32)

    assert not unlike_a_draw(zeros, ones)
    assert unlike_a_draw(zeros, ones.astype(np.float64))
    assert unlike_a_draw(zeros[:2], ones)
    assert unlike_a_draw(zeros + np.float32(0.5), ones)


def test_sequences_and_absent_optionals_are_told_apart():
    x = np.array([1.0, 2.0], np.float32)

    assert not mismatch([x, x], [x, x], 1e-3, 1e-7)
    assert not mismatch(None, None, 1e-3, 1e-7)
    assert mismatch([x], [x, x], 1e-3, 1e-7)
    assert mismatch([x, x], [x, -x], 1e-3, 1e-7)
    assert mismatch(x, [x], 1e-3, 1e-7)
    assert mismatch(x, None, 1e-3, 1e-7)
    assert mismatch(None, x, 1e-3, 1e-7)
    assert mismatch(np.array(["a", "b"], object), np.array(["a", "c"]), 1e-3, 1e-7)


def test_a_wrong_value_shape_or_type_is_a_mismatch():
    x = np.array([1.0, 2.0], np.float32)

    assert not mismatch(x, x.copy(), 1e-3, 1e-7)
    assert mismatch(x, x + np.float32(0.1), 1e-3, 1e-7)
    assert mismatch(x, x[:1], 1e-3, 1e-7)
    assert mismatch(x, x.astype(np.float64), 1e-3, 1e-7)
    assert mismatch(np.array([1, 2]), np.array([1, 3]), 1e-3, 1e-7)
    assert mismatch(x, np.array([1.0, np.nan], np.float32), 1e-3, 1e-7)
