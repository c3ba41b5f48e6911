"""``OrtValue`` and ``IOBinding`` beside onnxruntime's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import gpucomp.ort
from tests.ort import models

BOTH = pytest.mark.parametrize("ort", [gpucomp.ort, onnxruntime], ids=["gpucomp", "onnxruntime"])
CPU = ["CPUExecutionProvider"]
X = np.array([[1, -4, 2], [0, 0, -3]], np.float32)


@BOTH
def test_a_value_says_what_it_is(ort):
    value = ort.OrtValue.ortvalue_from_numpy(X)

    assert (value.shape(), value.data_type(), value.element_type(), value.device_name()) == (
        [2, 3],
        "tensor(float)",
        1,
        "cpu",
    )
    assert (value.is_tensor(), value.is_sparse_tensor(), value.is_tensor_sequence(), value.has_value()) == (
        True,
        False,
        False,
        True,
    )
    assert value.tensor_size_in_bytes() == 24
    assert np.array_equal(value.numpy(), X)
    assert value.data_ptr() == X.ctypes.data


@BOTH
def test_a_value_is_written_in_its_place(ort):
    value = ort.OrtValue.ortvalue_from_numpy(X.copy())
    value.update_inplace(X * 2)

    assert np.array_equal(value.numpy(), X * 2)
    with pytest.raises(RuntimeError, match="size of numpy arrays does not match"):
        value.update_inplace(np.ones((5, 5), np.float32))


@BOTH
def test_a_value_is_copied_into_another(ort):
    value, other = (ort.OrtValue.ortvalue_from_numpy(array) for array in (X.copy(), X * 2))
    value.update_inplace(other)

    assert np.array_equal(value.numpy(), X * 2)
    assert value.data_ptr() != other.data_ptr()
    with pytest.raises(TypeError, match=r"must be a numpy\.ndarray or an OrtValue"):
        value.update_inplace([1, 2])


def test_a_value_of_a_place_in_memory():
    info = gpucomp.ort.InferenceSession(models.affine(), providers=CPU).get_input_memory_infos()[0]

    value = gpucomp.ort.OrtValue.ortvalue_from_shape_and_type([2, 5], np.float32, memory_info=info)
    assert (value.shape(), value.device_name()) == ([2, 5], "cpu")


@BOTH
def test_a_sequence_has_elements_and_neither_a_shape_nor_an_address(ort):
    made = ort.InferenceSession(models.of_pair(), providers=CPU)
    (value,) = made.run_with_ort_values(None, {"k": ort.OrtValue.ortvalue_from_numpy(np.array([3, 4]))})

    assert (value.data_type(), value.element_type()) == ("seq(tensor(int64))", 7)
    for call in (value.shape, value.tensor_size_in_bytes, value.data_ptr, value.numpy):
        with pytest.raises(RuntimeError):
            call()


@BOTH
@pytest.mark.parametrize("element", [np.float32, 1])
def test_a_value_of_a_shape_and_a_type(ort, element):
    value = ort.OrtValue.ortvalue_from_shape_and_type([2, 5], element)

    assert (value.shape(), value.data_type()) == ([2, 5], "tensor(float)")


@BOTH
def test_a_device_that_is_not_here_is_refused(ort):
    with pytest.raises(RuntimeError):
        ort.OrtValue.ortvalue_from_numpy(X, "cuda")


@BOTH
def test_elements_that_numpy_lacks_are_told_by_their_number(ort):
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(X.astype(ml_dtypes.bfloat16).view(np.uint16), 16)

    assert (value.data_type(), value.element_type()) == ("tensor(bfloat16)", 16)


def test_dlpack_goes_both_ways_without_a_copy():
    value = gpucomp.ort.OrtValue.from_dlpack(X)

    assert value.data_ptr() == X.ctypes.data
    assert np.from_dlpack(value).ctypes.data == X.ctypes.data


@BOTH
def test_a_capsule_of_dlpack_is_a_value(ort):
    value = ort.OrtValue.from_dlpack(X.__dlpack__())

    assert value.data_ptr() == X.ctypes.data
    assert np.array_equal(value.numpy(), X)


def test_what_is_no_capsule_and_what_is_used_up_is_told():
    used = X.__dlpack__()
    gpucomp.ort.OrtValue.from_dlpack(used)

    with pytest.raises(ValueError, match="PyCapsule"):
        gpucomp.ort.OrtValue.from_dlpack(used)
    with pytest.raises(TypeError, match="capsule of DLPack expected, found int"):
        gpucomp.ort.OrtValue.from_dlpack(5)


@BOTH
def test_values_are_inputs_and_results(ort):
    made = ort.InferenceSession(models.affine(), providers=CPU)
    value = ort.OrtValue.ortvalue_from_numpy(X)

    (z,) = made.run_with_ort_values(["z"], {"x": value})

    np.testing.assert_allclose(z.numpy(), [2.5, 2.0])
    np.testing.assert_allclose(made.run(["z"], {"x": value})[0], [2.5, 2.0])


@BOTH
def test_bound_outputs_are_written_where_they_lie(ort):
    made = ort.InferenceSession(models.affine(), providers=CPU)
    binding, y, z = made.io_binding(), np.zeros((2, 3), np.float32), np.zeros(2, np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cpu", 0, np.float32, [2, 3], y.ctypes.data)
    binding.bind_ortvalue_output("z", ort.OrtValue.ortvalue_from_numpy(z))

    made.run_with_iobinding(binding)

    np.testing.assert_allclose(z, [2.5, 2.0])
    np.testing.assert_allclose(y.sum(1), z)
    assert [value.shape() for value in binding.get_outputs()] == [[2, 3], [2]]


@BOTH
def test_inputs_are_bound_at_an_address_and_outputs_to_a_device(ort):
    made = ort.InferenceSession(models.affine(), providers=CPU)
    binding = made.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, [2, 3], X.ctypes.data)
    binding.bind_output("z")

    made.run_with_iobinding(binding)
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], [2.5, 2.0])

    binding.clear_binding_outputs()
    with pytest.raises(RuntimeError, match="At least one output"):
        made.run_with_iobinding(binding)


@BOTH
def test_outputs_are_there_as_they_were_bound_before_a_run(ort):
    made = ort.InferenceSession(models.affine(), providers=CPU)
    binding, first, second = made.io_binding(), np.zeros(2, np.float32), np.ones(2, np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    binding.bind_ortvalue_output("z", ort.OrtValue.ortvalue_from_numpy(first))

    y, z = binding.get_outputs()
    assert (y.has_value(), z.data_ptr()) == (False, first.ctypes.data)
    made.run_with_iobinding(binding)
    binding.bind_ortvalue_output("z", ort.OrtValue.ortvalue_from_numpy(second))
    assert binding.get_outputs()[1].data_ptr() == second.ctypes.data


@BOTH
def test_another_sessions_binding_is_refused(ort):
    own, other = (ort.InferenceSession(models.affine(), providers=CPU) for _ in range(2))
    binding = own.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")

    with pytest.raises(ValueError, match="must be used with the session that created it"):
        other.run_with_iobinding(binding)


@BOTH
def test_copies_of_outputs_outlive_later_runs(ort):
    made = ort.InferenceSession(models.affine(), providers=CPU)
    binding, z = made.io_binding(), np.zeros(2, np.float32)
    binding.bind_ortvalue_output("z", ort.OrtValue.ortvalue_from_numpy(z))
    binding.bind_cpu_input("x", X)
    made.run_with_iobinding(binding)
    kept = binding.copy_outputs_to_cpu()[0]

    binding.bind_cpu_input("x", X + 1)
    made.run_with_iobinding(binding)

    np.testing.assert_allclose(kept, [2.5, 2.0])
    assert not np.allclose(z, kept)


@BOTH
def test_wrong_bindings_are_runtime_errors(ort):
    made = ort.InferenceSession(models.affine(), providers=CPU)
    binding = made.io_binding()

    with pytest.raises(RuntimeError, match="Failed to find NodeArg with name: nope"):
        binding.bind_cpu_input("nope", X)
    with pytest.raises(ValueError, match="`element_type` and `shape`"):
        binding.bind_output("y", buffer_ptr=X.ctypes.data)
    binding.bind_cpu_input("x", X.astype(np.float64))
    binding.bind_output("y")
    with pytest.raises(RuntimeError, match=r"Error in execution: .*Unexpected input data type"):
        made.run_with_iobinding(binding)


def test_sparse_tensors_are_refused():
    with pytest.raises(gpucomp.ort.capi.onnxruntime_pybind11_state.NotImplemented, match="sparse"):
        gpucomp.ort.SparseTensor.sparse_coo_from_numpy()
