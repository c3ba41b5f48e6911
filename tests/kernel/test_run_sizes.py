"""Numbers that a run gives a kernel."""

import random

import pytest

from gpucomp.ir.dim import Dim
from gpucomp.ir.size import size_of
from gpucomp.kernel.run_sizes import MAGIC, SHIFT, RunSize, number_of

MOST = (1 << 31) - 1


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 8, 63, 64, 65, 641, 6700417, MOST - 1, MOST])
def test_a_product_and_a_shift_divide_every_number_below_two_to_the_31(size):
    rng = random.Random(size)
    magic, shift = number_of(MAGIC, size), number_of(SHIFT, size)
    near = [k * size + d for k in (0, 1, 2, MOST // size - 1, MOST // size) for d in (-1, 0, 1)]

    assert magic < 1 << 32
    for x in [*near, MOST, MOST - 1, *(rng.randrange(MOST) for _ in range(2000))]:
        if 0 <= x <= MOST:
            assert x * magic >> shift == x // size, f"{x} // {size}"


def test_numbers_are_equal_by_kind_and_formula():
    w, again = size_of(Dim("w"), 5), size_of(Dim("w"), 5)

    assert RunSize(w + 1) == RunSize(1 + again)
    assert RunSize(w) != RunSize(w, MAGIC)
    assert RunSize(w + 1).at({"w": 12}) == 13
