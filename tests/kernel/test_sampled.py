"""Some elements of a kernel's results are those that all of it gives, and bounds are wide enough for nothing but roundings."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from gpucomp import compiler, targets
from gpucomp.artifact.checks import generated
from gpucomp.expr.core import axes_of, cast
from gpucomp.ir.graph import constant_value
from gpucomp.ir.types import F32, TensorType
from gpucomp.kernel import Attention, Contraction, Kernel, KernelStep, Loops, Rowwise, Scan, Scatter, Store, Window
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.sampled import MOST_POINTS, MOST_SAMPLES, cut_down, limits_of, samples
from tests.onnx_builders import model, node, value

RNG = np.random.default_rng(5)
BIG = [2, 24, 31, 37]


def weight(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


MODELS = {
    Loops: model([node("Mul", ["x", "x"], ["a"]), node("Sigmoid", ["a"], ["y"])], [value("x", BIG)]),
    Contraction: model(
        [node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["y"])],
        [value("x", [1, 5, 30, 33])],
        weights={"w": weight(12, 5, 3, 3)},
    ),
    Window: model([node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2])], [value("x", BIG)]),
    Rowwise: model([node("Softmax", ["x"], ["y"], axis=-1)], [value("x", [40, 77])]),
    Scan: model([node("CumSum", ["x", "axis"], ["y"])], [value("x", [90, 41])], weights={"axis": np.int64(1)}),
    Scatter: model(
        [node("ScatterElements", ["x", "i", "u"], ["y"], axis=0, reduction="add")],
        [value("x", [9, 5]), value("i", [4, 5], TensorProto.INT64), value("u", [4, 5])],
    ),
    Attention: model(
        [
            node("MatMul", ["q", "k"], ["s"]),
            node("Softmax", ["s"], ["p"], axis=-1),
            node("MatMul", ["p", "v"], ["y"]),
        ],
        [value("q", [2, 3, 29, 16]), value("k", [2, 3, 16, 31]), value("v", [2, 3, 31, 16])],
    ),
}


def steps_of(proto, target="opencl:generic"):
    return [s for s in compiler.lower(proto, targets.resolve(target)).unpacked if isinstance(s, KernelStep)]


def inputs_of(step, limits=None):
    found = []
    for k, (one, type) in enumerate(zip(step.inputs, step.kernel.params, strict=False)):
        array = constant_value(one)
        limit = (limits or {}).get(k, 0)
        found.append(
            generated(type.dtype.name, type.size, k + 1, limit).reshape(type.shape) if array is None else array
        )
    return found


@pytest.mark.parametrize("kind", list(MODELS), ids=lambda kind: kind.__name__)
def test_elements_are_those_of_the_whole_kernel(kind):
    kinds = set()
    for step in steps_of(MODELS[kind]):
        arrays = inputs_of(step, limits_of(step.kernel))

        for found, whole in zip(samples(step.kernel, arrays), expected(step.kernel, arrays), strict=True):
            assert 8 < len(found) <= MOST_SAMPLES
            assert len(set(found["at"].tolist())) == len(found)
            np.testing.assert_array_equal(whole.reshape(-1)[found["at"]], found["value"])
            assert (found["within"] > 0).all()
        kinds.add(type(step.kernel.body))

    assert kind in kinds


@pytest.mark.parametrize("kind", [Loops, Contraction, Window])
def test_first_and_last_elements_are_among_them(kind):
    (step,) = steps_of(MODELS[kind])
    (found,) = samples(step.kernel, inputs_of(step))
    size = step.kernel.params[-1].size

    assert {0, size - 1} <= set(found["at"].tolist())


@pytest.mark.parametrize("kind", list(MODELS), ids=lambda kind: kind.__name__)
def test_a_cut_kernel_has_few_points(kind):
    for step in steps_of(MODELS[kind]):
        small = cut_down(step.kernel)
        free = [a for a in small.body.domain if a not in step.kernel.body.domain]

        assert small.params == step.kernel.params
        assert np.prod([axis.extent for axis in free], initial=1) <= MOST_POINTS


def test_sums_in_another_order_are_right_and_a_sum_without_an_operand_is_not():
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [33, 700])], weights={"w": weight(700, 20)})
    (step,) = steps_of(proto)
    x, w = inputs_of(step)
    (found,) = samples(step.kernel, [x, w])

    def away(result):
        return np.abs(result.reshape(-1)[found["at"]].astype(np.float64) - found["value"])

    order = RNG.permutation(700)
    one_by_one = np.zeros((33, 20), np.float32)
    for k in order:
        one_by_one += np.outer(x[:, k], w[k])
    assert (away(one_by_one) <= found["within"]).all()
    assert (away(x[:, 1:] @ w[1:]) > found["within"]).mean() > 0.9


def test_whole_numbers_are_exact_unless_floats_make_them():
    whole = model([node("Add", ["x", "x"], ["y"])], [value("x", [9, 7], TensorProto.INT32)])
    rounded = model(
        [node("QuantizeLinear", ["x", "s"], ["y"])], [value("x", [9, 70])], weights={"s": np.float32(0.013)}
    )
    steps = [*steps_of(whole), *steps_of(rounded)]

    (exact,), (nearly,) = (samples(step.kernel, inputs_of(step)) for step in steps)

    assert set(exact["within"]) == {0}
    assert set(nearly["within"]) == {1}


def test_elements_that_jump_at_a_rounding_are_left_out():
    """Whether x > 1.0078125 is sure where x is another number."""
    limit = np.float32(1.0078125)
    proto = model([node("Greater", ["x", "c"], ["y"])], [value("x", [64, 1])], weights={"c": limit})
    (step,) = steps_of(proto)
    place = next(k for k, one in enumerate(step.inputs) if constant_value(one) is None) if len(step.inputs) > 1 else 0
    arrays = inputs_of(step)
    arrays[place][::2] = limit

    (found,) = samples(step.kernel, arrays)

    assert len(found) == 32
    assert set(found["at"] % 2) == {1}
    assert set(found["value"]) == {0, 1}


@pytest.mark.parametrize(
    ("type", "factor"),
    [(TensorProto.FLOAT, 1e-40), (TensorProto.DOUBLE, 1e-120), (TensorProto.FLOAT16, 1e-6)],
    ids=["f32", "f64", "f16"],
)
def test_numbers_that_a_device_may_take_for_zero_are_left_out(type, factor):
    array = np.array(factor, {TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16}.get(type, np.float32))
    proto = model([node("Mul", ["x", "c"], ["y"])], [value("x", [9, 70], type)], weights={"c": array})
    (step,) = steps_of(proto, "cuda:sm_80")

    (found,) = samples(step.kernel, inputs_of(step))

    assert not len(found)


def test_zeros_that_a_rounding_changes_are_left_out():
    nodes = [node("Mul", ["x", "c"], ["a"]), node("Round", ["a"], ["b"]), node("Sub", ["a", "b"], ["y"])]
    (step,) = steps_of(model(nodes, [value("x", [9, 70])], weights={"c": np.float32(128)}))
    zeros = model(
        [node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("Relu", ["b"], ["y"])], [value("x", [9])]
    )
    (other,) = steps_of(zeros)

    (jumping,), (sure,) = (samples(one.kernel, inputs_of(one)) for one in (step, other))

    assert not len(jumping)
    assert len(sure) == 9


def test_whole_numbers_that_jump_at_a_rounding_are_left_out():
    """OpenCL lets a quotient of f32 be wrong in its last two bits."""
    nodes = [node("Cast", ["x"], ["a"], to=1), node("Div", ["a", "c"], ["b"]), node("Floor", ["b"], ["y"])]
    proto = model(nodes, [value("x", [9, 70], TensorProto.INT32)], weights={"c": np.float32(10)})
    (step,) = steps_of(proto)
    (x,) = inputs_of(step)
    quotients = x / np.float32(10)

    (found,) = samples(step.kernel, [x])

    for less in (np.float32(-np.inf), np.float32(np.inf)):
        near = np.floor(np.nextafter(np.nextafter(quotients, less), less)).reshape(-1)
        assert (np.abs(near[found["at"]] - found["value"]) <= found["within"]).all()
    assert len(found) > 50


def test_indices_are_bounded_by_what_they_index():
    proto = model(
        [node("Gather", ["x", "i"], ["y"], axis=1)], [value("x", [40, 6, 50]), value("i", [3], TensorProto.INT64)]
    )
    (step,) = steps_of(proto)

    assert list(limits_of(step.kernel).values()) == [6]
    plain = steps_of(MODELS[Loops])[0]
    assert limits_of(plain.kernel) == {}


def test_positions_from_floats_are_not_tested():
    proto = model([node("GridSample", ["x", "g"], ["y"])], [value("x", [1, 2, 8, 8]), value("g", [1, 5, 5, 2])])

    assert any(limits_of(step.kernel) is None for step in steps_of(proto))


@pytest.mark.parametrize("operator", ["Div", "Mod", "Pow"])
def test_operators_without_a_result_for_some_whole_numbers_are_not_tested(operator):
    ints = [value("x", [9, 7], TensorProto.INT32), value("d", [9, 7], TensorProto.INT32)]
    (step,) = steps_of(model([node(operator, ["x", "d"], ["y"])], ints))

    assert samples(step.kernel, inputs_of(step)) is None


def test_a_kernel_without_inputs():
    i, j = axes_of((40, 50))
    kernel = Kernel("loops", (TensorType(F32, (40, 50)),), 1, Loops((i, j)), (Store(0, (i, j), cast(i * j, F32)),))

    (found,) = samples(kernel, [])

    np.testing.assert_array_equal(found["value"], (found["at"] // 50) * (found["at"] % 50))
    assert len(found) == MOST_SAMPLES


def test_elements_that_nobody_writes_are_left_out():
    """Each part of a concatenation is a kernel's."""
    proto = model(
        [node("Exp", ["x"], ["a"]), node("Neg", ["x"], ["b"]), node("Concat", ["a", "b"], ["y"], axis=0)],
        [value("x", [20, 30])],
    )
    every = []
    for step in steps_of(proto):
        arrays = inputs_of(step)
        whole = expected(step.kernel, arrays)
        for found, array in zip(samples(step.kernel, arrays), whole, strict=True):
            np.testing.assert_array_equal(array.reshape(-1)[found["at"]], found["value"])
            every.append(found)

    assert all(map(len, every))
