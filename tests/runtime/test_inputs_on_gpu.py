"""Inputs in a GPU's memory that another stream may still be writing, on a driver without a GPU."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpucomp.errors import InputError
from gpucomp.runtime.cuda import CudaProgram
from gpucomp.runtime.inputs import TensorSpec, checked_inputs
from gpucomp.targets import cuda
from tests.fake_cupy import FakeCupy
from tests.fake_driver.cubins import cubin
from tests.plans import COLUMNS, ROWS, answer, two_layers

X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
SPECS = [TensorSpec("x", "f32", (ROWS, COLUMNS))]
CUDA_MEMORY = 2  # kDLCUDA


class Interface:
    """A tensor of a library that names no stream, as PyTorch's."""

    def __init__(self, array):
        self.array, self.__cuda_array_interface__ = array, array.__cuda_array_interface__


class Dlpack:
    """A tensor of a library that makes the consumer's stream wait for its own."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return CUDA_MEMORY, 0

    def __dlpack__(self, *, stream):
        cupy = self.array.cupy
        event = cupy.call("cuEventCreate", 0)
        cupy.call("cuEventRecord", event, self.array.stream.ptr)
        cupy.call("cuStreamWaitEvent", stream, event, 0)
        return self.array


class Both(Interface, Dlpack):
    pass


class Neither(Both):
    """One whose element type DLPack does not know."""

    def __dlpack__(self, *, stream):
        raise BufferError("no such type")


@pytest.fixture
def program(monkeypatch):
    def add_relu(x, bias, relu, total):
        size = X.nbytes
        sums = x[:size].view(np.float32).reshape(ROWS, COLUMNS) + bias[: 4 * COLUMNS].view(np.float32)
        total[:size] = sums.reshape(-1).view(np.uint8)
        relu[:size] = np.maximum(sums, 0).reshape(-1).view(np.uint8)

    cupy = FakeCupy({"k0": add_relu})
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    plan, sources, weights = two_layers(cuda.manifest("sm_80"))
    return CudaProgram(plan, sources, {"k0.bin": cubin("k0", [8] * 4)}, weights, cupy=cupy)


@pytest.mark.parametrize("kind", [Interface, Dlpack, Both, Neither])
@pytest.mark.parametrize("non_blocking", [False, True])
def test_what_another_stream_still_writes_is_waited_for(program, kind, non_blocking):
    cupy = program._arrays
    given = kind(cupy.array(X, cupy.cuda.Stream(non_blocking=non_blocking)))
    assert cupy.driver.memory(given.array.data.ptr).tobytes() != X.tobytes()

    inputs = checked_inputs({"x": given}, SPECS, kind="cuda")

    np.testing.assert_array_equal(program.run(inputs)["y"], answer(X)["y"])


@pytest.mark.parametrize("kind", [Interface, Dlpack])
def test_a_tensor_that_is_not_in_the_order_of_c_is_copied_before_it_is_read(program, kind):
    cupy = program._arrays
    given = kind(cupy.array(np.asfortranarray(X)))
    given.array.device.synchronize()
    other = cupy.cuda.Stream(non_blocking=True)

    with other:  # copies are its work then, and the program's stream waits for no other
        inputs = checked_inputs({"x": given}, SPECS, kind="cuda")

    np.testing.assert_array_equal(program.run(inputs)["y"], answer(X)["y"])


def test_by_dlpack_no_other_work_is_waited_for(program):
    cupy = program._arrays
    other = cupy.array(X, cupy.cuda.Stream(non_blocking=True))

    checked_inputs({"x": Both(cupy.array(X, cupy.cuda.Stream(non_blocking=True)))}, SPECS, kind="cuda")

    assert cupy.driver.memory(other.data.ptr).tobytes() != X.tobytes()


def test_what_cannot_be_exported_is_the_user_s_error(program):
    class Refusing(Dlpack):
        def __dlpack__(self, *, stream):
            raise BufferError("it requires a gradient")

    with pytest.raises(InputError, match="cannot be read from its device: it requires a gradient"):
        checked_inputs({"x": Refusing(program._arrays.array(X))}, SPECS, kind="cuda")
