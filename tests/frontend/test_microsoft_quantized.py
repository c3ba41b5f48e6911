"""onnxruntime's quantised operators give the same codes as its own. Elementwise ones are tested with all pairs of codes."""

import ml_dtypes
import numpy as np
import pytest

from gpucomp.errors import ModelError, ShapeError, UnsupportedError
from gpucomp.frontend.onnx import load
from testing.tolerance import assert_matches
from tests.microsoft import by_onnxruntime, compiled, interpreted, model_of

RNG = np.random.default_rng(3)
F = np.float32
CODES = (np.uint8, np.int8)


QGEMM = (
    RNG.integers(0, 256, (3, 5)).astype(np.uint8),
    F(0.1),
    np.uint8(3),
    RNG.integers(0, 256, (5, 7)).astype(np.uint8),
    F(0.2),
    np.uint8(4),
)


def low(dtype):
    return np.iinfo(dtype).min


def code(dtype, number):
    return dtype(number + low(dtype))


def some(dtype, *shape):
    return RNG.integers(low(dtype), low(dtype) + 256, shape).astype(dtype)


def pairs(dtype):
    """Every code with every code."""
    every = np.arange(low(dtype), low(dtype) + 256).astype(dtype)
    return np.repeat(every, 256).reshape(256, 256), np.tile(every, 256).reshape(256, 256)


def elementwise(dtype):
    a, b = pairs(dtype)
    one, other, result = (
        (F(0.031), code(dtype, 113)),
        (F(0.0173), code(dtype, 140)),
        (F(0.037), code(dtype, 101)),
    )
    half = RNG.random((256, 256)) < 0.5
    yield "QLinearMul", (a, *one, b, *other, *result), {}
    yield "QLinearSigmoid", (a[:, 0], *one, F(1 / 256), code(dtype, 0)), {}
    yield "QLinearLeakyRelu", (a[:, 0], *one, *result), {"alpha": 0.17}
    yield "QLinearWhere", (half, a, *one, b, *other, *result), {}
    yield "QLinearConcat", (*result, a, *one, b, *other, a[:, :7], *result), {"axis": -1}


def of_products(dtype):
    a, b = some(dtype, 7, 19), some(np.int8, 11, 19)
    scales, none = (RNG.random(11) * 0.01).astype(F), np.zeros(11, np.int8)
    c, bias = RNG.integers(-999, 999, 11).astype(np.int32), RNG.standard_normal(11).astype(F)
    for scale, zero in ((F(0.013), np.int8(0)), (scales, none)):
        weights = (b, scale, zero, c)
        yield "QGemm", (a, F(0.05), code(dtype, 100), *weights, F(0.4), code(dtype, 90)), {"transB": 1, "alpha": 0.7}
        yield "QGemm", (a, F(0.05), code(dtype, 100), *weights), {"transB": 1}
        yield "MatMulIntegerToFloat", (a, b.T.copy(), F(0.05), scale, code(dtype, 100), zero, bias), {}
        yield "DynamicQuantizeMatMul", (bias * a[:, :11], b.T[:11].copy(), scale, zero, bias), {}
    yield "MatMulIntegerToFloat", (a, b.T.copy(), F(0.05), scales), {}


def of_images(dtype):
    x, channels_last = some(dtype, 2, 5, 11, 13), some(dtype, 2, 7, 5, 3)
    scale, result = (F(0.05), code(dtype, 100)), (F(0.043), code(dtype, 90))
    windows = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    yield "QLinearGlobalAveragePool", (x, *scale, *result), {"channels_last": 0}
    yield "QLinearGlobalAveragePool", (x, *scale, *result), {"channels_last": 1}
    yield "NhwcMaxPool", (channels_last,), windows
    # of 7 bits: where there is no VNNI, sums of products of 8 saturate in onnxruntime's channels-last convolutions
    w, weight_scale = some(np.int8, 6, 3, 3, 3) // 2, (RNG.random(6) * 0.01).astype(F)
    bias = RNG.integers(-999, 999, 6).astype(np.int32)
    weights = (w, weight_scale, np.zeros(6, np.int8))
    yield "QLinearConv", (channels_last, *scale, *weights, *result, bias), {"channels_last": 1, "pads": [1, 1, 0, 1]}
    for opset, axis in ((13, -1), (13, 0), (12, 1)):
        yield "QLinearSoftmax", (x[0, 0], F(0.07), scale[1], F(1 / 256), code(dtype, 0)), {"opset": opset, "axis": axis}


def of_wider_codes():
    x, scale = (RNG.standard_normal((3, 40)) * 30).astype(F), (RNG.random(40) * 0.01).astype(F)
    for dtype in (np.int16, np.uint16):
        yield "QuantizeLinear", (x, scale, np.full(40, 7, dtype)), {"axis": 1}
        yield "DequantizeLinear", (RNG.integers(0, 30000, (3, 40)).astype(dtype), scale, np.full(40, 7, dtype)), {}
    a, b = (RNG.integers(-3000, 3000, shape).astype(np.int16) for shape in ((5, 7), (7, 3)))
    yield "MatMulInteger16", (a, b), {}


CASES = [
    *(case for dtype in CODES for kind in (elementwise, of_products, of_images) for case in kind(dtype)),
    *of_wider_codes(),
]


@pytest.mark.parametrize(("operator", "arrays", "attributes"), CASES, ids=[f"{c[0]}-{k}" for k, c in enumerate(CASES)])
def test_the_codes_are_onnxruntimes(operator, arrays, attributes):
    fixed = [k for k, a in enumerate(arrays) if k and a is not None and a.ndim < 2]
    proto, feeds = model_of(operator, arrays, fixed, **attributes)

    (expected,) = by_onnxruntime(proto, feeds)

    (actual,) = interpreted(proto, feeds)
    assert_matches(actual, expected, terms=19)


@pytest.mark.parametrize("attributes", [{}, {"count_include_pad": 1}, {"channels_last": 1, "ceil_mode": 1}])
@pytest.mark.parametrize("dtype", CODES)
def test_a_pooled_code_is_onnxruntimes_or_where_the_mean_is_halfway_the_one_beside(dtype, attributes):
    x = some(dtype, 2, 5, 11, 13)
    arrays = (x, F(0.05), code(dtype, 100), F(0.043), code(dtype, 90))
    windows = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    proto, feeds = model_of("QLinearAveragePool", arrays, range(1, 5), **windows, **attributes)

    (expected,) = by_onnxruntime(proto, feeds)

    (actual,) = interpreted(proto, feeds)
    apart = np.abs(actual.astype(np.int64) - expected)
    assert apart.max() <= 1
    assert np.mean(apart) < 0.01


@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_mean_of_codes_is_rounded_once(keepdims):
    """onnxruntime has no CPU kernel for it."""
    x = some(np.uint8, 3, 7, 5)
    arrays = (x, F(0.05), np.uint8(100), F(0.021), np.uint8(90))
    proto, feeds = model_of("QLinearReduceMean", arrays, range(1, 5), axes=[-1, 0], keepdims=keepdims)

    (actual,) = interpreted(proto, feeds)

    real = (x.astype(np.float64) - 100).mean(axis=(0, 2), keepdims=bool(keepdims)) * 0.05
    np.testing.assert_array_equal(actual, np.clip(np.rint(real / 0.021) + 90, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("zeros", ["absent", "packed", "floats"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_of_few_bits_are_unpacked(bits, zeros):
    k, n, block = 70, 9, 32
    blocks = -(-k // block)
    b, scales = some(np.uint8, n, blocks, block * bits // 8), RNG.random(n * blocks).astype(F)
    points = {"absent": None, "packed": some(np.uint8, n * -(-blocks * bits // 8)), "floats": scales * 3}[zeros]
    arrays = (RNG.standard_normal((2, 3, k)).astype(F), b, scales, points, None, scales[:n])
    proto, feeds = model_of("MatMulNBits", arrays, range(1, 6), K=k, N=n, block_size=block, bits=bits)

    (actual,) = interpreted(proto, feeds)

    if (bits, zeros) == (8, "floats"):  # which onnxruntime refuses: by the formula
        weights = (b.reshape(n, blocks, block) - points.reshape(n, blocks, 1)) * scales.reshape(n, blocks, 1)
        expected = arrays[0] @ weights.reshape(n, blocks * block)[:, :k].T + arrays[5]
    else:
        (expected,) = by_onnxruntime(proto, feeds)
    assert_matches(actual, expected.astype(F), terms=k)


TABLES = (
    *((np.uint8, bits) for bits in (2, 4, 8)),
    (ml_dtypes.int4, 4),
    (ml_dtypes.uint4, 4),
)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("dtype", "bits"), TABLES, ids=[f"{d.__name__}-{b}" for d, b in TABLES])
def test_rows_of_a_table_of_few_bits(dtype, bits, zeros):
    columns, block, packed = 40, 16, 8 // bits if dtype is np.uint8 else 1
    least, most = (-8, 8) if dtype is ml_dtypes.int4 else (0, 16 if dtype is ml_dtypes.uint4 else 256)
    table = RNG.integers(least, most, (7, columns // packed)).astype(dtype)
    points = RNG.integers(least, most, (7, -(-3 // packed))).astype(dtype) if zeros else None
    arrays = (table, RNG.integers(0, 7, (2, 3)), RNG.random((7, 3)).astype(F), points)
    axes = {"quantize_axis": 1, "gather_axis": 0, "block_size": block, "bits": bits}
    proto, feeds = model_of("GatherBlockQuantized", arrays, (0, 2, 3), standard=21, **axes)

    np.testing.assert_array_equal(interpreted(proto, feeds)[0], by_onnxruntime(proto, feeds)[0])


def test_blocks_may_lie_across_what_is_gathered():
    table, scales = RNG.integers(-8, 8, (40, 5, 7)).astype(ml_dtypes.int4), RNG.random((3, 5, 7)).astype(F)
    axes = {"quantize_axis": 0, "gather_axis": 1, "block_size": 16}
    proto, feeds = model_of("GatherBlockQuantized", (table, np.int64([4, 1]), scales), (0, 2), standard=21, **axes)

    np.testing.assert_array_equal(interpreted(proto, feeds)[0], by_onnxruntime(proto, feeds)[0])


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_recurrence_multiplies_codes(direction, by_column):
    time, batch, width, hidden, d = 4, 3, 5, 6, 2 if direction == "bidirectional" else 1
    shape = (d, 4 * hidden) if by_column else (d,)
    w, r = (RNG.integers(-60, 60, (d, n, 4 * hidden)).astype(np.int8) for n in (width, hidden))
    scales = [(RNG.random(shape) * 0.01 + 0.002).astype(F) for _ in range(2)]
    x, h, c, bias = (
        RNG.standard_normal(s).astype(F) * F(0.3)
        for s in ((time, batch, width), (d, batch, hidden), (d, batch, hidden), (d, 8 * hidden))
    )
    zero = np.zeros(shape, np.int8)
    arrays = (x, w, r, bias, None, h, c, None, scales[0], zero, scales[1], zero)
    outputs = ("y", "y_h", "y_c")
    proto, feeds = model_of(
        "DynamicQuantizeLSTM", arrays, (1, 2, 3, 8, 9, 10, 11), outputs, hidden_size=hidden, direction=direction
    )

    for actual, expected in zip(interpreted(proto, feeds), by_onnxruntime(proto, feeds), strict=True):
        assert_matches(actual, expected, terms=time * hidden)


def test_an_absent_zero_point_is_0():
    """onnxruntime's type inference fails without one."""
    (a, b), zero = pairs(np.uint8), np.uint8(0)
    absent, feeds = model_of("QLinearMul", (a, F(0.5), None, b, F(0.25), None, F(9.0)), (1, 4, 6))
    given, _ = model_of("QLinearMul", (a, F(0.5), zero, b, F(0.25), zero, F(9.0), zero), (1, 2, 4, 5, 6, 7))

    np.testing.assert_array_equal(interpreted(absent, feeds)[0], by_onnxruntime(given, feeds)[0])


def test_a_quantised_layer_is_compiled():
    a, b, scale = some(np.uint8, 7, 19), some(np.int8, 19, 11), (RNG.random(11) * 0.01).astype(F)
    arrays = (a * F(0.01), b, scale, np.zeros(11, np.int8), scale)
    proto, feeds = model_of("DynamicQuantizeMatMul", arrays, range(1, 5))

    assert_matches(compiled(proto, feeds)[0], by_onnxruntime(proto, feeds)[0], terms=19)


@pytest.mark.parametrize(
    ("operator", "arrays", "attributes", "error", "message"),
    [
        ("QLinearMul", (F([1]), F(1), None, F([1]), F(1), None, F(1)), {}, ShapeError, "i8 or u8 expected"),
        ("QLinearConcat", (F(1), np.uint8(1), np.uint8([1])), {"axis": 0}, ShapeError, "codes, scale and zero point"),
        ("MatMulInteger16", (np.int8([[1]]), np.int8([[1]])), {}, ShapeError, "i16 or u16"),
        ("QGemm", (*QGEMM, None, F(0.3)), {}, ShapeError, "the scale and the zero point of the result"),
        ("QGemm", (*QGEMM, None, None, np.uint8(3)), {}, ShapeError, "the scale and the zero point of the result"),
        ("QLinearSoftmax", (np.uint8([1]), F(1), None, F(1), np.uint8(0)), {}, ModelError, "the operator needs"),
        ("QLinearSigmoid", (np.uint8([1]), F(1), None, F(1)), {"site": 1}, ModelError, "unknown attribute 'site'"),
        ("NhwcMaxPool", (np.uint8([[[1]]]),), {"kernel_shape": [1], "site": 1}, ModelError, "unknown attribute 'site'"),
        (
            "MatMulNBits",
            (F([[1] * 16]), np.zeros((1, 1, 8), np.uint8), F([1])),
            {"K": 16, "N": 1, "block_size": 16, "bits": 3},
            UnsupportedError,
            "bits=3",
        ),
        (
            "GatherBlockQuantized",
            (np.uint8([[1]]), np.int64([0]), F([[1]])),
            {"gather_axis": 1},
            ShapeError,
            "gather_axis=1",
        ),
        ("GatherBlockQuantized", (np.int8([[1]]), np.int64([0]), F([[1]])), {}, UnsupportedError, "a table of i8"),
        (
            "MatMulNBits",
            (F([[1] * 16]), np.zeros((1, 1, 7), np.uint8), F([1])),
            {"K": 16, "N": 1, "block_size": 16},
            ShapeError,
            "1 rows of 1 blocks expected",
        ),
    ],
)
def test_what_does_not_fit_is_refused(operator, arrays, attributes, error, message):
    with pytest.raises(error, match=message):
        load(model_of(operator, arrays, range(1, len(arrays)), **attributes)[0])
