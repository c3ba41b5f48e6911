"""ONNX's node tests through the frontend and the interpreter. ``onnx_passing.txt`` may only grow."""

import dataclasses

import numpy as np
import pytest
from onnx_cases import cases, mismatch, passing, verdict

# expected values that were summed in f16 step by step: ours, summed wider, are one unit in the last place off
F16_UNIT = 2.0**-10
SUMMED_IN_F16 = {"test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded"}


@pytest.mark.parametrize("name", sorted(set(cases()) - SUMMED_IN_F16))
def test_case_matches_or_is_refused_and_the_list_knows_which(name):
    said = verdict(cases()[name])

    assert not said.startswith("wrong"), said
    if name in passing():
        assert not said, f"listed as passing, and is {said}"
    else:
        assert said, "passes, and is not listed: add it to onnx_passing.txt"


@pytest.mark.parametrize("name", sorted(SUMMED_IN_F16))
def test_case_summed_in_f16_is_off_by_rounding_alone(name):
    case = cases()[name]

    assert name not in passing()
    assert verdict(case).startswith("wrong"), "it matches: it is no exception"
    assert not verdict(dataclasses.replace(case, rtol=2 * F16_UNIT))


def test_the_list_names_only_cases_that_exist():
    assert passing() <= set(cases())


def test_a_wrong_value_shape_or_type_is_a_mismatch():
    x = np.array([1.0, 2.0], np.float32)

    assert not mismatch(x, x.copy(), 1e-3, 1e-7)
    assert mismatch(x, x + np.float32(0.1), 1e-3, 1e-7)
    assert mismatch(x, x[:1], 1e-3, 1e-7)
    assert mismatch(x, x.astype(np.float64), 1e-3, 1e-7)
    assert mismatch(np.array([1, 2]), np.array([1, 3]), 1e-3, 1e-7)
    assert mismatch(x, np.array([1.0, np.nan], np.float32), 1e-3, 1e-7)
