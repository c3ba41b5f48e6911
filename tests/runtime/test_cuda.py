"""The CUDA program's logic on a stand-in for cupy: launches, graph capture and replay, host operators, failures."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest
from fake_cupy import Failure, FakeCupy
from onnx import TensorProto
from onnx_builders import model, node, value
from plans import BIAS, COLUMNS, ROWS, answer, two_layers

from gpucomp import compile
from gpucomp.errors import DeviceError, DeviceLostError
from gpucomp.runtime.cuda import CudaProgram
from gpucomp.targets import cuda

X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def add_relu(x, bias, relu, total):
    sums = x.view(np.float32).reshape(ROWS, COLUMNS) + bias.view(np.float32)
    total[:] = sums.reshape(-1).view(np.uint8)
    relu[:] = np.maximum(sums, 0).reshape(-1).view(np.uint8)


def opened(
    host=False,
    binary=b"cubin k0",
    kernel=add_relu,
    arch="sm_80",
    capability=(8, 0),
    shared=0,
    ptx=None,
    room=163 << 10,
    static=0,
):
    cupy = FakeCupy({"k0": kernel}, capability, room, static)
    plan, sources, weights = two_layers(cuda.manifest(arch), host=host)
    plan = replace(plan, kernels=tuple(replace(k, shared=shared) for k in plan.kernels))
    binaries = {"k0.bin": binary} | ({cuda.ptx_name("k0.bin"): ptx} if ptx else {})
    return CudaProgram(plan, sources, binaries, weights, cupy=cupy), cupy


def test_every_run_gives_the_answer():
    program, _ = opened()

    for scale in (1, -2, 3, 4):
        found = program.run({"x": X * np.float32(scale)})

        for name, wanted in answer(X * np.float32(scale)).items():
            np.testing.assert_array_equal(found[name], wanted, err_msg=name)


def test_the_first_run_launches_and_later_ones_replay_one_graph():
    program, cupy = opened()

    for _ in range(3):
        program.run({"x": X})

    assert cupy.log == ["launch", "launch", "capture", "replay", "replay"]


def test_host_operators_keep_a_plan_from_being_captured():
    program, cupy = opened(host=True)

    for _ in range(3):
        found = program.run({"x": X})

    assert cupy.log == ["launch", "launch"] * 3
    np.testing.assert_array_equal(found["y"], answer(X, host=True)["y"])


def test_outputs_are_fresh_arrays():
    program, _ = opened()

    first = program.run({"x": X})
    program.run({"x": -X})

    np.testing.assert_array_equal(first["y"], answer(X)["y"])


def test_weights_are_uploaded_once_and_temporaries_share_the_arena():
    program, _ = opened()
    kinds = [b.kind for b in program.plan.buffers]
    memory = dict(zip(kinds, program._memory, strict=True))

    np.testing.assert_array_equal(memory["weight"].data.view(np.float32), BIAS)
    assert memory["counter"].data.tolist() == [0, 0, 0, 0]
    first, second = (m for m, k in list(zip(program._memory, kinds, strict=True))[:4] if k == "temp")
    assert first.data.base is second.data.base


def test_device_arrays_are_taken_without_the_host():
    program, _ = opened()

    class OnDevice:
        array = X
        __cuda_array_interface__ = {"shape": X.shape}  # noqa: RUF012

    found = program.run({"x": OnDevice()})

    np.testing.assert_array_equal(found["y"], answer(X)["y"])


def test_profiling_times_every_launch_but_the_host_s():
    program, _ = opened(host=True)

    assert program.profile({"x": X}) == [2e-3, 0.0, 2e-3]
    assert [s.launch for s in program.timeline({"x": X})[1]] == [0, 2]
    assert program.ceilings() is None


def test_replays_are_timed_once_there_is_a_graph():
    program, cupy = opened()
    program.run({"x": X})
    assert program.time_replays(3) == []
    program.run({"x": X})
    before = cupy.log.count("replay")

    assert program.time_replays(3) == [2e-3] * 3
    assert cupy.log.count("replay") == before + 3


def test_a_cubin_that_the_device_refuses_is_a_device_error():
    with pytest.raises(DeviceError, match="kernel image is invalid") as found:
        opened(binary=b"garbage")

    assert found.value.exit_code == 5


@pytest.mark.parametrize(("arch", "capability"), [("sm_80", (9, 0)), ("sm_75", (12, 1)), ("sm_89", (10, 0))])
def test_the_driver_of_a_newer_device_compiles_the_ptx(arch, capability):
    program, cupy = opened(arch=arch, capability=capability, ptx=b"ptx of k0")

    np.testing.assert_array_equal(program.run({"x": X})["y"], answer(X)["y"])
    assert cupy.loaded == [b"ptx of k0"]


def test_a_device_that_the_cubins_are_for_gets_these():
    _, cupy = opened(arch="sm_80", capability=(8, 9), ptx=b"ptx of k0")

    assert cupy.loaded == [b"cubin k0"]


@pytest.mark.parametrize(("arch", "capability"), [("sm_90a", (10, 0)), ("sm_86", (8, 0)), ("sm_100", (9, 0))])
def test_ptx_is_for_no_older_device_and_that_of_one_architecture_for_no_other(arch, capability):
    with pytest.raises(DeviceError, match="compile for cuda:sm_"):
        opened(arch=arch, capability=capability, ptx=b"ptx of k0")


def test_ptx_that_the_driver_refuses_is_named():
    with pytest.raises(
        DeviceError, match="kernel k0, compiled by the driver from PTX for sm_80: device kernel image"
    ) as found:
        opened(arch="sm_80", capability=(9, 0), ptx=b"of a newer toolkit")

    assert found.value.code == "GPC5008"


def test_a_device_of_the_same_generation_with_less_shared_memory_is_told_so():
    opened(capability=(8, 6), shared=99 << 10, room=99 << 10)

    with pytest.raises(DeviceError, match="102400 bytes of shared memory, it has 101376: compile for cuda:sm_86"):
        opened(capability=(8, 6), shared=100 << 10, room=99 << 10)


def test_a_failing_launch_is_a_device_error():
    def fail(*args):
        raise Failure("an illegal memory access was encountered")

    program, _ = opened(kernel=fail)

    with pytest.raises(DeviceError, match="illegal memory access"):
        program.run({"x": X})


def test_a_capture_that_fails_is_ended():
    program, cupy = opened()
    program.run({"x": X})
    launches = program._calls
    program._calls = [launches[0], "no function"]

    with pytest.raises(TypeError):
        program.run({"x": X})

    assert cupy.recording is None


@pytest.mark.parametrize("status", [700, 716, 719, 214])
def test_an_error_that_ends_the_context_is_a_lost_device_and_stays_one(status):
    calls = []

    def fail(*args):
        calls.append(args)
        raise Failure("an illegal memory access was encountered", status)

    program, cupy = opened(kernel=fail)

    with pytest.raises(DeviceLostError, match=r"illegal memory access.*start it anew") as found:
        program.run({"x": X})
    with pytest.raises(DeviceLostError):
        program.run({"x": X})
    with pytest.raises(DeviceLostError):
        program.profile({"x": X})

    assert (found.value.code, found.value.exit_code, len(calls)) == ("GPC5201", 5, 1)
    assert cupy.current is None


@pytest.mark.parametrize("status", [1, 2, 701, 900])
def test_after_an_error_that_passes_the_program_runs_again(status):
    failing = [True]

    def once(*args):
        if failing.pop():
            failing.append(False)
            raise Failure("out of resources", status)
        failing.append(False)
        add_relu(*args)

    program, _ = opened(kernel=once)

    with pytest.raises(DeviceError) as found:
        program.run({"x": X})

    assert type(found.value) is DeviceError
    np.testing.assert_array_equal(program.run({"x": X})["y"], answer(X)["y"])


@pytest.mark.parametrize("good_runs", [0, 1, 2])  # before it: launched one by one, captured, replayed
def test_a_launch_that_fails_while_it_counts_leaves_no_counts_behind(good_runs):
    failing, found = [], []

    def counts(*args):
        *tensors, counter = args
        found.append(int(counter[0]))
        counter[0] = 1
        if failing:
            raise failing.pop()
        add_relu(*tensors)
        counter[0] = 0

    cupy = FakeCupy({"k0": counts}, (8, 0), 163 << 10)
    plan, sources, weights = two_layers(cuda.manifest("sm_80"))
    counter = [b.kind for b in plan.buffers].index("counter")
    plan = replace(plan, launches=tuple(replace(launch, args=(*launch.args, counter)) for launch in plan.launches))
    program = CudaProgram(plan, sources, {"k0.bin": b"cubin k0"}, weights, cupy=cupy)
    for _ in range(good_runs):
        program.run({"x": X})
    failing.append(Failure("out of resources", 701))

    with pytest.raises(DeviceError):
        program.run({"x": X})
    for _ in range(2):
        np.testing.assert_array_equal(program.run({"x": X})["y"], answer(X)["y"])

    assert found == [0] * (2 * good_runs + 1 + 4)


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
        ("sm_90a", (9, 1), "no binaries for compute capability 9.1"),  # exactly one device runs it
        ("sm_75", (7, 0), "no binaries for compute capability 7.0"),
    ],
)
def test_a_device_that_cannot_run_the_binaries_is_told_what_to_compile_for(arch, capability, needed):
    with pytest.raises(DeviceError, match=needed) as found:
        opened(arch=arch, capability=capability)

    assert found.value.exit_code == 5


@pytest.mark.parametrize(("dynamic", "static"), [(100_000, 0), (48 << 10, 128), (1 << 10, 47 << 10)])
def test_dynamic_shared_memory_is_asked_for_whatever_a_kernel_has_besides(dynamic, static):
    program, cupy = opened(shared=dynamic, static=static)

    found = program.run({"x": X})

    assert list(cupy.shared_limits.values()) == [dynamic]
    np.testing.assert_array_equal(found["y"], answer(X)["y"])


def test_a_run_from_a_thread_with_another_device_goes_to_the_program_s():
    program, cupy = opened()
    cupy.current_device = 1

    found = program.run({"x": X})

    np.testing.assert_array_equal(found["y"], answer(X)["y"])
    assert cupy.current_device == 1


def test_missing_cupy_names_the_extra(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    plan, sources, weights = two_layers(cuda.manifest("sm_80"))

    with pytest.raises(DeviceError, match=r"pip install gpucomp\[cuda13\]"):
        CudaProgram(plan, sources, {}, weights)


def test_a_plan_without_binaries_is_compiled_from_its_sources(monkeypatch):
    built = []
    monkeypatch.setattr(
        cuda, "build", lambda source, target, cache: built.append((source.name, target.arch)) or b"cubin"
    )

    opened(binary=b"")

    assert built == [("k0", "sm_80")]


def test_strings_stay_on_the_host_between_launches():
    nodes = [node("StringConcat", ["t", "w"], ["joined"]), node("Reshape", ["joined", "two"], ["y"])]
    weights = {"w": np.array(["!"], object), "two": np.array([2])}
    exe = compile(
        model(nodes, [value("t", (1, 2), TensorProto.STRING)], ["y", "w"], weights=weights), target="cuda:sm_80"
    )
    program = CudaProgram(exe.plan, exe.sources, exe.binaries, exe.weights, cupy=FakeCupy({}, (8, 0)))

    for words in (["a", "β"], ["", "c d"]):
        found = program.run({"t": np.array([words], object)})

        assert found["y"].tolist() == [f"{word}!" for word in words]
        assert found["w"].tolist() == ["!"]
