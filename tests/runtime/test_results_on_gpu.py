"""Results in a GPU's memory, the caller's arrays and streams there, runs side by side: CUDA and HIP, without a GPU."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.artifact.plan import OUTPUT
from gpucomp.errors import DeviceError, InputError, UsageError
from gpucomp.ir.state import State
from gpucomp.runtime import cuda_places
from gpucomp.runtime import gpu as runtime
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.inputs import stream_of
from tests.fake_gpus import GPUS
from tests.plans import COLUMNS, ROWS, answer, two_layers

SIZE = 4 * ROWS * COLUMNS
X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def add_relu(x, bias, relu, total):
    sums = x[:SIZE].view(np.float32).reshape(ROWS, COLUMNS) + bias[: 4 * COLUMNS].view(np.float32)
    total[:SIZE] = sums.reshape(-1).view(np.uint8)
    relu[:SIZE] = np.maximum(sums, 0).reshape(-1).view(np.uint8)


@pytest.fixture(params=GPUS)
def gpu(request, monkeypatch):
    made = GPUS[request.param]({"k0": add_relu})
    made.install(monkeypatch)
    return made


@pytest.fixture
def exe(gpu):
    plan, sources, weights = two_layers(gpu.target())
    return Executable(plan, sources, {"k0.bin": gpu.binary(4)}, weights)


def there(array, gpu):
    """The contents of an array on the device, once everything is done."""
    gpu.cuda.Device().synchronize()
    return gpu.driver.memory(array.data.ptr, SIZE).view(np.float32).reshape(ROWS, COLUMNS)


def on_device(gpu, x, stream=None):
    array = gpu.array(x, stream)
    if stream is None:
        array.device.synchronize()
    return array


def moved(gpu):
    """The bytes that went between host and device, or from place to place on the device."""
    return [line for line in gpu.driver.log if line.split()[0] in ("upload", "download", "copy")]


def test_results_stay_on_the_device(exe, gpu):
    for scale in (1, -2, 3, 5):
        x = X * np.float32(scale)
        found = exe.run({"x": x}, outputs="device")

        for name, wanted in answer(x).items():
            if wanted.size:
                np.testing.assert_array_equal(there(found[name], gpu), wanted, err_msg=name)
    assert not [line for line in moved(gpu) if line.startswith("download")]
    assert found["nothing"].shape == (0, 3)


def test_nothing_is_copied_between_two_runs_on_the_device(exe, gpu):
    state = on_device(gpu, X)
    wanted = X
    exe.run({"x": state}, outputs="device")
    gpu.driver.clear_log()

    for _ in range(6):
        state, wanted = exe.run({"x": state}, outputs="device")["y"], answer(wanted)["y"]

    np.testing.assert_array_equal(there(state, gpu), wanted)
    # "x" is an output as well: that one is a copy of the input
    assert moved(gpu) == [f"copy {SIZE}"] * 6


def test_arrays_of_the_caller_are_read_and_written_where_they_lie_and_a_graph_is_kept_for_each_set(exe, gpu):
    sets = [(on_device(gpu, X * np.float32(k + 1)), *(on_device(gpu, 0 * X) for _ in "yz")) for k in range(3)]
    for _ in range(4):
        for x, y, z in sets:
            found = exe.run({"x": x}, outputs={"y": y, "z": z})
            assert found["y"] is y
            assert found["z"] is z
            np.testing.assert_array_equal(found["x"], there(x, gpu))
    for k, (_, y, z) in enumerate(sets):
        np.testing.assert_array_equal(there(y, gpu), answer(X * np.float32(k + 1))["y"])
        np.testing.assert_array_equal(there(z, gpu), answer(X * np.float32(k + 1))["z"])
    assert gpu.driver.log.count("capture") == 3


def test_the_graphs_that_are_kept_are_few(exe, gpu, monkeypatch):
    monkeypatch.setattr(runtime, "MOST_GRAPHS", 2)
    sets = [(on_device(gpu, X * np.float32(k + 1)), on_device(gpu, 0 * X)) for k in range(5)]
    before = gpu.driver.held()["graphs"]
    for _ in range(3):
        for k, (x, y) in enumerate(sets):
            exe.run({"x": x}, outputs={"y": y})
            np.testing.assert_array_equal(there(y, gpu), answer(X * np.float32(k + 1))["y"])
    assert gpu.driver.held()["graphs"] - before == 2


def test_arrays_on_device_and_host_are_mixed(exe, gpu):
    y, z = on_device(gpu, 0 * X), np.zeros_like(X)

    for scale in (1, 2, 3):
        x = X * np.float32(scale)
        found = exe.run({"x": x}, outputs={"z": z, "y": y})
        assert list(found) == ["y", "z", "nothing", "x"]
        assert found["z"] is z
        np.testing.assert_array_equal(z, answer(x)["z"])
        np.testing.assert_array_equal(there(y, gpu), answer(x)["y"])
        np.testing.assert_array_equal(found["x"], x)


def test_an_array_in_the_middle_of_memory_is_copied_on_the_device(exe, gpu, monkeypatch):
    monkeypatch.setattr(cuda_places, "ALIGNMENT", 1 << 40)
    x, y = on_device(gpu, X), on_device(gpu, 0 * X)
    gpu.driver.clear_log()

    exe.run({"x": x}, outputs={"y": y})

    np.testing.assert_array_equal(there(y, gpu), answer(X)["y"])
    assert [line for line in moved(gpu) if line.startswith("copy")] == [f"copy {SIZE}"] * 2


def test_with_a_stream_nobody_waits_but_the_stream(exe, gpu):
    stream = gpu.cuda.Stream(non_blocking=True)
    exe.run({"x": X}, outputs="device")
    for scale in (1, 2, 3):
        x = on_device(gpu, X * np.float32(scale), stream)  # not there yet
        gpu.driver.clear_log()

        found = exe.run({"x": x}, outputs="device", stream=stream)

        assert "synchronize" not in gpu.driver.log
        stream.synchronize()
        memory = gpu.driver.memory(found["y"].data.ptr, SIZE).view(np.float32).reshape(ROWS, COLUMNS)
        np.testing.assert_array_equal(memory, answer(X * np.float32(scale))["y"])


@pytest.mark.parametrize("of_a_context", [False, True])
def test_a_run_that_goes_on_beside_its_caller_is_in_the_order_of_a_stream(exe, gpu, of_a_context):
    stream = gpu.cuda.Stream(non_blocking=True)
    begin = exe.context().run_async if of_a_context else exe.run_async
    for scale in (1, 2, 3):
        x = on_device(gpu, X * np.float32(scale), stream)  # not there yet

        found = begin({"x": x}, outputs="device", stream=stream).result(60)

        stream.synchronize()
        memory = gpu.driver.memory(found["y"].data.ptr, SIZE).view(np.float32).reshape(ROWS, COLUMNS)
        np.testing.assert_array_equal(memory, answer(X * np.float32(scale))["y"])


def test_inputs_from_the_host_wait_for_the_run_that_reads_those_before(exe, gpu):
    stream = gpu.cuda.Stream(non_blocking=True)
    found = [exe.run({"x": X * np.float32(k)}, outputs="device", stream=stream)["y"] for k in range(1, 5)]

    for k, array in enumerate(found, 1):
        np.testing.assert_array_equal(there(array, gpu), answer(X * np.float32(k))["y"])


def test_results_for_the_host_are_complete_with_a_stream_too(exe, gpu):
    stream = gpu.cuda.Stream(non_blocking=True)
    x = on_device(gpu, X, stream)

    np.testing.assert_array_equal(exe.run({"x": x}, stream=stream)["y"], answer(X)["y"])


def test_contexts_have_streams_and_memory_of_their_own_and_share_weights_and_kernels(exe, gpu):
    exe.run({"x": X})
    held = gpu.driver.held()
    gpu.driver.clear_log()
    contexts = [exe.context() for _ in range(3)]
    wrong = []

    def work(k):
        x = X * np.float32(k + 2)
        for _ in range(5):
            found = contexts[k].run({"x": x})
            wrong.extend(name for name, wanted in answer(x).items() if not np.array_equal(found[name], wanted))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert gpu.driver.held()["modules"] == held["modules"]
    assert f"upload {4 * COLUMNS}" not in " ".join(gpu.driver.log), "weights are uploaded once"
    programs = [context.lane(exe.lanes).first for context in contexts]
    assert len({program._stream.ptr for program in programs}) == 3


class Torchs:
    def __init__(self, handle):
        self.cuda_stream = handle


class Protocols:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def test_a_profile_leaves_the_arrays_of_the_run_before_alone(exe, gpu):
    x = on_device(gpu, X)
    found = exe.run({"x": x}, outputs="device")
    wanted = there(found["y"], gpu).copy()

    exe.profile({"x": X * 100})

    np.testing.assert_array_equal(there(x, gpu), X)
    np.testing.assert_array_equal(there(found["y"], gpu), wanted)


def test_arrays_for_results_are_written_after_what_the_caller_s_stream_does(exe, gpu):
    y = on_device(gpu, 0 * X)
    gpu.driver.clear_log()

    exe.run({"x": X}, outputs={"y": y})

    assert gpu.driver.done("wait", "launch")[0] == "wait"


def test_a_program_keeps_no_array_of_a_run_that_has_ended(exe, gpu):
    exe.run({"x": X}, outputs="device")

    with exe._program() as program:
        assert program._kept is None


def test_a_stream_is_one_of_any_library(gpu):
    stream = gpu.cuda.Stream(non_blocking=True)

    assert [stream_of(s) for s in (stream, Torchs(17), Protocols(18), 19, None)] == [stream.ptr, 17, 18, 19, 0]
    with pytest.raises(UsageError, match=r"GPC2038 stream: one of CUDA's expected, .* found str"):
        stream_of("0")


def test_what_cannot_be_written_on_the_device_is_refused(exe, gpu):
    x = on_device(gpu, X)
    with pytest.raises(
        InputError, match="GPC2115 output 'y': memory of its own expected, this array shares that of an input"
    ):
        exe.run({"x": x}, outputs={"y": x})
    with pytest.raises(InputError, match="GPC2115 output 'y': a contiguous array expected on a device"):
        exe.run({"x": x}, outputs={"y": gpu.array(np.asfortranarray(X))})
    with pytest.raises(InputError, match=r"GPC2115 output 'y': shape \[5, 7\] expected"):
        exe.run({"x": x}, outputs={"y": gpu.array(X.T.copy())})
    with pytest.raises(UsageError, match="GPC2038 outputs: arrays by name, or 'device', expected, found 'host'"):
        exe.run({"x": x}, outputs="host")


def test_an_array_that_says_it_is_read_only_is_not_written(exe, gpu):
    y = on_device(gpu, 0 * X)
    interface = y.__cuda_array_interface__

    class ReadOnly:
        array = y
        __cuda_array_interface__ = interface | {"data": (interface["data"][0], True)}

    with pytest.raises(InputError, match=r"GPC2115 output 'y': an array that can be written expected, .* read-only"):
        exe.run({"x": X}, outputs={"y": ReadOnly()})
    np.testing.assert_array_equal(
        exe.run({"x": ReadOnly()})["y"], answer(0 * X)["y"]
    )  # as an input it is like any other


def test_an_array_of_another_kind_of_gpu_is_refused(exe, gpu):
    other = GPUS[next(kind for kind in GPUS if kind != gpu.kind)]

    class Foreign:
        array = on_device(gpu, X)

        def __dlpack_device__(self):
            return other.memory_kind, 0

        def __dlpack__(self, *, stream=None, **named):
            raise BufferError("not for this library")

    with pytest.raises(InputError, match="GPC2106 input 'x'"):
        exe.run({"x": Foreign()})
    with pytest.raises(InputError, match="GPC2115 output 'y'"):
        exe.run({"x": X}, outputs={"y": Foreign()})


def with_states(gpu, *states, second=(3, 1, 4, 5)):
    """``two_layers`` with states, and the buffers that its second launch works on."""
    plan, sources, weights = two_layers(gpu.target())
    written = [k for k in plan.outputs if k in second and plan.buffers[k].kind == OUTPUT]
    names = [plan.buffers[k].name for k in written]
    launches = (plan.launches[0], replace(plan.launches[1], args=second))
    plan = replace(plan, launches=launches, outputs=tuple(written), output_names=tuple(names), states=states)
    return Executable(plan, sources, {"k0.bin": gpu.binary(4)}, weights)


def test_a_state_that_a_run_updates_stays_where_it_is(gpu):
    exe = with_states(gpu, State("x", "now"), second=(3, 1, 0, 5))
    context, wanted = exe.context(), X
    context.restore({"x": X})
    context.run({})
    (memory,) = context.states.arrays.values()
    gpu.driver.clear_log()

    for _ in range(5):
        wanted = answer(wanted)["y"]
        found = context.run({})
        np.testing.assert_array_equal(found["z"], answer(wanted)["z"])

    assert context.states.arrays["x"] is memory
    np.testing.assert_array_equal(there(memory, gpu), answer(wanted)["y"])
    assert moved(gpu) == [f"download {SIZE}"] * 5  # of "z"; nothing else went anywhere
    assert gpu.driver.log.count("capture") == 1


def test_a_state_that_is_made_anew_has_two_arrays_and_a_graph_for_each_order(gpu):
    exe = with_states(gpu, State("x", "y", why="as an example"))
    context, wanted = exe.context(), X
    context.restore({"x": X})
    context.run({})
    gpu.driver.clear_log()

    for _ in range(8):
        wanted = answer(wanted)["y"]
        found = context.run({})
        assert list(found) == ["z"]

    np.testing.assert_array_equal(there(context.states.arrays["x"], gpu), answer(wanted)["y"])
    assert moved(gpu) == [f"download {SIZE}"] * 8
    assert gpu.driver.log.count("capture") == 2


def test_a_state_takes_no_memory_of_the_program_s(gpu):
    exe, context = with_states(gpu, State("x", "y", why="as an example")), None
    for _ in range(2):
        exe.open()
        with exe._program() as program:
            assert program._own[0] == 0
        context = exe.context()
        context.run({})
    exe.profile({})  # nobody gives memory here
    with exe._program() as program:
        assert program._own[0] > 0


def test_a_run_that_failed_while_it_updated_a_state_loses_it(gpu):
    exe = with_states(gpu, State("x", "now"), second=(3, 1, 0, 5))
    context = exe.context()
    context.run({})
    gpu.driver.fail("cuGraphLaunch", 1)

    with pytest.raises(DeviceError):
        context.run({})
    with pytest.raises(UsageError, match="a run ended while it updated state 'x', which is lost"):
        context.run({})
    context.reset()
    context.run({})
