"""The CUDA program on a driver without a GPU: launches, graph capture and replay, host operators, copies, failures."""

from __future__ import annotations

import gc
import importlib
import re
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto

from gpucomp import compile
from gpucomp.errors import DeviceError, DeviceLostError
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.runtime import cuda_places
from gpucomp.runtime import gpu as runtime
from gpucomp.runtime.cuda import CudaProgram
from gpucomp.targets import cuda
from tests.fake_cupy import FakeCupy
from tests.fake_driver.cubins import cubin, ptx
from tests.fake_driver.driver import KernelError
from tests.onnx_builders import model, node, value
from tests.plans import BIAS, COLUMNS, ROWS, answer, two_layers

X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)


SIZE = 4 * ROWS * COLUMNS
POINTERS = [8] * 4


def add_relu(x, bias, relu, total):
    sums = x[:SIZE].view(np.float32).reshape(ROWS, COLUMNS) + bias[: 4 * COLUMNS].view(np.float32)
    total[:SIZE] = sums.reshape(-1).view(np.uint8)
    relu[:SIZE] = np.maximum(sums, 0).reshape(-1).view(np.uint8)


def opened(
    host=False,
    binary=None,
    kernel=add_relu,
    arch="sm_80",
    capability=(8, 0),
    shared=0,
    text=None,
    room=163 << 10,
    static=0,
):
    cupy = FakeCupy({"k0": kernel}, capability, room)
    plan, sources, weights = two_layers(cuda.manifest(arch), host=host)
    plan = replace(plan, kernels=tuple(replace(k, shared=shared) for k in plan.kernels))
    if binary is None:
        binary = cubin("k0", POINTERS, arch=int(arch.strip("sm_a")), static_shared=static)
    binaries = {"k0.bin": binary} | ({cuda.ptx_name("k0.bin"): text} if text else {})
    return CudaProgram(plan, sources, binaries, weights, cupy=cupy), cupy.driver


def memory_of(program, driver, kind):
    """The addresses and bytes of the plan's buffers of a kind."""
    pairs = zip(program.plan.buffers, program._memory, strict=True)
    return [(address, driver.memory(address, max(1, b.nbytes))) for b, address in pairs if b.kind == kind]


def test_every_run_gives_the_answer():
    program, _ = opened()

    for scale in (1, -2, 3, 4):
        found = program.run({"x": X * np.float32(scale)})

        for name, wanted in answer(X * np.float32(scale)).items():
            np.testing.assert_array_equal(found[name], wanted, err_msg=name)


def test_the_first_run_launches_and_later_ones_replay_one_graph():
    program, driver = opened()

    for _ in range(3):
        program.run({"x": X})

    launches = ["launch"] * 2
    assert driver.done("launch", "capture", "replay") == [
        *launches,
        "capture",
        "replay",
        *launches,
        "replay",
        *launches,
    ]
    kernel = program.plan.kernels[0]
    shape = "x".join(map(str, kernel.groups)), "x".join(map(str, kernel.items))
    assert {line for line in driver.log if line.startswith("launch")} == {f"launch k0 {shape[0]} {shape[1]} 0"}


def test_host_operators_keep_a_plan_from_being_captured():
    program, driver = opened(host=True)

    for _ in range(3):
        found = program.run({"x": X})

    assert driver.done("launch", "capture", "replay") == ["launch", "launch"] * 3
    np.testing.assert_array_equal(found["y"], answer(X, host=True)["y"])


def test_what_is_uploaded_from_pageable_memory_is_kept_until_the_device_has_it(monkeypatch):
    """The driver may read it when the stream comes to it, as where a GPU reads a processor's pages itself."""
    results, alive = [], []

    def computed(*arguments):
        arrays = run_host(*arguments)
        results.extend(weakref.ref(array if array.base is None else array.base) for array in arrays)
        return arrays

    def kernel(*arrays):
        alive.append([reference() is not None for reference in results])
        add_relu(*arrays)

    run_host = runtime.run_host
    monkeypatch.setattr(runtime, "run_host", computed)
    program, _ = opened(host=True, kernel=kernel)

    program.run({"x": X})

    assert alive == [[], [True]]
    assert results[0]() is None  # nor for longer


def test_outputs_are_fresh_arrays():
    program, _ = opened()

    first = program.run({"x": X})
    program.run({"x": -X})

    np.testing.assert_array_equal(first["y"], answer(X)["y"])


def test_weights_are_uploaded_once_and_temporaries_share_the_arena():
    program, driver = opened()

    ((_, weight),) = memory_of(program, driver, "weight")
    np.testing.assert_array_equal(weight.view(np.float32), BIAS)
    assert memory_of(program, driver, "counter")[0][1].tolist() == [0, 0, 0, 0]
    (first, _), (second, _), _ = memory_of(program, driver, "temp")
    assert second - first == program.plan.buffers[3].offset - program.plan.buffers[2].offset
    for _ in range(3):
        program.run({"x": X})
    assert sum(line.startswith(f"upload {4 * COLUMNS}") for line in driver.log) == 1


def test_a_run_goes_through_pinned_memory_and_waits_once():
    program, driver = opened()
    for _ in range(2):
        program.run({"x": X})
    driver.clear_log()

    program.run({"x": X})

    launches = [line for line in driver.log if line.startswith("launch")]
    assert driver.log == [f"upload {SIZE}", "replay", *launches, *[f"download {SIZE}"] * 3, "synchronize"]


def test_what_is_larger_than_the_pinned_memory_is_copied_by_the_driver(monkeypatch):
    monkeypatch.setattr(cuda_places, "STAGED_BYTES", SIZE + 64)
    program, driver = opened()

    for scale in (1, -2, 3):
        found = program.run({"x": X * np.float32(scale)})

        for name, wanted in answer(X * np.float32(scale)).items():
            np.testing.assert_array_equal(found[name], wanted, err_msg=name)
    assert f"download {SIZE} pageable" in driver.log
    assert f"download {SIZE}" in driver.log


def test_device_arrays_are_taken_without_the_host():
    program, driver = opened()
    array = program._arrays.array(X)
    array.device.synchronize()
    driver.clear_log()

    found = program.run({"x": array})

    np.testing.assert_array_equal(found["y"], answer(X)["y"])
    assert [line for line in driver.log if line.startswith(("upload", "copy"))] == []


def test_profiling_times_every_launch_but_the_host_s():
    program, _ = opened(host=True)

    assert program.profile({"x": X}) == [2e-3, 0.0, 2e-3]
    assert [s.launch for s in program.timeline({"x": X})[1]] == [0, 2]
    assert program.ceilings() is None


def test_replays_are_timed_once_there_is_a_graph():
    program, driver = opened()
    program.run({"x": X})
    assert program.time_replays(3) == []
    program.run({"x": X})
    driver.clear_log()

    assert program.time_replays(3) == [2e-3] * 3
    assert driver.done("event", "replay") == ["event", "replay", "event"] * 3


@pytest.mark.parametrize(
    ("binary", "said"),
    [(b"garbage", "kernel image is invalid .error 200"), (cubin("k1", POINTERS), "named symbol not found .error 500")],
)
def test_a_cubin_that_the_device_refuses_is_a_device_error(binary, said):
    with pytest.raises(DeviceError, match=f"kernel k0: .*{said}") as found:
        opened(binary=binary)

    assert (found.value.code, found.value.exit_code) == ("GPC5015", 5)


@pytest.mark.parametrize(("arch", "capability"), [("sm_80", (9, 0)), ("sm_75", (12, 1)), ("sm_89", (10, 0))])
def test_the_driver_of_a_newer_device_compiles_the_ptx(arch, capability):
    program, driver = opened(arch=arch, capability=capability, text=ptx("k0", POINTERS, arch))

    np.testing.assert_array_equal(program.run({"x": X})["y"], answer(X)["y"])
    assert [line for line in driver.log if line.startswith("load")] == ["load ptx"]


def test_a_device_that_the_cubins_are_for_gets_these():
    _, driver = opened(arch="sm_80", capability=(8, 9), text=ptx("k0", POINTERS, "sm_80"))

    assert [line for line in driver.log if line.startswith("load")] == ["load cubin"]


@pytest.mark.parametrize(("arch", "capability"), [("sm_90a", (10, 0)), ("sm_86", (8, 0)), ("sm_100", (9, 0))])
def test_ptx_is_for_no_older_device_and_that_of_one_architecture_for_no_other(arch, capability):
    with pytest.raises(DeviceError, match="compile for cuda:sm_"):
        opened(arch=arch, capability=capability, text=ptx("k0", POINTERS, arch))


def test_ptx_that_the_driver_refuses_is_named():
    with pytest.raises(
        DeviceError, match="kernel k0, compiled by the driver from PTX for sm_80: cuModuleLoadData: a PTX JIT"
    ) as found:
        opened(arch="sm_80", capability=(9, 0), text=b".version 99.0")

    assert found.value.code == "GPC5008"


def test_ptx_of_a_newer_cuda_than_the_driver_s_says_so_and_what_to_do():
    """NVRTC 13.5 writes PTX 9.5; a driver of CUDA 13.0 knows 9.0."""
    cupy = FakeCupy({"k0": add_relu}, (9, 0), 163 << 10)
    cupy.driver.fail("cuModuleLoadData", 222)
    plan, sources, weights = two_layers(cuda.manifest("sm_80"))
    text = b"//\n// Generated by NVVM\n//\n\n.version 9.5\n.target sm_80\n"
    binaries = {"k0.bin": b"\x7fELF", cuda.ptx_name("k0.bin"): text}

    with pytest.raises(
        DeviceError,
        match=r"kernel k0.*PTX 9\.5, which is newer than the driver's CUDA \d+\.\d: compile "
        "for the GPU's own architecture, or with an NVRTC no newer",
    ) as found:
        CudaProgram(plan, sources, binaries, weights, cupy=cupy)

    assert found.value.code == "GPC5008"


def test_the_version_of_ptx_is_the_one_that_nvrtc_wrote():
    target = cuda.manifest("sm_80")
    source = KernelSource("k0", "cuda", 'extern "C" __global__ void k0(float* y) { *y = 1; }', Geometry((1, 1, 1)))

    text = cuda.members({"k0.cubin": source}, target)["k0.ptx"]

    assert re.fullmatch(r"\d+\.\d+", cuda.ptx_version(text))
    assert f".version {cuda.ptx_version(text)}".encode() in text


def test_a_device_of_the_same_generation_with_less_shared_memory_is_told_so():
    opened(capability=(8, 6), shared=99 << 10, room=99 << 10)

    with pytest.raises(DeviceError, match="102400 bytes of shared memory, the GPU has 101376: compile for cuda:sm_86"):
        opened(capability=(8, 6), shared=100 << 10, room=99 << 10)


def test_a_failing_launch_is_a_device_error():
    program, driver = opened()
    driver.fail("cuLaunchKernelEx", 701)

    with pytest.raises(DeviceError, match=r"the run failed: cuLaunchKernelEx: too many resources.*error 701") as found:
        program.run({"x": X})

    assert (type(found.value), found.value.code) == (DeviceError, "GPC5006")


@pytest.mark.parametrize("after", [0, 1])
def test_a_capture_that_fails_says_what_failed_and_is_ended(after):
    program, driver = opened()
    program.run({"x": X})
    driver.fail("cuLaunchKernelEx", 701, after)

    with pytest.raises(DeviceError, match="too many resources requested for launch"):
        program.run({"x": X})

    for _ in range(2):
        np.testing.assert_array_equal(program.run({"x": X})["y"], answer(X)["y"])
    assert driver.done("capture", "replay") == ["capture", "capture", "replay", "replay"]


def test_what_may_not_be_called_while_a_graph_is_captured_is_what_the_error_names():
    program, _ = opened()
    program.run({"x": X})
    first, second = program._launches
    program._launches = [first, lambda overlap: (program._wait(), second(overlap))]

    with pytest.raises(DeviceError, match="cuStreamSynchronize: operation not permitted when stream is capturing"):
        program.run({"x": X})


@pytest.mark.parametrize("status", [700, 716, 719, 214])
@pytest.mark.parametrize("good_runs", [0, 1, 2])  # before it: launched one by one, captured, replayed
def test_an_error_that_ends_the_context_is_a_lost_device_and_stays_one(status, good_runs):
    calls = []

    def fail(*arrays):
        calls.append(arrays)
        if len(calls) > 2 * good_runs:
            raise KernelError(status)

    program, driver = opened(kernel=fail)
    for _ in range(good_runs):
        program.run({"x": X})
    driver.clear_log()

    with pytest.raises(DeviceLostError, match=rf"error {status}.*start it anew") as found:
        program.run({"x": X})
    with pytest.raises(DeviceLostError):
        program.run({"x": X})
    with pytest.raises(DeviceLostError):
        program.profile({"x": X})
    program.close()

    assert (found.value.code, found.value.exit_code, len(calls)) == ("GPC5201", 5, 2 * good_runs + 1)
    assert not program._arrays.streams


@pytest.mark.parametrize("status", [700, 719])
def test_a_launch_that_finds_the_context_lost_says_so(status):
    program, driver = opened()
    driver.fail("cuLaunchKernelEx", status, after=1)

    with pytest.raises(DeviceLostError, match=rf"the run failed: cuLaunchKernelEx: .*error {status}.*start it anew"):
        program.run({"x": X})


@pytest.mark.parametrize("status", [1, 2, 701, 801])
@pytest.mark.parametrize(
    "function", ["cuLaunchKernelEx", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuStreamSynchronize"]
)
def test_after_an_error_that_passes_the_program_runs_again(function, status):
    program, driver = opened()
    driver.fail(function, status)

    with pytest.raises(DeviceError) as found:
        program.run({"x": X})

    assert type(found.value) is DeviceError
    for _ in range(3):
        np.testing.assert_array_equal(program.run({"x": X})["y"], answer(X)["y"])


@pytest.mark.parametrize("good_runs", [0, 1, 2])
def test_a_run_that_breaks_off_between_launches_leaves_no_counts_behind(good_runs):
    found = []

    def counts(*arrays):  # up in the first launch, down in the second
        *tensors, counter = arrays
        found.append(int(counter[0]))
        counter[0] ^= 1
        add_relu(*tensors)

    cupy = FakeCupy({"k0": counts})
    plan, sources, weights = two_layers(cuda.manifest("sm_80"), host=True)
    counter = [b.kind for b in plan.buffers].index("counter")
    counted = [
        replace(launch, args=(*launch.args, counter)) if launch.kernel == 0 else launch for launch in plan.launches
    ]
    plan = replace(plan, launches=tuple(counted))
    program = CudaProgram(plan, sources, {"k0.bin": cubin("k0", [*POINTERS, 8])}, weights, cupy=cupy)
    for _ in range(good_runs):
        program.run({"x": X})
    cupy.driver.fail("cuLaunchKernelEx", 701, after=1)

    with pytest.raises(DeviceError):
        program.run({"x": X})
    for _ in range(2):
        np.testing.assert_array_equal(program.run({"x": X})["y"], answer(X, host=True)["y"])

    assert found == [0, 1] * good_runs + [0] + [0, 1] * 2


@pytest.mark.parametrize(
    ("arch", "capability"), [("sm_80", (8, 6)), ("sm_90a", (9, 0)), ("sm_100", (10, 3)), ("sm_120", (12, 1))]
)
def test_a_device_of_the_same_generation_runs_the_model(arch, capability):
    program, _ = opened(arch=arch, capability=capability)

    np.testing.assert_array_equal(program.run({"x": X})["y"], answer(X)["y"])


@pytest.mark.parametrize(
    ("arch", "capability", "needed"),
    [
        ("sm_86", (8, 0), "compile for cuda:sm_80"),  # older than the binaries
        ("sm_80", (9, 0), "compile for cuda:sm_90a"),  # a later generation
        ("sm_90a", (9, 1), "compute capability 9.1, which no known architecture runs on"),  # exactly one device runs it
        ("sm_75", (7, 0), "compute capability 7.0, which no known architecture runs on"),
    ],
)
def test_a_device_that_cannot_run_the_binaries_is_told_what_to_compile_for(arch, capability, needed):
    with pytest.raises(DeviceError, match=needed) as found:
        opened(arch=arch, capability=capability)

    assert found.value.exit_code == 5


@pytest.mark.parametrize(("dynamic", "static"), [(100_000, 0), (48 << 10, 128), (1 << 10, 47 << 10)])
@pytest.mark.parametrize(("arch", "capability"), [("sm_80", (8, 0)), ("sm_90a", (9, 0))])
def test_dynamic_shared_memory_is_asked_for_whatever_a_kernel_has_besides(dynamic, static, arch, capability):
    program, driver = opened(shared=dynamic, static=static, arch=arch, capability=capability)

    found = program.run({"x": X})

    assert {line.split()[-1] for line in driver.log if line.startswith("launch")} == {str(dynamic)}
    np.testing.assert_array_equal(found["y"], answer(X)["y"])


def test_more_static_and_dynamic_shared_memory_than_a_block_may_have_is_refused_by_the_driver():
    with pytest.raises(DeviceError, match="kernel k0: cuFuncSetAttribute: invalid argument"):
        opened(shared=163 << 10, static=128)


def test_a_run_from_a_thread_with_another_device_goes_to_the_program_s():
    program, _ = opened()
    program._arrays.current_device = 1

    found = program.run({"x": X})

    np.testing.assert_array_equal(found["y"], answer(X)["y"])
    assert program._arrays.current_device == 1


def test_a_run_from_a_thread_of_its_own_has_the_program_s_context():
    program, _ = opened()

    with ThreadPoolExecutor(1) as pool:
        found = [pool.submit(program.run, {"x": X}).result() for _ in range(3)]

    for outputs in found:
        np.testing.assert_array_equal(outputs["y"], answer(X)["y"])


@pytest.mark.parametrize("closed", [False, True])
def test_what_a_program_took_is_given_back_with_it(closed):
    cupy = FakeCupy({"k0": add_relu})
    gc.collect()  # what other tests left
    before = cupy.driver.held()
    plan, sources, weights = two_layers(cuda.manifest("sm_80"))
    program = CudaProgram(plan, sources, {"k0.bin": cubin("k0", POINTERS)}, weights, cupy=cupy)
    for _ in range(2):
        program.run({"x": X})
    program.time_replays(1, overlap=False)
    held = cupy.driver.held()
    assert all(held[name] > count for name, count in before.items())

    if closed:
        program.close()
        program.close()
    else:
        del program

    assert cupy.driver.held() == before


def test_what_is_collected_while_a_graph_is_captured_does_not_end_the_capture():
    """The garbage collector runs where it will, and frees the memory of programs that nobody has any more."""
    program, driver = opened()
    gone = CudaProgram(program.plan, {}, {"k0.bin": cubin("k0", POINTERS)}, {"w0": BIAS}, cupy=program._arrays)
    gone.itself = gone
    del gone
    program.run({"x": X})
    first, second = program._launches
    program._launches = [first, lambda overlap: (gc.collect(), second(overlap))]
    held = driver.held()["allocated"]

    for _ in range(2):
        np.testing.assert_array_equal(program.run({"x": X})["y"], answer(X)["y"])

    assert driver.held()["allocated"] < held


def test_a_program_that_could_not_be_opened_gives_back_what_it_had():
    cupy = FakeCupy()
    gc.collect()  # what other tests left
    before = cupy.driver.held()
    plan, sources, weights = two_layers(cuda.manifest("sm_80"))

    with pytest.raises(DeviceError):
        CudaProgram(plan, sources, {"k0.bin": cubin("k1", POINTERS)}, weights, cupy=cupy)

    gc.collect()  # the error's traceback had it
    assert cupy.driver.held() == before


def test_missing_cupy_names_the_extra(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    plan, sources, weights = two_layers(cuda.manifest("sm_80"))

    with pytest.raises(DeviceError, match=r"pip install 'cupy-cuda13x>=14'"):
        CudaProgram(plan, sources, {}, weights)


def test_a_plan_without_binaries_is_compiled_from_its_sources(monkeypatch):
    built = []
    monkeypatch.setattr(
        cuda, "build", lambda source, target, cache: built.append((source.name, target.arch)) or cubin("k0", POINTERS)
    )

    opened(binary=b"")

    assert built == [("k0", "sm_80")]


def test_strings_stay_on_the_host_between_launches():
    nodes = [node("StringConcat", ["t", "w"], ["joined"]), node("Reshape", ["joined", "two"], ["y"])]
    weights = {"w": np.array(["!"], object), "two": np.array([2])}
    exe = compile(
        model(nodes, [value("t", (1, 2), TensorProto.STRING)], ["y", "w"], weights=weights), target="cuda:sm_80"
    )
    program = CudaProgram(exe.plan, exe.sources, exe.binaries, exe.weights, cupy=FakeCupy())

    for words in (["a", "β"], ["", "c d"]):
        found = program.run({"t": np.array([words], object)})

        assert found["y"].tolist() == [f"{word}!" for word in words]
        assert found["w"].tolist() == ["!"]
