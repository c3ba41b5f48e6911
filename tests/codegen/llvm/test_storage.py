"""Storage-only types on the CPU: every pattern of a byte is read, and a dense set of floats is written."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp.codegen.llvm.ir import arithmetic
from gpucomp.codegen.llvm.ir.builder import Code, Value
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.errors import UnsupportedError
from gpucomp.expr.core import axes_of, cast, literal, load, select
from gpucomp.expr.evaluate import convert
from gpucomp.ir.types import (
    BOOL,
    DTYPES,
    F4E2M1,
    F8E8M0,
    F16,
    F32,
    F64,
    I2,
    I4,
    I8,
    I32,
    I64,
    U2,
    U4,
    U8,
    DType,
    TensorType,
)
from gpucomp.kernel import Kernel, Loops, Store
from tests.native import WIDEST, Library, run_kernel

FLOAT8 = [d for d in DTYPES.values() if d.is_float and d.storage_only]
NIBBLES = [I4, U4, I2, U2]
BYTES = np.arange(256, dtype=np.uint8)


def conversion(source: DType, target: DType, size: int) -> Kernel:
    axes = axes_of((size,))
    params = (TensorType(source, (size,)), TensorType(target, (size,)))
    return Kernel("loops", params, 1, Loops(axes), (Store(1, axes, cast(load(0, axes, source), target)),))


def patterns(dtype: DType) -> np.ndarray:
    """256 bytes that include every bit pattern of ``dtype``."""
    return (BYTES & ((1 << dtype.bits) - 1)).astype(np.uint8).view(dtype.numpy)


def low_bits(numbers: np.ndarray, dtype: DType) -> np.ndarray:
    """The low bits of ``numbers`` as integers of ``dtype``."""
    size = 1 << dtype.bits
    rest = numbers.astype(np.int64) % size
    return rest - size * (rest >= size // 2) if dtype.kind == "i" else rest


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    unsigned = np.dtype(f"u{expected.dtype.itemsize}")
    assert actual.dtype == expected.dtype
    different = np.flatnonzero(actual.view(unsigned) != expected.view(unsigned))
    assert not different.size, f"{actual[different][:5]} instead of {expected[different][:5]}"


def dense(dtype: DType) -> np.ndarray:
    """Every f32 whose low 16 bits are one of six patterns: they cover all roundings to few bits, including ties.

    Without NaN if ``dtype`` has none.
    """
    high = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    found = (high | low).ravel().view(np.float32)
    return found[~np.isnan(found)] if dtype is F4E2M1 else found


@pytest.mark.parametrize("lanes", [WIDEST, 0])
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_pattern_of_an_8_bit_float_is_read(dtype: DType, lanes: int) -> None:
    stored = patterns(dtype)

    (actual,) = run_kernel(conversion(dtype, F32, 256), [stored], {"lanes": lanes, "tasks": 1, "unroll": 0})

    expected = stored.astype(np.float32)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), ~numbers)
    assert_same_bits(actual[numbers], expected[numbers])


@pytest.mark.parametrize("lanes", [WIDEST, 0])
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_floats_are_rounded_to_8_bits_as_numpy_does(dtype: DType, lanes: int) -> None:
    values = dense(dtype)

    (actual,) = run_kernel(conversion(F32, dtype, values.size), [values], {"lanes": lanes, "tasks": 1, "unroll": 0})

    with np.errstate(all="ignore"):
        assert_same_bits(actual, values.astype(dtype.numpy))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_what_is_read_and_written_again_is_the_same_number(dtype: DType) -> None:
    stored = patterns(dtype)

    (actual,) = run_kernel(conversion(dtype, dtype, 256), [stored])

    np.testing.assert_array_equal(np.isnan(actual.astype(np.float32)), np.isnan(stored.astype(np.float32)))
    numbers = ~np.isnan(stored.astype(np.float32))
    assert_same_bits(actual[numbers], stored[numbers])


@pytest.mark.parametrize("source", [d for d in DTYPES.values() if not d.storage_only], ids=str)
def test_every_type_converts_to_8_bit_floats_and_back(source: DType) -> None:
    rng = np.random.default_rng(0)
    if source is BOOL:
        values = np.array([True, False, True])
    elif source.is_float:
        with np.errstate(all="ignore"):
            drawn = np.ldexp(rng.standard_normal(991), rng.integers(-20, 20, 991))
            values = np.array([*drawn, 0.0, -0.0, np.inf, -np.inf, np.nan, 464.0, 465.0]).astype(source.numpy)
    else:
        info = np.iinfo(source.numpy)
        values = np.unique(np.concatenate([
            rng.integers(info.min, info.max, 499, dtype=source.numpy, endpoint=True),
            np.arange(max(info.min, -500), min(info.max, 500) + 1).astype(source.numpy),
        ]))  # fmt: skip
    kernels = {f"to_{d}": conversion(source, d, values.size) for d in FLOAT8}
    kernels |= {f"from_{d}": conversion(d, source, 256) for d in FLOAT8}
    compiled = Library(kernels)

    for dtype in FLOAT8:
        (narrow,) = compiled.run(f"to_{dtype}", [values])
        (wide,) = compiled.run(f"from_{dtype}", [patterns(dtype)])

        told = ~np.isnan(values) if dtype is F4E2M1 and source.is_float else slice(None)  # it has no NaN
        with np.errstate(all="ignore"):
            assert_same_bits(narrow[told], values[told].astype(dtype.numpy))
        expected = convert(patterns(dtype), source)
        np.testing.assert_array_equal(wide.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("lanes", [WIDEST, 0])
@pytest.mark.parametrize("target", [F32, F64, F16, I8, U8, I32, I64, BOOL], ids=str)
@pytest.mark.parametrize("dtype", NIBBLES, ids=str)
def test_a_nibble_is_read_whatever_the_other_four_bits_hold(dtype: DType, target: DType, lanes: int) -> None:
    stored = BYTES.view(dtype.numpy)

    (actual,) = run_kernel(conversion(dtype, target, 256), [stored], {"lanes": lanes, "tasks": 1, "unroll": 0})

    np.testing.assert_array_equal(actual, low_bits(BYTES, dtype).astype(target.numpy))


@pytest.mark.parametrize("source", [I8, U8, I32, I64, F32, F16, *FLOAT8], ids=str)
@pytest.mark.parametrize("dtype", NIBBLES, ids=str)
def test_a_nibble_keeps_the_low_four_bits_of_what_is_written(dtype: DType, source: DType) -> None:
    numbers = np.arange(0 if source.kind == "u" else -99, 100)
    numbers = 1 << np.arange(20) if source is F8E8M0 else numbers  # it holds powers of two alone
    values = numbers.astype(source.numpy)
    whole = values.astype(np.float64).astype(np.int64)  # what the source could hold of them

    (actual,) = run_kernel(conversion(source, dtype, values.size), [values])

    np.testing.assert_array_equal(actual.astype(np.int64), low_bits(whole, dtype))


@pytest.mark.parametrize(("unsigned", "signed"), [(U4, I4), (U2, I2), (U4, I2), (U2, I4)])
def test_nibbles_convert_into_each_other(unsigned: DType, signed: DType) -> None:
    stored = BYTES.view(unsigned.numpy)
    compiled = Library({"there": conversion(unsigned, signed, 256), "back": conversion(signed, unsigned, 256)})

    (there,) = compiled.run("there", [stored])
    (back,) = compiled.run("back", [there])

    narrowed = low_bits(low_bits(BYTES, unsigned), signed)
    np.testing.assert_array_equal(there.astype(np.int64), narrowed)
    np.testing.assert_array_equal(back.astype(np.int64), low_bits(narrowed, unsigned))


@pytest.mark.parametrize("dtype", [*FLOAT8, *NIBBLES], ids=str)
def test_constants_and_choices_of_these_types_are_stored(dtype: DType) -> None:
    axes = axes_of((37,))
    body = select(load(0, axes, BOOL), literal(3, dtype), load(1, axes, dtype))
    params = (TensorType(BOOL, (37,)), TensorType(dtype, (37,)), TensorType(dtype, (37,)))
    kernel = Kernel("loops", params, 1, Loops(axes), (Store(2, axes, body),))
    chosen = np.arange(37) % 3 == 0
    numbers = 1 << np.arange(37) % 2 if dtype.bits < 8 or dtype is F8E8M0 else np.arange(37) % 8
    stored = numbers.astype(np.int8).astype(dtype.numpy)

    (actual,) = run_kernel(kernel, [chosen, stored])

    three = np.asarray(3, np.float32 if dtype.is_float else np.int8).astype(dtype.numpy)
    np.testing.assert_array_equal(actual, np.where(chosen, three, stored))


@pytest.mark.parametrize("dtype", [*FLOAT8, *NIBBLES], ids=str)
def test_arithmetic_of_these_types_is_refused(dtype: DType) -> None:
    one = Code("k").const(1, Type("float" if dtype.is_float else "i8"))

    with pytest.raises(UnsupportedError, match=f"function add of {dtype}: the type only stores"):
        arithmetic.apply("add", dtype, [one, one])


@pytest.mark.parametrize(("lanes", "scalar"), [(1, True), (2, False)])
def test_one_lane_is_stored_as_a_scalar(lanes: int, scalar: bool) -> None:
    code = Code("one", native_scale=True)  # AVX-512: else there are pieces of some lanes
    value, mask = Value(code, "%x", Type("i16", 4)), code.vector([k < lanes for k in range(4)], "i1")

    code.masked_store(value, Value(code, "%p", Type("ptr")), mask)

    text = code.function("define void @one(<4 x i16> %x, ptr %p)")
    assert ("masked.store" not in text) is scalar
    assert ("store i16 " in text) is scalar
