"""The HIP program on a fake libamdhip64: launches, graphs, arrays on the device, DLPack, failures, what is given back."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gpucomp.device import hip as device
from gpucomp.errors import DeviceError, DeviceLostError, InputError
from gpucomp.runtime import dlpack, hip_arrays
from gpucomp.runtime.executable import PROGRAMS, Executable
from gpucomp.runtime.hip import HipProgram
from gpucomp.runtime.inputs import checked_inputs
from gpucomp.targets import amdgcn, hip
from gpucomp.tuning import devices
from tests.fake_hip.runtime import LAUNCH_FAILED, FakeHip, code_object
from tests.plans import COLUMNS, ROWS, answer, two_layers

X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
SIZE = 4 * ROWS * COLUMNS
CODE = {"k0.bin": code_object("k0", 4)}


def add_relu(x, bias, relu, total):
    sums = x[:SIZE].view(np.float32).reshape(ROWS, COLUMNS) + bias[: 4 * COLUMNS].view(np.float32)
    total[:SIZE] = sums.reshape(-1).view(np.uint8)
    relu[:SIZE] = np.maximum(sums, 0).reshape(-1).view(np.uint8)


@pytest.fixture
def gpu(monkeypatch):
    made = FakeHip({"k0": add_relu})
    monkeypatch.setattr(device, "runtime", lambda: made.library)
    monkeypatch.setattr(hip_arrays, "shared", lambda: made.arrays)
    monkeypatch.setattr("gpucomp.runtime.hip.shared", lambda: made.arrays)
    return made


def opened(gpu, host=False, arch="gfx90a", code=CODE):
    plan, sources, weights = two_layers(hip.manifest(arch), host=host)
    return HipProgram(plan, sources, code, weights)


@pytest.fixture
def exe(gpu):
    plan, sources, weights = two_layers(hip.manifest("gfx90a"))
    return Executable(plan, sources, CODE, weights)


def assert_right(found, x, **how):
    for name, wanted in answer(x, **how).items():
        array = found[name] if isinstance(found[name], np.ndarray) else found[name].get()
        np.testing.assert_array_equal(array, wanted, err_msg=name)


def test_every_run_gives_the_answer_and_from_the_second_on_one_graph_is_replayed(gpu):
    program = opened(gpu)

    for scale in (1, -2, 3):
        assert_right(program.run({"x": X * np.float32(scale)}), X * np.float32(scale))

    two = ["launch"] * 2
    assert gpu.done("launch", "capture", "replay") == [*two, "capture", "replay", *two, "replay", *two]
    kernel = program.plan.kernels[0]
    shape = "x".join(map(str, kernel.groups)), "x".join(map(str, kernel.items))
    assert {line for line in gpu.log if line.startswith("launch")} == {f"launch k0 {shape[0]} {shape[1]} 0"}
    assert gpu.error is None


def test_a_host_operator_s_results_are_uploaded_and_no_graph_is_captured(gpu):
    program = opened(gpu, host=True)

    for _ in range(3):
        assert_right(program.run({"x": X}), X, host=True)

    assert gpu.done("launch", "capture") == ["launch"] * 6


def test_everything_is_given_back_when_a_program_is_closed(gpu):
    gc.collect()
    before = gpu.held()
    program = opened(gpu)
    for _ in range(2):
        program.run({"x": X})
    assert all(count > before[name] for name, count in gpu.held().items())

    program.close()
    del program
    gc.collect()

    gpu.arrays.free_all_blocks()
    assert gpu.held() == before


def test_a_program_beside_another_shares_its_kernels_and_runs_in_a_stream_of_its_own(gpu):
    program = opened(gpu)
    loaded = gpu.log.count("load")
    other = program.beside()

    def runs(which, scale):
        return [which.run({"x": X * np.float32(scale)}) for _ in range(8)]

    with ThreadPoolExecutor(2) as pool:
        pending = [pool.submit(runs, program, 1), pool.submit(runs, other, -3)]
        for scale, one in zip((1, -3), pending, strict=True):
            for found in one.result():
                assert_right(found, X * np.float32(scale))

    assert gpu.log.count("load") == loaded
    assert program._stream.ptr != other._stream.ptr


def test_kernels_of_another_instruction_set_are_refused_with_what_to_compile_for(gpu):
    with pytest.raises(
        DeviceError, match="compiled for gfx1100, the GPU AMD Instinct MI210 is gfx90a: compile for hip:gfx90a"
    ):
        opened(gpu, arch="gfx1100")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ({}, "kernel k0: its code object k0.bin is missing"),
        ({"k0.bin": code_object("k1", 4)}, r"kernel k0: hipModuleGetFunction: named symbol not found \(error 500\)"),
        ({"k0.bin": code_object("k0", 4, "gfx942")}, r"hipModuleLoadData: no kernel image .* \(error 209\)"),
    ],
)
def test_a_code_object_that_cannot_be_loaded_is_told(gpu, code, message):
    before = gpu.held()["modules"]
    with pytest.raises(DeviceError, match=message) as caught:
        opened(gpu, code=code)
    del caught
    gc.collect()

    assert gpu.held()["modules"] == before


def test_without_memory_pools_are_emptied_first(gpu):
    gpu.library.fake_memory(4096)
    held = gpu.arrays.alloc(3000)
    del held

    block = gpu.arrays.alloc(4096)
    assert block.ptr
    with pytest.raises(DeviceError, match=r"HIP: hipMalloc: out of memory \(error 2\)"):
        opened(gpu)


def test_a_run_after_one_that_failed_gives_the_answer(gpu):
    program = opened(gpu)
    gpu.fail("hipModuleLaunchKernel", 1, after=1)
    with pytest.raises(DeviceError, match=r"the run failed: hipModuleLaunchKernel: another error \(error 1\)"):
        program.run({"x": X})

    assert_right(program.run({"x": X}), X)


def test_a_capture_that_is_lost_is_told_and_the_next_run_captures_anew(gpu):
    program = opened(gpu)
    program.run({"x": X})
    gpu.fail("hipStreamEndCapture", 901)
    with pytest.raises(DeviceError, match=r"hipStreamEndCapture: .* during capture \(error 901\)"):
        program.run({"x": X})
    gpu.library.fake_reset(b"gfx90a", 2)
    gpu.library.fake_on_launch(gpu._callback)

    assert_right(program.run({"x": X}), X)
    assert "capture" in gpu.log


def test_a_lost_gpu_stays_lost(gpu):
    def fault(*arrays):
        raise ValueError("a bad access")

    program = opened(gpu)
    gpu.kernels = {"k0": fault}
    for _ in range(2):
        with pytest.raises(DeviceLostError, match=rf"error {LAUNCH_FAILED}\); the GPU no longer answers this process"):
            program.run({"x": X})


def test_results_stay_on_the_device_and_other_libraries_take_them_by_dlpack(gpu, exe):
    found = exe.run({"x": X}, outputs="device")

    array = found["y"]
    assert array.__dlpack_device__() == (dlpack.ROCM, 0)
    taken = dlpack.imported(array.__dlpack__(stream=-1))
    assert (taken.address, taken.shape, taken.dtype, taken.contiguous) == (array.data.ptr, X.shape, X.dtype, True)
    interface = array.__cuda_array_interface__
    assert interface == {"data": (array.data.ptr, False), "shape": X.shape, "typestr": "<f4", "version": 2}
    assert_right(found, X)


def test_what_others_hold_by_dlpack_outlives_the_array_and_is_given_back_after(gpu):
    array = gpu.arrays.ndarray((3, 2), np.float16, gpu.arrays.alloc(12))
    address = array.data.ptr
    before = len(dlpack._exported)
    capsule, unused = array.__dlpack__(), array.__dlpack__()
    taken = dlpack.imported(capsule)
    del array, capsule, unused
    gc.collect()

    assert len(dlpack._exported) == before + 1
    assert gpu.arrays.alloc(12).ptr != address
    del taken
    gc.collect()
    assert len(dlpack._exported) == before
    assert gpu.arrays.alloc(12).ptr == address


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64", dlpack.BF16])
def test_dlpack_keeps_the_element_type(gpu, dtype):
    array = gpu.arrays.ndarray((2, 0, 3), dtype, gpu.arrays.alloc(64))

    assert dlpack.imported(array.__dlpack__()).dtype == np.dtype(dtype)


class Torch:
    """As a tensor of torch for ROCm: it has both protocols, ``cuda`` in its names, and a stream of its own."""

    def __init__(self, gpu, values):
        self.array = gpu.arrays.ndarray(values.shape, values.dtype, gpu.arrays.alloc(values.nbytes))
        self.array.set(values)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__(stream=stream)


class Interface:
    def __init__(self, gpu, values, strides=None):
        self.array = Torch(gpu, values).array
        self.__cuda_array_interface__ = self.array.__cuda_array_interface__ | {"strides": strides}


@pytest.mark.parametrize("made", [Torch, Interface])
def test_an_input_on_the_device_is_used_where_it_is(gpu, exe, made):
    given = made(gpu, X)
    before = len(gpu.log)

    assert_right(exe.run({"x": given}), X)

    assert not any(line.startswith(("upload", "copy")) for line in gpu.log[before:] if line.endswith(str(SIZE)))


@pytest.mark.parametrize("made", [Torch, Interface])
def test_results_are_written_into_arrays_on_the_device(gpu, exe, made):
    target = made(gpu, np.zeros_like(X))

    found = exe.run({"x": X}, outputs={"y": target})

    assert found["y"] is target
    np.testing.assert_array_equal(target.array.get(), answer(X)["y"])


def test_an_input_that_is_not_contiguous_is_refused(gpu, exe):
    with pytest.raises(InputError, match="a contiguous array expected on a HIP GPU"):
        exe.run({"x": Interface(gpu, X, strides=(4, 4 * ROWS))})


def test_an_input_of_another_gpu_library_is_refused(gpu, exe):
    other = SimpleNamespace(__dlpack_device__=lambda: (2, 0), __dlpack__=lambda stream=None: None)
    with pytest.raises(InputError, match="not that of a GPU of ROCm"):
        checked_inputs({"x": other}, exe.inputs, kind="hip")


def test_a_stream_of_the_caller_is_waited_for_and_waits(gpu, exe):
    stream = gpu.arrays.cuda.Stream(non_blocking=True)
    array = gpu.arrays.ndarray(X.shape, X.dtype, gpu.arrays.alloc(SIZE))
    gpu.arrays.driver.copy("host to device", array.data.ptr, X.ctypes.data, SIZE, stream.ptr)  # not yet done

    found = exe.run({"x": array}, outputs="device", stream=stream)

    with stream:
        assert_right(found, X)


def test_zeros_and_contexts_have_memory_on_the_device(gpu, exe):
    array = opened(gpu).zeros((3, 2), np.float32)

    assert not array.get().any()
    assert_right(exe.context().run({"x": X}), X)


def test_launches_and_replays_are_timed_by_events(gpu):
    program = opened(gpu)
    for _ in range(2):
        program.run({"x": X})

    assert program.profile({"x": X}) == [5e-4, 5e-4]
    assert program.time_replays(3) == [5e-4] * 3


def test_a_candidate_is_measured_on_the_gpu_here(gpu):
    found = devices.open_device(hip.manifest("gfx90a"))
    plan, sources, weights = two_layers(found.target)
    program = found.open(plan, sources, CODE, weights)

    assert program.time_launches({"x": X}, 4) == [5e-4] * 4
    assert_right(program.run({"x": X}), X)
    assert found.cache_bytes > 0
    if amdgcn.compilers("hip"):
        assert found.facts()["device"] == "AMD Instinct MI210"


def test_without_a_gpu_a_model_is_not_opened(gpu):
    gpu.library.fake_reset(b"gfx90a", 0)
    with pytest.raises(DeviceError, match="the HIP runtime finds no usable GPU"):
        opened(gpu)
    assert not device.has_gpu()


def test_a_compiled_model_of_hip_is_run_by_this_program():
    assert PROGRAMS["hip"] == ("gpucomp.runtime.hip", "HipProgram")


@pytest.mark.skipif(not amdgcn.compilers("hip") or amdgcn.linker() is None, reason="clang 18 or lld is not installed")
def test_clang_s_code_objects_are_loaded_and_take_as_many_parameters_as_the_plan_gives(gpu):
    plan, sources, weights = two_layers(hip.manifest("gfx90a"))
    kernel = plan.kernels[0]
    source = SimpleNamespace(name="k0", language="hip", text=sources[kernel.source], digest="0")
    code = amdgcn.code_object(source, "gfx90a")
    seen = []
    gpu.kernels = {"k0": lambda *arrays: (seen.append(len(arrays)), add_relu(*arrays))}

    program = HipProgram(replace(plan, kernels=(kernel,)), sources, {"k0.bin": code}, weights)

    assert_right(program.run({"x": X}), X)
    assert seen == [4, 4]
