"""Rare element types against ONNX's evaluator; determinants; the type of quantisation's division."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from gpucomp.cli.compare import onnxruntime_session
from gpucomp.compiler import lower
from gpucomp.errors import ShapeError, UnsupportedError
from gpucomp.frontend.onnx import load
from gpucomp.targets import resolve
from tests.onnx_builders import model, node, value
from tests.onnx_cases import InterpreterBackend

RNG = np.random.default_rng(17)
F8 = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz)


def of(operator, arrays, outputs=("y",), opset=23, declared=("y",), **attributes):
    names, arrays = [f"x{k}" for k in range(len(arrays))], [np.asarray(a) for a in arrays]
    inputs = [value(n, a.shape, element_type(a.dtype)) for n, a in zip(names, arrays, strict=True)]
    proto = model([node(operator, names, list(outputs), **attributes)], inputs, declared, opset=opset)
    return proto, dict(zip(names, arrays, strict=True))


def element_type(dtype):
    return TensorProto.STRING if dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(dtype)


def ours(proto, feeds):
    return InterpreterBackend.prepare(proto).run(list(feeds.values()))[0]


def evaluated(proto, feeds):
    return ReferenceEvaluator(proto).run(None, feeds)[0]


# --- determinants


@pytest.mark.parametrize("shape", [(5, 5), (13, 13), (2, 3, 7, 7), (0, 6, 6), (3, 0, 0), (1, 1), (2, 4, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_determinant_of_any_size(dtype, shape):
    x = RNG.standard_normal(shape).astype(dtype)

    found = ours(*of("Det", (x,), opset=22))

    expected = np.linalg.det(x.astype(np.float64))
    assert found.dtype == dtype
    assert found.shape == shape[:-2]
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=1e3 * np.finfo(dtype).eps * np.abs(expected).max(initial=1)
    )


def test_rows_change_places_and_columns_may_be_zero():
    swapped = np.eye(6, dtype=np.float32)[[3, 0, 1, 2, 5, 4]]
    large = np.eye(5, dtype=np.float32)
    large[0, 0], large[0, 1], large[1, 0] = 1e-9, 1, 1  # without pivoting: 1 - 1e9
    singular = np.ones((5, 5), np.float32)

    assert ours(*of("Det", (swapped,), opset=22)) == np.linalg.det(swapped)
    assert ours(*of("Det", (large,), opset=22)) == -1
    assert ours(*of("Det", (singular,), opset=22)) == 0
    assert ours(*of("Det", (np.zeros((9, 9), np.float32),), opset=22)) == 0
    assert np.isnan(ours(*of("Det", (np.full((5, 5), np.nan, np.float32),), opset=22)))


def test_a_determinant_is_written_out_once_a_row():
    device = resolve("cpu:x86-64-v3")

    def size(n):
        rendered = lower(of("Det", (np.zeros((2, n, n), np.float32),), opset=22)[0], device).rendered
        return sum({r.source.name: len(r.source.text) for r in rendered.values()}.values())

    assert size(22) < 3 * size(11)


def test_determinants_end_somewhere():
    with pytest.raises(UnsupportedError, match="129 x 129"):
        load(of("Det", (np.zeros((129, 129), np.float32),), opset=22)[0])


# --- quantisation


def quotients():
    """f16 x and scale whose quotients round to one integer in f16 and to another in f32."""
    x = RNG.standard_normal(4001).astype(np.float16) * np.float16(2)
    scale = np.float16(0.0137)
    narrow, wide = np.rint(x / scale), np.rint(x.astype(np.float32) / np.float32(scale))
    assert 0 < np.sum(narrow != wide) < 200
    return x, scale


def test_halves_are_divided_in_f32_where_the_standard_does_not_say():
    x, scale = quotients()
    proto, feeds = of(
        "QuantizeLinear", (x, scale, np.int8(3)), opset=21, declared=[value("y", x.shape, TensorProto.INT8)]
    )

    (expected,) = onnxruntime_session(proto.SerializeToString()).run(None, feeds)

    np.testing.assert_array_equal(ours(proto, feeds), expected)


def test_halves_are_divided_in_the_scales_type_since_the_standard_says_so():
    x, scale = quotients()

    for attributes in ({}, {"precision": TensorProto.FLOAT}):
        proto, feeds = of("QuantizeLinear", (x, scale, np.int8(3)), opset=23, **attributes)
        np.testing.assert_array_equal(ours(proto, feeds), evaluated(proto, feeds))


def test_a_scale_that_is_a_power_of_two_divides_in_f32():
    x, scale = RNG.standard_normal((3, 5)).astype(np.float32), np.array([0.5, 4, 1], ml_dtypes.float8_e8m0fnu)
    proto, feeds = of("QuantizeLinear", (x, scale, np.zeros(3, np.int8)), opset=25, axis=0)

    np.testing.assert_array_equal(ours(proto, feeds), np.rint(x / scale.astype(np.float32)[:, None]).astype(np.int8))


def test_codes_that_are_floats_have_zero_points_too():
    x, zero = RNG.uniform(-2, 2, 35).astype(np.float32), np.array(1.5, ml_dtypes.float4_e2m1fn)
    proto, feeds = of("QuantizeLinear", (x, np.float32(0.7), zero), opset=23)

    np.testing.assert_array_equal(ours(proto, feeds).astype(np.float32), evaluated(proto, feeds).astype(np.float32))


# --- types that are allowed


@pytest.mark.parametrize("dtype", F8)
@pytest.mark.parametrize("operator", ["IsNaN", "IsInf"])
def test_narrow_floats_are_asked_for_what_they_hold(operator, dtype):
    x = np.array([0, 1, -2, np.nan, np.inf, -np.inf]).astype(dtype)
    proto, feeds = of(operator, (x,), opset=20)

    np.testing.assert_array_equal(
        ours(proto, feeds), {"IsNaN": np.isnan, "IsInf": np.isinf}[operator](x.astype(np.float32))
    )


def test_narrow_floats_are_left_out_by_chance():
    x = np.full(999, 2, ml_dtypes.float8_e4m3fn)
    nodes = [node("Dropout", ["x", "ratio", "train"], ["y"], seed=3)]
    weights = {"ratio": np.float32(0.5), "train": np.array(True)}
    proto = model(nodes, [value("x", x.shape, TensorProto.FLOAT8E4M3FN)], weights=weights, opset=22)

    found = ours(proto, {"x": x})

    assert found.dtype == x.dtype
    assert sorted(set(found.astype(np.float32).tolist())) == [0, 4]


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_bools_are_scattered_with_a_reduction(reduction):
    x, updates = RNG.random((4, 5)) < 0.5, RNG.random((4, 5)) < 0.5
    places = RNG.integers(0, 4, (4, 5))
    both = {"add": np.logical_or, "max": np.logical_or, "mul": np.logical_and, "min": np.logical_and}[reduction]
    expected = x.copy()
    for i, j in np.ndindex(4, 5):
        expected[places[i, j], j] = both(expected[places[i, j], j], updates[i, j])

    np.testing.assert_array_equal(ours(*of("ScatterElements", (x, places, updates), reduction=reduction)), expected)
    flat = np.stack([places, np.broadcast_to(np.arange(5), (4, 5))], -1)
    np.testing.assert_array_equal(ours(*of("ScatterND", (x, flat, updates), reduction=reduction)), expected)


def test_blocks_of_bools_make_an_image_where_any_is_true():
    x = np.zeros((1, 4, 4), bool)
    x[0, 1, 2] = x[0, 2, 1] = True
    weights = {"image": np.int64([3, 3]), "block": np.int64([2, 2])}
    proto = model(
        [node("Col2Im", ["x", "image", "block"], ["y"])], [value("x", x.shape, TensorProto.BOOL)], weights=weights
    )

    counted = ours(
        model([node("Col2Im", ["x", "image", "block"], ["y"])], [value("x", x.shape)], weights=weights),
        {"x": x.astype(np.float32)},
    )
    assert counted.max() == 2
    np.testing.assert_array_equal(ours(proto, {"x": x}), counted > 0)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, bool])
def test_integers_are_sampled(dtype, mode):
    low, high = (0, 2) if dtype is bool else (100, 140)  # cubic goes beyond them, and a byte has no number below 0
    x = RNG.integers(low, high, (2, 3, 5, 7)).astype(dtype)
    grid = RNG.uniform(-0.9, 0.9, (2, 4, 3, 2)).astype(np.float32)
    wide, feeds = of("GridSample", (x.astype(np.float32), grid), opset=20, mode=mode)

    found = ours(*of("GridSample", (x, grid), opset=20, mode=mode))

    expected = ours(wide, feeds)
    np.testing.assert_array_equal(found, (expected != 0) if dtype is bool else np.trunc(expected).astype(dtype))


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 1.0), (2.0, 3.0), (1.0, 0.25)])
def test_only_the_result_of_integers_is_cut_off(alpha, beta):
    a, b, c = (RNG.integers(-50, 50, shape).astype(np.int32) for shape in ((3, 5), (5, 4), (4,)))

    found = ours(*of("Gemm", (a, b, c), opset=13, alpha=alpha, beta=beta))

    np.testing.assert_array_equal(found, np.trunc(alpha * (a @ b) + beta * c).astype(np.int32))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_all_floats_are_normalised(dtype):
    x = RNG.standard_normal((3, 4, 5, 2)).astype(dtype)
    wide = x.astype(np.float64)

    found = ours(*of("MeanVarianceNormalization", (x,), opset=13, axes=[0, -1]))

    expected = (wide - wide.mean((0, 3), keepdims=True)) / (wide.std((0, 3), keepdims=True) + 1e-9)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=4 * float(ml_dtypes.finfo(dtype).eps))


def test_the_loss_of_brain_floats():
    scores, labels = RNG.standard_normal((5, 7)).astype(ml_dtypes.bfloat16), RNG.integers(0, 7, 5)

    found = ours(*of("SoftmaxCrossEntropyLoss", (scores, labels), opset=13, reduction="sum"))

    logits = scores.astype(np.float64)
    expected = np.sum(np.log(np.exp(logits).sum(1)) - logits[np.arange(5), labels])
    np.testing.assert_allclose(float(found), expected, rtol=2**-5)


def test_texts_that_are_not_empty_are_counted():
    x = np.array([["a", "", "b"], ["", "", "c"]], object)
    proto = model([node("NonZero", ["x"], ["y"])], weights={}, opset=13)
    proto.graph.initializer.append(
        helper.make_tensor("x", TensorProto.STRING, x.shape, [t.encode() for t in x.ravel()])
    )

    assert ours(proto, {}).tolist() == [[0, 0, 1], [0, 2, 2]]


def test_the_first_recurrent_operators_default_direction_is_forward_however_spelt():
    x, w, r = RNG.standard_normal((3, 2, 4)), RNG.standard_normal((1, 15, 4)), RNG.standard_normal((1, 15, 5))
    arrays = [a.astype(np.float32) for a in (x, w, r)]

    old = ours(*of("GRU", arrays, ("y", "h"), opset=1, hidden_size=5, output_sequence=1))

    np.testing.assert_array_equal(old, ours(*of("GRU", arrays, ("y", "h"), opset=7, hidden_size=5)))


def test_a_type_that_no_operator_of_a_model_takes_is_still_refused():
    with pytest.raises(Exception, match="must not be of type bool"):
        load(of("Add", (np.zeros(3, bool), np.zeros(3, bool)))[0])
    with pytest.raises(ShapeError, match="square matrices"):
        load(of("Det", (np.zeros((5, 6), np.float32),), opset=22)[0])
