"""Corner cases of operators that random models found wrong or refused: small models, compared with numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from gpucomp import compile
from gpucomp.frontend.onnx import load
from gpucomp.ops.interpreter import interpret


def model_of(op, operands, *, opset=23, domain="", constants=(), outputs=1, **attributes):
    """``op`` of inputs x0, x1 and so on. Those at positions ``constants`` are initialisers with the values of ``operands``."""
    names = [f"x{k}" for k in range(len(operands))]
    element = helper.np_dtype_to_tensor_dtype
    node = helper.make_node(op, names, [f"y{k}" for k in range(outputs)], domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "corner",
        [
            helper.make_tensor_value_info(names[k], element(a.dtype), a.shape)
            for k, a in enumerate(operands)
            if k not in constants
        ],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output],
        [numpy_helper.from_array(operands[k], names[k]) for k in constants],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(op, operands, *, constants=(), outputs=1, **given):
    graph = load(model_of(op, operands, constants=constants, outputs=outputs, **given))
    found = interpret(graph, {f"x{k}": a for k, a in enumerate(operands) if k not in constants})
    return found if outputs > 1 else found[0]


def pixel(theta, place):
    return [float(row @ [*place, 1]) for row in theta]


@pytest.mark.parametrize("batch", [1, 2])
def test_an_affine_grid_has_the_centres_of_its_pixels(batch):
    """ONNX's function body of the operator fails for a batch of one, because it squeezes the batch axis."""
    theta = np.random.default_rng(0).uniform(-1, 1, (batch, 2, 3))

    grid = run("AffineGrid", [theta, np.array([batch, 7, 3, 5])], constants=[1])

    assert grid.shape == (batch, 3, 5, 2)
    np.testing.assert_allclose(grid[-1, 0, 4], pixel(theta[-1], (0.8, -2 / 3)), rtol=1e-12)


def test_an_affine_grid_with_aligned_corners_begins_at_them_even_where_an_axis_has_one_pixel():
    theta = np.random.default_rng(0).uniform(-1, 1, (1, 3, 4))

    grid = run("AffineGrid", [theta, np.array([1, 1, 2, 1, 3])], constants=[1], align_corners=1)

    np.testing.assert_allclose(grid[0, 1, 0, 1], pixel(theta[0], (0, -1, 1)), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float32"])
def test_shrink_takes_integers_which_go_towards_zero(dtype):
    x = np.array([0, 1, 2, 3, 9], dtype) - (np.array(3, dtype) if dtype[0] != "u" else 0)

    found = run("Shrink", [x], lambd=1.0, bias=0.5)

    wide = x.astype(np.float64)
    expected = np.where(wide > 1, wide - 0.5, np.where(wide < -1, wide + 0.5, 0))
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, expected.astype(dtype))


def test_zeros_are_quantized_with_a_scale_of_one():
    y, scale, zero = run("DynamicQuantizeLinear", [np.zeros((2, 3), np.float32)], outputs=3)

    assert (scale, zero) == (1, 0)
    np.testing.assert_array_equal(y, np.zeros((2, 3), np.uint8))


def test_what_is_not_zero_is_quantized_over_its_range_and_zero():
    y, scale, zero = run("DynamicQuantizeLinear", [np.float32([-1, 0, 4.1])], outputs=3)

    assert (round(float(scale), 6), int(zero)) == (0.02, 50)
    np.testing.assert_array_equal(y, np.uint8([0, 50, 255]))


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (-(2**63), -(2**63), -1, [7]),  # Python's slice is empty
        (-9, -3, -2, []),
        (2**63 - 1, -(2**63), -2, [11, 7]),
        (-(2**31), 2**31 - 1, 2, [7, 11]),
        (-1, -(2**63), -(2**62), [11]),
    ],
)
def test_slices_clamp_their_starts_as_the_standard_says(start, end, step, expected):
    numbers = [np.array([7, 9, 11], np.int16), *(np.array([n]) for n in (start, end, 0, step))]

    assert run("Slice", numbers, constants=range(1, 5)).tolist() == expected


@pytest.mark.parametrize(("opset", "shape", "axis"), [(13, (0,), 0), (23, (2, 0, 3), -2), (11, (2, 0, 3), 1)])
def test_hardmax_of_rows_without_elements_is_empty(opset, shape, axis):
    assert run("Hardmax", [np.zeros(shape, np.float16)], opset=opset, axis=axis).shape == shape


def test_hardmax_of_no_rows_is_empty():
    assert run("Hardmax", [np.zeros((0, 3), np.float16)], axis=-1).shape == (0, 3)


def test_the_logarithm_of_softmax_of_an_infinite_row_is_not_a_number_folded_or_not():
    x = np.float32([[np.inf, 1, 2], [-np.inf, 1, 2], [0.5, 1, 2]])

    folded = run("LogSoftmax", [x], constants=[0])
    (computed,) = compile(model_of("LogSoftmax", [x]), target="cpu").run({"x0": x}).values()

    np.testing.assert_array_equal(np.isnan(folded), [[True] * 3, [False] * 3, [False] * 3])
    np.testing.assert_allclose(computed, folded, rtol=1e-6)
    np.testing.assert_allclose(np.exp(folded[1:]).sum(-1), 1, rtol=1e-6)


def test_a_last_column_of_16_bits_is_stored_without_its_neighbour():
    """Columns are taken 16 and then 1 at a time, rows one after another: the first column is there when the last is stored."""
    rng = np.random.default_rng(0)
    x, divisor = (rng.uniform(0.5, 1.5, shape).astype(ml_dtypes.bfloat16) for shape in ((9, 17), ()))
    nodes = [helper.make_node("LogSoftmax", ["x"], ["a"], axis=0), helper.make_node("Div", ["a", "d"], ["b"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "two",
        [info("x", TensorProto.BFLOAT16, x.shape), info("d", TensorProto.BFLOAT16, ())],
        [info(name, TensorProto.BFLOAT16, x.shape) for name in "ab"],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    found = compile(proto, target="cpu").run({"x": x, "d": divisor})

    for name, expected in zip("ab", interpret(load(proto), {"x": x, "d": divisor}), strict=True):
        np.testing.assert_allclose(found[name].astype(float), expected.astype(float), rtol=0.02)
