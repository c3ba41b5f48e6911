"""Arrays that programs make in their device's memory: on a processor, on PoCL and on the CUDA driver without a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import gpucomp
from gpucomp.errors import DeviceError
from gpucomp.runtime.cuda import CudaProgram
from gpucomp.runtime.native import HOST_ALIGNMENT, address_of
from gpucomp.runtime.opencl import OpenCLProgram
from gpucomp.targets import cuda, opencl
from tests.fake_cupy import Array, FakeCupy
from tests.fake_driver.cubins import cubin
from tests.onnx_builders import model, node, value
from tests.plans import COLUMNS, ROWS, two_layers

X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
TYPES = ["f4", "f2", "i8", "?", "bfloat16"]


def on_cuda(cupy):
    plan, sources, weights = two_layers(cuda.manifest("sm_80"))
    return CudaProgram(plan, sources, {"k0.bin": cubin("k0", [8] * 4)}, weights, cupy=cupy)


def on_opencl():
    plan, sources, weights = two_layers(opencl.manifest("pocl"))
    return OpenCLProgram(plan, sources, {}, weights)


@pytest.fixture(scope="module")
def on_cpu():
    made = model([node("Relu", ["x"], ["y"])], [value("x", [ROWS, COLUMNS])], ["y"])
    return gpucomp.compile(made, target="cpu")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(5, 7), (), (0, 3)])
def test_a_processor_s_zeros_are_numpy_s_where_kernels_read_fast(on_cpu, shape, dtype):
    with on_cpu._program() as program:
        first, second = program.zeros(shape, dtype), program.zeros(shape, dtype)

    assert (first.shape, first.dtype) == (shape, np.dtype(dtype))
    assert not first.astype("f4").any()
    assert address_of(first) % HOST_ALIGNMENT == 0
    assert first.flags.carray
    assert not np.shares_memory(first, second)


def test_a_processor_reads_and_writes_them_without_a_copy(on_cpu):
    with on_cpu._program() as program:
        x, y = (program.zeros((ROWS, COLUMNS), np.float32) for _ in "xy")
    x[...] = X

    found = on_cpu.run({"x": x}, outputs={"y": y})

    assert found["y"] is y
    np.testing.assert_array_equal(y, np.maximum(X, 0))


def test_a_processor_without_the_memory_says_so(on_cpu):
    with on_cpu._program() as program, pytest.raises(DeviceError, match=r"GPC5013 cpu: an array needs \d+ bytes"):
        program.zeros((1 << 50,), np.uint8)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(5, 7), (), (0, 3)])
def test_opencl_s_are_pyopencl_s_in_the_program_s_context(shape, dtype):
    program = on_opencl()
    for one in (program, program.beside()):
        array = one.zeros(shape, dtype)

        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.queue == program.queue
        assert not array.get().astype("f4").any()


def test_opencl_without_the_memory_says_so():
    with pytest.raises(DeviceError, match="GPC5004"):
        on_opencl().zeros((1 << 50,), np.uint8)


@pytest.mark.parametrize("shape", [(5, 7), (), (0, 3)])
def test_cuda_s_are_cupy_s_and_complete(shape):
    cupy = FakeCupy({"k0": None})
    program = on_cuda(cupy)
    used = program.zeros(shape, np.float32)
    size = 4 * int(np.prod(shape))
    cupy.driver.memory(used.data.ptr, size)[:] = 7
    del used

    array = program.zeros(shape, np.float32)

    assert isinstance(array, Array)
    assert (array.shape, array.dtype) == (shape, np.float32)
    assert not cupy.driver.memory(array.data.ptr, size)[:size].any()


def test_cuda_says_which_type_cupy_lacks(monkeypatch):
    cupy = FakeCupy({"k0": None})
    program = on_cuda(cupy)

    def refuses(*given, **named):
        raise TypeError("no such type")

    monkeypatch.setattr(cupy, "ndarray", refuses)
    with pytest.raises(DeviceError, match="GPC5019 cupy has no arrays of bfloat16"):
        program.zeros((3,), "bfloat16")


def test_cuda_without_the_memory_says_so():
    with pytest.raises(DeviceError, match="GPC5004"):
        on_cuda(FakeCupy({"k0": None})).zeros((1 << 60,), np.uint8)
