"""Loads that lanes make some elements apart, and transposed operands: what they give, and what memory they touch."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.ir.builder import Code
from gpucomp.codegen.llvm.ir.printer import NEAR
from gpucomp.codegen.llvm.ir.shuffles import transposed
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.expr.core import axes_of, both, cast, hole, load, select
from gpucomp.ir.types import BOOL, F16, F32, F64, I8, I32, DType, TensorType
from gpucomp.kernel import Kernel, Loops, Store, Window
from gpucomp.kernel.interpreter import expected
from gpucomp.targets import cpu
from testing.tolerance import assert_matches
from tests.codegen.llvm.test_families import check, random_inputs
from tests.native import Library, default_schedule

PAGE = mmap.PAGESIZE
TYPES = [F32, F64, F16, I8, I32, BOOL]


class Alone:
    """An array with memory before and after it that nobody may read."""

    def __init__(self, array: np.ndarray, *, last: bool) -> None:
        pages = -(-array.nbytes // PAGE)
        self._map = mmap.mmap(-1, (pages + 2) * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for place in (start, start + (pages + 1) * PAGE):
            assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(place), ctypes.c_size_t(PAGE), 0) == 0
        offset = PAGE + (pages * PAGE - array.nbytes if last else 0)
        self.array = np.frombuffer(self._map, array.dtype, array.size, offset).reshape(array.shape)
        self.array[...] = array


def swapped(shape: tuple[int, ...], order: tuple[int, ...], dtype: DType = F32) -> Kernel:
    axes = axes_of(shape)
    params = (TensorType(dtype, shape), TensorType(dtype, tuple(shape[o] for o in order)))
    return Kernel("loops", params, 1, Loops(axes), (Store(1, tuple(axes[o] for o in order), load(0, axes, dtype)),))


def every(shape: tuple[int, int], step: int, dtype: DType = F32, window: int = 1) -> Kernel:
    """Windows of ``window`` columns, every ``step`` columns, with as many columns of padding on the left as fit."""
    rows, cols = shape
    pad = window // 2
    out = (cols + pad - window) // step + 1
    domain, taps = axes_of((rows, out)), axes_of((window,), "r")
    at, acc = domain[1] * step + taps[0] - pad, hole("acc", dtype)
    value = select(both([at >= 0, at < cols]), load(0, (domain[0], at), dtype), 0)
    params = (TensorType(dtype, shape), TensorType(dtype, (rows, out)))
    return Kernel("pool", params, 1, Window(domain, taps, "max", value, acc), (Store(1, domain, acc),))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    ("shape", "order"), [((37, 48), (1, 0)), ((5, 33, 24), (0, 2, 1)), ((40, 20, 12), (2, 1, 0)), ((16, 16), (1, 0))]
)
def test_transposes_of_each_type(shape, order, dtype):
    check(swapped(shape, order, dtype))


@pytest.mark.parametrize("dtype", [F32, F64, F16, I8, I32], ids=str)
@pytest.mark.parametrize("step", [2, 3, NEAR, NEAR + 1])
def test_windows_some_columns_apart(step, dtype):
    check(every((3, 150), step, dtype))
    check(every((3, 77), step, dtype, window=3))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "kernel",
    [swapped((37, 48), (1, 0)), swapped((65, 24), (1, 0), I8), every((1, 65), 2), every((1, 94), 3, F16),
     every((1, 66), 2, F32, window=3), every((1, 129), 4)],
    ids=lambda kernel: f"{kernel.params[0]}",
)  # fmt: skip
def test_nothing_outside_an_operand_is_read(kernel, last):
    (given,) = random_inputs(kernel)
    alone = Alone(given, last=last)

    (found,) = Library({"k": kernel}).run("k", [alone.array])

    assert_matches(found, expected(kernel, [given])[0])


def test_an_operand_that_is_read_on_one_side_only_is_no_block():
    """Rows of it need not be there where the condition does not hold: here it has half of them."""
    i, j = axes_of((64, 48))
    value = select(i < 32, load(0, (j, i), F32), 1.0)
    params = (TensorType(F32, (48, 64)), TensorType(F32, (64, 48)))
    kernel = Kernel("loops", params, 1, Loops((i, j)), (Store(1, (i, j), value),))

    check(kernel)
    guarded, plain = (
        emit(one, default_schedule(one), cpu.host(), "k").text.count("alloca")
        for one in (kernel, swapped((48, 64), (1, 0)))
    )
    assert (guarded, plain) == (0, 1)


def test_two_transposed_operands_beside_a_contiguous_one():
    i, j = axes_of((72, 40))
    value = load(0, (i, j), F32) * load(1, (j, i), F32) + cast(load(2, (j, i), I8), F32)
    params = (TensorType(F32, (72, 40)), TensorType(F32, (40, 72)), TensorType(I8, (40, 72)), TensorType(F32, (72, 40)))

    check(Kernel("loops", params, 1, Loops((i, j)), (Store(3, (i, j), value),)))


@pytest.mark.parametrize("scalar", ["i8", "i16", "i32", "i64"])
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (16, 4), (4, 16), (8, 2), (2, 8), (4, 4), (32, 8)])
def test_columns_of_a_block(monkeypatch, rows, columns, scalar):
    code, type = Code("f"), Type(scalar, columns)
    values = [code.argument(f"row{row}", type) for row in range(rows)]
    held = {value.text: [(row, column) for column in range(columns)] for row, value in enumerate(values)}

    def shuffled(a, b, order):
        made = code.argument(f"v{len(held)}", Type(scalar, len(order)))
        held[made.text] = [(held[a.text] + held[b.text])[place] for place in order]
        return made

    monkeypatch.setattr(code, "shuffle", shuffled)
    found = [held[value.text] for value in transposed(code, values)]

    assert found == [[(row, column) for row in range(rows)] for column in range(columns)]
