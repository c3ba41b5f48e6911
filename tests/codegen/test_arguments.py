"""Sizes in the text of kernels: what they are printed as, and what is said of them for all runs."""

import pytest

from gpucomp.codegen.c.arguments import Argument, Arguments, highest, plain, told
from gpucomp.codegen.c.dialect import CUDA, OPENCL
from gpucomp.codegen.c.text import modulo, over, plus, times
from gpucomp.ir.dim import Dim
from gpucomp.ir.size import size_of
from gpucomp.kernel.run_sizes import MAGIC, SHIFT, SIZE

N = size_of(Dim("n", 2, 300), 70)
WIDE = size_of(Dim("wide", 1, 1 << 30), 5)


def test_a_size_is_printed_as_one_argument_wherever_its_formula_stands():
    arguments = Arguments(OPENCL)
    n = told(arguments, N)

    assert [str(n), f"{n + 1}", str(2 * n - n)] == ["size0", "size1", "size0"]
    assert [(one.kind, str(one.size)) for one in arguments.sizes] == [(SIZE, "n"), (SIZE, "n + 1")]


def test_numbers_that_are_the_same_in_every_run_stay_numbers():
    n = told(Arguments(OPENCL), N)

    assert (n - n, told(n.arguments, 7), n * 4 % 2) == (0, 7, 0)
    assert isinstance(n * 4 // 2, Argument)


def test_comparisons_are_about_all_runs():
    n = told(Arguments(OPENCL), N)

    assert n > 1  # in every run
    assert n > 299  # in some
    assert not n > 300
    assert n == told(n.arguments, N)
    assert n != 70  # though it may be
    assert n != n + 1
    with pytest.raises(TypeError):
        assert n < 5


def test_the_highest_of_sizes_is_that_of_any_run():
    n = told(Arguments(OPENCL), N)

    assert highest(4 * n, 900, N) == 1200
    assert plain(n) is N
    assert plain(3) == 3


@pytest.mark.parametrize(
    ("dialect", "wide", "uint"), [(OPENCL, "ulong", "uint"), (CUDA, "unsigned long long", "unsigned int")]
)
def test_quotients_are_products_and_shifts(dialect, wide, uint):
    arguments = Arguments(dialect)
    n = told(arguments, N)

    assert over("tile", n) == "over_size(tile, magic0, shift0)"
    assert modulo("tile", n) == "modulo_size(tile, size0, magic0, shift0)"
    assert (over("0", n), modulo("0", n)) == ("0", "0")
    assert [one.kind for one in arguments.sizes] == [MAGIC, SHIFT, SIZE]
    text = arguments.placed("kernel(\n    x,\n    @sizes@) {\n}\n")
    assert f"return (int)(({wide})({uint})a * magic >> shift);" in text
    assert text.index("int over_size(") < text.index("int modulo_size(") < text.index("kernel(")


def test_sums_and_products_take_sizes():
    n = told(Arguments(OPENCL), N)

    assert plus("row", 0, n) == "row + size0"
    assert [times("row", n), times("row + 1", n), times(n, 4), times("1", n)] == [
        "row * size0",
        "(row + 1) * size0",
        "size0 * 4",
        "size0",
    ]


def test_arguments_are_narrowed_to_what_the_range_allows():
    arguments = Arguments(OPENCL)
    for size in (N, WIDE * WIDE):
        str(told(arguments, size))

    assert arguments.placed("k(\n    __global float* x0,\n    @sizes@) {\n}\n") == (
        "k(\n    __global float* x0,\n    long run_size0, long run_size1) {\n"
        "  const int size0 = (int)run_size0;\n  const long size1 = (long)run_size1;\n}\n"
    )


def test_a_kernel_that_reads_no_size_has_no_argument_for_one():
    assert Arguments(OPENCL).placed("k(\n    int* x0,\n    @sizes@) {\n}\n") == "k(\n    int* x0) {\n}\n"
