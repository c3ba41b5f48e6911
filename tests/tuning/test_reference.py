"""The tuner's judge agrees with the oracle of the back ends, which computes everything in another way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpucomp.ir.types import F16, F32, I8, I32
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes import split_winograd as winograd_steps
from gpucomp.tuning import reference
from gpucomp.tuning.checks import error_of, limit
from gpucomp.tuning.setups import poisoned
from testing import kernels
from testing.tolerance import assert_matches

CASES = {
    "elementwise": lambda: kernels.add_relu(3, 17),
    "padded": lambda: kernels.padded(13, 3),
    "matmul": lambda: kernels.matmul(5, 7, 11),
    "matmul in batches, transposed": lambda: kernels.matmul(
        5, 7, 11, batch=(2, 3), a_transposed=True, b_transposed=True
    ),
    "matmul of halves": lambda: kernels.matmul(5, 7, 11, dtype=F16),
    "matmul of bytes": lambda: kernels.matmul(5, 7, 11, dtype=I8, acc=I32),
    "matmul without depth": lambda: kernels.matmul(5, 7, 0),
    "convolution": lambda: kernels.conv((2, 7, 5, 3), 11, (3, 2), stride=2, pad=1),
    "convolution in groups": lambda: kernels.grouped_conv((1, 7, 5, 6), 3, 5, (3, 3), pad=1),
    "part of a longer result": lambda: kernels.into_part(kernels.conv((1, 5, 5, 3), 7, (3, 3)), 3, 2, 5),
    "depthwise": lambda: kernels.depthwise((1, 7, 5, 6), (3, 3), stride=(2, 1), pad=1),
    "matmul with statistics of its rows": lambda: kernels.with_row_statistics(kernels.matmul(5, 7, 11, batch=(3,))),
    "softmax": lambda: kernels.softmax(3, 5, 17),
    "sum": lambda: kernels.reduction("sum", 7, 33),
    "layer norm": lambda: kernels.layer_norm(5, 37),
    "max pool": lambda: kernels.max_pool((1, 7, 9, 3), 3, 2, 1),
    "average pool": lambda: kernels.average_pool((2, 7, 9, 3), (3, 2), 2, 1),
    "attention": lambda: kernels.attention(5, 7, 3, 11),
    "pixels of Winograd's blocks": lambda: winograd(2)[0],
    "outputs of Winograd's blocks": lambda: winograd(4)[2],
}


def winograd(outputs):
    kernel = kernels.conv((2, 9, 7, 4), 5, (3, 3), pad=1)
    return winograd_steps.kernels(replace(kernel, constants=frozenset({1})), outputs)


def inputs_of(kernel):
    rng = np.random.default_rng(2)
    drawn = (
        rng.standard_normal(t.shape, np.float32) if t.dtype.is_float else rng.integers(-9, 9, t.shape)
        for t in kernel.params[: kernel.inputs]
    )
    return [a.astype(t.dtype.numpy) for a, t in zip(drawn, kernel.params, strict=False)]


@pytest.mark.parametrize("case", CASES)
def test_the_reference_agrees_with_the_oracle(case, monkeypatch):
    monkeypatch.setattr(reference, "CHUNK", 40)  # several chunks even here
    kernel = CASES[case]()
    inputs = inputs_of(kernel)
    before = poisoned(kernel)

    found = reference.expected(kernel, inputs, before)

    for a, b, old in zip(found, expected(kernel, inputs), before, strict=True):
        unwritten = np.equal(b, 113)
        np.testing.assert_array_equal(a[unwritten], old[unwritten])
        assert_matches(
            np.where(unwritten, 0, a).astype(a.dtype),
            np.where(unwritten, 0, b).astype(b.dtype),
            terms=reference.terms(kernel),
        )


def test_terms_are_what_is_added_up():
    assert reference.terms(kernels.matmul(5, 7, 11)) == 11
    assert reference.terms(kernels.conv((1, 5, 5, 3), 7, (3, 2))) == 18
    assert reference.terms(kernels.add_relu(3, 17)) == 1
    assert reference.terms(kernels.layer_norm(5, 37)) == 37
    assert reference.terms(kernels.depthwise((1, 7, 5, 6), (3, 3))) == 9
    assert reference.terms(winograd(2)[0]) == 16


def test_rounding_is_within_the_limit_and_a_lost_term_is_not():
    rng = np.random.default_rng(1)
    for dtype in (np.float32, np.float16):
        a, b = (rng.standard_normal((31, 64)).astype(dtype) for _ in range(2))
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        assert error_of(exact.astype(dtype), exact.astype(np.float64).astype(dtype), 64)[1] == ""
        lost = exact - np.outer(a[:, -1], b[:, -1])
        assert "relative error" in error_of(lost.astype(dtype), exact.astype(dtype), 64)[1]


def test_one_wrong_element_of_a_million_is_wrong():
    wanted = np.random.default_rng(1).standard_normal(1 << 20).astype(np.float16)
    found = wanted.copy()
    found[4711] += np.float16(2)

    error, fault = error_of(found, wanted, 1)

    assert error < limit(np.dtype(np.float16), 1)
    assert "one element" in fault


def test_what_is_not_finite_has_to_be_so_in_the_same_places():
    wanted = np.array([1, np.nan, np.inf, 2], np.float32)

    assert error_of(wanted.copy(), wanted, 1) == (0.0, "")
    for place, value in ((0, np.nan), (1, 1.0), (2, -np.inf), (3, np.inf)):
        found = wanted.copy()
        found[place] = value
        assert "NaN" in error_of(found, wanted, 1)[1]


def test_another_shape_or_type_is_wrong():
    wanted = np.zeros((2, 3), np.float32)

    assert error_of(wanted.T, wanted, 1)[1]
    assert error_of(wanted.astype(np.float16), wanted, 1)[1]
    assert error_of(np.array([1, 2]), np.array([1, 3]), 1)[1] == "1 whole numbers are wrong"
    assert F32.numpy == wanted.dtype
