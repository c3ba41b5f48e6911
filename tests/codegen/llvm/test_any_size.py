"""CPU engines that take any size: one compilation, run at many sizes and compared with numpy."""

from __future__ import annotations

import pytest

from gpucomp.ir.dim import Dim
from testing.any_size import AnySize
from testing.kernels import add_relu, softmax

M, N = Dim("m", 1, 100), Dim("n", 1, 400)
PAIRS = ((1, 1), (13, 17), (3, 391), (100, 400))


def test_loops_at_any_size() -> None:
    kernel = AnySize(lambda m, n: add_relu(m, n), {"m": M, "n": N})

    for m, n in PAIRS:
        kernel.check(m=m, n=n, bits=True)


def test_rows_at_any_size() -> None:
    kernel = AnySize(lambda m, n: softmax(m, n), {"m": M, "n": N})

    for m, n in PAIRS:
        kernel.check(m=m, n=n)


def test_a_kernel_that_asks_what_differs_from_run_to_run_is_refused() -> None:
    with pytest.raises(AssertionError, match="a condition: m - 50 == 0"):
        AnySize(lambda m: add_relu(int(m), 3), {"m": M})
