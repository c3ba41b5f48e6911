"""gpucomp behind ONNX's backend interface; the compiler is replaced by the interpreter here."""

import numpy as np
import pytest
from onnx import TensorProto

from gpucomp.errors import UnsupportedError, UsageError
from tests.onnx_builders import model, node, value
from tests.onnx_cases import InterpreterBackend

DATA = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
RESHAPE = model([node("Reshape", ["x", "s"], ["y"])], [value("x", ("n", 3)), value("s", (2,), TensorProto.INT64)])


def test_inputs_are_given_by_position_by_name_or_alone():
    add = model([node("Add", ["x", "w"], ["y"])], [value("x"), value("w")], weights={"w": DATA})
    prepared = InterpreterBackend.prepare(add)

    for inputs in ([DATA], {"x": DATA}, DATA):
        assert np.array_equal(prepared.run(inputs)[0], 2 * DATA)
    with pytest.raises(UsageError, match="2 inputs given, the model has 1"):
        prepared.run([DATA, DATA])


def test_a_model_is_compiled_once_for_each_shape_and_each_deciding_value():
    compiled = []

    class Counting(InterpreterBackend):
        @staticmethod
        def compile(model, target, shapes, constants):
            compiled.append((shapes["x"], sorted(constants)))
            return InterpreterBackend.compile(model, target, shapes, constants)

    prepared = Counting.prepare(RESHAPE)
    assert prepared.run([DATA, np.array([3, 2])])[0].shape == (3, 2)
    assert prepared.run([DATA + 1, np.array([3, 2])])[0].shape == (3, 2)
    assert prepared.run([DATA, np.array([6, 1])])[0].shape == (6, 1)
    assert prepared.run([DATA[:1], np.array([3, 1])])[0].shape == (3, 1)

    assert compiled == [((2, 3), ["s"]), ((2, 3), ["s"]), ((1, 3), ["s"])]


def test_run_model_prepares_and_runs():
    assert InterpreterBackend.run_model(RESHAPE, [DATA, np.array([6, 1])])[0].shape == (6, 1)


def test_what_no_value_can_settle_is_unsupported():
    strange = model([node("Frobnicate", ["x"], ["y"], domain="com.example")], [value("x")], domains=["com.example"])

    with pytest.raises(UnsupportedError, match="unknown operator"):
        InterpreterBackend.run_model(strange, [DATA])


def test_devices_are_known_by_name():
    assert all(InterpreterBackend.supports_device(d) for d in ("CPU", "CUDA", "CUDA:1", "OPENCL"))
    assert not InterpreterBackend.supports_device("TPU")
    with pytest.raises(UsageError, match="one of CPU, CUDA, OPENCL expected"):
        InterpreterBackend.prepare(RESHAPE, "TPU")
