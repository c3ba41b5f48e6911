"""Every function and conversion, for every element type, compared with numpy. Precision is tested in test_math."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from gpucomp.codegen.llvm import emit
from gpucomp.expr.core import Expr, axes_of, call, cast, load, select
from gpucomp.expr.evaluate import convert
from gpucomp.expr.functions import FUNCTIONS
from gpucomp.ir.types import BF16, BOOL, DTYPES, F16, F32, F64, I32, I64, DType, TensorType
from gpucomp.kernel import Kernel, Loops, Store
from gpucomp.targets import cpu
from tests.native import WIDEST, Library, run_kernel

INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
FLOATS = ["f64", "f32", "f16", "bf16"]
EXACT = ["add", "sub", "mul", "div", "max", "min", "neg", "abs", "sign", "lt", "le", "eq", "ne"]
FLOAT_EXACT = [*EXACT, "floor", "ceil", "round", "sqrt", "isnan", "isinf", "fmod", "mod", "floordiv"]
INTEGER_EXACT = [*EXACT, "floordiv", "mod", "fmod", "bitand", "bitor", "bitxor", "bitnot", "shl", "shr"]
BOOL_EXACT = ["and", "or", "xor", "not", "eq", "ne", "lt", "le", "max", "min"]
APPROXIMATE = ["exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
               "atanh", "erf", "pow"]  # fmt: skip


def interesting(dtype: DType) -> np.ndarray:
    """Edge cases of functions, and some ordinary values."""
    rng = np.random.default_rng(0)
    if dtype is BOOL:
        return np.array([False, True, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        values = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 5, 7, 8, 31, 63, 64, 100]
        if info.min < 0:
            values += [-1, -2, -3, -7, -100]
        return np.array(values, dtype.numpy)
    info = ml_dtypes.finfo(dtype.numpy)
    special = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.25]
    limits = [float(info.max), float(-info.max), float(info.tiny), float(info.smallest_subnormal), float(info.eps)]
    return np.array([*special, *limits, *(rng.standard_normal(12) * 5)]).astype(dtype.numpy)


def pairs(dtype: DType, fn: str) -> list[np.ndarray]:
    """Operands: all values, or all pairs of them. Their number is not a multiple of a vector."""
    values = interesting(dtype)
    if FUNCTIONS[fn].arity == 1:
        return [values]
    a, b = (v.ravel() for v in np.meshgrid(values, values, indexing="ij"))
    if fn in {"shl", "shr"}:
        b = np.abs(b.astype(np.float64) % 70).astype(dtype.numpy)  # a negative count has no meaning
    return [a, b]


def elementwise(fn: str, dtype: DType, size: int) -> Kernel:
    axes = axes_of((size,))
    count = FUNCTIONS[fn].arity
    body = call(fn, *(load(i, axes, dtype) for i in range(count)))
    params = (*[TensorType(dtype, (size,))] * count, TensorType(body.dtype, (size,)))
    return Kernel("loops", params, 1, Loops(axes), (Store(count, axes, body),))


def library(functions: list[str], dtype: DType, **changes: int) -> Library:
    kernels = {fn: elementwise(fn, dtype, pairs(dtype, fn)[0].size) for fn in functions}
    schedules = {fn: {"lanes": WIDEST, "tasks": 1, "unroll": 0, **changes} for fn in functions}
    return Library({f"f_{k}": v for k, v in kernels.items()}, {f"f_{k}": v for k, v in schedules.items()})


def numpy_result(fn: str, operands: list[np.ndarray], dtype: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        if dtype in (F16, BF16):  # widened to f32 for each operation
            result = np.asarray(FUNCTIONS[fn].numpy(*(o.astype(np.float32) for o in operands)))
        else:
            result = np.asarray(FUNCTIONS[fn].numpy(*operands))
        return result if FUNCTIONS[fn].result == "bool" else result.astype(dtype.numpy)


@pytest.mark.parametrize("lanes", [WIDEST, 0])
@pytest.mark.parametrize("name", FLOATS)
def test_exact_functions_of_floats_are_numpys(name: str, lanes: int) -> None:
    dtype = DTYPES[name]
    compiled = library(FLOAT_EXACT, dtype, lanes=lanes)

    for fn in FLOAT_EXACT:
        operands = pairs(dtype, fn)
        (actual,) = compiled.run(f"f_{fn}", operands)
        expected = numpy_result(fn, operands, dtype)
        np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64), err_msg=fn)


@pytest.mark.parametrize("name", INTEGERS)
def test_functions_of_integers_are_numpys(name: str) -> None:
    dtype = DTYPES[name]
    compiled = library(INTEGER_EXACT, dtype)

    for fn in INTEGER_EXACT:
        operands = pairs(dtype, fn)
        (actual,) = compiled.run(f"f_{fn}", operands)
        np.testing.assert_array_equal(actual, numpy_result(fn, operands, dtype), err_msg=fn)


def test_functions_of_bools_are_numpys() -> None:
    compiled = library(BOOL_EXACT, BOOL)

    for fn in BOOL_EXACT:
        operands = pairs(BOOL, fn)
        (actual,) = compiled.run(f"f_{fn}", operands)
        np.testing.assert_array_equal(actual, numpy_result(fn, operands, BOOL), err_msg=fn)


@pytest.mark.parametrize(("name", "bound"), [("f64", 1e-12), ("f32", 4e-7), ("f16", 1e-3), ("bf16", 8e-3)])
def test_approximate_functions_follow_numpy_at_special_values(name: str, bound: float) -> None:
    dtype = DTYPES[name]
    compiled = library(APPROXIMATE, dtype)

    for fn in APPROXIMATE:
        operands = pairs(dtype, fn)
        actual = compiled.run(f"f_{fn}", operands)[0].astype(np.float64)
        expected = numpy_result(fn, operands, dtype).astype(np.float64)
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(actual[~finite], expected[~finite], err_msg=fn)
        smallest = float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal)
        slack = np.abs(expected[finite]) * bound + smallest
        assert (np.abs(actual[finite] - expected[finite]) <= slack).all(), fn


def test_integer_powers_are_exact_and_negative_exponents_round_to_zero() -> None:
    base, exponent = np.array([3, -2, 1, -1, 2, 7, 0, 5], np.int64), np.array([13, 31, -5, -3, -1, 0, 0, 20], np.int64)
    kernel = elementwise("pow", I64, base.size)

    (actual,) = run_kernel(kernel, [base, exponent])

    np.testing.assert_array_equal(actual, [3**13, (-2) ** 31, 1, -1, 0, 1, 1, 5**20])


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, "bool"])
def test_conversions_are_the_evaluators(source: str) -> None:
    origin = DTYPES[source]
    values = interesting(origin)
    axes = axes_of(values.shape)
    names = [*FLOATS, *INTEGERS, "bool"]
    kernels = {}
    for name in names:
        body = cast(load(0, axes, origin), DTYPES[name])
        params = (TensorType(origin, values.shape), TensorType(DTYPES[name], values.shape))
        kernels[f"to_{name}"] = Kernel("loops", params, 1, Loops(axes), (Store(1, axes, body),))
    compiled = Library(kernels)

    for name in names:
        (actual,) = compiled.run(f"to_{name}", [values])
        expected = convert(values, DTYPES[name])
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64), err_msg=name)


def test_f64_to_f16_rounds_once() -> None:
    values = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 1 + 2.0**-11, 65519.999, 3e-8], np.float64)
    axes = axes_of(values.shape)
    params = (TensorType(F64, values.shape), TensorType(F16, values.shape))
    kernel = Kernel("loops", params, 1, Loops(axes), (Store(1, axes, cast(load(0, axes, F64), F16)),))

    (actual,) = run_kernel(kernel, [values])

    np.testing.assert_array_equal(actual, values.astype(np.float16))


def test_16_bit_floats_need_no_instruction_for_them() -> None:
    from gpucomp.targets import cpu

    values = interesting(F16)
    axes = axes_of(values.shape)
    body = load(0, axes, F16) * load(0, axes, F16)
    params = (TensorType(F16, values.shape), TensorType(F16, values.shape))
    kernel = Kernel("loops", params, 1, Loops(axes), (Store(1, axes, body),))

    (actual,) = run_kernel(kernel, [values], target=cpu.named("cpu:x86-64-v2"))

    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(actual, values * values)


def test_a_branch_that_is_not_taken_is_never_read() -> None:
    axes = axes_of((37,))
    shifted = axes[0] - 5
    inside: Expr = call("and", shifted >= 0, shifted < 20)
    body = select(inside, load(0, (shifted,), F32), -1.0)
    params = (TensorType(F32, (20,)), TensorType(F32, (37,)))
    kernel = Kernel("loops", params, 1, Loops(axes), (Store(1, axes, body),))
    values = np.arange(20, dtype=np.float32)

    (actual,) = run_kernel(kernel, [values])

    np.testing.assert_array_equal(actual, np.concatenate([np.full(5, -1), values, np.full(12, -1)]))


def test_data_dependent_indices_gather() -> None:
    axes = axes_of((23, 5))
    row = load(0, (axes[0],), I64)
    inside = call("and", row >= 0, row < 11)
    body = select(inside, load(1, (row, axes[1]), I32), 77)
    params = (TensorType(I64, (23,)), TensorType(I32, (11, 5)), TensorType(I32, (23, 5)))
    kernel = Kernel("loops", params, 1, Loops(axes), (Store(2, axes, body),))
    rng = np.random.default_rng(0)
    rows, table = rng.integers(-3, 14, 23), rng.integers(-9, 9, (11, 5)).astype(np.int32)

    (actual,) = run_kernel(kernel, [rows, table])

    expected = np.where(((rows >= 0) & (rows < 11))[:, None], table[np.clip(rows, 0, 10)], 77)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("processor", ["x86-64-v2", "x86-64-v3", "skylake-avx512"])
@pytest.mark.parametrize("lanes", [4, 0])
def test_no_processor_needs_a_library(processor: str, lanes: int) -> None:
    """LLVM may merge conversions into one that is a library call. ``build`` refuses such code."""
    target = cpu.named(f"cpu:{processor}")
    functions = ["fmod", "mod", "floordiv", *APPROXIMATE]  # computed in f64
    schedule = {"lanes": lanes, "tasks": 1, "unroll": 0}

    sources = [emit(elementwise(fn, F16, 5), schedule, target, f"k_{fn}") for fn in functions]

    assert cpu.build(sources, target)
