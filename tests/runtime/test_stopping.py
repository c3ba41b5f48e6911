"""Runs that end early, and runs that go on while their caller does something else."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

import gpucomp
from gpucomp import config
from gpucomp.artifact.plan import COUNTER
from gpucomp.errors import InputError, RunStoppedError, UsageError
from gpucomp.runtime import stopping
from gpucomp.runtime.options import Options
from gpucomp.runtime.stopping import Stop
from gpucomp.runtime.workers import workers
from tests.onnx_builders import model, node, value

RNG = np.random.default_rng(11)
DEPTH, WIDTH = 300, 384
WEIGHT = (RNG.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)


def deep(depth=DEPTH):
    """A product after the other, some milliseconds long: what is stopped early leaves most of them out."""
    nodes = [node("MatMul", [f"h{k}", "w"], [f"h{k + 1}"]) for k in range(depth)]
    nodes.append(node("Relu", [f"h{depth}"], ["y"]))
    return model(nodes, [value("h0", [67, WIDTH])], ["y"], {"w": WEIGHT})


@pytest.fixture(scope="module", params=["cpu", "opencl"])
def exe(request):
    made = gpucomp.compile(deep(), target=request.param)
    made.run(feed())
    return made


def feed():
    return {"h0": np.random.default_rng(3).standard_normal((67, WIDTH)).astype(np.float32)}


class After(Stop):
    """Stops a run once it has begun."""

    def during(self, halt, clear):
        def at_once():
            self.stop()

        threading.Timer(0.001, at_once).start()
        return super().during(halt, clear)

    def check(self):
        self.looked = getattr(self, "looked", 0) + 1
        if self.looked == 3:
            self.stop()
        super().check()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_is_stopped_between_two_kernels_and_the_next_one_is_right(exe, threads):
    wanted = exe.run(feed())["y"]
    with config.using(threads=threads):
        context = exe.context()
        np.testing.assert_array_equal(context.run(feed())["y"], wanted)
        for _ in range(5):
            with pytest.raises(RunStoppedError, match="GPC1101 the run was cancelled"):
                exe._run(feed(), Options(context=context, stop=After()))
            np.testing.assert_array_equal(context.run(feed())["y"], wanted)


def test_a_run_that_was_stopped_has_not_computed_the_rest():
    exe = gpucomp.compile(deep(), target="cpu")
    exe.run(feed())
    exe.run(feed())
    target = np.full((67, WIDTH), 7, np.float32)
    stop = Stop()
    lane = exe.lanes.take()
    exe.lanes.give(lane)
    program = exe._opened(lane)
    run_native = program.run_native

    def halted(*given, **named):
        stop.stop()  # as another thread, when the first kernel has not begun
        run_native(*given, **named)

    program.run_native = halted
    with pytest.raises(RunStoppedError):
        exe._run(feed(), Options({"y": target}, None, stop))

    assert (target == 7).all()


def test_a_run_that_was_stopped_has_left_no_counts():
    """Tasks that share the keys of an attention count how many of them are done."""
    nodes = [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v"], ["y"]),
    ]
    shapes = {"q": [2, 1, 16], "k": [2, 16, 3000], "v": [2, 3000, 16]}
    exe = gpucomp.compile(model(nodes, [value(name, shape) for name, shape in shapes.items()], ["y"]), target="cpu")
    given = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    wanted = exe.run(given)["y"]
    stop = Stop()
    lane = exe.lanes.take()
    exe.lanes.give(lane)
    program = exe._opened(lane)
    (counter,) = [k for k, buffer in enumerate(program.plan.buffers) if buffer.kind == COUNTER]
    run_native = program.run_native

    def halted(*args, **named):
        program._kept[counter][0] = 1  # one task is done, and the others will not be
        stop.stop()
        run_native(*args, **named)

    program.run_native = halted
    with pytest.raises(RunStoppedError):
        exe._run(given, Options(stop=stop))
    program.run_native = run_native

    np.testing.assert_array_equal(exe.run(given)["y"], wanted)


def test_a_timeout_ends_a_run(exe):
    with pytest.raises(RunStoppedError, match="GPC1102 the run was given up after its timeout"):
        exe.run(feed(), timeout=1e-4)

    assert exe.run(feed(), timeout=60)["y"].shape == (67, WIDTH)


def test_a_timeout_counts_while_a_run_waits_for_its_turn():
    exe = gpucomp.compile(deep(3), target="cpu")
    with config.using(threads=1):
        exe.run(feed())
        held = [exe.lanes.take() for _ in range(exe.lanes._made)]
        with pytest.raises(RunStoppedError, match="GPC1102"):
            exe.run(feed(), timeout=0.03)
        for lane in held:
            exe.lanes.give(lane)
    assert exe.run(feed())["y"].shape == (67, WIDTH)


def test_a_timeout_counts_while_a_run_waits_for_a_thread():
    exe = gpucomp.compile(deep(3), target="cpu")
    exe.run(feed())
    taken = [workers.take(1)]
    while workers._free:
        taken.append(workers.take(len(workers._free)))
    try:
        with pytest.raises(RunStoppedError, match="GPC1102"):
            exe.run(feed(), timeout=0.03)
        assert not workers._waiting
    finally:
        for count in taken:
            workers.give(count)
    assert exe.run(feed())["y"].shape == (67, WIDTH)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "3"])
def test_a_timeout_is_seconds(timeout):
    with pytest.raises(UsageError, match="GPC2039 timeout: seconds of at least 0 expected"):
        gpucomp.compile(deep(3), target="cpu").run(feed(), timeout=timeout)


def test_the_thread_that_looks_at_timeouts_ends(monkeypatch):
    monkeypatch.setattr(stopping, "IDLE_S", 0.02)
    watch = stopping._Watch()
    monkeypatch.setattr(stopping, "_watch", watch)
    late, halted = Stop(0.02), threading.Event()
    with pytest.raises(RunStoppedError, match="GPC1102"), late.during(halted.set, lambda: None):
        assert halted.wait(5)
    end = time.monotonic() + 5
    while watch._thread is not None:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert not watch._runs


def test_a_timeout_of_ages_leaves_others_alone(monkeypatch):
    watch = stopping._Watch()
    monkeypatch.setattr(stopping, "_watch", watch)
    halted = threading.Event()
    ages = [Stop(1e12).during(pytest.fail, lambda: None), Stop(10**400).during(pytest.fail, lambda: None)]
    with ages[0], ages[1], pytest.raises(RunStoppedError, match="GPC1102"), Stop(0.02).during(halted.set, lambda: None):
        assert halted.wait(5)


def test_a_thread_that_cannot_be_started_halts_no_later_run(monkeypatch):
    monkeypatch.setattr(stopping, "_watch", stopping._Watch())
    halted, stop = [], Stop(60)

    def refused(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as within:
        within.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError), stop.during(lambda: halted.append(1), lambda: None):
            pass
    stop.stop()

    assert halted == []
    with Stop(60).during(pytest.fail, lambda: None):
        assert stopping._watch._thread is not None


def test_a_run_that_is_cancelled_as_it_begins_is_halted():
    halted, stop = [], Stop()
    check, stop.check = stop.check, lambda: stop._why or stop.stop()  # after it has looked
    with stop.during(lambda: halted.append(1), lambda: None):
        assert halted == [1]
    stop.check = check
    with pytest.raises(RunStoppedError, match="GPC1101"):
        stop.check()


def test_one_that_ends_in_time_is_not_looked_at_any_more(monkeypatch):
    watch = stopping._Watch()
    monkeypatch.setattr(stopping, "_watch", watch)
    for _ in range(50):
        with Stop(60).during(pytest.fail, lambda: None):
            pass
    assert not watch._runs


def test_a_future_gives_what_a_run_gives(exe):
    pending = [exe.run_async(feed()) for _ in range(4)]

    wanted = exe.run(feed())["y"]
    assert all(np.array_equal(one.result(60)["y"], wanted) for one in pending)
    assert all(one.done() and not one.cancel() for one in pending)


def test_a_future_is_awaited(exe):
    async def both():
        return await asyncio.gather(exe.run_async(feed()), exe.run_async(feed()))

    first, second = asyncio.run(both())

    np.testing.assert_array_equal(first["y"], second["y"])


def test_the_end_of_a_task_ends_its_run():
    exe = gpucomp.compile(deep(), target="cpu")
    exe.run(feed())

    async def late():
        return await asyncio.wait_for(exe.run_async(feed()), 1e-4)

    with pytest.raises(TimeoutError):
        asyncio.run(late())
    assert exe.run(feed())["y"].shape == (67, WIDTH)


def test_a_future_is_cancelled_before_and_during_its_run():
    exe = gpucomp.compile(deep(), target="cpu")
    context = exe.context()
    context.run(feed())
    first, second = context.run_async(feed()), context.run_async(feed())

    assert second.cancel()
    first.cancel()

    with pytest.raises(CancelledError):
        second.result(60)
    with pytest.raises((RunStoppedError, CancelledError)):
        first.result(60)
    assert context.run_async(feed()).result(60)["y"].shape == (67, WIDTH)


def test_a_wrong_input_is_the_result_of_a_future(exe):
    with pytest.raises(InputError, match="GPC2101"):
        exe.run_async({"q": 3}).result(60)
    with pytest.raises(UsageError, match="GPC2016"):
        exe.run_async()


def test_runs_of_one_context_happen_in_order():
    exe = gpucomp.compile(deep(3), target="cpu")
    with exe.context() as context:
        target, seen = np.zeros((67, WIDTH), np.float32), []
        feeds = [{"h0": np.full((67, WIDTH), k, np.float32)} for k in range(20)]
        pending = [context.run_async(one, outputs={"y": target}) for one in feeds]
        for one in pending:
            one.add_done_callback(lambda done: seen.append(done))
        pending[-1].result(60)
        np.testing.assert_array_equal(target, exe.run(feeds[-1])["y"])
    assert seen == pending


def test_a_stress_of_runs_and_cancels_leaves_every_result_right():
    exe = gpucomp.compile(deep(12), target="cpu")
    wanted, wrong = exe.run(feed())["y"], []

    def work(seed):
        rng = np.random.default_rng(seed)
        context = exe.context() if seed % 2 else exe
        for _ in range(60):
            one = context.run_async(feed())
            if rng.random() < 0.5:
                time.sleep(rng.random() * 2e-3)
                one.cancel()
            try:
                if not np.array_equal(one.result(60)["y"], wanted):
                    wrong.append(seed)
            except (RunStoppedError, CancelledError):
                pass

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    np.testing.assert_array_equal(exe.run(feed())["y"], wanted)
