"""Operators of the first opsets that the standard removed, against onnxruntime if it has them, otherwise numpy."""

import numpy as np
import pytest
from onnx import numpy_helper

from gpucomp.cli.compare import onnxruntime_session
from gpucomp.errors import ModelError, ShapeError, UnsupportedError
from gpucomp.frontend.onnx import load
from tests.onnx_builders import model, node, value
from tests.onnx_cases import InterpreterBackend

RNG = np.random.default_rng(31)
X = RNG.standard_normal((2, 3, 5, 7)).astype(np.float32)


def of(op, opset=1, x=X, weights=(), **attributes):
    proto = model([node(op, ["x"], ["y"], **attributes)], [value("x", x.shape)], weights=weights, opset=opset)
    proto.ir_version = 3
    return proto


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Affine", {"alpha": 2.5, "beta": -0.5}),
        ("Scale", {"scale": -3.0}),
        ("ScaledTanh", {"alpha": 1.7, "beta": 0.6}),
        ("ParametricSoftplus", {"alpha": 0.3, "beta": 2.0}),
        ("ImageScaler", {"bias": [1.0, -2.0, 0.5], "scale": 0.25}),
        ("Crop", {"border": [1, 0, 2, 3]}),
        ("Crop", {"border": [1, 2, 0, 0], "scale": [3, 4]}),
        *(
            ("MeanVarianceNormalization", {"across_channels": a, "normalize_variance": v})
            for a in (0, 1)
            for v in (0, 1)
        ),
    ],
)
def test_it_computes_what_onnxruntime_does(op, attributes):
    proto = of(op, **attributes)
    (expected,) = onnxruntime_session(proto.SerializeToString()).run(None, {"x": X})

    np.testing.assert_allclose(InterpreterBackend.prepare(proto).run([X])[0], expected, rtol=1e-5, atol=1e-6)


def test_a_constant_is_filled_into_a_shape():
    sizes = np.array([3, 0, 2], np.int64)
    inner = node("Constant", [], ["s"], value=numpy_helper.from_array(sizes))
    filled = node("ConstantFill", ["s"], ["y"], input_as_shape=1, extra_shape=[5], value=7.0, dtype=6)

    (found,) = InterpreterBackend.prepare(model([inner, filled], opset=8)).run([])

    assert (found.dtype, found.shape) == (np.int32, (3, 0, 2, 5))
    np.testing.assert_array_equal(
        InterpreterBackend.prepare(of("ConstantFill", value=1.5, extra_shape=[2])).run([X])[0],
        np.full((*X.shape, 2), 1.5),
    )


@pytest.mark.parametrize(
    ("op", "attributes", "error"),
    [
        ("ImageScaler", {"bias": [1.0]}, ShapeError),
        ("Crop", {"border": [4, 0, 4, 0]}, ShapeError),
        ("Crop", {"border": [0, 0, 0, 0], "scale": [6, 1]}, ShapeError),
        ("Crop", {"border": [0, 0, 0]}, ShapeError),
        ("Affine", {"gamma": 1.0}, ModelError),
        ("ScaledTanh", {"alpha": 1.0}, ModelError),
        ("ConstantFill", {"shape": [2]}, ShapeError),
        ("ConstantFill", {"extra_shape": [-2]}, ShapeError),
        ("GivenTensorFill", {}, UnsupportedError),
    ],
)
def test_what_does_not_fit_is_refused(op, attributes, error):
    with pytest.raises(error):
        load(of(op, **attributes))


def test_the_standard_s_own_operator_takes_over():
    proto = of("MeanVarianceNormalization", opset=9, axes=[0, 2, 3])
    proto.graph.node[0].attribute[0].name = "across_channels"

    with pytest.raises(ModelError, match="unknown attribute 'across_channels'"):
        load(proto)
