"""Programs on GPUs of CUDA and HIP that are stopped, closed, or used by a child of the process that opened them."""

from __future__ import annotations

import gc
import os
import signal
import threading

import numpy as np
import pytest

from gpucomp.device import forks, hip
from gpucomp.errors import DeviceError, RunStoppedError, UsageError
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.options import Options
from gpucomp.runtime.stopping import Stop
from tests.fake_gpus import GPUS
from tests.fake_hip.runtime import FakeHip
from tests.plans import COLUMNS, ROWS, answer, two_layers
from tests.runtime.test_results_on_gpu import add_relu

X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
CHILD_S = 30  # after which a child is killed that hangs


@pytest.fixture(params=GPUS)
def gpu(request, monkeypatch):
    made = GPUS[request.param]({"k0": add_relu})
    made.install(monkeypatch)
    monkeypatch.setattr(forks, "_process", forks._Process())
    return made


def executable(gpu, host=False):
    plan, sources, weights = two_layers(gpu.target(), host=host)
    return Executable(plan, sources, {"k0.bin": gpu.binary(4)}, weights)


def assert_right(found, host=False):
    for name, wanted in answer(X, host=host).items():
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)


def in_child(work):
    """What ``work`` returns in a forked process, as text, or the code of the error that it raises."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        signal.alarm(CHILD_S)
        try:
            os.write(writing, str(work()).encode())
        except DeviceError as error:
            os.write(writing, f"{error.code} {error.message}".encode())
        finally:
            os._exit(0)  # it must not go on with the tests
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return said


@pytest.mark.parametrize("how", ["run", "profile", "context", "zeros"])
def test_a_child_that_uses_its_parent_s_model_gets_an_error(gpu, how):
    exe = executable(gpu)
    context = exe.context()
    context.run({"x": X})
    exe.run({"x": X})
    with exe._program() as program:
        pass
    calls = {
        "run": lambda: exe.run({"x": X}),
        "profile": lambda: exe.profile({"x": X}),
        "context": lambda: context.run({"x": X}),
        "zeros": lambda: program.zeros(X.shape, X.dtype),
    }

    assert in_child(calls[how]).startswith("GPC5021 this process was forked from one that uses a GPU")
    assert_right(exe.run({"x": X}))
    assert_right(context.run({"x": X}))


def test_a_child_opens_no_model_where_its_parent_uses_a_gpu(gpu):
    executable(gpu).run({"x": X})

    assert in_child(lambda: executable(gpu).run({"x": X})).startswith("GPC5021")


def test_a_child_that_is_forked_in_the_middle_of_a_run_does_not_wait_for_it(gpu):
    exe = executable(gpu)
    exe.run({"x": X})
    with exe._program() as program, program._arena.lock:
        assert in_child(lambda: program.run({"x": X})).startswith("GPC5021")


def test_a_child_gives_nothing_back_that_is_its_parent_s(gpu):
    exe = executable(gpu)
    exe.run({"x": X})
    held = gpu.driver.held()

    def collected():
        with exe._program() as program:
            program.close()
        return gpu.driver.held() == held

    assert in_child(collected) == "True"
    assert_right(exe.run({"x": X}))


def test_a_child_of_a_process_without_a_gpu_runs_a_model(gpu):
    exe = executable(gpu)

    assert in_child(lambda: np.array_equal(exe.run({"x": X})["y"], answer(X)["y"])) == "True"


def stopping(gpu, stop, number):
    """The kernel, whose launch ``number`` stops the run as another thread would."""
    launched = []

    def kernel(*arrays):
        launched.append(1)
        if len(launched) == number:
            stop.stop()
        add_relu(*arrays)

    gpu.driver.kernels = {"k0": kernel}
    return launched


@pytest.mark.parametrize("runs", [0, 1, 2])  # before it: launched one by one, captured, replayed
def test_a_run_that_was_cancelled_says_so_and_the_next_one_is_right(gpu, runs):
    exe, stop = executable(gpu), Stop()
    for _ in range(runs):
        exe.run({"x": X})
    stopping(gpu, stop, 1)

    with pytest.raises(RunStoppedError, match="GPC1101 the run was cancelled"):
        exe._run({"x": X}, Options(stop=stop))
    for _ in range(2):
        assert_right(exe.run({"x": X}))


def test_a_run_is_stopped_before_the_next_host_operator(gpu):
    exe, stop = executable(gpu, host=True), Stop()
    launched = stopping(gpu, stop, 1)

    with pytest.raises(RunStoppedError, match="GPC1101"):
        exe._run({"x": X}, Options(stop=stop))

    assert len(launched) == 1  # of two
    assert_right(exe.run({"x": X}, timeout=60), host=True)


def test_a_run_whose_time_is_over_launches_nothing(gpu):
    exe = executable(gpu)
    exe.open()
    gpu.driver.clear_log()

    with pytest.raises(RunStoppedError, match="GPC1102 the run was given up after its timeout"):
        exe.run({"x": X}, timeout=0)

    assert gpu.driver.done("launch", "replay") == []
    assert_right(exe.run({"x": X}, timeout=60))


def test_a_future_is_cancelled_before_its_run(gpu):
    exe = executable(gpu)
    with exe.context() as context:
        begun, go_on = threading.Event(), threading.Event()

        def kernel(*arrays):
            begun.set()
            go_on.wait(CHILD_S)
            add_relu(*arrays)

        gpu.driver.kernels = {"k0": kernel}
        first, second = context.run_async({"x": X}), context.run_async({"x": X})
        begun.wait(CHILD_S)
        assert second.cancel()
        go_on.set()
        assert_right(first.result(CHILD_S))


def test_a_closed_context_gives_its_memory_back_and_runs_no_more(gpu):
    exe = executable(gpu)
    exe.run({"x": X})
    gc.collect()
    held = gpu.driver.held()
    with exe.context() as context:
        assert_right(context.run({"x": X}))
        assert gpu.driver.held()["allocated"] > held["allocated"]

    gc.collect()
    assert gpu.driver.held() == held
    with pytest.raises(UsageError, match="GPC2037 this context is closed"):
        context.run({"x": X})
    assert_right(exe.run({"x": X}))


def test_who_finds_no_gpu_uses_none(monkeypatch):
    there = FakeHip(gpus=0)
    monkeypatch.setattr(hip, "runtime", lambda: there.library)
    monkeypatch.setattr(forks, "_process", forks._Process())

    assert not hip.has_gpu()
    forks._after_fork()
    assert not forks.is_child()
