"""Tensor maps and overlapping launches of the CUDA program, on a driver without a GPU."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.artifact.formulas import Formulas
from gpucomp.artifact.manifest import data_of, dumps, loads, plan_of
from gpucomp.artifact.open_plan import OpenPlan, Place, Stack
from gpucomp.artifact.tensor_map import TensorMap
from gpucomp.errors import ArtifactError, DeviceError
from gpucomp.runtime.cuda import CudaProgram
from gpucomp.runtime.cuda_driver import Driver, encoded
from gpucomp.targets import cuda
from tests.fake_cupy import FakeCupy
from tests.fake_driver.cubins import cubin
from tests.plans import COLUMNS, ROWS, answer, two_layers

X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
MAP = TensorMap(0, "tf32", (4, 2), (64,), (4, 2), swizzle=128)
PIXELS = TensorMap(
    1,
    "f16",
    (64, 9, 7, 2),
    (128, 1152, 8064),
    element_strides=(1, 2, 3, 1),
    swizzle=64,
    channels=32,
    pixels=48,
    lower=(-1, -2),
    upper=(0, -3),
    offset=32,
)


SIZE = 4 * ROWS * COLUMNS
DESCRIPTION = np.dtype(  # what the fake driver writes into the 128 bytes
    [("address", "u8"), ("im2col", "u4"), ("type", "u4"), ("rank", "u4"), ("swizzle", "u4"), ("promotion", "u4"),
     ("channels", "u4"), ("pixels", "u4"), ("extents", "u4", 5), ("strides", "u4", 4), ("box", "u4", 5),
     ("steps", "u4", 5), ("lower", "i2", 3), ("upper", "i2", 3)], align=True
)  # fmt: skip
TFLOAT32, FLOAT16, SWIZZLE_128B, SWIZZLE_64B, L2_256B = 11, 6, 3, 2, 3


def opened(maps=(), programmatic=False, host=False, capability=(9, 0)):
    seen = []

    def add_relu(x, bias, relu, total, *descriptors):
        seen.append([bytes(d) for d in descriptors])
        sums = x[:SIZE].view(np.float32).reshape(ROWS, COLUMNS) + bias[: 4 * COLUMNS].view(np.float32)
        total[:SIZE] = sums.reshape(-1).view(np.uint8)
        relu[:SIZE] = np.maximum(sums, 0).reshape(-1).view(np.uint8)

    cupy = FakeCupy({"k0": add_relu}, capability, 227 << 10)
    arch = "sm_90a" if capability[0] == 9 else "sm_80"
    plan, sources, weights = two_layers(cuda.manifest(arch), host=host)
    changed = tuple(replace(k, tensor_maps=tuple(maps), programmatic=programmatic) for k in plan.kernels)
    plan = replace(plan, kernels=changed)
    binary = cubin("k0", [8] * 4 + [128] * len(maps), arch=int(arch.strip("sm_a")))
    return CudaProgram(plan, sources, {"k0.bin": binary}, weights, cupy=cupy), cupy.driver, seen


def described(descriptor):
    (fields,) = np.frombuffer(descriptor, DESCRIPTION)
    return {name: fields[name].tolist() for name in DESCRIPTION.names}


def test_a_tensor_map_is_made_for_each_launch_s_buffers_and_passed_by_value():
    program, _, seen = opened([MAP, replace(MAP, parameter=1, extents=(4, 1))])

    found = program.run({"x": X})

    np.testing.assert_array_equal(found["y"], answer(X)["y"])
    (x_map, w_map), (hidden_map, _) = [[described(d) for d in launch] for launch in seen]
    x, w, hidden = (program._memory[p] for p in (0, 1, 3))
    assert (x_map["address"], w_map["address"], hidden_map["address"]) == (x, w, hidden)
    assert (x_map["extents"][:2], w_map["extents"][:2]) == ([4, 2], [4, 1])
    assert x_map == {
        "address": x,
        "im2col": 0,
        "type": TFLOAT32,
        "rank": 2,
        "swizzle": SWIZZLE_128B,
        "promotion": L2_256B,
        "channels": 0,
        "pixels": 0,
        "extents": [4, 2, 0, 0, 0],
        "strides": [64, 0, 0, 0],
        "box": [4, 2, 0, 0, 0],
        "steps": [1, 1, 0, 0, 0],
        "lower": [0] * 3,
        "upper": [0] * 3,
    }


def test_descriptors_are_made_once_and_replays_use_them():
    program, driver, seen = opened([MAP])
    driver.fail("cuTensorMapEncodeTiled", 1)  # there is no other call

    for _ in range(3):
        program.run({"x": X})

    assert seen == seen[:2] * 3
    assert driver.done("capture", "replay") == ["capture", "replay", "replay"]


def test_a_tensor_map_follows_an_array_that_is_read_where_it_lies():
    program, _, seen = opened([MAP, replace(MAP, parameter=1, extents=(4, 1))])
    arrays = [program._arrays.array(X), program._arrays.array(2 * X)]
    arrays[0].device.synchronize()

    for array in (*arrays, *arrays, arrays[0]):  # the second time by a graph
        program.run({"x": array})
    program.run({"x": X})

    firsts = [[described(d)["address"] for d in launch] for launch in seen[::2]]
    places = [int(a.data.ptr) for a in arrays]
    own, weight = program._own[0], program._memory[1]
    assert firsts == [[place, weight] for place in (*places, *places, places[0], own)]


def test_a_program_for_other_sizes_has_tensor_maps_of_its_own():
    """And numbers of the run after them."""
    seen = []

    def watched(x, bias, relu, total, descriptor, number):
        seen.append((described(bytes(descriptor)), int.from_bytes(bytes(number), "little")))

    cupy = FakeCupy({"k0": watched}, (9, 0), 227 << 10)
    plan, sources, weights = two_layers(cuda.manifest("sm_90a"))
    (kernel,) = plan.kernels
    kernel = replace(kernel, tensor_maps=(replace(MAP, extents=(4, Place(0))),), numbers=(("size", 0),))
    stacks = tuple(Stack((k,), tuple(range(n))) for n, k in enumerate((2, 3, 7)))
    every = OpenPlan(replace(plan, kernels=(kernel,)), Formulas(("n",), ()), (), (stacks,), 256)
    binaries = {
        "k0.bin": cubin("k0", [8] * 4 + [128, 4], arch=90)
    }  # the driver without a GPU takes 8 bytes for a pointer
    two = CudaProgram(every.at({"n": 2}).plan, sources, binaries, weights, cupy=cupy)
    one = two.resized(every.at({"n": 1}))

    for program in (two, one, two, one, one):  # the second run of each replays what it has captured
        program.run({"x": X})

    assert [(made["extents"][:2], number) for made, number in seen[::2]] == [([4, n], n) for n in (2, 1, 2, 1, 1)]
    assert {made["address"] for made, _ in seen[::2]} == {two._memory[0], one._memory[0]}
    assert cupy.driver.done("capture", "replay") == ["capture", "replay", "capture", "replay", "replay"]


@pytest.fixture
def device_memory():
    """A megabyte of it, its address, and the driver."""
    cupy = FakeCupy({}, (9, 0))
    driver = Driver(cupy.bindings)
    memory = cupy.alloc(1 << 20)
    with driver.current(cupy.contexts[0]):
        yield memory.ptr, driver


def test_an_im2col_map_has_its_corners_by_width_and_height(device_memory):
    address, driver = device_memory

    found = described(encoded(driver, PIXELS, address))

    assert found == {
        "address": address + 32,
        "im2col": 1,
        "type": FLOAT16,
        "rank": 4,
        "swizzle": SWIZZLE_64B,
        "promotion": L2_256B,
        "channels": 32,
        "pixels": 48,
        "extents": [64, 9, 7, 2, 0],
        "strides": [128, 1152, 8064, 0],
        "box": [0] * 5,
        "steps": [1, 2, 3, 1, 0],
        "lower": [-1, -2, 0],
        "upper": [0, -3, 0],
    }


def test_descriptors_lie_where_the_driver_asks(device_memory):
    """cuda.h: at a multiple of 64 bytes; a CUtensorMap is aligned to 128."""
    address, driver = device_memory
    kept = []
    for step in range(64):
        kept.append(np.empty(16 * step + 1, np.uint8))  # so that the heap does not give the same place again
        kept.append(encoded(driver, PIXELS if step % 2 else MAP, address))

    assert {d.ctypes.data % 128 for d in kept[1::2]} == {0}
    assert {d.nbytes for d in kept[1::2]} == {128}


@pytest.mark.parametrize(
    "change",
    [
        {"extents": (8, 2), "strides": (16,)},  # rows of 32 bytes, 16 apart
        {"strides": (20,)},
        {"box": (4, 257)},
        {"box": (5, 2)},
        {"offset": 8},
        {"extents": (4, 1 << 20)},  # past the memory's end
        {"element_strides": (1, 9)},
    ],
)
def test_what_a_driver_refuses_by_cuda_h_is_a_device_error(device_memory, change):
    address, driver = device_memory
    encoded(driver, MAP, address)

    with pytest.raises(DeviceError, match=r"no tensor map of TensorMap.*cuTensorMapEncodeTiled: invalid argument"):
        encoded(driver, replace(MAP, **change), address)


def test_a_device_without_the_accelerator_has_no_maps():
    with pytest.raises(DeviceError, match=r"no tensor map of TensorMap.*operation not supported") as found:
        opened([MAP], capability=(8, 0))

    assert found.value.code == "GPC5016"


def test_without_cuda_bindings_the_error_names_the_package(monkeypatch):
    plan, sources, weights = two_layers(cuda.manifest("sm_90a"))
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)

    with pytest.raises(
        DeviceError, match=r"cuda-bindings is not installed: pip install .* 'cuda-bindings>=13,<14'"
    ) as found:
        CudaProgram(plan, sources, {}, weights, cupy=cupy)

    assert (found.value.code, found.value.exit_code) == ("GPC5002", 5)


def launches(driver):
    return [line for line in driver.log if line.startswith("launch")]


@pytest.mark.parametrize("host", [False, True])  # with an operator of the host nothing is captured
def test_a_kernel_that_waits_itself_is_launched_to_overlap(host):
    program, driver, _ = opened([MAP], programmatic=True, host=host)

    for _ in range(3):
        found = program.run({"x": X})

    kernel = program.plan.kernels[0]
    shape = " ".join("x".join(map(str, extents)) for extents in (kernel.groups, kernel.items))
    assert launches(driver) == [f"launch k0 {shape} 0 overlapping"] * 6
    np.testing.assert_array_equal(found["y"], answer(X, host=host)["y"])


def test_a_kernel_that_does_not_is_not():
    program, driver, _ = opened([MAP])

    program.run({"x": X})

    assert not any(line.endswith("overlapping") for line in launches(driver))


def test_replays_can_be_timed_with_launches_that_do_not_overlap():
    program, driver, _ = opened(programmatic=True)
    for _ in range(2):
        program.run({"x": X})
    driver.clear_log()

    for overlap in (True, False, True, False):
        assert program.time_replays(3, overlap=overlap) == [2e-3] * 3

    overlapping = [line.endswith("overlapping") for line in launches(driver)]
    assert overlapping == ([True] * 6 + [False] * 6) * 2
    assert driver.done("capture") == ["capture"]


def test_what_the_fake_driver_is_for_is_over_with_the_test():
    """Another test of this process asks for a GPU and has to find none."""
    cupy = FakeCupy()
    assert cupy.bindings.cuInit(0) == (0,)

    cupy.driver.no_device()

    assert cupy.bindings.cuInit(0) == (100,)


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
        ({"parameter": 4}, "a tensor map of parameter 4, but there are 4"),
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
