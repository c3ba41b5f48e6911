"""Precision of the polynomial functions over the whole range of f32, in ulps, and of f64 relative to numpy's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpucomp.codegen.llvm.ir import math as vector_math
from gpucomp.codegen.llvm.ir import tables
from gpucomp.expr.core import axes_of, call, load
from gpucomp.ir.types import F32, F64, DType, TensorType
from gpucomp.kernel import Kernel, Loops, Store
from gpucomp.ops.activation import sigmoid
from tests.native import WIDEST, Library

SAMPLES = 1 << 18
ULPS = {"exp": 2, "log": 2, "tanh": 3, "erf": 3}  # the functions with f32 versions of their own
WIDE_ULPS = 1  # the others are computed in f64
F64_BOUND = 1e-13
ANGLE = 1e-15


def _kernel(fn: str, dtype: DType, size: int) -> Kernel:
    axes = axes_of((size,))
    count = 2 if fn == "pow" else 1
    body = call(fn, *(load(i, axes, dtype) for i in range(count)))
    params = (TensorType(dtype, (size,)),) * (count + 1)
    return Kernel("loops", params, 1, Loops(axes), (Store(count, axes, body),))


@pytest.fixture(scope="module")
def compiled() -> Library:
    names = sorted(vector_math.NAMES)
    kernels = {f"{fn}_{d}": _kernel(fn, d, SAMPLES) for fn in names for d in (F32, F64)}
    return Library(kernels)


def every_magnitude(bits: type, floats: type, seed: int) -> np.ndarray:
    """Numbers spread evenly over all bit patterns: every exponent, denormals and NaN."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(bits)
    return rng.integers(0, info.max, SAMPLES, dtype=bits, endpoint=True).view(floats)


def usual(floats: type, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).uniform(-20, 20, SAMPLES)).astype(floats)


def reference(fn: str, operands: list[np.ndarray]) -> np.ndarray:
    names = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
             "atanh": "arctanh", "pow": "power"}  # fmt: skip
    wide = [o.astype(np.float64) for o in operands]
    with np.errstate(all="ignore"):
        if fn == "erf":
            return np.array([math.erf(v) for v in wide[0]])
        return getattr(np, names.get(fn, fn))(*wide)


def operands_of(fn: str, bits: type, floats: type) -> list[np.ndarray]:
    half = SAMPLES // 2
    x = np.concatenate([every_magnitude(bits, floats, 1)[:half], usual(floats, 2)[half:]])
    if fn in {"asin", "acos", "atanh"}:
        x[half:] = np.tanh(x[half:])
    if fn != "pow":
        return [x]
    y = np.concatenate([every_magnitude(bits, floats, 3)[:half], usual(floats, 4)[half:]])
    return [x, y]


@pytest.mark.parametrize("fn", sorted(vector_math.NAMES))
def test_f32_is_good_to_a_few_ulps_everywhere(compiled: Library, fn: str) -> None:
    operands = operands_of(fn, np.uint32, np.float32)

    (actual,) = compiled.run(f"{fn}_f32", operands)

    with np.errstate(all="ignore"):
        wide = reference(fn, operands)
        expected = wide.astype(np.float32)
    finite = np.isfinite(expected) & np.isfinite(actual)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    ulp = np.spacing(np.abs(expected[finite])).astype(np.float64)
    error = np.abs(actual[finite].astype(np.float64) - wide[finite]) / ulp
    assert error.max() <= ULPS.get(fn, WIDE_ULPS)
    edge = ~finite & ~np.isnan(expected)  # one side is infinite: the other may be the largest number
    largest = float(np.finfo(np.float32).max)
    held = [np.clip(v[edge].astype(np.float64), -largest, largest) for v in (actual, expected)]
    assert (np.abs(held[0] - held[1]) <= largest * 4e-7).all()


@pytest.mark.parametrize("lanes", [lanes for lanes in (4, 8, 16) if lanes <= 2 * WIDEST])
def test_exponentials_of_what_is_not_above_zero(lanes: int) -> None:
    """-|x| of a sigmoid. What is below the smallest normal number may be 0, and bits of a NaN are no exponent."""
    axes = axes_of((SAMPLES,))
    body = call("exp", -call("abs", load(0, axes, F32)))
    kernel = Kernel("loops", (TensorType(F32, (SAMPLES,)),) * 2, 1, Loops(axes), (Store(1, axes, body),))
    (x,) = operands_of("exp", np.uint32, np.float32)
    x[:6] = 0.0, -0.0, np.inf, -np.inf, 87.33654, 87.33655
    x[6:8] = np.array([0x7F800001, 0x7FC00001], np.uint32).view(np.float32)

    (found,) = Library({"k": kernel}, {"k": {"lanes": lanes, "tasks": 1, "unroll": 0}}).run("k", [x])

    with np.errstate(invalid="ignore"):
        right = np.exp(-np.abs(x.astype(np.float64)))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(x))
    assert (found[:4] == [1, 1, 0, 0]).all()
    normal = right >= np.finfo(np.float32).tiny
    error = np.abs(found[normal] - right[normal]) / np.spacing(right[normal].astype(np.float32))
    assert error.max() <= ULPS["exp"]
    tiny = found[~normal & ~np.isnan(x)]
    assert ((tiny >= 0) & (tiny <= np.finfo(np.float32).tiny)).all()


def test_erf_between_two_entries_of_its_table(compiled: Library) -> None:
    """Numbers halfway between two quarters, and next to these. The last one rounds to an entry past the table."""
    halves = (np.arange(-40, 40) * 0.25 + 0.125).astype(np.float32)
    near = np.concatenate([halves, np.nextafter(halves, np.float32(-9)), np.nextafter(halves, np.float32(9))])
    x = np.zeros(SAMPLES, np.float32)
    x[: near.size] = near

    (found,) = compiled.run("erf_f32", [x])

    right = np.array([math.erf(v) for v in x.astype(np.float64)])
    np.testing.assert_allclose(found, right, rtol=ULPS["erf"] * 2.0**-23)


def test_erf_is_one_exactly_where_nothing_else_is_nearer(compiled: Library) -> None:
    """``1 + erf(x)`` may be multiplied by a large number, so erf may not be wrong by an ulp there."""
    x = np.zeros(SAMPLES, np.float32)
    x[: SAMPLES // 2] = np.geomspace(3.93, 3e38, SAMPLES // 2)
    x[-1] = np.inf

    (positive,) = compiled.run("erf_f32", [x])
    (negative,) = compiled.run("erf_f32", [-x])

    assert (positive == np.sign(x)).all()
    np.testing.assert_array_equal(negative, -positive)


def test_tables_hold_the_function_between_their_points() -> None:
    degree = tables.ERF_DEGREE
    table = tables._table(tables.erf_over_x, degree)
    for number in (1, 7, tables.INTERVALS - 1):
        for offset in (-0.124, 0.01, 0.09):
            value = sum(row[number] * offset**k for k, row in enumerate(table))
            x = tables.STEP * number + offset
            assert value * x == pytest.approx(math.erf(x), rel=1e-7)
    assert tables.erf_over_x(0.0) == pytest.approx(2 / math.sqrt(math.pi), rel=1e-15)


def test_a_sigmoid_is_good_to_four_ulps_down_to_the_smallest_normal_number() -> None:
    (axis,) = axes_of((SAMPLES,))
    params = (TensorType(F32, (SAMPLES,)),) * 2
    body = sigmoid(load(0, (axis,), F32))
    kernel = Kernel("loops", params, 1, Loops((axis,)), (Store(1, (axis,), body),))
    (x,) = operands_of("exp", np.uint32, np.float32)

    (actual,) = Library({"k": kernel}).run("k", [x])

    with np.errstate(all="ignore"):
        small = reference("exp", [-np.abs(x)])
        wide = np.where(x < 0, small, 1.0) / (small + 1)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(x))
    smallest = np.finfo(np.float32).tiny
    normal = wide >= smallest
    ulp = np.spacing(wide[normal].astype(np.float32)).astype(np.float64)
    assert (np.abs(actual[normal] - wide[normal]) / ulp).max() <= 4
    assert (np.abs(actual[wide < smallest]) <= smallest).all()


@pytest.mark.parametrize("fn", sorted(vector_math.NAMES))
def test_f64_is_numpys_to_thirteen_digits(compiled: Library, fn: str) -> None:
    operands = operands_of(fn, np.uint64, np.float64)

    (actual,) = compiled.run(f"{fn}_f64", operands)

    expected = reference(fn, operands)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    finite = np.isfinite(expected) & np.isfinite(actual)
    slack = np.abs(expected[finite]) * F64_BOUND + 2.0**-1074
    if fn in vector_math.CIRCULAR:  # angles are reduced to 1e-15
        slack += ANGLE * (1 + expected[finite] ** 2 if fn == "tan" else 1)
    assert (np.abs(actual[finite] - expected[finite]) <= slack).all()


ODD = ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf")


@pytest.mark.parametrize("fn", ODD)
@pytest.mark.parametrize("floats", [np.float32, np.float64])
def test_odd_functions_keep_the_sign_of_zero(compiled: Library, fn: str, floats: type) -> None:
    x = np.resize(np.array([-0.0, 0.0, 1.0], floats), SAMPLES)

    (actual,) = compiled.run(f"{fn}_{F32 if floats is np.float32 else F64}", [x])

    np.testing.assert_array_equal(np.signbit(actual[:3]), [True, False, False])


@pytest.mark.parametrize("fn", ["sin", "cos"])
def test_huge_angles_are_reduced(compiled: Library, fn: str) -> None:
    x = np.zeros(SAMPLES)
    x[:5] = [1e22, 2.0**120, 6381956970095103.0 * 2.0**797, -1.7e308, 123456789.5]

    (actual,) = compiled.run(f"{fn}_f64", [x])

    assert (np.abs(actual[:5] - getattr(np, fn)(x[:5])) <= ANGLE).all()


def test_f64_power_is_good_to_one_ulp_everywhere(compiled: Library) -> None:
    x, y = operands_of("pow", np.uint64, np.float64)
    rng = np.random.default_rng(5)
    third = SAMPLES // 3
    x[:third] = np.abs(x[:third])
    with np.errstate(all="ignore"):  # some are NaN
        y[:third] = rng.uniform(-745, 709, third) / np.log(x[:third])  # the whole range of results

    (actual,) = compiled.run("pow_f64", [x, y])

    with np.errstate(all="ignore"):
        wide = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
        expected = wide.astype(np.float64)
        finite = np.isfinite(expected) & np.isfinite(actual)
        error = np.abs(actual[finite].astype(np.longdouble) - wide[finite]) / np.spacing(np.abs(expected[finite]))
    assert np.finfo(np.longdouble).nmant >= 63
    assert finite.sum() > SAMPLES // 2
    assert error.max() <= 1
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    edge = ~finite & ~np.isnan(expected)
    largest = np.finfo(np.float64).max
    held = [np.clip(v[edge], -largest, largest) for v in (actual, expected)]
    assert (np.abs(held[0] / 2 - held[1] / 2) <= largest * 2.0**-53).all()


def test_f64_powers_that_are_whole_numbers_come_out_exactly(compiled: Library) -> None:
    pairs = [(b, n) for b in range(-1000, 1001) for n in range(54) if abs(b) ** n <= 2**53]
    x, y = (np.resize(np.array(v, np.float64), SAMPLES) for v in zip(*pairs, strict=True))

    (actual,) = compiled.run("pow_f64", [x, y])

    np.testing.assert_array_equal(actual[: len(pairs)], [float(b**n) for b, n in pairs])


def test_f64_power_has_the_special_cases_of_c(compiled: Library) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 0.5, -0.5, 2.5, math.inf, -math.inf, math.nan, 5e-324, 1.7e308, 2.0**53,
              2.0**53 - 1, -(2.0**53 - 1), 1e300, -1e300]  # fmt: skip
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    padded = [np.resize(v, SAMPLES) for v in (x, y)]

    (actual,) = compiled.run("pow_f64", padded)

    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    np.testing.assert_allclose(actual[: x.size], expected, rtol=3e-16, atol=0)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual[: x.size][known]), np.signbit(expected[known]))
