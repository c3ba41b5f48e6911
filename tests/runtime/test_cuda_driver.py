"""Tensor maps and overlapping launches of the CUDA program, on stand-ins for cupy and cuda-bindings."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace

import numpy as np
import pytest
from fake_cupy import FakeCupy, FakeDriver
from plans import COLUMNS, ROWS, answer, two_layers

from gpucomp.errors import ArtifactError, DeviceError
from gpucomp.runtime.cuda import CudaProgram
from gpucomp.runtime.cuda_driver import encoded
from gpucomp.runtime.manifest import data_of, dumps, loads, plan_of
from gpucomp.runtime.tensor_map import TensorMap
from gpucomp.targets import cuda

X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
MAP = TensorMap(0, "tf32", (4, 2), (64,), (4, 2), swizzle=128)
PIXELS = TensorMap(
    1, "f16", (64, 9, 7, 2), (128, 1152, 8064), element_strides=(1, 2, 3, 1), swizzle=64, channels=32, pixels=48,
    lower=(-1, -2), upper=(0, -3), offset=32,
)  # fmt: skip


def opened(maps=(), programmatic=False, driver=None, host=False):
    seen = []

    def add_relu(x, bias, relu, total, *descriptors):
        seen.append([bytes(d) for d in descriptors])
        sums = x.view(np.float32).reshape(ROWS, COLUMNS) + bias.view(np.float32)
        total[:] = sums.reshape(-1).view(np.uint8)
        relu[:] = np.maximum(sums, 0).reshape(-1).view(np.uint8)

    cupy = FakeCupy({"k0": add_relu}, (9, 0))
    plan, sources, weights = two_layers(cuda.manifest("sm_90a"), host=host)
    changed = tuple(replace(k, tensor_maps=tuple(maps), programmatic=programmatic) for k in plan.kernels)
    plan = replace(plan, kernels=changed)
    if driver is not None:
        driver.cupy = cupy
    return CudaProgram(plan, sources, {"k0.bin": b"cubin k0"}, weights, cupy=cupy, driver=driver), cupy, seen


def test_a_tensor_map_is_made_for_each_launch_s_buffers_and_passed_by_value():
    driver = FakeDriver()
    program, _, seen = opened([MAP, replace(MAP, parameter=1, extents=(4, 1))], driver=driver)

    found = program.run({"x": X})

    np.testing.assert_array_equal(found["y"], answer(X)["y"])
    assert [kind for kind, _ in driver.maps] == ["tiled"] * 4
    first, bias, second, _ = (arguments for _, arguments in driver.maps)
    x, w, hidden = (program._memory[p].data.ctypes.data for p in (0, 1, 3))
    assert (first[2], bias[2], second[2]) == (x, w, hidden)
    assert first == (
        "CU_TENSOR_MAP_DATA_TYPE_TFLOAT32", 2, x, [4, 2], [64], [4, 2], [1, 1], "CU_TENSOR_MAP_INTERLEAVE_NONE",
        "CU_TENSOR_MAP_SWIZZLE_128B", "CU_TENSOR_MAP_L2_PROMOTION_L2_256B", "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE",
    )  # fmt: skip
    assert [[np.frombuffer(d, np.uint64)[0] for d in launch] for launch in seen] == [[0, 1], [2, 3]]
    assert {len(d) for launch in seen for d in launch} == {128}


def test_descriptors_are_made_once_and_replays_use_them():
    driver = FakeDriver()
    program, cupy, _ = opened([MAP], driver=driver)

    for _ in range(3):
        program.run({"x": X})

    assert len(driver.maps) == 2
    assert cupy.log == ["launch", "launch", "capture", "replay", "replay"]


def test_an_im2col_map_has_its_corners_by_width_and_height():
    driver = FakeDriver()

    found = encoded(driver, PIXELS, 4096)

    (kind, arguments), = driver.maps  # fmt: skip
    assert kind == "im2col"
    assert arguments[:9] == ("CU_TENSOR_MAP_DATA_TYPE_FLOAT16", 4, 4128, [64, 9, 7, 2], [128, 1152, 8064], [-1, -2],
                             [0, -3], 32, 48)  # fmt: skip
    assert arguments[9] == [1, 2, 3, 1]
    assert (found.dtype, found.size) == (np.dtype("V128"), 1)


def test_a_map_that_the_driver_refuses_is_a_device_error():
    with pytest.raises(DeviceError, match=r"no tensor map of TensorMap.*error 1"):
        opened([MAP], driver=FakeDriver(status=1))


@pytest.mark.parametrize("programmatic", [False, True])
def test_without_cuda_bindings_the_error_names_the_package(monkeypatch, programmatic):
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)

    with pytest.raises(DeviceError, match=r"need cuda-bindings: pip install gpucomp\[cuda13\]") as found:
        opened([MAP], programmatic)

    assert found.value.exit_code == 5


@pytest.mark.parametrize("programmatic", [False, True])
def test_a_plan_without_maps_needs_no_cuda_bindings(monkeypatch, programmatic):
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)

    program, cupy, _ = opened(programmatic=programmatic)

    np.testing.assert_array_equal(program.run({"x": X})["y"], answer(X)["y"])
    assert cupy.log == ["launch"] * 2


def test_a_kernel_that_waits_itself_is_launched_to_overlap():
    driver = FakeDriver()
    program, cupy, _ = opened([MAP], programmatic=True, driver=driver)
    read = []

    def launch(config, function, parameters, extra):
        pointers = (ctypes.c_void_p * 5).from_address(parameters)
        read.append([ctypes.c_uint64.from_address(p).value for p in pointers])
        return FakeDriver.cuLaunchKernelEx(driver, config, function, parameters, extra)

    driver.cuLaunchKernelEx = launch
    program.run({"x": X})

    assert cupy.log == ["overlapping launch"] * 2
    config = driver.launched[0]
    kernel = program.plan.kernels[0]
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == kernel.groups
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == kernel.items
    assert (config.sharedMemBytes, config.hStream, config.function) == (0, 77, 1000)
    (attribute,) = config.attrs
    assert attribute.id == "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
    assert attribute.value.programmaticStreamSerializationAllowed == 1
    assert read[0] == [*(program._memory[p].data.ctypes.data for p in (0, 1, 2, 3)), 0]


def test_what_launches_hand_to_the_driver_is_made_once_though_a_host_operator_keeps_them_from_being_captured():
    driver = FakeDriver()
    program, cupy, _ = opened([MAP], programmatic=True, driver=driver, host=True)

    for _ in range(3):
        program.run({"x": X})

    assert cupy.log == ["overlapping launch"] * 6
    made = [(id(c), c.parameters) for c in driver.launched]
    assert len(set(made)) == 2
    assert made == made[:2] * 3


def test_replays_can_be_timed_with_launches_that_do_not_overlap():
    driver = FakeDriver()
    program, _, _ = opened(programmatic=True, driver=driver)
    allowed = []

    def launch(config, function, parameters, extra):
        allowed.append(config.numAttrs)
        return FakeDriver.cuLaunchKernelEx(driver, config, function, parameters, extra)

    driver.cuLaunchKernelEx = launch
    for _ in range(2):
        program.run({"x": X})

    for overlap in (True, False, True, False):
        assert program.time_replays(3, overlap=overlap) == [2e-3] * 3
    assert allowed == [1, 1, 1, 1, 0, 0]


def test_an_overlapping_launch_that_fails_is_a_device_error():
    driver = FakeDriver()
    program, _, _ = opened(programmatic=True, driver=driver)
    driver.status = 719

    with pytest.raises(DeviceError, match=r"the launch failed .error 719"):
        program.run({"x": X})


def with_maps(*maps):
    plan, _, _ = two_layers(cuda.manifest("sm_90a"))
    return replace(plan, kernels=tuple(replace(k, tensor_maps=maps, programmatic=True) for k in plan.kernels))


def parsed(plan):
    return loads(dumps(data_of(plan)))


def test_maps_are_saved_with_the_plan():
    plan = with_maps(MAP, replace(MAP, parameter=1, extents=(4, 1)))

    back = plan_of(parsed(plan))

    assert back.kernels == plan.kernels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameter": 4}, "a tensor map of parameter 4, there are 4"),
        ({"extents": (4, 3)}, "ends at byte 144 of a buffer of 140"),
        ({"offset": 64}, "ends at byte 144 of a buffer of 140"),
        ({"strides": (20,)}, "no tensor map: strides"),
        ({"box": (4, 300)}, "no tensor map: a box"),
        ({"dtype": "f64"}, "one of f16, bf16, f32, tf32, i8 expected"),
        ({"swizzle": -1}, "a whole number from 0 to 128"),
    ],
)
def test_a_map_in_a_file_that_does_not_fit_is_refused(change, message):
    plan_of(parsed(with_maps(MAP)))
    wrong = parsed(with_maps(replace(MAP, **change)))

    with pytest.raises(ArtifactError, match=message):
        plan_of(wrong)


def test_a_flag_is_true_or_false():
    wrong = parsed(with_maps(MAP))
    wrong["kernels"][0]["programmatic"] = 1

    with pytest.raises(ArtifactError, match="true or false expected"):
        plan_of(wrong)
