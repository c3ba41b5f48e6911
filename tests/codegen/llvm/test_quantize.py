"""Quantizers in registers use the processor's rounding conversion, and give exactly the codes of their expressions."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.ir import quantize
from gpucomp.expr.core import Expr, axes_of, call, cast, load
from gpucomp.ir.types import F32, F64, I8, I16, I32, U8, U16, DType, TensorType
from gpucomp.kernel import Kernel, Loops, Store
from gpucomp.kernel.interpreter import expected
from gpucomp.targets import cpu
from testing.kernels import elementwise
from tests.native import WIDEST, image_of, run_source

ROW = 37  # two vectors of any width and a part of one
AXES = axes_of((3, ROW))


def quantizer(x: Expr, dtype: DType, zero: float, low: float, high: float) -> Expr:
    rounded = call("round", x)
    shifted = call("add", rounded, zero) if zero else rounded
    return cast(call("min", call("max", shifted, low), high), dtype)


def kernel(dtype: DType, zero: float, low: float, high: float, *, sums: bool = False) -> Kernel:
    if sums:  # an integer times a constant, which is never NaN
        value = call("mul", cast(load(0, AXES, I32), F32), 0.125)
        return elementwise([quantizer(value, dtype, zero, low, high)], [TensorType(I32, (3, ROW))], (3, ROW), AXES)
    value = call("div", load(0, AXES, F32), 0.5)
    return elementwise([quantizer(value, dtype, zero, low, high)], [TensorType(F32, (3, ROW))], (3, ROW), AXES)


KERNELS = [
    kernel(U8, 0, 0, 255),
    kernel(U8, 119, 0, 255),
    kernel(U8, 255, 3, 200),
    kernel(I8, 0, -128, 127),
    kernel(I8, -7, -128, 127),
    kernel(I8, 5, -127, 127),
    kernel(U8, 3, 0, 255, sums=True),
    kernel(I8, 3, -128, 127, sums=True),
]
SPECIAL = (
    np.nan,
    -np.nan,
    np.inf,
    -np.inf,
    3e38,
    -3e38,
    2.0**31,
    -(2.0**31),
    1e-45,
    -0.0,
    0.25,
    0.75,
    1.25,
    -0.25,
    -0.75,
)


def inputs_of(k: Kernel) -> np.ndarray:
    rng = np.random.default_rng(3)
    if k.params[0].dtype is I32:
        x = rng.integers(-1400, 1400, (3, ROW)).astype(np.int32)
        x[0, :4] = 2**31 - 1, -(2**31), 4, 12
        return x
    x = rng.uniform(-90, 90, (3, ROW)).astype(np.float32)
    x[1] = np.arange(ROW) * 0.5 - 7.75  # halves, once divided
    x[0, : len(SPECIAL)] = SPECIAL
    return x


WIDTHS = [("cpu", n) for n in (0, 4, 8, 16) if n <= WIDEST] + [("cpu:x86-64-v2", n) for n in (0, 4)]


@pytest.mark.parametrize(("name", "lanes"), WIDTHS)
def test_codes_are_what_the_expressions_say(name, lanes):
    target = cpu.named(name)
    sources = [emit(k, {"lanes": lanes, "tasks": 1, "unroll": 0}, target, f"k{i}") for i, k in enumerate(KERNELS)]
    image = image_of(sources, target)

    for source, k in zip(sources, KERNELS, strict=True):
        x = inputs_of(k)
        np.testing.assert_array_equal(run_source(image, source, k, [x])[0], expected(k, [x])[0], err_msg=source.text)
        assert ("llvm.lrint" in source.text) == (quantizer_in(k) is not None)


def quantizer_in(k: Kernel) -> quantize.Quantizer | None:
    return quantize.quantizer_of(k.stores[0].value)


X = load(0, AXES, F32)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(quantizer(X, U8, 0.5, 0, 255), id="a zero point between codes"),
        pytest.param(quantizer(X, U8, 0, -1, 255), id="an end that is no code"),
        pytest.param(quantizer(X, I8, 0, 0, 255), id="an end of another type's codes"),
        pytest.param(quantizer(X, U8, 0, 0.5, 255), id="an end between codes"),
        pytest.param(quantizer(X, U8, 2.0**24, 0, 255), id="a zero point that f32 adds to nothing"),
        pytest.param(quantizer(X, U8, 0, 200, 100), id="no code between the ends"),
        pytest.param(quantizer(X, I32, 0, 0, 255), id="no byte"),
        pytest.param(quantizer(cast(X, F64), U8, 0, 0, 255), id="another precision"),
        pytest.param(cast(call("min", call("max", X, 0), 255), U8), id="cut off, not rounded"),
        pytest.param(cast(call("max", call("min", call("round", X), 255), 0), U8), id="ends the other way round"),
    ],
)
def test_what_is_no_quantizer_of_bytes_is_left_to_the_conversions(value):
    assert quantize.quantizer_of(value) is None


def test_a_part_of_a_vector_that_is_one_lane_stores_that_lane_alone():
    """Rows of five bytes in vectors of four lanes. The two bytes after each row must not be written."""
    axes = axes_of((6, 5))
    value = quantizer(call("mul", cast(load(0, axes, I32), F32), 0.7), U8, 0, 0, 255)
    params = (TensorType(I32, (6, 5)), TensorType(U8, (6, 7)))
    k = Kernel("loops", params, 1, Loops(axes), (Store(1, axes, value),))
    x = np.arange(30, dtype=np.int32).reshape(6, 5)
    target = cpu.host()
    source = emit(k, {"lanes": 4, "tasks": 1, "unroll": 0}, target, "k")

    (found,) = run_source(image_of([source], target), source, k, [x])

    np.testing.assert_array_equal(found, expected(k, [x])[0])


@pytest.mark.parametrize("lanes", [0, min(16, WIDEST)])
@pytest.mark.parametrize("dtype", [U8, I8, U16, I16])
def test_floats_become_narrow_integers_whole_vectors_at_a_time(dtype, lanes):
    """Truncated, clipped to the type, and 0 for NaN. LLVM's own conversion would convert lane by lane."""
    info = np.iinfo(dtype.numpy)
    ends = [end + step for end in (info.min, info.max) for step in (-1.5, -0.9, 0, 0.9, 1.5)]
    x = np.resize(np.array([np.nan, -np.inf, np.inf, -1e30, 1e30, -0.5, 3.75, -3.75, *ends], np.float32), 37)
    axes = axes_of((37,))
    params = (TensorType(F32, (37,)), TensorType(dtype, (37,)))
    k = Kernel("loops", params, 1, Loops(axes), (Store(1, axes, cast(load(0, axes, F32), dtype)),))
    target = cpu.host()
    source = emit(k, {"lanes": lanes, "tasks": 1, "unroll": 0}, target, "k")

    (found,) = run_source(image_of([source], target), source, k, [x])

    right = np.where(np.isnan(x), 0, np.clip(np.trunc(np.nan_to_num(x)), info.min, info.max)).astype(dtype.numpy)
    np.testing.assert_array_equal(found, right)
    assert ".sat." not in source.text
