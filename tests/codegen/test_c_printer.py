"""The C printer: every function and conversion gives numpy's answer on a device, special values included."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from gpucomp.expr.core import Expr, axes_of, call, cast, index, literal, load, reduce, select, var
from gpucomp.expr.functions import FUNCTIONS
from gpucomp.ir.types import BF16, BOOL, DTYPES, F4E2M1, F16, F32, F64, I8, I32, I64, U8, U32, DType, TensorType
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.render import render
from testing import opencl_device
from testing.kernels import elementwise
from testing.tolerance import UNIT_ROUNDOFF, assert_identical, assert_matches

LOGIC = {"and", "or", "xor", "not"}
BITS = {"bitand", "bitor", "bitxor", "bitnot", "shl", "shr"}
COMPARISONS = {"lt", "le", "eq", "ne"}
FLOAT_ONLY = {
    "sqrt",
    "exp",
    "log",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "isnan",
    "isinf",
}
SCHEDULE = {"threads": 64, "vector": 1, "items": 1}


def functions_of(dtype: DType) -> list[str]:
    """The functions that are defined for ``dtype``."""
    if dtype is BOOL:
        return sorted(LOGIC | {"eq", "ne", "lt", "le", "max", "min", "add", "mul", "bitand", "bitor", "bitxor"})
    if dtype.is_float:
        return [f for f in FUNCTIONS if f not in BITS | LOGIC]
    return [f for f in FUNCTIONS if f not in FLOAT_ONLY | LOGIC | ({"neg"} if dtype.kind == "u" else set())]


def operands(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of special values, then ordinary ones."""
    rng = np.random.default_rng(7)
    if dtype is BOOL:
        special = [False, True]
        more = rng.random((2, 16)) < 0.5
    elif dtype.is_float:
        info = ml_dtypes.finfo(dtype.numpy)
        special = [
            np.nan,
            np.inf,
            -np.inf,
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -2.5,
            3.5,
            7.0,
            float(info.max),
            float(info.tiny),
        ]
        more = rng.uniform(-4, 4, (2, 400))
    else:
        info = np.iinfo(dtype.numpy)
        special = [int(info.min), int(info.max), 0, 1, 2, 3, 7, *([-1, -2, -7] if dtype.kind == "i" else [])]
        more = rng.integers(max(info.min, -100), min(info.max, 100), (2, 100))
    with np.errstate(all="ignore"):
        values = np.array(special).astype(dtype.numpy)
        a, b = (g.reshape(-1) for g in np.meshgrid(values, values))
        return np.concatenate([a, more[0].astype(dtype.numpy)]), np.concatenate([b, more[1].astype(dtype.numpy)])


def compute(values: list[Expr], inputs: list[np.ndarray], axes: tuple) -> tuple[list[np.ndarray], list[np.ndarray]]:
    params = [TensorType(next(d for d in DTYPES.values() if d.numpy == a.dtype), a.shape) for a in inputs]
    kernel = elementwise(values, params, inputs[0].shape, axes)
    source = render(kernel, SCHEDULE, opencl_device.target(), "k0")
    return opencl_device.run(kernel, source, inputs), expected(kernel, inputs)


def assert_close_in_each_octave(actual: np.ndarray, wanted: np.ndarray) -> None:
    """``assert_matches`` for results of the same magnitude, so that errors of small results are not hidden."""
    if actual.dtype.name not in UNIT_ROUNDOFF:
        assert_identical(actual, wanted)
        return
    exponent = np.frexp(np.nan_to_num(wanted.astype(np.float64)))[1]
    for e in np.unique(exponent):
        assert_matches(actual[exponent == e], wanted[exponent == e])


def runs_everywhere(fn: str, dtype: DType, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The operands for which numpy's result is defined. C, and so numpy, leaves some integer results undefined."""
    everything = np.ones(a.shape, bool)
    if dtype.is_float or dtype is BOOL:
        return everything
    if fn == "pow":  # through f64 in numpy: exact below 2^53, undefined past the type
        with np.errstate(all="ignore"):
            power = np.power(a.astype(np.float64), b.astype(np.float64))
        exact = np.abs(b.astype(np.float64)) < 2.0**53  # larger odd exponents become even in f64
        return exact & (np.abs(power) < min(2.0**53, float(np.iinfo(dtype.numpy).max)))
    if fn in {"shl", "shr"}:
        return b >= 0
    return everything


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if not d.storage_only], ids=str)
def test_every_function_gives_numpy_s_answer(dtype):
    a, b = operands(dtype)
    (i,) = axes = axes_of(a.shape)
    names = functions_of(dtype)
    x, y = load(0, (i,), dtype), load(1, (i,), dtype)
    values = [call(f, *(x, y)[: FUNCTIONS[f].arity]) for f in names]

    found, wanted = compute(values, [a, b], axes)

    for name, actual, right in zip(names, found, wanted, strict=True):
        where = runs_everywhere(name, dtype, a, b)
        try:
            assert_close_in_each_octave(actual[where], right[where])
        except AssertionError as error:
            raise AssertionError(f"{name} of {dtype}: {error}") from error


@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
def test_every_conversion_gives_numpy_s_answer(source):
    if source.is_float:
        numbers = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.49, 0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 240.0, 248.0, 256.0, 464.0,
                   465.0, 57344.0, 61440.0, 65504.0, 65519.9, 65520.0, 1e9, -1e9, 3e9, 1e20, -1e20, 1e-3, 1e-7, 2.0**-9,
                   2.0**-10, 3 * 2.0**-11, 6e-8, 1.0000001, 2049.0, 2051.0, 1.00048828125, 1.000488281250001]  # fmt: skip
    else:
        bits = source.bits
        low = 0 if source.kind in "ub" else -(1 << (bits - 1))
        high = 1 if source is BOOL else low + (1 << bits) - 1
        numbers = [low, high, 0, 1, *(v for v in (2, 7, 100, 129, 255, 2049, 70000, (1 << 24) + 1) if v <= high)]
    with np.errstate(all="ignore"):
        dtype = object if source.bits == 64 and not source.is_float else None
        values = np.array(numbers, dtype).astype(source.numpy)
    (i,) = axes = axes_of(values.shape)
    nibbles = {"i4", "u4", "i2", "u2"}  # numpy does not define the conversion from floats
    targets = [d for d in DTYPES.values() if not (d.name in nibbles and source.is_float)]

    found, wanted = compute([cast(load(0, (i,), source), d) for d in targets], [values], axes)

    numbers = ~np.isnan(values.astype(np.float64))
    for target, actual, right in zip(targets, found, wanted, strict=True):
        there = numbers if target is F4E2M1 else slice(None)  # it has no NaN
        try:
            assert_identical(actual[there], right[there])
        except AssertionError as error:
            raise AssertionError(f"{source} to {target}: {error}") from error


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16, I64, I32, I8, U8, U32, DTYPES["u64"]], ids=str)
def test_constants_reach_the_device_exactly(dtype):
    if dtype.is_float:
        info = ml_dtypes.finfo(dtype.numpy)
        numbers = [
            0.1,
            -0.1,
            1 / 3,
            float(info.max),
            float(info.tiny),
            float(info.smallest_subnormal),
            1e5,
            -0.0,
            3.0,
            float("inf"),
            float("-inf"),
            float("nan"),
        ]
    else:
        info = np.iinfo(dtype.numpy)
        numbers = [int(info.min), int(info.max), 0, 1, int(info.max) - 1]
    (i,) = axes = axes_of((3,))
    values = [select(load(0, (i,), BOOL), literal(v, dtype), literal(0, dtype)) for v in numbers]

    found, wanted = compute(values, [np.array([True, False, True])], axes)

    for actual, right in zip(found, wanted, strict=True):
        assert_identical(actual, right)


def test_reductions_inside_a_value_are_loops_in_order():
    x = np.random.default_rng(0).standard_normal((5, 7, 3)).astype(np.float32)
    (i,) = axes = axes_of((5,))
    j, k = var("j", 7), var("k", 3)
    body = load(0, (i, j, k), F32)
    values = [reduce(op, (j, k), body) for op in ("sum", "prod", "max", "min")]
    kernel = elementwise(values, [TensorType(F32, x.shape)], (5,), axes)

    found = opencl_device.run(kernel, render(kernel, SCHEDULE, opencl_device.target(), "k0"), [x])

    for actual, right in zip(found, expected(kernel, [x]), strict=True):
        assert_matches(actual, right, terms=21)


def test_the_branch_not_taken_is_not_read():
    x = np.arange(4, dtype=np.float32)
    (i,) = axes = axes_of((9,))
    far = load(0, (i * (1 << 40),), F32)  # reading it would be a fault
    kernel = elementwise([select(i < 1, far, 2.0)], [TensorType(F32, (4,))], (9,), axes)

    (found,) = opencl_device.run(kernel, render(kernel, SCHEDULE, opencl_device.target(), "k0"), [x])

    assert found.tolist() == [0.0] + [2.0] * 8


def test_offsets_past_32_bits_are_computed_in_64():
    (i,) = axes = axes_of((5,))
    wide = (i + ((1 << 31) - 3)) * 4
    kernel = elementwise([wide, wide % 7, call("floordiv", wide, 3)], [TensorType(I64, (1,))], (5,), axes)

    source = render(kernel, SCHEDULE, opencl_device.target(), "k0")
    found = opencl_device.run(kernel, source, [np.zeros(1, np.int64)])

    for actual, right in zip(found, expected(kernel, [np.zeros(1, np.int64)]), strict=True):
        assert_identical(actual, right)


def test_small_offsets_are_computed_in_32():
    axes = axes_of((6, 7))
    kernel = elementwise([load(0, (axes[1], axes[0]), F32)], [TensorType(F32, (7, 6))], (6, 7), axes)

    text = render(kernel, SCHEDULE, opencl_device.target(), "k0").text

    assert "long" not in text


def test_sums_of_negative_indices_round_down():
    (i,) = axes = axes_of((9,))
    shifted = i - 5
    kernel = elementwise([call("floordiv", shifted, 3), shifted % 3], [TensorType(F32, (1,))], (9,), axes)

    found = opencl_device.run(kernel, render(kernel, SCHEDULE, opencl_device.target(), "k0"), [np.zeros(1, np.float32)])

    assert found[0].tolist() == [(v - 5) // 3 for v in range(9)]
    assert found[1].tolist() == [(v - 5) % 3 for v in range(9)]
    assert index(3).value == 3


@pytest.mark.parametrize("dtype", [U8, I32, I64], ids=str)
def test_a_chain_of_choices_is_as_long_as_its_links(dtype):
    """A select repeats its operands. In one expression each link would double the text: too much for 49 taps."""
    (i,) = axes = axes_of((5,))

    def text_of(count):
        value = load(0, (i,), dtype)
        for link in range(count):
            value = call("max", call("abs", call("min", value * 3, load(1, (i,), dtype))), link + 2)
        kernel = elementwise([value], (TensorType(dtype, (5,)),) * 2, (5,), axes)
        return render(kernel, SCHEDULE, opencl_device.target(), "k0").text

    lengths = [len(text_of(count)) for count in (2, 3, 4)]

    assert lengths[2] - lengths[1] < 2 * (lengths[1] - lengths[0])


def test_a_chain_of_choices_gives_numpy_s_answer():
    (i,) = axes = axes_of((37,))
    value = load(0, (i,), I32)
    for link in range(9):
        value = call("max", call("abs", call("min", value * 3 - 7, load(1, (i,), I32))), link)
    rng = np.random.default_rng(3)
    inputs = [rng.integers(-(10**4), 10**4, 37).astype(np.int32) for _ in range(2)]

    (found,), (wanted,) = compute([value], inputs, axes)

    assert_matches(found, wanted)
