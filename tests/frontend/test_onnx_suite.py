"""ONNX's tests through the frontend and the interpreter. ``onnx_passing.txt`` may only grow."""

import dataclasses

import numpy as np
import pytest
from onnx_cases import cases, mismatch, passing, verdict

# cases whose expected values are themselves rounded coarsely: (rtol, atol) that covers that rounding
F16_UNIT, F32_UNIT = 2.0**-10, 2.0**-23
INEXACT = {
    "test_attention_4d_causal_fp16": (2 * F16_UNIT, 0.0),  # summed in f16 step by step
    "test_attention_4d_causal_fp16_expanded": (2 * F16_UNIT, 0.0),
    "test_dft_inverse": (1e-3, 4 * F32_UNIT),  # zeros that an f32 transform leaves as 1.9e-7
    "test_dft_inverse_opset19": (1e-3, 4 * F32_UNIT),
}


@pytest.mark.parametrize("name", sorted(set(cases()) - set(INEXACT)))
def test_case_matches_or_is_refused_and_the_list_knows_which(name):
    said = verdict(cases()[name])

    assert not said.startswith("wrong"), said
    if name in passing():
        assert not said, f"listed as passing, and is {said}"
    else:
        assert said, "passes, and is not listed: add it to onnx_passing.txt"


@pytest.mark.parametrize("name", INEXACT)
def test_case_with_coarsely_rounded_values_is_off_by_their_rounding_alone(name):
    case = cases()[name]
    rtol, atol = INEXACT[name]

    assert name not in passing()
    assert verdict(case).startswith("wrong"), "it matches: it is no exception"
    assert not verdict(dataclasses.replace(case, rtol=rtol, atol=atol))


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
