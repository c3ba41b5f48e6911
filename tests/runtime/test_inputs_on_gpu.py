"""Inputs in a GPU's memory that another stream may still be writing, on drivers of CUDA and HIP without a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp.errors import InputError
from gpucomp.runtime.inputs import TensorSpec, checked_inputs
from tests.fake_gpus import GPUS
from tests.plans import COLUMNS, ROWS, answer, two_layers

X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
SPECS = [TensorSpec("x", "f32", (ROWS, COLUMNS))]


class Interface:
    """A tensor of a library that names no stream, as PyTorch's."""

    def __init__(self, gpu, array):
        self.gpu, self.array, self.__cuda_array_interface__ = gpu, array, array.__cuda_array_interface__


class Dlpack:
    """A tensor of a library that makes the consumer's stream wait for its own."""

    def __init__(self, gpu, array):
        self.gpu, self.array = gpu, array

    def __dlpack_device__(self):
        return self.gpu.memory_kind, 0

    def __dlpack__(self, *, stream):
        return self.gpu.exported(self.array, stream)


class Both(Interface, Dlpack):
    pass


class Neither(Both):
    """One whose element type DLPack does not know."""

    def __dlpack__(self, *, stream):
        raise BufferError("no such type")


@pytest.fixture(params=GPUS)
def gpu(request, monkeypatch):
    def add_relu(x, bias, relu, total):
        size = X.nbytes
        sums = x[:size].view(np.float32).reshape(ROWS, COLUMNS) + bias[: 4 * COLUMNS].view(np.float32)
        total[:size] = sums.reshape(-1).view(np.uint8)
        relu[:size] = np.maximum(sums, 0).reshape(-1).view(np.uint8)

    made = GPUS[request.param]({"k0": add_relu})
    made.install(monkeypatch)
    return made


@pytest.fixture
def program(gpu):
    plan, sources, weights = two_layers(gpu.target())
    return gpu.opened(plan, sources, {"k0.bin": gpu.binary(4)}, weights)


@pytest.mark.parametrize("kind", [Interface, Dlpack, Both, Neither])
@pytest.mark.parametrize("non_blocking", [False, True])
def test_what_another_stream_still_writes_is_waited_for(gpu, program, kind, non_blocking):
    given = kind(gpu, gpu.array(X, gpu.cuda.Stream(non_blocking=non_blocking)))
    assert gpu.driver.memory(given.array.data.ptr).tobytes() != X.tobytes()

    inputs = checked_inputs({"x": given}, SPECS, kind=gpu.kind)

    np.testing.assert_array_equal(program.run(inputs)["y"], answer(X)["y"])


@pytest.mark.parametrize("gpu", ["cuda"], indirect=True)  # HIP refuses it
@pytest.mark.parametrize("kind", [Interface, Dlpack])
def test_a_tensor_that_is_not_in_the_order_of_c_is_copied_before_it_is_read(gpu, program, kind):
    given = kind(gpu, gpu.array(np.asfortranarray(X)))
    given.array.device.synchronize()
    other = gpu.cuda.Stream(non_blocking=True)

    with other:  # copies are its work then, and the program's stream waits for no other
        inputs = checked_inputs({"x": given}, SPECS, kind=gpu.kind)

    np.testing.assert_array_equal(program.run(inputs)["y"], answer(X)["y"])


def test_by_dlpack_no_other_work_is_waited_for(gpu):
    other = gpu.array(X, gpu.cuda.Stream(non_blocking=True))

    checked_inputs({"x": Both(gpu, gpu.array(X, gpu.cuda.Stream(non_blocking=True)))}, SPECS, kind=gpu.kind)

    assert gpu.driver.memory(other.data.ptr).tobytes() != X.tobytes()


def test_what_cannot_be_exported_is_the_user_s_error(gpu):
    class Refusing(Dlpack):
        def __dlpack__(self, *, stream):
            raise BufferError("it requires a gradient")

    with pytest.raises(InputError, match="cannot be read from its device: it requires a gradient"):
        checked_inputs({"x": Refusing(gpu, gpu.array(X))}, SPECS, kind=gpu.kind)
